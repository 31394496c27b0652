"""The ledger: what subscribers hear is their own, and a cancelled append leaves no gap."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from tests.journals.journal_events import one_of_each

from treadle import Agent, open_session, tool
from treadle.events import AnyEvent, MessageAdded
from treadle.journals.memory import MemoryJournal
from treadle.messages import user_message
from treadle.testing import Gate, ScriptedModel, call, text


def containers(value: Any) -> Iterator[Any]:
    """Yield every list and dict within a value."""
    if isinstance(value, dict | list):
        yield value
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if isinstance(value, msgspec.Struct):
        held = [getattr(value, name) for name in value.__struct_fields__]
    for one in held:
        yield from containers(one)


def spoil(event: AnyEvent) -> None:
    for one in list(containers(event)):
        if isinstance(one, dict):
            one["amount"] = one["evil"] = 999_999
        else:
            one.append("evil")


@pytest.mark.row("E02")
@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: event.type)
@pytest.mark.unchecked("events are written by hand, without a run")
async def test_an_event_that_is_told_shares_no_list_and_no_object(event: AnyEvent) -> None:
    heard: list[AnyEvent] = []
    async with open_session("memory:", id="s") as session:
        session.ledger.subscribers.append(heard.append)
        await session.ledger.record(event)
        [stored] = await session.journal.read("s")

    [told] = heard
    assert told == stored
    assert not {id(one) for one in containers(told)} & {id(one) for one in [*containers(event), *containers(stored)]}


@pytest.mark.row("E02")
async def test_a_subscriber_that_changes_what_it_hears_changes_no_run(tmp_path: Any) -> None:
    paid: list[tuple[int, dict[str, int]]] = []

    @tool(effect="unsafe")
    async def pay(amount: int, to: dict[str, int]) -> dict[str, int]:
        """Pay."""
        paid.append((amount, dict(to)))
        return {"receipt": amount}

    model = ScriptedModel([call("pay", amount=3, to={"ada": 1}), text("Paid.")])
    agent = Agent(model, tools=[pay], subscribers=[spoil])
    async with open_session(tmp_path / "agent.db") as session:
        waiting = await agent.run("go", session=session)
        (approval,) = await session.approvals()
        asked = dict(approval.arguments)
        await session.answer(approval.id, "allow")
        ended = await agent.resume(session)
        stored = [msgspec.json.encode(event) for event in await session.journal.read(session.id)]

    assert asked == {"amount": 3, "to": {"ada": 1}}
    assert waiting.approvals[0].arguments == asked
    assert paid == [(3, {"ada": 1})]
    assert (ended.completed, ended.degraded) == (True, False)
    assert not [one for one in stored if b"evil" in one]
    assert "evil" not in str(model.requests[-1].messages)


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
