"""A model that cannot call tools writes its steps as JSON. The tools, rules and limits are the same."""

import asyncio
import json

from treadle import Agent, tool
from treadle.drivers import ReActDriver
from treadle.testing import ScriptedModel, text


@tool(effect="read")
async def temperature(town: str) -> float:
    """Return the temperature of a town now, in degrees Celsius."""
    return {"Vienna": 21.5, "Bergen": 9.0}[town]


async def main() -> None:
    look = {"thought": "I look.", "tool": "temperature", "args": {"town": "Vienna"}}
    done = {"thought": "Now I know.", "tool": "answer", "args": {"answer": "It is 21.5 degrees in Vienna."}}
    model = ScriptedModel([text(json.dumps(look)), text("Let me think."), text(json.dumps(done))])
    agent = Agent(model, tools=[temperature], driver=ReActDriver())

    result = await agent.run("How warm is it in Vienna?")

    print(result.text)
    for message in model.requests[1].messages:
        print(f"{message.role}: {message.text}")
    assert [call.status for call in result.tool_calls] == ["ok"]
    assert all(request.tools == () for request in model.requests)
    assert (
        len(model.requests) == 3
    )  # the second answer was not a decision: its error was reported to the model, which corrected it


asyncio.run(main())
