"""The journals that sessions live in: in memory, since all stores keep the same contract; `make soak` takes a file too."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from session_tools import Bank

from treadle import open_journal
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.soak)])
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
