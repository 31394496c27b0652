"""A record that was changed between a decision and the start: what starts is what was decided on. In memory."""

import re

import pytest

from treadle import Agent, open_session, tool
from treadle.events import AnyEvent, CallDecided, decode_event, encode_event
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, call, text


async def decided(paid: list[int]) -> tuple[list[AnyEvent], Agent]:
    """Return the events of a run up to the decision on its payment, and the agent."""

    @tool(effect="unsafe", permission="allow")
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([call("pay", amount=40), text("Paid.")]), tools=[pay]).run("Pay", session=session)
    events = list(await journal.read("s"))
    last = next(at for at, event in enumerate(events) if isinstance(event, CallDecided))
    paid.clear()
    return events[: last + 1], Agent(ScriptedModel([text("Done.")]), tools=[pay])


def edited(event: AnyEvent) -> AnyEvent:
    """Change the sum wherever it is recorded, as somebody would in the file."""
    return decode_event(re.sub(rb'(amount\\*"\s*:\s*)40', rb"\g<1>90", encode_event(event)))


@pytest.mark.row("ST09")
@pytest.mark.parametrize("is_edited", [False, True])
@pytest.mark.unchecked
async def test_a_decided_call_that_was_changed_before_its_start_is_refused(is_edited: bool) -> None:
    paid: list[int] = []
    events, agent = await decided(paid)
    journal = MemoryJournal()
    await journal.adopt("s", [edited(event) if is_edited else event for event in events], state="running")

    async with open_session(journal, id="s") as session:
        result = await agent.resume(session)

    assert paid == ([] if is_edited else [40])
    assert [one.status for one in result.tool_calls] == ["skipped" if is_edited else "ok"]
