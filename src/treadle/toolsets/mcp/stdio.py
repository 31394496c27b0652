"""Stdio: an MCP server as a child process, each message a line. Bounded: the package's own transport keeps a line of any length.

Nothing of the server outlives its connection, nor this process.
"""

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError
from mcp_types.jsonrpc import INTERNAL_ERROR, jsonrpc_message_adapter

from treadle.sandboxes import process_guard
from treadle.sandboxes.processes import Lineage

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.client._transport import TransportStreams

__all__ = ["Lines", "Program", "TooLong", "stdio"]


# --- Lines: bytes of a server in, messages out, of which none grows without bound. Reads no pipe.

_BEGINNING = 300
_ID = re.compile(rb'^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*[,}]')
_ID_AT_END = re.compile(rb',\s*"id"\s*:\s*(\d{1,15})\s*\}\s*$')


class TooLong(NamedTuple):
    """A line that was longer than allowed, and thrown away as it came."""

    size: int
    """Bytes that it had."""
    answers: int | None
    """The request that it answers, where its beginning or end says so."""


class Lines:
    """Cuts a stream of bytes into lines. Of a line that grows too long, only its beginning and end are kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    @property
    def pending(self) -> int:
        """Bytes so far of the line that has not ended."""
        return self._size

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """Return the lines that are whole now."""
        *ended, rest = chunk.split(b"\n")
        found: list[bytes | TooLong] = []
        for piece in ended:
            self._add(piece)
            found.append(self._end())
        self._add(rest)
        return found

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._max_bytes:
            self._pieces.append(piece)
            return
        if self._pieces:
            self._head, self._tail = b"".join(self._pieces)[:_BEGINNING], self._pieces[-1]
            self._pieces = []
        self._head = (self._head or piece)[:_BEGINNING]
        self._tail = (self._tail + piece)[-_BEGINNING:]

    def _end(self) -> bytes | TooLong:
        line: bytes | TooLong
        if self._size <= self._max_bytes:
            line = b"".join(self._pieces)
        else:
            found = _ID.search(self._head) or _ID_AT_END.search(self._tail)
            line = TooLong(self._size, int(found[1]) if found else None)
        self._pieces, self._size, self._head, self._tail = [], 0, b"", b""
        return line


# --- Stdio: an MCP server as a child process, each message a line. Bounded: the package's own transport keeps a line of
# any length.

_CHUNK_BYTES = 1 << 16
_MAX_RUBBISH_BYTES = 4_000_000
"""Bytes of lines that are not messages, since the last message, after which the server is given up."""
_LONGEST_LINE = 16
"""Times the largest message, after which a line that does not end is not waited for."""
_MAX_LAST_WORDS = 2_000
_CLOSE_SECONDS = 5.0
"""How long a server may take to end once its input has ended."""
_LOOK_SECONDS = 0.01
_TERM_SECONDS = 2.0
"""How long it may take once it was told to end."""


class Program:
    """What is known of a server's process, for whoever says what went wrong."""

    def __init__(self) -> None:
        self.errors = b""
        """The end of what it wrote to its standard error."""
        self.rubbish = b""
        """The last line of its standard output that is not a message."""
        self.has_answered = False
        """Whether it has answered `initialize`."""
        self.problem: str | None = None
        """Why it was given up; None where it ended by itself."""
        self.code: int | None = None
        """Its exit code, once it has ended."""

    def ended(self) -> str:
        """Return in one sentence what happened to it."""
        if self.problem is not None:
            return self.problem
        if self.code is None:
            return "It has closed its standard output."
        if self.code < 0:
            return (
                f"It was ended by signal {signal.Signals(-self.code).name}."
                if -self.code in signal.valid_signals()
                else "It was killed."
            )
        return f"It has ended with exit code {self.code}."

    def last_output(self) -> str:
        """Return the end of what it wrote for people; empty where it wrote nothing."""
        said = self.errors.strip() or self.rubbish.strip()
        return said.decode("utf-8", "replace")[-500:]


@asynccontextmanager
async def stdio(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    max_bytes: int,
    program: Program,
    on_end: Callable[[], None],
) -> AsyncGenerator["TransportStreams"]:
    """Start a server and connect to it. Left, it is ended with all that it has started.

    Args:
        program: Notified of what happens to the process.
        on_end: Called once the server says nothing more.

    Raises:
        OSError: The program cannot be started.
    """
    lineage = Lineage()
    env = lineage.marked(env)
    process = await asyncio.create_subprocess_exec(
        *lineage.starting(command, env, cwd),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    lineage.begin(process.pid)
    process_guard.keep(process.pid, lineage.mark)
    received_in, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, sent_out = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.create_task(_read(process, received_in, max_bytes, program, on_end)),
        asyncio.create_task(_write(process, sent_out)),
        asyncio.create_task(_listen(process, program)),
    ]
    try:
        yield received, sent
    finally:
        for stream in (received, sent, received_in, sent_out):
            stream.close()
        try:
            await _end(process, program)
        finally:
            _signal(process, signal.SIGKILL)  # a grandchild may live on when the program itself has ended
            lineage.end()
            for task in tasks:
                task.cancel()
            process_guard.leave(process.pid)
            _close(process)


async def _read(
    process: asyncio.subprocess.Process,
    received: "MemoryObjectSendStream[SessionMessage | Exception]",
    max_bytes: int,
    program: Program,
    on_end: Callable[[], None],
) -> None:
    assert process.stdout is not None
    lines, rubbish = Lines(max_bytes), 0
    try:
        while chunk := await process.stdout.read(_CHUNK_BYTES):
            for line in lines.feed(chunk):
                message = _message(line)
                if message is not None:
                    rubbish = 0
                    await received.send(message)
                elif isinstance(line, TooLong):
                    program.problem = f"It sent a message of {line.size:,} bytes, and at most {max_bytes:,} are taken."
                    return
                elif line.strip():
                    rubbish += len(line)
                    program.rubbish = line[:_MAX_LAST_WORDS]
            if rubbish > _MAX_RUBBISH_BYTES or lines.pending > _LONGEST_LINE * max_bytes:
                program.problem = "It writes text to its standard output that is not a message of the protocol."
                return
            await asyncio.sleep(0)  # a server that never stops must not keep others from running
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                program.code = await process.wait()
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        return  # the connection is being closed
    finally:
        received.close()
        on_end()


def _message(line: bytes | TooLong) -> SessionMessage | None:
    """Return the message of a line; None where it holds none. A line that is too long becomes an error for the call it answers."""
    if isinstance(line, TooLong):
        if line.answers is None:
            return None
        said = f"The server's answer has {line.size:,} bytes, which is more than is taken."
        return SessionMessage(
            JSONRPCError(jsonrpc="2.0", id=line.answers, error=ErrorData(code=INTERNAL_ERROR, message=said))
        )
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        return None


async def _write(process: asyncio.subprocess.Process, sent: "MemoryObjectReceiveStream[SessionMessage]") -> None:
    assert process.stdin is not None
    with suppress(OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        async with sent:
            async for one in sent:
                process.stdin.write(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()


async def _listen(process: asyncio.subprocess.Process, program: Program) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(_CHUNK_BYTES):
        program.errors = (program.errors + chunk)[-_MAX_LAST_WORDS:]
        await asyncio.sleep(0)


async def _end(process: asyncio.subprocess.Process, program: Program) -> None:
    """End a server as the protocol says: its input ends, then it gets SIGTERM, then it is killed with its group."""
    assert process.stdin is not None
    process.stdin.close()
    # One that has not introduced itself, or was given up, knows nothing of that.
    is_polite = program.has_answered and program.problem is None
    if not is_polite or not await _has_ended(process, _CLOSE_SECONDS):
        _signal(process, signal.SIGTERM)
        await _has_ended(process, _TERM_SECONDS)


async def _has_ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    # `process.wait()` also waits for pipes that a grandchild may hold for ever: then its group is ended anyway.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while process.returncode is None:  # noqa: ASYNC110 - asyncio reports the end only once the pipes are closed
                await asyncio.sleep(_LOOK_SECONDS)
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _close(process: asyncio.subprocess.Process) -> None:
    """Close the pipes: a grandchild that left the group may hold their other ends."""
    transport = getattr(process, "_transport", None)  # asyncio offers no public way to close them
    if transport is not None:
        with suppress(ProcessLookupError, PermissionError):
            transport.close()
