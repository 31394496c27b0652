"""Treadle with a session in a file. The payment is `unsafe`; as `checked`, the bank can be asked about it."""

import asyncio
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from life import Life, live

from treadle import Agent, ToolContext, open_session, resolve_model, tool
from treadle.tools import JsonObject, NotDone


def run(life: Life) -> str:
    async def was_paid(arguments: JsonObject, ctx: ToolContext) -> Any:
        return life.receipt_of(ctx.idempotency_key) or NotDone

    # The timeout is how long a request may act after its process died: no check believes `NotDone` before it has passed.
    @tool(effect="unsafe", permission="allow", timeout=1, check=was_paid if life.variant == "checked" else None)
    def pay(amount: int, ctx: ToolContext) -> str:
        """Pay an amount."""
        return life.pay(ctx.idempotency_key, amount)

    model = resolve_model("openai-chat:mock", base_url=life.base_url, api_key="x")
    return asyncio.run(_run(life, Agent(model, tools=[pay])))


async def _run(life: Life, agent: Agent) -> str:
    async with open_session(life.store, id=life.invoice) as session:
        run = agent.run(life.task, session=session) if life.act == "start" else agent.resume(session)
        return (await run).text


if __name__ == "__main__":
    live(run, "treadle")
