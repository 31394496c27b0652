"""What the sessions of a journal have used, in groups."""

from decimal import Decimal
from pathlib import Path

import pytest

from treadle import Agent, ConfigurationError, Price, allow, open_journal, open_session
from treadle.messages import Usage
from treadle.ports import Journal, UsageRow
from treadle.testing import FakeClock, ScriptedModel, Turn, call

PRICE = Price(input=1_000_000, output=0)


def model(name: str, *, price: Price | None = PRICE, turns: int = 1) -> ScriptedModel:
    turn = Turn(text="Done.", usage=Usage(input_tokens=10, output_tokens=2))
    made = ScriptedModel([turn] * turns, name=name, price=price)
    if price is None:
        made._price = None
    return made


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else str(tmp_path / "agent.db")


async def run(journal: Journal, agent: Agent, clock: FakeClock, **metadata: str) -> str:
    async with open_session(journal, clock=clock) as session:
        await agent.run("Go", session=session, metadata=metadata)
        return session.id


async def test_usage_is_added_up_by_metadata_model_and_day_and_an_unknown_price_is_counted_in_tokens(address: str):
    clock = FakeClock()
    cheap, unpriced = Agent(model("cheap")), Agent(model("unpriced", price=None))
    async with open_journal(address) as journal:
        await run(journal, cheap, clock, tenant="K7", user="ada")
        await run(journal, cheap, clock, tenant="K7", user="bo")
        clock.advance(86_400)
        await run(journal, unpriced, clock, tenant="K8")
        tenants = await journal.usage(("tenant", "model"))
        users = await journal.usage(("user",))
        days = await journal.usage(("day",))
        lately = await journal.usage(("tenant",), since=clock.now() - 3600)

    one = UsageRow(
        group={"tenant": "K7", "model": "cheap"},
        requests=2,
        usage=Usage(input_tokens=20, output_tokens=4),
        cost=Decimal(20),
    )
    other = UsageRow(
        group={"tenant": "K8", "model": "unpriced"},
        requests=1,
        usage=Usage(input_tokens=10, output_tokens=2),
        unpriced=1,
    )
    assert tenants == (one, other)
    assert [(row.group["user"], row.requests) for row in users] == [("", 1), ("ada", 1), ("bo", 1)]
    assert [row.requests for row in days] == [2, 1]
    assert [row.group for row in lately] == [{"tenant": "K8"}]


async def test_what_a_fork_has_copied_is_counted_once_and_a_called_agent_counts_for_its_callers_tenant():
    below = Agent(model("below"), name="below")
    turns = [call("ask", task="Help"), Turn(text="Done.", usage=Usage(input_tokens=1))]
    above = Agent(
        ScriptedModel(turns, name="above", price=PRICE),
        name="above",
        tools=[below.as_tool("ask", "Ask for help.")],
        policy=allow("*"),
    )
    async with open_journal("memory:") as journal:
        async with open_session(journal) as session:
            await above.run("Go", session=session, tenant="K7")
            fork = await session.fork()
        before = await journal.usage(("tenant", "agent"))
        async with open_session(journal, id=fork if isinstance(fork, str) else fork.id) as session:
            await Agent(model("third")).run("Go on", session=session)
        after = await journal.usage(("model",))
    assert [(row.group, row.requests) for row in before] == [
        ({"tenant": "K7", "agent": "above"}, 2),
        ({"tenant": "K7", "agent": "below"}, 1),
    ]
    assert [(row.group["model"], row.requests) for row in after] == [("above", 2), ("below", 1), ("third", 1)]


async def test_groups_that_are_one_text_are_refused():
    async with open_journal("memory:") as journal:
        with pytest.raises(ConfigurationError, match="by must be a list"):
            await journal.usage("tenant")
