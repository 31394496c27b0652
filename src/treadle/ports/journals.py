"""The port to a store of sessions, and what it stores besides events."""

import warnings
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from functools import cache
from typing import ClassVar, Literal, Protocol, TypeGuard, runtime_checkable

import msgspec

from treadle.budgets import Deadline
from treadle.events import AnyEvent, JournalDegraded, SessionStatus
from treadle.fields import Documented, NamedOptions, explained
from treadle.messages import Usage
from treadle.state import Approval, InboxMessage

__all__ = [
    "Degradation",
    "DueItem",
    "HasBell",
    "HasClock",
    "HasInboxes",
    "HasLive",
    "HasOverview",
    "Journal",
    "Lease",
    "SessionFilter",
    "SessionInfo",
    "UsageRow",
    "has_clock",
    "has_live",
]


WORKER = "worker"
"""The run status of what is stored of a worker: no list of sessions names it unless it is asked for."""


class SessionInfo(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One line of a journal's list of sessions."""

    id: str
    """Id of the session."""
    run_status: str
    """What its store knows of its last run: active (none yet), running, paused, stopped, completed, failed; queued where a submitted
    task waits for a worker; or deleted. `status` is the whole answer."""
    head: int
    """Number of its last event."""
    updated_at: float
    """When it last changed, in seconds since 1970."""
    task: str = ""
    """The beginning of the first task."""
    own_status: SessionStatus = "active"
    """What people have set: suspended, completed, failed or deleted; active for nothing."""
    parent_id: str | None = None
    """The session that it was forked from, or whose call it carries out."""
    parent_seq: int | None = None
    """The last event that both share."""
    tenant: str = ""
    """The tenant: `tenant` in its metadata."""

    @property
    def status(self) -> str:
        """In which state it is, in one word: what people have set, such as suspended; else its `run_status`."""
        return self.run_status if self.own_status == "active" else self.own_status

    @property
    def phase(self) -> str:
        """The old name of `run_status`."""
        warnings.warn("Write info.run_status: `phase` goes.", DeprecationWarning, stacklevel=2)
        return self.run_status

    @property
    def cursor(self) -> str:
        """Where a list continues after this session: see `SessionFilter.after`."""
        return f"{self.updated_at!r} {self.id}"


class SessionFilter(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """Conditions for a list of sessions: it has those that fulfil every condition that is set."""

    renamed: ClassVar[Mapping[str, str]] = {"phases": "run_statuses"}

    statuses: tuple[str, ...] = ()
    """One of these states, such as `("paused", "suspended")`: see `SessionInfo.status`."""
    run_statuses: tuple[str, ...] = ()
    """What happened to the last run, whatever people have set. If `statuses` are given too, either is enough."""
    without_deleted: bool = False
    """Whether deleted sessions are left out."""
    parent_id: str | None = None
    """Forks of this session, and sessions that carry out its calls."""
    tenant: str | None = None
    """`tenant` of the session's metadata; None for sessions of every tenant."""
    since: float | None = None
    """Changed at this time or later, in seconds since 1970."""
    text: str = ""
    """Contained in the id or the beginning of the task, in any case."""
    limit: int | None = None
    """The maximum number of sessions; None for all."""
    after: str = ""
    """`cursor` of the last session of the previous page."""

    @explained
    def names(self, info: SessionInfo) -> bool:
        """Return whether a session fulfils the conditions; those on its place in the list apart."""
        is_kind = (
            info.run_status in self.run_statuses
            or info.status in self.statuses
            or not (self.run_statuses or self.statuses)
        )
        return (
            is_kind
            and (info.run_status != WORKER or WORKER in (*self.run_statuses, *self.statuses))
            and not (self.without_deleted and info.status == "deleted")
            and self.parent_id in (None, info.parent_id)
            and self.tenant in (None, info.tenant)
            and (self.since is None or info.updated_at >= self.since)
            and self.text.lower() in f"{info.id} {info.task}".lower()
        )


ALL_SESSIONS = SessionFilter()


class DueItem(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A time at which something is to be done about a session whose run is paused, under way or still to begin."""

    session_id: str
    """The session that waits."""
    kind: Literal["approval", "call", "deadline", "task"]
    """`approval`: a request for consent expires; `call`: a suspended call is to be started again (`Suspended(due_at=)`);
    `deadline`: the run must have ended; `task`: a submitted task is to begin."""
    at: float
    """In seconds since 1970."""
    call_id: str = ""
    """Empty for a deadline and a task."""
    priority: int = 0
    """Of a task: a number without a unit. Of the tasks of one tenant, the highest is first."""
    tenant: str = ""
    """Of a task; empty for nobody's."""


class UsageRow(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What model calls of one group have used, over all sessions of a journal."""

    group: dict[str, str]
    """What they have in common, such as {"tenant": "K7", "model": "openai-chat:gpt-5-mini", "day": "2026-11-30"}; a value is empty where it is unknown."""
    requests: int = 0
    """Requests that reported what they used, failed ones included."""
    usage: Usage = Usage()
    """Their tokens."""
    cost: Decimal = Decimal(0)
    """What those with a known price have cost."""
    unpriced: int = 0
    """Requests to a model without a known price: their tokens are counted, and their cost is not."""


class Lease(Protocol):
    """The right to write one session, for as long as its run lasts."""

    @property
    def head(self) -> int | None:
        """Number of the session's last event when the lease was taken; None where the store does not say."""
        ...

    @property
    def has_messages(self) -> bool | None:
        """Whether anything lay in the session's inbox then; None where the store does not say."""
        ...

    async def release(self) -> None:
        """Give the session back. May be called twice, also after the lease was lost."""
        ...


class Degradation(Protocol):
    """A journal that continues without its store for a while, and says so."""

    def listen(self, session_id: str, on_event: Callable[[JournalDegraded], None]) -> None:
        """Call back when the store of this session has failed, and when it is back.

        Args:
            session_id: The session to watch.
            on_event: Called on the event loop with what has happened.
        """
        ...

    def waiting(self, session_id: str) -> int:
        """Return how many events of a session are in memory only, because its store has failed."""
        ...


@runtime_checkable
class HasBell(Protocol):
    """A store that rings in every process that listens when a task or a message is left in it."""

    def hear_bell(self, ring: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Listen as long as the context lasts. While the store is away, nothing rings; it rings once when it is back.

        Args:
            ring: Called on this event loop soon after something was left, and perhaps without a reason.
        """
        ...


@runtime_checkable
class HasClock(Protocol):
    """A store with a clock of its own, which all machines that share the store can ask."""

    async def now(self) -> float | None:
        """Return seconds since 1970 by the store's clock; None where it has none after all.

        Raises:
            JournalError: The store failed.
        """
        ...


@runtime_checkable
class HasOverview(Protocol):
    """A store that answers some questions about its sessions without their events being read one by one."""

    async def held(self, session_ids: Collection[str]) -> Collection[str]:
        """Return those of these sessions that a process which seems to live runs. Waits for nothing, so one that has just died may count.

        Args:
            session_ids: The ids of the sessions that are asked about.

        Raises:
            JournalError: The store failed.
        """
        ...

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the ids of the sessions in which a call has the result `outcome_unknown`; others may be among them.

        Raises:
            JournalError: The store failed.
        """
        ...


@runtime_checkable
class HasInboxes(Protocol):
    """A store that says which of its paused sessions have messages, without asking them one by one."""

    async def with_messages(self) -> Collection[str]:
        """Return the ids of the paused sessions in whose inbox a message waits that their run would take in.

        Raises:
            JournalError: The store failed.
        """
        ...


@runtime_checkable
class HasLive(Protocol):
    """A store over which followers in other processes are told what is not stored: an answer, while it comes."""

    async def tell_live(self, session_id: str, number: int, pieces: Sequence[str], told: int) -> int:
        """Tell the followers of a session a text that grows; do nothing where there are none.

        Args:
            number: Of the text: a later one has a higher number.
            pieces: The whole of the text so far.
            told: How many of the pieces the followers know.

        Returns:
            How many of the pieces they know now.

        Raises:
            JournalError: The store failed.
        """
        ...

    def hear_live(self, session_id: str) -> AbstractAsyncContextManager[Callable[[], list[tuple[int, str]]]]:
        """Receive the live texts of a session.

        Returns:
            A function that returns what has come since it was last called, each part with the number of its text; every text
            from its beginning on, in order. While the store is away, nothing comes.
        """
        ...


class Journal(Protocol):
    """The append-only log of all sessions in one store. Safe to use from many tasks of one event loop."""

    @property
    def location(self) -> str:
        """Where it is, for people: a path or an address without secrets."""
        ...

    async def create(self, session_id: str) -> bool:
        """Make the session if there is none. Return whether it was made."""
        ...

    async def acquire(self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> Lease:
        """Take the session for one run. Whoever held it before is fenced: its appends are refused from now on.

        Args:
            on_lost: Called on this event loop, once, when another process has taken the session over because this one
                had sent no heartbeat for too long. Everything under way should stop.
            on_message: Called on this event loop soon after something has been left in the session's inbox.

        Raises:
            SessionHeld: A process or task that is alive holds it; the message says which and since when.
            UnknownSession: There is no such session.
            JournalError: The store failed.
        """
        ...

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        """Append numbered events; all of them or none.

        Without `durable` it may return before they are stored, in order; with it they survive a power cut, together with
        everything appended before.

        Raises:
            SessionConflict: Another writer has appended: nothing was written.
            JournalError: The store failed. Also raised, once, by the next call after a deferred append failed.
        """
        ...

    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence[InboxMessage] = ()
    ) -> None:
        """Make a session that has these events, from number 1, and these waiting messages; all of it, durable, or nothing.

        Raises:
            SessionExists: There is a session by that id, be it deleted.
            JournalError: The store failed.
        """
        ...

    async def purge(self, session_id: str, tombstone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        """Remove everything of a session but this event, numbered 1, which says that the session is deleted.

        Args:
            tombstone: The one event that stays.
            blobs: Stored bytes that are removed too, where no other session names them.

        Raises:
            UnknownSession: There is no such session.
            JournalError: The store failed.
        """
        ...

    async def flush(self) -> None:
        """Return when everything appended so far is stored (not necessarily synced).

        Raises:
            JournalError: An append failed.
        """
        ...

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        """Return the session's events with a number above `after`, in order; none for an unknown session.

        Args:
            after: The number of an event, from 1; 0 for all events.
        """
        ...

    async def sessions(self, where: SessionFilter = ALL_SESSIONS) -> Sequence[SessionInfo]:
        """Return the sessions that a filter names, the last changed first. No event is read for it."""
        ...

    def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[AnyEvent]:
        """Give the events after a number as they are stored, by whichever process, until the session's run has ended.

        A session whose run has ended already gives what it has, and ends. One that is paused is waited for. Leave the
        iteration to end it at any time.

        Args:
            after: The number of the last event that the caller has; 0 for all events.

        Raises:
            JournalError: The store failed.
        """
        ...

    async def usage(
        self, by: Sequence[str] = ("tenant", "model", "day"), *, since: Deadline | None = None
    ) -> Sequence[UsageRow]:
        """Return what all sessions have used, in groups, by the values of the groups. Every event since then is read.

        Example:
            for row in await journal.usage(("tenant",)):
                print(row.group["tenant"], row.cost)

        Args:
            by: `model`, `day` or `month` (of UTC), `agent`, `session`, or keys of the sessions' metadata, such as `tenant`.
            since: A datetime with a time zone, or seconds since 1970; None for all of it.

        Raises:
            JournalError: The store failed.
            ConfigurationError: `since` is not an instant.
        """
        ...

    async def approvals(self) -> Sequence[Approval]:
        """Return the requests for consent that wait for an answer, over all sessions."""
        ...

    async def due(self, *, before: float | None = None, limit: int | None = None) -> Sequence[DueItem]:
        """Return what is due until an instant, in seconds since 1970, over all sessions: the earliest first; None for all.

        Sessions whose run has ended are not among them. An item stays listed until the session's run has continued.
        A task that may begin at once is due at any instant: the clock of whoever submitted it may be ahead.

        Args:
            before: An instant, in seconds since 1970; None for all items.
            limit: How many items to return at most; None for all of them.
        """
        ...

    async def resumable(self, *, now: float | None = None) -> Sequence[str]:
        """Return the sessions whose run would do something if it were resumed now, and that no process seems to run.

        Those are runs that broke off, and paused ones for which something has arrived: an answer, an input, a cancellation, a time.
        What arrives for an agent as a tool names the session at the top. A submitted task is for workers, and not among them.

        Args:
            now: In seconds since 1970; None for the machine's clock.
        """
        ...

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        """Leave a message in the inbox. Return False when one with its id exists already, consumed or not.

        Raises:
            UnknownSession: There is no such session.
        """
        ...

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        """Return the messages that nobody has consumed yet, in order of arrival."""
        ...

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        """Mark messages as consumed by the event numbered `seq`.

        Args:
            session_id: The session whose inbox holds them.
            message_ids: Ids of the messages; those that the inbox does not hold are passed over.
            seq: Number of the event.
        """
        ...

    async def put_blob(self, content: bytes) -> str:
        """Store bytes by their SHA-256 and return it in hexadecimal."""
        ...

    async def blob(self, digest: str) -> bytes | None:
        """Return stored bytes, or None."""
        ...

    async def close(self) -> None:
        """Store what is pending and let go of the store. May be called twice."""
        ...


def has_clock(journal: Journal) -> TypeGuard[HasClock]:
    """Whether a store has a clock. Asked in each run, where `isinstance` of a Protocol would read its members each time."""
    return _is_with_clock(type(journal))


@cache
def _is_with_clock(kind: type[Journal]) -> bool:
    return issubclass(kind, HasClock)


def has_live(journal: Journal) -> TypeGuard[HasLive]:
    """Whether a store tells followers what is not stored. Asked with each answer: see `has_clock`."""
    return _is_with_live(type(journal))


@cache
def _is_with_live(kind: type[Journal]) -> bool:
    return issubclass(kind, HasLive)
