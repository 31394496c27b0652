"""Deadlines: an instant at which a run must have ended, whenever it was begun or resumed."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from session_tools import payer

from pipeline_tools import tool_of
from treadle import Agent, Budget, ConfigurationError, StopReason, Tool, ToolContext, ask, open_session
from treadle.events import BudgetWarned
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import JsonObject


@pytest.mark.row("B14")
@pytest.mark.parametrize("deadline", [1.0, datetime(2020, 1, 1, tzinfo=UTC), -5])
async def test_a_deadline_in_the_past_lets_no_request_be_made(deadline: Any) -> None:
    model = ScriptedModel([text("never")])

    result = await payer(model).run("Hello", deadline=deadline)
    report = result.report()

    assert report["limit"] < 0 <= report["used"]

    assert model.requests == []
    assert (result.reason, result.report()["budget"]) == (StopReason.BUDGET_EXCEEDED, "max_wall_time_seconds")
    assert result.steps == 0


@pytest.mark.row("B14")
async def test_a_deadline_cuts_into_a_tool_that_is_under_way() -> None:
    clock = FakeClock()

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        clock.advance(60)
        await asyncio.get_running_loop().create_future()
        return "late"

    slow = Tool(name="slow", description="Slow.", parameters={}, effect="read", run=run)
    async with open_session(MemoryJournal(), clock=clock) as session:
        agent = Agent(ScriptedModel([call("slow"), text("never")]), tools=[slow])
        result = await agent.run("go", session=session, deadline=clock.now() + 30)

    assert (result.reason, result.report()["budget"]) == (StopReason.BUDGET_EXCEEDED, "max_wall_time_seconds")
    assert [one.status for one in result.tool_calls] == ["timeout"]


@pytest.mark.row("B14")
async def test_a_deadline_holds_over_resume_until_another_is_given_and_no_waiting_call_starts_behind_it() -> None:
    clock, paid = FakeClock(), list[tuple[int, str]]()
    async with open_session(MemoryJournal(), clock=clock) as session:
        agent = payer(ScriptedModel([call("pay", amount=1), text("I see.")]), paid, policy=ask("pay"))
        waiting = await agent.run("pay", session=session, deadline=clock.now() + 30)
        await session.answer(waiting.approvals[0].id, "allow")
        clock.advance(60)
        late = await agent.resume(session)
        done = await agent.resume(session, deadline=clock.now() + 30)

    assert late.report()["budget"] == "max_wall_time_seconds"
    assert done.completed
    assert paid == []


async def test_the_nearer_of_deadline_and_wall_time_budget_counts() -> None:
    clock = FakeClock()
    async with open_session(MemoryJournal(), clock=clock) as session:
        agent = payer(ScriptedModel([text("ok")]), budget=Budget(max_wall_time_seconds=0))
        result = await agent.run("go", session=session, deadline=datetime.now(UTC) + timedelta(days=365))

    assert result.report()["limit"] == 0
    assert result.next_step == "Increase the limit to continue."
    assert "larger budget" in result.next_safe_action


@pytest.mark.parametrize("deadline", [datetime(2030, 1, 1), float("nan"), float("inf"), True, "tomorrow"])
async def test_what_is_no_instant_is_refused_before_anything_begins(deadline: Any) -> None:
    model = ScriptedModel([text("never")])

    with pytest.raises(ConfigurationError, match="deadline"):
        await payer(model).run("Hello", deadline=deadline)

    assert model.requests == []


@pytest.mark.row("B18")
@pytest.mark.parametrize(("seconds", "warned"), [(79.0, []), (81.0, ["max_wall_time_seconds"])])
async def test_the_time_that_a_run_may_take_is_counted_from_its_own_beginning(
    seconds: float, warned: list[str]
) -> None:
    clock = FakeClock()
    clock.advance(1000.0)

    async def look(arguments: Any, ctx: Any) -> str:
        clock.advance(seconds)
        return "seen"

    async with open_session(MemoryJournal(), id="s", clock=clock) as session:
        agent = Agent(
            ScriptedModel([call("look"), text("x")]), tools=[tool_of(look, "look", effect="read")], budget=Budget(max_wall_time_seconds=100.0)
        )  # fmt: skip
        await agent.run("go", session=session)
        found = [event.budget for event in await session.events() if isinstance(event, BudgetWarned)]

    assert found == warned
