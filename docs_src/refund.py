"""The program of the comparison pages: a refund waits for a person, in a conversation that is stored."""

import asyncio
import sys
import tempfile
from pathlib import Path

from treadle import Agent, Budget, ToolContext, open_session, tool
from treadle.testing import ScriptedModel, call, text


class Shop:
    def __init__(self) -> None:
        self.refunded: list[str] = []


@tool(effect="read")
async def find_order(customer: str) -> str:
    """Find the last order of a customer."""
    return "order-17"


@tool(effect="unsafe")
async def refund(order: str, ctx: ToolContext[Shop]) -> str:
    """Refund an order."""
    ctx.deps.refunded.append(order)
    return "refunded"


MODEL = ScriptedModel(
    [call("find_order", customer="Ada"), call("refund", order="order-17"), text("Ada has her money.")]
)
agent = Agent(
    MODEL if len(sys.argv) < 2 else sys.argv[1],  # such as "openai:gpt-5-mini"
    instructions="You handle refunds.",
    tools=[find_order, refund],
    budget=Budget(max_model_turns=10),
)


async def main(journal: Path) -> None:
    shop = Shop()
    async with open_session(journal, id="ticket-9") as session:
        result = await agent.run("Refund Ada's last order", session=session, deps=shop)

        while result.approvals:  # none where the model needed no refund, more than once where it needs several
            for approval in result.approvals:  # a person looks at tool and arguments, perhaps days later
                await session.answer(approval.id, "allow", by="bo")
            result = await agent.resume(session, deps=shop)

    print(result.text, shop.refunded)
    assert shop.refunded == ["order-17"]


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder) / "shop.db"))
