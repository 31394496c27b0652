"""What other processes left for a session, by its values: which facts each message becomes."""

from typing import Any

import msgspec
import pytest

from treadle.events import ApprovalAnswered, ModeChanged, RulesGranted, ToolInput
from treadle.messages import ToolCall
from treadle.sessions.inbox import _given, answer_events, plan_ended
from treadle.state import Approval, CallState, LeftAnswer, LeftInput, answer_id
from treadle.tools import Effect

PLAIN = Approval(
    id="a1", session_id="s", call_id="c1", tool="pay", arguments={}, digest="d", effect=Effect.UNSAFE, requested_at=1.0,
    expires_at=99.0,
)  # fmt: skip
RULED = msgspec.structs.replace(PLAIN, rules=("pay(to=ada)",))
PLAN = msgspec.structs.replace(PLAIN, approval_type="plan")


def left(answer: Any = "allow", **words: Any) -> LeftAnswer:
    return LeftAnswer(id=answer_id(PLAIN), approval_id="a1", answer=answer, approved_by="ada", at=50.0, **words)


def answered(answer: Any = "allow", **words: Any) -> ApprovalAnswered:
    return ApprovalAnswered(
        call_id="c1", approval_id="a1", answer=answer, approved_by="ada", given_at=50.0, **{"scope": "call", **words}
    )


GRANTED = RulesGranted(call_id="c1", rules=("pay(to=ada)",), scope="session", by="ada", approval_id="a1")
ENDED = ModeChanged(mode="ask", before="plan", by="ada", message_id=f"{answer_id(PLAIN)}_mode")


@pytest.mark.parametrize(
    ("approval", "message", "mode", "events"),
    [
        (PLAIN, left(reason="Fine."), None, [answered(reason="Fine.", expires_at=99.0)]),
        (PLAIN, left("deny", reason="No.", interrupt=True), None, [answered("deny", reason="No.", interrupt=True)]),
        (PLAIN, left(arguments={"n": 1}), None, [answered(arguments={"n": 1}, expires_at=99.0)]),
        (PLAIN, left(scope="session"), None, [answered(expires_at=99.0)]),
        (RULED, left(scope="session"), None, [answered(scope="session"), GRANTED]),
        (RULED, left(scope="rule"), None, [answered(scope="rule"), msgspec.structs.replace(GRANTED, scope="rule")]),
        (RULED, left(), None, [answered(expires_at=99.0)]),
        (RULED, left("deny", scope="session"), None, [answered("deny")]),
        (RULED, left(scope="session", arguments={"n": 1}), None, [answered(arguments={"n": 1}, expires_at=99.0)]),
        (PLAN, left(), "plan", [answered(expires_at=99.0), ENDED]),
        (PLAN, left(), "ask", [answered(expires_at=99.0)]),
        (PLAN, left(), None, [answered(expires_at=99.0)]),
        (PLAN, left("deny"), "plan", [answered("deny")]),
        (PLAN, left(arguments={"n": 1}), "plan", [answered(arguments={"n": 1}, expires_at=99.0)]),
        (PLAIN, left(), "plan", [answered(expires_at=99.0)]),
        (msgspec.structs.replace(PLAIN, id="a2"), left(), None, []),
    ],
)
def test_an_answer_becomes_what_it_allows_and_no_more(approval: Any, message: Any, mode: Any, events: Any) -> None:
    other = msgspec.structs.replace(PLAIN, id="a0", call_id="c0")
    assert answer_events(message, [other, approval], mode=mode) == events


@pytest.mark.parametrize(
    ("by", "ends"), [("ada", True), ("approver:f", False), ("policy:P", False), ("an approver: f", True)]
)
def test_a_plan_is_ended_by_a_person_alone(by: str, ends: bool) -> None:
    assert bool(plan_ended(by, "x")) == ends


def waiting(**words: Any) -> CallState:
    return CallState(call=ToolCall(id="c1", name="pay", arguments="{}"), position=0, **words)


def test_a_call_that_waits_is_given_each_input_once() -> None:
    message = LeftInput(id="i1", call_id="c1", value={"n": 1}, by="ada", at=50.0)
    suspended: Any = object()
    given = ToolInput(call_id="c1", tool="pay", value={"n": 1}, by="ada", message_id="i1", given_at=50.0)
    call = waiting()
    assert _given(message, None) is None
    assert _given(message, call) is None
    call.suspended = suspended
    assert _given(message, call) == given
    call.inputs = (msgspec.structs.replace(given, message_id="i0"),)
    assert _given(message, call) == given
    call.inputs = (*call.inputs, given)
    assert _given(message, call) is None
