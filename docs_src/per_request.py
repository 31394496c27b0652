"""An agent of a service: its instructions depend on who asks, and one run may differ from the others."""

import asyncio

import msgspec

from treadle import Agent, RunContext, open_session
from treadle.testing import ScriptedModel, text


class Rating(msgspec.Struct):
    stars: int


NAMES = {"acme": "Ada of Acme", "initech": "Bill of Initech"}


async def greeting(ctx: RunContext[dict[str, str]]) -> str:
    return f"You speak with {ctx.deps[ctx.tenant]}."


def plan(ctx: RunContext) -> str | None:
    return "Offer the express delivery." if ctx.metadata.get("plan") == "gold" else None


async def main() -> None:
    model = ScriptedModel([text("Good morning."), text('{"stars": 4}')])
    agent: Agent[dict[str, str]] = Agent(model, name="desk", instructions=["Answer briefly.", greeting, plan])

    async with open_session("memory:", id="ticket-7") as session:
        await agent.run("Good morning", session=session, deps=NAMES, tenant="acme", metadata={"plan": "gold"})
        short = await agent.run("Rate this ticket", session=session, deps=NAMES, tenant="acme", output=Rating)

    print(model.requests[0].instructions)
    assert short.output == Rating(stars=4)
    assert model.requests[0].instructions == (
        "Answer briefly.\n\nYou speak with Ada of Acme.\n\nOffer the express delivery."
    )


asyncio.run(main())
