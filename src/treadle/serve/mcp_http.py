"""MCP over streamable HTTP, on this machine alone: one address for any number of clients that have the token. Knows no tool."""

import asyncio
import hmac
import socket
from contextlib import suppress
from types import FrameType

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from treadle.serve.mcp_service import McpService, Offer

__all__ = ["Address", "serve_mcp_http"]

_HOST = "127.0.0.1"
_MAX_BYTES = 32 * 1024 * 1024
_LEAVING_SECONDS = 2


class Address:
    """Where clients come in: a port of this machine's own address, taken until it is closed.

    Args:
        port: 0 for one that is free.

    Raises:
        OSError: It is taken, or not allowed.
    """

    def __init__(self, port: int) -> None:
        self.listener = socket.create_server((_HOST, port))
        self.url = f"http://{_HOST}:{self.listener.getsockname()[1]}/mcp"
        """What a client is given."""

    def close(self) -> None:
        """Let go of the port."""
        self.listener.close()


async def serve_mcp_http(
    offer: Offer, address: Address, *, version: str, token: str | None, ended: asyncio.Event
) -> None:
    """Serve clients until `ended` is set, and return when all that they had begun is recorded.

    Requests for another host, or from a page of another origin, are refused: a page that a person looks at must not reach the agent
    by a name that it has bound to this machine.

    Args:
        token: What each request must bear; None lets in every program of this machine.
    """
    service = McpService(offer, version=version, has_ended=ended.is_set)
    # With the host of this machine, the package itself checks the Host and the Origin of each request.
    posts = _Posts(service.server.streamable_http_app(host=_HOST, max_request_body_size=_MAX_BYTES))
    config = uvicorn.Config(
        posts if token is None else _Guarded(posts, token),
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_LEAVING_SECONDS,
    )
    server = _Server(config, ended)
    leaving = asyncio.create_task(_leave(ended, service, posts, server))
    try:
        await server.serve(sockets=[address.listener])
    finally:
        ended.set()  # the server ends on a signal of its own accord too
        await leaving
        await service.finish()


async def _leave(ended: asyncio.Event, service: McpService, posts: "_Posts", server: uvicorn.Server) -> None:
    """End what is under way, so that each call is answered, and then the server."""
    await ended.wait()
    service.leave()
    await service.finish()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LEAVING_SECONDS):
            await posts.answered.wait()
    server.should_exit = True


class _Server(uvicorn.Server):
    """Ends by way of `ended`. At a signal, uvicorn and its streams would end at once, before the calls are answered."""

    def __init__(self, config: uvicorn.Config, ended: asyncio.Event) -> None:
        super().__init__(config)
        self._ended = ended
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)


class _Posts:
    """Tells when each request that carries a message has its answer. The streams that clients keep open carry none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._under_way = 0
        self.answered = asyncio.Event()
        self.answered.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._under_way += 1
        self.answered.clear()
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self.answered.set()


class _Guarded:
    """Lets in requests that bear the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_known(scope):
            answer = PlainTextResponse(
                "This server needs its token, as `Authorization: Bearer TOKEN`.",
                status_code=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, self._expected)
