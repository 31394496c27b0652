"""The report of a run: every field, what agents below did, what was denied, and to how many places times are told."""

from typing import Any

import pytest

from loop_tools import Unpriced
from pipeline_tools import Recorder, hang, on_fake_clock, read, results, run_calls
from treadle import Agent, Budget, Price, deny, open_session
from treadle.events import ModelFinished
from treadle.messages import Usage
from treadle.ports import ModelRequest
from treadle.stops import StopReason
from treadle.testing import FakeClock, ScriptedModel, Turn, call, text

THIRD, SEVENTH = 1 / 3, 1 / 7


async def test_the_report_of_a_run_has_every_field():
    turns = [[call("look", id="a"), call("rm", id="b")], text("Seen.")]
    agent = Agent(
        ScriptedModel(turns, price=Price(input=1_000_000, output=0)), tools=[read(Recorder()), read(Recorder(), "rm")],
        policy=deny("rm", reason="read only"), budget=Budget(max_total_cost=100_000), profile="tests",
    )  # fmt: skip
    async with on_fake_clock() as session:
        result = await agent.run("go", session=session)

    used = result.usage
    assert result.report() == {
        "status": "completed", "reason": "completed", "completed": True, "next_safe_action": StopReason.COMPLETED.next_safe_action,
        "message": result.message, "signals": [{"reason": "completed", "message": result.message, "priority": 10}], "details": None,
        "phase": None, "budget": None, "used": None, "limit": None, "profile": "tests", "text": "Seen.", "output": None,
        "session_id": session.id, "advice": "", "degraded": False, "unstored": 0,
        "usage": {
            "input_tokens": used.input_tokens, "output_tokens": used.output_tokens, "cached_input_tokens": 0, "reasoning_tokens": 0, "estimated": True,
        },
        "cached_share": 0.0, "cost": str(used.input_tokens), "wall_seconds": 0.0, "steps": 2,
        "tool_seconds": {"sum": 0.0, "critical_path": 0.0, "gained": 0.0}, "retries": {"model": 0, "tool": 0},
        "tool_calls": [
            {"id": "a", "name": "look", "status": "ok", "attempts": 1, "duration_seconds": 0.0},
            {"id": "b", "name": "rm", "status": "denied", "attempts": 0, "duration_seconds": 0.0},
        ],
        "failed_tool_calls": 1, "children": [], "approvals": [], "in_doubt": [], "running_on": [],
        "denials": [{"call_id": "b", "tool": "rm", "rule": "deny rm", "reason": "read only"}],
    }  # fmt: skip


@pytest.mark.parametrize(("model", "cost"), [(ScriptedModel, "0.00002"), (Unpriced, None)], ids=["priced", "unpriced"])
async def test_a_child_is_reported_with_these_fields(model, cost):
    usage = Usage(input_tokens=10, output_tokens=2, cache_written_tokens=4)
    turns = [Turn(calls=(call("look"),), usage=usage), Turn(text="Found.", usage=usage)]
    below = Agent(model(turns, **({"price": Price(input=1, output=0)} if cost else {})), tools=[read(Recorder())])
    lead = Agent(
        ScriptedModel([call("help", task="Look"), text("Done.")]), tools=[below.as_tool("help", "H.", effect="read")]
    )

    (child,) = (await lead.run("go")).report()["children"]

    assert child.pop("session_id")
    assert child == {
        "agent": "help", "call_id": "call_1", "status": "completed", "reason": "completed", "cost": cost, "steps": 2, "tool_calls": 1,
        "usage": {
            "input_tokens": 20, "output_tokens": 4, "cached_input_tokens": 0, "cache_written_tokens": 8, "reasoning_tokens": 0, "estimated": False,
        },
    }  # fmt: skip


@pytest.mark.parametrize(("sent", "cached", "share"), [(0, 0, None), (3, 1, 0.333), (4, 0, 0.0), (1, 1, 1.0)])
async def test_the_cached_share_is_a_part_of_what_was_sent(sent, cached, share):
    usage = Usage(input_tokens=sent, cached_input_tokens=cached, output_tokens=1)

    assert (await Agent(ScriptedModel([text("Done.", usage=usage)])).run("go")).report()["cached_share"] == share


# --- times
async def test_times_are_recorded_in_microseconds_and_reported_in_milliseconds():
    clock = FakeClock()

    def think(request: ModelRequest) -> Any:
        clock.advance(THIRD)
        return text("Wait") if request.messages[1:] else call("look")

    async def look(arguments: Any, ctx: Any) -> str:
        clock.advance(SEVENTH)
        return "seen"

    def hear(event: Any) -> None:
        if event.type == "model.delta" and event.text:
            clock.advance(SEVENTH)

    async with open_session("memory:", clock=clock) as session:
        result = await Agent(ScriptedModel([think]), tools=[read(look)], subscribers=[hear]).run("go", session=session)
        _, answer = [one for one in await session.events() if isinstance(one, ModelFinished)]

    assert (answer.first_token_seconds, answer.duration_seconds) == (0.333333, 0.619048)
    assert [one.duration_seconds for one in result.tool_calls] == [0.142857]
    assert result.report()["wall_seconds"] == 1.095


async def test_the_model_reads_in_milliseconds_how_long_a_call_took_that_gave_no_answer():
    async with on_fake_clock() as session:
        result = await run_calls(call("look"), tools=[read(hang, timeout=THIRD, retries=0)], session=session)

    (told,) = results(result)
    assert (told["type"], told["elapsed_seconds"], told["outcome"]) == ("timeout", 0.333, "unknown")
