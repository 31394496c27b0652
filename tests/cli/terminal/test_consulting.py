"""Questions about calls while others answer them too: the first answer wins, and whoever comes second is told."""

import sys

import pytest

from treadle import Agent, RunResult, Session, open_session, tool
from treadle.cli.input.options import Options
from treadle.cli.input.settings import settings_of
from treadle.cli.output.notifying import Notifier
from treadle.cli.terminal.asking import Answer, Question
from treadle.cli.terminal.consulting import Consulting
from treadle.cli.terminal.grants import Grants
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, call, text


class Late:
    """A face whose person says no just after somebody else has allowed the call."""

    def __init__(self, session: Session) -> None:
        self.said: list[str] = []
        self._session = session

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        self.said.append(text)

    async def ask(self, question: Question) -> Answer | None:
        await self._session.answer(question.approval.id, "allow", by="ada")
        return Answer(answer="deny")


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@pytest.mark.row("HF1")
async def test_a_person_whose_answer_comes_second_learns_what_was_decided_before_it_runs() -> None:
    journal = MemoryJournal()
    agent = Agent(ScriptedModel([call("pay", amount=1), text("Done.")]), tools=[pay])
    async with open_session(journal, id="s") as session, open_session(journal, id="s") as other:
        paused: RunResult = await agent.run("Pay", session=session)
        face = Late(other)
        options = Options(command="chat")
        notifier = Notifier("off", 0, sys.stdout, lambda: 0.0)
        consulting = Consulting(face, journal, Grants(), notifier, settings=settings_of(options), options=options)
        await consulting.ask_about(session, paused.approvals)

    assert face.said == [
        "Your answer came too late. Allowed by ada from elsewhere. Press Ctrl+C to stop the run.",
    ]
