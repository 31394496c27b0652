"""Processes: run a program for a tool so that nothing of it outlives the call. No shell, no permission, no sandbox."""

import asyncio
import codecs
import os
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from treadle.concurrency.threads import Threads
from treadle.errors import ConfigurationError, check_path, shown
from treadle.fields import checked_but
from treadle.sandboxes import process_guard
from treadle.sandboxes.lineage import Lineage
from treadle.tools import TRACE, ProcessResult

__all__ = ["Ends", "ProcessResult", "clean_environment", "run_process", "run_until"]

_threads = Threads()

_PIPE_SECONDS = 2.0
"""How long the output of a program that has ended is waited for, where somebody who could not be ended still holds the pipes."""
_TERM_SECONDS = 0.1
"""How long a program that was told to end may take before it is killed: a call that was cut has 0.2 seconds in all."""


@checked_but("arguments")
async def run_process(
    arguments: Sequence[str],
    *,
    stdin: bytes | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - what the program has written is returned, which asyncio.timeout cannot do
    max_bytes: int = 1_000_000,
    on_output: Callable[[bytes], None] | None = None,
    on_exit: Callable[[], None] | None = None,
) -> ProcessResult:
    """Run a program to its end. What it has started is ended with it; on Linux what has left its process group, too.

    The same happens where the call is cancelled, and where this process ends without a word, as `kill -9` makes it.

    Call it from an async tool: the tool's time limit, a person's cancel and the wall-time budget then end the program.

    Example:
        result = await run_process(["git", "log", "-1"], cwd=repository)

    Args:
        arguments: The program and its arguments; no shell reads them.
        stdin: What the program reads from its standard input; None for nothing.
        cwd: The folder that it starts in; None for ours.
        env: Its whole environment; None for a clean one: path, home, user, locale, time zone and temporary directory of
            ours, and nothing that may hold a key. Pass `{**clean_environment(), "NAME": value}` to add to it. `TREADLE_CALL` is added
            on Linux: by it is found what the program leaves running.
        timeout: Seconds after which the program is ended, and what it has written so far is returned; None for no limit.
        on_output: Called with each piece of output, as it comes. It must not raise.
        on_exit: Called once the program has ended, before its pipes are read to their end. It must not raise.
        max_bytes: Bytes kept of each output: its beginning and its end. What is between them is read and left out.

    Raises:
        OSError: The program cannot be started.
        ConfigurationError: One text was given, whose characters would be taken for a program and its arguments; or no program.
    """
    return await run_until(
        None,
        arguments,
        stdin=stdin,
        cwd=cwd,
        env=env,
        timeout=timeout,
        max_bytes=max_bytes,
        on_output=on_output,
        on_exit=on_exit,
    )


async def run_until(
    over: "Callable[[], Coroutine[Any, Any, None]] | None",  # Any: what is sent to it and yielded by it
    arguments: Sequence[str],
    *,
    stdin: bytes | None,
    cwd: str | Path | None,
    env: Mapping[str, str] | None,
    timeout: float | None,  # noqa: ASYNC109 - as above
    max_bytes: int,
    on_output: Callable[[bytes], None] | None,
    on_exit: Callable[[], None] | None,
) -> ProcessResult:
    """Run a program as `run_process` does, and end it as at its time limit once `over`, which is called when it runs, has returned."""
    _check_strings(arguments, cwd, env)
    lineage = Lineage()
    env = lineage.marked(clean_environment() if env is None else env)
    transport, watch = await _started(
        lineage.starting(arguments, env, cwd),
        watch=lambda: _Watch(max_bytes, on_output, lineage),
        has_input=stdin is not None,
        cwd=cwd,
        env=env,
    )
    group = transport.get_pid()
    process_guard.keep(group, lineage.mark)
    try:
        _write(transport.get_pipe_transport(0), stdin)
        # A grandchild may hold the pipes for ever: the end of the program itself is what we wait for, then we end the rest.
        ended = await _ended(watch, over, timeout)
        await (_kill_all(group, watch) if ended else _end(group, watch))
        if on_exit is not None:
            on_exit()
        await asyncio.wait({watch.closed}, timeout=_PIPE_SECONDS)
    except BaseException:
        await asyncio.shield(_end(group, watch))
        raise
    finally:
        _abandon(transport.get_pipe_transport(0))
        with suppress(PermissionError):  # it is root's now, and asyncio would kill it
            transport.close()
        process_guard.leave(group)
    return watch.result(transport.get_returncode(), timed_out=not ended)


def _check_strings(arguments: Sequence[str], cwd: str | Path | None, env: Mapping[str, str] | None) -> None:
    if not isinstance(arguments, list | tuple) or not all(isinstance(one, str) for one in arguments):
        hint = f" Try shlex.split({arguments!r:.60})." if isinstance(arguments, str) else ""
        raise ConfigurationError(
            f"arguments must be a list of strings, such as ['git', 'log']; got {shown(arguments)}.{hint}"
        )
    if not arguments or not arguments[0]:
        raise ConfigurationError("run_process needs a program: the first of its arguments.")
    if cwd is not None:
        check_path("cwd", cwd)
    for word, texts in (("arguments", arguments), ("env", [*(env or {}), *(env or {}).values()])):
        for text in texts:
            if "\0" in text or any("\ud800" <= char < "\udc80" or "\udcff" < char <= "\udfff" for char in text):
                raise ConfigurationError(f"{word} holds a text that no program can be given: {shown(text)}.")


async def _started(
    arguments: Sequence[str],
    *,
    watch: "Callable[[], _Watch]",
    has_input: bool,
    cwd: str | Path | None,
    env: Mapping[str, str],
) -> "tuple[asyncio.SubprocessTransport, _Watch]":
    """Start a program. Being cancelled meanwhile ends its group too: asyncio would end the program alone."""
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            watch,
            *arguments,
            stdin=asyncio.subprocess.PIPE if has_input else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait({starting})
        if starting.exception() is None:
            transport, watched = starting.result()
            await asyncio.shield(_end(transport.get_pid(), watched))
            transport.close()
        raise


_HANDED_DOWN = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER"),
        *("LC_ADDRESS", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION", "LC_MEASUREMENT", "LC_MESSAGES"),
        *("LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER", "LC_TELEPHONE", "LC_TIME"),
    }
)


def clean_environment() -> dict[str, str]:
    """Return the part of our environment that every program may see: no keys, tokens, addresses or options.

    Inside a call that is traced, `TRACEPARENT` (and `TRACESTATE`) name its span.

    Example:
        await run_process(["make"], env={**clean_environment(), "CC": "clang"})
    """
    ours = {name: value for name, value in os.environ.items() if name in _HANDED_DOWN}
    folders = [one for one in ours.get("PATH", "").split(os.pathsep) if one.startswith("/")]
    ours["PATH"] = os.pathsep.join(folders) or os.defpath  # no `.`: it names the programs of whatever folder one is in
    return ours | {name.upper(): value for name, value in TRACE.get({}).items()}


class _Watch(asyncio.SubprocessProtocol):
    """Keeps what a program writes, and tells when it has ended and when nobody holds its pipes any more."""

    def __init__(self, limit: int, on_output: Callable[[bytes], None] | None, lineage: Lineage) -> None:
        loop = asyncio.get_running_loop()
        self._on_output = on_output
        self.lineage = lineage
        self.left: set[int] = set()
        """What could not be killed."""
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._kept = {1: Ends(limit), 2: Ends(limit)}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Mark the program as soon as it has been started."""
        if isinstance(transport, asyncio.SubprocessTransport):
            self.lineage.begin(transport.get_pid())

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Read on to the end, so that the program never waits for us."""
        self._kept[fd].add(data)
        if self._on_output is not None:
            self._on_output(data)

    def process_exited(self) -> None:
        self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)

    def result(self, exit_code: int | None, *, timed_out: bool) -> ProcessResult:
        out, err = self._kept[1].text(), self._kept[2].text()
        if self.left:
            err += f"\n[It cannot be ended, and runs on: {', '.join(map(str, sorted(self.left)))}.]\n"
        is_shortened = any(ends.left_out for ends in self._kept.values())
        return ProcessResult(
            exit_code=exit_code or 0, stdout=out, stderr=err, is_shortened=is_shortened, timed_out=timed_out
        )


class Ends:
    """The beginning and the end of what a program writes: what it was about, and how it ended."""

    def __init__(self, limit: int) -> None:
        self._room = limit - limit // 2
        self._tail_room = limit // 2
        self._has_room_for_words = limit >= _LEAST_FOR_WORDS
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0
        """Bytes between the two."""

    def add(self, data: bytes) -> None:
        room = self._room - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut now and then, not at every piece: a program may write a million short ones.
        if len(self._tail) > 2 * self._tail_room + _SLACK:
            self._cut()

    def _cut(self) -> None:
        over = len(self._tail) - self._tail_room
        if over > 0:
            self.left_out += over
            del self._tail[:over]

    def text(self) -> str:
        self._cut()
        if not self.left_out:
            return bytes(self._head + self._tail).decode("utf-8", "replace")
        # A character that the cut has divided is left out with the rest.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        tail = bytes(self._tail)
        divided = next((at for at in range(min(3, len(tail))) if tail[at] & 0xC0 != 0x80), 0)
        text = f"\n[... {self.left_out:,} bytes left out ...]\n" if self._has_room_for_words else ""
        return head + text + tail[divided:].decode("utf-8", "replace")


_SLACK = 65_536
_LEAST_FOR_WORDS = 200
"""Bytes of a limit below which nothing is said between beginning and end: the words would be longer than both."""


def _write(pipe: asyncio.BaseTransport | None, content: bytes | None) -> None:
    """Hand over the whole input. A program may end without reading all of it."""
    if content is not None and isinstance(pipe, asyncio.WriteTransport):
        pipe.write(content)
        pipe.close()


async def _ended(watch: _Watch, over: "Callable[[], Coroutine[Any, Any, None]] | None", seconds: float | None) -> bool:
    """Wait for the end of a program, or for what ends it. Return whether it has ended by itself."""
    if over is None:
        await asyncio.wait({watch.exited}, timeout=seconds)
        return watch.exited.done()
    other = asyncio.ensure_future(over())
    try:
        await asyncio.wait({watch.exited, other}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return watch.exited.done()
    finally:
        other.cancel()
        await asyncio.wait({other})


def _abandon(pipe: asyncio.BaseTransport | None) -> None:
    """Close the input at once: what was not read of it would keep it open as long as a grandchild that has left holds its other end."""
    if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
        pipe.abort()


async def _end(group: int, watch: _Watch) -> None:
    """End the group: asked first, then killed with all else that the program has started."""
    _signal_group(group, signal.SIGTERM)
    await asyncio.wait({watch.exited}, timeout=_TERM_SECONDS)
    await _kill_all(group, watch)
    # What has become root's own (`sudo`) cannot be killed, and its call ends nevertheless.
    await asyncio.wait({watch.exited}, timeout=_TERM_SECONDS if watch.left else None)


async def _kill_all(group: int, watch: _Watch) -> None:
    _signal_group(group, signal.SIGKILL)
    try:
        ending = _threads.submit(watch.lineage.end)
    except RuntimeError:  # a fork bomb has left no room for a thread
        watch.left = watch.lineage.end()
    else:
        watch.left = await ending


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
