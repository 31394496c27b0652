"""What is handed to a store's writer, encoded and checked on the caller's side. Knows no connection."""

from collections.abc import Sequence

import msgspec

from treadle import canonical
from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.fields import explained
from treadle.journals.store.due import LISTING, DueChanges, due_changes, merged
from treadle.journals.store.rows import EventRow, rows_of
from treadle.journals.store.sequence import DESCRIBING, check_numbers, conflict, status_of, task_of, tenant_of
from treadle.journals.store.sums import MessageRow, SumRow, chain, message_sum
from treadle.ports import InboxMessage, SessionInfo

__all__ = ["Append", "Followers", "append_of", "followed", "message_of"]


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """Events that are to follow a session's head, encoded."""

    session_id: str
    rows: Sequence[EventRow]
    state: str
    task: str = ""
    """First words of the run's task where one starts here; kept only by a session that has none yet."""
    tenant: str | None = None
    """Whose session it is, where these events say so."""
    status: str | None = None
    """What people have made of the session, where these events say so."""
    due: DueChanges | None = None
    """What these events change in the index of what waits; None where they change nothing."""

    @property
    def before(self) -> int | None:
        """Number of the event that these follow; None without events."""
        return self.rows[0][0] - 1 if self.rows else None

    def chained(self, before: bytes | None) -> list[SumRow]:
        """Return number, text and checksum of each event.

        Args:
            before: The checksum of the event that these follow; None where it has none.
        """
        sums = chain(self.session_id, before, ((row[0], row[4]) for row in self.rows))
        return [(row[0], row[4], one) for row, one in zip(self.rows, sums, strict=True)]


class Followers:
    """Appends of one session that follow a first one in its transaction: where that one was right, so are they.

    Args:
        first: What the store has judged and taken, with at least one event.
    """

    def __init__(self, first: Append) -> None:
        self._head = first.rows[-1][0]
        self._appends: list[Append] = []

    def take(self, append: Append) -> bool:
        """Take one more. Return whether it follows; where not, it must be judged by itself."""
        follows = bool(append.rows) and append.rows[0][0] == self._head + 1
        if follows:
            self._head = append.rows[-1][0]
            self._appends.append(append)
        return follows

    def as_one(self) -> Append | None:
        """Return all that were taken as one append; None where there were none."""
        if not self._appends:
            return None
        last = self._appends[-1]
        return Append(
            session_id=last.session_id,
            rows=[row for append in self._appends for row in append.rows],
            state=last.state,
            task=next((append.task for append in self._appends if append.task), ""),
            status=next((append.status for append in reversed(self._appends) if append.status), None),
            tenant=next((append.tenant for append in reversed(self._appends) if append.tenant is not None), None),
            due=merged(append.due for append in self._appends),
        )


@explained
def append_of(session_id: str, events: Sequence[AnyEvent], state: str, *, is_unlisted: bool = False) -> Append:
    """Encode events now, so that what is stored is what they were when they were appended.

    Args:
        is_unlisted: Whether the session surely has no row in the index of what waits.

    Raises:
        ConfigurationError: The caller numbered them wrongly.
        JournalError: One holds what JSON cannot; none may be stored.
    """
    check_numbers(events)
    is_still = is_unlisted and LISTING.isdisjoint(map(type, events))
    describing = () if DESCRIBING.isdisjoint(map(type, events)) else events
    return Append(
        session_id=session_id,
        rows=rows_of(events),
        state=state,
        task=task_of(describing),
        status=status_of(describing),
        tenant=tenant_of(describing),
        due=None if is_still else due_changes(session_id, events),
    )


@explained
def followed(info: SessionInfo, append: Append) -> SessionInfo:
    """Return a session's line in the list after an append.

    Raises:
        SessionConflict: The append does not follow the session's last event.
    """
    if append.before is not None and append.before != info.head:
        raise conflict(info.id, info.head, append.before + 1)
    return msgspec.structs.replace(
        info,
        phase=append.state,
        head=append.rows[-1][0] if append.rows else info.head,
        updated_at=append.rows[-1][1] if append.rows else info.updated_at,
        task=info.task or append.task,
        status=append.status or info.status,
        tenant=info.tenant if append.tenant is None else append.tenant,
    )


def message_of(session_id: str, message: InboxMessage) -> MessageRow:
    """Encode a message to a session.

    Raises:
        JournalError: It holds what JSON cannot.
        UnicodeEncodeError: Its id is not text.
    """
    if (fault := canonical.find_unencodable(message.body)) is not None:
        raise JournalError(f"The message {message.id!r} cannot be stored: {fault}.")
    body = msgspec.json.encode(message.body).decode()
    return message.id, message.kind, body, message_sum(session_id, message.id, message.kind, body)
