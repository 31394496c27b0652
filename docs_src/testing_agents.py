"""One agent, tested without a network in two ways: with a scripted model, and over HTTP in every dialect."""

import asyncio

from treadle import Agent, resolve_model, tool
from treadle.testing import MockProvider, ScriptedModel, Turn, TurnLike, call, text


@tool(effect="read")
async def temperature(town: str) -> float:
    """Return the temperature of a town now, in degrees Celsius."""
    return {"Vienna": 21.5, "Bergen": 9.0}[town]


async def a_scripted_model_sees_the_result() -> None:
    model = ScriptedModel([call("temperature", town="Bergen"), text("9 degrees.")])

    result = await Agent(model, tools=[temperature]).run("How cold is Bergen?")

    assert result.completed
    assert model.requests[1].messages[-1].results[0].content == "9.0"


async def every_dialect_comes_to_the_same_end(dialect: str) -> None:
    script: list[TurnLike] = [
        Turn(status=503),  # asked again after a moment
        Turn(calls=(call("temperature", town="Bergen"),), cut="mid-arguments"),  # never run: the call is not whole
        call("temperature", town="Bergen"),
        text("9 degrees."),
    ]
    async with MockProvider(script) as provider:
        model = resolve_model(f"{dialect}:any", base_url=provider.base_url)
        result = await Agent(model, tools=[temperature]).run("How cold is Bergen?")

    assert provider.refusals == []  # every request was one that the vendor takes
    assert [one.status for one in result.tool_calls] == ["ok"]
    assert result.text == "9 degrees."


async def main() -> None:
    await a_scripted_model_sees_the_result()
    for dialect in ("openai", "openai-chat", "anthropic", "gemini"):
        await every_dialect_comes_to_the_same_end(dialect)


asyncio.run(main())
