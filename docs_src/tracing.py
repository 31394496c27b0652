"""Logs, metrics and spans from events: a subscriber is a function, and every duration is in the events."""

import asyncio
import logging
from collections import defaultdict

from treadle import Agent, tool
from treadle.events import AnyEvent, ModelFinished, RunFinished, ToolFinished
from treadle.testing import ScriptedModel, call, text

logger = logging.getLogger("shop.agents")
seconds: defaultdict[str, float] = defaultdict(float)


def trace(event: AnyEvent) -> None:
    match event:
        case ModelFinished():
            seconds["model"] += event.duration_seconds
            logger.info("%s step %d: %d output tokens", event.run_id, event.step, event.usage.output_tokens)
        case ToolFinished():
            seconds[event.result.name] += event.result.duration_seconds
            logger.info("%s %s: %s", event.run_id, event.result.name, event.result.status)
        case RunFinished():
            logger.info("%s ended: %s", event.run_id, event.reason)
        case _:
            pass


@tool(effect="read")
async def look(place: int) -> str:
    """Look at one place."""
    return f"Nothing at {place}."


async def main() -> None:
    model = ScriptedModel([call("look", place=1), text("Nothing.")])

    await Agent(model, tools=[look], subscribers=[trace]).run("Look")

    print(sorted(seconds))
    assert set(seconds) == {"model", "look"}


asyncio.run(main())
