"""HTTP: an MCP server at an address, by the protocol's streamable HTTP. Bounded: the package reads an answer of any length."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND

from treadle.toolsets.mcp.refusals import Refusal, noted

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

__all__ = ["http"]

_CONNECT_SECONDS = 30.0
_MAX_REFUSAL_BYTES = 65_536


@asynccontextmanager
async def http(
    url: str,
    *,
    headers: Mapping[str, str],
    max_bytes: int,
    seconds: float,
    auth: httpx2.Auth | None = None,
) -> AsyncGenerator["TransportStreams"]:
    """Connect to a server. No proxy credentials, cookies or redirects to another origin are used."""
    limit = httpx2.Timeout(_CONNECT_SECONDS, read=max(seconds, _CONNECT_SECONDS))
    transport = _Bounded(httpx2.AsyncHTTPTransport(), max_bytes)
    # A compressed answer could grow without bound once it is read: none is asked for, and none is taken.
    sent = {**headers, "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(transport=transport, headers=sent, timeout=limit, auth=auth) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=max_bytes) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """A transport whose answers end with an error where they grow too large. A refusal of a request names its HTTP status in its data,
    which the package would lose."""

    def __init__(self, inside: httpx2.AsyncBaseTransport, max_bytes: int) -> None:
        self._inside = inside
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        asked = _asked(request)
        try:
            response = await self._inside.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if asked is None or asked.get("method") in _FIRST:
                raise
            return _refused(request, Refusal(), {"code": INTERNAL_ERROR, "message": f"It cannot be reached: {error}"})
        if asked is not None and response.status_code >= 400:
            return await _with_status(request, response)
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


_FIRST = frozenset({"initialize", "server/discover"})


def _asked(request: httpx2.Request) -> dict[str, Any] | None:
    """Return the request of the protocol that is sent; None for a notification, and for what signs in."""
    if request.method != "POST" or request.headers.get("content-type") != "application/json":
        return None
    try:
        sent = json.loads(request.content)
    except ValueError:
        return None
    return sent if isinstance(sent, dict) and "jsonrpc" in sent and "method" in sent and "id" in sent else None


async def _with_status(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return a refusal as an error of the protocol whose data has the HTTP status."""
    status, body = response.status_code, await _beginning(response)
    error = _error_in(body)
    is_page = "html" in response.headers.get("content-type", "")
    said = error["message"] if error else "" if is_page else body.decode("utf-8", "replace").strip()
    refusal = Refusal(
        status=status,
        said=said,
        retry_after=response.headers.get("retry-after", ""),
        has_session="mcp-session-id" in request.headers,
    )
    error = error or {"code": _CODES.get(status, INTERNAL_ERROR), "message": said or "it said nothing more"}
    return _refused(request, refusal, error, response.headers, status)


_CODES = {404: METHOD_NOT_FOUND, **dict.fromkeys((400, 405, 406, 410, 413, 415), INVALID_REQUEST)}
"""What a refusal without a code of its own means, of those by which a request was not carried out."""


async def _beginning(response: httpx2.Response) -> bytes:
    """Return the body of a refusal, as far as it is of use."""
    body = b""
    try:
        if response.headers.get("content-encoding", "identity") == "identity":
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > _MAX_REFUSAL_BYTES:
                    break
    except (httpx2.TransportError, httpx2.StreamError):
        pass  # the status was received, and counts
    finally:
        await response.aclose()
    return body[:_MAX_REFUSAL_BYTES]


def _error_in(body: bytes) -> dict[str, Any] | None:
    """Return the error of the protocol that a body holds, however loosely it follows it; None where there is none."""
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = sent.get("error") if isinstance(sent, dict) else None
    if not isinstance(error, dict) or isinstance(error.get("code"), bool) or not isinstance(error.get("code"), int):
        return None
    return {**error, "message": str(error.get("message") or "")}


def _refused(
    request: httpx2.Request,
    refusal: Refusal,
    error: dict[str, Any],
    headers: Mapping[str, str] | None = None,
    status: int = 503,
) -> httpx2.Response:
    kept = {name: value for name, value in (headers or {}).items() if name.lower() not in _OF_A_BODY}
    body = {"jsonrpc": "2.0", "id": None, "error": {**error, "data": noted(refusal, error.get("data"))}}
    content = json.dumps(body).encode()
    return httpx2.Response(
        status, headers={**kept, "content-type": "application/json"}, content=content, request=request
    )


_OF_A_BODY = frozenset({"content-length", "content-type", "content-encoding", "transfer-encoding"})


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
