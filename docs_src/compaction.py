"""A conversation that outgrows its model: old results are cleared first, then a summary replaces old messages."""

import asyncio

from treadle import Agent, tool
from treadle.context import ClearResults, Summarize, Tiers
from treadle.errors import ContextOverflow
from treadle.events import ContextCompacted
from treadle.testing import ScriptedModel, call, text


@tool(effect="read")
async def page(number: int) -> str:
    """Read one page of a book."""
    return f"Page {number}: " + "word " * 200


async def main() -> None:
    pages = [call("page", number=number) for number in range(1, 7)]
    refused = ContextOverflow("The request is longer than the model's context.", status=400)
    model = ScriptedModel(
        [*pages, refused, refused, text("Pages 1 to 5 describe a journey."), text("It is a journey.")]
    )
    agent = Agent(model, tools=[page], compactor=Tiers(ClearResults(keep=2), Summarize(keep=1)))

    result = await agent.run("What is the book about?")

    for event in await result.session.events():
        if isinstance(event, ContextCompacted):
            print(f"{event.tier}: {event.tokens_before} tokens become {event.tokens_after}, {event.cost} spent")
    assert result.completed
    assert len(result.session.messages) == 14  # the store is never changed
    assert len(model.requests[-1].messages) == 4  # the task, the summary, and the last call with its result


asyncio.run(main())
