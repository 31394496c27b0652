"""Outcomes: what a session has done, and exact checks of it for pytest and for evals. Runs nothing, and asks no model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, Protocol

import msgspec

from treadle.budgets import Budget, Spent, as_decimal, plain
from treadle.canonical import digest, find_unencodable
from treadle.errors import ConfigurationError, shown
from treadle.events import (
    AnyEvent,
    CallDecided,
    ChildStarted,
    ModelFinished,
    RunStarted,
    ToolFinished,
    ToolResolved,
    ToolStarted,
)
from treadle.fields import Documented, checked, explained
from treadle.messages import ToolCall
from treadle.ports import Journal
from treadle.state import Doubt, RunState, SessionState, add_up
from treadle.tools import Effect, JsonObject

__all__ = [
    "Check",
    "Finding",
    "Observed",
    "ObservedCall",
    "called",
    "effects_done",
    "never_called",
    "no_doubt",
    "observe",
    "within",
]

_MOST_SHOWN = 10
"""Calls that a reason names."""


class _Recorded(Protocol):
    """A session: what has events in a journal."""

    journal: Journal

    @property
    def id(self) -> str: ...


class ObservedCall(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A call that a model proposed, and what came of it.

    Example:
        >>> print(ObservedCall(session_id="s", tool="pay", arguments={"invoice": 7}, status="denied"))
        pay(invoice=7) denied
    """

    session_id: str
    """The session that made it."""
    tool: str
    """Name of the tool, as the model wrote it."""
    arguments: JsonObject
    """The arguments that were decided on; empty if what the model wrote is not a JSON object."""
    status: str = ""
    """Status of its result, such as `ok` or `denied`; empty for a call without a result."""
    effect: Effect | None = None
    """What it does to the world; None for a call that was never valid."""
    starts: int = 0
    """How often the tool was started for it, in all processes. Retries within one start are not counted."""
    is_agent: bool = False
    """Whether an agent carried it out, whose calls are listed too."""
    resolution: Literal["", "done", "not_done", "unknown"] = ""
    """How a call in doubt ended, as a person has said; empty for every other call."""

    @property
    def is_done(self) -> bool:
        """Whether it was carried out: its result is `ok`, or a person has found that it was done."""
        return self.status == "ok" or self.resolution == "done"

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.tool}({values}) {self.status or 'without a result'}"


class Observed(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a session has done in all its runs, and agents that carried out its calls, in every process that ran it.

    Example:
        >>> Observed().effects
        ()
    """

    calls: tuple[ObservedCall, ...] = ()
    """Every call, in the order in which it was proposed; those of an agent that is a tool follow those of its caller."""
    spent: Spent = Spent()
    """What all runs have used."""
    doubts: tuple[Doubt, ...] = ()
    """The calls that may have acted, and whose outcome is unknown."""

    @explained
    def __add__(self, other: "Observed") -> "Observed":
        seconds = self.spent.wall_seconds + other.spent.wall_seconds
        spent = msgspec.structs.replace(self.spent.with_child(other.spent, Spent()), wall_seconds=seconds)
        return Observed(calls=self.calls + other.calls, spent=spent, doubts=self.doubts + other.doubts)

    @property
    def effects(self) -> tuple[ObservedCall, ...]:
        """The calls that were carried out and are not reads."""
        return tuple(
            one
            for one in self.calls
            if one.is_done and one.starts and one.effect is not Effect.READ and not one.is_agent
        )


class Finding(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a check has found. It is true if the check is met.

    Example:
        >>> bool(Finding(is_met=False, reason="pay was not called."))
        False
    """

    is_met: bool
    """Whether it is met."""
    reason: str
    """Why, in one sentence."""

    def __bool__(self) -> bool:
        return self.is_met


class Check(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """An exact check of what a session has done. Call it with what `observe` returns.

    Example:
        >>> silent = Check(name="no calls", look=lambda seen: Finding(is_met=not seen.calls, reason=f"{len(seen.calls)} calls."))
        >>> silent(Observed()).reason
        '0 calls.'
    """

    name: str
    """What it checks, in a few words: its name in reports."""
    look: Callable[[Observed], Finding]
    """Makes the finding."""

    @checked
    def __call__(self, seen: Observed) -> Finding:
        return self.look(seen)


@checked
async def observe(session: _Recorded) -> Observed:
    """Read what a session has done, from its events and those of the agents that it called.

    Example:
        >>> import asyncio
        >>> from treadle import Agent
        >>> from treadle.testing import ScriptedModel, text
        >>> async def main():
        ...     seen = await observe((await Agent(ScriptedModel([text("Hi.")])).run("Say hi")).session)
        ...     assert effects_done()(seen)
        ...     return seen.spent.model_turns
        >>> asyncio.run(main())
        1

    Args:
        session: A session, such as `result.session`. All of its runs count.

    Raises:
        JournalError: The events cannot be read, or contradict each other.
    """
    sessions = await _read(session.journal, session.id)
    return Observed(
        calls=tuple(call for state, events in sessions for call in _calls(state.id, events)),
        spent=_spent(sessions[0][1]),
        doubts=tuple(doubt for state, _ in sessions for doubt in state.open_doubts()),
    )


async def _read(journal: Journal, session_id: str) -> list[tuple[SessionState, Sequence[AnyEvent]]]:
    """Return a session and those that carried out its calls, at every level."""
    events = await journal.read(session_id)
    found = [(add_up(SessionState(session_id), events), events)]
    for child_id in dict.fromkeys(one.child_id for one in events if isinstance(one, ChildStarted)):
        found += await _read(journal, child_id)
    return found


def _spent(events: Sequence[AnyEvent]) -> Spent:
    """Return the sum of all runs. What agents below have spent is in it already."""
    state, runs = SessionState(""), list[RunState]()
    for event in events:
        state.apply(event)
        if isinstance(event, RunStarted) and state.run is not None:
            runs.append(state.run)
    return sum((Observed(spent=run.spent) for run in runs), Observed()).spent


def _calls(session_id: str, events: Sequence[AnyEvent]) -> Iterator[ObservedCall]:
    """Yield the calls of one session. A read that answers a repeated response again is listed once."""
    found = dict[str, ObservedCall]()
    for event in events:
        for call in _calls_in(event):
            found.setdefault(call.id, _proposed(session_id, call))
        if (known := found.get(event.call_id or "")) is not None:
            first = found.pop(event.reused_from or "", None) if isinstance(event, ToolFinished) else None
            known = known if first is None else msgspec.structs.replace(known, starts=first.starts, effect=first.effect)
            found[event.call_id or ""] = msgspec.structs.replace(known, **_learned(event, known))
    yield from found.values()


def _calls_in(event: AnyEvent) -> Sequence[ToolCall]:
    if isinstance(event, ModelFinished):
        return event.message.calls
    if isinstance(event, ToolStarted) and event.early and event.call is not None:
        return (event.call,)
    return ()


def _learned(event: AnyEvent, known: ObservedCall) -> dict[str, Any]:  # Any: fields of an ObservedCall
    """Return what an event says of its call."""
    match event:
        case CallDecided():
            changed = event.converted if event.arguments is None else event.arguments
            return {"effect": event.effect, "arguments": known.arguments if changed is None else changed}
        case ToolStarted():
            return {"effect": event.effect, "starts": known.starts + 1}
        case ToolFinished():
            return {"status": event.result.status.value}
        case ChildStarted():
            return {"is_agent": True}
        case ToolResolved(child_id=""):
            return {"resolution": event.outcome}
    return {}


def _proposed(session_id: str, call: ToolCall) -> ObservedCall:
    try:
        read = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        read = None
    return ObservedCall(session_id=session_id, tool=call.name, arguments=read if isinstance(read, dict) else {})


# --- the checks


@checked
def called(tool: str, arguments: Mapping[str, Any] | None = None, *, times: int | None = None) -> Check:
    """Check that calls of a tool were carried out.

    Example:
        >>> seen = Observed(calls=(ObservedCall(session_id="s", tool="pay", arguments={"invoice": 7}, status="ok"),))
        >>> called("pay", {"invoice": 8})(seen).reason
        'No such call was carried out. Calls of pay: pay(invoice=7) ok.'

    Args:
        tool: Name of the tool.
        arguments: What a call must have had: each of these arguments with exactly this value. Others may have any. None for any call.
        times: How many such calls there must be; None for at least one.
    """
    wanted = _json("arguments", arguments or {})

    def look(seen: Observed) -> Finding:
        count = sum(one.is_done and _fits(one, tool, wanted) for one in seen.calls)
        is_met = count > 0 if times is None else count == times
        return Finding(is_met=is_met, reason=f"{_times(count)} carried out. {_listed(seen.calls, tool)}")

    return Check(name=f"called {_entry(tool, wanted)}", look=look)


@checked
def never_called(*tools: str) -> Check:
    """Check that no call of these tools was proposed, not even one that was denied or invalid.

    Example:
        >>> bool(never_called("delete")(Observed()))
        True
    """
    if not tools:
        raise ConfigurationError("never_called() takes the names of tools, such as never_called('delete').")

    def look(seen: Observed) -> Finding:
        found = [one for one in seen.calls if one.tool in tools]
        return Finding(is_met=not found, reason=_shown(found) or "No call of it was proposed.")

    return Check(name=f"never called {', '.join(tools)}", look=look)


@checked
def effects_done(*effects: str | tuple[str, Mapping[str, Any]]) -> Check:
    """Check that a session has done these effects, each once, and no others. Reads and the order do not count.

    Example:
        >>> effects_done(("pay", {"invoice": 7}), "send_mail")(Observed()).reason
        'Missing: pay(invoice=7), send_mail.'

    Args:
        effects: A tool's name, or its name with arguments, as in `called`. None at all: nothing was changed.
    """
    wanted = [(one, {}) if isinstance(one, str) else (one[0], _json("effects", one[1])) for one in effects]

    def look(seen: Observed) -> Finding:
        pairs = _paired(wanted, seen.effects)
        missing = ", ".join(_entry(*one) for place, one in enumerate(wanted) if place not in pairs.values())
        more = _shown([one for place, one in enumerate(seen.effects) if place not in pairs])
        faults = [f"Missing: {missing}."] * bool(missing) + [f"Not expected: {more}"] * bool(more)
        return Finding(is_met=not faults, reason=" ".join(faults) or "These effects were done, and no others.")

    return Check(name=f"effects done: {', '.join(_entry(*one) for one in wanted) or 'none'}", look=look)


@checked
def within(budget: Budget) -> Check:
    """Check that all runs of a session together stayed within the totals of a budget. A budget has limits by default.

    Example:
        >>> within(Budget(max_model_turns=3))(Observed()).reason
        'Every total is within its limit.'
    """

    def look(seen: Observed) -> Finding:
        over = [
            f"{name} is {plain(limit)}; used: {'unknown' if used is None else plain(used)}"
            for name, used in _used(seen.spent).items()
            if (limit := getattr(budget, name)) is not None and (used is None or as_decimal(used) > as_decimal(limit))
        ]
        return Finding(is_met=not over, reason="; ".join(over) + "." if over else "Every total is within its limit.")

    return Check(name="within budget", look=look)


@checked
def no_doubt() -> Check:
    """Check that of every call that may have acted it is known how it ended.

    Example:
        >>> no_doubt()(Observed()).reason
        'No call is in doubt.'
    """

    def look(seen: Observed) -> Finding:
        doubts = ", ".join(_entry(one.tool, one.arguments) for one in seen.doubts[:_MOST_SHOWN])
        return Finding(is_met=not doubts, reason=f"In doubt: {doubts}." if doubts else "No call is in doubt.")

    return Check(name="no doubt", look=look)


def _fits(call: ObservedCall, tool: str, arguments: JsonObject) -> bool:
    had = call.arguments
    return call.tool == tool and all(
        name in had and digest(had[name]) == digest(value) for name, value in arguments.items()
    )


def _paired(wanted: Sequence[tuple[str, JsonObject]], done: Sequence[ObservedCall]) -> dict[int, int]:
    """Return which effect that was done is which one that was wanted, by their places: as many pairs as there can be."""
    pairs = dict[int, int]()

    def pair(place: int, tried: set[int]) -> bool:
        for at, call in enumerate(done):
            if at not in tried and _fits(call, *wanted[place]):
                tried.add(at)
                if at not in pairs or pair(pairs[at], tried):
                    pairs[at] = place
                    return True
        return False

    for place in range(len(wanted)):
        pair(place, set())
    return pairs


def _used(spent: Spent) -> dict[str, int | float | Decimal | None]:
    return {
        "max_model_turns": spent.model_turns,
        "max_tool_calls": spent.tool_calls,
        "max_wall_time_seconds": spent.wall_seconds,
        "max_input_tokens": spent.usage.input_tokens,
        "max_output_tokens": spent.usage.output_tokens,
        "max_total_cost": spent.cost,
    }


def _json(name: str, value: Mapping[str, Any]) -> JsonObject:
    made = dict(value)
    if (fault := find_unencodable(made)) is not None:
        raise ConfigurationError(f"{name} must be a JSON object; got {shown(value)}: {fault}.")
    return made


def _entry(tool: str, arguments: JsonObject) -> str:
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})" if arguments else tool


def _times(count: int) -> str:
    return "No such call was" if not count else "One such call was" if count == 1 else f"{count} such calls were"


def _listed(calls: Sequence[ObservedCall], tool: str) -> str:
    found = [one for one in calls if one.tool == tool]
    return f"Calls of {tool}: {_shown(found)}" if found else f"{tool} was not called."


def _shown(calls: Sequence[ObservedCall]) -> str:
    more = f" and {len(calls) - _MOST_SHOWN} more" if len(calls) > _MOST_SHOWN else ""
    return f"{', '.join(map(str, calls[:_MOST_SHOWN]))}{more}." if calls else ""
