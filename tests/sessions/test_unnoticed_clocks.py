"""What a survey of mutations showed that no test noticed: the store's clock says until when consent counts, not the machine's."""

import pytest
from session_tools import Bank

from pipeline_tools import Recorder, act
from treadle import Agent, ask, open_session
from treadle.events import ApprovalAnswered, ApprovalRequested
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, ScriptedModel, call, text

LASTS = 600.0


class Elsewhere(MemoryJournal):
    """A journal whose server's clock differs from the machine's."""

    def __init__(self, clock: FakeClock, ahead_seconds: float) -> None:
        super().__init__()
        self._clock, self._ahead = clock, ahead_seconds

    async def now(self) -> float:
        return self._clock.now() + self._ahead


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
async def test_a_request_for_consent_and_its_answer_are_timed_by_the_stores_clock(ahead: float) -> None:
    clock = FakeClock()
    journal = Elsewhere(clock, ahead)
    agent = Agent(
        ScriptedModel([call("act"), text("Done.")]),
        tools=[act(Recorder(), permission=None)],
        policy=ask("act"),
        approval_seconds=LASTS,
    )
    async with open_session(journal, id="s", clock=clock) as session:
        [approval] = (await agent.run("go", session=session)).approvals
        await session.answer(approval.id, "allow")
        done = await agent.resume(session)
        [answered] = [one for one in await session.events() if isinstance(one, ApprovalAnswered)]

    assert approval.expires_at == clock.now() + ahead + LASTS
    assert answered.given_at == clock.now() + ahead
    assert done.completed


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
async def test_an_approvers_answer_is_timed_by_the_stores_clock(ahead: float) -> None:
    clock = FakeClock()
    agent = Agent(
        ScriptedModel([call("act"), text("Done.")]),
        tools=[act(Recorder(), permission=None)],
        policy=ask("act"),
        approver=lambda approval: "allow",
    )
    async with open_session(Elsewhere(clock, ahead), id="s", clock=clock) as session:
        done = await agent.run("go", session=session)
        [answered] = [one for one in await session.events() if isinstance(one, ApprovalAnswered)]

    assert (done.completed, answered.given_at) == (True, clock.now() + ahead)


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
async def test_a_question_about_a_call_in_doubt_is_timed_by_the_stores_clock(ahead: float) -> None:
    clock, bank = FakeClock(), Bank()
    journal = Elsewhere(clock, ahead)
    await bank.break_off(journal)
    agent = Agent(ScriptedModel([text("x")]), tools=[bank.tool()], in_doubt="ask", approval_seconds=LASTS)
    async with open_session(journal, id="s", clock=clock) as session:
        [approval] = (await agent.resume(session)).approvals
        asked = [one for one in await session.events() if isinstance(one, ApprovalRequested)]
        await agent.resume(session)
        again = [one for one in await session.events() if isinstance(one, ApprovalRequested)]

    assert approval.expires_at == clock.now() + ahead + LASTS
    assert (len(asked), len(again)) == (1, 1)
