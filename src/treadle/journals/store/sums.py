"""Checksums of what is stored: chained over a session's events, single for messages. Stores nothing.

They find accidents: a changed byte, an edited record, an event that was removed, exchanged or copied from elsewhere. They
have no key, so they do not stop somebody who may write to the store and computes them anew: that takes the permissions of
the store.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from treadle.errors import JournalError

__all__ = ["MessageRow", "SumRow", "chain", "chained", "check_link", "check_messages", "message_sum"]

SumRow = tuple[int, str, bytes | None]
"""seq, body, sum; no sum for an event that an older version has stored."""

MessageRow = tuple[str, Any, str, bytes | None]  # Any: the kind, a Literal that a store keeps as text
"""id, kind, body, sum; no sum for a message that an older version has stored."""

_BYTES = 16


def chained(session_id: str, before: bytes | None, seq: int, body: str) -> bytes:
    """Return the sum of an event.

    Args:
        before: The sum of the event before; None where it has none.
    """
    found = blake2b(before or b"", digest_size=_BYTES)
    found.update(b"\0%d\0" % seq)
    found.update(session_id.encode())
    found.update(b"\0")
    found.update(body.encode())
    return found.digest()


def chain(session_id: str, before: bytes | None, items: Iterable[tuple[int, str]]) -> list[bytes]:
    """Return the sums of events that follow each other."""
    sums = []
    for seq, body in items:
        before = chained(session_id, before, seq, body)
        sums.append(before)
    return sums


def check_link(session_id: str, before: bytes | None, row: SumRow) -> bytes | None:
    """Compare an event with its sum, and return that.

    Args:
        before: The sum of the event before; None where it has none.

    Raises:
        JournalError: The event, the one before, or the sum was changed. The message says where.
    """
    seq, body, stored = row
    if stored is None:
        if before is not None:
            raise _changed(session_id, seq, "has no checksum, though the event before has one")
        return None
    if bytes(stored) != chained(session_id, before, seq, body):
        raise _changed(session_id, seq, "does not match its checksum")
    return bytes(stored)


def message_sum(session_id: str, message_id: str, kind: str, body: str) -> bytes:
    """Return the sum of a message in an inbox."""
    return blake2b(f"{session_id}\x00{message_id}\x00{kind}\x00{body}".encode(), digest_size=_BYTES).digest()


def check_messages(session_id: str, rows: Sequence[MessageRow]) -> None:
    """Compare messages with their sums, where they have any.

    Raises:
        JournalError: One was changed after it was stored.
    """
    for message_id, kind, body, stored in rows:
        if stored is not None and bytes(stored) != message_sum(session_id, message_id, kind, body):
            raise JournalError(
                f"Session {session_id!r} is damaged: the message {message_id!r} in its inbox does not match its checksum. "
                "Restore the journal from a backup; nothing was changed."
            )


def _changed(session_id: str, seq: int, what: str) -> JournalError:
    return JournalError(
        f"Session {session_id!r} is damaged: event {seq} {what}. It, or an event before it, was changed after it was "
        "stored. Restore the journal from a backup; nothing was changed."
    )
