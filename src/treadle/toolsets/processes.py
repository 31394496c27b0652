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
_CHUNK = 65_536


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
    """
    process = await asyncio.create_subprocess_exec(
        *arguments,
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    reading = asyncio.gather(
        _kept(process.stdout, max_bytes), _kept(process.stderr, max_bytes), _written(process.stdin, stdin)
    )
    try:
        # A grandchild may hold the pipes for ever: the end of the program itself is what we wait for.
        exit_code = await process.wait()
        _signal_group(process.pid, signal.SIGKILL)
        out, err, _ = await reading
    except BaseException:
        await asyncio.shield(_end(process))
        reading.cancel()
        raise
    text = [content.decode("utf-8", "replace") for content, _ in (out, err)]
    return ProcessResult(exit_code=exit_code, stdout=text[0], stderr=text[1], is_shortened=out[1] or err[1])


async def _kept(stream: asyncio.StreamReader | None, limit: int) -> tuple[bytes, bool]:
    """Read to the end, so that the program never waits for us; keep the beginning."""
    kept, is_shortened = bytearray(), False
    while stream is not None and (piece := await stream.read(_CHUNK)):
        room = limit - len(kept)
        kept += piece[:room]
        is_shortened = is_shortened or len(piece) > room
    return bytes(kept), is_shortened


async def _written(stream: asyncio.StreamWriter | None, content: bytes | None) -> None:
    if stream is None or content is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # a program may end without reading all of it
        stream.write(content)
        await stream.drain()
    stream.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the group: asked first, then killed."""
    _signal_group(process.pid, signal.SIGTERM)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _TERM_SECONDS)
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
