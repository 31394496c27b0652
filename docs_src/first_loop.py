"""A model that calls a tool. The model is scripted, so that this runs without a key."""

import asyncio

from treadle import Agent, tool
from treadle.testing import ScriptedModel, call, text


@tool(effect="read")
async def temperature(town: str) -> float:
    """Return the temperature of a town now, in degrees Celsius.

    Args:
        town: The town's name, in English.
    """
    return {"Vienna": 21.5, "Bergen": 9.0}[town]


async def main() -> None:
    model = ScriptedModel(
        [
            [call("temperature", town="Vienna"), call("temperature", town="Bergen")],
            text("Vienna is warmer."),
        ]
    )
    result = await Agent(model, tools=[temperature]).run("Which is warmer, Vienna or Bergen?")

    print(result.text)
    assert result.completed
    assert [one["status"] for one in result.report()["tool_calls"]] == ["ok", "ok"]


asyncio.run(main())
