"""What every journal promises, whatever it is made of: the same tests run over all of them."""

import asyncio
import hashlib

import pytest
from journal_events import TASK, fold, note, notes, one_of_each, whole_session

from treadle.errors import (
    ConfigurationError,
    JournalError,
    SessionConflict,
    SessionExists,
    SessionHeld,
    UnknownSession,
)
from treadle.events import ContextCompacted, ContractViolated, ModelDelta, RunStarted, SessionChanged, SessionForked
from treadle.messages import Message, Result, user_message
from treadle.ports import InboxMessage, Journal, SessionInfo
from treadle.state import LeftAnswer, LeftMessage


def message(message_id: str, text: str = "hello") -> InboxMessage:
    return LeftMessage(id=message_id, text=text)


# --- sessions and events ---------------------------------------------------------------------------------------------


async def test_a_session_is_made_once(journal: Journal):
    assert await journal.create("s") is True
    assert await journal.create("s") is False


@pytest.mark.parametrize("session_id", ["", "a\nb", "a\0b", "\ud800", "x" * 201, "\x1b[31m"])
async def test_an_id_that_cannot_be_listed_is_refused(journal: Journal, session_id: str):
    with pytest.raises(ConfigurationError, match="session id"):
        await journal.create(session_id)
    assert await journal.sessions() == ()


@pytest.mark.row("AT-DATA-SQL")
@pytest.mark.parametrize(
    "name",
    ["s'; DROP TABLE event; --", "' OR '1'='1", '"', "%", "_", "\\", "s\\'", "$1", "?", ":id", "%s", "{x}", "/*", "s;"],
)
async def test_an_id_is_a_name_whatever_signs_of_sql_it_holds(journal: Journal, name: str):
    assert await journal.create("s")
    assert await journal.create(name)
    await journal.append("s", notes(1, 2), state="active", durable=True)
    await journal.append(name, notes(1, 3), state="active", durable=True)
    await journal.put(name, message("m'; --"))

    assert (await journal.read("s"), await journal.read(name)) == (notes(1, 2), notes(1, 3))
    assert ([one.id for one in await journal.inbox(name)], await journal.inbox("s")) == (["m'; --"], ())
    assert {one.id for one in await journal.sessions()} == {"s", name}


async def test_every_kind_of_event_is_read_back_as_it_was(journal: Journal):
    await journal.create("s")
    await journal.append("s", one_of_each(), state="completed", durable=True)

    assert await journal.read("s") == one_of_each()


@pytest.mark.row("Q01", "Q15")
async def test_all_messages_of_a_run_are_read_back_in_order(journal: Journal):
    await journal.create("s")
    for event in whole_session("s"):
        await journal.append("s", [event], state="running", durable=False)

    state = fold("s", await journal.read("s"))

    assert [said.role for said in state.messages] == ["user", "assistant", "tool", "assistant"]
    assert state.messages[0] == user_message(TASK)
    result = Result(call_id="call_1", name="weather", content='{"sky": "sunny"}')
    assert state.messages[2] == Message(role="tool", parts=(result,))
    assert state.run_status == "completed"


@pytest.mark.row("Q02")
async def test_a_call_and_its_result_are_events_of_their_own(journal: Journal):
    await journal.create("s")
    await journal.append("s", whole_session("s"), state="completed", durable=True)

    of_the_call = [(event.seq, event.type) for event in await journal.read("s") if event.call_id == "call_1"]

    assert of_the_call == [(5, "call.decided"), (6, "tool.started"), (7, "tool.finished")]


async def test_only_events_after_a_number_are_read(journal: Journal):
    await journal.create("s")
    await journal.append("s", notes(1, 5), state="running", durable=False)

    assert await journal.read("s", after=3) == notes(4, 5)
    assert await journal.read("s", after=5) == ()
    assert await journal.read("s", after=99) == ()
    assert await journal.read("s", after=-1) == notes(1, 5)


async def test_an_unknown_session_has_no_events_and_takes_none(journal: Journal):
    assert await journal.read("nobody") == ()
    with pytest.raises(UnknownSession, match="nobody"):
        await journal.append("nobody", notes(1, 1), state="running", durable=True)
    assert await journal.read("nobody") == ()
    assert await journal.sessions() == ()


@pytest.mark.parametrize("first", [1, 2, 4, 9], ids=["first again", "head again", "one left out", "far ahead"])
async def test_an_append_that_does_not_follow_the_head_writes_nothing(journal: Journal, first: int):
    await journal.create("s")
    await journal.append("s", notes(1, 2), state="running", durable=True)

    with pytest.raises(SessionConflict, match="is at event 2"):
        await journal.append("s", notes(first, first + 1), state="failed", durable=True)

    assert await journal.read("s") == notes(1, 2)
    assert (await journal.sessions())[0].run_status == "running"


@pytest.mark.parametrize(
    "events",
    [
        (note(1), note(3)),
        (note(2), note(1)),
        (note(1), note(1)),
        (note(0),),
        (note(-1), note(0)),
        (ModelDelta(text="x"),),
    ],
    ids=["gap", "backwards", "twice", "zero", "negative", "live"],
)
async def test_events_numbered_wrongly_are_a_mistake_of_the_program(journal: Journal, events):
    await journal.create("s")
    with pytest.raises(ConfigurationError, match="number"):
        await journal.append("s", events, state="running", durable=True)
    assert await journal.read("s") == ()


async def test_an_append_without_events_changes_the_state_alone(journal: Journal):
    await journal.create("s")
    await journal.append("s", notes(1, 1), state="running", durable=True)
    await journal.append("s", (), state="paused", durable=True)

    assert await journal.sessions() == (SessionInfo(id="s", run_status="paused", head=1, updated_at=1.0),)


async def test_of_many_appends_with_one_number_exactly_one_is_stored(journal: Journal):
    await journal.create("s")
    offers = [note(1, f"offer {number}") for number in range(20)]

    outcomes = await asyncio.gather(
        *(journal.append("s", [offer], state="running", durable=True) for offer in offers), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes].count(SessionConflict) == 19
    assert await journal.read("s") == (offers[outcomes.index(None)],)


async def test_many_sessions_at_once_keep_each_its_own_order(journal: Journal):
    async def live(session_id: str) -> None:
        await journal.create(session_id)
        for seq in range(1, 21):
            await journal.append(session_id, [note(seq, session_id)], state="running", durable=seq % 3 == 0)

    names = [f"s{number}" for number in range(50)]
    await asyncio.gather(*map(live, names))

    for name in names:
        assert await journal.read(name) == tuple(note(seq, name) for seq in range(1, 21))


# --- the list of sessions --------------------------------------------------------------------------------------------


async def test_sessions_are_listed_the_last_changed_first(journal: Journal):
    for name, at in (("old", 10.0), ("new", 30.0), ("middle", 20.0)):
        await journal.create(name)
        await journal.append(name, [note(1, at=at)], state="completed", durable=False)
    await journal.append("old", [note(2, at=40.0)], state="paused", durable=False)

    assert [(info.id, info.run_status, info.head, info.updated_at) for info in await journal.sessions()] == [
        ("old", "paused", 2, 40.0),
        ("new", "completed", 1, 30.0),
        ("middle", "completed", 1, 20.0),
    ]


async def test_a_session_without_events_is_active(journal: Journal):
    await journal.create("s")
    (info,) = await journal.sessions()
    assert (info.run_status, info.head, info.task) == ("active", 0, "")
    assert info.updated_at > 0


async def test_a_session_is_named_by_the_first_words_of_its_first_task(journal: Journal):
    await journal.create("s")
    first = RunStarted(seq=1, at=1.0, task="\x1b[31mPay\n\tthe   rent \u202e now " + "and again " * 50)
    await journal.append("s", [first], state="running", durable=False)
    await journal.append("s", [RunStarted(seq=2, at=2.0, task="another")], state="running", durable=False)

    (info,) = await journal.sessions()

    assert info.task.startswith("[31mPay the rent now and again")
    assert len(info.task) <= 80
    assert info.task.isprintable()


# --- the inbox -------------------------------------------------------------------------------------------------------


async def test_messages_wait_in_order_of_arrival_until_they_are_consumed(journal: Journal):
    await journal.create("s")
    for name in ("b", "a", "c"):
        assert await journal.put("s", message(name)) is True

    assert await journal.inbox("s") == (message("b"), message("a"), message("c"))
    await journal.consume("s", ["a", "b"], 7)
    assert await journal.inbox("s") == (message("c"),)
    await journal.consume("s", ["a", "unheard of"], 8)
    assert await journal.inbox("s") == (message("c"),)


async def test_the_first_of_two_messages_with_one_id_wins_even_when_consumed(journal: Journal):
    await journal.create("s")
    await journal.create("other")
    assert await journal.put("s", message("m", "first")) is True
    assert await journal.put("s", message("m", "second")) is False
    assert await journal.inbox("s") == (message("m", "first"),)

    await journal.consume("s", ["m"], 1)

    assert await journal.put("s", message("m", "third")) is False
    assert await journal.inbox("s") == ()
    assert await journal.put("other", message("m", "its own")) is True


async def test_of_many_answers_at_once_exactly_one_is_kept(journal: Journal):
    await journal.create("s")
    answers = [LeftAnswer(id="approval_1", reason=str(number)) for number in range(20)]

    won = await asyncio.gather(*(journal.put("s", answer) for answer in answers))

    assert won.count(True) == 1
    assert await journal.inbox("s") == (answers[won.index(True)],)


async def test_an_unknown_session_has_no_inbox(journal: Journal):
    assert await journal.inbox("nobody") == ()
    with pytest.raises(UnknownSession):
        await journal.put("nobody", message("m"))
    with pytest.raises(UnknownSession):
        await journal.consume("nobody", ["m"], 1)


# --- leases ----------------------------------------------------------------------------------------------------------


def nothing() -> None:
    """Notice nothing."""


async def test_a_session_is_held_by_one_until_it_is_given_back(journal: Journal):
    await journal.create("s")
    lease = await journal.acquire("s", on_lost=nothing, on_message=nothing)
    with pytest.raises(SessionHeld, match=r"'s' is (being run|already running)"):
        await journal.acquire("s", on_lost=nothing, on_message=nothing)
    await journal.append("s", notes(1, 1), state="running", durable=True)
    await lease.release()
    await lease.release()

    again = await journal.acquire("s", on_lost=nothing, on_message=nothing)
    await journal.append("s", notes(2, 2), state="running", durable=True)
    await again.release()
    await journal.append("s", notes(3, 3), state="running", durable=True)

    assert await journal.read("s") == notes(1, 3)


async def test_an_unknown_session_cannot_be_held(journal: Journal):
    with pytest.raises(UnknownSession, match="nobody"):
        await journal.acquire("nobody", on_lost=nothing, on_message=nothing)


async def test_of_many_who_want_a_session_at_once_one_has_it(journal: Journal):
    await journal.create("s")
    taken = await asyncio.gather(
        *(journal.acquire("s", on_lost=nothing, on_message=nothing) for _ in range(10)), return_exceptions=True
    )

    assert [type(one) for one in taken].count(SessionHeld) == 9
    [lease] = [one for one in taken if not isinstance(one, BaseException)]
    await lease.release()


async def test_whoever_holds_a_session_is_told_of_its_messages_and_of_no_others(journal: Journal):
    await journal.create("s")
    await journal.create("other")
    arrived = asyncio.Event()
    lease = await journal.acquire("s", on_lost=nothing, on_message=arrived.set)
    others = await journal.acquire("other", on_lost=nothing, on_message=nothing)
    await journal.put("other", message("m"))
    assert not arrived.is_set()
    await journal.put("s", message("m"))
    await arrived.wait()
    assert await journal.inbox("s") == (message("m"),)
    await others.release()
    await lease.release()


# --- whole sessions --------------------------------------------------------------------------------------------------

FORK = (*notes(1, 2), SessionForked(seq=3, at=3.0, parent_id="mother", parent_seq=2))


async def test_a_session_is_adopted_whole(journal: Journal):
    await journal.adopt("child", FORK, state="stopped", inbox=[message("a"), message("b")])

    assert await journal.read("child") == FORK
    assert await journal.inbox("child") == (message("a"), message("b"))
    assert await journal.sessions() == (
        SessionInfo(id="child", run_status="stopped", head=3, updated_at=3.0, parent_id="mother", parent_seq=2),
    )
    await journal.append("child", notes(4, 4), state="running", durable=True)


async def test_a_session_that_exists_is_not_adopted(journal: Journal):
    await journal.create("child")
    with pytest.raises(SessionExists, match="'child'"):
        await journal.adopt("child", FORK, state="stopped", inbox=[message("a")])
    with pytest.raises(SessionConflict):
        await journal.adopt("other", notes(2, 3), state="stopped")

    assert await journal.read("child") == ()
    assert await journal.inbox("child") == ()
    assert [info.id for info in await journal.sessions()] == ["child"]


async def test_what_people_made_of_a_session_is_listed(journal: Journal):
    await journal.create("s")
    await journal.append("s", [SessionChanged(seq=1, at=1.0, status="suspended")], state="active", durable=True)
    await journal.append("s", notes(2, 2), state="active", durable=True)
    assert [info.status for info in await journal.sessions()] == ["suspended"]


async def test_of_a_purged_session_only_the_fact_remains(journal: Journal):
    own, shared, alone = [await journal.put_blob(content) for content in (b"own", b"shared", b"alone")]
    for name, named, broken in (("s", (own, shared), alone), ("other", (shared,), None), ("third", (), alone)):
        events = [
            ContextCompacted(seq=1, at=1.0, artifacts=named),
            ContractViolated(seq=2, at=2.0, tool="t", artifact=broken, details=({"artifact": "0" * 64},)),
        ]
        await journal.create(name)
        await journal.append(name, events, state="completed", durable=True)
    await journal.put("s", message("m"))
    tombstone = SessionChanged(seq=1, at=9.0, status="deleted")

    await journal.purge("s", tombstone, blobs=[own, shared, alone])

    assert await journal.read("s") == (tombstone,)
    assert await journal.inbox("s") == ()
    assert [await journal.blob(one) for one in (own, shared, alone)] == [None, b"shared", b"alone"]
    gone, third, other = await journal.sessions()
    assert (gone.id, gone.run_status, gone.status, gone.head) == ("s", "deleted", "deleted", 1)
    assert [(one.id, one.head) for one in (third, other)] == [("third", 2), ("other", 2)]
    assert await journal.create("s") is False
    with pytest.raises(UnknownSession):
        await journal.purge("nobody", tombstone, blobs=[shared])
    assert await journal.blob(shared) == b"shared"


# --- blobs, and the end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff" * 1000, bytearray(b"changes later"), b"0123456789" * 300_000 + b"end"]
)
async def test_bytes_are_stored_by_their_digest(journal: Journal, content):
    kept = bytes(content)
    digest = await journal.put_blob(content)

    assert digest == hashlib.sha256(kept).hexdigest()
    assert await journal.put_blob(content) == digest
    assert await journal.blob(digest) == kept
    assert await journal.blob("0" * 64) is None


async def test_a_journal_is_closed_twice_and_then_refuses(journal: Journal):
    await journal.create("s")
    await journal.close()
    await journal.close()

    with pytest.raises(JournalError, match="closed"):
        await journal.append("s", notes(1, 1), state="running", durable=False)
    with pytest.raises(JournalError, match="closed"):
        await journal.read("s")
    with pytest.raises(JournalError, match="closed"):
        await journal.flush()


async def test_a_journal_says_where_it_is(journal: Journal):
    assert journal.location
