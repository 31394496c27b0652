"""Failures: what an exception of a tool means, and the bounded words for it. Values only; retries and records nothing."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from treadle.effects import Effect
from treadle.errors import Rejected
from treadle.tools import CallStatus, Unfinished

__all__ = ["Cut", "ToolExited", "contained", "describe", "failure_class", "kept_inside", "traceback_of"]

LONGEST_DESCRIPTION = 500
LONGEST_TRACEBACK = 8000


class Cut(Exception):
    """The attempt did not end by itself: its time was up, or the run was interrupted.

    Args:
        by_limit: Whether its own time limit cut it.
        seconds: How long it had run.
    """

    def __init__(self, *, by_limit: bool, seconds: float) -> None:
        super().__init__("cut")
        self.by_limit = by_limit
        self.seconds = seconds


class ToolExited(BaseException):
    """A tool tried to end the process. A BaseException like what it stands for, so that it is never retried."""


async def contained(running: Awaitable[Any]) -> Any:
    """Keep a tool's SystemExit or KeyboardInterrupt from leaving its task: asyncio would end the whole loop with it."""
    try:
        return await running
    except (SystemExit, KeyboardInterrupt) as error:
        raise ToolExited(_line(error)) from error


def kept_inside(function: Callable[[], Any]) -> Any:
    """Call a blocking tool; the same for a thread."""
    try:
        return function()
    except (SystemExit, KeyboardInterrupt) as error:
        raise ToolExited(_line(error)) from error


def failure_class(effect: Effect, error: BaseException) -> CallStatus:
    """Name a failure by effect (design section 1): whatever may have acted and did not say so is `outcome_unknown`."""
    match error:
        case Rejected():
            return CallStatus.REJECTED
        case Unfinished():
            return error.status
        case Cut() | TimeoutError():
            return CallStatus.TIMEOUT if effect.is_read else CallStatus.OUTCOME_UNKNOWN
        case OSError() | asyncio.CancelledError():
            return CallStatus.FAILED if effect.is_read else CallStatus.OUTCOME_UNKNOWN
        case BaseExceptionGroup():
            classes = {failure_class(effect, inner) for inner in error.exceptions}
            return CallStatus.OUTCOME_UNKNOWN if CallStatus.OUTCOME_UNKNOWN in classes else CallStatus.FAILED
        case _:
            return CallStatus.FAILED


def describe(error: BaseException) -> str:
    """Return one bounded line on an error: its name and its own words; no traceback, and no path of this machine."""
    if isinstance(error, Cut):
        return f"no answer within {error.seconds:.3g} s"
    line = str(error) if isinstance(error, ToolExited) else _line(error)
    return line if len(line) <= LONGEST_DESCRIPTION else line[: LONGEST_DESCRIPTION - 3] + "..."


def _line(error: BaseException) -> str:
    words = " ".join(_without_traceback(_own_words(error)[:100_000]).split())
    line = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return line.encode("utf-8", "replace").decode()


def _own_words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return error.strerror  # str() would show the file's path
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that cannot say what it is still has a name
        return ""


def _without_traceback(words: str) -> str:
    """Some errors carry another process's traceback as their words: its last line says what happened."""
    before, mark, after = words.partition("Traceback (most recent call last)")
    return before + after.strip().rpartition("\n")[2] if mark else words


def traceback_of(error: BaseException) -> str | None:
    """Return the traceback for operators; None where there is nothing to see in it."""
    if isinstance(error, Cut | Rejected | Unfinished):
        return None
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - a hostile exception must not take the run with it
        return None
    return text[-LONGEST_TRACEBACK:].encode("utf-8", "replace").decode()
