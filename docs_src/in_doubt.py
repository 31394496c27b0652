"""A process dies inside a payment. The one that continues asks the bank, and pays nothing twice."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from treadle import Agent, Tool, ToolContext, open_session
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Done, JsonObject, NotDone

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
BANK = FOLDER / "bank"  # stands for a service that knows what it has done


async def pay(arguments: JsonObject, ctx: ToolContext) -> str:
    with BANK.open("a") as bank:
        bank.write(f"{ctx.idempotency_key}\n")
    if len(sys.argv) > 1:
        os.kill(os.getpid(), signal.SIGKILL)  # paid, and nothing was recorded
    return "paid"


async def was_paid(arguments: JsonObject, ctx: ToolContext) -> object:
    return Done("paid") if ctx.idempotency_key in BANK.read_text() else NotDone


async def main() -> None:
    tool = Tool(
        name="pay", description="Pay.", parameters={}, effect="unsafe", permission="allow", run=pay, check=was_paid
    )
    async with open_session(FOLDER / "agent.db", id="invoice-7") as session:
        if len(sys.argv) > 1:
            await Agent(ScriptedModel([call("pay")]), tools=[tool]).run("Pay the invoice", session=session)
        result = await Agent(ScriptedModel([text("It was paid.")]), tools=[tool]).resume(session)
    print(result.text, result.tool_calls[0].status)
    assert len(BANK.read_text().splitlines()) == 1


if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, str(FOLDER)], check=False)
asyncio.run(main())
