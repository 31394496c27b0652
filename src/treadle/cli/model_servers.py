"""Model servers: which answer on this machine, and what they serve. Asks for lists only; uses no model."""

import asyncio
from collections.abc import Mapping, Sequence

import aiohttp
import msgspec

__all__ = ["find_models"]

_SECONDS = 0.5
"""For the whole answer: a server on this machine answers at once, or is not one."""
_MAX_BYTES = 1_000_000


class _Model(msgspec.Struct):
    id: str


class _Listing(msgspec.Struct):
    """What `GET /models` answers in the dialect of Chat Completions."""

    data: list[_Model] | None
    """Null where there is no model yet."""


async def find_models(servers: Mapping[str, str]) -> dict[str, Sequence[str]]:
    """Return the models of each server that answers, by the server's name.

    Args:
        servers: The base URL of each.
    """
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        answers = await asyncio.gather(*(_models_of(address, http) for address in servers.values()))
    return {name: models for name, models in zip(servers, answers, strict=True) if models is not None}


async def _models_of(address: str, http: aiohttp.ClientSession) -> Sequence[str] | None:
    """Return the names of a server's models; None for a server that does not answer, or is of another kind."""
    try:
        async with http.get(f"{address.rstrip('/')}/models", allow_redirects=False) as response:
            body = await _read_body(response.content) if response.status == 200 else b""
        listing = msgspec.json.decode(body, type=_Listing)
    except (aiohttp.ClientError, OSError, ValueError, RecursionError):  # no URL, no answer in time, no such listing
        return None
    return [model.id for model in listing.data or ()]


async def _read_body(content: aiohttp.StreamReader) -> bytes:
    """Return a body; of one that is too large, a beginning, which is not a listing."""
    body = b""
    while len(body) <= _MAX_BYTES and (chunk := await content.readany()):
        body += chunk
    return body
