"""What a second survey of mutations showed that no test noticed: a tool without a limit, long promises, modes."""

from typing import Any

import pytest

from pipeline_tools import Recorder, act, checked_call, read, run_calls, statuses, types
from treadle import Agent, Budget, Decision, Guards, Price, ask, open_session
from treadle.messages import Usage
from treadle.permissions.modes import in_mode
from treadle.testing import FakeClock, ScriptedModel, Turn, call, text
from treadle.tools import DecisionKind


@pytest.mark.row("T05")
async def test_a_plain_function_that_makes_a_coroutine_may_have_no_limit() -> None:
    async def answer() -> str:
        return "seen"

    run = await run_calls(call("look"), tools=[read(lambda arguments, ctx: answer(), timeout=None)])

    assert statuses(run) == ["ok"]


@pytest.mark.row("F06")
@pytest.mark.parametrize(("last", "status"), [(1, "ok"), ("one", "unexpected_result_shape")])
async def test_a_long_result_is_held_to_what_its_tool_promised(last: Any, status: str) -> None:
    """So long that only its text would be kept if nobody looked at its values."""
    promised = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}

    async def look(arguments: Any, ctx: Any) -> Any:
        return [{"n": number} for number in (*range(60_000), last)]

    run = await run_calls(call("look"), tools=[read(look, output_schema=promised)])

    assert statuses(run) == [status]


@pytest.mark.row("R-MODE")
@pytest.mark.parametrize("mode", ["ask", "plan", "deny-unlisted", "bypass", "accept-edits"])
def test_what_is_denied_stays_denied_in_every_mode_by_the_rule_that_denied_it(mode: Any) -> None:
    decision = Decision(kind=DecisionKind.DENY, rule="mine", reason="Never on Sundays.")

    assert in_mode(mode, decision, checked_call(act(lambda arguments, ctx: "done"))) is decision


@pytest.mark.row("B18")
@pytest.mark.parametrize(("part", "tokens"), [(0.8, 800_000), (0.5, 500_000), (0.3, 300_000)])
async def test_a_cost_of_exactly_the_part_of_its_limit_is_told(part: float, tokens: int) -> None:
    turn = Turn(calls=(call("look"),), usage=Usage(input_tokens=tokens))
    model = ScriptedModel([turn, text("Done.")], price=Price(input=1, output=0))
    limited = Budget(max_total_cost=1)
    agent = Agent(model, tools=[read(Recorder())], budget=limited, guards=Guards(budget_warning=part))
    result = await agent.run("go")

    (warned,) = await types(result, "budget.warned")
    assert (warned.budget, float(warned.used), warned.limit) == ("max_total_cost", part, 1)


@pytest.mark.row("B18")
@pytest.mark.parametrize(
    ("limit", "used"),
    [("max_tool_calls", 1), ("max_input_tokens", 100), ("max_output_tokens", 40), ("max_wall_time_seconds", 8)],
)
async def test_a_limit_is_told_as_soon_as_exactly_its_part_is_used(limit: str, used: int) -> None:
    clock = FakeClock()

    async def look(arguments: Any, ctx: Any) -> str:
        clock.advance(8)
        return "seen"

    turn = Turn(calls=(call("look"),), usage=Usage(input_tokens=100, output_tokens=40))
    budget, guards = Budget(**{limit: 2 * used}), Guards(budget_warning=0.5)
    async with open_session("memory:", clock=clock) as session:
        agent = Agent(ScriptedModel([turn, text("Done.")]), tools=[read(look)], budget=budget, guards=guards)
        result = await agent.run("go", session=session)
        (warned,) = await types(result, "budget.warned")

    assert (warned.budget, warned.used, warned.limit) == (limit, used, 2 * used)


async def test_the_times_of_a_response_and_of_a_call_are_told_in_millionths_of_a_second() -> None:
    clock = FakeClock()

    def asks(request: Any) -> Any:
        clock.advance(1.23456789)
        return call("look")

    async def look(arguments: Any, ctx: Any) -> str:
        clock.advance(2.3456789)
        return "seen"

    async with open_session("memory:", clock=clock) as session:
        model = ScriptedModel([asks, text("Done.")])
        result = await Agent(model, tools=[read(look)]).run("go", session=session)
        asked, _ = await types(result, "model.finished")

    assert (asked.duration_seconds, asked.first_token_seconds) == (1.234568, 1.234568)
    assert [one.duration_seconds for one in result.tool_calls] == [2.345679]


@pytest.mark.row("B18")
async def test_the_seconds_of_a_run_before_its_pause_count_for_what_is_told() -> None:
    clock = FakeClock()

    async def takes_three(arguments: Any, ctx: Any) -> str:
        clock.advance(3)
        return "seen"

    tools = [read(takes_three), act(Recorder())]
    words: Any = {
        "policy": ask("act"),
        "budget": Budget(max_wall_time_seconds=10),
        "guards": Guards(budget_warning=0.5),
    }
    async with open_session("memory:", clock=clock) as session:
        paused = await Agent(ScriptedModel([call("look"), call("act")]), tools=tools, **words).run(
            "go", session=session
        )
        await session.answer(paused.approvals[0].id, "allow")
        result = await Agent(ScriptedModel([call("look"), text("Done.")]), tools=tools, **words).resume(session)
        (warned,) = await types(result, "budget.warned")

    assert (warned.budget, warned.used, warned.limit) == ("max_wall_time_seconds", 6, 10)
