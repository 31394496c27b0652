"""Sessions whose agents wait for a person are kept, also where the caller's process died before it knew of that."""

import pytest

from treadle import Agent, Tool, ToolContext, allow, ask, open_session
from treadle.events import ToolSuspended
from treadle.journals.memory import MemoryJournal
from treadle.resolve.archives import expire_sessions
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import JsonObject

NOW = 1e12


def pay_tool() -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        return "paid"

    return Tool(name="pay", description="Pay.", parameters={"type": "object"}, effect="unsafe", run=run)


def lead() -> Agent:
    """An agent whose agent's agent asks a person."""
    last = Agent(ScriptedModel([call("pay"), text("Paid.")]), tools=[pay_tool()], policy=ask("pay"))
    middle = Agent(
        ScriptedModel([call("clerk", task="Pay"), text("Done.")]),
        tools=[last.as_tool("clerk", "Pays.")],
        policy=allow("clerk"),
    )
    model = ScriptedModel([call("office", task="Pay"), text("Done.")])
    return Agent(model, tools=[middle.as_tool("office", "Sees to it.")], policy=allow("office", "clerk"))


async def broken_off() -> MemoryJournal:
    """Return a journal in which the caller's process died just before it had recorded that its agent waits."""
    journal, left = MemoryJournal(), MemoryJournal()
    async with open_session(journal, id="s") as session:
        assert (await lead().run("Pay", session=session)).reason == "approval_required"
    for info in await journal.sessions():
        events = [*await journal.read(info.id)]
        if info.id == "s":
            events = events[: next(at for at, one in enumerate(events) if isinstance(one, ToolSuspended))]
        await left.adopt(info.id, events, state="running" if info.id == "s" else info.phase)
    return left


@pytest.mark.row("ST14")
async def test_a_family_in_which_an_agent_waits_for_a_person_is_kept() -> None:
    journal = await broken_off()

    assert await expire_sessions(journal, before=NOW) == ()


@pytest.mark.row("ST14")
async def test_an_agent_that_has_been_answered_is_kept_while_its_caller_stays() -> None:
    clock = FakeClock()
    journal = MemoryJournal()
    async with open_session(journal, id="s", clock=clock) as session:
        paused = await lead().run("Pay", session=session)
        await session.answer(paused.approvals[0].id, "allow")
        before = clock.now() + 60
        clock.shift(120)
        await session.change(metadata={"seen": "yes"})

    assert await expire_sessions(journal, before=before, clock=clock) == ()


@pytest.mark.row("ST14")
async def test_one_that_was_cancelled_goes() -> None:
    journal = await broken_off()
    async with open_session(journal, id="s") as session:
        await session.cancel()

    assert "s" in await expire_sessions(journal, before=NOW)


@pytest.mark.row("ST14")
async def test_it_goes_where_even_open_ones_go() -> None:
    journal = await broken_off()

    assert "s" in await expire_sessions(journal, before=NOW, even_open=True)
