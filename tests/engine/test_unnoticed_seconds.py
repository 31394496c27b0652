"""What a survey of mutations showed that no test noticed: to how many places times are recorded and reported."""

import asyncio
from typing import Any

import msgspec

from pipeline_tools import on_fake_clock, read, run_calls, tool_of
from treadle import Agent, ToolContext, open_session
from treadle.events import AnyEvent, ModelFinished
from treadle.ports import ModelRequest
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import JsonObject

THIRD, SEVENTH = 1 / 3, 1 / 7


async def test_times_are_recorded_in_microseconds_and_reported_in_milliseconds() -> None:
    clock = FakeClock()

    def think(request: ModelRequest) -> Any:
        clock.advance(THIRD)
        return text("Wait") if request.messages[1:] else call("look")

    async def look(arguments: JsonObject, ctx: ToolContext) -> str:
        clock.advance(SEVENTH)
        return "seen"

    def hear(event: AnyEvent) -> None:
        if event.type == "model.delta" and event.text:
            clock.advance(SEVENTH)

    async with open_session("memory:", clock=clock) as session:
        result = await Agent(ScriptedModel([think]), tools=[read(look)], subscribers=[hear]).run("go", session=session)
        _, answer = [one for one in await session.events() if isinstance(one, ModelFinished)]

    assert (answer.first_token_seconds, answer.duration_seconds) == (0.333333, 0.619048)
    assert [one.duration_seconds for one in result.tool_calls] == [0.142857]
    assert result.report()["wall_seconds"] == 1.095


async def test_the_model_reads_in_milliseconds_how_long_a_call_took_that_gave_no_answer() -> None:
    async def hang(arguments: JsonObject, ctx: ToolContext) -> None:
        await asyncio.Event().wait()

    async with on_fake_clock() as session:
        result = await run_calls(
            call("act"), tools=[tool_of(hang, effect="read", timeout=THIRD, retries=0)], session=session
        )

    (told,) = [msgspec.json.decode(part.content) for message in result.messages for part in message.results]
    assert (told["type"], told["elapsed_seconds"], told["outcome"]) == ("timeout", 0.333, "unknown")
