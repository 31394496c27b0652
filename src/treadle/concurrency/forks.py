"""Forks: what a process that was forked does with its parent's threads, connections and locks. Forks nothing.

A fork copies the memory and shares the descriptors, and has none of the parent's threads. So whoever owns a thread, a
connection or a lock begins anew in the child, and what belongs to the parent is kept, untouched, until the child ends:
closing it would speak to the parent's servers, or take its files from its event loop.
"""

import os
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

__all__ = ["after_fork", "bury", "watch"]


class Forked(Protocol):
    """What begins anew in a fork."""

    def after_fork(self) -> None:
        """Forget the parent's threads, connections and locks. Runs in the child, on its only thread. Must not raise."""
        ...


_watched: WeakSet[Forked] = WeakSet()
_callbacks: list[Callable[[], None]] = []
_graveyard: list[Any] = []


def watch(one: Forked) -> None:
    """Have an object notified in each fork, for as long as it lives."""
    _watched.add(one)


def after_fork(callback: Callable[[], None]) -> Callable[[], None]:
    """Have a function of a module called in each fork. To be used as a decorator."""
    _callbacks.append(callback)
    return callback


def bury(*things: Any) -> None:
    """Keep what belongs to the parent until this process ends."""
    _graveyard.extend(things)


def _tell() -> None:
    for one in tuple(_watched):
        one.after_fork()
    for callback in _callbacks:
        callback()


os.register_at_fork(after_in_child=_tell)
