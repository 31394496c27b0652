"""Finding what is to be done in a journal, without a queue beside it: submitted tasks, answers, due times, and runs whose process died.

The dispatcher of workers that share a journal, in one process or in several. Runs nothing.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec

from treadle.errors import JournalError
from treadle.fields import checked
from treadle.journals.store.resumable import broken_off, with_messages
from treadle.ports import Clock, DueItem, HasBell, Journal
from treadle.redaction import redacted_logger
from treadle.workers.logs import tell_away, tell_back

__all__ = ["Finder", "JournalDispatcher", "Work"]

logger = redacted_logger(__name__)

GLANCE_SECONDS = 0.02
"""How often a look is taken at whether the journal's file has changed."""
LOOK_SECONDS = 0.25
"""How often the journal is asked, where nothing says that it has changed: no file that grows, and no bell that rings."""
SWEEP_SECONDS = 0.5
"""How often runs are looked for whose process has died."""
_SHARE = 5
"""A look at a journal takes at most one part in so many of the time."""
_AWAY_SECONDS = (0.1, 30.0)
"""How long a session is left alone in which there was nothing to do: it doubles from the first to the last."""
_CHOICE = 8
"""Workers choose at random among so many: two that choose the same are in each other's way."""


class Work(msgspec.Struct, frozen=True):
    """A session in which there may be something to do."""

    session_id: str
    tenant: str = ""
    """Whose task it is; empty for what continues."""
    priority: int = 0
    at: float = 0.0
    is_task: bool = False
    """Whether a run begins; else one continues."""


class Finder:
    """Asks a journal what is to be done: submitted tasks, answers, due times, and runs that nobody holds."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._swept_at = float("-inf")

    async def find(self, *, but: Collection[str] = ()) -> list[Work]:
        """Return the sessions in which there may be something to do.

        Args:
            but: Sessions that this process runs.

        Raises:
            JournalError: The store failed.
        """
        now, loop = self._clock.now(), asyncio.get_running_loop()
        found = {item.session_id: _work_of(item) for item in await self._journal.due(before=now) if _is_work(item)}
        found |= {one: Work(one) for one in await with_messages(self._journal) if one not in found}
        if loop.time() - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = loop.time()
            found |= {one: Work(one) for one in await broken_off(self._journal, but=but) if one not in found}
        return [work for work in found.values() if work.session_id not in but]


class _Pile:
    """What was found and not taken yet, by tenants."""

    def __init__(self, found: Iterable[Work] = ()) -> None:
        self._continuing: list[Work] = []
        self._tasks: defaultdict[str, list[Work]] = defaultdict(list)
        for work in found:
            (self._tasks[work.tenant] if work.is_task else self._continuing).append(work)
        for tasks in self._tasks.values():
            tasks.sort(key=lambda work: (work.priority, -work.at))  # the first is at the end, where it is taken fast

    def __len__(self) -> int:
        return len(self._continuing) + sum(map(len, self._tasks.values()))

    def take(self, busy: Counter[str], served: Counter[str], resting: Collection[str]) -> Work | None:
        """Return what is to be done first: what continues, then a task of the tenant that has had least and does not rest."""
        if self._continuing:
            return self._continuing.pop(random.randrange(len(self._continuing)))  # noqa: S311 - no secret
        waiting = [one for one in self._tasks if one not in resting]
        if not waiting:
            return None
        tenant = min(waiting, key=lambda one: (busy[one], served[one], one))
        tasks = self._tasks[tenant]
        equal = sum(work.priority == tasks[-1].priority for work in tasks[-_CHOICE:])
        work = tasks.pop(-1 - random.randrange(equal))  # noqa: S311 - no secret
        if not tasks:
            del self._tasks[tenant]
        return work


class _Away(msgspec.Struct):
    """A session in which there was nothing to do."""

    seconds: float = _AWAY_SECONDS[0]
    until: float = 0.0


class JournalDispatcher:
    """The `Dispatcher` of workers that read the journal itself.

    Args:
        tenants: Whose tasks it delivers; None for those of every tenant.
    """

    @checked
    def __init__(self, journal: Journal, *, clock: Clock, tenants: Collection[str] | None = None) -> None:
        self._tenants = None if tenants is None else frozenset(tenants)
        self._finder = Finder(journal, clock)
        self._place = journal.location
        self._file = _log_of(self._place)
        self._pile = _Pile()
        self._look_again_at = float("-inf")
        self._running: dict[str, str] = {}  # sessions that were delivered here, with their tenants
        self._away: dict[str, _Away] = {}
        self._served: Counter[str] = Counter()
        self._resting: dict[str, float] = {}
        self._nudge = asyncio.Event()
        self._bell = journal if isinstance(journal, HasBell) else None
        self._listening = AsyncExitStack()

    @checked
    async def send(
        self, session_id: str, *, at: float | None = None, priority: int = 0, tenant: str | None = None
    ) -> None:
        """Look at the journal at once: the session waits there already."""
        self._nudge.set()

    async def next(self) -> "_Delivery":
        if self._bell is not None:
            bell, self._bell = self._bell, None
            await self._listening.enter_async_context(bell.hear_bell(self._nudge.set))
        while True:
            if self._pile and asyncio.get_running_loop().time() >= self._look_again_at:
                await self._look()  # others have taken some of it, and what came since may be more urgent
            if (work := self._choose()) is not None:
                self._running[work.session_id] = work.tenant
                self._served[work.tenant] += 1
                return _Delivery(self, work)
            await self._wait()
            await self._look()

    async def close(self) -> None:
        self._pile, self._bell = _Pile(), None
        await self._listening.aclose()

    @property
    def waiting(self) -> int:
        """How many sessions were found that no worker has taken yet, at the last look."""
        return len(self._pile)

    # --- choosing

    def _choose(self) -> Work | None:
        busy = Counter(self._running.values())
        now = asyncio.get_running_loop().time()
        resting = {tenant for tenant, until in self._resting.items() if until > now}
        while (work := self._pile.take(busy, self._served, resting)) is not None:
            if self._is_wanted(work):
                return work
        return None

    def _is_wanted(self, work: Work) -> bool:
        away = self._away.get(work.session_id)
        return (
            work.session_id not in self._running
            and (self._tenants is None or not work.is_task or work.tenant in self._tenants)
            and (away is None or asyncio.get_running_loop().time() >= away.until)
        )

    # --- looking

    async def _wait(self) -> None:
        """Wait until the journal may hold something new."""
        seen, waited = _stamp_of(self._file), 0.0
        while waited < LOOK_SECONDS and not self._nudge.is_set():
            step = GLANCE_SECONDS if self._file else LOOK_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(step):
                    await self._nudge.wait()
            waited += step
            if self._file and _stamp_of(self._file) != seen:
                break
        self._nudge.clear()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            found = await self._finder.find(but=self._running)
        except JournalError as error:
            tell_away(
                logger,
                self._place,
                "The journal cannot be asked what is to be done: %s The worker waits for it.",
                error,
            )
            found = []
            await asyncio.sleep(SWEEP_SECONDS)
        else:
            tell_back(self._place)
        self._pile = _Pile(work for work in found if self._is_wanted(work))
        took = loop.time() - begun
        self._look_again_at = loop.time() + max(LOOK_SECONDS, _SHARE * took)
        if not self._pile:
            await asyncio.sleep(min(took * (_SHARE - 1), SWEEP_SECONDS))

    # --- what happened to a delivery

    def _ended(self, work: Work, *, is_done: bool, waits: bool) -> None:
        self._running.pop(work.session_id, None)
        soon = asyncio.get_running_loop().time() + LOOK_SECONDS
        if is_done:
            self._away.pop(work.session_id, None)
        elif waits and work.is_task:
            self._resting[work.tenant] = soon
        elif waits:
            self._away.setdefault(work.session_id, _Away()).until = soon
        else:
            away = self._away.setdefault(work.session_id, _Away())
            away.until = asyncio.get_running_loop().time() + away.seconds
            away.seconds = min(2 * away.seconds, _AWAY_SECONDS[1])
        self._nudge.set()


class _Delivery:
    """A session that was found in the journal."""

    def __init__(self, dispatcher: JournalDispatcher, work: Work) -> None:
        self._dispatcher = dispatcher
        self._work = work

    @property
    def session_id(self) -> str:
        return self._work.session_id

    async def end(self, *, is_done: bool, waits: bool = False) -> None:
        self._dispatcher._ended(self._work, is_done=is_done, waits=waits)  # noqa: SLF001 - its own dispatcher


def _is_work(item: DueItem) -> bool:
    return item.kind != "deadline"  # a run that is live ends itself, and one that is not is found by other ways


def _work_of(item: DueItem) -> Work:
    return Work(item.session_id, item.tenant, item.priority, item.at, item.kind == "task")


def _log_of(location: str) -> str:
    """Return the file that grows with each commit; empty for a journal that is not a file here."""
    file = Path(location)
    return f"{location}-wal" if file.is_absolute() and file.exists() else ""


def _stamp_of(file: str) -> tuple[int, int] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
