"""A doubt of an agent that is a tool of an agent that is a tool: who is told how it ended."""

from collections.abc import Sequence
from typing import Any

import pytest
from session_tools import Bank, Dying

from treadle import Agent, Done, JournalError, allow, open_session
from treadle.events import AnyEvent, ChildStarted, ToolResolved
from treadle.ports import Journal
from treadle.testing import ScriptedModel, call, text


class Dead(Dying):
    """A journal of which nothing at all is stored once it has failed."""

    is_dead = False

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if self.is_dead:
            raise JournalError("gone")
        try:
            await super().append(session_id, events, state=state, durable=durable)
        except JournalError:
            self.is_dead = True
            raise


def levels(bank: Bank, *turns: Any) -> Agent:
    """An agent whose tool is an agent whose tool is an agent that pays; each begins with one of these turns."""
    below = Agent(ScriptedModel([turns[0], text("Nobody knows.")]), tools=[bank.tool()])
    clerk = below.as_tool("clerk", "Pays.")
    middle = Agent(ScriptedModel([turns[1], text("Nobody knows.")]), tools=[clerk], policy=allow("*"))
    office = middle.as_tool("office", "Has it paid.")
    return Agent(ScriptedModel([turns[2], text("Nobody knows.")]), tools=[office], policy=allow("*"))


@pytest.mark.parametrize("by_top", [False, True])
async def test_a_resolution_is_recorded_with_every_session_above(journal: Journal, bank: Bank, by_top: bool) -> None:
    dying = levels(
        bank, call("pay", id="p", invoice="7"), call("clerk", id="m", task="Pay"), call("office", id="t", task="Pay")
    )
    async with open_session(Dead(journal), id="s") as session:
        with pytest.raises(JournalError, match="gone"):
            await dying.run("Pay", session=session)
    async with open_session(journal, id="s") as session:
        done = await levels(bank, text("Nobody knows."), text("Nobody knows."), text("Nobody knows.")).resume(session)
        assert done.completed
        [middle] = done.children
    async with open_session(journal, id=middle.session_id) as between:
        [leaf] = {event.child_id for event in await between.events() if isinstance(event, ChildStarted)}

    async with open_session(journal, id="s" if by_top else leaf) as session:
        await session.resolve("p", Done({"receipt": 1}), by="ada", reason="Seen.")

    for name, child in (("s", leaf), (middle.session_id, leaf), (leaf, None)):
        told = [event for event in await journal.read(name) if isinstance(event, ToolResolved)]
        assert [(one.call_id, one.outcome, one.by, one.child_id or None) for one in told] == [
            ("p", "done", "ada", child)
        ]
