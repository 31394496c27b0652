"""Export, import and move: a session goes to another journal whole, or not at all; a move closes the source first."""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_tools import Bank, long_tool, payer, stored_session, waiting_session

from pipeline_tools import Recorder, act, called_through
from treadle import Agent, Budget, ConfigurationError, Done, SessionHeld, ask, open_session
from treadle.errors import JournalError, NoSuchPoint, SessionExists, SessionMoved, SessionNotActive
from treadle.events import AnyEvent, MessageAdded
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.messages import user_message
from treadle.ports import Journal
from treadle.redaction import Redactor
from treadle.resolve.archives import import_session, list_doubts
from treadle.sessions.maintenance import Parcel, fold, pack, pack_redacted, unpack
from treadle.state import inbox_message
from treadle.state.session import sums
from treadle.testing import FaultyJournal, ScriptedModel, call, text


def value_of(events: Sequence[AnyEvent]) -> dict[str, Any]:
    return sums(fold("s", events))


async def exported(journal: Journal, name: str = "s") -> list[bytes]:
    async with open_session(journal, id=name) as session:
        return list(await session.export())


@pytest.mark.row("Q11")
async def test_a_session_that_waits_for_a_person_goes_on_in_another_journal(journal: Journal, tmp_path: Path) -> None:
    session = await waiting_session(journal, "s")
    await session.answer(session.approvals()[0].id, "allow")
    lines = await exported(journal)
    other = SqliteJournal(tmp_path / "other.db")
    paid: list[tuple[int, str]] = []
    assert await import_session(other, lines, take_open=True) == "s"
    async with open_session(other, id="s") as moved:
        assert sums(moved.state) == sums(session.state)
        assert [message.kind for message in await other.inbox("s")] == ["message", "answer"]
        model = ScriptedModel([text("Paid 7.")])
        result = await payer(model, paid, policy=ask("pay")).resume(moved)
    await other.close()

    assert result.completed
    assert [amount for amount, _ in paid] == [7]
    assert "Hurry up" in [message.text for message in model.requests[0].messages]


async def recorded() -> list[Sequence[AnyEvent]]:
    """Return the events of sessions with all that lasts: approvals, denials, streaks, stops, rewinds, changes."""
    journal = MemoryJournal()
    await stored_session(journal, "paid")
    await waiting_session(journal, "waits")
    async with open_session(journal, id="stopped") as session:
        model = ScriptedModel([call("look"), call("pay", amount="x"), call("nope"), "{", text("never")])
        await payer(model, budget=Budget(max_model_turns=3), on_limit="report").run("Look", session=session)
        await session.change(status="suspended", metadata={"a": [1, None], "b": "ü"})
        await session.mark("here")
        await session.rewind(2)
    return [await journal.read(name) for name in ("paid", "waits", "stopped")]


@pytest.mark.row("Q11")
@pytest.mark.parametrize("which", [0, 1, 2])
async def test_every_beginning_of_a_session_folds_to_the_same_state_after_export_and_import(which: int) -> None:
    events = (await recorded())[which]
    for end in range(len(events) + 1):
        parcel = unpack(list(pack(Parcel(session_id="s", events=tuple(_own(events[:end]))))))
        journal = MemoryJournal()
        await import_session(journal, list(pack(parcel)), take_open=True)

        assert value_of(await journal.read("s")) == value_of(_own(events[:end]))


def _own(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    from treadle.sessions.maintenance import renamed

    return renamed(events, "s")


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.row("Q11")
@settings(max_examples=30)
@given(
    inbox=st.dictionaries(st.text(min_size=1, max_size=9), st.dictionaries(st.text(max_size=5), _json, max_size=3), max_size=3),
    blobs=st.lists(st.binary(max_size=64), max_size=3),
)  # fmt: skip
def test_messages_and_stored_bytes_come_through_unchanged(inbox: dict[str, Any], blobs: list[bytes]) -> None:
    try:
        json.dumps(inbox, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    parcel = Parcel(
        session_id="s",
        events=(),
        inbox=tuple(inbox_message(name, "message", body) for name, body in inbox.items()),
        blobs={hashlib.sha256(content).hexdigest(): content for content in blobs},
    )

    assert unpack(list(pack(parcel))) == parcel


async def test_a_long_result_is_there_in_full_after_an_import() -> None:
    ours, theirs = MemoryJournal(), MemoryJournal()
    async with open_session(ours, id="s") as session:
        model = ScriptedModel([call("long"), text("ok")])
        result = await Agent(model, tools=[long_tool()], budget=Budget(max_tool_result_chars=200)).run(
            "go", session=session
        )
    await import_session(theirs, await exported(ours))

    (finished,) = [event for event in await theirs.read("s") if event.type == "tool.finished"]
    assert result.completed
    assert await theirs.blob(finished.result.artifact) == b"line\n" * 5000  # type: ignore[union-attr]


async def test_an_id_that_is_there_is_refused_and_another_can_be_given(journal: Journal) -> None:
    await stored_session(journal)
    lines = await exported(journal)
    with pytest.raises(SessionExists, match="'s'"):
        await import_session(journal, lines)

    assert await import_session(journal, lines, id="copy") == "copy"
    assert {event.session_id for event in await journal.read("copy")} == {"copy"}


async def test_a_session_with_an_open_call_keeps_its_id(journal: Journal) -> None:
    await waiting_session(journal, "s")

    with pytest.raises(NoSuchPoint, match="under another id it could be done twice"):
        await import_session(MemoryJournal(), await exported(journal), id="copy")


@pytest.mark.row("Q11")
async def test_an_export_that_was_cut_or_changed_is_refused_and_leaves_nothing(journal: Journal) -> None:
    await stored_session(journal)
    lines = await exported(journal)
    header, second, third = (json.loads(line) for line in lines[:3])
    wrong: list[list[bytes | str]] = [
        lines[:-1],
        lines[1:],
        [lines[0], *lines[2:]],
        [*lines, lines[0]],
        [*lines[:3], b"{", *lines[4:]],
        [*lines[:3], b"\xff\xfe", *lines[4:]],
        [json.dumps({**header, "format": 99}), *lines[1:]],
        [json.dumps({**header, "session_id": "other"}), *lines[1:]],
        [lines[0], json.dumps({**second, "type": "brain.melted"}), *lines[2:]],
        [lines[0], json.dumps({**second, "seq": 7}), *lines[2:]],
        [lines[0], lines[1], json.dumps({**third, "session_id": "x"}), *lines[3:]],
        [json.dumps({**header, "blobs": 1}), *lines[1:], json.dumps({"type": "export.blob", "sha256": "00", "base64": "aa"})],
        [json.dumps({**header, "blobs": 1}), *lines[1:],
         json.dumps({"type": "export.blob", "sha256": "00", "base64": base64.b64encode(b"x").decode()})],
        [b"[" * 100_000],
        [],
        ["\n", ""],
    ]  # fmt: skip
    other = MemoryJournal()
    for given_lines in wrong:
        with pytest.raises(JournalError):
            await import_session(other, given_lines)

    assert await other.sessions() == ()


@pytest.mark.row("Q11")
async def test_a_store_that_fails_at_any_operation_has_the_whole_session_or_none(tmp_path: Path) -> None:
    ours = MemoryJournal()
    await stored_session(ours)
    lines = await exported(ours)
    for number in range(1, 9):
        store = SqliteJournal(tmp_path / f"{number}.db")
        faulty = FaultyJournal(store, fail_at=number, when="after" if number % 2 else "before")
        with suppress(JournalError):
            await import_session(faulty, lines)
        assert tuple(await store.read("s")) in ((), tuple(await ours.read("s")))
        assert len(await store.sessions()) in (0, 1)
        await store.close()
        if not faulty.has_failed:
            break


async def test_a_redacted_export_with_an_open_call_is_not_imported() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        agent = Agent(
            ScriptedModel([call("act", password="hunter2hunter2")]), tools=[act(Recorder())], policy=ask("act")
        )
        await agent.run("The password=hunter2hunter2", session=session)
        lines = await session.export(redactor=Redactor())

    with pytest.raises(
        JournalError, match=r"is redacted and has a call without a result.*Export it again with --exact"
    ):
        await import_session(MemoryJournal(), lines)


def test_stored_results_are_redacted_and_named_anew_only_where_they_hold_a_secret() -> None:
    plain, secret, strange = b"nothing to hide", b"password=hunter2hunter2", b"\xff\xfe no text \x80"
    blobs = {hashlib.sha256(one).hexdigest(): one for one in (plain, secret, strange)}
    event = MessageAdded(message=user_message(f"see {hashlib.sha256(secret).hexdigest()}"), session_id="s", seq=1)

    lines = list(pack_redacted(Parcel(session_id="s", events=(event,), blobs=blobs), Redactor()))
    parcel = unpack(lines)

    assert parcel.blobs[hashlib.sha256(plain).hexdigest()] == plain
    assert parcel.blobs[hashlib.sha256(strange).hexdigest()] == strange
    (hidden,) = parcel.blobs.keys() - blobs.keys()
    assert hashlib.sha256(parcel.blobs[hidden]).hexdigest() == hidden
    assert b"hunter2" not in b"".join(lines)
    assert f"see {hidden}" in str(msgspec.to_builtins(parcel.events[0]))


async def test_an_export_with_an_event_that_is_never_stored_cannot_be_read() -> None:
    async with open_session("memory:") as session:
        await payer(ScriptedModel([text("Hello.")])).run("Hi", session=session)
        lines = list(await session.export())
    parcel: Parcel = unpack(lines)
    live = b'{"type":"model.delta","seq":2,"session_id":"%b","text":"x","step":1}' % parcel.session_id.encode()
    with pytest.raises(JournalError, match="event 2 is missing"):
        unpack([lines[0], lines[1], live, *lines[3:]])


@pytest.mark.parametrize(
    ("lines", "number"), [([], 1), (["", "{}"], 2), (["", "", "no JSON"], 3)], ids=["none", "not a header", "no JSON"]
)
def test_what_is_no_export_is_refused_with_the_number_of_its_line(lines: list[str], number: int) -> None:
    with pytest.raises(JournalError, match=rf"[Ll]ine {number}\b"):
        unpack(lines)


@pytest.mark.parametrize(("task", "is_changed"), [("Pay invoice 7", False), ("The password=hunter2hunter2", True)])
def test_an_export_without_secrets_begins_with_a_header_that_says_whether_any_were_hidden(
    task: str, is_changed: bool
) -> None:
    event = MessageAdded(message=user_message(task), session_id="s", seq=1)
    parcel = Parcel(session_id="s", events=(event,), blobs={hashlib.sha256(b"all of it").hexdigest(): b"all of it"})
    lines = list(pack_redacted(parcel, Redactor()))
    assert msgspec.json.decode(lines[-1]) == msgspec.json.decode(list(pack(parcel))[-1])
    header = msgspec.json.decode(lines[0])

    assert (header["session_id"], header["events"], header.get("redacted", False)) == ("s", 1, is_changed)
    assert (lines == list(pack(parcel))) is not is_changed
    assert any(b"hunter2" in line for line in lines) is False


# --- moves


async def resumed(journal: Journal, paid: list[tuple[int, str]], name: str = "s") -> str:
    """Resume a session; return how it ended, or the name of the error."""
    async with open_session(journal, id=name) as session:
        try:
            done = await payer(ScriptedModel([text("Paid.")]), paid, policy=ask("pay")).resume(session)
        except SessionNotActive as refused:
            return type(refused).__name__
        return done.reason.value


@pytest.mark.row("H06")
async def test_the_lines_of_one_move_imported_at_two_places_act_at_the_one_that_a_person_names(
    journal: Journal,
) -> None:
    source, paid = await waiting_session(journal, "s"), list[tuple[int, str]]()
    await source.answer(source.approvals()[0].id, "allow")
    lines = await source.move("b")
    places = [MemoryJournal(), MemoryJournal()]
    for place in places:
        await import_session(place, lines)

    assert [await resumed(place, paid) for place in places] == ["SessionNotActive"] * 2
    async with open_session(places[1], id="s") as moved:
        await moved.change(status="active", by="ada")
    assert [await resumed(place, paid) for place in places] == ["SessionNotActive", "completed"]
    assert [amount for amount, _ in paid] == [7]


@pytest.mark.row("H06", "N14")
async def test_a_moved_session_acts_once_and_its_source_names_where_it_went(journal: Journal) -> None:
    source, target, paid = await waiting_session(journal, "s"), MemoryJournal(), list[tuple[int, str]]()
    [approval] = source.approvals()
    lines = await source.move("the other journal", by="ada")
    assert await import_session(target, lines, take_open=True) == "s"

    with pytest.raises(SessionMoved, match="was moved to the other journal and continues there"):
        await source.move("a third journal")
    assert await source.approvals() == await journal.approvals() == ()
    async with open_session(target, id="s") as moved:
        assert [one.id for one in await moved.approvals()] == [approval.id]
        await moved.answer(approval.id, "allow")

    assert (await resumed(journal, paid), await resumed(target, paid)) == ("SessionMoved", "completed")
    assert [amount for amount, _ in paid] == [7]


@pytest.mark.row("H06", "N14")
@pytest.mark.parametrize("answered", [False, True])
async def test_an_import_of_an_open_effect_is_suspended_until_its_source_is_closed(
    journal: Journal, answered: bool
) -> None:
    source, target, paid = await waiting_session(journal, "s"), MemoryJournal(), list[tuple[int, str]]()
    [approval] = source.approvals()
    if answered:
        await source.answer(approval.id, "allow")
    lines = await source.export()
    await import_session(target, lines)
    if not answered:
        for place in (journal, target):
            async with open_session(place, id="s") as session:
                await session.answer(approval.id, "allow")

    assert [await resumed(journal, paid), await resumed(target, paid)] == ["completed", "SessionNotActive"]
    assert [amount for amount, _ in paid] == [7]
    (info,) = await target.sessions()
    assert info.status == "suspended"


async def test_a_session_without_open_effects_is_imported_active(journal: Journal) -> None:
    await stored_session(journal)
    target = MemoryJournal()
    async with open_session(journal, id="s") as session:
        await import_session(target, await session.export())
    assert [info.own_status for info in await target.sessions()] == ["active"]


@pytest.mark.row("H06", "ST10")
async def test_a_call_in_doubt_moves_and_is_resolved_where_it_went(journal: Journal) -> None:
    bank, target = Bank(), MemoryJournal()
    await bank.break_off(journal)
    async with open_session(journal, id="s") as session:
        lines = await session.move("b")
    await import_session(target, lines, take_open=True)
    async with open_session(target, id="s") as session:
        await session.resolve("p", Done({"receipt": 1}))
        done = await bank.agent(text("Paid.")).resume(session)
    assert (done.reason, bank.paid) == ("completed", ["7"])
    assert await list_doubts(target) == ()


@pytest.mark.row("HF2", "ST04")
async def test_a_cancellation_goes_along(journal: Journal) -> None:
    source, target, paid = await waiting_session(journal, "s"), MemoryJournal(), list[tuple[int, str]]()
    await source.answer(source.approvals()[0].id, "allow")
    await source.cancel()
    await import_session(target, await source.move("b"), take_open=True)
    assert await target.approvals() == ()
    assert (await resumed(target, paid), paid) == ("cancelled", [])


@pytest.mark.row("H06")
async def test_a_move_can_be_repeated_and_taken_back(journal: Journal) -> None:
    source, paid = await waiting_session(journal, "s"), list[tuple[int, str]]()
    assert await source.move("b") == await source.move("b")
    for status in ("active", "suspended", "completed"):
        with pytest.raises(SessionMoved, match="take_back=True"):
            await source.change(status=status)
    await source.change(metadata={"team": "payments"})
    assert source.state.moved_to == "b"
    await source.change(status="active", take_back=True)
    [approval] = await source.approvals()
    await source.answer(approval.id, "allow")
    assert (await resumed(journal, paid), len(paid)) == ("completed", 1)


async def test_a_live_session_is_not_moved(journal: Journal) -> None:
    async with open_session(journal, id="s") as session, open_session(journal, id="s") as other:
        await session.hold(on_lost=lambda: None, on_message=lambda: None)
        with pytest.raises(SessionHeld):
            await other.move("b")
        await session.release()


@pytest.mark.parametrize("to", ["", " ", 5, "\ud800"])
async def test_a_move_says_where_to(journal: Journal, to: Any) -> None:
    session = await waiting_session(journal, "s")
    with pytest.raises(ConfigurationError):
        await session.move(to)
    assert session.state.moved_to == ""


@pytest.mark.row("H06", "HF3")
async def test_a_session_whose_agent_is_at_work_is_moved_once_that_call_has_ended(journal: Journal) -> None:
    bank, target = Bank(), MemoryJournal()
    clerk = bank.agent([call("pay", id="p", invoice="7")], text("Paid."), policy=ask("pay"))
    agent = called_through(clerk, "clerk")
    async with open_session(journal, id="s") as session:
        await agent.run("Pay", session=session)
        with pytest.raises(NoSuchPoint, match=r"does not carry that session\. End the call first: resume the run"):
            await session.move("b")
        await session.cancel()
        assert (await agent.resume(session)).reason == "cancelled"
        await import_session(target, await session.move("b"))
    async with open_session(target, id="s") as moved:
        assert (await Agent(ScriptedModel([text("Here.")])).run("And now?", session=moved)).completed
    assert bank.paid == []
