"""Faults that every store can have, in words that say what to do. Acts on nothing."""

from treadle.errors import JournalError

__all__ = ["disk_full", "locked", "not_taken"]


def disk_full(place: object) -> JournalError:
    """Return the error of a store that has no room left."""
    return JournalError(f"The disk of the journal {place} is full. Free some space; what was recorded before is safe.")


def locked(place: object) -> JournalError:
    """Return the error of a store that another program keeps locked."""
    return JournalError(
        f"Another program keeps the journal {place} locked. Close it, or try again later; nothing was written."
    )


def not_taken(place: object, fault: object) -> JournalError:
    """Return the error of the one thing that a store cannot keep."""
    return JournalError(f"The journal {place} cannot store this ({fault}). Nothing was written.")
