"""A resume with a smaller budget: it counts for each call that is about to start, also for one that a person has allowed."""

from typing import Any

import pytest

from invariants import check_session
from loop_tools import echo_tool
from pipeline_tools import act, statuses
from treadle import Agent, Budget, RunResult, Tool, allow, ask, open_session
from treadle.testing import ScriptedModel, call, text


def acting(done: list[int]) -> Tool:
    async def run(arguments: Any, ctx: Any) -> str:
        done.append(arguments["n"])
        return "done"

    return act(run, permission=None)


def agent_of(done: list[int], *calls: Any, **words: Any) -> Agent:
    model = ScriptedModel([[*calls], text("That is all."), text("Still all.")])
    return Agent(model, tools=[acting(done), echo_tool()], policy=ask("act"), on_limit="report", **words)


async def paused_then(place: Any, agent: Agent, budget: Budget | None, answer: Any = "allow") -> RunResult:
    """Run to the pause, answer everything that waits, and resume with this budget in another session object."""
    async with open_session(place / "a.db", id="s") as session:
        assert (await agent.run("go", session=session)).reason == "approval_required"
        for approval in await session.approvals() if answer else ():
            await session.answer(approval.id, answer)
    async with open_session(place / "a.db", id="s") as session:
        result = await agent.resume(session, budget=budget)
        await check_session(session)
    return result


ONE, TWO, NINE = (Budget(max_tool_calls=limit) for limit in (1, 2, 9))

ECHO, ACT = (lambda n: call("echo", n=n)), (lambda n: call("act", n=n))

FOUR = [ECHO(1), ACT(2), ACT(3), ECHO(4)]


@pytest.mark.row("B19")
@pytest.mark.parametrize(
    ("calls", "first", "then", "answer", "done", "found", "reached"),
    [
        ([ECHO(1), ACT(2)], None, ONE, "allow", [], ["ok", "skipped"], "max_tool_calls"),
        ([ECHO(1), ACT(2)], None, ONE, None, [], ["ok", "skipped"], "max_tool_calls"),
        ([ACT(1), ECHO(2), ACT(3)], None, TWO, "allow", [1], ["ok", "ok", "skipped"], "max_tool_calls"),
        *((FOUR, TWO, then, "allow", [2], ["ok", "ok", "skipped", "skipped"], None) for then in (None, TWO, NINE)),
        ([ACT(1)], None, Budget(max_input_tokens=1), "allow", [], ["skipped"], "max_input_tokens"),
        ([ACT(1)], None, Budget(max_output_tokens=1), "allow", [], ["skipped"], "max_output_tokens"),
        ([ACT(1)], None, Budget(max_tool_calls=0), "deny", [], ["denied"], None),
    ],
    ids=range(9),
)
async def test_a_smaller_limit_holds_back_what_it_does_not_cover(
    calls, first, then, answer, done, found, reached, tmp_path
):
    acted: list[int] = []

    result = await paused_then(tmp_path, agent_of(acted, *calls, budget=first), then, answer)

    assert (acted, statuses(result)[: len(found)]) == (done, found)
    if reached is not None:
        told = [one.content for message in result.messages for one in message.results]
        assert (result.reason, result.report()["budget"]) == ("budget_exceeded", reached)
        assert ("A person had allowed this call" in told[-1]) is (answer == "allow")
        assert result.spent.uncovered_calls == found.count("skipped")


@pytest.mark.row("B19")
@pytest.mark.parametrize(
    ("own", "below", "first", "then", "done"),
    [
        ([], [ACT(1)], None, ONE, []),
        ([], [ACT(1)], None, TWO, [1]),
        ([], [ACT(1)], None, Budget(max_tool_calls=None), [1]),
        ([ACT(9)], [ACT(n) for n in range(4)], Budget(max_tool_calls=4), None, [0, 1, 9]),
    ],
    ids=range(4),
)
async def test_a_callers_limit_holds_for_its_agents_calls_and_what_theirs_left_out_takes_nothing_from_it(
    own, below, first, then, done, tmp_path
):
    acted: list[int] = []
    child = Agent(ScriptedModel([below, text("Mine is done.")]), tools=[acting(acted)], policy=ask("act"))
    model = ScriptedModel([[call("clerk", task="Act"), *own], text("That is all."), text("Still all.")])
    tools = [child.as_tool("clerk", "Acts."), acting(acted)]
    agent = Agent(model, tools=tools, policy=allow("clerk"), on_limit="report", budget=first)

    await paused_then(tmp_path, agent, then)

    assert sorted(acted) == done
