"""What all journals of a process on one PostgreSQL database share: three connections, each with a thread of its own.

One thread writes, one reads and one keeps leases. The first journal starts them and the last one ends them. A process that
was forked has none of its parent's.
"""

import asyncio
import os
import threading
from functools import partial
from typing import Any, NamedTuple

from treadle.concurrency.forks import after_fork, bury
from treadle.concurrency.patience import Patience
from treadle.journals.postgres.address import Address
from treadle.journals.postgres.lease import Heart
from treadle.journals.postgres.link import Link
from treadle.journals.postgres.reader import PostgresReader
from treadle.journals.postgres.writer import PostgresWriter
from treadle.journals.store.worker import Job, Worker

__all__ = ["Engine", "Limits", "engine_for", "give_back"]

_MAX_BATCH = 1000
_EXIT_SECONDS = 5.0


class Limits(NamedTuple):
    """How long to wait for what, in seconds."""

    busy: float
    patience: float
    lease: float

    @property
    def silence(self) -> float:
        """A server that waits for a lock is silent; so a silence is longer than that."""
        return self.busy + self.patience


class Engine:
    """The threads and connections of one process for one database."""

    def __init__(self, address: Address, limits: Limits) -> None:
        self.pid = os.getpid()
        self.users = 0
        link = partial(Link, address, busy_seconds=limits.busy)
        slow = partial(link, silence_seconds=limits.silence, patience_seconds=limits.patience)
        self._links = (slow(), slow())
        self.writer = PostgresWriter(self._links[0])
        reader = PostgresReader(self._links[1])
        exit_seconds = limits.silence + limits.patience + _EXIT_SECONDS
        self.writing = Worker(
            "treadle-journal-writer", self.writer.serve, self.writer.finish,
            max_batch=_MAX_BATCH, exit_seconds=exit_seconds,
        )  # fmt: skip
        self.reading = Worker(
            "treadle-journal-reader", reader.serve, reader.finish, max_batch=1, exit_seconds=exit_seconds
        )
        # A beat that fails is followed by the next one, so it has no patience of its own. The loss of a lease is reported by
        # the holder's own clock, so a beat may wait a while.
        beat = link(silence_seconds=min(limits.lease / 4, limits.silence), patience_seconds=0.0)
        self.heart = Heart(beat, limits.lease)
        self._silent_at: int | None = None
        self._patience = Patience()

    @property
    def patience(self) -> Patience | None:
        """How long to wait for a server that owes somebody an answer; None while it owes nothing."""
        return self._patience if self._silent_at == self._served else None

    @property
    def is_silent(self) -> bool:
        """Whether the server has answered nothing since somebody gave up waiting for it."""
        return self.patience is not None

    def note_silence(self, seconds: float) -> None:
        """Somebody has given up waiting: the next one waits at most so long, until something is answered."""
        if not self.is_silent:
            self._patience = Patience(seconds=seconds)
        self._silent_at = self._served

    @property
    def _served(self) -> int:
        return self.writing.served + self.reading.served

    def stop(self, *, at_once: bool = False) -> None:
        """Take no more jobs; end when what is queued is done. Returns at once.

        Args:
            at_once: Wait for no answer of the server any more.
        """
        self.heart.stop()
        if at_once:
            for link in self._links:
                link.hurry()
        for worker in (self.reading, self.writing):
            worker.stop()

    async def wait_for_end(self) -> None:
        """Return when both threads have ended."""
        loop = asyncio.get_running_loop()
        for worker in (self.reading, self.writing):
            farewell: asyncio.Future[None] = loop.create_future()
            worker.stop(Job[Any](None, future=farewell))
            await farewell


_engines: dict[tuple[Any, ...], Engine] = {}
_gate = threading.RLock()  # reentrant: the garbage collector may forsake a journal while another one is made


@after_fork
def _begin_anew() -> None:
    """The connections are the parent's. Closing them here would end them there."""
    global _gate  # noqa: PLW0603 - what the parent holds locked stays locked here
    _gate = threading.RLock()
    bury(*_engines.values())
    _engines.clear()


def engine_for(address: Address, limits: Limits) -> Engine:
    """Return the engine of this process for a database, to be given back with `give_back`."""
    key = (tuple(sorted(address.parameters.items())), limits)
    with _gate:
        engine = _engines.get(key)
        if engine is None or engine.pid != os.getpid():
            engine = _engines[key] = Engine(address, limits)
        engine.users += 1
        return engine


def give_back(engine: Engine) -> bool:
    """Let go of an engine. Return whether nobody uses it any more; then the caller stops it."""
    with _gate:
        engine.users -= 1
        if engine.users > 0 or engine.pid != os.getpid():
            return False
        for key, known in tuple(_engines.items()):
            if known is engine:
                del _engines[key]
        return True
