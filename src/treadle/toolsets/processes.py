"""Processes: run a program for a tool so that nothing of it outlives the call. No shell, no permission, no sandbox."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

__all__ = ["ProcessResult", "run_process"]

_TERM_SECONDS = 0.1
"""How long a program that was told to end may take before it is killed: a call that was cut has 0.2 seconds in all."""


class ProcessResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended. An exit code that is not 0 is a result, not an error."""

    exit_code: int
    """Negative: the signal that ended it."""
    stdout: str
    stderr: str
    is_shortened: bool = False
    """Whether more was written than is kept here."""


async def run_process(
    arguments: Sequence[str],
    *,
    stdin: bytes | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    max_bytes: int = 1_000_000,
) -> ProcessResult:
    """Run a program to its end, in a process group of its own. Being cancelled kills the whole group, grandchildren too.

    Call it from an async tool: the tool's time limit, a person's cancel and the wall-time budget then end the program.

    Example:
        result = await run_process(["git", "log", "-1"], cwd=repository)

    Args:
        arguments: The program and its arguments; no shell reads them.
        env: Its whole environment; None for ours.
        max_bytes: What is kept of each output; the rest is read and dropped.

    Raises:
        OSError: The program cannot be started.
        TypeError: One text was given: its characters would be taken for a program and its arguments.
        ValueError: No program was given.
    """
    if isinstance(arguments, str | bytes):
        raise TypeError(
            f"run_process takes a list, such as ['git', 'log']; got {arguments!r:.80}. Try shlex.split(...)."
        )
    if not arguments:
        raise ValueError("run_process needs a program: the first of its arguments.")
    loop = asyncio.get_running_loop()
    transport, watch = await loop.subprocess_exec(
        lambda: _Watch(max_bytes),
        *arguments,
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    group = transport.get_pid()
    try:
        _write(transport.get_pipe_transport(0), stdin)
        # A grandchild may hold the pipes for ever: the end of the program itself is what we wait for, then we end the rest.
        await asyncio.wait({watch.exited})
        _signal_group(group, signal.SIGKILL)
        await asyncio.wait({watch.closed})
    except BaseException:
        await asyncio.shield(_end(group, watch))
        raise
    finally:
        transport.close()
    return watch.result(transport.get_returncode())


class _Watch(asyncio.SubprocessProtocol):
    """Keeps what a program writes, and tells when it has ended and when nobody holds its pipes any more."""

    def __init__(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._limit = limit
        self._kept = {1: bytearray(), 2: bytearray()}
        self._is_shortened = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Read on to the end, so that the program never waits for us; keep the beginning."""
        room = self._limit - len(self._kept[fd])
        self._kept[fd] += data[:room]
        self._is_shortened = self._is_shortened or len(data) > room

    def process_exited(self) -> None:
        self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)

    def result(self, exit_code: int | None) -> ProcessResult:
        out, err = (bytes(self._kept[fd]).decode("utf-8", "replace") for fd in (1, 2))
        return ProcessResult(exit_code=exit_code or 0, stdout=out, stderr=err, is_shortened=self._is_shortened)


def _write(pipe: asyncio.BaseTransport | None, content: bytes | None) -> None:
    """Hand over the whole input. A program may end without reading all of it."""
    if content is not None and isinstance(pipe, asyncio.WriteTransport):
        pipe.write(content)
        pipe.close()


async def _end(group: int, watch: _Watch) -> None:
    """End the group: asked first, then killed."""
    _signal_group(group, signal.SIGTERM)
    await asyncio.wait({watch.exited}, timeout=_TERM_SECONDS)
    _signal_group(group, signal.SIGKILL)
    await asyncio.wait({watch.exited})


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
