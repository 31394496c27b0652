"""A todo list that the model keeps: a fact of the session that survives a compaction and a restart."""

import asyncio

from treadle import Agent, open_session, tool
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import todo_tool


@tool(effect="read")
async def count(shelf: str) -> int:
    """Count the jars on a shelf."""
    return len(shelf)


async def main() -> None:
    model = ScriptedModel(
        [
            call(
                "todo",
                items=[
                    {"text": "Count the green shelf", "state": "in_progress"},
                    {"text": "Count the black shelf", "state": "pending"},
                ],
            ),
            call("count", shelf="green"),
            call(
                "todo",
                items=[
                    {"text": "Count the green shelf", "state": "done"},
                    {"text": "Count the black shelf", "state": "in_progress"},
                ],
            ),
            text("One shelf is left."),
        ]
    )
    async with open_session("memory:") as session:
        await Agent(model, tools=[count, todo_tool()]).run("Count the jars", session=session)

        for item in session.state.facts.values["todos"]:
            print(f"{item['state']}: {item['text']}")


asyncio.run(main())
