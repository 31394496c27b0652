"""A conversation of several turns: one session, the same agent, and each answer knows what was said before."""

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, Budget, open_session, tool
from treadle.testing import ScriptedModel, call, text


@tool(effect="read")
async def opening_hours(day: str) -> str:
    """Return when the shop is open."""
    return "closed" if day == "Sunday" else "9 to 18"


async def main(journal: Path) -> None:
    model = ScriptedModel(
        [call("opening_hours", day="Monday"), text("From 9 to 18."), text("On Sunday we are closed.")]
    )
    agent = Agent(
        model,
        name="desk",
        instructions="You work at the desk of a tea shop. Answer in one sentence.",
        tools=[opening_hours],
        budget=Budget(max_model_turns=10),
        profile="desk",
    )

    async with open_session(journal, id="chat-ada") as session:
        await agent.run("When are you open on Monday?", session=session)

    async with open_session(journal, id="chat-ada") as session:  # later, perhaps in another process
        result = await agent.run("And on Sunday?", session=session)

    print(result.text)
    assert [message.role for message in result.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert "You work at the desk" in str(model.requests[2].instructions)


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder) / "shop.db"))
