"""Offers: the models that a key or a server offers, by name, with what is known of each."""

from collections.abc import Mapping
from importlib import import_module

from treadle.errors import ConfigurationError, UnknownModel, shown
from treadle.fields import checked
from treadle.ports import ModelFacts
from treadle.providers.vendors import LOCAL_SERVERS, VENDORS
from treadle.resolve.models import known_facts, reach

__all__ = ["offered_models"]


@checked
async def offered_models(
    vendor: str, *, base_url: str | None = None, api_key: str | None = None
) -> Mapping[str, ModelFacts]:
    """Ask a server which models it offers. Return what is known of each by its name, such as `openai:gpt-5-mini`: what the server says, and
    for the vendor's own address what Treadle knows besides.

    Example:
        await offered_models("ollama")

    Args:
        vendor: The name before the colon of a model's name.
        base_url: The server's address; else the vendor's variable (such as OPENAI_BASE_URL), else the vendor.
        api_key: The key; else the vendor's variable (such as OPENAI_API_KEY).

    Raises:
        UnknownModel: No vendor has that name.
        MissingCredential: The vendor needs a key and none is set.
        ConfigurationError: The vendor lists its models elsewhere, or the address cannot be used.
        ModelError: There was no answer, or the server refused.
    """
    name = vendor.rstrip(":")
    if name not in VENDORS:
        raise UnknownModel(f"Unknown vendor {shown(vendor, 200)}. Write one of: {', '.join(VENDORS)}.")
    row = VENDORS[name]
    if row.door:
        raise ConfigurationError(
            f"{name} does not list its models where they are asked: see the cloud's own console or command line."
        )
    url, key = reach(name, row, base_url, api_key)
    listings = import_module("treadle.providers.http.listings")
    listing = import_module(f"{row.adapter.partition(':')[0]}.listing").LISTING
    found: dict[str, ModelFacts] = await listings.fetch_models(listing, url, api_key=key, key_variable=row.key_variable)
    is_vendors = url == row.address and name not in LOCAL_SERVERS
    names = {f"{name}:{model}": facts for model, facts in found.items()}
    return {one: facts.over(known_facts(one)) if is_vendors else facts for one, facts in names.items()}
