"""HTTP: an MCP server at an address, by the protocol's streamable HTTP. Bounded: the package reads an answer of any length."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

__all__ = ["Traffic", "http"]

_CONNECT_SECONDS = 30.0


class Traffic:
    """What is known of the requests, for whoever says what went wrong."""

    def __init__(self) -> None:
        self.refused: int | None = None
        """Status of the last response that was an error; None where the last one was well."""

    def last_output(self) -> str:
        """Return what the last response said, where it was an error."""
        return "" if self.refused is None else f"HTTP status {self.refused}"


@asynccontextmanager
async def http(
    url: str,
    *,
    headers: Mapping[str, str],
    max_bytes: int,
    seconds: float,
    traffic: Traffic,
    auth: httpx2.Auth | None = None,
) -> AsyncGenerator["TransportStreams"]:
    """Connect to a server. No proxy credentials, cookies or redirects to another origin are used."""
    limit = httpx2.Timeout(_CONNECT_SECONDS, read=max(seconds, _CONNECT_SECONDS))
    transport = _Bounded(httpx2.AsyncHTTPTransport(), max_bytes, traffic)
    # A compressed answer could grow without bound once it is read: none is asked for, and none is taken.
    sent = {**headers, "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(transport=transport, headers=sent, timeout=limit, auth=auth) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=max_bytes) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """A transport whose answers end with an error where they grow too large."""

    def __init__(self, inside: httpx2.AsyncBaseTransport, max_bytes: int, traffic: Traffic) -> None:
        self._inside = inside
        self._max_bytes = max_bytes
        self._traffic = traffic

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inside.handle_async_request(request)
        if request.method == "POST":
            self._traffic.refused = response.status_code if response.status_code >= 400 else None
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.StreamError("The server's answer is compressed, although none was asked for.")
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if not is_stream:  # the events of a stream are bounded one by one
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Counted(response.stream, self._max_bytes)
        return response

    async def aclose(self) -> None:
        await self._inside.aclose()


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, inside: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._inside = inside
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inside:
            size += len(chunk)
            if size > self._max_bytes:
                raise httpx2.StreamError(f"The server's answer has more than {self._max_bytes:,} bytes.")
            yield chunk

    async def aclose(self) -> None:
        await self._inside.aclose()
