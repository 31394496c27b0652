"""Sessions at their edges: values that cannot be stored, exports that cannot continue, appends that were cancelled."""

import asyncio
import hashlib
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import Recorder, act
from treadle import Agent, ConfigurationError, JournalError, ask, import_session, open_session
from treadle.events import AnyEvent, MessageAdded
from treadle.journals.memory import MemoryJournal
from treadle.messages import ToolCall, user_message
from treadle.redaction import Redactor
from treadle.sessions.transfer import Parcel, pack_redacted, unpack
from treadle.state import CallState
from treadle.state.inbox import LeftUnknown
from treadle.testing import Gate, ScriptedModel, call, text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"status": "x"}, "status must be 'active' or 'suspended' or 'completed' or 'failed' or 'deleted' or None; got 'x'."),
        ({"if_head": True}, "if_head must be a whole number or None; got True."),
        ({"metadata": [1]}, "metadata must be a mapping or None; got [1]."),
        ({"metadata": MappingProxyType({"a": 1})}, "metadata must be a mapping or None; got mappingproxy({'a': 1})."),
        ({"metadata": {"a": {1}}}, "The metadata cannot be stored: $.a is a set, which JSON cannot hold."),
    ],
)  # fmt: skip
async def test_what_cannot_be_changed_so_is_refused_and_nothing_is_written(words: Any, message: str) -> None:
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([text("x")])).run("go", session=session)
        before = session.state.head
        with pytest.raises(ConfigurationError) as refused:
            await session.change(**words)

    assert (str(refused.value), session.state.head) == (message, before)


class Slow(MemoryJournal):
    """A journal whose next append stores, or stores nothing, and then does not answer."""

    def __init__(self, *, stores: bool) -> None:
        super().__init__()
        self.gate: Gate | None = None
        self._stores = stores
        self.begun = asyncio.Event()

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        hangs, self.gate = self.gate is not None, None
        if self._stores or not hangs:
            await super().append(session_id, events, state=state, durable=durable)
        if hangs:
            self.begun.set()
            await asyncio.Event().wait()


@pytest.mark.unchecked("messages are recorded by hand, outside of any run")
@pytest.mark.parametrize("stores", [True, False])
async def test_after_a_cancelled_append_the_numbers_continue_from_what_was_stored(*, stores: bool) -> None:
    journal, heard = Slow(stores=stores), []
    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([text("x")])).run("go", session=session)
        session.ledger.subscribers.append(heard.append)
        head, journal.gate = session.state.head, Gate()
        cut = asyncio.create_task(session.ledger.record(MessageAdded(message=user_message("one"))))
        await journal.begun.wait()
        cut.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut
        assert await session.ledger.record(MessageAdded(message=user_message("two")))
        assert await session.ledger.record(MessageAdded(message=user_message("three")))
        added = [event for event in await session.events() if event.seq > head]

    texts = ["one", "two", "three"] if stores else ["two", "three"]
    assert [event.message.text for event in added] == texts  # type: ignore[union-attr]
    assert [event.seq for event in added] == list(range(head + 1, head + 1 + len(texts)))
    assert [event.message.text for event in heard] == texts
    assert session.state.head == head + len(texts)


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


def test_a_large_stored_result_is_read_back_whole() -> None:
    large = bytes(range(256)) * 20_000
    blobs = {hashlib.sha256(large).hexdigest(): large}
    event = MessageAdded(message=user_message("go"), session_id="s", seq=1)

    assert unpack(list(pack_redacted(Parcel(session_id="s", events=(event,), blobs=blobs), Redactor()))).blobs == blobs


def test_a_call_that_has_not_started_has_no_doubt() -> None:
    state = CallState(call=ToolCall(id="c", name="pay", arguments="{}"), position=0)

    with pytest.raises(ConfigurationError, match="The call 'c' has not started: it cannot be in doubt"):
        state.doubt("s")


def test_a_message_of_a_newer_treadle_keeps_its_kind_and_its_fields() -> None:
    message = LeftUnknown(id="m", stored_kind="wave", stored_body={"hand": "left"})

    assert (message.kind, message.body) == ("wave", {"hand": "left"})


async def test_what_was_not_submitted_is_not_withdrawn() -> None:
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([text("x")])).run("go", session=session)
        before = session.state.head

        assert await session.cancel() is False
        assert session.state.head == before
        await check_session(session)
