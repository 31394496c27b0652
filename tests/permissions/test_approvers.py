"""Approvers answer before the run pauses; what they leave waits for a person."""

import asyncio
import json
import sys
import threading
from typing import Any

import pytest

from pipeline_tools import Recorder, act, checked_call, on_fake_clock
from treadle import Agent, ConfigurationError, Decision, ToolContext, open_session, tool
from treadle.events import ApprovalAnswered, CallDecided, RunPaused
from treadle.journals.memory import MemoryJournal
from treadle.permissions import can_use_tool
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import Answer, JsonObject
from treadle.toolsets import ProgramApprover


class Acts:
    """Two tools, and what was done with the one that acts."""

    def __init__(self) -> None:
        self.done: list[int] = []

        @tool
        async def act(n: int) -> str:
            """Act."""
            self.done.append(n)
            return f"did {n}"

        @tool(effect="read")
        async def look() -> str:
            """Look."""
            return "seen"

        self.tools = [act, look]

    def agent(self, *turns: Any, **words: Any) -> Agent:
        return Agent(ScriptedModel([*(turns or [call("act", n=1)]), text("Done.")]), tools=self.tools, **words)


async def events_of(result, kind) -> list:
    return [one for one in await result.session.events() if isinstance(one, kind)]


async def test_a_function_answers_before_the_run_pauses():
    acts, asked = Acts(), []

    async def approver(request):
        asked.append((request.tool, request.arguments, request.risk, request.preview.kind))
        return "allow"

    turn = [call("act", n=1), call("look"), call("act", n=2)]
    result = await acts.agent(turn, approver=approver).run("Go")

    assert result.completed
    assert acts.done == [1, 2]
    assert asked == [("act", {"n": n}, "write_external", "arguments") for n in (1, 2)]
    assert [one.approved_by for one in await events_of(result, ApprovalAnswered)] == ["approver:approver"] * 2
    assert await events_of(result, RunPaused) == []
    assert [part.content for message in result.messages for part in message.results] == ["did 1", "seen", "did 2"]


@pytest.mark.row("P04")
async def test_a_policy_may_answer_and_is_named():
    class Careful:
        def decide(self, call, session):
            assert session.messages
            return Decision(kind="allow" if call.arguments["n"] < 5 else "deny", reason="too many")

    acts = Acts()
    result = await acts.agent([call("act", n=1), call("act", n=9)], approver=Careful()).run("Go")

    assert acts.done == [1]
    answers = await events_of(result, ApprovalAnswered)
    assert [(one.answer, one.approved_by, one.reason) for one in answers] == [
        ("allow", "policy:Careful", "too many"),
        ("deny", "policy:Careful", "too many"),
    ]
    assert [one.status for one in result.tool_calls] == ["ok", "denied"]


async def test_an_edit_of_an_approver_is_validated_and_told_to_the_model():
    acts = Acts()
    result = await acts.agent(approver=lambda asked: Answer(answer="allow", arguments={"n": 7})).run("Go")

    assert acts.done == [7]
    (told,) = [part.content for message in result.messages for part in message.results]
    assert '"arguments_changed":true' in told

    result = await acts.agent(approver=lambda asked: Answer(answer="allow", arguments={"n": "many"})).run("Go")
    assert result.reason == "approval_required"
    assert result.approvals[0].approval_type == "unfit_edit"
    assert acts.done == [7]


@pytest.mark.parametrize(
    "said",
    [None, True, "yes", 3, {"answer": "allow"}, Answer(answer="maybe"), Answer(answer="allow", interrupt=True),
     Answer(answer="allow", scope="session"), Answer(answer="allow", arguments=[1]), Decision(kind="ask")],
)  # fmt: skip
async def test_what_is_no_answer_leaves_the_call_to_a_person(said):
    acts = Acts()
    result = await acts.agent(approver=lambda asked: said).run("Go")

    assert result.reason == "approval_required"
    assert acts.done == []


async def test_one_that_raises_leaves_the_call_to_a_person_and_is_not_asked_again():
    acts, asked = Acts(), []

    def approver(request):
        asked.append(request.id)
        raise SystemExit(3)

    async with open_session(MemoryJournal(), id="s") as session:
        agent = acts.agent(approver=approver)
        result = await agent.run("Go", session=session)
        assert result.reason == "approval_required"
        assert asked == [result.approvals[0].id]
        await session.answer(result.approvals[0].id, "allow")
        assert (await agent.resume(session)).completed


@pytest.mark.row("HF1")
@pytest.mark.parametrize("form", ["async function", "function", "object", "policy"])
async def test_one_that_never_answers_leaves_the_call_to_a_person_once_its_time_is_up(form):
    clock, released, acts = FakeClock(), threading.Event(), Acts()

    async def waits_for_ever(*_):
        await asyncio.Event().wait()

    class Asked:
        approve = staticmethod(waits_for_ever)

    class Slow:
        decide = staticmethod(waits_for_ever)

    def blocks(asked):
        released.wait()  # sleep: a person who is asked in a function of one's own does not answer

    approver = {"async function": waits_for_ever, "function": blocks, "object": Asked(), "policy": Slow()}[form]
    async with open_session(MemoryJournal(), id="s", clock=clock) as session:
        agent = acts.agent(approver=approver, approver_seconds=7.0)
        running = asyncio.ensure_future(agent.run("Go", session=session))
        await clock.wait_waits(2)  # the run's wall time, and the approver's
        clock.advance(7.0)
        result = await running
        released.set()
        assert result.reason == "approval_required"
        await session.answer(result.approvals[0].id, "allow")
        assert (await agent.resume(session)).completed
    assert acts.done == [1]


async def test_a_plain_function_may_wait_while_the_run_goes_on():
    acts, seen = Acts(), threading.Event()

    def approver(request):
        assert seen.wait(60)
        return "allow"

    agent = acts.agent(approver=approver)
    running = asyncio.ensure_future(agent.run("Go"))
    await asyncio.sleep(0)
    seen.set()  # the loop of the run is free meanwhile
    assert (await running).completed


class Waits:
    """An approver that never answers."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def approve(self, asked: Any) -> None:
        self.begun.set()
        await asyncio.Event().wait()


async def test_a_run_that_is_cancelled_does_not_wait_for_its_approver():
    acts, waits = Acts(), Waits()
    async with acts.agent(approver=waits, approver_seconds=None).stream("Go") as run:
        await waits.begun.wait()
        run.cancel()
    assert (run.result.reason, acts.done) == ("cancelled", [])


def above(acts: Acts, approver: Any, **words: Any) -> Agent:
    """Return an agent whose tool is an agent that acts."""
    inner = acts.agent(approver_seconds=None).as_tool("inner", "Does it.", effect="read")
    script = ScriptedModel([call("inner", task="x"), text("Done.")])
    return Agent(script, tools=[inner], approver=approver, **words)


async def test_an_agent_below_asks_its_callers_approver_for_as_long_as_its_caller_says():
    clock, waits, acts = FakeClock(), Waits(), Acts()
    async with open_session(MemoryJournal(), id="s", clock=clock) as session:
        running = asyncio.ensure_future(above(acts, waits, approver_seconds=7.0).run("Go", session=session))
        await waits.begun.wait()
        clock.advance(7.0)
        assert (await running).reason == "approval_required"

    result = await above(acts, lambda asked: "allow").run("Go")
    assert (result.completed, acts.done) == (True, [1])


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "1"])
def test_a_time_of_an_approver_that_is_none_is_refused(seconds):
    with pytest.raises(ConfigurationError, match="approver_seconds"):
        Agent("demo", approver_seconds=seconds)


async def test_the_first_answer_wins_over_the_approvers():
    acts = Acts()
    async with open_session(MemoryJournal(), id="s") as session:

        async def approver(request):
            await session.answer(request.id, "deny", by="ada", reason="no")
            return "allow"

        agent = acts.agent(approver=approver)
        result = await agent.run("Go", session=session)
        if not result.completed:
            result = await agent.resume(session)

    assert acts.done == []
    assert [one.approved_by for one in await events_of(result, ApprovalAnswered)] == ["ada"]


async def test_a_denial_of_an_approver_may_interrupt():
    acts = Acts()
    result = await acts.agent(approver=lambda asked: Answer(answer="deny", interrupt=True, by="bo")).run("Go")

    assert (result.reason, acts.done) == ("cancelled", [])


PROGRAM = """
import json, sys
asked = json.load(sys.stdin)
{body}
"""


@pytest.mark.parametrize(
    ("body", "otherwise", "status", "reason"),
    [
        ("print(json.dumps({'answer': 'allow' if asked['arguments'] == {'n': 1} else 'deny'}))", "deny", "ok", ""),
        ("print('no', file=sys.stderr); sys.exit(2)", "pause", "denied", "no"),
        ("sys.exit(1)", "deny", "denied", "exit code 1"),
        ("print('yes')", "deny", "denied", "did not print an answer"),
        ('print(\'{"answer": "deny", "answer": "allow"}\')', "deny", "denied", 'duplicate key "answer"'),
        ('print(\'{"answer": "allow", "args": {"n": 7}}\')', "deny", "denied", "unknown field `args`"),
        ('print(\'{"answer": "allow", "arguments": {"n": 7, "n": 1}}\')', "deny", "denied", 'duplicate key "n"'),
        ('print(\'{"answer": "allow"}{"answer": "deny"}\')', "pause", "asked", ""),
        ('print(\'{"answer": "yes"}\')', "deny", "denied", "did not print an answer"),
        ("", "pause", "asked", ""),
        ("sys.exit(1)", "pause", "asked", ""),
    ],
)
async def test_a_program_answers(tmp_path, body, otherwise, status, reason):
    acts = Acts()
    program = tmp_path / "may-it.py"
    program.write_text(PROGRAM.format(body=body))
    approver = ProgramApprover([sys.executable, str(program)], otherwise=otherwise)
    result = await acts.agent(approver=approver).run("Go")

    if status == "asked":
        assert result.reason == "approval_required"
        return
    assert result.tool_calls[0].status == status
    (answered,) = await events_of(result, ApprovalAnswered)
    assert reason in answered.reason
    assert answered.approved_by.startswith("program:")


@pytest.mark.parametrize(("otherwise", "reason"), [("deny", "completed"), ("pause", "approval_required")])
async def test_a_program_that_does_not_exist_denies_or_leaves_as_told(otherwise, reason):
    approver = ProgramApprover(["/nowhere/at-all"], otherwise=otherwise)
    assert (await Acts().agent(approver=approver).run("Go")).reason == reason


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Agent(ScriptedModel([text("Done.")]), approver=3), "approver"),
        (lambda: ProgramApprover("rm -rf x"), "list"),
        (lambda: ProgramApprover(["x"], otherwise="allow"), "'pause' or 'deny'"),
        (lambda: can_use_tool(7), r"takes a function of \(name, arguments, session\); got 7"),
    ],
    ids=range(4),
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(make, words):
    with pytest.raises(ConfigurationError, match=words):
        make()


# --- can_use_tool
@pytest.mark.row("P04")
async def test_a_permission_function_allows_with_other_arguments_which_are_validated_again():
    acts = Acts()
    asked = []

    async def may(name, arguments, session):
        asked.append((name, dict(arguments)))
        if name == "look":
            return True
        arguments["n"] += 100  # its own copy
        return {"behavior": "allow", "updatedInput": {"n": 3}}

    result = await acts.agent([call("act", n=1), call("look")], policy=can_use_tool(may)).run("Go")

    assert acts.done == [3]
    assert asked[0] == ("act", {"n": 1})
    proposed = next(message for message in result.messages if message.calls)
    assert json.loads(proposed.calls[0].arguments) == {"n": 1}
    decided = (await events_of(result, CallDecided))[0]
    assert (decided.decision, decided.rule, decided.arguments) == ("allow", "may", {"n": 3})

    async def wrong(name, arguments, session):
        return {"behavior": "allow", "updatedInput": {"n": "many"}}

    result = await acts.agent(policy=can_use_tool(wrong)).run("Go")
    assert result.tool_calls[0].status == "invalid_arguments"
    assert acts.done == [3]


@pytest.mark.row("P04")
@pytest.mark.parametrize(
    ("said", "reason", "status"),
    [
        ({"behavior": "deny", "message": "not now"}, "completed", "denied"),
        ({"behavior": "deny", "message": "stop", "interrupt": True}, "cancelled", "denied"), ({"behavior": "ask"}, "approval_required", None),
        (None, "approval_required", None), (False, "completed", "denied"), ("allow", "completed", "denied"), ({"behavior": "yes"}, "completed", "denied"),
        ({}, "completed", "denied"), ({"behavior": "allow", "updatedInput": [1]}, "completed", "denied"),
    ],
)  # fmt: skip
async def test_a_permission_function_denies_interrupts_or_asks(said, reason, status):
    acts = Acts()
    result = await acts.agent(policy=can_use_tool(lambda *_: said)).run("Go")

    assert result.reason == reason
    assert [one.status for one in result.tool_calls][:1] == ([] if status is None else [status])
    assert acts.done == []


async def test_a_tool_asks_the_permission_function_too():
    asked = []

    async def may(name, arguments, session):
        asked.append(name)
        return name == "outer"

    @tool
    async def outer(ctx: "ToolContext") -> str:
        """Do it."""
        return str((await ctx.decide("delete", {"path": "x"})).kind)

    result = await Agent(ScriptedModel([call("outer"), text("Done.")]), tools=[outer], policy=can_use_tool(may)).run(
        "Go"
    )

    assert asked == ["outer", "delete"]
    assert [part.content for message in result.messages for part in message.results] == ["deny"]


class Asked:
    """An approver that notes what it is asked about."""

    def __init__(self) -> None:
        self.tools: list[str] = []

    async def approve(self, asked: Any) -> str:
        self.tools.append(asked.tool)
        return "allow"


@pytest.mark.parametrize(("first", "reason"), [("finish", "done_condition_satisfied"), ("halt", "cancelled")])
async def test_no_approver_is_asked_about_a_call_of_a_run_that_has_ended_beside_it(first, reason):
    asked, paid = Asked(), Recorder()

    async def cancel(arguments: JsonObject, ctx: ToolContext) -> str:
        running.cancel()
        return "done"

    tools = [act(Recorder(), "finish", ends_run=True), act(cancel, "halt"), act(paid, "pay", permission="ask")]
    model = ScriptedModel([[call(first), call("pay")]])
    async with on_fake_clock() as session:
        running = Agent(model, tools=tools, approver=asked).stream("go", session=session)
        run = await running.finish()

    assert (run.reason, asked.tools, paid.runs) == (reason, [], 0)


async def pay(arguments: Any, ctx: Any) -> Any:
    return "paid"


async def decided(said: Any) -> Decision | None:
    def mine(name: str, arguments: Any, session: Any) -> Any:
        arguments["amount"] = 9  # its own copy
        return said

    one = checked_call(act(pay), amount=1)
    found: Any = await can_use_tool(mine).decide(one, None)
    assert one.arguments == {"amount": 1}
    return found


def decision(kind: Any, **more: Any) -> Decision:
    return Decision(kind=kind, rule="mine", **more)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"behavior": "allow", "updated_input": {"amount": 2}}, decision("allow", arguments={"amount": 2})),
        ({"behavior": "allow", "updatedInput": {"amount": 2}}, decision("allow", arguments={"amount": 2})),
        ({"behavior": "allow", "updatedInput": {"amount": 2}, "updated_input": {"amount": 3}}, decision("allow", arguments={"amount": 2})),
        ({"behavior": "allow", "updated_input": {"amount": 1}}, decision("allow")),
        ({"behavior": "allow", "updated_input": None}, decision("allow")),
        ({"behavior": "allow", "updated_input": {}}, decision("allow", arguments={})),
        ({"behavior": "deny", "updated_input": {"amount": 2}}, decision("deny")),
        ({"behavior": "ask", "updatedInput": {"amount": 2}}, decision("ask")),
        ({"behavior": "deny", "message": "No.", "interrupt": True}, decision("deny", message="No.", interrupt=True)),
        ({"behavior": "deny", "interrupt": 1}, decision("deny")),
        ({"behavior": "allow", "interrupt": True, "message": None}, decision("allow")),
        ({"behavior": "ask", "message": 7}, decision("ask", message="7")),
        (True, decision("allow")),
        (False, decision("deny")),
        (None, None),
    ],
)  # fmt: skip
async def test_an_answer_decides_with_what_it_says(said, expected):
    assert await decided(said) == expected


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "mine: behavior must be allow, deny or ask; got None."),
        ({"behavior": "maybe"}, "mine: behavior must be allow, deny or ask; got 'maybe'."),
        ("allow", "mine answered with 'allow'. Return a Decision"),
        (1.5, "mine answered with 1.5. Return a Decision"),
    ],
)
async def test_another_answer_is_an_error_that_names_the_function(said, words):
    with pytest.raises(ConfigurationError) as raised:
        await decided(said)
    assert str(raised.value).startswith(words)


async def test_a_function_is_named_by_its_kind_where_it_has_no_name():
    class Mine:
        async def __call__(self, name: str, arguments: Any, session: Any) -> bool:
            return name == "act"

    found: Any = await can_use_tool(Mine()).decide(checked_call(act(pay)), None)
    assert found == Decision(kind="allow", rule="Mine")
