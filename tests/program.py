"""The program as tests run it: in the process of the test, or in one of its own, forked by a mother that has loaded it."""

import asyncio
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache
from pathlib import Path
from typing import Any, Self

import treadle
from treadle.cli.guidance import guidance_in, surroundings_in
from treadle.cli.main import main

CODE = "<code>"
"""Stands before the text of code that is run in place of the program."""
MOTHER = Path(__file__).with_name("program_mother.py")
_OF_THE_START = ("PYTHON", "LANG", "LC_", "COVERAGE_")
"""What a process reads before the program has a word: a process with such variables of its own is started anew."""


def run(
    arguments: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    given: bytes | None = None,
    seconds: float = 60.0,
    is_apart: bool = False,
) -> "subprocess.CompletedProcess[bytes]":
    """Run `treadle` with these arguments to its end: in this process, which lends it its streams, folder and environment.

    Args:
        is_apart: Whether it gets a process of its own, as it does where an event loop runs here, and as the code after `CODE` does.

    Raises:
        subprocess.TimeoutExpired: A process of its own took too long, and was killed.
    """
    if _begins_otherwise(environment):
        return subprocess.run(
            [sys.executable, *(("-c", *arguments[1:]) if arguments[:1] == [CODE] else ("-m", "treadle", *arguments))],
            cwd=folder,
            env=environment,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            timeout=seconds,
        )
    keeps_the_log = "worker" in arguments[:1]  # until its process ends
    if is_apart or keeps_the_log or CODE in arguments[:1] or _is_in_a_loop():
        with Forked(arguments, folder=folder, environment=environment) as process:
            out, err = process.communicate(seconds, given or b"")
        return subprocess.CompletedProcess(["treadle", *arguments], process.wait(), out, err)
    with tempfile.TemporaryFile() as read, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        read.write(given or b"")
        read.seek(0)
        with _lent(folder, environment, (read.fileno(), out.fileno(), err.fileno())):
            status = copy_context().run(_ended, arguments)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(["treadle", *arguments], status, out.read(), err.read())


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def _lent(folder: Path, environment: Mapping[str, str], descriptors: tuple[int, int, int]) -> Iterator[None]:
    """Give this process to the program: its streams, folder, environment and what it imports. Take all back at the end."""
    for read_once in (guidance_in, surroundings_in):
        read_once.cache_clear()
    before = Path.cwd(), dict(os.environ), [*sys.path], {*sys.modules}, sys.argv
    with _streams(descriptors):
        os.chdir(folder)
        _set_environment(environment)
        sys.path[:] = [*(place for place in sys.path if place), str(folder)]
        try:
            yield
        finally:
            place, variables, sys.path[:], modules, sys.argv = before
            os.chdir(place)
            _set_environment(variables)
            for name in {*sys.modules} - modules:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                    del sys.modules[name]


@contextmanager
def _streams(descriptors: tuple[int, int, int]) -> Iterator[None]:
    """Lead this process's standard descriptors, and the streams on them, elsewhere for a while."""
    streams = sys.stdin, sys.stdout, sys.stderr
    for stream in streams[1:]:
        stream.flush()
    kept = [os.dup(number) for number in (0, 1, 2)]
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    try:
        with (
            open(0, encoding="utf-8", closefd=False) as sys.stdin,
            open(1, "w", encoding="utf-8", closefd=False) as sys.stdout,
            open(2, "w", encoding="utf-8", closefd=False) as sys.stderr,
        ):
            yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        for number, copy in enumerate(kept):
            os.dup2(copy, number)
            os.close(copy)


def _set_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _ended(arguments: Sequence[str]) -> int:
    """Run the program, and return its exit code as Python makes it."""
    sys.argv = [str(Path(treadle.__path__[0], "__main__.py")), *arguments]
    try:
        return main()
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 1


def _begins_otherwise(environment: Mapping[str, str]) -> bool:
    """Whether a process reads variables at its start that are not the mother's."""
    own = {name: value for name, value in environment.items() if name.startswith(_OF_THE_START)}
    return own != {name: os.environ.get(name) for name in own} or any(name.startswith("COVERAGE_") for name in own)


def start(
    arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], **streams: Any
) -> "Forked | subprocess.Popen[bytes]":
    """Start `treadle` with these arguments; `streams` are those of `subprocess.Popen`."""
    if _begins_otherwise(environment):
        return subprocess.Popen([sys.executable, "-m", "treadle", *arguments], cwd=folder, env=environment, **streams)
    return Forked(arguments, folder=folder, environment=environment, **streams)


class Forked:
    """A process of the program with streams of its own. It has of `subprocess.Popen` what the tests use."""

    def __init__(
        self, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str],
        stdin: Any = subprocess.PIPE, stdout: Any = subprocess.PIPE, stderr: Any = subprocess.PIPE,
    ) -> None:  # fmt: skip
        self.returncode: int | None = None
        ends = [_ends(given, is_input=number == 0) for number, given in enumerate((stdin, stdout, stderr))]
        self._connection, self.pid = _born(
            arguments, folder, environment, (ends[0][0], ends[1][0], ends[2][0]), _serving(arguments)
        )
        self.stdin, self.stdout, self.stderr = (
            None if ours is None else os.fdopen(ours, mode)
            for (_, ours), mode in zip(ends, ("wb", "rb", "rb"), strict=True)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait(60)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("treadle", timeout or 0)
            with self._connection:
                self.returncode = os.waitstatus_to_exitcode(int.from_bytes(_read(self._connection), "big"))
        return self.returncode

    def communicate(self, timeout: float, given: bytes = b"") -> tuple[bytes, bytes]:
        """Give it the rest of its input, and return what is left to read of its output, once it has ended."""
        if self.stdin is not None:
            self.stdin.write(given)
            self.stdin.close()
        with ThreadPoolExecutor(2) as pool:
            open_ones = [one if one and not one.closed else None for one in (self.stdout, self.stderr)]
            reading = [pool.submit(one.read) if one else None for one in open_ones]
            try:
                out, err = (b"" if one is None else one.result(timeout) for one in reading)
            except FutureTimeout:
                self.kill()
                raise
        self.wait(timeout)
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _ends(given: Any, *, is_input: bool) -> tuple[int, int | None]:
    """Return the end of a stream that the process gets, and ours; None where it is not a pipe."""
    if given == subprocess.PIPE:
        read, write = os.pipe()
        return (read, write) if is_input else (write, read)
    if given == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    return os.dup(given if isinstance(given, int) else given.fileno()), None


def _serving(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the modules beside the command line that the mother of such a process has loaded."""
    match [*arguments]:
        case [code, *_] if code == CODE:
            dialects = (
                f"treadle.providers.{name}" for name in ("openai_chat", "openai_responses", "gemini", "bedrock")
            )
            return (*dialects, "botocore.auth", "botocore.session", "google.auth.transport.requests")
        case ["acp", *_]:
            return ("treadle.serve.acp", "treadle.serve.wire")
        case ["mcp", "serve", *_]:
            return ("treadle.serve.wire", "treadle.serve.mcp_http")
        case _:
            return ()


class AtTerminal:
    """A process of the program at a pseudo terminal of its own, from its birth to its end."""

    def __init__(
        self, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], rows: int, columns: int
    ) -> None:
        self._ours, theirs = os.openpty()
        self.resize(rows, columns)
        self._connection, self._child = _born(arguments, folder, environment, (theirs, theirs, theirs))
        self._text = getincrementaldecoder("utf-8")("replace")
        self.status: int | None = None
        """The exit code, or the negative number of a signal; None while it lives."""

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._ours, (rows, columns))

    def send(self, text: str) -> None:
        left = text.encode()
        while left:
            left = left[os.write(self._ours, left) :]

    def read(self, seconds: float) -> str:
        """Return what comes next.

        Raises:
            TimeoutError: Nothing comes.
            EOFError: The terminal was left.
        """
        if not select.select([self._ours], [], [], seconds)[0]:
            raise TimeoutError
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # as Linux says it
            piece = b""
        if not piece:
            raise EOFError
        return self._text.decode(piece)

    def kill(self, number: int) -> None:
        os.kill(self._child, number)

    def close(self, seconds: float = 30.0) -> None:
        """Take the terminal away, and wait for the end; who does not heed it is killed."""
        if self.status is not None:
            return
        os.close(self._ours)
        with self._connection:
            if not select.select([self._connection], [], [], seconds)[0]:
                with suppress(ProcessLookupError):  # it has ended, and its status is on the way
                    self.kill(signal.SIGKILL)
            status = _read(self._connection)
        self.status = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))


def _born(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    streams: tuple[int, int, int],
    loaded: tuple[str, ...] = (),
) -> tuple[socket.socket, int]:
    """Let the mother fork a process with these streams, which are closed here; return the line to her, and its number."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_mother(loaded))
    job = {"arguments": [*arguments], "folder": str(folder), "environment": dict(environment)}
    sent = json.dumps(job).encode()
    socket.send_fds(connection, [len(sent).to_bytes(4, "big")], [*streams])
    connection.sendall(sent)
    for end in set(streams):
        os.close(end)
    return connection, int.from_bytes(_read(connection), "big")


def _read(connection: socket.socket) -> bytes:
    read = b""
    while len(read) < 4:
        piece = connection.recv(4 - len(read))
        if not piece:
            raise ConnectionError("The mother of the program's processes has ended.")
        read += piece
    return read


@cache
def _mother(loaded: tuple[str, ...]) -> str:
    """Start a mother that has loaded some modules besides, once in each process of the suite; return where she listens."""
    place = tempfile.mkdtemp(prefix="treadle-mother-")
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG")}
    mother = subprocess.Popen(
        [sys.executable, MOTHER, f"{place}/s", *loaded], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert mother.stdout is not None
    assert mother.stdout.readline() == b"ready\n"
    atexit.register(_end, mother, place)
    return f"{place}/s"


def _end(mother: "subprocess.Popen[bytes]", place: str) -> None:
    assert mother.stdin is not None
    assert mother.stdout is not None
    mother.stdin.close()
    mother.stdout.close()
    mother.wait()
    Path(place, "s").unlink()
    Path(place).rmdir()
