"""Seats: how many threads work on files at one moment. Knows no file.

Each thread that runs Python code may keep Python's global lock for 5 ms before another gets it. With sixteen of them the event
loop would wait for its turn for 80 ms. So a few work, and the others wait without the lock.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from queue import SimpleQueue

__all__ = ["give_way", "seated"]

_SEATS = 2


def _row() -> "SimpleQueue[None]":
    row: SimpleQueue[None] = SimpleQueue()
    for _ in range(_SEATS):
        row.put(None)
    return row


class _Free:
    row = _row()


def _after_fork() -> None:
    _Free.row = _row()  # who sat there in the parent does not exist in the child


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def seated() -> Generator[None]:
    """Wait for a seat, and keep it for the block. Not to be nested."""
    row = _Free.row
    row.get()
    try:
        yield
    finally:
        row.put(None)


def give_way() -> None:
    """Let another thread have our seat, and wait for the next free one. For long work, every few milliseconds."""
    row = _Free.row
    row.put(None)
    row.get()
