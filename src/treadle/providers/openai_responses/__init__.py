"""OpenAI Responses: the Responses API as a model."""

from treadle.providers.openai_responses.model import OpenAIResponses, Timeouts

__all__ = ["OpenAIResponses", "Timeouts"]
