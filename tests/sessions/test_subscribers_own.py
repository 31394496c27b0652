"""What a subscriber changes in an event changes nothing else: neither the session, nor the journal, nor what is asked and done."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.journals.journal_events import one_of_each

from treadle import Agent, open_session, tool
from treadle.events import AnyEvent
from treadle.sessions.ledger import _OPEN, _own
from treadle.testing import ScriptedModel, call, text


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
def test_an_event_that_is_told_shares_no_list_and_no_object(event: AnyEvent) -> None:
    told = _own(event) if type(event) in _OPEN else event

    assert told == event
    assert not {id(one) for one in containers(told)} & {id(one) for one in containers(event)}


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
