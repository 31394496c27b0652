"""A journal that is away: its workers say so once, then once a minute, and not at each attempt."""

import asyncio
import logging

import pytest

from treadle.errors import JournalError
from treadle.journals.memory import MemoryJournal
from treadle.resolve.journals import SystemClock
from treadle.workers import JournalDispatcher, submit

pytestmark = pytest.mark.row("N19")


class Away(MemoryJournal):
    """A journal that is away until it has been asked so often."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals = 0

    @property
    def location(self) -> str:
        return f"away-{id(self)}"

    async def due(self, **words):  # type: ignore[no-untyped-def,override]  # as the journal's own
        if self.refusals:
            self.refusals -= 1
            raise JournalError("The server is away.")
        return await super().due(**words)


async def test_an_absence_of_the_journal_is_one_warning_for_all_who_ask_and_the_next_absence_is_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    journal = Away()
    session_id = await submit(journal, "clerk", "Do it")
    for absences in (1, 2):
        asking = [JournalDispatcher(journal, clock=SystemClock()) for _ in range(2)]
        journal.refusals = 3
        found = await asyncio.gather(*(one.next() for one in asking))
        assert [one.session_id for one in found] == [session_id] * 2
        said = [record.getMessage() for record in caplog.records]
        assert (
            said
            == ["The journal cannot be asked what is to be done: The server is away. The worker waits for it."]
            * absences
        )
