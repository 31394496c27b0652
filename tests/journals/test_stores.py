"""A store of somebody else: it writes primitives, runs agents, and says which addresses it handles."""

import subprocess
import sys
from pathlib import Path

import pytest

from treadle import Agent, open_journal, open_session, tool
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.journals.stores import StoreJournal
from treadle.testing import ScriptedModel, call, text

STORE = """
from treadle.journals.memory import MemoryJournal

class Shelf(MemoryJournal):
    def __init__(self, address):
        super().__init__()
        self.address = address

    @property
    def location(self):
        return self.address

async def open_shelf(address):
    return Shelf(address)
"""

OPENS = """
import asyncio, sys
from treadle import open_journal

async def main():
    async with open_journal(sys.argv[1]) as journal:
        print(type(journal).__name__, journal.location)

asyncio.run(main())
"""


async def test_a_run_is_recorded_in_a_store_that_implements_the_primitives_alone(sample_store):
    done: list[str] = []

    @tool(effect="unsafe")
    async def pay() -> str:
        done.append("paid")
        return "paid"

    journal = StoreJournal(sample_store)
    agent = Agent(ScriptedModel([call("pay"), text("Paid.")]), tools=[pay])
    async with open_session(journal, id="s") as session:
        paused = await agent.run("Pay", session=session)
        assert paused.approvals
        (waiting,) = await journal.approvals()
        assert waiting.id == paused.approvals[0].id
        await session.answer(waiting.id, "allow")
        result = await agent.resume(session)

    assert (result.text, done) == ("Paid.", ["paid"])
    assert await journal.approvals() == ()


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("memory:", MemoryJournal),
        (":memory:", MemoryJournal),
        ("{folder}/a:b.db", SqliteJournal),
        ("{folder}/agent.db", SqliteJournal),
    ],
)
async def test_an_address_chooses_the_store(address, kind, tmp_path):
    async with open_journal(address.format(folder=tmp_path)) as journal:
        assert isinstance(journal, kind)


@pytest.mark.parametrize(
    ("address", "answer"),
    [("shelf://there", "Shelf shelf://there"), ("shelf:there.db", "SqliteJournal {folder}/shelf:there.db")],
)
def test_a_package_says_which_addresses_its_store_handles(address, answer, tmp_path: Path):
    (tmp_path / "shelves.py").write_text(STORE)
    about = tmp_path / "shelves-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shelves\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[treadle.stores]\nshelf = shelves:open_shelf\n")
    (tmp_path / "opens.py").write_text(OPENS)

    ran = subprocess.run(
        [sys.executable, "opens.py", address], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert (ran.stdout.strip(), ran.stderr) == (answer.format(folder=tmp_path), "")
