"""What a survey of mutations showed that no test noticed: which acts a session refuses once it was moved, or was deleted."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from session_tools import stored_session, waiting_session

from treadle import Agent, NotDone, Session, SessionMoved, SessionNotActive, open_session
from treadle.events import ChildStarted
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, call, text

Act = Callable[[Session], Awaitable[Any]]

LEFT: dict[str, Act] = {
    "steer": lambda session: session.steer("Hurry up"),
    "set_mode": lambda session: session.set_mode("plan"),
    "compact": lambda session: session.compact(),
    "input": lambda session: session.input("c", 1),
    "cancel": lambda session: session.cancel(),
    "answer": lambda session: session.answer("a", "allow"),
}
"""Acts that leave something for the run of a session."""
DONE: dict[str, Act] = {
    "mark": lambda session: session.mark("here"),
    "rewind": lambda session: session.rewind(1),
    "change": lambda session: session.change(status="completed"),
    "resolve": lambda session: session.resolve("c", NotDone),
    "run": lambda session: Agent(ScriptedModel([text("x")])).run("go", session=session),
}
"""Acts that change the session itself."""


@pytest.mark.row("H06")
@pytest.mark.parametrize("act", [*LEFT.values(), *DONE.values()], ids=[*LEFT, *DONE])
async def test_every_act_on_a_session_that_was_moved_names_the_place_where_it_continues(act: Act) -> None:
    journal = MemoryJournal()
    session = await waiting_session(journal, "s")
    await session.move("the other journal")
    before = [*await journal.read("s")], [*await journal.inbox("s")]

    with pytest.raises(SessionMoved, match="was moved to the other journal"):
        await act(session)

    assert ([*await journal.read("s")], [*await journal.inbox("s")]) == before


UNREAD = {name: LEFT[name] for name in ("steer", "set_mode", "compact")}
"""Acts whose message nobody would ever read in a deleted session. The others find nothing that waits there."""


@pytest.mark.parametrize(
    "act", [*DONE.values(), *UNREAD.values(), lambda session: session.fork()], ids=[*DONE, *UNREAD, "fork"]
)
async def test_every_act_on_a_deleted_session_says_that_it_is_deleted(act: Act) -> None:
    journal = MemoryJournal()
    await stored_session(journal)
    async with open_session(journal, id="s") as session:
        await session.delete()
        with pytest.raises(SessionNotActive, match="deleted"):
            await act(session)

    assert [*await journal.inbox("s")] == []


@pytest.mark.parametrize("name", ["steer", "set_mode", "compact"])
async def test_nothing_but_its_caller_changes_how_a_session_continues_that_carries_out_a_call(name: str) -> None:
    journal = MemoryJournal()
    child = Agent(ScriptedModel([text("Found.")]))
    caller = Agent(
        ScriptedModel([call("finder", task="Find it"), text("Done.")]),
        tools=[child.as_tool("finder", "Find things.", effect="read")],
    )
    async with open_session(journal, id="s") as session:
        await caller.run("go", session=session)
    below = next(one.child_id for one in await journal.read("s") if isinstance(one, ChildStarted))

    async with open_session(journal, id=below) as session:
        if name == "steer":
            await session.steer("Hurry up")
        else:
            with pytest.raises(SessionNotActive, match="carries out a call of session 's'"):
                await LEFT[name](session)
