"""A run that its caller ends for a reason of its own: between its steps, in the middle of one, or before it begins."""

import pytest

from treadle import Agent, ConfigurationError, StopReason, tool
from treadle.events import RunFinished, ToolFinished
from treadle.testing import ScriptedModel, call, text


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def looking():
    return ScriptedModel([[call("look"), call("look")], text("Never said.")])


async def test_a_subscriber_that_stops_the_run_when_no_call_is_open_ends_it_before_the_model_is_asked_again():
    model = looking()
    run = Agent(model, tools=[look]).stream("Look")
    finished = []

    def stop_after_the_second(event):
        if isinstance(event, ToolFinished):
            finished.append(event.call_id)
            if len(finished) == 2:
                run.stop(StopReason.TASK_DENIED, "Enough.")

    run.subscribe(stop_after_the_second)
    result = await run.finish()

    assert (result.reason, result.message, result.completed) == (StopReason.TASK_DENIED, "Enough.", False)
    assert [one.status for one in result.tool_calls] == ["ok", "ok"]
    assert len(model.requests) == 1
    last = (await result.session.events())[-1]
    assert isinstance(last, RunFinished)
    assert (last.reason, last.message) == ("task_denied", "Enough.")


async def test_a_run_that_is_stopped_before_it_begins_asks_no_model_and_the_first_reason_stays():
    model = looking()
    run = Agent(model, tools=[look]).stream("Look")
    run.stop(StopReason.TASK_DENIED, "First.")
    run.stop(StopReason.REFUSED, "Second.")

    result = await run.finish()

    assert (result.reason, result.message) == (StopReason.TASK_DENIED, "First.")
    assert model.requests == []


async def test_a_run_that_was_stopped_goes_on_with_resume():
    agent = Agent(looking(), tools=[look])
    run = agent.stream("Look")
    run.stop(StopReason.TASK_DENIED, "Not now.")
    stopped = await run.finish()

    result = await agent.resume(stopped.session)

    assert result.text == "Never said."


@pytest.mark.parametrize("reason", [StopReason.COMPLETED, StopReason.APPROVAL_REQUIRED, StopReason.MODEL_ERROR])
async def test_a_run_cannot_be_stopped_as_what_it_did_not_come_to(reason):
    run = Agent(looking(), tools=[look]).stream("Look")

    with pytest.raises(ConfigurationError, match=reason.value):
        run.stop(reason, "It is done.")
