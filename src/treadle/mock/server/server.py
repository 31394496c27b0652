"""The mock provider: a strict vendor on loopback, played from a script. It repairs nothing, and no real model is near.

async with MockProvider([call("search", query="moon"), text("Found.")]) as provider:
    model = resolve_model("openai-chat:mock", base_url=provider.base_url)
"""

import asyncio
import contextlib
import ipaddress
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from treadle.errors import ConfigurationError, check_kind, check_path
from treadle.fields import checked, checked_but
from treadle.mock.dialects.answers import Dialect, Refusal
from treadle.mock.dialects.anthropic.clouds import claude_dialects
from treadle.mock.dialects.anthropic.dialect import AnthropicMessages
from treadle.mock.dialects.bedrock.dialect import converse_dialects
from treadle.mock.dialects.cohere.dialect import CohereChat
from treadle.mock.dialects.gemini.dialect import gemini_dialects
from treadle.mock.dialects.openai_chat.dialect import ChatCompletions
from treadle.mock.dialects.openai_responses.dialect import Responses
from treadle.mock.gates import Count, Gate, Gates
from treadle.mock.server.connection import BadHttp, Connection, HungUp, Reader
from treadle.mock.server.sending import send
from treadle.mock.server.vendor import Playable, RecordedRequest, Vendor
from treadle.mock.turns import Turn, Waitable

__all__ = ["MockProvider"]


class MockProvider:
    """A provider to test agents against. Use it with `async with`, or in a thread with `with provider.in_thread():`.

    Example:
        >>> with MockProvider(["Hello."]).in_thread() as provider:
        ...     provider.base_url.startswith("http://127.0.0.1:"), provider.requests
        (True, [])

    Turns are counted over the whole server, in the order in which requests come. A refused request takes no turn.

    Args:
        script: A Script, turns, the path of a script's file, or a function of the request's body that makes the turn.
        port: Where to listen; 0 for any free port.
        host: A loopback address.
        record: A file that gets one JSON line a request: method, path, body, status.
        api_key: The key that requests must carry; None to take any.
        lenient_arguments: Take histories whose calls carry arguments that are not valid JSON, as some servers do.

    Raises:
        ConfigurationError: The script is invalid, the address is not this machine's own, or it is taken.
    """

    max_body_bytes = 64 * 1024 * 1024

    @checked_but("script")
    def __init__(
        self,
        script: Playable,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        record: Path | str | None = None,
        api_key: str | None = None,
        lenient_arguments: bool = False,
    ) -> None:
        dialects: list[Dialect] = [
            ChatCompletions(lenient_arguments=lenient_arguments),
            Responses(lenient_arguments=lenient_arguments),
            AnthropicMessages(),
            *claude_dialects(),
            *gemini_dialects(),
            *converse_dialects(),
            CohereChat(),
        ]
        self._vendor = Vendor(script, dialects=dialects, api_key=api_key)
        self._host = _loopback(host)
        self._port = _checked_port(port)
        if record is not None:
            check_path("record", record)
        self._record = record
        self._gates = Gates()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._arrivals = Count()
        self._hangups = Count()

    @property
    def base_url(self) -> str:
        """The address to configure as the provider's, ending in `/v1`."""
        if self._server is None:
            raise ConfigurationError(
                "The mock provider is not running: use it with `async with`, or `with provider.in_thread()`."
            )
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"

    @property
    def requests(self) -> list[RecordedRequest]:
        """Every request, in order of arrival."""
        return self._vendor.requests

    @property
    def refusals(self) -> list[Refusal]:
        """Why requests were refused, in order."""
        return self._vendor.refusals

    @property
    def hangups(self) -> int:
        """How many answers the client cut off by closing the connection."""
        return self._hangups.value

    @checked
    def gate(self, name: str) -> Gate:
        """Return the gate of that name, at which turns with `gate=name` wait until the test opens it."""
        return self._gates.named(name)

    @checked
    async def wait_requests(self, count: int) -> None:
        """Return when so many requests have come since the provider was made."""
        await self._arrivals.wait(count)

    @checked
    async def wait_hangups(self, count: int) -> None:
        """Return when so many clients have closed the connection while they were being answered."""
        await self._hangups.wait(count)

    async def __aenter__(self) -> Self:
        if self._server is not None:
            raise ConfigurationError("The mock provider is running already.")
        with contextlib.ExitStack() as undo:
            if self._record is not None:
                self._vendor.recording = undo.enter_context(_opened(self._record))
            self._server = await self._listen()
            undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None
        if self._vendor.recording is not None:
            self._vendor.recording.close()

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Run the provider on an event loop of its own, for code that has none."""
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        thread = threading.Thread(
            target=lambda: asyncio.run(self._run_until_stopped(started)), name="mock-provider", daemon=True
        )
        thread.start()
        loop, stopped = started.result()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stopped.set)
            thread.join()

    async def _run_until_stopped(self, started: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]") -> None:
        stopped = asyncio.Event()
        try:
            await self.__aenter__()
        except ConfigurationError as exc:  # raised again in the thread that asked
            started.set_exception(exc)
            return
        started.set_result((asyncio.get_running_loop(), stopped))
        try:
            await stopped.wait()
        finally:
            await self.__aexit__(None, None, None)

    async def _listen(self) -> asyncio.Server:
        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(Reader(), self._connected)

        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(protocol, self._host, self._port, backlog=1024)
        except OSError as exc:
            raise ConfigurationError(
                f"The mock provider cannot listen on {self._host} port {self._port}: {exc.strerror}."
            ) from exc
        if not server.sockets:  # asyncio passes over what no socket can be made for, as in a sandbox
            raise ConfigurationError(f"The mock provider cannot listen on {self._host}: no socket can be created here.")
        return server

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert isinstance(reader, Reader)
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        connection = Connection(reader, writer, max_body_bytes=self.max_body_bytes)
        try:
            while await self._exchange(connection):
                pass
        except HungUp:
            self._hangups.add()
        except asyncio.CancelledError:
            # The provider stops. asyncio.streams (3.11) logs a cancelled handler as an error, so it ends quietly here.
            connection.abort()
        finally:
            connection.close()

    async def _exchange(self, connection: Connection) -> bool:
        """Answer one request. Return whether the connection may be used again."""
        try:
            received = await connection.receive()
        except BadHttp as exc:
            reply = self._vendor.refused(Refusal(str(exc), status=exc.status))
            return await send(connection, None, reply, None)
        if received is None:
            return False
        reply = await self._vendor.reply(received)
        self._arrivals.add()
        return await send(connection, received, reply, self._gate(reply.turn))

    def _gate(self, turn: Turn) -> Waitable | None:
        return self.gate(turn.gate) if isinstance(turn.gate, str) else turn.gate


def _opened(path: Path | str) -> TextIO:
    try:
        return Path(path).open("a", encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"The mock provider cannot record into {str(path)!r}: {exc}.") from exc


def _loopback(host: str) -> str:
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ConfigurationError(
            f"The mock provider listens on this machine only, such as 127.0.0.1; got {host!r:.80}."
        )
    return host


def _checked_port(port: int) -> int:
    check_kind("port", port, int, "a number from 0 to 65535")
    if not 0 <= port <= 65535:
        raise ConfigurationError(f"A port is a number from 0 to 65535; got {port}.")
    return port
