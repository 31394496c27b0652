"""A model that never stops asking. The budget stops it, and the report says so."""

import asyncio

from treadle import Agent, Budget, tool
from treadle.testing import ScriptedModel, call


@tool(effect="read")
async def look(place: int) -> str:
    """Look at one place."""
    return f"Nothing at {place}."


async def main() -> None:
    model = ScriptedModel([call("look", place=number) for number in range(10)])
    agent = Agent(model, tools=[look], budget=Budget(max_model_turns=3), on_limit="report")

    report = (await agent.run("Look everywhere")).report()

    print(report["status"], report["reason"], report["budget"], report["used"])
    assert report["reason"] == "step_limit_reached"
    assert report["completed"] is False
    assert report["next_safe_action"] == "Ask the user whether to continue with a larger budget."


asyncio.run(main())
