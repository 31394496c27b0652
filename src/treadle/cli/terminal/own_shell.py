"""Own shell: a line that a person runs with `!`, in their own shell and with their own permissions. Nobody is asked: they typed it."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

__all__ = ["run_line"]

_MAX_BYTES = 10_000_000


async def run_line(line: str, folder: Path) -> tuple[int, str]:
    """Run a line without input; return its exit code and what it wrote, of very much the end.

    A caller that is cancelled ends it with all that it has started.
    """
    process = await asyncio.create_subprocess_exec(
        os.environ.get("SHELL") or "/bin/sh",
        "-c",
        line,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = b""
    try:
        while chunk := await process.stdout.read(65536):
            output = (output + chunk)[-_MAX_BYTES:]
        code = await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return code, output.decode("utf-8", "replace")
