"""Export and import: a session goes to another journal whole, or not at all."""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_tools import payer, stored_session, waiting_session

from treadle import (
    Agent,
    Budget,
    JournalError,
    NoSuchPoint,
    SessionExists,
    Tool,
    ToolContext,
    ask,
    import_session,
    open_session,
)
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal
from treadle.sessions.session import fold
from treadle.sessions.transfer import Parcel, pack, unpack
from treadle.state import inbox_message
from treadle.state.standing import sums
from treadle.testing import FaultyJournal, ScriptedModel, call, text
from treadle.tools import JsonObject


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
    from treadle.sessions.checkpoints import renamed

    return renamed(events, "s")


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.row("Q11")
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
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        return "line\n" * 5000

    long = Tool(name="long", description="Long.", parameters={}, effect="read", run=run)
    ours, theirs = MemoryJournal(), MemoryJournal()
    async with open_session(ours, id="s") as session:
        model = ScriptedModel([call("long"), text("ok")])
        result = await Agent(model, tools=[long], budget=Budget(max_tool_result_chars=200)).run("go", session=session)
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
