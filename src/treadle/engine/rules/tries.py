"""Tries: how a run's responses compare with those before them, and when that leads nowhere. Runs and records nothing.

A try is a response, not a call: the model has seen no result of a response before it writes the next one.
"""

from collections.abc import Collection, Container, Sequence
from typing import Any, NamedTuple

import msgspec

from treadle.budgets import Guards
from treadle.canonical import encode
from treadle.errors import ConfigurationError
from treadle.messages import Message, ToolCall
from treadle.state import CallState, streak_key
from treadle.stops import Stop, StopReason
from treadle.tools import CallStatus, Effect, JsonObject, ToolResult

__all__ = ["NOT_STARTED", "Progress", "Repetition", "Tries", "todos_reminder"]

NOT_STARTED = "not_started"
"""Code of a call that its response itself kept from starting, because it was cut off, say: no try."""

LONGEST_CYCLE = 4
"""Responses."""

_FAILURES = frozenset(
    {
        CallStatus.FAILED,
        CallStatus.REJECTED,
        CallStatus.UNEXPECTED_RESULT_SHAPE,
        CallStatus.TIMEOUT,
        CallStatus.OUTCOME_UNKNOWN,
        CallStatus.UNKNOWN_TOOL,
    }
)
_WITHOUT_ANSWER = frozenset({CallStatus.TIMEOUT, CallStatus.OUTCOME_UNKNOWN})


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """How a response repeats those before it."""

    count: int
    """How often the same calls have been proposed in a row, this time included."""
    period: int
    """Responses that one repetition takes: 1 where each repeats the one before."""
    has_equal_results: bool
    """Whether the calls had the same results each time."""
    is_over: bool
    """Whether the guard ends the run here."""
    is_done: bool = False
    """Whether each call has succeeded before, not only in the responses just before."""


class Tries:
    """The responses of one run, compared with each other. A resumed run begins anew.

    Args:
        guards: The limits.
        polling: Names of tools that are meant to be called again and again.
        is_small: Whether the model is a small one. It repeats a call where it should answer, so a call that has succeeded ends the run
            when it comes again; a read does so until something has changed.
    """

    def __init__(self, guards: Guards, *, polling: Container[str] = (), is_small: bool = False) -> None:
        self._guards = guards
        self._is_small = is_small
        self._done: dict[str, bool] = {}
        """Of a small model: the calls that have succeeded, and whether each only reads."""
        self._polling = polling
        self.compares = guards.repeats is not None
        """Whether a guard compares responses with those before them."""
        self.most_in_response = guards.repeats
        """Of equal calls in one response that may change something, the one with this number does not run; None for no limit."""
        self._last: list[_Try] = []  # at most as many as the longest cycle
        self._rows = tuple([_Row() for _ in range(LONGEST_CYCLE)])  # by period, from 1
        self._in_trouble: dict[str, _InTrouble] = {}
        """By guard: the responses that went wrong in a row. Empty after a good call."""

    def key(self, call: ToolCall, digest: str) -> str:
        """Return what makes two calls equal; empty for a call of a polling tool, which repeats nothing."""
        return "" if call.name in self._polling else digest or streak_key(call, digest)

    # --- before the calls of a response run

    def repetition(self, keys: Collection[str]) -> Repetition | None:
        """Compare a response with those before it, by the keys of its calls; the order of the calls decides nothing."""
        wanted, limit = _distinct([key for key in keys if key]), self._guards.repeats
        if not wanted or limit is None:
            return None
        if self._done and all(key in self._done for key in wanted):
            return Repetition(count=2, period=1, has_equal_results=True, is_over=True, is_done=True)
        if limit > 1 and wanted not in [one.keys for one in self._last]:  # most responses
            return None
        found = [self._after(period, wanted) for period in range(1, LONGEST_CYCLE + 1)]
        return next((one for one in found if one.is_over), found[0] if found[0].count > 1 else None)

    def may_be_over(self, key: str) -> bool:
        """Whether a response that holds this call may turn out to be the one that ends the run."""
        if self._guards.repeats == 1 or key in self._done:
            return bool(key)
        expected = (one.keys for one in self._last if key in one.keys)
        return any((found := self.repetition(keys)) is not None and found.is_over for keys in expected)

    def _after(self, period: int, keys: tuple[str, ...]) -> Repetition:
        row, limit = self._rows[period - 1], self._guards.repeats
        assert limit is not None
        is_next = len(self._last) >= period and self._last[-period].keys == keys
        # A cycle counts when it is whole: this response would end it.
        count = (row.equal + period + 1) // period if is_next else 1
        same = (row.same + period + 1) // period if is_next else 1
        if same >= limit:
            return Repetition(count=same, period=period, has_equal_results=True, is_over=True)
        most = self._guards.repeats_with_progress
        is_over = most is not None and count >= max(most, limit)
        return Repetition(count=count, period=period, has_equal_results=same == count, is_over=is_over)

    # --- after they have ended

    def add(self, calls: Sequence[CallState]) -> None:
        """Count a response whose calls all have their results."""
        tried: list[ToolResult] = []
        keyed: list[tuple[str, ToolResult]] = []
        is_good = False
        for state in calls:
            if state.result is not None and state.result.code != NOT_STARTED:
                tried.append(state.result)
                is_good = is_good or state.result.status is CallStatus.OK
                if self.compares and (key := self.key(state.call, state.digest)):
                    keyed.append((key, state.result))
                    if self._is_small and state.result.status is CallStatus.OK:
                        self._remember(key, is_read=state.decision is not None and state.decision.effect == Effect.READ)
        if not tried:
            return
        if is_good:
            self._in_trouble.clear()
        else:
            self._count_trouble(tried)
        if self.compares:
            self._compare(_Try(keyed))

    def _remember(self, key: str, *, is_read: bool) -> None:
        if not is_read:
            self._done = {one: was_read for one, was_read in self._done.items() if not was_read}
        self._done[key] = is_read

    def _count_trouble(self, tried: Sequence[ToolResult]) -> None:
        statuses = {result.status for result in tried}
        for trouble in _TROUBLES:
            if broken := [result for result in tried if result.status in trouble.classes]:
                before = self._in_trouble.get(trouble.guard)
                self._in_trouble[trouble.guard] = _InTrouble(
                    count=1 if before is None else before.count + 1, trouble=trouble, last=broken[-1]
                )
            elif trouble.others is not None and not statuses & trouble.others:
                self._in_trouble.pop(trouble.guard, None)

    def _compare(self, one: "_Try") -> None:
        if not one.keys:  # polled only: what comes after it is not a repetition of what was before
            self._last.clear()
        for period, row in enumerate(self._rows, 1):
            before = self._last[-period] if len(self._last) >= period else None
            is_equal = before is not None and before.keys == one.keys
            row.equal = row.equal + 1 if is_equal else 0
            row.same = row.same + 1 if before is not None and is_equal and before.has_results_of(one) else 0
        if one.keys:
            self._last = [*self._last, one][-LONGEST_CYCLE:]

    def stops(self) -> tuple[Stop, ...]:
        """Return the ends of the run where its last responses have reached limits of failures or invalid calls."""
        reached = []
        for trouble in _TROUBLES if self._in_trouble else ():
            found, limit = self._in_trouble.get(trouble.guard), getattr(self._guards, trouble.guard)
            if found is not None and limit is not None and found.count >= limit:
                reached.append(found.stop(limit))
        return tuple(reached)


class _Row(msgspec.Struct, gc=False):
    """How many responses in a row were equal to the one so many places before them."""

    equal: int = 0
    """With the same calls."""
    same: int = 0
    """With the same calls and the same results."""


class _Try:
    """The calls of one response and what came of them."""

    __slots__ = ("_results", "keys")

    def __init__(self, results: Sequence[tuple[str, ToolResult]]) -> None:
        self._results = results
        self.keys = _distinct([key for key, _ in results])

    def has_results_of(self, other: "_Try") -> bool:
        return self.texts == other.texts or self.values == other.values

    @property
    def texts(self) -> set[Any]:
        return {(key, result.status, result.content, result.artifact, result.media) for key, result in self._results}

    @property
    def values(self) -> set[Any]:
        """What the texts mean: the order of an object's keys is not a difference, and neither is a time that was waited."""
        return {(key, *_meaning(result), result.artifact, result.media) for key, result in self._results}


def _distinct(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of one response, each once and in one order. A set would take four times the memory."""
    return tuple(keys) if len(keys) < 2 else tuple(sorted(set(keys)))


def _meaning(result: ToolResult) -> tuple[Any, ...]:
    if result.status in _WITHOUT_ANSWER:
        return (result.status,)
    try:
        return result.status, encode(msgspec.json.decode(result.content))
    except (msgspec.DecodeError, ConfigurationError, RecursionError):
        return result.status, result.content


class _Trouble(NamedTuple):
    """One guard against calls that keep going wrong."""

    guard: str
    description: str
    reason: StopReason
    classes: frozenset[CallStatus]
    others: frozenset[CallStatus] | None = None
    """Classes of a response that leave the count as it is; None for all but a good call."""


class _InTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """How many responses in a row were a try of a guard's class."""

    count: int
    trouble: _Trouble
    last: ToolResult

    def stop(self, limit: int) -> Stop:
        last = {"tool": self.last.name, "class": self.last.status.value}
        return Stop(
            reason=self.trouble.reason,
            message=f"{self.count} responses in a row {self.trouble.description}.",
            asks_closing=True,
            details={"count": self.count, "limit": limit, **last},
        )


_INVALID = frozenset({CallStatus.INVALID_JSON, CallStatus.INVALID_ARGUMENTS})

_TROUBLES = (
    _Trouble(
        "invalid_json",
        "had calls whose arguments are not valid JSON",
        StopReason.INVALID_CALL_LIMIT,
        frozenset({CallStatus.INVALID_JSON}),
        _INVALID,
    ),
    _Trouble(
        "invalid_arguments",
        "had calls whose arguments do not fit the schema",
        StopReason.INVALID_CALL_LIMIT,
        frozenset({CallStatus.INVALID_ARGUMENTS}),
        _INVALID,
    ),
    _Trouble(
        "denials",
        "had denied calls and no successful one",
        StopReason.REPEATED_FAILURES,
        frozenset({CallStatus.DENIED}),
    ),
    _Trouble("failures", "had only failed calls", StopReason.REPEATED_FAILURES, _FAILURES),
)


# --- Progress: whether a run's responses still bring anything new, by the calls that are nearly the same. Runs and
# records nothing.

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


# --- Todos: when the model is shown its list of todos again, and in which words. Values only; records nothing.

_EVERY_STEPS = 10
"""So many responses after the model has last written or read its list, it is shown the list again."""
_HEAD = "A note from the runtime: your current to-do list:"
_KEPT = "## Plan and todos"
"""The heading under which a compaction keeps the list."""
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "done": "[x]"}


def todos_reminder(facts: JsonObject, shown: Sequence[Message]) -> str | None:
    """Return the list where items are open and the model has not seen it for a while, or not at all since a compaction.

    Args:
        shown: The messages as the model is shown them.
    """
    items = facts.get("todos")
    if not isinstance(items, list) or not any(_is_open(one) for one in items):
        return None
    responses = 0
    for message in reversed(shown):
        if _shows_list(message):
            return None
        responses += message.role == "assistant"
        if responses >= _EVERY_STEPS:
            break
    return "\n".join([_HEAD, *map(_line, items), "Write the whole list again after each finished item."])


def _shows_list(message: Message) -> bool:
    if message.role == "user":
        return _HEAD in message.text or _KEPT in message.text
    return any(part.name.endswith("todo") for part in message.results)


def _is_open(item: object) -> bool:
    return isinstance(item, dict) and item.get("state") != "done"


def _line(item: object) -> str:
    if not isinstance(item, dict):
        return f"[ ] {item}"
    return f"{_MARKS.get(str(item.get('state')), '[ ]')} {item.get('text', '')}"
