"""Agents that are called by name, defined in files: one that reads and reports, called by one that decides."""

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, file_tools
from treadle.agents import load_subagents, subagent_tool
from treadle.testing import ScriptedModel, call, text

SCOUT = """---
name: scout
description: Finds things in files, and says where they stand.
tools: grep, read
effect: read
budget: {max_model_turns: 10}
---
You look things up in files. Answer with the path and the line, and nothing else.
"""

FOLDER = Path(__file__).parent / "sample"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "scout.md").write_text(SCOUT)
        scouts = load_subagents(folder)

    model = ScriptedModel(
        [
            call("spawn_agent", agent="scout", task="Which file lists what is to be done?"),
            call("grep", pattern="todo|TODO"),  # the scout has the lead's model, which names no other one
            text("In todo.txt."),
            text("The scout found it: todo.txt."),
        ]
    )
    agent = Agent(model, tools=[*file_tools(FOLDER), subagent_tool(scouts)])
    result = await agent.run("Find the list of tasks")
    print(result.text)
    print([(child.agent, child.status) for child in result.children])


asyncio.run(main())
