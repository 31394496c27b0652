"""What all runs of a tenant may cost together: counted in the journal, by every process that shares it."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from treadle import Agent, ConfigurationError, Price, StopReason, TenantBudget, open_journal, open_session
from treadle.messages import Usage
from treadle.ports import Journal, SessionFilter
from treadle.testing import FakeClock, ScriptedModel, Turn, call, text

RUNS, ROOM = 200, 50
LIMIT = 50.5
"""For 50 runs: an estimate is a little more than an answer costs."""
PRICE = Price(input=0, output=4000)
"""One answer of 250 tokens costs 1."""


def clerk(budget: TenantBudget, *, tokens: int = 250) -> Agent:
    turn = Turn(text="Done.", usage=Usage(input_tokens=1, output_tokens=tokens))
    return Agent(ScriptedModel([turn], price=PRICE), tenant_budgets=[budget])


async def side_by_side(journal: Journal, agents: list[Agent], **metadata: str) -> tuple[Counter[str], Decimal]:
    """Run each agent once, all at the same time. Return their reasons, and what they have cost."""

    async def one(agent: Agent) -> tuple[str, Decimal]:
        async with open_session(journal) as session:
            result = await agent.run("Go", session=session, metadata={"tenant": "K7", **metadata})
            return result.reason, Decimal(result.report()["cost"])

    ended = await asyncio.gather(*map(one, agents))
    return Counter(reason for reason, _ in ended), sum((cost for _, cost in ended), Decimal(0))


@pytest.fixture(params=["memory", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else str(tmp_path / "agent.db")


async def test_two_hundred_runs_side_by_side_spend_a_budget_for_fifty_and_no_more(address: str):
    budget = TenantBudget(max_total_cost=LIMIT)
    async with open_journal(address) as journal:
        reasons, cost = await side_by_side(journal, [clerk(budget)] * RUNS)
        sessions = await journal.sessions(SessionFilter(text="spending/"))
    assert reasons == {"completed": ROOM, "budget_exceeded": RUNS - ROOM}
    assert cost == ROOM
    assert sessions == ()  # what is counted is in no list


@pytest.mark.parametrize("seed", range(5))
async def test_answers_of_any_price_never_exceed_a_budget_of_which_each_call_reserves_the_most(seed: int):
    chance = random.Random(seed)
    budget = TenantBudget(max_total_cost=ROOM, reserve=2)
    async with open_journal("memory:") as journal:
        agents = [clerk(budget, tokens=chance.randrange(1, 501)) for _ in range(RUNS)]
        _, cost = await side_by_side(journal, agents)
    assert ROOM - 2 < cost <= ROOM


PROGRAM = """
import asyncio, sys
from test_tenant_budgets import LIMIT, RUNS, clerk, side_by_side
from treadle import TenantBudget, open_journal

async def main(address):
    async with open_journal(address) as journal:
        reasons, _ = await side_by_side(journal, [clerk(TenantBudget(max_total_cost=LIMIT))] * (RUNS // 4))
    print(reasons["completed"])

asyncio.run(main(sys.argv[1]))
"""


async def test_processes_that_share_a_database_share_the_budget(postgres_url: str):
    command = [sys.executable, "-c", PROGRAM, postgres_url]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent) for _ in range(4)]
    ended = [await asyncio.to_thread(process.communicate) for process in processes]
    assert sum(int(out) for out, _ in ended) == ROOM


async def test_a_refused_run_says_whose_budget_has_no_room():
    async with open_journal("memory:") as journal, open_session(journal, clock=FakeClock()) as session:
        result = await clerk(TenantBudget(max_total_cost=0.5)).run("Go", session=session, tenant="K7")
        month = f"{datetime.fromtimestamp(session.clock.now(), UTC):%Y-%m}"
    assert result.reason is StopReason.BUDGET_EXCEEDED
    assert result.report()["budget"] == "tenant_budget"
    assert result.message == f"The budget of tenant 'K7' in {month} has no room for another request: 0 of 0.5 are used."


async def test_each_tenant_user_and_day_has_the_budget_for_itself():
    clock = FakeClock()
    agent = clerk(TenantBudget(max_total_cost=1.5, per="day", each="user"))

    async def reason(**metadata: str) -> str:
        async with open_session(journal, clock=clock) as session:
            return (await agent.run("Go", session=session, metadata=metadata)).reason

    async with open_journal("memory:") as journal:
        assert await reason(tenant="K7", user="ada") == "completed"
        assert await reason(tenant="K7", user="ada") == "budget_exceeded"
        assert await reason(tenant="K7", user="bo") == "completed"
        assert await reason(tenant="K8", user="ada") == "completed"
        assert await reason(tenant="K7") == "completed"  # no user, so no user's budget
        clock.advance(86_400)
        assert await reason(tenant="K7", user="ada") == "completed"


async def test_of_two_budgets_for_the_same_the_smaller_binds_and_each_call_is_counted_once():
    twice = clerk(TenantBudget(max_total_cost=9)).replace(
        tenant_budgets=[TenantBudget(max_total_cost=9), TenantBudget(max_total_cost=2.5)]
    )
    async with open_journal("memory:") as journal:
        reasons, cost = await side_by_side(journal, [twice] * 4)

    assert (reasons, cost) == ({"completed": 2, "budget_exceeded": 2}, 2)


async def test_an_agent_that_is_a_tool_spends_its_own_budget_for_the_tenant_of_its_caller():
    inner = clerk(TenantBudget(max_total_cost=0.5))
    outer = Agent(
        ScriptedModel([call("ask", task="Go"), text("Done.")]), tools=[inner.as_tool("ask", "Ask.", effect="read")]
    )

    result = await outer.run("Go", tenant="K7")

    assert "The budget of tenant 'K7'" in result.tool_calls[0].content


async def test_a_model_without_a_price_is_refused_under_a_budget():
    model = ScriptedModel([Turn(text="Done.")])
    model._price = None
    with pytest.raises(ConfigurationError, match="the price of scripted is unknown"):
        await Agent(model, tenant_budgets=[TenantBudget(max_total_cost=1)]).run("Go", tenant="K7")
