"""What a survey of mutations showed that no test noticed: the report of a plain run, with every one of its fields."""

from pipeline_tools import Recorder, on_fake_clock, read
from treadle import Agent, Budget, Price, deny
from treadle.stops import StopReason
from treadle.testing import ScriptedModel, call, text


async def test_the_report_of_a_run_has_every_field() -> None:
    model = ScriptedModel(
        [[call("look", id="a"), call("rm", id="b")], text("Seen.")], price=Price(input=1_000_000, output=0)
    )
    agent = Agent(
        model,
        tools=[read(Recorder()), read(Recorder(), "rm")],
        policy=deny("rm", reason="read only"),
        budget=Budget(max_total_cost=100_000),
        profile="tests",
    )
    async with on_fake_clock() as session:
        result = await agent.run("go", session=session)

    assert result.report() == {
        "status": "completed",
        "reason": "completed",
        "completed": True,
        "next_safe_action": StopReason.COMPLETED.next_safe_action,
        "message": result.message,
        "signals": [{"reason": "completed", "message": result.message, "priority": 10}],
        "details": None,
        "phase": None,
        "budget": None,
        "used": None,
        "limit": None,
        "profile": "tests",
        "text": "Seen.",
        "output": None,
        "session_id": session.id,
        "degraded": False,
        "unstored": 0,
        "usage": {
            "input_tokens": result.usage.input_tokens,
            "output_tokens": result.usage.output_tokens,
            "cached_input_tokens": 0,
            "reasoning_tokens": 0,
            "estimated": True,
        },
        "cached_share": 0.0,
        "cost": str(result.usage.input_tokens),
        "wall_seconds": 0.0,
        "steps": 2,
        "tool_seconds": {"sum": 0.0, "critical_path": 0.0, "gained": 0.0},
        "retries": {"model": 0, "tool": 0},
        "tool_calls": [
            {"id": "a", "name": "look", "status": "ok", "attempts": 1, "duration_seconds": 0.0},
            {"id": "b", "name": "rm", "status": "denied", "attempts": 0, "duration_seconds": 0.0},
        ],
        "failed_tool_calls": 1,
        "children": [],
        "approvals": [],
        "in_doubt": [],
        "running_on": [],
        "denials": [{"call_id": "b", "tool": "rm", "rule": "deny rm", "reason": "read only"}],
    }
