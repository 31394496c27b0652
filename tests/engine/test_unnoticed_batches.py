"""What a survey of mutations showed that no test noticed: what a batch still does once its run is to end, and what early calls keep."""

from typing import Any

import pytest

from pipeline_tools import Recorder, act, on_fake_clock, read, run_calls, types
from treadle import Agent, Budget, ToolContext, allow
from treadle.events import AnyEvent
from treadle.stops import StopReason
from treadle.testing import Gate, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject


class Asked:
    """An approver that notes what it is asked about."""

    def __init__(self) -> None:
        self.tools: list[str] = []

    async def approve(self, asked: Any) -> str:
        self.tools.append(asked.tool)
        return "allow"


async def test_no_approver_is_asked_about_a_call_of_a_run_that_its_tool_has_ended() -> None:
    asked, paid = Asked(), Recorder()
    tools = [act(Recorder(), "finish", ends_run=True), act(paid, "pay", permission="ask")]

    run = await run_calls(call("finish"), call("pay"), tools=tools, approver=asked)

    assert run.reason is StopReason.DONE_CONDITION_SATISFIED
    assert (asked.tools, paid.runs) == ([], 0)


async def test_no_approver_is_asked_about_a_call_of_a_run_that_was_cancelled_beside_it() -> None:
    asked, paid = Asked(), Recorder()

    async def cancel(arguments: JsonObject, ctx: ToolContext) -> str:
        running.cancel()
        return "done"

    tools = [act(cancel, "halt"), act(paid, "pay", permission="ask")]
    async with on_fake_clock() as session:
        agent = Agent(ScriptedModel([[call("halt"), call("pay")]]), tools=tools, approver=asked)
        running = agent.stream("go", session=session)
        run = await running.finish()

    assert run.reason is StopReason.CANCELLED
    assert (asked.tools, paid.runs) == ([], 0)


@pytest.mark.parametrize(("own", "of_the_run"), [(300, 700), (700, 300), (None, 300), (300, None)])
async def test_a_result_is_held_to_the_smaller_limit_of_the_tool_and_of_the_run(
    own: int | None, of_the_run: int | None
) -> None:
    tools = [read(Recorder("x" * 5000), result_limit=own)]
    run = await run_calls(call("look"), tools=tools, budget=Budget(max_tool_result_chars=of_the_run))

    assert 250 < len(run.messages[-2].results[0].content) <= 300


async def test_an_agent_as_a_tool_does_not_start_while_the_response_that_calls_it_still_streams() -> None:
    child = Agent(ScriptedModel([text("Found it.")]))
    gate = Gate()
    turn = Turn(calls=(call("see", n=1), call("clerk", task="Look"), call("see", n=2)), gate=gate, hold_after_call=2)

    def watch(event: AnyEvent) -> None:
        if event.type == "tool.started":
            gate.open()

    model = ScriptedModel([turn, text("Done.")])
    tools = [read(Recorder(), "see"), child.as_tool("clerk", "Looks.", effect="read")]
    run = await Agent(model, tools=tools, policy=allow("*"), subscribers=[watch]).run("go")

    assert [(event.tool, event.early) for event in await types(run, "tool.started")] == [
        ("see", True),
        ("clerk", False),
        ("see", False),
    ]


@pytest.mark.row("T11")
async def test_progress_says_how_much_is_done_and_of_how_much() -> None:
    heard = []

    async def look(arguments: JsonObject, ctx: ToolContext) -> None:
        ctx.progress("half", done=1, total=2)

    def hear(event: AnyEvent) -> None:
        if event.type == "tool.progress":
            heard.append((event.message, event.done, event.total))

    await run_calls(call("look"), tools=[read(look)], subscribers=[hear])

    assert heard == [("half", 1, 2)]
