"""The inbox of a session: how often a busy run asks the store, what it takes in, and what stays for another run."""

import asyncio
from typing import Any

import msgspec
import pytest
from session_tools import waiting_session

from treadle import (
    open_session,
)
from treadle.events import (
    ApprovalAnswered,
    MessageAdded,
    ModeChanged,
    RulesGranted,
)
from treadle.journals.memory import MemoryJournal
from treadle.ports import InboxMessage
from treadle.sessions.inbox import Inbox, answer_events, plan_ended
from treadle.sessions.session import Session
from treadle.state import Approval, LeftAnswer, LeftCancellation, LeftMessage, answer_id, inbox_message
from treadle.testing import FakeClock
from treadle.tools import Effect

pytestmark = pytest.mark.unchecked("the inbox alone is read, where no run is under way")


class Counting(MemoryJournal):
    """A journal that counts how often its inboxes were asked."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    async def inbox(self, session_id: str) -> tuple[InboxMessage, ...]:
        self.looks += 1
        return tuple(await super().inbox(session_id))


def said(name: str, words: str = "Hurry up") -> InboxMessage:
    return LeftMessage(id=name, text=words)


def cancelling(name: str, run_id: str | None = None) -> InboxMessage:
    return LeftCancellation(id=name, run_id=run_id or "")


async def texts(session: Session) -> list[tuple[str, str]]:
    return [(event.message.text, event.source) for event in await session.events() if isinstance(event, MessageAdded)]


async def test_a_busy_run_asks_the_store_first_at_once_and_then_four_times_a_second() -> None:
    clock, journal = FakeClock(), Counting()
    async with open_session(journal, id="s", clock=clock) as session:
        inbox = Inbox(session.ledger)
        looks = []
        for seconds in (0.0, 0.125, 0.0625, 0.0625, 0.125, 0.125):
            clock.advance(seconds)
            before = journal.looks
            await inbox.read()
            looks.append(journal.looks - before)

    assert looks == [1, 0, 0, 1, 0, 1]


async def test_an_inbox_that_was_just_seen_empty_is_asked_a_quarter_of_a_second_later() -> None:
    clock, journal = FakeClock(), Counting()
    async with open_session(journal, id="s", clock=clock) as session:
        inbox = Inbox(session.ledger, is_empty=True)
        await journal.put("s", said("m1"))
        before = journal.looks
        await inbox.read()
        early = journal.looks - before
        clock.advance(0.25)
        await inbox.read()

    assert (early, journal.looks - before) == (0, 1)
    assert await texts(session) == [("Hurry up", "steer")]


async def test_a_nudge_and_an_urgent_look_do_not_wait() -> None:
    clock, journal = FakeClock(), Counting()
    async with open_session(journal, id="s", clock=clock) as session:
        inbox = Inbox(session.ledger)
        await inbox.read()
        before = journal.looks
        await inbox.read(at_once=True)
        inbox.nudge()
        await inbox.read()

    assert journal.looks - before == 2


async def test_a_message_enters_once_and_is_consumed() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s", clock=FakeClock()) as session:
        await journal.put("s", said("m1"))
        assert not await Inbox(session.ledger).read()
        assert await journal.inbox("s") == ()
        await journal.put("s", said("m1"))  # the same one again: whoever sent it did not hear that it had arrived
        await Inbox(session.ledger).read()

    assert await texts(session) == [("Hurry up", "steer")]
    assert await journal.inbox("s") == ()


async def test_a_cancellation_is_seen_by_its_own_run_alone_and_stays_until_that_run_has_ended() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s", clock=FakeClock()) as session:
        session.ledger.run_id = "r2"
        await journal.put("s", cancelling("c1", "r1"))
        assert not await Inbox(session.ledger).read()
        await journal.put("s", cancelling("c2", "r2"))
        assert await Inbox(session.ledger).read()

    assert [message.id for message in await journal.inbox("s")] == ["c2"]


@pytest.mark.parametrize(("but_of", "left"), [(None, ["m1"]), ("r1", ["c1", "c0", "m1"]), ("r2", ["c2", "c0", "m1"])])
async def test_cancellations_are_dropped_but_those_of_a_run_that_has_not_ended(
    but_of: str | None, left: list[str]
) -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s", clock=FakeClock()) as session:
        for message in (cancelling("c1", "r1"), cancelling("c2", "r2"), cancelling("c0"), said("m1")):
            await journal.put("s", message)
        await Inbox(session.ledger).drop_cancels(but_of=but_of, continues=True)

    assert [message.id for message in await journal.inbox("s")] == left


async def test_cancellations_of_a_run_that_a_new_one_follows_stay_until_that_is_recorded_and_do_not_cancel_it() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s", clock=FakeClock()) as session:
        for message in (cancelling("c1", "r1"), cancelling("c2", "r2"), cancelling("c0"), said("m1")):
            await journal.put("s", message)
        inbox = Inbox(session.ledger)
        await inbox.drop_cancels(but_of="r1")
        session.ledger.run_id = "r1"  # until the new run has its id
        assert [message.id for message in await journal.inbox("s")] == ["c1", "m1"]
        assert not await inbox.look()
        await inbox.drop_superseded()

    assert [message.id for message in await journal.inbox("s")] == ["m1"]


async def test_looking_for_a_cancellation_consumes_nothing_and_has_the_rest_read_at_once() -> None:
    clock, journal = FakeClock(), Counting()
    async with open_session(journal, id="s", clock=clock) as session:
        inbox = Inbox(session.ledger)
        assert not await inbox.look()
        await journal.put("s", said("m1"))
        assert not await inbox.look()
        assert [message.id for message in await journal.inbox("s")] == ["m1"]
        before = journal.looks
        await inbox.read()

    assert journal.looks - before == 1
    assert await texts(session) == [("Hurry up", "steer")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"answer": "allow"}, ("allow", "", "person", None, None)),
        ({"answer": "maybe", "reason": "No money"}, ("deny", "No money", "person", None, None)),
        ({}, ("deny", "", "person", None, None)),
        (
            {"answer": "allow", "approved_by": "ada", "arguments": {"amount": 5}, "at": 12.5},
            ("allow", "", "ada", {"amount": 5}, 12.5),
        ),
        ({"answer": "allow", "arguments": "amount=5", "at": "noon"}, ("allow", "", "person", None, None)),
    ],
)
async def test_an_answer_allows_only_where_it_says_so(body: dict[str, object], expected: tuple[object, ...]) -> None:
    journal = MemoryJournal()
    await waiting_session(journal)
    async with open_session(journal, id="w") as session:
        approval = session.approvals()[0]
        await journal.put("w", inbox_message(f"answer:{approval.id}", "answer", body))
        await Inbox(session.ledger).read(at_once=True)
        answered = [event for event in await session.events() if isinstance(event, ApprovalAnswered)]

    assert [(one.answer, one.reason, one.approved_by, one.arguments, one.given_at) for one in answered] == [expected]
    assert [one.call_id for one in answered] == [approval.call_id]
    # What people say meanwhile waits for the results of the open step.
    assert [message.kind for message in await journal.inbox("w")] == ["message"]


async def test_an_answer_to_no_question_is_consumed_and_answers_nothing() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s", clock=FakeClock()) as session:
        await journal.put("s", LeftAnswer(id="answer:ap_gone", answer="allow"))
        await Inbox(session.ledger).read()
        types = [event.type for event in await session.events()]

    assert "approval.answered" not in types
    assert await journal.inbox("s") == ()


class Slow(MemoryJournal):
    """A journal whose first look into an inbox takes until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.gate = asyncio.Event(), asyncio.Event()

    async def inbox(self, session_id: str) -> tuple[InboxMessage, ...]:
        found = tuple(await super().inbox(session_id))
        if not self.asked.is_set():
            self.asked.set()
            await self.gate.wait()
        return found


@pytest.mark.row("ST11")
async def test_a_look_for_a_cancellation_keeps_no_reader_from_what_has_arrived() -> None:
    journal = Slow()
    async with open_session(journal, id="s", clock=FakeClock()) as session:
        inbox = Inbox(session.ledger, is_empty=True)
        await journal.put("s", said("m1"))
        inbox.nudge()
        look = asyncio.ensure_future(inbox.look())
        await journal.asked.wait()
        await inbox.read()
        found = await texts(session)
        journal.gate.set()
        assert await look is None

    assert found == [("Hurry up", "steer")]


# --- which facts a message becomes

PLAIN = Approval(
    id="a1", session_id="s", call_id="c1", tool="pay", arguments={}, digest="d", effect=Effect.UNSAFE, requested_at=1.0,
    expires_at=99.0,
)  # fmt: skip
RULED = msgspec.structs.replace(PLAIN, rules=("pay(to=ada)",))
PLAN = msgspec.structs.replace(PLAIN, approval_type="plan")


def left(answer: Any = "allow", **words: Any) -> LeftAnswer:
    return LeftAnswer(id=answer_id(PLAIN), approval_id="a1", answer=answer, approved_by="ada", at=50.0, **words)


def answered(answer: Any = "allow", **words: Any) -> ApprovalAnswered:
    return ApprovalAnswered(
        call_id="c1", approval_id="a1", answer=answer, approved_by="ada", given_at=50.0, **{"scope": "call", **words}
    )


GRANTED = RulesGranted(call_id="c1", rules=("pay(to=ada)",), scope="session", by="ada", approval_id="a1")
ENDED = ModeChanged(mode="ask", before="plan", by="ada", message_id=f"{answer_id(PLAIN)}_mode")


@pytest.mark.parametrize(
    ("approval", "message", "mode", "events"),
    [
        (PLAIN, left(reason="Fine."), None, [answered(reason="Fine.", expires_at=99.0)]),
        (PLAIN, left("deny", reason="No.", interrupt=True), None, [answered("deny", reason="No.", interrupt=True)]),
        (PLAIN, left(arguments={"n": 1}), None, [answered(arguments={"n": 1}, expires_at=99.0)]),
        (PLAIN, left(scope="session"), None, [answered(expires_at=99.0)]),
        (RULED, left(scope="session"), None, [answered(scope="session"), GRANTED]),
        (RULED, left(scope="rule"), None, [answered(scope="rule"), msgspec.structs.replace(GRANTED, scope="rule")]),
        (RULED, left(), None, [answered(expires_at=99.0)]),
        (RULED, left("deny", scope="session"), None, [answered("deny")]),
        (RULED, left(scope="session", arguments={"n": 1}), None, [answered(arguments={"n": 1}, expires_at=99.0)]),
        (PLAN, left(), "plan", [answered(expires_at=99.0), ENDED]),
        (PLAN, left(), "ask", [answered(expires_at=99.0)]),
        (PLAN, left(), None, [answered(expires_at=99.0)]),
        (PLAN, left("deny"), "plan", [answered("deny")]),
        (PLAN, left(arguments={"n": 1}), "plan", [answered(arguments={"n": 1}, expires_at=99.0)]),
        (PLAIN, left(), "plan", [answered(expires_at=99.0)]),
        (msgspec.structs.replace(PLAIN, id="a2"), left(), None, []),
    ],
)
def test_an_answer_becomes_what_it_allows_and_no_more(approval: Any, message: Any, mode: Any, events: Any) -> None:
    other = msgspec.structs.replace(PLAIN, id="a0", call_id="c0")
    assert answer_events(message, [other, approval], mode=mode) == events


@pytest.mark.parametrize(
    ("by", "ends"), [("ada", True), ("approver:f", False), ("policy:P", False), ("an approver: f", True)]
)
def test_a_plan_is_ended_by_a_person_alone(by: str, ends: bool) -> None:
    assert bool(plan_ended(by, "x")) == ends
