"""A worker: it continues every run whose process has died, or whose question is answered. It needs only the journal."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from treadle import Agent, Agents, open_session, tool
from treadle.testing import ScriptedModel, call, text

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
IS_WEB_SERVER = len(sys.argv) > 1


@tool(effect="keyed", permission="allow")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    if IS_WEB_SERVER:
        os.kill(os.getpid(), signal.SIGKILL)  # the machine is switched off
    return "paid"


clerk = Agent(ScriptedModel([call("pay", amount=40)] if IS_WEB_SERVER else [text("Paid.")]), name="clerk", tools=[pay])
AGENTS = Agents([clerk])


async def resume_what_was_left(journal_path: Path) -> list[str]:
    """Resume each run that can continue and that nobody runs. Call it at start, and again as often as you like."""
    ended = await AGENTS.resume_all(journal_path)
    return [f"{session_id}: {result.reason}" for session_id, result in ended.items()]


async def serve() -> None:
    async with open_session(FOLDER / "agent.db", id="invoice-7") as session:
        await AGENTS["clerk"].run("Pay the invoice", session=session)


if IS_WEB_SERVER:
    asyncio.run(serve())
else:
    subprocess.run([sys.executable, __file__, str(FOLDER)], check=False)
    resumed = asyncio.run(resume_what_was_left(FOLDER / "agent.db"))
    print(resumed)
    assert resumed == ["invoice-7: completed"]
