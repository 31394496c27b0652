"""Watching: checks the journal of every session that a test recorded, when the test has ended. Reads; changes nothing.

Sessions of this process are seen through Python's auditing event `treadle.recorded`, those of child processes through the
journal files that they left in the test's folder. A test whose journals are broken on purpose says so:
`@pytest.mark.unchecked("the reason")`.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from invariants import find_violations
from treadle.errors import TreadleError
from treadle.events import AnyEvent
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal
from treadle.resolve.archives import check_sessions

__all__ = ["Watcher", "violations_in_files"]


class _Seen:
    """The events of one session in one journal, as far as this process has recorded them."""

    def __init__(self, session_id: str, journal: Journal) -> None:
        self.session_id = session_id
        self.journal = journal
        self.events: dict[int, AnyEvent] = {}

    def whole(self) -> Sequence[AnyEvent]:
        """Return all events from number 1; none where the earlier ones are out of reach."""
        if set(self.events) == set(range(1, len(self.events) + 1)):
            return [self.events[seq] for seq in sorted(self.events)]
        if not _is_in_memory(self.journal):
            return []  # its file is read; what another store holds was recorded before the test
        try:
            return asyncio.run(self.journal.read(self.session_id))  # type: ignore[arg-type]  # a coroutine, in memory
        except TreadleError:
            return []  # it has been closed


def _is_in_memory(journal: Journal) -> bool:
    return type(journal).__name__ == "MemoryJournal"


class Watcher:
    """Collects what is recorded between `begin` and `violations`. One a process: an auditing hook stays for ever."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], _Seen] = {}
        self._is_watching = False
        sys.addaudithook(self._hear)

    def begin(self) -> None:
        self._seen.clear()
        self._is_watching = True

    def _hear(self, name: str, args: tuple[Any, ...]) -> None:
        if name != "treadle.recorded" or not self._is_watching:
            return
        session_id, journal, events = args
        # The journal is held, so that its id() names no other meanwhile.
        seen = self._seen.setdefault((id(journal), session_id), _Seen(session_id, journal))
        seen.events.update((event.seq, event) for event in events)

    def violations(self) -> Iterator[str]:
        """Yield what the sessions have broken."""
        self._is_watching = False
        for seen in self._seen.values():
            for line in find_violations(seen.whole()):
                yield f"{seen.session_id}: {line}"
        in_memory = {id(seen.journal): seen.journal for seen in self._seen.values() if _is_in_memory(seen.journal)}
        for journal in in_memory.values():
            yield from asyncio.run(_listed_wrongly(journal))
        self._seen.clear()


def violations_in_files(folder: Path) -> Iterator[str]:
    """Yield what the sessions in a folder's journals have broken. Files that are not journal are passed over."""
    for path in sorted(folder.rglob("*.db")):
        yield from asyncio.run(_violations_in(path))


async def _violations_in(path: Path) -> list[str]:
    journal = SqliteJournal(path, read_only=True)
    try:
        sessions = [(info.id, await journal.read(info.id)) for info in await journal.sessions()]
        lines = [f"{path.name}, {one}: {line}" for one, events in sessions for line in find_violations(events)]
        return lines + [f"{path.name}: {line}" for line in await _listed_wrongly(journal)]
    except TreadleError:
        return []
    finally:
        await journal.close()


async def _listed_wrongly(journal: Journal) -> list[str]:
    """Return what `treadle sessions check` says of a journal; nothing where it has been closed."""
    try:
        return [f"{fault.what}: {fault.message}" for fault in await check_sessions(journal)]
    except TreadleError:
        return []
