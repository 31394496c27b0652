"""Anthropic: the Messages API as a model."""

from treadle.providers.anthropic.model import Anthropic, Timeouts

__all__ = ["Anthropic", "Timeouts"]
