"""Tools and whole sessions for the tests of this folder. Counts what was really done."""

from collections.abc import Sequence
from typing import Any

import pytest

from pipeline_tools import DyingJournal
from treadle import Agent, Session, Tool, ToolContext, ask
from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.ports import Journal
from treadle.resolve import open_session
from treadle.testing import Gate, ScriptedModel, call, text
from treadle.tools import JsonObject

__all__ = [
    "EMPTY",
    "Bank",
    "Dead",
    "held_tool",
    "long_tool",
    "look_tool",
    "pay_tool",
    "payer",
    "stored_session",
    "waiting_session",
]

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


def long_tool(words: str = "line\n") -> Tool:
    """Return a tool whose result is cut: the whole of it is stored apart."""

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        return words * 5000

    return Tool(name="long", description="Long.", parameters=EMPTY, effect="read", run=run)


def held_tool(name: str = "pay", effect: Any = "unsafe") -> tuple[Tool, Gate, Gate]:
    """Return a tool that opens the first gate when it begins, and ends once the second one is open."""
    begun, release = Gate(), Gate()

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        begun.open()
        await release.wait()
        return "paid"

    tool = Tool(name=name, description="Pay.", parameters=EMPTY, effect=effect, permission="allow", run=run)
    return tool, begun, release


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


class Dead(DyingJournal):
    """A journal whose process dies before the result of call `p` is stored, and that stores nothing at all from then on."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, call_id="p")
        self.is_dead = False

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if self.is_dead:
            raise JournalError("gone")
        try:
            await super().append(session_id, events, state=state, durable=durable)
        except JournalError:
            self.is_dead = True
            raise


class Bank:
    """A tool `pay` and what it was asked to pay, by invoice."""

    def __init__(self) -> None:
        self.paid: list[str] = []

    def tool(self, effect: Any = "unsafe", **words: Any) -> Tool:
        async def run(arguments: JsonObject, ctx: ToolContext) -> JsonObject:
            self.paid.append(arguments["invoice"])
            return {"receipt": len(self.paid)}

        schema = {"type": "object", "properties": {"invoice": {"type": "string"}, "note": {"type": "string"}}}
        words = {"permission": "allow", **words}
        return Tool(name="pay", description="Pay an invoice.", parameters=schema, effect=effect, run=run, **words)

    def agent(self, *turns: Any, effect: Any = "unsafe", policy: Any = None, **words: Any) -> Agent:
        return Agent(ScriptedModel(list(turns)), tools=[self.tool(effect, **words)], policy=policy)

    async def break_off(self, journal: Journal, name: str = "s", **words: Any) -> None:
        """Leave a session in which call `p` has paid invoice 7, and nobody was told."""
        async with open_session(DyingJournal(journal, call_id="p"), id=name) as session:
            agent = self.agent([call("pay", id="p", invoice="7")], **words)
            with pytest.raises(JournalError, match="gone"):
                await agent.run("Pay invoice 7", session=session)
