"""Progress: whether a run's responses still bring anything new, by the calls that are nearly the same. Runs and records nothing.

What only looks different is the same here: white space, upper and lower case, and the form of numbers, which equal calls share.
"""

from collections.abc import Container, Sequence

import msgspec

from treadle.messages import ToolCall
from treadle.state import CallState
from treadle.stops import Stop, StopReason
from treadle.tools import CallStatus, ToolResult

__all__ = ["Progress"]

_REMEMBERED = 64
"""Calls, and errors, that a later one is compared with."""
_LONG_ARGUMENTS = 4096
"""Characters of arguments that are compared as they are."""
_LONG_RESULT = 200
"""Characters of a result that two different calls hardly have in common by chance."""
_GUARDED_ELSEWHERE = frozenset({CallStatus.DENIED, CallStatus.INVALID_JSON, CallStatus.INVALID_ARGUMENTS})


class _Made(msgspec.Struct):
    """A call that was made, in one form or several that are nearly the same."""

    result: ToolResult
    form: str
    has_forms: bool = False


class Progress:
    """What the responses of one run have brought so far. A resumed run begins anew.

    Args:
        limit: So many responses in a row that bring nothing new end the run; None for no limit.
        polling: Names of tools that are meant to be called again and again.
    """

    def __init__(self, limit: int | None, *, polling: Container[str] = ()) -> None:
        self._limit = limit
        self._polling = polling
        self._calls: dict[tuple[str, str], _Made] = {}
        self._texts: dict[tuple[str, str], None] = {}  # errors and long results
        self._count = 0
        self._same_results = 0
        self._last = ""
        self.is_noteworthy = False
        """Whether there may be anything to tell the model."""
        self.is_at_its_end = limit == 1
        """Whether one more response that brings nothing new ends the run."""

    def is_stale(self, calls: Sequence[ToolCall]) -> bool:
        """Whether the run is at its end, and each of these calls is nearly the same as one that brought nothing new."""
        own = [call for call in calls if call.name not in self._polling] if self.is_at_its_end else []
        return bool(own) and all((call.name, _near(call.arguments)) in self._calls for call in own)

    def forget(self) -> None:
        """Begin anew: the model does not see any more what came before."""
        self._calls.clear()
        self._texts.clear()
        self._count = self._same_results = 0
        self.is_noteworthy = self.is_at_its_end = False

    def add(self, calls: Sequence[CallState]) -> None:
        """Count a response whose calls all have their results."""
        if self._limit is None:
            return
        says_anything, is_news, is_same = False, False, True
        for state in calls:
            if (found := self._is_new(state)) is not None:
                says_anything = True
                is_news, is_same = is_news or found[0], is_same and found[1]
        if says_anything:
            self._count = 0 if is_news else self._count + 1
            self._same_results = self._same_results + 1 if is_same else 0
            self._last = calls[-1].call.name
            self.is_noteworthy = bool(self._count or self._same_results)
            self.is_at_its_end = self._count >= self._limit - 1

    def _is_new(self, state: CallState) -> tuple[bool, bool] | None:
        """Return whether a result is news, and whether it is the very result of another call; None where it says nothing.

        A call that was only ever made in one form says nothing here: the guard against equal calls counts it.
        """
        call, result = state.call, state.result
        if result is None or call.name in self._polling or result.status in _GUARDED_ELSEWHERE:
            return None
        if result.code == "no_progress":
            return False, True
        key, form = (call.name, _near(call.arguments)), state.digest or call.arguments
        made = self._calls.pop(key, None)
        self._calls[key] = _Made(result, form, made is not None and (made.has_forms or made.form != form))
        if len(self._calls) > _REMEMBERED:
            del self._calls[next(iter(self._calls))]
        is_known = made is not None and _says_the_same(made.result, result)
        is_telling = result.is_error or len(result.content) >= _LONG_RESULT
        is_same = is_telling and self._has_text(call.name, result)
        if made is not None and not self._calls[key].has_forms and (is_known or is_same):
            return None
        return not (is_known or (is_same and result.is_error)), is_known or is_same

    def _has_text(self, name: str, result: ToolResult) -> bool:
        """Whether another call had the very same error, or the very same long result."""
        text = (name, result.content)
        is_same = text in self._texts
        self._texts[text] = None
        if len(self._texts) > _REMEMBERED:
            del self._texts[next(iter(self._texts))]
        return is_same

    # --- what follows from it

    def reminder(self) -> str | None:
        """Return what the model is to read now; None for nothing."""
        limit = self._limit
        if limit is None:
            return None
        if self._count == max(limit - 3, 1):
            return f"A note from the runtime: the last {self._count + 1} responses made nearly the same calls without new results. Use what you know, try something else, or answer. If this continues, such calls will no longer run."
        if self._count == 0 and self._same_results == limit:
            return f"A note from the runtime: the last {self._same_results + 1} responses had identical results from {self._last}, whatever the arguments. Use what you know, try something else, or answer."
        return None

    def stop(self) -> Stop | None:
        """Return the end of a run that brings nothing new any more."""
        if self._limit is None or self._count < self._limit:
            return None
        return Stop(
            reason=StopReason.REPEATED_FAILURES,
            message=f"{self._count} responses in a row brought no new results: their calls were nearly the same as before.",
            asks_closing=True,
            details={"guard": "no_progress", "count": self._count, "limit": self._limit, "tool": self._last},
        )


def _near(arguments: str) -> str:
    """Return what nearly the same arguments have in common. Equal numbers in other forms are equal arguments already."""
    if len(arguments) > _LONG_ARGUMENTS:
        return arguments
    squeezed = "".join(arguments.casefold().split())
    if "\\" in squeezed:
        squeezed = squeezed.replace("\\n", "").replace("\\t", "")
    return arguments if squeezed == arguments else squeezed  # most are: one text is kept and not two


def _says_the_same(before: ToolResult, now: ToolResult) -> bool:
    if (before.status, before.artifact, before.media) != (now.status, now.artifact, now.media):
        return False
    return before.content == now.content or _squeezed(before.content) == _squeezed(now.content)


def _squeezed(text: str) -> str:
    return _near(text[:_LONG_ARGUMENTS]) + text[_LONG_ARGUMENTS:]
