"""The inbox of a session: how often a busy run asks the store, what it takes in, and what stays for another run."""

import asyncio

import pytest
from session_tools import waiting_session

from treadle import open_session
from treadle.events import ApprovalAnswered, MessageAdded
from treadle.journals.memory import MemoryJournal
from treadle.ports import InboxMessage
from treadle.sessions.inbox import Inbox
from treadle.sessions.session import Session
from treadle.state import LeftAnswer, LeftCancellation, LeftMessage, inbox_message
from treadle.testing import FakeClock

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
        assert await look is False

    assert found == [("Hurry up", "steer")]
