"""Questions about calls while others answer them too: the first answer wins, and whoever comes second is told."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from treadle import Agent, RunResult, Session, SessionHeld, open_session, tool
from treadle.cli.input.commands import ChatOptions
from treadle.cli.input.settings import settings_of
from treadle.cli.output.progress import Notifier
from treadle.cli.terminal.chat import Consulting
from treadle.cli.terminal.faces import Answer, Grants, Question
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, call, text


class Quiet:
    """A face whose person never answers; what happens meanwhile is up to the test."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.said: list[str] = []
        self._meanwhile = meanwhile

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        self.said.append(text)

    async def ask(self, question: Question) -> Answer | None:
        self._meanwhile()
        await asyncio.Event().wait()
        return None


class Late(Quiet):
    """A face whose person says no just after somebody else has allowed the call."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    async def ask(self, question: Question) -> Answer | None:
        await self._session.answer(question.approval.id, "allow", by="ada")
        return Answer(answer="deny")


class Takeable(MemoryJournal):
    """A journal whose lease another process takes over when the test says so."""

    def take_over(self) -> None:
        self._on_lost()

    async def acquire(self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> Any:
        self._on_lost = on_lost
        return await super().acquire(session_id, on_lost=on_lost, on_message=on_message)


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def consulting(face: Quiet, journal: MemoryJournal) -> Consulting:
    options = ChatOptions()
    notifier = Notifier("off", 0, sys.stdout, lambda: 0.0)
    return Consulting(face, journal, Grants(), notifier, settings=settings_of(options), options=options)


def paying() -> Agent:
    return Agent(ScriptedModel([call("pay", amount=1), text("Done.")]), tools=[pay])


@pytest.mark.row("HF1")
async def test_a_person_whose_answer_comes_second_learns_what_was_decided_before_it_runs() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session, open_session(journal, id="s") as other:
        paused: RunResult = await paying().run("Pay", session=session)
        face = Late(other)
        await consulting(face, journal).ask_about(session, paused.approvals)

    assert face.said == [
        "Your answer came too late. Allowed by ada from elsewhere. Press Ctrl+C to stop the run.",
    ]


async def test_a_person_learns_that_a_request_was_withdrawn_before_it_could_be_shown() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        await session.mark("before")
        paused: RunResult = await paying().run("Pay", session=session)
        await session.rewind("before")
        face = Quiet()
        await consulting(face, journal).ask_about(session, paused.approvals)

    assert face.said == ["The request has been withdrawn."]


async def test_a_question_ends_when_another_process_takes_the_session_over() -> None:
    journal = Takeable()
    async with open_session(journal, id="s") as session:
        paused: RunResult = await paying().run("Pay", session=session)
        face = Quiet(journal.take_over)
        with pytest.raises(SessionHeld, match=r"was taken over by another process.*/resume s"):
            await consulting(face, journal).ask_about(session, paused.approvals)
