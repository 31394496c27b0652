"""A task is submitted, waits for a person, and is carried out by a worker. The three parts share only a journal."""

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, open_session, tool
from treadle.events import ApprovalRequested
from treadle.testing import ScriptedModel, call, text
from treadle.workers import Worker, follow, result, submit

JOURNAL = Path(tempfile.mkdtemp()) / "agent.db"


@tool(effect="keyed", permission="ask")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    return f"paid {amount}"


def make_clerk() -> Agent:
    """Make the agent; a worker calls this once."""
    return Agent(ScriptedModel([call("pay", amount=40), text("Invoice 7 is paid.")]), tools=[pay])


async def work(worker: Worker) -> None:
    await worker.run()


async def web_request() -> str:
    """What a web server does: it stores the task, and returns."""
    return await submit(JOURNAL, "clerk", "Pay invoice 7", tenant="acme", key="invoice-7")


async def person(session_id: str) -> None:
    """What a person does, in a process of their own."""
    async for event in follow(JOURNAL, session_id):
        if isinstance(event, ApprovalRequested):
            break
    async with open_session(JOURNAL, id=session_id) as session:
        (asked,) = session.approvals()
        await session.answer(asked.id, "allow", by="ada")


async def main() -> None:
    worker = Worker(JOURNAL, {"clerk": make_clerk}, concurrency=8)
    working = asyncio.create_task(work(worker))  # in a process of its own, or in ten: `treadle worker --agents FILE.py`
    session_id = await web_request()
    await person(session_id)
    answer = await result(JOURNAL, session_id, timeout=60)
    print(answer.status, answer.text)
    worker.stop()
    await working


if __name__ == "__main__":
    asyncio.run(main())
