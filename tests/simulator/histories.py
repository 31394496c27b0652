"""Histories: what every stored history of a life must show, beside what the journal's checker knows. Values only.

The rule of repetition is written down here a second time, from the contract and by brute force, so that both can be compared.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from simulator.around import DENIES_RESPONSE
from treadle.events import (
    AnyEvent,
    CallDecided,
    ContextCompacted,
    HistoryRepaired,
    HookActed,
    MessageAdded,
    ModeChanged,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionForked,
    SessionRewound,
    ToolFinished,
    ToolStarted,
)
from treadle.tools import Effect

__all__ = ["Limits", "faults_of"]

POLLING = frozenset({"poll", "check_transfer"})
_FAILED = frozenset({"failed", "rejected", "unexpected_result_shape", "timeout", "outcome_unknown", "unknown_tool"})


class Limits(NamedTuple):
    """The guards of a session's agent."""

    repeats: int
    with_progress: int
    failures: int
    denials: int


def faults_of(
    events: Sequence[AnyEvent], limits: Limits | None, around: Collection[str], *, is_child: bool
) -> Iterator[str]:
    """Return what one session's events show that may not happen.

    Args:
        limits: The guards that held; None where its calls cannot be compared by their arguments.
        around: What stands around its agent: only that is looked for.
        is_child: Whether it carries out a call of another session, whose mode it has.
    """
    if "interrupt_decision" in around:
        yield from _of_interrupts(events)
    if "mode" in around:
        yield from _of_plan_mode(events)
        if not is_child:
            yield from _of_modes(events)
    if "compaction" in around:
        yield from _of_compactions(events)
    if "hook" in around:
        yield from _of_hooks(events)
    if limits is not None:
        for stretch in _stretches(events):
            yield from _of_repetition(stretch, limits)


# --- decisions that interrupt, modes, compactions


def _of_interrupts(events: Sequence[AnyEvent]) -> Iterator[str]:
    """After a decision that interrupts, nothing starts and no model is asked; the run ends as cancelled."""
    interrupting: CallDecided | None = None
    for event in events:
        match event:
            case CallDecided(interrupt=True, decision="deny"):
                interrupting = event
            case ToolStarted() | ModelStarted() if interrupting is not None and event.act is None:
                yield f"{event.type} {event.call_id} after the decision on {interrupting.call_id} had interrupted its run"
                interrupting = None
            case RunFinished() if interrupting is not None:
                if event.status not in ("cancelled", "stopped"):
                    yield f"a run ended as {event.reason} after the decision on {interrupting.call_id} had interrupted it"
                interrupting = None
            case RunStarted():
                interrupting = None
            case _:
                pass


def _of_plan_mode(events: Sequence[AnyEvent]) -> Iterator[str]:
    """By a decision in plan mode, nothing starts that changes something."""
    decided: dict[str, CallDecided] = {}
    for event in events:
        match event:
            case CallDecided(call_id=str(call_id)):
                decided[call_id] = event
            case ToolStarted(call_id=str(call_id)) if event.effect is not Effect.READ:
                if decided[call_id].mode == "plan":
                    yield f"{event.tool} {call_id} started although it was decided in plan mode"
            case _:
                pass


def _of_compactions(events: Sequence[AnyEvent]) -> Iterator[str]:
    for event in events:
        if isinstance(event, ContextCompacted):
            if event.tokens_after >= event.tokens_before:
                yield f"compaction {event.seq} made {event.tokens_after} tokens of {event.tokens_before}"
            if not 0 < event.first <= event.last < event.seq:
                yield f"compaction {event.seq} is of the events {event.first} to {event.last}"
        elif isinstance(event, HistoryRepaired):
            yield f"a request had to be healed: {event.repairs}"


def _of_modes(events: Sequence[AnyEvent]) -> Iterator[str]:
    """Of a session that people run: after a change of mode, nothing that acts starts by a decision of the mode before."""
    mode: str = "ask"
    decided: dict[str, str] = {}
    for event in events:
        match event:
            case ModeChanged():
                mode = event.mode
            case CallDecided(call_id=str(call_id)):
                decided[call_id] = event.mode
            case ToolStarted(call_id=str(call_id)) if event.effect is not Effect.READ and decided[call_id] != mode:
                yield f"{event.tool} {call_id} started by a decision of mode {decided[call_id]} in mode {mode}"
            case _:
                pass


# --- hooks


def _of_hooks(events: Sequence[AnyEvent]) -> Iterator[str]:
    """What hooks add is recorded with what they did, and no call starts of a response that they have denied."""
    denied: set[str] = set()
    for place, event in enumerate(events):
        match event:
            case HookActed(answer="message" | "continued"):
                behind = events[place + 1] if place + 1 < len(events) else None
                is_cut = isinstance(behind, SessionForked)  # a fork may begin between the two
                if not is_cut and not (isinstance(behind, MessageAdded) and behind.source == "hook"):
                    yield f"{event.hook} acted in event {event.seq} and added no message"
            case ModelFinished() if event.act is None and _is_denied(event):
                denied.update(call.id for call in event.message.calls)
            case ToolStarted(call_id=str(call_id)) if call_id in denied:
                yield f"{event.tool} {call_id} started although a hook denied its response"
            case _:
                pass


def _is_denied(event: ModelFinished) -> bool:
    for call in event.message.calls:
        try:
            if json.loads(call.arguments)["ref"] % DENIES_RESPONSE == 0:
                return True
        except (ValueError, TypeError, KeyError):
            continue
    return False


# --- repetition


class _Response:
    """One response of a stretch of running, and what came of its calls."""

    def __init__(self, event: ModelFinished, early: dict[str, ToolFinished]) -> None:
        self.keys = {call.id: (call.name, _canonical(call.arguments)) for call in event.message.calls}
        self.results = {call_id: early[call_id] for call_id in self.keys if call_id in early}

    @property
    def tried(self) -> list[ToolFinished]:
        return [one for one in self.results.values() if one.result.code != "not_started"]

    def counted(self) -> frozenset[Any]:
        """The calls that count, whatever came of them. One that its response itself kept from starting is no try."""
        tried = [self.keys[one.result.call_id] for one in self.tried]
        return frozenset(key for key in tried if key[0] not in POLLING)

    def outcome(self, *, is_exact: bool) -> frozenset[Any]:
        return frozenset(
            (self.keys[one.result.call_id], *_meaning(one, is_exact=is_exact))
            for one in self.tried
            if self.keys[one.result.call_id][0] not in POLLING
        )

    @property
    def is_whole(self) -> bool:
        return len(self.results) == len(self.keys)


def _meaning(event: ToolFinished, *, is_exact: bool) -> tuple[Any, ...]:
    result = event.result
    if is_exact:
        return result.status, result.content, result.artifact
    if result.status in ("timeout", "outcome_unknown"):
        return (result.status,)
    return result.status, _canonical(result.content)


def _canonical(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def _stretches(events: Sequence[AnyEvent]) -> Iterator[list[AnyEvent]]:
    """Return the events of each stretch of running. What was rewound counts no longer."""
    stretch: list[AnyEvent] = []
    for event in events:
        if isinstance(event, RunStarted | RunResumed | SessionRewound):
            yield stretch
            stretch = []
        stretch.append(event)
    yield stretch


def _of_repetition(stretch: Sequence[AnyEvent], limits: Limits) -> Iterator[str]:
    """Compare what the guards did with what they are to do: none too early, none too late."""
    responses: list[_Response] = []
    early: dict[str, ToolFinished] = {}
    is_resumed = bool(stretch) and isinstance(stretch[0], RunResumed)
    for event in stretch:
        match event:
            case ModelFinished(act=None, closing=False) if event.message.calls:
                responses.append(_Response(event, early))
            case ToolStarted(call_id=str(call_id), early=False) if responses and call_id in responses[-1].keys:
                if _is_over(responses, limits, is_exact=True):
                    yield f"{event.tool} {call_id} started although its response repeats those before it once too often"
            case ToolFinished(call_id=str(call_id)):
                early[call_id] = event
                if responses and call_id in responses[-1].keys:
                    responses[-1].results[call_id] = event
            case RunFinished() if not is_resumed:
                yield from _of_end(event, responses, limits)
            case _:
                pass


def _of_end(event: RunFinished, responses: Sequence[_Response], limits: Limits) -> Iterator[str]:
    if event.reason == "repeated_tool_call" and not _is_over(responses, limits, is_exact=False):
        yield "the run ended as repetition although its responses do not repeat"
    if (
        event.reason == "repeated_failures"
        and not _has_failed(responses, limits.failures)
        and not _was_denied(responses, limits.denials)
    ):
        yield (
            f"the run ended as repeated failures although neither {limits.failures} responses in a row failed "
            f"nor {limits.denials} were denied"
        )


def _has_failed(responses: Sequence[_Response], limit: int) -> bool:
    """Whether so many responses failed since the last good call. One of denied calls alone is neither a failure nor a good call."""
    tried = [{one.result.status for one in response.tried} for response in responses]
    last = [statuses for statuses in tried if statuses & {"ok", *_FAILED}][-limit:]
    return len(last) == limit and not any("ok" in statuses for statuses in last)


def _was_denied(responses: Sequence[_Response], limit: int) -> bool:
    """Whether so many responses had denied calls since the last good call. One that was never tried counts as none of them."""
    tried = [{one.result.status for one in response.tried} for response in responses]
    last = [statuses for statuses in tried if statuses & {"ok", "denied"}][-limit:]
    return len(last) == limit and not any("ok" in statuses for statuses in last)


def _is_over(responses: Sequence[_Response], limits: Limits, *, is_exact: bool) -> bool:
    """Whether the last response completes so many repetitions that the guard ends the run.

    Args:
        is_exact: Results are equal only where their texts are; else where they mean the same.
    """
    last = responses[-1]
    unstarted = {call_id for call_id in last.results if last.results[call_id].result.code == "not_started"}
    wanted = frozenset(key for name, key in last.keys.items() if key[0] not in POLLING and name not in unstarted)
    before = [one for one in responses[:-1] if one.tried]
    if any(not one.is_whole for one in before):
        return False
    for place in range(len(before) - 1, -1, -1):
        if not before[place].counted():  # only polled: what comes after it repeats nothing that was before
            before = before[place + 1 :]
            break
    most = max(limits.with_progress, limits.repeats)
    return any(
        _repeats(before, wanted, period, limits.repeats, has_equal_results=True, is_exact=is_exact)
        or _repeats(before, wanted, period, most, has_equal_results=False, is_exact=is_exact)
        for period in range(1, 5)
    )


def _repeats(
    before: Sequence[_Response],
    wanted: frozenset[Any],
    period: int,
    count: int,
    *,
    has_equal_results: bool,
    is_exact: bool,
) -> bool:
    """Whether the responses end in so many equal blocks of this length, the last of which the wanted calls complete."""
    length = period * count - 1
    if len(before) < length or not wanted:
        return False
    tail = before[-length:] if length else []
    keys = [*(one.counted() for one in tail), wanted]
    if any(keys[place] != keys[place - period] for place in range(period, len(keys))):
        return False
    if not has_equal_results:
        return True
    outcomes = [one.outcome(is_exact=is_exact) for one in tail]
    return all(outcomes[place] == outcomes[place - period] for place in range(period, len(outcomes)))
