"""Links: the connection to one MCP server: started, asked, started again at its next call when it has died, ended with its toolset."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client import ClientRequestContext, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import methods
from mcp_types.jsonrpc import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, JSONRPCResponse
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl, ValidationError

from treadle.ports import SessionView
from treadle.redaction import redacted_logger, shown_error
from treadle.sandboxes.processes import clean_environment
from treadle.tools import Tool
from treadle.tools.tool import ServiceLost, ServiceSilent
from treadle.toolsets.mcp.calls import Calls, Refusal, noted, refusal_in
from treadle.toolsets.mcp.offers import Offers
from treadle.toolsets.mcp.servers import McpServer, shortened, tool_name, visible
from treadle.toolsets.mcp.stdio import Program, stdio
from treadle.validation.schema import corrected

if TYPE_CHECKING:
    from types import TracebackType

    from mcp.client._transport import ReadStream, TransportStreams

__all__ = ["Link", "http", "opened", "sifted"]


# --- HTTP: an MCP server at an address, by the protocol's streamable HTTP. Bounded: the package reads an answer of any
# length.

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


# --- Sieve: takes out of a server's list entries that are not tools of the protocol, so that the package does not
# refuse the whole list.


@asynccontextmanager
async def sifted(
    transport: "AbstractAsyncContextManager[TransportStreams]",
    *,
    version: Callable[[], str],
    on_broken: Callable[[str, str], None],
    on_corrected: Callable[[str, str], None],
) -> AsyncGenerator["TransportStreams"]:
    """Enter a transport whose lists of tools hold only what the package takes.

    Args:
        version: Returns the version of the protocol that is spoken.
        on_broken: Called with the name of each tool that is left out, and why.
        on_corrected: Called with the name of each tool that is not left out, and what was wrong with it.
    """
    async with transport as (received, sent):
        yield _Sieve(received, version, on_broken, on_corrected), sent


class _Sieve:
    """A stream of messages, as the package reads it."""

    def __init__(
        self,
        inside: "ReadStream[SessionMessage | Exception]",
        version: Callable[[], str],
        on_broken: Callable[[str, str], None],
        on_corrected: Callable[[str, str], None],
    ) -> None:
        self._inside = inside
        self._version = version
        self._on_broken = on_broken
        self._on_corrected = on_corrected

    async def receive(self) -> SessionMessage | Exception:
        return self._sifted(await self._inside.receive())

    async def aclose(self) -> None:
        await self._inside.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._sifted(await self._inside.__anext__())

    async def __aenter__(self) -> Self:
        await self._inside.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> bool | None:
        return await self._inside.__aexit__(kind, error, trace)

    def _sifted(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            tools = item.message.result.get("tools")
            if isinstance(tools, list) and self._problem(item.message.result, tools):
                sound = [self._sound(item.message.result, one) for one in tools]
                item.message.result["tools"] = [one for one in sound if one is not None]
        return item

    def _sound(self, page: dict[str, Any], tool: Any) -> Any:
        """Return a tool that the package takes; None where that cannot be made of this one."""
        problem = first = self._problem(page, [tool])
        seen: set[str] = set()
        while problem and isinstance(tool, dict) and (field := problem.partition(":")[0].partition(".")[0]) not in seen:
            seen.add(field)
            if field == "inputSchema" and isinstance(tool.get(field), dict | None):
                tool = {**tool, field: _of_object(corrected(tool.get(field) or {}))}
            elif field in tool and field not in ("inputSchema", "name"):  # a hint, or a contract that cannot be kept
                tool = {key: part for key, part in tool.items() if key != field}
            problem = self._problem(page, [tool])
        name = str(tool.get("name") if isinstance(tool, dict) else None)[:200]
        if first:
            if problem:
                self._on_broken(name, first)
            else:
                self._on_corrected(name, f"its entry in the server's list was corrected: {first}")
        return None if problem else tool

    def _problem(self, page: dict[str, Any], tools: list[Any]) -> str:
        """Return what is wrong with a page that holds these tools; empty where nothing is."""
        try:
            methods.validate_server_result("tools/list", self._version(), {**page, "tools": tools})
        except ValidationError as error:
            first = error.errors()[0]
            return f"{'.'.join(map(str, first['loc'][2:]))}: {first['msg']}"
        except (KeyError, ValueError, RecursionError):
            return ""
        return ""


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of arguments, which are an object, whether it says so or not."""
    kind = schema.get("type", "object")
    return {**schema, "type": "object"} if kind == "object" or "object" in kind else schema


# --- Links: the connection to one MCP server: started, asked, started again at its next call when it has died, ended
# with its toolset.

logger = redacted_logger(__name__)

_FALLBACK_VERSION = "2025-11-25"
_MAX_PAGES = 100
_MAX_TOOLS = 1_000
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 30.0
_SETTLE_SECONDS = 5.0
"""How long a connection that the server has forgotten is kept for calls that are not answered yet."""


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
        if link.is_connecting:  # a server that does not answer would hold this as long as it may take to start
            keeper.cancel()
        try:
            await asyncio.wait({keeper})
        except asyncio.CancelledError:
            keeper.cancel()
            await asyncio.wait({keeper})
            raise


_SILENT = logging.NullHandler()


class Link:
    """The connection to one server. A server that ends is started again when it is next called; its tools are offered meanwhile.

    Args:
        server: How it is reached.
    """

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.client: Client | None = None
        """The connection; None while there is none."""
        self.is_connecting = False
        """Whether an attempt to make one is under way."""
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
        """Its tools; None where they may have changed since they were asked for."""
        self._known: list[Tool] | None = None
        """Its tools as they were listed last."""
        self._waiting = 0  # calls that wait for the connection
        self._wanted = asyncio.Event()  # whether there are any
        self._end = ""  # why the server has ended, until that was reported
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
        """Return the server's tools, asked for anew where it has said that they changed; those it had where it has ended.

        Raises:
            ConnectionError: There is no connection, and none of its tools is known.
            ValueError: It lists too many tools.
        """
        if self.client is None and self._known is not None:
            return self._known
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
            self._listed = self._known = self.offers.tools(listed)
        return self._listed

    def ended(self) -> str:
        """Return, once, why the server has ended since it was last asked; empty where it has not."""
        end, self._end = self._end, ""
        return end

    async def connected(self) -> Client:
        """Return the connection; one that was lost is made again, and waited for as long as a server may take to start.

        Raises:
            ConnectionError: There is none; with the reason.
        """
        self._waiting += 1
        self._wanted.set()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.server.connect_seconds):
                    while self.client is None and not self._is_closing:
                        await self._changed.wait()
        finally:
            self._waiting -= 1
            if not self._waiting and not self._is_closing:
                self._wanted.clear()
        if self.client is None:
            raise ServiceLost(self.problem)
        return self.client

    def close(self) -> None:
        """End the connection and start no other one."""
        self._is_closing = True
        self._ended.set()
        self._wanted.set()
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
        """Hold a connection until it is to be closed; make one that was lost again when a call wants it. Raises nothing."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._is_closing:
            # The handshake that every server knows comes first: under the newest version, which has none, a server cannot ask a
            # person in mid-call, and tools that do so fail. A server that refuses the handshake is asked by the newest version.
            was_up = await self._attempt("legacy")
            if self._is_refused and not self._has_ended():
                was_up = await self._attempt("auto")
            self._failures = 0 if was_up else self._failures + 1
            pause = _FIRST_PAUSE_SECONDS if was_up else min(pause * 2, _LONGEST_PAUSE_SECONDS)
            self._tell()
            if self._has_ended() or self._is_replaced:
                continue
            if was_up:
                self._end = f"{self.problem} It is started again at its next call."
            logger.warning("MCP server %s is not connected: %s", self.server.name, self.problem)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wait_for_end()
            if not self._is_closing:
                await self._wanted.wait()

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
                self.is_connecting = True
                client = await self._enter(stack, mode)
                self.is_connecting, was_up, self._listed = False, True, None
                self._program.has_answered = True
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
            self.is_connecting, self.client = False, None
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
