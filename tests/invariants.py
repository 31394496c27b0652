"""Invariants: what must hold of a session after anything at all has happened. Asserts; runs nothing.

    await check_session(session)

The central one is V01: every proposed call has exactly one result, in order, right behind the message that proposed it.
"""

import json
from collections import Counter
from collections.abc import Sequence

import msgspec

from treadle import Session
from treadle.effects import Effect
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    CallDecided,
    ModelFinished,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolFinished,
    ToolInDoubt,
    ToolStarted,
    decode_event,
    encode_event,
)
from treadle.messages import Message
from treadle.ports import ModelRequest
from treadle.providers._chat_request import ChatRequests
from treadle.session import fold
from treadle.testing import check_chat_history

__all__ = ["check_events", "check_pairs", "check_session"]


async def check_session(session: Session) -> None:
    """Assert everything that a session's journal and its transcript promise."""
    events = list(await session.events())
    check_events(events, open_ids=set(session.state.open))
    again = fold(session.id, [decode_event(encode_event(event)) for event in events])
    assert msgspec.to_builtins(again.messages) == msgspec.to_builtins(session.state.messages)
    assert set(again.open) == set(session.state.open)
    assert again.pending_approvals() == session.state.pending_approvals()
    check_pairs(session.messages, open_ids=set(session.state.open))


def check_events(events: Sequence[AnyEvent], *, open_ids: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Assert what one session's events promise."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1)), "numbers have gaps"
    for event in events:
        assert decode_event(encode_event(event)) == event, f"{event.type} cannot be read again"
    _check_runs(events)
    _check_calls(events, open_ids)
    _check_starts(events)


def check_pairs(messages: Sequence[Message], *, open_ids: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Assert that calls and results match, neighbours and in order; only the last message may wait for a person."""
    seen: set[str] = set()
    for index, message in enumerate(messages):
        ids = [call.id for call in message.calls]
        assert not seen & set(ids), "an id is used twice"
        assert len(ids) == len(set(ids))
        seen.update(ids)
        if message.role == "tool":
            assert [result.call_id for result in message.results] == [call.id for call in messages[index - 1].calls]
        if ids and not (index == len(messages) - 1 and open_ids):
            assert messages[index + 1].role == "tool", "a call has no result"
    if messages and not open_ids:
        _check_with_the_vendor(messages)


def _check_with_the_vendor(messages: Sequence[Message]) -> None:
    requests = ChatRequests("m", origin="x", options={}, stream=False, thinking_field=None)
    body = requests.body(ModelRequest(messages=tuple(message for message in messages if message.parts)))
    check_chat_history(json.loads(body)["messages"])


def _check_runs(events: Sequence[AnyEvent]) -> None:
    """Every run that began ends once, or waits, before the next begins."""
    is_running = False
    for event in events:
        match event:
            case RunStarted() | RunResumed():
                is_running = True
            case RunFinished() | RunPaused():
                assert is_running, "a run ended twice"
                is_running = False
            case _:
                pass


def _check_calls(events: Sequence[AnyEvent], open_ids: set[str]) -> None:
    proposed = {call.id for event in events if isinstance(event, ModelFinished) for call in event.message.calls}
    early = {event.call_id for event in events if isinstance(event, ToolStarted) and event.early}
    finished = Counter(event.call_id for event in events if isinstance(event, ToolFinished))
    assert all(count == 1 for count in finished.values()), f"finished more than once: {finished}"
    missing = (proposed | early) - set(finished)
    assert missing <= open_ids, f"never finished: {missing - open_ids}"
    assert set(finished) <= proposed | early, "a result of no call"
    for event in events:
        if isinstance(event, ToolFinished):
            assert event.result.call_id == event.call_id
            assert (event.failure_class is None) == (event.result.status == "ok")


def _check_starts(events: Sequence[AnyEvent]) -> None:
    """No call starts without a decision before it, none after its result, and none that is unsafe twice."""
    allowed: set[str | None] = set()
    finished: set[str | None] = set()
    unsafe: Counter[str | None] = Counter()
    again: Counter[str | None] = Counter()
    for event in events:
        match event:
            case CallDecided():
                (allowed.add if event.decision == "allow" else allowed.discard)(event.call_id)
            case ToolFinished():
                finished.add(event.call_id)
            case ToolInDoubt(answer="not_done"):
                again[event.call_id] += 1
            case ApprovalAnswered(answer="allow"):
                again[event.call_id] += 1
            case ToolStarted():
                assert event.call_id in allowed, f"{event.tool} started without a decision"
                assert event.call_id not in finished, f"{event.tool} started after its result"
                unsafe[event.call_id] += event.effect is Effect.UNSAFE
                assert unsafe[event.call_id] <= 1 + again[event.call_id], f"{event.tool} started twice"
            case _:
                pass
