"""An agent as another's tool is a session of the caller's journal: recorded, bounded, ruled, answered and resumed with it."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from typing import Any

import pytest

from invariants import check_session
from loop_tools import ANYTHING, echo_tool
from pipeline_tools import Recorder, act, on_fake_clock, raising
from treadle import (
    Agent,
    Budget,
    Decision,
    Done,
    Session,
    Tool,
    ToolContext,
    allow,
    ask,
    deny,
    open_journal,
    open_session,
)
from treadle.agents.children import child_id
from treadle.budgets import Price
from treadle.errors import ModelUnavailable, SessionNotActive
from treadle.events import AnyEvent, ChildStarted, ToolStarted, ToolSuspended
from treadle.journals.memory import MemoryJournal
from treadle.messages import Finish, Text, ToolCall, Usage
from treadle.ports import ModelEnd, ModelPart, ModelRequest
from treadle.resolve.archives import import_session
from treadle.sessions.session import fold
from treadle.state import SessionState, Suspended
from treadle.testing import ScriptedModel, call, text
from treadle.tools import CheckedCall, JsonObject

Turn = str | Sequence[ToolCall]


class Told:
    """A model that knows from the history alone where it is, as one in another process does."""

    def __init__(self, *turns: Turn, name: str = "told", price: Any = None, tokens: int = 10) -> None:
        self.turns = turns
        self.name = name
        self.price = price
        self.tokens = tokens
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        self.requests.append(request)
        await asyncio.sleep(0)
        at = sum(message.role == "assistant" for message in request.messages)
        turn = self.turns[min(at, len(self.turns) - 1)]
        parts = (Text(turn),) if isinstance(turn, str) else tuple(turn)
        usage = Usage(input_tokens=self.tokens, output_tokens=1)
        finish = Finish.STOP if isinstance(turn, str) else Finish.CALLS
        yield ModelEnd(parts=parts, finish=finish, usage=usage)


def proposed(name: str, call_id: str = "", **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id or f"{name}_1", name=name, arguments=json.dumps(arguments))


class World:
    """What was really done, by idempotency key."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def pay(self, name: str = "pay", effect: str = "unsafe", **words: Any) -> Tool:
        async def run(arguments: JsonObject, ctx: ToolContext) -> str:
            self.paid.append(ctx.idempotency_key)
            return "paid"

        return Tool(name=name, description="Pay.", parameters=ANYTHING, effect=effect, run=run, **words)


def payer(world: World, *, policy: Any = None, **words: Any) -> Agent:
    model = Told([proposed("pay", amount=40)], "I paid.", name="payer")
    return Agent(model, tools=[world.pay()], policy=policy, **words)


def lead(child: Agent, *, policy: Any = None, effect: str = "unsafe", **words: Any) -> Agent:
    model = Told([proposed("clerk", task="Pay 40")], "All is done.", name="lead")
    return Agent(model, tools=[child.as_tool("clerk", "Pays.", effect=effect)], policy=policy, **words)


def led(child: Agent, is_grandchild: bool) -> Agent:
    """Return an agent that leads this one, or one that leads an agent that does."""
    child = lead(child, policy=allow("clerk")) if is_grandchild else child
    return lead(child, policy=allow("clerk"))


async def children_of(session: Session) -> list[SessionState]:
    """Return the sessions that carried out calls of this one, as they are stored."""
    started = [event.child_id for event in await session.events() if isinstance(event, ChildStarted)]
    return [fold(name, await session.journal.read(name)) for name in dict.fromkeys(started)]


async def check_family(session: Session) -> None:
    """Assert everything that the journals of a session and its children promise."""
    await check_session(session)
    for child in await children_of(session):
        async with open_session(session.journal, id=child.id) as opened:
            await check_family(opened)


def results(session: Session) -> dict[str, Any]:
    found = (result for message in session.messages for result in message.results)
    return {result.call_id: json.loads(result.content) for result in found if result.is_error}


# --- a session of the same journal
@pytest.mark.row("N07")
async def test_the_child_is_a_session_of_the_callers_journal_and_its_id_follows_from_the_call(tmp_path):
    world = World()
    async with open_session(tmp_path / "a.db", id="top") as session:
        result = await lead(payer(world, policy=allow("pay")), policy=allow("clerk")).run("Pay", session=session)
        assert result.text == "All is done."
        assert len(world.paid) == 1
        (child,) = await children_of(session)
        started = next(event for event in await session.events() if isinstance(event, ToolStarted))
        assert child.id == child_id(started.key)
        assert child.caller is not None
        assert (child.caller.parent_id, child.caller.parent_run) == ("top", result.session.state.run.id)
        assert (child.caller.parent_step, child.caller.parent_call) == (1, "clerk_1")
        rows = {info.id: info for info in await session.journal.sessions()}
        assert rows[child.id].parent_id == "top"
        events = await session.journal.read(child.id)
        assert {event.parent for event in events} == {started.run_id}
        assert [event.type for event in events if event.type.startswith("tool.")] == ["tool.started", "tool.finished"]
        await check_family(session)


@pytest.mark.row("N07")
async def test_children_side_by_side_with_equal_tasks_are_two_sessions():
    child = Agent(Told("Found it."))
    calls = [proposed("clerk", "a", task="Look"), proposed("clerk", "b", task="Look")]
    top = Agent(Told(calls, "Done."), tools=[child.as_tool("clerk", "Looks.", effect="read")])
    result = await top.run("Look twice")
    assert len({state.id for state in await children_of(result.session)}) == 2
    assert [one.status for one in result.tool_calls] == ["ok", "ok"]
    await check_family(result.session)


@pytest.mark.row("N07")
async def test_a_childs_session_goes_on_with_its_caller_and_not_by_itself(tmp_path):
    child = payer(World())
    async with open_session(tmp_path / "a.db", id="top") as session:
        await lead(child, policy=allow("clerk")).run("Pay", session=session)
        (state,) = await children_of(session)
        async with open_session(session.journal, id=state.id) as alone:
            with pytest.raises(SessionNotActive, match="Resume session 'top'"):
                await child.resume(alone)
            with pytest.raises(SessionNotActive, match="carries out a call of session 'top'"):
                await child.run("Pay more", session=alone)


@pytest.mark.row("N07")
async def test_without_the_context_of_a_run_an_agent_as_a_tool_does_not_run():
    inner = payer(World(), policy=allow("pay")).as_tool("clerk", "Pays.")

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        return await inner.run({"task": "Pay"}, None)

    wrapped = Tool(name="wrapped", description="Pays.", parameters=ANYTHING, effect="read", run=run)
    result = await Agent(Told([proposed("wrapped")], "Done."), tools=[wrapped]).run("Pay")
    assert results(result.session)["wrapped_1"]["type"] == "failed"


# --- rules
@pytest.mark.row("N07")
@pytest.mark.parametrize("is_grandchild", [False, True])
async def test_what_the_caller_denies_is_denied_in_the_child_whatever_the_child_allows(is_grandchild):
    world = World()
    child = payer(world, policy=allow("*"))
    if is_grandchild:
        child = lead(child, policy=allow("*"))
    result = await lead(child, effect="read", policy=deny("pay", reason="No money today.")).run("Pay")
    assert world.paid == []
    (state,) = await children_of(result.session)
    if is_grandchild:
        async with open_session(result.session.journal, id=state.id) as session:
            (state,) = await children_of(session)
    assert [(one.tool, one.rule, one.reason) for one in state.run.denials] == [("pay", "deny pay", "No money today.")]
    await check_family(result.session)


class Moody:
    """A policy that fails at `pay`, and an interceptor that blocks it."""

    def decide(self, call: CheckedCall, session: Any) -> None:
        if call.name == "pay":
            raise ValueError("moody")

    def before(self, call: ToolCall) -> ToolCall | Decision:
        return Decision(kind="deny", rule="no pay") if call.name == "pay" else call

    def after(self, call: ToolCall, result: Any) -> Any:
        return result


@pytest.mark.row("N07")
@pytest.mark.parametrize(
    ("words", "paid"),
    [({"policy": Moody()}, 0), ({"interceptors": [Moody()]}, 0), ({"policy": allow("other")}, 1)],
    ids=["raises", "intercepts", "has no opinion"],
)
async def test_a_policy_of_the_caller_that_raises_denies_and_one_without_an_opinion_changes_nothing(words, paid):
    world = World()
    result = await lead(payer(world, policy=allow("pay")), effect="read", **words).run("Pay")
    assert (len(world.paid), result.completed) == (paid, True)


# --- budgets
@pytest.mark.row("N07")
async def test_a_child_makes_no_more_calls_than_the_caller_has_left():
    recorder = Recorder()
    many = [proposed("act", f"c{n}", n=n) for n in range(40)]
    child = Agent(Told(many, "I did all."), tools=[act(recorder, effect="read")])
    result = await lead(child, effect="read", budget=Budget(max_tool_calls=2)).run("Act")
    assert (recorder.runs, result.reason, result.spent.tool_calls) == (1, "budget_exceeded", 2)
    (state,) = await children_of(result.session)
    assert state.run.reason == "budget_exceeded"
    await check_family(result.session)


@pytest.mark.row("N07")
async def test_a_child_that_calls_nothing_answers_though_its_own_call_was_the_last():
    result = await lead(Agent(Told("It is 42.")), effect="read", budget=Budget(max_tool_calls=1)).run("Look")
    assert [one.status for one in result.tool_calls] == ["ok"]


BUSY = [[proposed("echo", f"e{n}", n=n)] for n in range(30)]


@pytest.mark.row("N07")
@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (Budget(max_model_turns=4), "step_limit_reached"),
        (Budget(max_input_tokens=40), "budget_exceeded"),
        (Budget(max_output_tokens=4), "budget_exceeded"),
        (Budget(max_total_cost=Decimal("0.00004")), "budget_exceeded"),
    ],
)
async def test_turns_tokens_and_money_of_child_and_grandchild_count_to_the_caller(budget, reason):
    words = {"on_limit": "report"}
    price = Price(input=1, output=0)

    def above(below: Agent, **more: Any) -> Agent:
        model = Told([proposed("below", task="Go")], "Done.", price=price)
        return Agent(model, tools=[below.as_tool("below", "Works.", effect="read")], **words, **more)

    child = above(Agent(Told(*BUSY, price=price), tools=[echo_tool()], **words))
    result = await above(child, budget=budget).run("Go")
    assert result.reason == reason
    assert result.spent.model_turns == 4  # its own, the child's, and two of the grandchild's
    assert result.usage.input_tokens == result.report()["usage"]["input_tokens"] == 40
    assert result.spent.cost == Decimal("0.00004")
    await check_family(result.session)


@pytest.mark.row("N07")
@pytest.mark.parametrize(("budget", "name", "spent"), [(Budget(max_model_turns=5), "model_turns", 5), (Budget(max_tool_calls=6), "tool_calls", 6)])  # fmt: skip
async def test_children_side_by_side_share_one_remainder(budget, name, spent):
    child = Agent(Told(*BUSY), tools=[echo_tool()], on_limit="report").as_tool("clerk", "Works.", effect="read")
    calls = [proposed("clerk", f"c{n}", task=f"Go {n}") for n in range(3)]
    result = await Agent(Told(calls, "Done."), tools=[child], budget=budget, on_limit="report").run("Go")
    assert getattr(result.spent, name) == spent
    await check_family(result.session)


@pytest.mark.row("N07")
async def test_what_a_child_has_spent_is_counted_once_over_pause_and_resume(tmp_path):
    world = World()

    def top() -> Agent:
        return lead(payer(world, policy=ask("pay")), policy=allow("clerk"))

    async with open_session(tmp_path / "a.db", id="top") as session:
        paused = await top().run("Pay", session=session)
        assert (paused.reason, paused.spent.model_turns, paused.spent.tool_calls) == ("approval_required", 2, 2)
    for _ in range(2):  # nobody has answered: asked again, and nothing more is spent
        async with open_session(tmp_path / "a.db", id="top") as session:
            again = await top().resume(session)
            assert (again.reason, again.spent.model_turns) == ("approval_required", 2)
    async with open_session(tmp_path / "a.db", id="top") as session:
        await session.answer(session.approvals()[0].id, "allow")
        ended = await top().resume(session)
        assert (ended.text, ended.spent.model_turns, ended.spent.tool_calls) == ("All is done.", 4, 2)
        assert ended.usage.input_tokens == 40
        await check_family(session)
    assert len(world.paid) == 1


# --- questions
@pytest.mark.row("N07")
@pytest.mark.parametrize("is_grandchild", [False, True])
@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_a_childs_question_pauses_the_caller_and_is_answered_there(tmp_path, answer, is_grandchild):
    world = World()

    def top() -> Agent:
        return led(payer(world, policy=ask("pay")), is_grandchild)

    async with open_session(tmp_path / "a.db", id="top") as session:
        result = await top().run("Pay", session=session)
        assert (result.reason, result.status) == ("approval_required", "paused")
        (approval,) = result.approvals
        assert (approval.tool, approval.arguments, approval.root_id) == ("pay", {"amount": 40}, "top")
        assert approval.session_id != "top"
        assert "pay" in result.message
        assert [one.id for one in session.approvals()] == [approval.id]
        assert isinstance((await session.events())[-2], ToolSuspended)
        assert not [event for event in await session.events() if event.type == "tool.in_doubt"]
        await check_family(session)
    async with open_journal(tmp_path / "a.db") as journal:
        assert [one.id for one in await journal.approvals()] == [approval.id]
        async with open_session(journal, id="top") as other:
            assert [one.id for one in await other.approvals()] == [approval.id]
            await other.answer(approval.id, answer)
        assert await journal.approvals() == ()
    async with open_session(tmp_path / "a.db", id="top") as session:
        result = await top().resume(session)
        assert result.text == "All is done."
        assert len(world.paid) == (answer == "allow")
        assert not result.approvals
        assert [event.type for event in await session.events()].count("tool.started") == 1
        assert not [event for event in await session.events() if event.type == "tool.in_doubt"]
        await check_family(session)


@pytest.mark.row("N07")
async def test_the_call_of_the_child_itself_may_need_a_person_too(tmp_path):
    world = World()
    top = lead(payer(world))
    async with open_session(tmp_path / "a.db", id="top") as session:
        for tool in ("clerk", "pay"):
            result = await (top.run("Pay", session=session) if tool == "clerk" else top.resume(session))
            assert [one.tool for one in result.approvals] == [tool]
            await session.answer(result.approvals[0].id, "allow")
        assert (await top.resume(session)).text == "All is done."
        assert len(world.paid) == 1
        await check_family(session)


@pytest.mark.row("N07")
async def test_one_child_waits_while_its_sibling_ends():
    world = World()
    asking, free = payer(world, policy=ask("pay")), Agent(Told("Found."))
    calls = [proposed("clerk", task="Pay"), proposed("looker", task="Look")]
    tools = [asking.as_tool("clerk", "Pays.", effect="read"), free.as_tool("looker", "Looks.", effect="read")]
    top = Agent(Told(calls, "Done."), tools=tools)
    result = await top.run("Both")
    assert result.reason == "approval_required"
    await result.session.answer(result.approvals[0].id, "allow")
    result = await top.resume(result.session)
    assert [one.status for one in result.tool_calls] == ["ok", "ok"]
    assert len(world.paid) == 1
    await check_family(result.session)


# --- a call may wait, whatever it waits for
@pytest.mark.row("N07")
async def test_a_tool_of_any_kind_may_wait_and_goes_on_with_its_key_when_the_run_is_resumed(tmp_path):
    keys: list[str] = []
    letters: list[str] = []

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        if not letters:
            raise Suspended("a letter from the bank")
        return letters[0]

    post = Tool(name="post", description="Write and wait.", parameters=ANYTHING, effect="unsafe", run=run)

    def top() -> Agent:
        return Agent(Told([proposed("post")], "The bank agrees."), tools=[post], policy=allow("post"))

    async with open_session(tmp_path / "a.db", id="top") as session:
        result = await top().run("Write", session=session)
        assert (result.reason, result.status) == ("input_required", "paused")
        assert "post waits for a letter from the bank" in result.message
        await check_family(session)
    letters.append("yes")
    async with open_session(tmp_path / "a.db", id="top") as session:
        result = await top().resume(session)
        assert result.text == "The bank agrees."
        assert len(set(keys)) == 1
        await check_family(session)


# --- ends
class Slow:
    """A tool that waits until it is cancelled, and says when it has begun."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = False

    async def run(self, arguments: JsonObject, ctx: ToolContext) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True

    def child(self) -> Agent:
        return Agent(Told([proposed("slow")], "Done."), tools=[act(self.run, "slow")])


@pytest.mark.row("N07")
@pytest.mark.parametrize("is_grandchild", [False, True])
async def test_a_cancelled_caller_cancels_the_child_whose_run_is_finished_before_the_callers(is_grandchild):
    slow = Slow()
    async with led(slow.child(), is_grandchild).stream("Wait") as run:
        await slow.begun.wait()
        run.cancel()
    session = run.result.session
    (state,) = await children_of(session)
    assert (run.result.reason, slow.ended, state.run.status, state.run.reason) == (
        "cancelled",
        True,
        "stopped",
        "cancelled",
    )
    told = results(session)["clerk_1"]
    assert (told["type"], told["code"], told["may_have_acted"]) == ("cancelled", "subagent_cancelled", True)
    await check_family(session)


@pytest.mark.row("N07")
async def test_the_callers_time_bounds_the_child():
    top = lead(Slow().child(), policy=allow("clerk"), budget=Budget(max_wall_time_seconds=0.3))
    async with on_fake_clock() as session:
        result = await top.run("Wait", session=session)
        (state,) = await children_of(result.session)
        assert (result.reason, state.run.status) == ("budget_exceeded", "stopped")
        await check_family(result.session)


@pytest.mark.row("N07")
@pytest.mark.parametrize("how", ["denied", "gone", "another task", "rewound", "deleted"])
async def test_a_child_that_waits_ends_with_its_call_however_that_ends(tmp_path, how):
    world = World()
    async with open_session(tmp_path / "a.db", id="top") as session:
        await Agent(Told("Hello.")).run("Hello", session=session)
        point = await session.mark("before")
        model = Told("Hello.", [proposed("clerk", task="Pay 40")], "All is done.")
        tools = [payer(world, policy=ask("pay")).as_tool("clerk", "Pays.")]
        top = Agent(model, tools=tools, policy=allow("clerk"))
        assert (await top.run("Pay", session=session)).reason == "approval_required"
        (approval,) = session.approvals()
        match how:
            case "denied":
                result = await Agent(model, tools=tools, policy=deny("clerk")).resume(session)
                assert result.completed
            case "gone":
                result = await Agent(model).resume(session)
                assert result.completed
            case "another task":
                await Agent(Told("Never mind.")).run("Forget it", session=session)
            case "rewound":
                await session.rewind(point)
            case _:
                await session.delete()
        (state,) = await children_of(session)
        assert state.run is not None
        assert (state.run.status, state.open) == ("stopped", {})
        assert await session.journal.approvals() == ()
        if how != "deleted":
            assert session.approvals() == ()
            with pytest.raises(Exception, match="No approval"):
                await session.answer(approval.id, "allow")
            await check_family(session)
    assert world.paid == []


@pytest.mark.row("N07")
async def test_a_stopped_child_tells_what_it_has_done():
    world = World()
    child = payer(world, policy=allow("pay"), budget=Budget(max_model_turns=1), on_limit="report")
    result = await lead(child, policy=allow("clerk")).run("Pay")
    told = results(result.session)["clerk_1"]
    assert (told["type"], told["code"]) == ("rejected", "subagent_step_limit_reached")
    assert (told["details"][0]["may_have_done"], told["may_have_acted"]) == (["pay (ok)"], True)
    assert len(world.paid) == 1


# --- copies
@pytest.mark.row("N07")
async def test_a_fork_never_touches_the_child_of_the_session_it_came_from(tmp_path):
    world = World()
    async with open_session(tmp_path / "a.db", id="top") as session:
        top = lead(payer(world, policy=allow("pay")), policy=allow("clerk"))
        await top.run("Pay", session=session)
        (before,) = await children_of(session)
        copy = await session.fork(step=1, id="copy")
        await Agent(Told("Hello.")).run("Continue", session=copy)
        assert (await top.run("Pay", session=copy)).completed
        (after, *others) = await children_of(copy)
        assert (after.id, after.head) == (before.id, before.head)
        assert all(other.caller is not None and other.caller.parent_id == "copy" for other in others)


@pytest.mark.row("N07")
async def test_a_caller_that_was_moved_without_its_child_starts_nothing_anew(tmp_path):
    world = World()

    def top() -> Agent:
        return lead(payer(world, policy=ask("pay")), policy=allow("clerk"))

    async with open_session(tmp_path / "a.db", id="top") as session:
        await top().run("Pay", session=session)
        lines = await session.export()
        (state,) = await children_of(session)
        assert any(state.id.encode() in line for line in lines)
    async with open_journal(tmp_path / "b.db") as other:
        await import_session(other, lines, take_open=True)
    async with open_session(tmp_path / "b.db", id="top") as session:
        result = await top().resume(session)
        assert result.completed
        told = results(session)["clerk_1"]
        assert (told["type"], told["code"]) == ("outcome_unknown", "subagent_session_missing")
    assert world.paid == []


# --- answers that are read again
@pytest.mark.row("N07")
@pytest.mark.parametrize(
    "child",
    [
        Agent(Told('```json\n{"n": 42}\n```'), output={"type": "object", "properties": {"n": {"type": "integer"}}}),
        Agent(Told([proposed("finish")]), tools=[act(Recorder({"n": 42}), "finish", ends_run=True)]),
    ],
    ids=["structured", "ended by a tool"],
)
async def test_a_childs_structured_answer_and_the_output_of_a_tool_that_ends_it_are_the_result(child):
    result = await lead(child, policy=allow("clerk")).run("Ask")

    assert json.loads(result.messages[2].results[0].content) == {"n": 42}


@pytest.mark.row("N07")
async def test_explanations_show_the_childs_calls_under_the_callers(tmp_path):
    world = World()
    async with open_session(tmp_path / "a.db", id="top") as session:
        await lead(payer(world, policy=allow("pay")), policy=allow("clerk")).run("Pay", session=session)
        about = await session.explain()
        (child,) = about.children
        assert (child.caller_id, child.caller_call) == ("top", "clerk_1")
        assert [(one.tool, one.decision, one.rule, one.status) for one in child.tried] == [
            ("pay", "allow", "allow pay", "ok")
        ]
        assert [one.tool for one in child.changed] == ["pay"]


# --- what the caller's model is told, and other processes
def doubtful() -> Agent:
    pay = act(raising(ConnectionError("The line broke.")), "pay")
    return Agent(Told([proposed("pay")], "I paid."), tools=[pay])


@pytest.mark.row("N07")
@pytest.mark.parametrize("is_grandchild", [False, True])
async def test_a_child_that_completes_tells_its_callers_model_which_calls_may_have_acted(is_grandchild):
    result = await led(doubtful(), is_grandchild).run("Pay")

    (told,) = (one for message in result.messages for one in message.results)
    value = json.loads(told.content)
    assert value["answer"] == ("All is done." if is_grandchild else "I paid.")
    assert value["outcome_unknown"] == ["pay (outcome_unknown)"]
    assert [one.status for one in result.tool_calls] == ["ok"]
    await check_family(result.session)


@pytest.mark.row("N07")
async def test_a_child_whose_doubt_a_person_has_ended_tells_its_answer_alone():
    journal = MemoryJournal()
    child = Agent(
        Told([proposed("pay")], [proposed("ask_first")], "I paid."),
        tools=[*doubtful().tools, World().pay("ask_first")],
        policy=allow("pay"),
    )
    top = lead(child, policy=allow("clerk"))
    async with open_session(journal, id="top") as session:
        await top.run("Pay", session=session)
        (state,) = await children_of(session)
        async with open_session(journal, id=state.id) as opened:
            await opened.resolve("pay_1", Done("paid"))
        await session.answer(session.approvals()[0].id, "allow")

        result = await top.resume(session)

        (told,) = (one for message in result.messages for one in message.results)
        assert told.content == "I paid."


@pytest.mark.row("N07")
@pytest.mark.parametrize("is_grandchild", [False, True])
async def test_a_child_that_another_process_still_holds_is_waited_for_and_not_told_as_failed(is_grandchild):
    world, journal = World(), MemoryJournal()
    top = led(payer(world, policy=ask("pay")), is_grandchild)
    async with open_session(journal, id="top") as session:
        await top.run("Pay", session=session)
        (approval,) = session.approvals()
        await session.answer(approval.id, "allow")
        lease = await journal.acquire(approval.session_id, on_lost=lambda: None, on_message=lambda: None)

        waiting = await top.resume(session)

        assert (waiting.reason, world.paid) == ("input_required", [])
        assert approval.session_id in waiting.stop.message
        await lease.release()
        done = await top.resume(session)
        assert (done.reason, len(world.paid), done.text) == ("completed", 1, "All is done.")
        await check_family(session)


@pytest.mark.parametrize(("own", "above"), [("tell", None), (None, "tell"), ("ask", "tell")])
async def test_an_agent_that_is_a_tool_treats_doubts_as_its_caller_does(own, above):
    """`in_doubt` of the caller holds where the child says nothing, and the child's own where it does."""
    pay = act(raising(ModelUnavailable("gone")), "pay")
    below = Agent(Told([proposed("pay")], "Paid."), tools=[pay], in_doubt=own)
    result = await lead(below, policy=allow("clerk"), in_doubt=above).run("go")

    assert result.status == "completed"
    await check_session(result.session)


@pytest.mark.row("P03")
@pytest.mark.parametrize("middle", [allow("worker"), deny("other"), ask("other")])
@pytest.mark.parametrize(("top", "runs"), [(deny("act"), 0), (allow("act", "clerk"), 1), (None, 1)])
async def test_a_call_is_denied_by_the_first_caller_although_the_one_between_has_no_opinion(middle, top, runs):
    ran = Recorder()
    worker = Agent(Told([proposed("act")], "Done."), tools=[act(ran, permission=None)], policy=allow("act"))
    tools = [worker.as_tool("worker", "Works.", effect="read")]
    clerk = Agent(Told([proposed("worker", task="Act")], "Done."), tools=tools, policy=middle)
    result = await lead(clerk, effect="read", policy=top).run("go")

    assert (result.completed, ran.runs) == (True, runs)


async def test_a_suspended_session_of_an_agent_keeps_its_caller_waiting(tmp_path):
    world = World()
    agent = lead(payer(world), policy=allow("clerk"))
    async with open_session(tmp_path / "j.db", id="s") as session:
        paused = await agent.run("Go", session=session)
        async with open_session(tmp_path / "j.db", id=paused.children[0].session_id) as child:
            await child.change(status="suspended")
            await session.answer(paused.approvals[0].id, "allow")
            waits = await agent.resume(session)
            assert (waits.status, world.paid) == ("paused", [])
            assert f"treadle sessions activate {child.id}" in waits.message
            await child.change(status="active")
        assert (await agent.resume(session)).completed
    assert len(world.paid) == 1


async def test_a_deleted_session_of_an_agent_leaves_its_call_of_unknown_outcome(tmp_path):
    world = World()
    agent = lead(payer(world), policy=allow("clerk"))
    async with open_session(tmp_path / "j.db", id="s") as session:
        paused = await agent.run("Go", session=session)
        async with open_session(tmp_path / "j.db", id=paused.children[0].session_id) as child:
            await child.delete()
        result = await agent.resume(session)

    assert [one.status for one in result.tool_calls] == ["outcome_unknown"]
    assert "subagent_session_missing" in result.messages[-2].results[0].content
    assert world.paid == []


async def test_an_agent_carries_out_a_task_of_another_with_a_session_of_its_own():
    events: list[AnyEvent] = []
    inner = ScriptedModel([call("who"), text("42")], name="inner")
    child = Agent(inner, tools=[act(lambda arguments, ctx: str(ctx.deps), "who")], subscribers=[events.append])
    result = await lead(child, effect="read").run("Ask", deps="me")

    (told,) = result.messages[2].results
    assert (result.text, told.content) == ("All is done.", "42")
    assert [message.text for message in inner.requests[0].messages] == ["Pay 40"]
    assert {event.parent for event in events} == {told.execution_id.split(".")[0]}
    assert inner.requests[1].messages[2].results[0].content == "me"


async def test_an_agent_as_a_tool_asks_by_default():
    child = Agent(ScriptedModel([text("x")])).as_tool("act", "Act.")
    result = await Agent(ScriptedModel([call("act", task="go")]), tools=[child]).run("go")
    assert result.reason == "approval_required"
