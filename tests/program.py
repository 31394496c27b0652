"""The program as tests run it: a process for each command, forked by a mother that has loaded it, or started as a person starts it."""

import atexit
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cache
from pathlib import Path
from typing import Any, Self

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
) -> "subprocess.CompletedProcess[bytes]":
    """Run `treadle`, or the code after `CODE`, with these arguments to its end.

    Raises:
        subprocess.TimeoutExpired: It took too long, and was killed.
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
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    read_err, write_err = os.pipe()
    connection, child = _born(arguments, folder, environment, (read_in, write_out, write_err), _serving(arguments))
    with connection:
        try:
            out, err = _talk(write_in, read_out, read_err, given or b"", time.monotonic() + seconds)
            connection.settimeout(seconds)
            status = os.waitstatus_to_exitcode(int.from_bytes(_read(connection), "big"))
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["treadle", *arguments], seconds) from None
    return subprocess.CompletedProcess(["treadle", *arguments], status, out, err)


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

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """Close its input, and return what is left to read of its output, once it has ended."""
        if self.stdin is not None:
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


def _talk(write_in: int, read_out: int, read_err: int, given: bytes, until: float) -> tuple[bytes, bytes]:
    """Write what is given, and read both streams to their ends."""
    heard: dict[int, list[bytes]] = {read_out: [], read_err: []}
    left = memoryview(given)
    with selectors.DefaultSelector() as selector:
        for stream in heard:
            selector.register(stream, selectors.EVENT_READ)
        if left:
            os.set_blocking(write_in, False)
            selector.register(write_in, selectors.EVENT_WRITE)
        else:
            os.close(write_in)
        while selector.get_map():
            ready = selector.select(until - time.monotonic())
            if not ready and time.monotonic() >= until:
                raise TimeoutError
            for key, _ in ready:
                if key.fd == write_in:
                    try:
                        left = left[os.write(write_in, left[:65536]) :]
                    except BrokenPipeError:
                        left = left[len(left) :]
                    is_over = not left
                else:
                    piece = os.read(key.fd, 65536)
                    heard[key.fd].append(piece)
                    is_over = not piece
                if is_over:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return b"".join(heard[read_out]), b"".join(heard[read_err])


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
