"""The fold on events that fit nothing: what names no known call or question changes no call. Records nothing."""

import pytest

from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ModelFinished,
    RunStarted,
    ToolFinished,
    ToolResumed,
    ToolStarted,
    ToolSuspended,
)
from treadle.messages import Finish, Message, ToolCall
from treadle.state import SessionState
from treadle.state.session import sums
from treadle.tools import CallStatus, Effect, ToolResult

LOOK = ToolCall(id="c1", name="look", arguments="{}")
RESULT = ToolResult(call_id="c1", name="look", status=CallStatus.OK, content="it", attempts=1)


def asked(approval_id: str = "a1", call_id: str = "c1") -> ApprovalRequested:
    return ApprovalRequested(
        call_id=call_id, approval_id=approval_id, tool="look", arguments={}, digest="d", effect=Effect.READ, expires_at=9.0
    )  # fmt: skip


def folded(*events: AnyEvent) -> SessionState:
    state = SessionState("s")
    for event in events:
        state.apply(event)
    return state


def proposed() -> ModelFinished:
    return ModelFinished(step=1, message=Message(role="assistant", parts=(LOOK,)), finish=Finish.CALLS)


def test_a_step_whose_only_call_had_ended_before_its_message_is_closed_by_the_message() -> None:
    state = folded(
        RunStarted(task="t"),
        ToolStarted(call_id="c1", tool="look", early=True, call=LOOK),
        ToolFinished(call_id="c1", result=RESULT),
        proposed(),
    )

    assert [message.role for message in state.messages] == ["assistant", "tool"]
    assert state.run is not None
    assert [one.id for one in state.run.calls] == ["c1"]
    assert not state.open


def test_a_denial_that_names_no_call_is_listed_and_changes_no_call() -> None:
    state = folded(RunStarted(task="t"), proposed(), CallDecided(tool="look", decision="deny", rule="r", reason="no"))

    assert state.run is not None
    assert [(one.call_id, one.tool, one.rule) for one in state.run.denials] == [("", "look", "r")]
    assert state.open["c1"].decision is None


def test_a_question_on_a_call_that_is_not_open_can_be_answered_and_changes_no_call() -> None:
    answer = ApprovalAnswered(approval_id="a1", answer="allow")
    state = folded(RunStarted(task="t"), proposed(), asked(call_id="gone"), answer)

    assert state.approvals["a1"].answer == answer
    assert state.pending_approvals() == ()
    assert state.open["c1"].approval is None


def test_an_answer_to_no_question_and_a_second_answer_change_nothing() -> None:
    allowed, denied = (
        ApprovalAnswered(approval_id="a1", answer="allow"),
        ApprovalAnswered(approval_id="a1", answer="deny"),
    )
    state = folded(
        RunStarted(task="t"), proposed(), ApprovalAnswered(approval_id="a0", answer="deny"), asked(), allowed, denied
    )

    assert [one.answer for one in state.approvals.values()] == [allowed]


def test_a_start_and_an_end_of_a_call_that_nobody_proposed_change_no_call() -> None:
    stray = ToolResult(call_id="gone", name="look", status=CallStatus.OK, content="", attempts=1)
    state = folded(
        RunStarted(task="t"),
        proposed(),
        ToolStarted(call_id="gone", tool="look"),
        ToolFinished(call_id="gone", result=stray),
    )

    assert (state.open["c1"].started, state.open["c1"].result) == (None, None)


def test_the_second_result_of_a_call_is_passed_over() -> None:
    late = ToolResult(call_id="c1", name="look", status=CallStatus.FAILED, content="late", attempts=2)
    other = ToolCall(id="c2", name="look", arguments="{}")
    both = ModelFinished(step=1, message=Message(role="assistant", parts=(LOOK, other)), finish=Finish.CALLS)
    ends = ToolFinished(call_id="c1", result=RESULT), ToolFinished(call_id="c1", result=late)
    state = folded(RunStarted(task="t"), both, *ends)

    assert state.open["c1"].result == RESULT
    assert [message.role for message in state.messages] == ["assistant"]


def test_a_consent_is_used_up_by_a_result_that_came_without_a_start() -> None:
    state = folded(RunStarted(task="t"), proposed(), asked(), ToolFinished(call_id="c1", result=RESULT))

    assert state.approvals == {}


def test_a_call_that_has_its_result_waits_for_nothing_and_one_that_nobody_proposed_changes_none() -> None:
    other = ToolCall(id="c2", name="look", arguments="{}")
    both = ModelFinished(step=1, message=Message(role="assistant", parts=(LOOK, other)), finish=Finish.CALLS)
    waits = [
        ToolSuspended(call_id=name, tool="look", reason="input_required", waits_for="a letter")
        for name in ("c1", "gone", "c2")
    ]
    state = folded(RunStarted(task="t"), both, ToolFinished(call_id="c1", result=RESULT), *waits)

    assert (state.open["c1"].suspended, state.open["c2"].suspended) == (None, waits[2])

    state.apply(ToolResumed(call_id="gone", tool="look"))
    assert state.open["c2"].suspended == waits[2]
    state.apply(ToolResumed(call_id="c2", tool="look"))
    assert state.open["c2"].suspended is None


@pytest.mark.row("R-DECAY")
def test_a_session_has_no_dict_of_its_own_which_thousands_of_them_would_pay_for() -> None:
    state = SessionState("s")

    assert not hasattr(state, "__dict__")
    assert sums(state)["id"] == "s"  # each slot has its first value
