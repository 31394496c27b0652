"""Collecting: put off the full collections of garbage while very many objects are held for a moment. Collects nothing.

A full collection looks at every object of the process, and holds up all its threads meanwhile: some 20 ms for 100,000 messages. While a
long session is read to be explained, exported or imported, each of its objects is there twice. Young garbage is collected as always.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["full_collections_put_off"]

_NEVER = 1_000_000_000
"""Young collections before a full one."""

_lock = threading.Lock()
_held = 0
_before: tuple[int, int, int] = gc.get_threshold()


@contextmanager
def full_collections_put_off() -> Iterator[None]:
    """Hold full collections back for a while, in this process. What the program sets meanwhile by itself stays."""
    global _held, _before  # noqa: PLW0603 - the collector is one for the process, and so is what was asked of it
    with _lock:
        _held += 1
        if _held == 1:
            _before = gc.get_threshold()
            gc.set_threshold(*_before[:2], _NEVER)
    try:
        yield
    finally:
        with _lock:
            _held -= 1
            if _held == 0 and gc.get_threshold() == (*_before[:2], _NEVER):
                gc.set_threshold(*_before)
