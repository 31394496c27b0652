"""Explain: seven answers from the events alone, with everything a reader of the trace needs and no hidden reasoning."""

import asyncio
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from session_tools import look_tool, pay_tool, payer, stored_session, waiting_session

from treadle import Agent, Decision, Effect, Price, ask, open_session
from treadle.events import (
    ActionDecided,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ContextCompacted,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionRewound,
    ToolFinished,
    ToolInput,
    ToolLate,
    ToolResolved,
    ToolStarted,
)
from treadle.journals.memory import MemoryJournal
from treadle.messages import Message, Text, Thinking, ToolCall, Usage, user_message
from treadle.ports import Journal
from treadle.sessions import Explanation
from treadle.sessions.explain import (
    Approved,
    Aside,
    Changed,
    Failed,
    Given,
    Resolved,
    RunTrace,
    Stopped,
    Tried,
    Used,
    explain,
)
from treadle.testing import ScriptedModel, call, text
from treadle.tools import CallStatus, ToolResult


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


async def test_why_a_session_is_suspended_is_explained() -> None:
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([text("Done.")])).run("Go", session=session)
        await session.change(status="suspended", reason="Its worker died 3 times at the same place.")
        about = await session.explain()
        assert (about.status, about.status_reason) == ("suspended", "Its worker died 3 times at the same place.")
        await session.change(status="active")
        assert (await session.explain()).status_reason == ""


async def test_a_run_of_a_session_that_people_have_suspended_cannot_be_resumed_says_its_explanation() -> None:
    async with open_session("memory:") as session:
        await payer(ScriptedModel([call("pay", amount=7)]), policy=ask("pay")).run("Pay", session=session)
        assert (await session.explain()).rerun.can_resume
        await session.change(status="suspended")
        assert not (await session.explain()).rerun.can_resume


async def test_a_session_that_was_moved_is_not_said_to_be_safe_to_run_again() -> None:
    async with open_session(MemoryJournal(), id="s") as session:
        await Agent(ScriptedModel([text("x")])).run("go", session=session)
        before = (await session.explain()).rerun
        await session.move("elsewhere")
        after = (await session.explain()).rerun

    assert (before.can_resume, before.is_safe) == (False, True)
    assert (after.can_resume, after.is_safe) == (False, False)
    assert after.why == "The session continues in elsewhere: what is done there is unknown here."


async def test_a_long_session_is_explained_while_others_continue() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([text("x")] * 130))
        for _ in range(130):
            await agent.run("go", session=session)
        count = len(await session.events())
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    before = turns
    explanation = await told(journal, "s")
    watching.cancel()

    assert count > 500
    assert len(explanation.runs) == 130
    assert turns - before > 2


async def test_what_was_asked_beside_the_steps_is_explained_with_all_that_it_used() -> None:
    async def is_done(view: Any) -> bool:
        answers = [await view.ask([user_message(words)]) for words in ("Is it good?", "Is it whole?")]
        return answers == ["Yes.", "Yes."]

    price = Price(input=1, output=2)
    model = ScriptedModel([call("look"), text("Yes."), text("Yes.")], price=price)
    async with open_session(MemoryJournal(), id="s") as session:
        result = await Agent(model, tools=[look_tool()], done_when=is_done).run("go", session=session)
        acts = (await session.explain()).acts
        events = [event for event in await session.events() if event.type == "model.finished"]

    assert result.completed
    assert [(one.act.partition(":")[0], one.requests) for one in acts] == [("check", 1), ("check", 1)]
    assert [one.turns for one in events if one.act is not None] == [0, 0]  # none is a step of the run
    for act in acts:
        (used,) = (event for event in events if event.act == act.act)
        assert (act.input_tokens, act.output_tokens) == (used.usage.input_tokens, used.usage.output_tokens)
        assert min(act.input_tokens, act.output_tokens) > 0
        assert Decimal(act.cost or 0) == Decimal(used.cost or 0) > 0


STARTED = RunStarted(run_id="r1", at=10.0, task="t", model="m0", instructions="ab")


def explained(*events: AnyEvent, children: tuple[Explanation, ...] = (), begin: bool = True) -> Explanation:
    """Explain these events of one run, numbered from 1."""
    given = (STARTED, *events) if begin else events
    named = [msgspec.structs.replace(event, seq=seq, run_id=event.run_id or "r1") for seq, event in enumerate(given, 1)]
    return explain("s", named, children)


def proposed(*calls: ToolCall, step: int = 1, **more: Any) -> ModelFinished:
    parts = calls or (ToolCall(id="c1", name="pay", arguments='{"n":1}'),)
    return ModelFinished(step=step, message=Message(role="assistant", parts=parts), **more)


def decided(decision: str = "allow", rule: str = "mine", **more: Any) -> CallDecided:
    return CallDecided(call_id="c1", tool="pay", decision=decision, rule=rule, **{"at": 11.0, **more})


def finished(status: CallStatus = CallStatus.OK, content: str = "paid", **more: Any) -> ToolFinished:
    result = ToolResult(call_id="c1", name="pay", status=status, content=content, attempts=2, **more)
    return ToolFinished(call_id="c1", result=result)


def began(effect: Effect = Effect.UNSAFE, **more: Any) -> ToolStarted:
    return ToolStarted(call_id="c1", tool="pay", effect=effect, key="k", **more)


@pytest.mark.row("E09")
def test_the_trace_has_every_field_that_a_reader_needs_and_no_hidden_reasoning() -> None:
    parts = (Thinking(text="the hidden plan"), Text("Paying."), ToolCall(id="c1", name="pay", arguments="{}"))
    said = ModelFinished(step=1, message=Message(role="assistant", parts=parts))
    about = msgspec.json.decode(msgspec.json.encode(explained(said, decided(), began(), finished())))

    assert set(about) == {
        "session_id", "status", "run_status", "parent_id", "parent_seq", "tried", "data_used", "changed", "approved", "failed",
        "stopped", "rerun", "runs", "rewinds",
    }  # fmt: skip
    assert (set(about["tried"][0]), set(about["runs"][0])) == (
        {*Tried.__struct_fields__},
        {*RunTrace.__struct_fields__},
    )
    assert "hidden plan" not in str(about)


@pytest.mark.row("E08")
def test_every_beginning_of_a_session_can_be_explained() -> None:
    events = [STARTED, proposed(), decided("ask"), ASKED, ANSWERED, decided(), began(), finished()]

    for end in range(1, len(events) + 1):
        assert len(explained(*events[:end], begin=False).tried) == (end >= 2)

    assert explain("s", ()).stopped is None


# --- calls


def test_a_call_is_told_with_its_decision_and_its_end() -> None:
    about = explained(
        proposed(step=3),
        decided(
            reason="Why.", effect=Effect.KEYED, digest="d", scope="project", by="policy", mode="ask", arguments={"n": 2}
        ),
        began(),
        finished(),
    )
    assert about.tried == (
        Tried(
            call_id="c1", tool="pay", run_id="r1", step=3, arguments='{"n":1}', decided='{"n":2}', digest="d",
            effect=Effect.KEYED, decision="allow", rule="mine", reason="Why.", scope="project", by="policy", mode="ask",
            status="ok", attempts=2,
        ),
    )  # fmt: skip
    approved = Approved(call_id="c1", tool="pay", decision="allow", by="rule mine", reason="Why.", at=11.0)
    assert about.approved == (approved,)
    assert [(one.arguments, one.status, one.is_certain) for one in about.changed] == [('{"n":2}', "ok", True)]


@pytest.mark.parametrize(
    ("decision", "is_told"), [("allow", True), ("deny", True), ("draft", True), ("sandbox", True), ("ask", False)]
)
def test_a_rule_that_decides_is_told_and_one_that_asks_is_not(decision: str, is_told: bool) -> None:
    assert bool(explained(proposed(), decided(decision)).approved) == is_told


def test_a_decision_on_a_call_that_nobody_proposed_counts_only_where_it_is_early() -> None:
    assert explained(decided()).tried == ()
    assert explained(decided()).approved == ()
    [tried] = explained(decided(early=True, step=2)).tried
    assert (tried.call_id, tried.tool, tried.step, tried.arguments) == ("c1", "pay", 2, "")
    [tried] = explained(decided(early=True), proposed()).tried
    assert tried.arguments == '{"n":1}'


def test_an_early_call_is_told_with_the_arguments_with_which_it_began() -> None:
    early = ToolCall(id="c1", name="pay", arguments='{"n":9}')
    [tried] = explained(decided(early=True, digest="d0"), began(call=early, digest="d")).tried
    assert (tried.arguments, tried.digest) == ('{"n":9}', "d")
    [tried] = explained(proposed(), decided(digest="d0"), began(digest="d")).tried
    assert (tried.arguments, tried.digest) == ('{"n":1}', "d0")


@pytest.mark.parametrize(
    ("effect", "status", "used"),
    [
        (Effect.READ, CallStatus.OK, True),
        (None, CallStatus.OK, True),
        (Effect.UNSAFE, CallStatus.OK, False),
        (Effect.READ, CallStatus.FAILED, False),
    ],
)
def test_data_that_the_model_was_given_is_what_a_read_returned(effect: Any, status: CallStatus, used: bool) -> None:
    about = explained(proposed(), decided(effect=effect, arguments={"n": 2}), finished(status, "12345"))
    expected = Used(call_id="c1", tool="pay", arguments='{"n":2}', characters=5)
    assert about.data_used == ((expected,) if used else ())


@pytest.mark.parametrize(("message", "told"), [("No row.", "No row."), (None, "content")])
def test_a_call_that_failed_is_told_with_its_message_or_what_the_model_read(message: Any, told: str) -> None:
    about = explained(proposed(), finished(CallStatus.FAILED, "content", message=message))
    assert about.failed == (Failed(what="pay", call_id="c1", status="failed", message=told),)


def test_how_a_call_ended_after_it_had_been_given_up_is_told() -> None:
    late = ToolLate(call_id="c1", tool="pay", outcome="returned", content="'x'")
    assert explained(proposed(), late).tried[0].late == "returned 'x'"
    assert explained(late).tried == ()


def test_an_action_of_a_tool_is_told_as_asked_by_it() -> None:
    action = ActionDecided(
        call_id="c1", tool="pay", action="fetch", arguments={}, decision="deny", rule="r", reason="Why.", at=12.0,
        effect=Effect.READ, digest="",
    )  # fmt: skip
    expected = Approved(call_id="c1", tool="fetch (asked by pay)", decision="deny", by="rule r", reason="Why.", at=12.0)
    assert explained(action).approved == (expected,)


# --- what people say


ASKED = ApprovalRequested(
    call_id="c1", approval_id="a1", tool="pay", arguments={}, digest="x", effect=Effect.KEYED, expires_at=9.0
)
ANSWERED = ApprovalAnswered(approval_id="a1", answer="allow", approved_by="kim", reason="Fine.", at=13.0, given_at=12.5)


def test_an_answer_whose_question_is_missing_is_told_without_a_tool() -> None:
    about = explained(msgspec.structs.replace(ANSWERED, call_id="c7"))
    assert [(one.call_id, one.tool, one.by) for one in about.approved] == [("c7", "", "kim")]
    assert [one.call_id for one in explained(ANSWERED).approved] == [""]


def test_an_input_is_told_with_who_gave_it_and_when() -> None:
    given = ToolInput(call_id="c1", tool="pay", value={"n": 1}, by="ada", message_id="i", at=14.0, given_at=13.5)
    assert explained(given).inputs == (Given(call_id="c1", value={"n": 1}, by="ada", at=14.0, given_at=13.5),)


def resolved(outcome: Any) -> ToolResolved:
    return ToolResolved(call_id="c1", tool="pay", outcome=outcome, by="ada", reason="Seen.", value=7, at=15.0)


def test_a_resolution_is_told_and_is_a_word_on_the_call() -> None:
    about = explained(proposed(), decided(), began(), finished(CallStatus.OUTCOME_UNKNOWN), resolved("done"))
    assert about.resolved == (
        Resolved(call_id="c1", tool="pay", outcome="done", by="ada", reason="Seen.", at=15.0, value=7),
    )
    assert about.approved[-1] == Approved(
        call_id="c1", tool="pay", decision="resolved as done", by="ada", reason="Seen.", at=15.0
    )
    assert about.changed == (
        Changed(
            call_id="c1", tool="pay", arguments='{"n":1}', effect=Effect.UNSAFE, status="ok",
            is_certain=True, resolution="done",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "changed"),
    [(None, [(False, "")]), ("done", [(True, "done")]), ("unknown", [(False, "unknown")]), ("not_done", [])],
)
@pytest.mark.parametrize("is_told", [False, True])
def test_what_is_resolved_says_whether_something_was_changed(outcome: Any, changed: Any, is_told: bool) -> None:
    ended = [finished(CallStatus.OUTCOME_UNKNOWN)] if is_told else []
    about = explained(proposed(), began(), *ended, *([] if outcome is None else [resolved(outcome)]))
    assert [(one.is_certain, one.resolution) for one in about.changed] == changed
    assert about.rerun.is_safe == (not changed)
    again = explained(proposed(), began(), resolved("not_done"), began(), finished())
    assert [(one.is_certain, one.resolution) for one in again.changed] == [(True, "")]


# --- runs


def test_the_end_of_a_run_is_told_with_its_figures() -> None:
    end = RunFinished(
        reason="budget_exceeded", status="stopped", completed=False, message="Over.", wall_seconds=1.0, budget="b", used=3,
        limit=2, at=20.0,
    )  # fmt: skip
    about = explained(end)
    assert about.stopped == Stopped(
        status="stopped", reason="budget_exceeded", message="Over.", budget="b", used=3, limit=2
    )
    [run] = about.runs
    assert (run.run_id, run.task, run.model, run.instructions, run.started_at) == ("r1", "t", "m0", "ab", 10.0)
    assert (run.ended_at, run.status, run.reason, run.cost) == (20.0, "stopped", "budget_exceeded", "0")


def test_a_run_that_pauses_and_continues_is_told_as_what_it_is() -> None:
    pause, resume = RunPaused(reason="shutdown", at=18.0), RunResumed(at=19.0)
    paused = explained(pause)
    assert paused.stopped == Stopped(status="paused", reason="shutdown")
    assert [(one.ended_at, one.status, one.reason) for one in paused.runs] == [(18.0, "paused", "shutdown")]
    going = explained(pause, resume)
    assert going.stopped == Stopped(status="running", reason=None)
    assert [(one.ended_at, one.status, one.reason) for one in going.runs] == [(None, "running", None)]
    assert explained().stopped == Stopped(status="running", reason=None)


def test_models_and_tools_of_a_run_are_told_once_each() -> None:
    asked = [
        ModelStarted(model="m1", tools=("a", "b")),
        ModelStarted(model="m2", tools=("b", "c")),
        ModelStarted(model="m1"),
    ]
    about = explained(*asked, proposed(), proposed(ToolCall(id="c2", name="b", arguments="{}"), step=2))
    [run] = about.runs
    assert (run.models, run.tools, run.steps) == (["m1", "m2"], ["a", "b", "c"], 2)


def test_what_a_run_has_used_is_told_and_a_cost_that_nobody_knows_is_none() -> None:
    used = Usage(input_tokens=7, output_tokens=3)
    [run] = explained(proposed(usage=used, cost="0.10")).runs
    assert (run.input_tokens, run.output_tokens, run.cost) == (7, 3, "0.1")
    [run] = explained(proposed(usage=used, cost=None)).runs
    assert run.cost is None


def test_a_request_that_failed_is_told() -> None:
    about = explained(ModelFailed(error="ModelUnavailable", message="529"))
    assert about.failed == (Failed(what="model", call_id=None, status="ModelUnavailable", message="529"),)


def test_events_that_the_session_was_taken_back_to_are_told() -> None:
    assert explained(SessionRewound(to=1), SessionRewound(to=2)).rewinds == (1, 2)


# --- beside the steps


def test_what_was_asked_beside_the_steps_is_an_act_of_its_own() -> None:
    words = Message(role="assistant", parts=(Text("x"),))
    about = explained(
        ModelStarted(act="check:1", model="m1", tools=("a",), step=4),
        ModelFailed(act="check:1", error="E", message="x", usage=Usage(input_tokens=1, output_tokens=1), cost="0.5"),
        ModelFailed(act="check:1", error="E", message="y"),
        ModelStarted(act="check:1", model="m1", step=4),
        ModelFinished(act="check:1", message=words, usage=Usage(input_tokens=5, output_tokens=2), cost="0.25"),
        ModelStarted(act="check:2", model="m2", step=5),
    )
    assert about.acts == (
        Aside(act="check:1", run_id="r1", step=4, requests=2, input_tokens=6, output_tokens=3, cost="0.75"),
        Aside(act="check:2", run_id="r1", step=5, requests=1),
    )
    assert [(one.what, one.call_id, one.status, one.message) for one in about.failed] == [
        ("model for check:1", None, "E", "x"), ("model for check:1", None, "E", "y"),
    ]  # fmt: skip
    [run] = about.runs
    assert (run.models, run.tools, run.steps, about.tried) == (["m1", "m2"], [], 0, ())


def test_a_cost_of_an_act_that_nobody_knows_stays_unknown() -> None:
    words = Message(role="assistant", parts=(Text("x"),))
    ends = [ModelFinished(act="a", message=words, cost=cost) for cost in (None, "1")]
    assert explained(*ends).acts[0].cost is None


def test_a_compaction_is_told_with_what_it_was_of_and_what_it_saved() -> None:
    made = ContextCompacted(
        act="compaction:3", step=2, tier="summary", first=3, last=5, tokens_before=100, tokens_after=40,
        usage=Usage(input_tokens=9, output_tokens=4), cost="0.5",
    )  # fmt: skip
    about = explained(ModelStarted(act="compaction:3", model="m", step=2), made)
    assert about.acts == (
        Aside(
            act="compaction:3", run_id="r1", step=2, requests=1, input_tokens=9, output_tokens=4, cost="0.5",
            tier="summary", first=3, last=5, tokens_before=100, tokens_after=40,
        ),
    )  # fmt: skip
    assert about.runs[0].compactions == 1
    unnamed = explained(ContextCompacted(summary="x"))
    assert (unnamed.acts, unnamed.runs[0].compactions) == ((), 1)


# --- again


@pytest.mark.parametrize(
    ("events", "can_resume", "is_safe", "why"),
    [
        ([], True, True, "Nothing was changed: the task can be run again."),
        (
            [began(Effect.IDEMPOTENT), finished()],
            True,
            True,
            "What was changed is idempotent: the task can be run again.",
        ),
        (
            [began(), finished()],
            True,
            False,
            "Running the task again may repeat what was done: pay (ok). `resume` continues without repeating it.",
        ),
        (
            [began(), finished(), RunFinished(reason="completed", status="completed", completed=True, message="")],
            False,
            False,
            "Running the task again may repeat what was done: pay (ok). Check first.",
        ),
        (
            [began(), finished(CallStatus.OUTCOME_UNKNOWN), resolved("done")],
            True,
            False,
            "Running the task again may repeat what was done: pay (done). `resume` continues without repeating it.",
        ),
    ],
    ids=["nothing", "idempotent", "acted", "completed", "resolved"],
)
def test_a_task_is_safe_to_give_again_where_nothing_lasting_was_done(
    events: list[AnyEvent], can_resume: bool, is_safe: bool, why: str
) -> None:
    about = explained(proposed(), *events).rerun
    assert (about.can_resume, about.is_safe, about.why) == (can_resume, is_safe, why)


def test_what_sessions_below_have_changed_counts_for_a_rerun() -> None:
    leaf = explained(proposed(), began(), finished())
    middle = explained(children=(leaf,))
    assert middle.changed == ()
    top = explained(children=(middle,))
    assert (top.children, top.rerun.is_safe) == ((middle,), False)
    assert top.rerun.why.startswith("Running the task again may repeat what was done: pay (ok).")
    assert explain("s", ()).rerun.can_resume is False


def test_secrets_are_not_told() -> None:
    key = "sk-ant-" + "a1B2" * 10
    about = explained(proposed(ToolCall(id="c1", name="pay", arguments=f'{{"key":"{key}"}}')))
    assert key not in about.tried[0].arguments
