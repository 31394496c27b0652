"""Record a model's responses once, and replay them without a network. A request that differs is refused."""

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, tool
from treadle.providers import RecordingModel, ReplayModel
from treadle.testing import ScriptedModel, call, text


@tool(effect="read")
async def look(place: int) -> str:
    """Look at one place."""
    return f"Nothing at {place}."


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trip.jsonl"
        real = ScriptedModel([call("look", place=1), text("Nothing there.")])
        await Agent(RecordingModel(real, path), tools=[look]).run("Look")

        replayed = await Agent(ReplayModel(path), tools=[look]).run("Look")
        other = await Agent(ReplayModel(path), tools=[look]).run("Look twice")

    print(replayed.text)
    print(other.message)
    assert replayed.completed
    assert other.reason == "model_error"
    assert "messages[0]" in other.message


asyncio.run(main())
