"""Explain: seven answers from the events alone, with everything a reader of the trace needs and no hidden reasoning."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from session_tools import Bank, look_tool, pay_tool, payer, stored_session, waiting_session

from treadle import (
    Agent,
    Budget,
    Decision,
    Done,
    Explanation,
    NotDone,
    Price,
    Tool,
    ToolContext,
    Unknown,
    ask,
    open_session,
)
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ContextCompacted,
    MessageAdded,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunPaused,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from treadle.messages import Message, Text, Thinking, ToolCall, Usage, user_message
from treadle.ports import Journal
from treadle.sessions.explain import explain
from treadle.testing import ScriptedModel, call, text
from treadle.tools import CallStatus, Effect, JsonObject, ToolResult


async def told(journal: Journal, name: str) -> Explanation:
    async with open_session(journal, id=name) as session:
        return await session.explain()


@pytest.mark.row("E08")
async def test_a_session_that_paid_is_explained_by_seven_answers(journal: Journal) -> None:
    await stored_session(journal)
    about = await told(journal, "s")

    assert [(one.tool, one.status, one.decision) for one in about.tried] == [
        ("look", "ok", "allow"),
        ("pay", "ok", "allow"),
    ]
    assert [one.tool for one in about.data_used] == ["look"]
    assert [(one.tool, one.effect, one.is_certain) for one in about.changed] == [("pay", "unsafe", True)]
    assert all(one.by.startswith("rule ") for one in about.approved)
    assert about.failed == ()
    assert about.stopped is not None
    assert (about.stopped.status, about.stopped.reason) == ("completed", "completed")
    assert (about.rerun.can_resume, about.rerun.is_safe) == (False, False)
    assert [(run.task, run.steps, run.status) for run in about.runs] == [
        ("Pay the invoice", 3, "completed"),
        ("Thanks", 1, "completed"),
    ]


@pytest.mark.row("E08")
async def test_who_approved_is_the_person_who_answered(journal: Journal) -> None:
    session = await waiting_session(journal)
    paused = await told(journal, "w")
    await session.answer(session.approvals()[0].id, "deny", reason="too much", by="kim")
    await payer(ScriptedModel([text("Then not.")]), policy=ask("pay")).resume(session)
    about = await told(journal, "w")

    assert paused.stopped is not None
    assert (paused.stopped.status, paused.stopped.reason) == ("paused", "approval_required")
    assert paused.rerun.can_resume
    assert [(one.tool, one.status) for one in paused.tried] == [("look", "ok"), ("pay", None)]
    [by] = [one for one in about.approved if one.tool == "pay"]
    assert (by.decision, by.by, by.reason) == ("deny", "kim", "too much")
    assert by.given_at is not None
    assert by.given_at <= by.at
    assert about.changed == ()
    assert about.rerun.is_safe
    assert [(one.what, one.status) for one in about.failed] == [("pay", "denied")]


@pytest.mark.row("E08")
async def test_a_limit_and_a_failure_are_said_with_their_figures(journal: Journal) -> None:
    async def broken(arguments: JsonObject, ctx: ToolContext) -> str:
        raise ValueError("no such row")

    tool = Tool(name="find", description="Find.", parameters={}, effect="read", run=broken)
    async with open_session(journal, id="s") as session:
        agent = Agent(
            ScriptedModel([call("find"), text("x")], price=Price(input=1, output=1)),
            tools=[tool],
            budget=Budget(max_model_turns=1),
            on_limit="report",
        )
        await agent.run("go", session=session)
    about = await told(journal, "s")

    assert [(one.what, one.status) for one in about.failed] == [("find", "failed")]
    assert "no such row" in about.failed[0].message
    assert about.stopped is not None
    assert (about.stopped.budget, about.stopped.used, about.stopped.limit) == ("max_model_turns", 1, 1)
    assert about.rerun.can_resume
    assert about.rerun.is_safe
    assert about.runs[0].cost is not None


async def test_a_call_of_unknown_outcome_may_have_changed_something_and_is_not_certain(journal: Journal) -> None:
    async def lost(arguments: JsonObject, ctx: ToolContext) -> str:
        raise ConnectionResetError("reset")

    tool = msgspec.structs.replace(pay_tool([]), run=lost)
    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([call("pay", amount=1), text("?")]), tools=[look_tool(), tool]).run(
            "go", session=session
        )
    about = await told(journal, "s")

    assert [(one.tool, one.status, one.is_certain) for one in about.changed] == [("pay", "outcome_unknown", False)]
    assert not about.rerun.is_safe


def one_session() -> Sequence[AnyEvent]:
    """Return a session with thinking, a compaction, a failed request, and a price."""
    asked = ToolCall(id="c1", name="pay", arguments='{"amount": 1}')
    says = Message(role="assistant", parts=(Thinking(text="the hidden plan"), Text("Paying."), asked))
    result = ToolResult(call_id="c1", name="pay", status=CallStatus.OK, content="paid", attempts=1)
    run = {"run_id": "r1", "step": 1}
    return (
        RunStarted(seq=1, run_id="r1", at=1.0, task="Pay", model="m", instructions="ab"),
        MessageAdded(seq=2, run_id="r1", message=user_message("Pay")),
        ContextCompacted(seq=3, run_id="r1", summary="before"),
        ModelStarted(seq=4, run_id="r1", model="m", tools=("pay", "look")),
        ModelFailed(seq=5, run_id="r1", error="ModelUnavailable", message="529"),
        ModelFinished(seq=6, **run, message=says, usage=Usage(input_tokens=7, output_tokens=3), cost="0.01"),  # type: ignore[arg-type]
        CallDecided(seq=7, **run, call_id="c1", tool="pay", decision="ask", rule="default", effect=Effect.KEYED, digest="d1"),  # type: ignore[arg-type]
        ApprovalRequested(seq=8, call_id="c1", approval_id="a1", tool="pay", arguments={}, digest="x", effect=Effect.KEYED,
                          expires_at=9.0),
        ApprovalAnswered(seq=9, approval_id="a1", answer="allow", approved_by="kim"),
        CallDecided(seq=10, **run, call_id="c1", tool="pay", decision="allow", rule="kim", effect=Effect.KEYED, digest="d1"),  # type: ignore[arg-type]
        ToolStarted(seq=11, **run, call_id="c1", tool="pay", effect=Effect.KEYED, digest="d1"),  # type: ignore[arg-type]
        ToolFinished(seq=12, **run, call_id="c1", result=result),  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.row("E09")
def test_the_trace_has_every_field_that_a_reader_needs() -> None:
    about = msgspec.json.decode(msgspec.json.encode(explain("s", one_session())))

    assert set(about) == {
        "session_id", "status", "state", "parent_id", "parent_seq", "tried", "data_used", "changed", "approved", "failed",
        "stopped", "rerun", "runs", "rewinds",
    }  # fmt: skip
    assert about["tried"] == [
        {
            "call_id": "c1", "tool": "pay", "run_id": "r1", "step": 1, "arguments": '{"amount": 1}', "decided": "", "digest": "d1",
            "effect": "keyed", "decision": "allow", "rule": "kim", "reason": "", "scope": "", "by": "",
            "mode": "", "status": "ok", "attempts": 1, "late": "",
        }
    ]  # fmt: skip
    assert about["runs"] == [
        {
            "run_id": "r1", "task": "Pay", "model": "m", "models": ["m"], "instructions": "ab", "tools": ["pay", "look"],
            "started_at": 1.0, "ended_at": None, "steps": 1, "input_tokens": 7, "output_tokens": 3, "cost": "0.01",
            "compactions": 1, "status": "running", "reason": None,
        }
    ]  # fmt: skip
    assert [(one["by"], one["decision"]) for one in about["approved"]] == [("kim", "allow")]
    assert [(one["what"], one["status"]) for one in about["failed"]] == [("model", "ModelUnavailable")]


@pytest.mark.row("E09")
def test_the_trace_holds_no_hidden_reasoning() -> None:
    assert b"hidden plan" not in msgspec.json.encode(explain("s", one_session()))


@pytest.mark.row("E08")
def test_every_beginning_of_a_session_can_be_explained() -> None:
    events = one_session()

    for end in range(len(events) + 1):
        about = explain("s", events[:end])
        assert len(about.tried) == (end >= 6)

    assert explain("s", ()).stopped is None


@pytest.mark.row("E08")
def test_events_whose_beginning_is_missing_are_explained_as_far_as_they_go() -> None:
    result = ToolResult(call_id="gone", name="look", status=CallStatus.OK, content="it", attempts=1)
    about = explain(
        "s",
        (
            ModelStarted(seq=1, model="m"),
            ContextCompacted(seq=2),
            ModelFinished(seq=3, message=Message(role="assistant", parts=(Text("Hm."),))),
            CallDecided(seq=4, call_id="gone", tool="look", decision="allow", rule="r"),
            ToolFinished(seq=5, call_id="gone", result=result),
            RunPaused(seq=6, reason="shutdown"),
        ),
    )

    assert (about.runs, about.tried, about.data_used, about.approved) == ((), (), (), ())
    assert about.stopped is not None
    assert (about.stopped.status, about.stopped.reason) == ("paused", "shutdown")


@pytest.mark.row("E08")
def test_a_task_whose_only_changes_are_idempotent_can_be_given_again() -> None:
    about = explain(
        "s",
        (
            RunStarted(seq=1, run_id="r1", task="Label it"),
            ToolStarted(seq=2, run_id="r1", call_id="c1", tool="label", effect=Effect.IDEMPOTENT),
        ),
    )

    assert [(one.tool, one.status) for one in about.changed] == [("label", "outcome_unknown")]
    assert about.rerun.is_safe
    assert about.rerun.why == "What was changed is idempotent: the task can be run again."


# --- calls beside one that waits, early calls, denials ---------------------------------------------------------------


@pytest.mark.row("H12")
async def test_calls_that_ran_beside_one_that_waits_are_explained_and_reported(journal: Journal) -> None:
    calls = [call("look", id="beside"), call("pay", id="waiting", amount=40)]
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([calls]), tools=[look_tool(), pay_tool([])], policy=ask("pay"))
        result = await agent.run("go", session=session)
    about = await told(journal, "s")

    assert result.reason == "approval_required"
    assert [(one["id"], one["status"]) for one in result.report()["tool_calls"]] == [("beside", "ok")]
    tried = {one.call_id: (one.decision, one.effect, one.status) for one in about.tried}
    assert tried == {"beside": ("allow", "read", "ok"), "waiting": ("ask", "unsafe", None)}
    assert [one.call_id for one in about.data_used] == ["beside"]


@pytest.mark.row("H12")
def test_an_early_call_of_a_response_that_broke_off_is_explained_with_its_decision() -> None:
    early = ToolCall(id="c1", name="look", arguments='{"at": 1}')
    result = ToolResult(call_id="c1", name="look", status=CallStatus.OK, content="seen", attempts=1)
    events: list[AnyEvent] = [
        RunStarted(seq=1, run_id="r", task="go"),
        CallDecided(seq=2, run_id="r", step=1, call_id="c1", tool="look", decision="allow", rule="default for read",
                    effect=Effect.READ, digest="d", early=True),
        ToolStarted(seq=3, run_id="r", step=1, call_id="c1", tool="look", effect=Effect.READ, early=True, call=early, digest="d"),
        ToolFinished(seq=4, run_id="r", step=1, call_id="c1", result=result),
    ]  # fmt: skip

    about = explain("s", events)

    (tried,) = about.tried
    assert (tried.decision, tried.rule, tried.effect, tried.status) == ("allow", "default for read", "read", "ok")
    assert tried.arguments == '{"at": 1}'
    assert [one.arguments for one in about.data_used] == ['{"at": 1}']
    assert [one.call_id for one in about.approved] == ["c1"]


@pytest.mark.row("H12")
async def test_a_call_that_needs_a_sandbox_is_among_the_denials(journal: Journal) -> None:
    class Boxed:
        def decide(self, call: object, session: object) -> Decision:
            return Decision(kind="sandbox", rule="boxed", reason="It needs a box.")

    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([call("look"), text("No.")]), tools=[look_tool()], policy=Boxed())
        result = await agent.run("go", session=session)
    about = await told(journal, "s")

    assert [(one["rule"], one["reason"]) for one in result.report()["denials"]] == [("boxed", "It needs a box.")]
    assert [(one.decision, one.by) for one in about.approved] == [("sandbox", "rule boxed")]
    assert [one.status for one in about.failed] == ["denied"]


@pytest.mark.row("ST10", "HF3")
@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize(
    ("outcome", "changed"), [(Done({"n": 1}), [("p", True)]), (NotDone, []), (Unknown, [("p", False)])]
)
async def test_who_resolved_a_doubt_and_what_follows_is_explained(
    journal: Journal, outcome: Any, changed: list[Any], is_told: bool
) -> None:
    bank = Bank()
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        if is_told:
            await bank.agent(text("Unknown.")).resume(session)
        await session.resolve("p", outcome, by="ada", reason="On the list")
        about = await session.explain()
    [one] = about.resolved
    assert (one.call_id, one.tool, one.by, one.reason) == ("p", "pay", "ada", "On the list")
    assert one.at > 0
    assert [(each.call_id, each.is_certain) for each in about.changed] == changed
    assert about.rerun.is_safe == (not changed)


async def test_why_a_session_is_suspended_is_explained() -> None:
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([text("Done.")])).run("Go", session=session)
        await session.change(status="suspended", reason="Its worker died 3 times at the same place.")
        about = await session.explain()
        assert (about.status, about.status_reason) == ("suspended", "Its worker died 3 times at the same place.")
        await session.change(status="active")
        assert (await session.explain()).status_reason == ""
