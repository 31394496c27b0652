"""What a survey of mutations showed that no test noticed: what a batch still does once its run is to end, and what early calls keep."""

from typing import Any

from pipeline_tools import Recorder, act, on_fake_clock, run_calls
from treadle import Agent, ToolContext
from treadle.stops import StopReason
from treadle.testing import ScriptedModel, call
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
