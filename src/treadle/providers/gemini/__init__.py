"""Gemini: the generateContent API as a model."""

from treadle.providers.gemini.model import Gemini, Timeouts

__all__ = ["Gemini", "Timeouts"]
