"""Listings: the models that a server offers, page by page. Knows no dialect: each says how its list is asked for and read."""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import msgspec
from yarl import URL

from treadle.errors import ModelResponseInvalid
from treadle.ports import ModelFacts
from treadle.providers.http.client import shared_client
from treadle.providers.http.endpoint import Endpoint, Timeouts, secrets_of
from treadle.providers.http.failures import not_the_protocol, read_failure

__all__ = ["Listing", "Page", "fetch_models", "number", "objects"]

_MAX_PAGES = 100
_MAX_BYTES = 8 * 1024 * 1024
_TIMEOUTS = Timeouts(connect_seconds=10, first_byte_seconds=30, idle_seconds=30, total_seconds=60)


class Page(NamedTuple):
    """One page of a list."""

    models: Mapping[str, ModelFacts]
    """What the server says of each model, by its id."""
    rest: Mapping[str, str] | None = None
    """The query of the next page; None for the last one."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """How the list of a dialect is asked for, and read."""

    read: Callable[[Any], Page | None]
    """Reads the JSON of one page; None for what is not a list of this dialect."""
    address: Callable[[str], str] = str
    """Makes the list's base URL of the dialect's."""
    query: Mapping[str, str] = {}
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "
    headers: Mapping[str, str] = {}


async def fetch_models(
    listing: Listing, base_url: str, *, api_key: str | None, key_variable: str
) -> dict[str, ModelFacts]:
    """Return the models that a server offers, in its order, with what it says of each.

    Raises:
        ModelError: There was no answer, the server refused, or it answered something else than a list.
    """
    key = {listing.key_header: listing.key_prefix + api_key} if api_key else {}
    endpoint = Endpoint(
        listing.address(base_url),
        "models",
        headers={"Accept": "application/json", **listing.headers, **key},
        timeouts=_TIMEOUTS,
        secrets=secrets_of(api_key, None),
    )
    address: URL = endpoint.url
    advice = f"Check the API key (api_key=, or {key_variable})." if key_variable else "Check the API key."
    found: dict[str, ModelFacts] = {}
    query: Mapping[str, str] | None = listing.query
    for _ in range(_MAX_PAGES):
        if query is None:
            break
        endpoint.url = address.update_query(query)
        answer = await shared_client.send(endpoint, None)
        with closing(answer):
            if not 200 <= answer.status < 300:
                raise await read_failure(answer, key_advice=advice)
            body = await answer.read_rest(max_bytes=_MAX_BYTES)
            page = listing.read(_decoded(body))
            if page is None:
                raise not_the_protocol(body, answer, expected="a list of models")
        found |= page.models
        query = None if page.rest is None else {**listing.query, **page.rest}
    return found


def objects(value: Any) -> list[dict[str, Any]] | None:
    """Return the objects of a list; None for any other value."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else None


def number(value: Any) -> int | None:
    """Return a number of tokens; None where the server tells none, or nonsense."""
    return int(value) if type(value) in (int, float) and 0 < value < 2**53 else None


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModelResponseInvalid(
            "The server answered with something else than a list of models. Check base_url: it often ends in /v1."
        ) from exc
