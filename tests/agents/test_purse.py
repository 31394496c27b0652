"""Runs that draw from one budget side by side: each model call reserves what it may use, and the others wait for what it returns."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from invariants import check_session
from loop_tools import echo_tool
from treadle import Agent, Budget, Price, open_session
from treadle.agents.children import child_id
from treadle.budgets import Meter, Spent
from treadle.engine.interrupts import Interrupt
from treadle.engine.model_calls.reservations import Reservations
from treadle.errors import BudgetUsedUp
from treadle.events import ModelFinished, SessionSpawned
from treadle.messages import Finish, Text, ToolCall, Usage, user_message
from treadle.ports import CheckView, ModelEnd, ModelPart, ModelRequest
from treadle.testing import FakeClock, ScriptedModel, Turn, call, text


class Helper:
    """A model of several helpers side by side, which counts how many are asked at once. Each answer waits to be let go."""

    name = "helper"
    price = Price(input=0, output=1_000_000)

    def __init__(self, *, used: int, turns: int = 1) -> None:
        self.under_way = self.most = self.asked = 0
        self.used = used
        self.turns = turns
        self.gate = asyncio.Event()
        self.changed = asyncio.Condition()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        async with self.changed:
            self.asked += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.changed.notify_all()
        try:
            await self.gate.wait()
            for _ in range(5):
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        done = sum(message.role == "assistant" for message in request.messages) + 1
        parts = (Text("done"),) if done >= self.turns else (ToolCall(id=f"c{done}", name="nothing", arguments="{}"),)
        usage = Usage(input_tokens=1, output_tokens=self.used)
        yield ModelEnd(parts=parts, finish=Finish.STOP if done >= self.turns else Finish.CALLS, usage=usage)

    async def asks(self, count: int) -> None:
        async with self.changed, asyncio.timeout(30):
            await self.changed.wait_for(lambda: self.asked >= count)


def lead(helper: Helper, *, count: int, budget: Budget) -> Agent:
    below = Agent(helper, tools=[nothing()])
    calls = [call("help", task=f"Part {n}") for n in range(count)]
    own = ScriptedModel([calls, text("all done")], price=Price(input=0, output=0))
    return Agent(own, tools=[below.as_tool("help", "Help.", effect="read")], budget=budget)


def nothing() -> object:

    return echo_tool("nothing")


@pytest.mark.row("R-PURSE")
async def test_a_call_waits_for_what_others_return_and_ends_no_run_that_could_go_on():
    helper = Helper(used=100)
    agent = lead(helper, count=3, budget=Budget(max_output_tokens=700))

    run = asyncio.create_task(agent.run("Go"))
    await helper.asks(2)
    for _ in range(200):
        await asyncio.sleep(0)
    assert (helper.asked, helper.under_way) == (2, 2)  # three reserves of 250 tokens do not fit
    helper.gate.set()
    result = await run

    assert result.completed, result.message
    assert helper.asked == 3
    assert helper.most == 2
    assert [one.status for one in result.tool_calls] == ["ok"] * 3
    assert result.session.state.run is not None
    assert result.session.state.run.spent.usage.output_tokens >= 300


@pytest.mark.row("R-PURSE")
@pytest.mark.parametrize("limit", [{"max_output_tokens": 2000}, {"max_total_cost": 2000}])
async def test_a_tree_exceeds_its_budget_by_no_more_than_the_calls_in_flight(limit):
    helper = Helper(used=300, turns=50)
    helper.gate.set()
    agent = lead(helper, count=5, budget=Budget(**limit, max_model_turns=None, max_tool_calls=None))

    result = await agent.run("Go")

    spent = result.session.state.run
    assert spent is not None
    used = helper.asked * 300
    assert 2000 <= used <= 2000 + 300  # the estimates are right: no more than one call goes over
    assert used <= spent.spent.usage.output_tokens <= used + 200
    await check_session(result.session)


@pytest.mark.row("R-PURSE")
async def test_a_run_that_waits_for_others_can_be_cancelled():
    helper = Helper(used=100)
    agent = lead(helper, count=3, budget=Budget(max_output_tokens=400))

    run = agent.stream("Go")
    running = asyncio.create_task(run.finish())
    await helper.asks(1)
    for _ in range(100):
        await asyncio.sleep(0)
    run.cancel()
    async with asyncio.timeout(30):
        result = await running

    assert result.reason == "cancelled"
    await check_session(result.session)


@pytest.mark.row("R-PURSE")
def test_a_meter_gives_back_what_a_call_did_not_use():
    spent = {"a": Spent(), "b": Spent()}
    top = Meter(Budget(max_output_tokens=100))
    first = Meter(Budget(), spent=lambda: spent["a"], above=top)
    second = Meter(Budget(), spent=lambda: spent["b"], above=top)
    wanted = Spent(usage=Usage(output_tokens=60))
    woken: list[str] = []

    assert first.has_room(spent["a"], wanted)
    first.reserve(wanted, is_under_way=True)
    assert not second.has_room(spent["b"], wanted)
    second.on_return(lambda: woken.append("second"))
    first.reserve(Spent(usage=Usage(output_tokens=10)))
    assert woken == ["second"]
    assert second.has_room(spent["b"], wanted)
    assert second.look(spent["b"]).exhausted is None
    first.reserve(Spent(usage=Usage(output_tokens=100)))
    assert second.look(spent["b"]).exhausted is not None  # used, and not recorded yet
    spent["a"] = Spent(usage=Usage(output_tokens=100))
    reached = second.look(spent["b"]).exhausted
    assert reached is not None
    assert reached.used == 100  # counted once
    first.leave()
    assert second.look(spent["b"]).exhausted is None  # the run above has it recorded from now on


@pytest.mark.row("R-PARENT")
async def test_every_event_of_a_child_names_run_step_and_call_of_its_parent(tmp_path):
    helper = Helper(used=1, turns=2)
    helper.gate.set()
    agent = lead(helper, count=2, budget=Budget())
    async with open_session(tmp_path / "j.db", id="top") as session:
        await agent.run("Go", session=session)
        events = await session.events()
        assert {(one.parent, one.parent_step, one.parent_call) for one in events} == {(None, 0, None)}
        started = [one for one in events if one.type == "child.started"]
        for child in started:
            below = await session.journal.read(child.child_id)
            assert isinstance(below[0], SessionSpawned)
            assert {(one.parent, one.parent_step, one.parent_call) for one in below} == {
                (session.state.run.id if session.state.run else "", 1, child.call_id)
            }
    assert len(started) == 2
    assert child_id("x") != child_id("y")


@pytest.mark.row("R-PURSE", "R-PARENT")
async def test_a_check_that_asks_the_model_is_recorded_under_it_and_charged():
    model = ScriptedModel(
        [
            call("nothing", n=1),
            text("no", usage=Usage(input_tokens=100, output_tokens=1)),
            call("nothing", n=2),
            text("yes", usage=Usage(input_tokens=200, output_tokens=1)),
            text("never"),
        ],
        price=Price(input=1, output=0),
    )

    async def is_done(session: CheckView) -> bool:
        return await session.ask([user_message("Is it done?")], instructions="Answer yes or no.") == "yes"

    result = await Agent(model, tools=[nothing()], done_when=is_done).run("Go")

    assert result.reason == "done_condition_satisfied"
    events = await result.session.events()
    acts = list(dict.fromkeys(one.act for one in events if one.act))
    assert len(acts) == 2
    assert all(one.startswith("check:") for one in acts)
    run = result.session.state.run
    assert run is not None
    finished = [one for one in events if isinstance(one, ModelFinished)]
    assert run.spent.usage.input_tokens == sum(one.usage.input_tokens for one in finished)
    assert run.spent.model_turns == 2
    assert sum(one.usage.input_tokens for one in finished if one.act) == 300
    assert [message.role for message in result.session.messages] == ["user", "assistant", "tool", "assistant", "tool"]
    await check_session(result.session)


@pytest.mark.row("R-PURSE")
async def test_a_check_for_which_the_budget_has_no_room_is_not_asked():
    model = ScriptedModel([Turn(calls=(call("nothing", n=1),), usage=Usage(input_tokens=100)), text("never")])
    refused: list[str] = []

    async def is_done(session: CheckView) -> bool:
        try:
            return bool(await session.ask([user_message("Is it done?")]))
        except BudgetUsedUp as error:
            refused.append(str(error))
            raise

    agent = Agent(model, tools=[nothing()], done_when=is_done, budget=Budget(max_input_tokens=50))
    result = await agent.run("Go")

    assert result.reason == "budget_exceeded"
    assert refused == ["The budget max_input_tokens is used up: 100 of 50."]
    assert len(model.requests) == 1


REQUEST = ModelRequest(messages=(user_message("go"),))


def two() -> tuple[Reservations, Reservations]:
    """Return the purses of two runs that draw from one budget of 100 tokens of output."""
    top = Meter(Budget(max_output_tokens=100))
    first, second = (Reservations(Meter(Budget(), above=top), Interrupt(FakeClock()), None) for _ in range(2))
    return first, second


async def test_what_a_call_has_used_is_used_for_the_run_beside_it_at_once():
    first, second = two()
    assert await first.take(REQUEST, ScriptedModel([text("")])) is None
    await first.settle(Usage(output_tokens=100), None)

    reached = await second.take(REQUEST, ScriptedModel([text("")]))

    assert reached is not None
    assert (reached.budget, reached.used, reached.limit) == ("max_output_tokens", 100, 100)


async def test_a_call_that_has_used_nothing_gives_all_of_its_reserve_back():
    first, second = two()
    assert await first.take(REQUEST, ScriptedModel([text("")])) is None
    await first.settle(None, None)

    assert await second.take(REQUEST, ScriptedModel([text("")])) is None
