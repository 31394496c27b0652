"""History: the points of a session that one can go back to or fork from, and what lies behind them. Reads events; records none."""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from treadle.errors import NoSuchPoint, shown
from treadle.events import (
    AnyEvent,
    BudgetReached,
    RunFinished,
    RunPaused,
    RunStarted,
    SessionForked,
    ToolFinished,
    ToolResolved,
    ToolStarted,
)
from treadle.state import SessionState, add_up
from treadle.tools import CallStatus, Effect, ToolResult

__all__ = [
    "EffectRecord",
    "Rewind",
    "effects_after",
    "find_point",
    "fold",
    "forked",
    "renamed",
    "take_in",
]

_EVENTS_A_TURN = 200

_UNTOUCHED = frozenset({CallStatus.REJECTED, CallStatus.CANCELLED, CallStatus.SKIPPED})
"""What happened to a call that surely changed nothing."""


class EffectRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may have changed the world."""

    call_id: str
    tool: str
    effect: Effect
    status: str
    """Of its result; `outcome_unknown` where there is none."""


class Rewind(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a rewind. It hides messages from the model, and undoes nothing."""

    session_id: str
    to: int
    """The last event whose messages the model still sees."""
    mark: str | None
    messages: int
    """Messages that the model still sees."""
    dropped: int
    """Messages that it no longer sees; the journal keeps them."""
    effects: tuple[EffectRecord, ...]
    """Calls after that point that may have changed the world: none of them is undone."""

    @property
    def message(self) -> str:
        """One sentence for a person."""
        gone = f"Rewound to event {self.to}: {self.dropped} messages are hidden from the model and stay in the journal."
        if not self.effects:
            return f"{gone} No call after that point changed anything."
        calls = ", ".join(f"{one.tool} ({one.call_id}, {one.status})" for one in self.effects)
        return f"{gone} Effects are not undone: {calls}."


def fold(session_id: str, events: Iterable[AnyEvent]) -> SessionState:
    """Add up a session's events.

    Raises:
        JournalError: They contradict each other.
    """
    return add_up(SessionState(session_id), events)


async def take_in(state: SessionState, events: Sequence[AnyEvent]) -> SessionState:
    """Add events to a state, with turns for others between them: a session may have a hundred thousand."""
    for start in range(0, len(events), _EVENTS_A_TURN):
        if start:
            await asyncio.sleep(0)
        part = events[start : start + _EVENTS_A_TURN]
        add_up(state, (event for event in part if event.seq > state.head))  # others may have taken some in meanwhile
    return state


def find_point(
    session_id: str,
    events: Sequence[AnyEvent],
    at: int | str | None = None,
    *,
    step: int | None = None,
    message: int | None = None,
) -> int:
    """Return the number of the last event of a point: given by its event or mark, or after a step or a message; else the end.

    Raises:
        NoSuchPoint: There is no such point, or a call is open at it.
    """
    if sum(given is not None for given in (at, step, message)) > 1:
        raise NoSuchPoint("Name one point: an event or mark, a step, or a message.")
    _check_kinds(at, step=step, message=message)
    state, points = SessionState(session_id), []
    for event in events:
        add_up(state, (event,))
        points.append(_Point(event, state))
    match at, step, message:
        case (str(name), _, _):
            seq = _marked(state, name)
        case (int(number), _, _):
            seq = _numbered(points, number)
        case (_, int(), _) | (_, _, int()):
            seq = _first(points, state, step=step, message=message)
        case _:
            seq = len(points)
    if seq and not points[seq - 1].is_whole:
        raise _open_call(session_id, seq, points)
    return seq


def _check_kinds(at: object, *, step: object, message: object) -> None:
    """Refuse what names no point: taken for nothing, it would mean the end."""
    if at is not None and (isinstance(at, bool) or not isinstance(at, int | str)):
        raise NoSuchPoint(f"A point is a mark or the number of an event; got {shown(at)}.")
    for word, value in (("step", step), ("message", message)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise NoSuchPoint(f"{word} is a whole number; got {shown(value)}.")


class _Point:
    """How things stood after one event."""

    __slots__ = ("event", "is_whole", "messages", "step")

    def __init__(self, event: AnyEvent, state: SessionState) -> None:
        self.event = event
        # The task's message enters in the same commit as `run.started`: between the two there is no point.
        self.is_whole = state.is_whole and not isinstance(event, RunStarted)
        self.messages = len(state.messages)
        self.step = state.step


def _marked(state: SessionState, name: str) -> int:
    if name not in state.marks:
        known = ", ".join(sorted(state.marks)) or "none"
        raise NoSuchPoint(f"Session {state.id!r} has no mark {shown(name)}. Marks: {known}.")
    return state.marks[name]


def _numbered(points: Sequence[_Point], number: int) -> int:
    if isinstance(number, bool) or not 0 <= number <= len(points):
        raise NoSuchPoint(
            f"There is no event {shown(number)}: the session's events have the numbers 1 to {len(points)}."
        )
    return number


def _first(points: Sequence[_Point], state: SessionState, *, step: int | None, message: int | None) -> int:
    """Return the first whole point after a step or a message, the end of its run included where that follows at once."""
    for seq, point in enumerate(points, start=1):
        is_there = point.step == step if message is None else point.messages == message
        if is_there and point.is_whole and state.is_visible(seq):
            while seq < len(points) and isinstance(points[seq].event, RunFinished | RunPaused | BudgetReached):
                seq += 1  # noqa: PLW2901 - the search ends here
            return seq
    what = f"whole step {shown(step)}" if message is None else f"point after message {shown(message)}"
    raise NoSuchPoint(f"Session {state.id!r} has no {what}.")


def _open_call(session_id: str, seq: int, points: Sequence[_Point]) -> NoSuchPoint:
    before = next((number for number in range(seq - 1, 0, -1) if points[number - 1].is_whole), 0)
    if isinstance(points[seq - 1].event, RunStarted):
        return NoSuchPoint(
            f"Event {seq} of session {session_id!r} begins a task, which enters the conversation with the next event. Name event {before} or {seq + 1}."
        )
    return NoSuchPoint(
        f"At event {seq} of session {session_id!r} a call has no result yet. A point must have the results of all calls before it. "
        f"The nearest such point is event {before}; or resume the run first."
    )


def effects_after(events: Iterable[AnyEvent], seq: int) -> tuple[EffectRecord, ...]:
    """Return the calls that started after this event and may have changed the world. What a person has found out counts."""
    started: dict[str, ToolStarted] = {}
    results: dict[str, ToolResult] = {}
    found_out: dict[str, str] = {}
    for event in events:
        if event.seq <= seq:
            continue
        match event:
            case ToolStarted(call_id=str(call_id)) if not event.effect.is_read:
                started[call_id] = event
                found_out.pop(call_id, None)  # it runs again: what was said was of the start before
            case ToolFinished(call_id=str(call_id)):
                results[call_id] = event.result
            case ToolResolved(call_id=str(call_id), outcome="done" | "not_done"):
                found_out[call_id] = event.outcome
            case _:
                pass
    return tuple(
        _effect(call_id, event, results.get(call_id), is_done=found_out.get(call_id) == "done")
        for call_id, event in started.items()
        if _may_have_acted(results.get(call_id)) and found_out.get(call_id) != "not_done"
    )


def _may_have_acted(result: ToolResult | None) -> bool:
    if result is None or result.may_have_acted:
        return True
    return result.attempts > 0 and result.status not in _UNTOUCHED


def _effect(call_id: str, started: ToolStarted, result: ToolResult | None, *, is_done: bool) -> EffectRecord:
    status = CallStatus.OK if is_done else CallStatus.OUTCOME_UNKNOWN if result is None else result.status
    return EffectRecord(call_id=call_id, tool=started.tool, effect=started.effect, status=status.value)


def renamed(events: Iterable[AnyEvent], session_id: str) -> list[AnyEvent]:
    """Return the events as another session's."""
    return [msgspec.structs.replace(event, session_id=session_id) for event in events]


def forked(events: Sequence[AnyEvent], session_id: str, *, parent_id: str, at: float) -> list[AnyEvent]:
    """Return copies of the events for a new session, with the link to the one they come from."""
    seq = len(events)
    link = SessionForked(session_id=session_id, seq=seq + 1, at=at, parent_id=parent_id, parent_seq=seq)
    return [*renamed(events, session_id), link]
