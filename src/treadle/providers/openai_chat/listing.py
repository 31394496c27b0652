"""OpenAI's list of models, and those of the servers that speak as it does: some say windows and prices, each in a field of its own."""

from decimal import Decimal, InvalidOperation
from typing import Any

from treadle.budgets import Price
from treadle.ports import ModelFacts
from treadle.providers.http.listings import Listing, Page, number, objects

__all__ = ["LISTING"]

_WINDOWS = ("context_window", "context_length", "max_context_length", "max_model_len")
"""Where Groq, OpenRouter and Together, Mistral and LM Studio, and vLLM tell the window."""
_OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


def _read(value: Any) -> Page | None:
    """Read a list, which Together sends bare. Null is the list of a server without a model."""
    bare = value.get("data", value.get("models")) if isinstance(value, dict) else value
    if bare is None and isinstance(value, dict) and "data" in value:
        bare = []
    listed = objects(bare)
    if listed is None:
        return None
    return Page({one["id"]: _facts(one) for one in listed if isinstance(one.get("id"), str)})


def _facts(model: dict[str, Any]) -> ModelFacts:
    window = next((found for name in _WINDOWS if (found := number(model.get(name)))), None)
    output = next((found for name in _OUTPUTS if (found := number(model.get(name)))), None)
    return ModelFacts(window=window, output=output, price=_price(model.get("pricing")))


def _price(pricing: Any) -> Price | None:
    """Return what OpenRouter and Vercel ask, who tell it for one token, as text."""
    if not isinstance(pricing, dict):
        return None
    told = pricing.get("prompt", pricing.get("input")), pricing.get("completion", pricing.get("output"))
    if not all(isinstance(one, str) for one in told):
        return None
    try:
        prompt, completion = (Decimal(str(one)) * 1_000_000 for one in told)
        return Price(input=prompt, output=completion) if min(prompt, completion) >= 0 else None
    except (InvalidOperation, ValueError):
        return None


LISTING = Listing(read=_read)
