"""Processes: run a program for a tool so that nothing of it outlives the call. No shell, no permission, no sandbox."""

import asyncio
import codecs
import os
import re
import resource
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from treadle.concurrency import Threads
from treadle.errors import ConfigurationError, check_path, shown
from treadle.fields import checked_but
from treadle.sandboxes import process_guard
from treadle.tools import TRACE, ProcessResult

__all__ = [
    "TOOLCHAINS",
    "VARIABLE",
    "Ends",
    "Lineage",
    "ProcessResult",
    "clean_environment",
    "clean_path",
    "is_over",
    "run_process",
    "run_until",
]


# --- Lineage: finds and ends all that one program has started, whatever group or session it is in now. Linux; elsewhere
# it finds nothing.

VARIABLE = "TREADLE_CALL"
"""The variable that holds the mark, behind the marks of programs that have started us."""

_LEAST, _MOST = 10**15, 10**18
"""Microseconds: 31 years and more. All marks have so many digits that no other number is taken for one."""
_QUICK_SECONDS = 1.0
"""In which time the numbers of processes cannot all have been given."""
_END_SECONDS = 1.0
"""How long all may take to end. What waits for a device ends once that answers."""
_POLL_SECONDS = 0.005
_THREADS = 17
"""Where the number of its threads stands in what the kernel says of a process, behind its name."""


class Lineage:
    """All that one program starts.

    Args:
        mark: Of a program that was started before; None for a new one.
    """

    def __init__(self, mark: str | None = None) -> None:
        self._hard = _hard_limit()
        self.mark = mark or str(_LEAST + secrets.randbelow(max(self._hard - _LEAST, _LEAST)))
        """The same unguessable number in both places."""
        self._began = time.monotonic()
        self._first = 0

    def marked(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with the mark."""
        others = os.environ.get(VARIABLE, "")
        return {**env, VARIABLE: f"{others} {self.mark}".strip()} if sys.platform == "linux" else dict(env)

    def starting(self, arguments: Sequence[str], env: Mapping[str, str], cwd: str | Path | None) -> list[str]:
        """Return the arguments that start a program with the mark as its limit, where it is sure to start: else its own error is to be told."""
        setter = _setter() if self._hard and _is_binary(arguments[0], env, cwd) else None
        return [*arguments] if setter is None else [setter, f"--rttime={self.mark}:{self._last}", "--", *arguments]

    def limit(self) -> dict[str, int]:
        """Return the mark as a limit, by its name in `resource`, for who sets others anyway; nothing where none can be set."""
        return {"RTTIME": int(self.mark)} if self._hard else {}

    def begin(self, program: int) -> None:
        """Mark a program that was started just now, and not by `prlimit`. What it has started already has the mark as a variable alone."""
        self._first = program
        if sys.platform == "linux" and self._hard:
            with suppress(OSError):  # it has ended, or is another user's
                resource.prlimit(program, resource.RLIMIT_RTTIME, (int(self.mark), self._last))

    @property
    def _last(self) -> int:
        """The hard limit. Where we have a mark ourselves it is that one, and stays with what we start."""
        return self._hard if self._hard < _MOST else int(self.mark)

    def end(self) -> set[int]:
        """End what is left, and return the processes that do not end. Takes a millisecond where nothing is left; never raises."""
        stopped: set[int] = set()
        while (
            new := self._members() - stopped
        ):  # before any is killed: one that forks faster than that would stay ahead
            stopped |= _signalled(new, signal.SIGSTOP)
        until, left = time.monotonic() + _END_SECONDS, stopped
        while left and time.monotonic() < until:
            _signalled(self._members(), signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
            # One that is ending has lost its environment already, and with it a mark.
            left = self._members() | {one for one in left if not is_over(one)}
        return {one for one in left if self._is_marked(one)}

    def _members(self) -> set[int]:
        """Return the processes with the mark that have not ended."""
        if sys.platform != "linux":
            return set()
        return {one for one in self._candidates() if self._is_marked(one) and not is_over(one)}

    def _candidates(self) -> list[int]:
        """Return the processes that may have been started since: in a short time, those with higher numbers alone."""
        found = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - after every program
        is_short = time.monotonic() - self._began < _QUICK_SECONDS and _last_number() >= self._first
        return [one for one in found if one >= self._first] if is_short else found

    def _is_marked(self, process: int) -> bool:
        return any(self.mark.encode() in _read(f"/proc/{process}/{name}") for name in ("limits", "environ"))


def _hard_limit() -> int:
    """Return the largest mark that can be set as a limit here; 0 where none can, since there is no such limit or it is in use."""
    if sys.platform != "linux" or not _shows_limits():
        return 0
    soft, hard = (_MOST if one == resource.RLIM_INFINITY else one for one in resource.getrlimit(resource.RLIMIT_RTTIME))
    return min(hard, _MOST) if min(soft, hard) > _LEAST and _may_set_limits() else 0


@cache
def _may_set_limits() -> bool:
    """Whether the limit can be set: it cannot where we run in a sandbox ourselves, which keeps the mark that we have."""
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, resource.getrlimit(resource.RLIMIT_RTTIME))
    except (OSError, ValueError):  # which Python makes of a missing permission
        return False
    return True


@cache
def _shows_limits() -> bool:
    return b"realtime timeout" in _read("/proc/self/limits")


@cache
def _setter() -> str | None:
    return shutil.which("prlimit", path=os.defpath)


def _is_binary(program: str, env: Mapping[str, str], cwd: str | Path | None) -> bool:
    """Whether a program is one that the kernel starts by itself: a script may lack its interpreter."""
    is_path = "/" in program
    place = str(Path(cwd or "", program)) if is_path else shutil.which(program, path=env.get("PATH", os.defpath)) or ""
    if not (os.access(place, os.X_OK) and (is_path or place.startswith("/"))):
        return False
    with suppress(OSError), open(place, "rb") as file:  # noqa: PTH123 - as above
        return file.read(4) == b"\x7fELF"
    return False


def _signalled(processes: set[int], number: signal.Signals) -> set[int]:
    for one in processes:
        with suppress(ProcessLookupError, PermissionError):  # another user's, such as after sudo
            os.kill(one, number)
    return processes


def is_over(process: int) -> bool:
    """Whether nothing of a process is left but its entry, which its parent has not taken yet. Linux; elsewhere that is unknown."""
    if sys.platform != "linux":
        return False
    found = _read(f"/proc/{process}/stat").rpartition(b")")[2].split()
    # Its first thread may have ended before the others, which run on.
    return found[:1] in ([], [b"X"]) or (found[0] == b"Z" and found[_THREADS] in (b"0", b"1"))


def _last_number() -> int:
    """Return the number that was given last; 0 where that is unknown."""
    last = _read("/proc/loadavg").split()[-1:]
    return int(last[0]) if last else 0


def _read(path: str) -> bytes:
    with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - after every program
        return file.read()
    return b""


# --- Processes: run a program for a tool so that nothing of it outlives the call. No shell, no permission, no sandbox.

_threads = Threads()

_UNENCODABLE = re.compile("[\\0\ud800-\udc7f\udd00-\udfff]")
"""NUL, and halves of characters but those that stand for bytes of a file's name."""
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
        env: Its whole environment; None for a clean one: path, home, user, locale, time zone, temporary directory and toolchains of
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
    descriptors: Sequence[int] = (),
    lineage: Lineage | None = None,
) -> ProcessResult:
    """Run a program as `run_process` does, and end it as at its time limit once `over`, which is called when it runs, has returned.

    Args:
        lineage: Whose limit the program sets itself; None for a new one.
    """
    _check_strings(arguments, cwd, env)
    sets_limit, lineage = lineage is not None, lineage or Lineage()
    env = lineage.marked(clean_environment() if env is None else env)
    transport, watch = await _started(
        arguments if sets_limit else lineage.starting(arguments, env, cwd),
        watch=lambda: _Watch(max_bytes, on_output, lineage),
        has_input=stdin is not None,
        cwd=cwd,
        env=env,
        descriptors=descriptors,
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
            if _UNENCODABLE.search(text):
                raise ConfigurationError(f"{word} holds a text that no program can be given: {shown(text)}.")


async def _started(
    arguments: Sequence[str],
    *,
    watch: "Callable[[], _Watch]",
    has_input: bool,
    cwd: str | Path | None,
    env: Mapping[str, str],
    descriptors: Sequence[int],
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
            pass_fds=descriptors,
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


TOOLCHAINS = ("CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT", "CONDA_PREFIX")
"""Variables that say in which folder the programs of a language are."""
_HANDED_DOWN = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TEMP", "TERM", "TMP", "TMPDIR", "TZ", "USER"),
        *TOOLCHAINS,
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
    ours["PATH"] = clean_path()
    return ours | {name.upper(): value for name, value in TRACE.get({}).items()}


def clean_path() -> str:
    """Return the folders in which every program looks for others: no `.`, which names the programs of whatever folder one is in."""
    folders = [one for one in os.environ.get("PATH", "").split(os.pathsep) if one.startswith("/")]
    return os.pathsep.join(folders) or os.defpath


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
        if other.done() and not watch.exited.done():
            other.result()  # what watches has failed: that is no limit
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
