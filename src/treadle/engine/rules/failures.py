"""Failures: what an exception of a tool means, and the bounded words for it. Values only; retries and records nothing."""

import asyncio
import reprlib
import traceback
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Any, Literal, TypeAlias

from treadle.errors import InvalidArguments, InvalidJson, ModelError, Rejected, SandboxUnavailable, ToolError, Transient
from treadle.events.calls import UNTOLD
from treadle.stops import Stop
from treadle.tools import CallStatus, Effect, Unfinished

__all__ = [
    "Cut",
    "FailureText",
    "ToolExited",
    "backoff_seconds",
    "contained",
    "describe",
    "failure_class",
    "is_being_cancelled",
    "kept_inside",
    "may_retry_call",
    "message_of",
    "model_wait_seconds",
    "pass_interrupts",
    "retry_after_note",
    "told",
    "traceback_of",
]

FailureText: TypeAlias = Literal["short", "whole"]
"""What a model reads of an exception that is not meant for it: its class, or its message too."""

LONGEST_DESCRIPTION = 500
LONGEST_TRACEBACK = 8000
LONGEST_WORDS = 2000
_MAX_ERRORS = 10
_MAX_FRAMES = 50


_bounded_repr = reprlib.Repr()
_bounded_repr.maxstring = _bounded_repr.maxother = LONGEST_DESCRIPTION


class Cut(Exception):
    """The attempt did not end by itself: its time was up, or the run was interrupted.

    Args:
        stop: The end of the run that interrupted it; None where its own time limit cut it.
        seconds: How long it had run.
    """

    def __init__(self, *, stop: Stop | None, seconds: float) -> None:
        super().__init__("cut")
        self.stop = stop
        self.seconds = seconds


class ToolExited(BaseException):
    """A tool tried to end the process. A BaseException like what it stands for, so that it is never retried."""


_FOR_MODELS = (Cut, Unfinished, Rejected, ToolError, InvalidArguments, InvalidJson, SandboxUnavailable)
"""Whoever raises one of these has written its message for the model."""


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


def is_being_cancelled() -> bool:
    """Return whether somebody cancels the running task, rather than its code having raised CancelledError by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def pass_interrupts(error: BaseException) -> None:
    """Raise again what does not come from the code of others that was called: Ctrl-C, and our own cancellation.

    Whatever else such code raises is its failure, SystemExit included. Call it first in an `except BaseException`.
    """
    is_ours = isinstance(error, asyncio.CancelledError) and is_being_cancelled()
    if is_ours or isinstance(error, KeyboardInterrupt):
        raise error


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
            classes = {failure_class(effect, inner) for inner in _leaves(error)}
            return CallStatus.OUTCOME_UNKNOWN if CallStatus.OUTCOME_UNKNOWN in classes else CallStatus.FAILED
        case _:
            return CallStatus.FAILED


def _leaves(group: "BaseExceptionGroup[BaseException]") -> Iterator[BaseException]:
    """Go through the errors of a group, of its groups too: they may be nested deeper than a function can call itself."""
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        else:
            yield error


def told(error: BaseException, form: FailureText) -> str:
    """Return what the model is told of an error: its name and its own words where they are for the model, else its name alone.

    The words of other people's code may have a path, an address or a statement of SQL in them.
    """
    if form == "whole" or isinstance(error, _FOR_MODELS):
        return describe(error)
    name = str(error).partition(":")[0] if isinstance(error, ToolExited) else type(error).__name__
    name = name.encode("utf-8", "replace").decode()[:LONGEST_DESCRIPTION]
    return f"{name}{UNTOLD if message_of(error) else ''}"


def describe(error: BaseException) -> str:
    """Return one bounded line on an error: its name and its own words; no traceback, and no path of this machine."""
    if isinstance(error, Cut):
        how = "no answer within" if error.stop is None else "interrupted after"
        return f"{how} {error.seconds:.3g} s{'' if error.stop is None else f': {error.stop.message}'}"
    line = _line(error)
    if isinstance(error, ToolExited) or (type(error) is ToolError and str(error)):
        line = line.partition(": ")[2]
    return line if len(line) <= LONGEST_DESCRIPTION else line[: LONGEST_DESCRIPTION - 3] + "..."


def _line(error: BaseException) -> str:
    text = " ".join(_without_traceback(message_of(error)[:100_000]).split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line.encode("utf-8", "replace").decode()


def message_of(error: BaseException) -> str:
    """Return what an error says of itself, without a path; nothing where it cannot say it."""
    try:
        if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
            return str(error.strerror)  # str() of the error would show the file's path
        if isinstance(error, Rejected):
            return _bounded_repr.repr(error.body)  # a body may have megabytes
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - an error that cannot say what it is, and be it by SystemExit, still has a name
        return ""


def _without_traceback(text: str) -> str:
    """Some errors carry another process's traceback as their words: its last line says what happened."""
    before, mark, after = text.partition("Traceback (most recent call last)")
    return before + after.strip().rpartition("\n")[2] if mark else text


def traceback_of(error: BaseException) -> str | None:
    """Return the traceback for operators; None where there is nothing to see in it."""
    if isinstance(error, Cut | Rejected | Unfinished):
        return None
    try:
        text = "".join(_formatted(error))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a hostile exception must not take the run with it
        return None
    return text[-LONGEST_TRACEBACK:].encode("utf-8", "replace").decode()


def _formatted(error: BaseException) -> Iterator[str]:
    """Format an error with what caused it, as Python does, but with bounded words: a message may have 50 MB and as many lines."""
    chain = _chain(error)
    for number, one in enumerate(reversed(chain)):
        if number:
            yield "\nThe exception above led to this one:\n\n"
        yield from _formatted_one(one)
        if isinstance(one, BaseExceptionGroup):
            for leaf in islice(_leaves(one), _MAX_ERRORS):
                yield "\nOne of its exceptions:\n\n"
                yield from _formatted_one(leaf)


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error, its cause, the cause of that, and so on."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and all(current is not one for one in chain) and len(chain) < _MAX_ERRORS:
        chain.append(current)
        context = None if current.__suppress_context__ else current.__context__
        current = current.__cause__ or context
    return chain


def _formatted_one(error: BaseException) -> Iterator[str]:
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):\n"
        yield from traceback.format_tb(error.__traceback__, limit=-_MAX_FRAMES)
    text = message_of(error)[:LONGEST_WORDS]
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    yield f"{name}: {text}\n" if text else f"{name}\n"


# --- Retries: which failures may be tried again, and how long to wait. Pure values; sleeps nowhere.

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
LONGEST_MODEL_WAIT_SECONDS = 120.0
"""A provider that asks for a longer pause is not waited for: the run ends and says so."""


def backoff_seconds(attempt: int, chance: float) -> float:
    """Return the pause after failed attempt number `attempt`: exponential with full jitter.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog (2015): sleep = random(0, min(cap, base * 2^n)).

    Args:
        attempt: 1 for the first.
        chance: From 0 up to 1.
    """
    ceiling = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(attempt, 16))
    return ceiling * chance


def may_retry_call(effect: Effect, error: BaseException) -> bool:
    """Whether a call of this effect that raised this error may simply run again (design section 1).

    A time limit counts as `TimeoutError`. A service that said no is never asked again by the runtime.
    """
    if effect is Effect.UNSAFE or isinstance(error, Rejected):
        return False
    if effect is Effect.READ:
        return isinstance(error, Exception) and not isinstance(error, TypeError | ValueError)
    return isinstance(error, TimeoutError | ConnectionError | Transient)


def retry_after_note(error: ModelError) -> str:
    """Return the sentence on the wait that a provider asked for, where the run ends instead of waiting; else nothing."""
    asked = error.retry_after_seconds
    return "" if not asked or asked <= 0 else f" It asks to wait {asked:,.0f} s before the next request."


def model_wait_seconds(error: ModelError, attempt: int, chance: float, seconds_left: float | None) -> float | None:
    """Return how long to wait before the next attempt of a model call; None when waiting is pointless.

    The provider's `retry-after` is honoured as a minimum. A wait that outlasts the run's time, or that no person would
    sit through, is not begun.
    """
    wait = backoff_seconds(attempt, chance)
    if error.retry_after_seconds is not None:
        wait = max(wait, error.retry_after_seconds, 0.0)
    if wait > LONGEST_MODEL_WAIT_SECONDS or (seconds_left is not None and wait >= seconds_left):
        return None
    return wait
