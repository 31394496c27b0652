"""A result that is far too long: the model is shown a part of it, searches the rest, and answers."""

import asyncio
import json

from treadle import Agent, Budget, tool
from treadle.ports import ModelRequest
from treadle.testing import ScriptedCall, ScriptedModel, call, text
from treadle.toolsets import artifact_tool


@tool(effect="read")
async def build_log() -> str:
    """Return the log of the last build."""
    return (
        "".join(f"step {number} ok\n" for number in range(5_000))
        + "step 5000 failed: no space left\n"
        + "end\n" * 5_000
    )


def search(request: ModelRequest) -> ScriptedCall:
    """Play the model: find the id in the mark, and search."""
    content = request.messages[-1].results[0].content
    mark = content[content.index("[...") : content.index("...]")]
    print(mark)
    return call("read_artifact", artifact=mark.rsplit(" ", 2)[-2], search="failed")


async def main() -> None:
    model = ScriptedModel([call("build_log"), search, text("The disk is full.")])
    agent = Agent(model, tools=[build_log, artifact_tool()], budget=Budget(max_tool_result_chars=4_000))

    result = await agent.run("Why did the build fail?")

    found = json.loads(result.session.messages[-2].results[0].content)
    assert [match["text"] for match in found["matches"]] == ["step 5000 failed: no space left"]
    assert result.text == "The disk is full."


asyncio.run(main())
