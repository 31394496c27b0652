"""OpenAI Chat: the Chat Completions API, and the servers that speak it, as a model."""

from treadle.providers.openai_chat.model import OpenAIChat, Timeouts

__all__ = ["OpenAIChat", "Timeouts"]
