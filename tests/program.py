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
from functools import cache
from pathlib import Path

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
    """Run `treadle` with these arguments to its end.

    Raises:
        subprocess.TimeoutExpired: It took too long, and was killed.
    """
    own = {name: value for name, value in environment.items() if name.startswith(_OF_THE_START)}
    if own != {name: value for name, value in os.environ.items() if name in own} or any(
        name.startswith("COVERAGE_") for name in own
    ):
        return subprocess.run(
            [sys.executable, "-m", "treadle", *arguments],
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
    connection, child = _born(arguments, folder, environment, (read_in, write_out, write_err))
    with connection:
        try:
            out, err = _talk(write_in, read_out, read_err, given or b"", time.monotonic() + seconds)
            connection.settimeout(seconds)
            status = os.waitstatus_to_exitcode(int.from_bytes(_read(connection), "big"))
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["treadle", *arguments], seconds) from None
    return subprocess.CompletedProcess(["treadle", *arguments], status, out, err)


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
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], streams: tuple[int, int, int]
) -> tuple[socket.socket, int]:
    """Let the mother fork a process with these streams, which are closed here; return the line to her, and its number."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_mother())
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
def _mother() -> str:
    """Start the mother, once in each process of the suite; return where she listens."""
    place = tempfile.mkdtemp(prefix="treadle-mother-")
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG")}
    mother = subprocess.Popen(
        [sys.executable, MOTHER, f"{place}/s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
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
