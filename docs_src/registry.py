"""A run waits for a person in one process and continues in another, which has only the journal's address and the session's id."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from treadle import Agent, Agents, Tool, open_session, tool
from treadle.errors import AgentChanged
from treadle.testing import ScriptedModel, TurnLike, call, text


@tool(effect="unsafe")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    return "paid"


def clerk(*turns: TurnLike, tools: Sequence[Tool] = (pay,)) -> Agent:
    return Agent(ScriptedModel(turns), name="clerk", tools=tools)


async def main(journal: Path) -> None:
    # A web server takes the task, and a person answers.
    async with open_session(journal, id="invoice-7") as session:
        result = await clerk(call("pay", amount=40)).run("Pay the invoice", session=session)
        await session.answer(result.approvals[0].id, "allow")

    # A worker has another version of the agent: it is refused, and nothing happens.
    changed = Agents([clerk(text("Paid."), tools=[])])
    try:
        await changed.resume(journal, "invoice-7")
    except AgentChanged as error:
        print(error)  # The agent 'clerk' has changed ... Changed: tools. ...

    # A worker with the same agent continues.
    agents = Agents([clerk(text("The invoice is paid."))])
    result = await agents.resume(journal, "invoice-7")
    print(result.text)
    assert result.completed
    assert [one.status for one in result.tool_calls] == ["ok"]


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder) / "agent.db"))
