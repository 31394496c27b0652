"""What the author of a store imports. See docs/know/stores.md."""

from treadle.journals.backend import (
    Append,
    Backend,
    LocalLease,
    LocalLeases,
    MessageRow,
    SessionRow,
    StoredEvents,
    SumRow,
    conflict,
    exists,
    followed,
    taken_over,
    unknown,
)
from treadle.journals.store import StoreJournal, listed

__all__ = [
    "Append",
    "Backend",
    "LocalLease",
    "LocalLeases",
    "MessageRow",
    "SessionRow",
    "StoreJournal",
    "StoredEvents",
    "SumRow",
    "conflict",
    "exists",
    "followed",
    "listed",
    "taken_over",
    "unknown",
]
