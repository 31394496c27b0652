"""A payment that a person must allow. Nothing is paid before the answer, and nothing is paid twice after it."""

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, ToolContext, open_session, tool
from treadle.testing import ScriptedModel, call, text

paid: dict[str, int] = {}


@tool(effect="keyed")
async def pay(amount: int, ctx: ToolContext) -> str:
    """Pay an invoice. The bank ignores a key that it has seen."""
    paid.setdefault(ctx.idempotency_key, amount)
    return "paid"


async def main(journal: Path) -> None:
    agent = Agent(ScriptedModel([call("pay", amount=40), text("The invoice is paid.")]), tools=[pay])

    async with open_session(journal, id="invoice-7") as session:
        result = await agent.run("Pay the invoice", session=session)
        assert result.reason == "approval_required"
        assert paid == {}

        await session.answer(result.approvals[0].id, "allow")
        result = await agent.resume(session)

    print(result.text)
    assert result.completed
    assert list(paid.values()) == [40]


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder) / "agent.db"))
