"""Prices: what a vendor's model costs, from the package genai-prices (the extra `prices`). Asks no server."""

from decimal import Decimal
from importlib.util import find_spec

import msgspec

from treadle.messages import Usage

__all__ = ["list_price"]

_PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure",
    "azure-responses": "azure",
    "bedrock": "aws",
    "bedrock-claude": "aws",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "google",
    "groq": "groq",
    "mistral": "mistral",
    "moonshot": "moonshotai",
    "openai": "openai",
    "openai-chat": "openai",
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "together": "together",
    "vertex": "google",
    "vertex-claude": "google",
    "xai": "x-ai",
    "zai": "zai",
}
"""What the list calls the vendor of each dialect."""


class _ListPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A vendor's list price of one model."""

    provider: str
    model: str

    def cost(self, usage: Usage) -> Decimal:
        """Return the exact cost of one model call by the list; tokens read from the cache or written to it at their own price."""
        return _price(self, usage)


def list_price(dialect: str, model: str) -> _ListPrice | None:
    """Return the list price of a vendor's model; None when nobody knows it or the extra is not installed."""
    provider = _PROVIDERS.get(dialect)
    if provider is None or find_spec("genai_prices") is None:
        return None
    price = _ListPrice(provider=provider, model=model)
    try:
        price.cost(Usage(input_tokens=1, output_tokens=1))
    except LookupError:
        return None
    return price


def _price(price: _ListPrice, usage: Usage) -> Decimal:
    import genai_prices  # noqa: PLC0415 - an extra, loaded when the first price is asked for

    read = min(usage.cached_input_tokens, usage.input_tokens)  # the list raises where the parts are more than the whole
    counted = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=min(usage.cache_written_tokens, usage.input_tokens - read),
    )
    return genai_prices.calc_price(counted, model_ref=price.model, provider_id=price.provider).total_price
