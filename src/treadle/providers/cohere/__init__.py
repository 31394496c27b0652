"""The dialect of Cohere's Chat, version 2."""

from treadle.providers.cohere.model import Cohere

__all__ = ["Cohere"]
