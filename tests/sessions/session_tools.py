"""Tools and whole sessions for the tests of this folder. Counts what was really done."""

from typing import Any

from treadle import Agent, Session, Tool, ToolContext, ask
from treadle.ports import Journal
from treadle.resolve import open_session
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject

__all__ = ["EMPTY", "look_tool", "pay_tool", "payer", "stored_session", "waiting_session"]

EMPTY: JsonObject = {"type": "object", "properties": {}}
_AMOUNT: JsonObject = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}},
    "required": ["amount"],
    "additionalProperties": False,
}


def look_tool() -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
        return {"open": 40}

    return Tool(name="look", description="Look.", parameters=EMPTY, effect="read", run=run)


def pay_tool(paid: list[tuple[int, str]], *, permission: str | None = "allow") -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        paid.append((arguments["amount"], ctx.idempotency_key))
        return "paid"

    return Tool(name="pay", description="Pay.", parameters=_AMOUNT, effect="unsafe", permission=permission, run=run)


def payer(model: ScriptedModel, paid: list[tuple[int, str]] | None = None, **words: Any) -> Agent:
    return Agent(model, tools=[look_tool(), pay_tool([] if paid is None else paid)], **words)


async def stored_session(journal: Journal, name: str = "s") -> list[tuple[int, str]]:
    """Run two tasks: one that looks and then pays, one that only talks. Return what was paid."""
    paid: list[tuple[int, str]] = []
    model = ScriptedModel([call("look"), call("pay", amount=40), text("Paid 40."), text("You are welcome.")])
    async with open_session(journal, id=name) as session:
        await payer(model, paid).run("Pay the invoice", session=session)
        await payer(model, paid).run("Thanks", session=session)
    return paid


async def waiting_session(journal: Journal, name: str = "w") -> Session:
    """Leave a run at a call that waits for a person, with one sibling done and one message in the inbox."""
    async with open_session(journal, id=name) as session:
        agent = payer(ScriptedModel([[call("look"), call("pay", amount=7)]]), policy=ask("pay"))
        await agent.run("Pay 7", session=session)
        await session.steer("Hurry up")
        return session
