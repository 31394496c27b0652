"""What a person enters while something is under way is left for the run, or kept as the next task: never dropped."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from treadle import Agent, Session, open_session
from treadle.cli.terminal.chat import Queued
from treadle.journals.memory import MemoryJournal
from treadle.state import InboxMessage
from treadle.testing import ScriptedModel, text


class SlowJournal(MemoryJournal):
    """Takes messages in once its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        await self.gate.wait()
        return await super().put(session_id, message)


class Told:
    """A face that only listens."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        self.said.append(text)


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with open_session(SlowJournal(), id="s") as opened:
        yield opened


async def test_what_a_run_does_not_take_is_the_next_task(session: Session) -> None:
    face = Told()
    queued = Queued(face)
    queued.hold("First")
    queued.leave(
        Agent(ScriptedModel([text("Done.")])).stream("Go"), "Be brief"
    )  # it has no session yet: steering fails

    assert await queued.taken(session, session.journal) == "First\n\nBe brief"
    assert await queued.taken(session, session.journal) is None
    assert face.said == ["Queued: First", "Queued: Be brief"]


async def test_a_message_that_is_still_on_its_way_when_the_run_ends_is_the_next_task(session: Session) -> None:
    run = Agent(ScriptedModel([text("Done.")])).stream("Go", session=session)
    await run.finish()
    queued = Queued(Told())
    queued.leave(run, "Be brief")
    taking = asyncio.ensure_future(queued.taken(session, session.journal))
    await asyncio.sleep(0)
    session.journal.gate.set()

    assert await taking == "Be brief"
