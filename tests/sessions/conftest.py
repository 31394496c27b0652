"""The journals that sessions live in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from session_tools import Bank

from treadle import open_journal
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    opened: Journal
    if request.param == "postgres":
        opened = await open_journal(request.getfixturevalue("postgres_url"))
    else:
        opened = MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "journal.db")
    yield opened
    await opened.close()


@pytest.fixture
def bank() -> Bank:
    return Bank()
