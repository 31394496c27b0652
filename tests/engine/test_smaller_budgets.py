"""A resume with a smaller budget: it counts for each call that is about to start, also for one that a person has allowed."""

from pathlib import Path
from typing import Any

import pytest

from invariants import check_session
from loop_tools import ANYTHING, echo_tool
from treadle import Agent, Budget, Session, Tool, ToolContext, allow, ask, open_session
from treadle.engine.spec import RunResult
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


class Acts:
    """A tool that counts what it did."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def tool(self) -> Tool:
        async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
            self.done.append(arguments["n"])
            return "done"

        return Tool(name="act", description="Act.", parameters=ANYTHING, effect="unsafe", run=run)


def agent_of(acts: Acts, *calls: Any, **words: Any) -> Agent:
    model = ScriptedModel([[*calls], text("That is all."), text("Still all.")])
    return Agent(model, tools=[acts.tool(), echo_tool()], policy=ask("act"), on_limit="report", **words)


async def answer_all(session: Session, answer: Any = "allow") -> None:
    for approval in await session.approvals():
        await session.answer(approval.id, answer)


async def paused_then(path: Path, agent: Agent, budget: Budget | None, answer: str | None = "allow") -> RunResult:
    """Run to the pause, answer everything that waits, and resume with this budget in another session object."""
    async with open_session(path / "a.db", id="s") as session:
        paused = await agent.run("go", session=session)
        assert paused.reason == "approval_required"
        if answer is not None:
            await answer_all(session, answer)
    async with open_session(path / "a.db", id="s") as session:
        result = await agent.resume(session, budget=budget)
        await check_session(session)
    return result


def told(result: RunResult) -> list[str]:
    return [one.content for message in result.messages for one in message.results]


@pytest.mark.row("B19")
@pytest.mark.parametrize("answer", ["allow", None], ids=["allowed", "unanswered"])
async def test_a_smaller_limit_of_calls_holds_back_a_call_that_waited(answer: str | None, tmp_path: Path) -> None:
    acts = Acts()
    agent = agent_of(acts, call("echo", n=1), call("act", n=2))

    result = await paused_then(tmp_path, agent, Budget(max_tool_calls=1), answer)

    assert acts.done == []
    assert (result.reason, result.report()["budget"]) == ("budget_exceeded", "max_tool_calls")
    assert [one.status for one in result.tool_calls] == ["ok", "skipped"]
    assert (result.spent.tool_calls, result.spent.uncovered_calls) == (1, 1)
    assert ("A person had allowed this call" in told(result)[-1]) is (answer == "allow")


@pytest.mark.row("B19")
async def test_a_smaller_limit_of_calls_covers_the_first_of_those_that_waited(tmp_path: Path) -> None:
    acts = Acts()
    agent = agent_of(acts, call("act", n=1), call("echo", n=2), call("act", n=3))

    await paused_then(tmp_path, agent, Budget(max_tool_calls=2))

    assert acts.done == [1]


@pytest.mark.row("B19")
@pytest.mark.parametrize("budget", [None, Budget(max_tool_calls=2), Budget(max_tool_calls=9)])
async def test_calls_that_the_budget_did_not_cover_take_nothing_from_one_that_waited(
    budget: Budget | None, tmp_path: Path
) -> None:
    acts = Acts()
    calls = [call("echo", n=1), call("act", n=2), call("act", n=3), call("echo", n=4)]
    agent = agent_of(acts, *calls, budget=Budget(max_tool_calls=2))

    result = await paused_then(tmp_path, agent, budget)

    assert acts.done == [2]
    assert [one.status for one in result.tool_calls][:4] == ["ok", "ok", "skipped", "skipped"]


@pytest.mark.row("B19")
@pytest.mark.parametrize("name", ["max_input_tokens", "max_output_tokens"])
async def test_a_smaller_limit_of_tokens_holds_back_a_call_that_waited(name: str, tmp_path: Path) -> None:
    acts = Acts()
    agent = agent_of(acts, call("act", n=1))

    result = await paused_then(tmp_path, agent, Budget(**{name: 1}))

    assert acts.done == []
    assert (result.reason, result.report()["budget"]) == ("budget_exceeded", name)
    assert "A person had allowed this call" in told(result)[-1]


@pytest.mark.row("B19")
async def test_a_persons_no_is_told_as_a_no_whatever_the_budget(tmp_path: Path) -> None:
    acts = Acts()

    result = await paused_then(tmp_path, agent_of(acts, call("act", n=1)), Budget(max_tool_calls=0), "deny")

    assert acts.done == []
    assert [one.status for one in result.tool_calls] == ["denied"]


def lead_of(acts: Acts, *calls: Any, child_calls: list[Any], **words: Any) -> Agent:
    child = Agent(ScriptedModel([child_calls, text("Mine is done.")]), tools=[acts.tool()], policy=ask("act"))
    model = ScriptedModel([[*calls], text("That is all."), text("Still all.")])
    tools = [child.as_tool("clerk", "Acts."), acts.tool()]
    return Agent(model, tools=tools, policy=allow("clerk"), on_limit="report", **words)


@pytest.mark.row("B19")
@pytest.mark.parametrize(("limit", "done"), [(1, []), (2, [1]), (None, [1])])
async def test_the_callers_smaller_limit_holds_back_its_agents_call(
    limit: int | None, done: list[int], tmp_path: Path
) -> None:
    acts = Acts()
    agent = lead_of(acts, call("clerk", task="Act"), child_calls=[call("act", n=1)])

    await paused_then(tmp_path, agent, Budget(max_tool_calls=limit))

    assert acts.done == done


@pytest.mark.row("B19")
async def test_what_an_agents_budget_did_not_cover_takes_nothing_from_its_callers_call(tmp_path: Path) -> None:
    acts = Acts()
    many = [call("act", n=n) for n in range(4)]
    agent = lead_of(
        acts, call("clerk", task="Act"), call("act", n=9), child_calls=many, budget=Budget(max_tool_calls=4)
    )

    await paused_then(tmp_path, agent, None)

    assert sorted(acts.done) == [0, 1, 9]
