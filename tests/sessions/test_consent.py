"""Consent counts from when the person gave it: late resumes, expired requests, second answers, lists that agree."""

import time
from typing import Any

import msgspec
import pytest
from session_tools import Bank, pay_tool, payer, waiting_session

from pipeline_tools import Recorder, act, called_through
from treadle import Agent, Approval, ConfigurationError, Effect, Suspended, ask, open_journal, open_session
from treadle.errors import ApprovalExpired, UnknownApproval, UnknownInput
from treadle.events import (
    ApprovalAnswered,
    ApprovalRequested,
    RunResumed,
)
from treadle.journals.memory import MemoryJournal
from treadle.ports import HasClock, Journal
from treadle.state import InboxMessage, LeftAnswer, inbox_message
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import Preview
from treadle.toolsets import ask_user_tool

DAY = 86400.0

everywhere = pytest.mark.parametrize("journal", ["memory", "sqlite", "postgres"], indirect=True)


async def asked(journal: Journal, clock: FakeClock | None = None) -> str:
    """Leave session `w` at one call that waits; return the approval's id."""
    async with open_session(journal, id="w", clock=clock) as session:
        agent = payer(ScriptedModel([[call("pay", amount=7)]]), policy=ask("pay"))
        return (await agent.run("Pay 7", session=session)).approvals[0].id


@pytest.mark.row("ST11", "HF1")
async def test_an_answer_in_time_holds_though_the_resume_comes_late(journal: Journal) -> None:
    clock, paid = FakeClock(), list[tuple[int, str]]()
    approval = await asked(journal, clock)
    async with open_session(journal, id="w", clock=clock) as session:
        clock.shift(6 * DAY)
        await session.answer(approval, "allow", by="ada")
        given = clock.now()
    clock.shift(30 * DAY)
    async with open_session(journal, id="w", clock=clock) as session:
        done = await payer(ScriptedModel([text("Paid.")]), paid, policy=ask("pay")).resume(session)
        [answered] = [event for event in await session.events() if isinstance(event, ApprovalAnswered)]

    assert (done.reason, [amount for amount, _ in paid]) == ("completed", [7])
    assert (answered.given_at, answered.at, answered.approved_by) == (given, clock.now(), "ada")


@pytest.mark.row("ST11")
async def test_an_answer_that_an_older_version_left_counts_from_when_it_was_taken_in(journal: Journal) -> None:
    clock = FakeClock()
    approval = await asked(journal, clock)
    body = {"approval_id": approval, "answer": "allow", "reason": "", "approved_by": "person"}
    await journal.put("w", inbox_message(f"answer:{approval}", "answer", body))
    clock.shift(8 * DAY)
    async with open_session(journal, id="w", clock=clock) as session:
        again = await payer(ScriptedModel([text("Paid.")]), policy=ask("pay")).resume(session)
    assert again.reason == "approval_required"


@pytest.mark.row("ST11", "HF1", "AT-APPROVAL-NOBODY")
async def test_answering_an_expired_request_says_so_and_the_resume_asks_anew(journal: Journal) -> None:
    clock, paid = FakeClock(), list[tuple[int, str]]()
    approval = await asked(journal, clock)
    clock.shift(7 * DAY + 1)
    async with open_session(journal, id="w", clock=clock) as session:
        with pytest.raises(ApprovalExpired, match=r"expired at 2023-\d\d-\d\d .* UTC\. Resume the session"):
            await session.answer(approval, "allow")
        agent = payer(ScriptedModel([text("Paid.")]), paid, policy=ask("pay"))
        [anew] = (await agent.resume(session)).approvals
        await session.answer(anew.id, "allow")
        done = await agent.resume(session)
    assert anew.id != approval
    assert (done.reason, len(paid)) == ("completed", 1)


@pytest.mark.row("ST11", "HF1")
@everywhere
async def test_an_answer_to_another_request_is_told_and_uses_nothing_up(journal: Journal) -> None:
    approval = await asked(journal)
    async with open_session(journal, id="w") as session:
        for wrong in ("ap_other", "", " ", "ap_", approval[:-1], approval.upper(), f"{approval} "):
            with pytest.raises(UnknownApproval, match=f"No approval {wrong!r} waits.*{approval}"):
                await session.answer(wrong, "allow")
        assert [one.id for one in await session.approvals()] == [approval]


@pytest.mark.row("HF1", "D-VARIANTS", "AT-APPROVAL-BOUND")
@everywhere
async def test_consent_holds_in_its_own_session_and_for_its_own_call_alone(journal: Journal) -> None:
    approval = await asked(journal)
    paid: list[tuple[int, str]] = []
    async with open_session(journal, id="other") as session:
        agent = payer(ScriptedModel([[call("pay", amount=7)]]), paid, policy=ask("pay"))
        waiting = (await agent.run("Pay 7", session=session)).approvals[0].id
        with pytest.raises(UnknownApproval):
            await session.answer(approval, "allow")
        again = await agent.resume(session)
    assert ([one.id for one in again.approvals], paid) == ([waiting], [])

    async with open_session(journal, id="w") as session:
        await session.answer(approval, "allow")
        model = ScriptedModel([[call("pay", amount=7)], [call("pay", amount=8)], text("Done.")])
        result = await payer(model, paid, policy=ask("pay")).resume(session)
        assert ([amount for amount, _ in paid], [one.id != approval for one in result.approvals]) == ([7], [True])
        with pytest.raises(UnknownApproval):
            await session.answer(approval, "allow")


@everywhere
async def test_what_an_agent_asks_two_levels_below_a_cancelled_run_is_withdrawn_in_its_own_session(
    journal: Journal,
) -> None:
    both = [call("pay", amount=7), call("ask_user", id="q", question="Why?")]
    clerk = Agent(ScriptedModel([both]), tools=[pay_tool([]), ask_user_tool()], policy=ask("pay"))
    async with open_session(journal, id="w") as session:
        [asked] = (await called_through(clerk, "clerk", "office").run("Pay 7", session=session)).approvals
        await session.cancel()
    async with open_session(journal, id=asked.session_id) as below:
        with pytest.raises(UnknownApproval, match=r"the run was cancelled\. Resume session 'w'"):
            await below.answer(asked.id, "allow")
        with pytest.raises(UnknownInput, match="the run was cancelled"):
            await below.input("q", "Why not")


@pytest.mark.row("ST11")
@everywhere
async def test_the_sessions_list_and_the_journals_agree(journal: Journal) -> None:
    waiting = await waiting_session(journal)
    other = await waiting_session(journal, "other")

    async def both() -> tuple[list[str], list[str]]:
        async with open_session(journal, id="w") as session:
            own = [one.id for one in await session.approvals()]
        return own, [one.id for one in await journal.approvals() if one.session_id == "w"]

    [approval] = waiting.approvals()
    assert await both() == ([approval.id], [approval.id])
    await waiting.answer(approval.id, "allow")
    assert await both() == ([], [])
    assert waiting.approvals() == ()

    await other.cancel()
    assert other.approvals() == await other.approvals() == ()
    assert await journal.approvals() == ()


@pytest.mark.row("ST11")
@everywhere
async def test_a_request_beside_a_call_that_broke_off_is_in_both_lists(journal: Journal) -> None:
    session = await waiting_session(journal)
    [approval] = session.approvals()
    # As a process leaves it that died after its `run.resumed`.
    await session.hold(on_lost=lambda: None, on_message=lambda: None)
    await session.ledger.record(RunResumed(), durable=True)
    await session.release()
    assert (
        [one.id for one in await journal.approvals()] == [one.id for one in await session.approvals()] == [approval.id]
    )


@pytest.mark.row("ST11")
async def test_the_lifetime_of_a_request_can_be_set(journal: Journal) -> None:
    clock = FakeClock()
    async with open_session(journal, id="s", clock=clock) as session:
        agent = Agent(
            ScriptedModel([call("pay", amount=1)]), tools=[pay_tool([], permission="ask")], approval_seconds=90.0
        )
        [approval] = (await agent.run("go", session=session)).approvals
    assert approval.expires_at == clock.now() + 90.0


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "1", 1e12])
def test_a_lifetime_that_is_no_span_of_time_is_refused(seconds: object) -> None:
    with pytest.raises(ConfigurationError, match="approval_seconds"):
        Agent("demo", approval_seconds=seconds)  # type: ignore[arg-type]


@pytest.mark.row("ST07")
@pytest.mark.parametrize("words", [{"reason": 5}, {"by": None}, {"by": "\ud800"}])
async def test_an_answer_that_could_not_be_read_back_is_refused(journal: Journal, words: dict[str, object]) -> None:
    approval = await asked(journal)
    async with open_session(journal, id="w") as session:
        with pytest.raises(ConfigurationError):
            await session.answer(approval, "allow", **words)  # type: ignore[arg-type]
        assert [one.id for one in await session.approvals()] == [approval]


@pytest.mark.row("ST11", "ST02", "KF1")
@pytest.mark.parametrize("ahead", [0.0, 366 * DAY, -366 * DAY])
async def test_the_servers_clock_says_when_an_answer_was_given_whatever_the_persons_machine_says(
    postgres_url: str, ahead: float
) -> None:
    paid: list[tuple[int, str]] = []
    async with open_journal(postgres_url) as journal:
        assert isinstance(journal, HasClock)
        approval = await asked(journal)
        clock = FakeClock(now=time.time())
        clock.shift(ahead)
        before = await journal.now()
        async with open_session(journal, id="w", clock=clock) as session:
            await session.answer(approval, "allow", by="ada")
        after = await journal.now()
        clock.shift(-2 * ahead)
        async with open_session(journal, id="w", clock=clock) as session:
            done = await payer(ScriptedModel([text("Paid.")]), paid, policy=ask("pay")).resume(session)
            [answered] = [event for event in await session.events() if isinstance(event, ApprovalAnswered)]
    assert (done.reason, len(paid)) == ("completed", 1)
    assert answered.given_at is not None
    assert before is not None
    assert after is not None
    assert before <= answered.given_at <= after


@pytest.mark.row("P06")
async def test_a_denial_holds_though_the_call_is_not_what_it_was_when_a_person_denied_it() -> None:
    paid: list[tuple[int, str]] = []
    async with open_session("memory:", id="w") as session:
        paused = await payer(ScriptedModel([[call("pay", amount=7)]]), policy=ask("pay")).run("Pay 7", session=session)
        await session.answer(paused.approvals[0].id, "deny", reason="Not this month.", by="ada")
        changed = msgspec.structs.replace(pay_tool(paid), output_schema={"type": "string"})
        done = await Agent(ScriptedModel([text("Well.")]), tools=[changed], policy=ask("pay")).resume(session)

    assert (done.completed, [one.status for one in done.tool_calls], paid) == (True, ["denied"], [])
    assert "Not this month." in done.messages[-2].results[0].content


class Outrun(MemoryJournal):
    """A store in which somebody else's answer arrives a moment before ours."""

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        if isinstance(message, LeftAnswer) and message.approved_by != "bob":
            await super().put(session_id, msgspec.structs.replace(message, approved_by="bob"))
        return await super().put(session_id, message)


async def test_an_answer_that_comes_a_moment_after_another_is_refused_and_names_who_was_first() -> None:
    async with open_session(Outrun()) as session:
        paused = await payer(ScriptedModel([call("pay", amount=7)]), policy=ask("pay")).run("Pay", session=session)
        with pytest.raises(UnknownApproval, match="by bob"):
            await session.answer(paused.approvals[0].id, "allow", by="ada")


async def test_a_request_that_was_replaced_twice_is_answered_by_its_newest_id_alone() -> None:
    paid: list[tuple[int, str]] = []
    model = ScriptedModel([call("pay", amount=7), text("Paid.")])
    async with open_session("memory:") as session:
        agent = payer(model, paid, policy=ask("pay"))
        first = waiting = (await agent.run("Pay", session=session)).approvals[0]
        for _ in range(2):
            await session.answer(waiting.id, "allow", arguments={"amount": "many"})
            waiting = (await agent.resume(session)).approvals[0]
            assert waiting.replaces == first.id
        with pytest.raises(UnknownApproval, match=f"could not be used, so '{waiting.id}' has replaced it"):
            await session.answer(first.id, "allow")
        await session.answer(waiting.id, "allow", arguments={"amount": 8})
        done = await agent.resume(session)
    assert done.completed
    assert [amount for amount, _ in paid] == [8]


# --- records are whole


def test_what_a_suspended_call_asks_is_recorded_with_every_field_of_the_request() -> None:
    approval = Approval(
        id="a", session_id="child", call_id="c", tool="pay", arguments={"n": 1}, digest="d", effect=Effect.KEYED,
        requested_at=3.0, expires_at=4.0, rule="ask pay", reason="Why.", replaces="first", approval_type="unfit_edit",
        action="Pay 1", target="bank", risk="payment", preview=Preview(text="1"), expected_result="Paid.",
        rollback="Ask for it.", scope="session", rules=("pay(n=1)",), path=("clerk",), edited={"n": 2}, lifted=("ask rm",),
    )  # fmt: skip

    (asked,) = Suspended("a person", approvals=[approval]).event(call_id="top", tool="clerk").asks

    renamed = {"id": "approval_id", "requested_at": "at"}
    not_recorded = {"answer", "root_id"}
    fields = [name for name in Approval.__struct_fields__ if name not in not_recorded]
    defaults = ApprovalRequested(approval_id="", tool="", arguments={}, digest="", effect=Effect.READ, expires_at=0.0)
    for name in fields:
        stored = renamed.get(name, name)
        assert getattr(asked, stored) == getattr(approval, name), name
        assert getattr(asked, stored) != getattr(defaults, stored), f"{name}: the test must not use a default"


# --- sessions that carry out the calls of others


async def test_a_second_answer_to_the_question_of_a_child_of_a_child_says_who_was_first(journal: Any) -> None:
    clerk = Agent(ScriptedModel([call("pay", amount=1), text("Paid.")]), tools=[pay_tool([])], policy=ask("pay"))
    agent = called_through(clerk, "clerk", "office")
    async with open_session(journal, id="top") as session:
        paused = await agent.run("Pay 1", session=session)
        (approval,) = paused.approvals
        await session.answer(approval.id, "allow", by="ada")
        result = await agent.resume(session)

        assert result.text == "Done."
        with pytest.raises(UnknownApproval, match="ada"):
            await session.answer(approval.id, "deny", by="bob")


# --- the store's clock, which is not the machine's

LASTS = 600.0


class Elsewhere(MemoryJournal):
    """A journal whose server's clock differs from the machine's."""

    def __init__(self, clock: FakeClock, ahead_seconds: float) -> None:
        super().__init__()
        self._clock, self._ahead = clock, ahead_seconds

    async def now(self) -> float:
        return self._clock.now() + self._ahead


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
@pytest.mark.parametrize("approver", [None, lambda approval: "allow"], ids=["a person", "an approver"])
async def test_a_request_for_consent_and_its_answer_are_timed_by_the_stores_clock(approver: Any, ahead: float) -> None:
    clock = FakeClock()
    model, tools = ScriptedModel([call("act"), text("Done.")]), [act(Recorder(), permission=None)]
    agent = Agent(model, tools=tools, policy=ask("act"), approver=approver, approval_seconds=LASTS)
    async with open_session(Elsewhere(clock, ahead), id="s", clock=clock) as session:
        done = await agent.run("go", session=session)
        if approver is None:
            await session.answer(done.approvals[0].id, "allow")
            done = await agent.resume(session)
        events = await session.events()

    assert [one.expires_at for one in events if isinstance(one, ApprovalRequested)] == [clock.now() + ahead + LASTS]
    assert [one.given_at for one in events if isinstance(one, ApprovalAnswered)] == [clock.now() + ahead]
    assert done.completed


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
