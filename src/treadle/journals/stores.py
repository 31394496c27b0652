"""What the author of a store imports. See docs/stores.md."""

from treadle.journals.store.appends import Append, followed
from treadle.journals.store.backend import Backend, StoredEvents
from treadle.journals.store.journal import StoreJournal
from treadle.journals.store.listing import listed
from treadle.journals.store.local_leases import LocalLease, LocalLeases
from treadle.journals.store.rows import SessionRow
from treadle.journals.store.sequence import conflict, exists, taken_over, unknown
from treadle.journals.store.sums import MessageRow, SumRow

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
