"""Links: the connection to one MCP server for one run: started, asked, started again when it dies, ended with the run."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client, MCPError
from mcp.client import ClientRequestContext, IncomingMessage
from mcp_types.jsonrpc import CONNECTION_CLOSED
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl

from treadle.ports import SessionView
from treadle.redaction import redacted_logger, shown_error
from treadle.sandboxes.processes import clean_environment
from treadle.tools import Tool
from treadle.tools.outputs import ServiceLost, ServiceSilent
from treadle.toolsets.mcp.calls import Calls
from treadle.toolsets.mcp.http import http
from treadle.toolsets.mcp.offers import Offers
from treadle.toolsets.mcp.refusals import refusal_in
from treadle.toolsets.mcp.servers import McpServer
from treadle.toolsets.mcp.sieve import sifted
from treadle.toolsets.mcp.stdio import Program, stdio
from treadle.toolsets.mcp.texts import shortened, tool_name, visible

__all__ = ["Link", "opened"]

logger = redacted_logger(__name__)

_FALLBACK_VERSION = "2025-11-25"
_MAX_PAGES = 100
_MAX_TOOLS = 1_000
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 30.0
_SETTLE_SECONDS = 5.0
"""How long a connection that the server has forgotten is kept for calls that are not answered yet."""
_GIVE_UP_AFTER = 10
"""Failed starts in a row after which a server is left alone for the rest of the run."""


@asynccontextmanager
async def opened(server: McpServer) -> AsyncGenerator["Link"]:
    """Connect to a server, and hold the connection until this is left.

    Raises:
        ConnectionError: It cannot be reached or started, or did not answer `initialize`; with its last output.
    """
    # The package logs what servers send, with tracebacks: what matters is in the errors and in our own log.
    logging.getLogger("mcp").addHandler(_SILENT)
    link = Link(server)
    keeper = asyncio.create_task(link.keep(), name=f"MCP server {server.name}")
    try:
        await link.first_attempt()
        yield link
    finally:
        link.close()
        try:
            await asyncio.wait({keeper})
        except asyncio.CancelledError:
            keeper.cancel()
            await asyncio.wait({keeper})
            raise


_SILENT = logging.NullHandler()


class Link:
    """The connection to one server. A server that ends is started again, after a pause that grows.

    Args:
        server: How it is reached.
    """

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.client: Client | None = None
        """The connection; None while there is none."""
        self.problem = "It was not started yet."
        """Why there is no connection."""
        self._calls = Calls(self)
        self.offers = Offers(server, self._calls.call)
        self._changed = asyncio.Event()
        """Set and replaced whenever a connection is made or lost, or an attempt to make one has failed."""
        self._ended = asyncio.Event()
        self._is_closing = False
        self._is_replaced = False  # whether the last connection ended because the server had forgotten it
        self._is_refused = False  # whether the last attempt was answered with an error of the protocol
        self._failures = 0
        self._listed: list[Tool] | None = None
        self._program = Program()

    @property
    def left_out(self) -> dict[str, str]:
        """Why tools of the server are not offered, by the names that they would have."""
        return {tool_name(self.server.name, name): why for name, why in self.offers.left_out.items()}

    # --- what a run asks of it

    async def first_attempt(self) -> None:
        """Wait until the server is connected, or could not be.

        Raises:
            ConnectionError: It could not; with the reason.
        """
        while self.client is None and not self._failures:
            await self._changed.wait()
        if self.client is None:
            raise ServiceLost(self.problem)

    async def tools(self, session: SessionView) -> Sequence[Tool]:
        """Return the server's tools, asked for anew where it has said that they changed.

        Raises:
            ConnectionError: There is no connection.
            ValueError: It lists too many tools.
        """
        await self.connected()
        if self._listed is None:
            try:
                async with asyncio.timeout(self.server.connect_seconds):
                    listed = await self._list()
            except TimeoutError:
                raise ServiceSilent(
                    f"It did not list its tools within {self.server.connect_seconds:g} seconds."
                ) from None
            except MCPError as error:
                refusal = refusal_in(error.data)
                why = f" ({refusal.words})" if refusal is not None else ""
                raise ServiceLost(
                    f"It did not list its tools{why}: {shortened(visible(error.message), 300)}"
                ) from error
            self._listed = self.offers.tools(listed)
        return self._listed

    async def connected(self) -> Client:
        """Return the connection; one that was lost is waited for, as long as a server may take to start.

        Raises:
            ConnectionError: There is none; with the reason.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self.server.connect_seconds):
                while self.client is None and not self._is_closing and self._failures < _GIVE_UP_AFTER:
                    await self._changed.wait()
        if self.client is None:
            raise ServiceLost(self.problem)
        return self.client

    def close(self) -> None:
        """End the connection and start no other one."""
        self._is_closing = True
        self._ended.set()
        self._tell()

    def restart(self, client: Client) -> None:
        """End a connection that the server has forgotten, and make a new one; nothing where that has begun already."""
        if self.client is client:
            self.client, self._is_replaced = None, True
            self._ended.set()

    async def _list(self) -> list[types.Tool]:
        client = await self.connected()
        try:
            return await self._pages(client)
        except MCPError as error:
            refusal = refusal_in(error.data)
            if refusal is None or not refusal.never_began:
                raise
        self.restart(client)
        return await self._pages(await self.connected())

    async def _pages(self, client: Client) -> list[types.Tool]:
        self.offers.left_out = {}
        listed: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            listed += page.tools
            cursor = page.next_cursor
            if cursor is None or len(listed) > _MAX_TOOLS:
                break
        if len(listed) > _MAX_TOOLS or cursor is not None:
            raise ValueError(f"It lists more than {_MAX_TOOLS:,} tools, or more than {_MAX_PAGES} pages of them.")
        return listed

    # --- the task that holds the connection

    async def keep(self) -> None:
        """Hold a connection until it is to be closed. Raises nothing."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._is_closing and self._failures < _GIVE_UP_AFTER:
            # The handshake that every server knows comes first: under the newest version, which has none, a server cannot ask a
            # person in mid-call, and tools that do so fail. A server that refuses the handshake is asked by the newest version.
            was_up = await self._attempt("legacy")
            if self._is_refused and not self._has_ended():
                was_up = await self._attempt("auto")
            self._failures = 0 if was_up else self._failures + 1
            pause = _FIRST_PAUSE_SECONDS if was_up else min(pause * 2, _LONGEST_PAUSE_SECONDS)
            self._tell()
            if not self._has_ended() and not self._is_replaced:
                logger.warning("MCP server %s is not connected: %s", self.server.name, self.problem)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wait_for_end()

    def _has_ended(self) -> bool:
        return self._is_closing

    async def _wait_for_end(self) -> None:
        while not self._is_closing:
            self._ended.clear()
            await self._ended.wait()

    async def _attempt(self, mode: str) -> bool:
        """Connect once, and stay connected until the connection ends. Return whether it had been made."""
        self._ended = asyncio.Event()
        if self._is_closing:
            self._ended.set()
        self._program, self._is_replaced = Program(), False
        was_up = False
        reason: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                client = await self._enter(stack, mode)
                was_up, self._listed = True, None
                self.client = client
                self._failures = 0
                self._tell()
                async with _beside(self._watch_tools(client)):
                    await self._ended.wait()
                self.client = None
                if not self._is_closing:
                    await self._calls.settle(client, seconds=_SETTLE_SECONDS)
        except Exception as raised:  # noqa: BLE001 - whatever a server makes the package raise ends this connection and nothing else
            reason = raised
        finally:
            self.client = None
        error = _innermost(reason)
        self._is_refused = not was_up and isinstance(error, MCPError) and error.code != CONNECTION_CLOSED
        self.problem = self._why(reason, was_up=was_up)
        return was_up

    async def _enter(self, stack: AsyncExitStack, mode: str) -> Client:
        entering = Client(
            sifted(
                self._transport(),
                version=self._version,
                on_broken=self.offers.leave_out,
                on_corrected=self.offers.note,
            ),
            mode=mode,
            cache=None,
            client_info=types.Implementation(name="treadle", version=version("treadle")),
            elicitation_callback=self._calls.on_question,
            list_roots_callback=self._roots if self.server.roots else None,
            logging_callback=self._calls.on_log,
            message_handler=self._on_message,
        )
        async with asyncio.timeout(self.server.connect_seconds):
            return await stack.enter_async_context(entering)

    def _version(self) -> str:
        return _FALLBACK_VERSION if self.client is None else self.client.protocol_version

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        server = self.server
        if server.url is not None:
            return http(
                server.url,
                headers=server.headers,
                max_bytes=server.max_message_bytes,
                seconds=server.timeout,
                auth=server.auth,
            )
        return stdio(
            server.command,
            env={**clean_environment(), **server.env},
            cwd=server.cwd,
            max_bytes=server.max_message_bytes,
            program=self._program,
            on_end=self._ended.set,
        )

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _why(self, reason: BaseException | None, *, was_up: bool) -> str:
        """Return in a sentence or two why there is no connection, with what the server said last."""
        said = self._program.last_output()
        last = f" Its last output: {shortened(visible(said), 500)}" if said else ""
        return f"{self._what_happened(reason, was_up=was_up)}{last}"

    def _what_happened(self, reason: BaseException | None, *, was_up: bool) -> str:
        server, error = self.server, _innermost(reason)
        if self._program.problem is not None:
            return self._program.problem
        if server.cwd is not None and not Path(server.cwd).is_dir():
            return f"Its folder {visible(server.cwd)} does not exist."
        return self._what_failed(error, was_up=was_up) or (
            self._program.ended() if server.url is None else "The connection was lost."
        )

    def _what_failed(self, error: BaseException | None, *, was_up: bool) -> str | None:
        """Return what an error says; None where the connection has just ended."""
        server = self.server
        match error:
            case FileNotFoundError() if server.url is None:
                return f"The program {visible(server.command[0])!r} was not found. Install it, or give its path."
            case TimeoutError() if not was_up:
                return f"It did not answer `initialize` within {server.connect_seconds:g} seconds."
            case None:
                return None
            case MCPError(code=code) if code == CONNECTION_CLOSED and server.url is None:
                return None
            case OSError():
                return f"It cannot be reached: {error.strerror or error}."
            case _:
                return _unusable(error)

    # --- what the server says by itself

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._listed = None

    async def _roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(
            roots=[types.Root(uri=FileUrl(Path(root).as_uri()), name=Path(root).name) for root in self.server.roots]
        )

    async def _watch_tools(self, client: Client) -> None:
        """Listen for changes of the list of tools, where the server's protocol wants that asked for."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._listed = None


@asynccontextmanager
async def _beside(work: Any) -> AsyncGenerator[None]:
    """Run something beside the body, and end it with the body."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def _unusable(error: BaseException) -> str:
    refusal = refusal_in(error.data) if isinstance(error, MCPError) else None
    if refusal is None:
        return f"It cannot be used: {shortened(visible(shown_error(error)), 300)} ({type(error).__name__})."
    advice = " Check its headers, or sign in again." if refusal.code == "auth_expired" else ""
    return f"It refuses to connect: {refusal.words}.{advice}"


def _innermost(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
