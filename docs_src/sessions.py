"""A session is marked, rewound, forked, explained, and moved to another journal. What was paid stays paid."""

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, allow, open_journal, open_session, tool
from treadle.resolve.archives import import_session
from treadle.testing import ScriptedModel, call, text


@tool(effect="unsafe")
async def pay(amount: int) -> str:
    """Pay an invoice."""
    return "paid"


async def main(folder: Path) -> None:
    model = ScriptedModel([text("Hello."), call("pay", amount=40), text("Paid."), text("Nothing else to pay.")])
    agent = Agent(model, tools=[pay], policy=allow("pay"))

    async with open_session(folder / "agent.db", id="invoice-7") as session:
        await agent.run("Good morning", session=session)
        await session.mark("before paying")
        await agent.run("Pay the invoice", session=session)

        rewound = await session.rewind("before paying")
        print(rewound.message)  # ... Effects are not undone: pay (call_1, ok).
        assert [one.tool for one in rewound.effects] == ["pay"]

        child = await session.fork(id="invoice-7b")
        await agent.run("Is anything left?", session=child)

        about = await session.explain()
        assert [one.tool for one in about.changed] == ["pay"]
        assert not about.rerun.is_safe

        await session.change(status="completed", metadata={"customer": "K7"})
        lines = await session.export()

    other = await open_journal(folder / "archive.db")
    assert await import_session(other, lines) == "invoice-7"
    await other.close()


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
