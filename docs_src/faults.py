"""Time and faults controlled by a test: a wait of minutes takes no time, and the store fails at each operation in turn."""

import asyncio
import itertools
from contextlib import suppress

from treadle import Agent, open_journal, open_session, tool
from treadle.errors import JournalError, NothingToResume
from treadle.testing import FakeClock, FaultyJournal, ScriptedModel, Turn, call, text

paid: list[int] = []


@tool(effect="unsafe", permission="allow")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    paid.append(amount)
    return "paid"


async def a_provider_asks_for_two_minutes() -> None:
    clock = FakeClock(auto=True)
    model = ScriptedModel([Turn(status=429, headers={"retry-after": "120"}), text("Now.")])

    async with open_session("memory:", clock=clock) as session:
        result = await Agent(model).run("Go", session=session)

    assert result.completed
    assert clock.monotonic() >= 120


async def nothing_is_paid_twice_wherever_the_store_fails() -> None:
    for place in itertools.count(1):
        paid.clear()
        journal = FaultyJournal(await open_journal("memory:"), fail_at=place)
        agent = Agent(ScriptedModel([call("pay", amount=40), text("Paid.")]), tools=[pay])
        try:
            async with open_session(journal, id="invoice-7") as session:
                await agent.run("Pay the invoice", session=session)
        except JournalError:
            with suppress(NothingToResume):  # it had not begun, or was over
                async with open_session(journal, id="invoice-7") as session:
                    await agent.resume(session)
        assert len(paid) <= 1
        if not journal.has_failed:
            print(f"{place - 1} places, and nothing was paid twice")
            return


async def main() -> None:
    await a_provider_asks_for_two_minutes()
    await nothing_is_paid_twice_wherever_the_store_fails()


asyncio.run(main())
