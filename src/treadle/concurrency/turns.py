"""Turns: carry long work out in slices, so that the event loop goes round between two of them. Knows no work, changes no value."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Self, TypeAlias, TypeVar

from treadle.concurrency.collecting import full_collections_put_off

__all__ = ["Keep", "LettingGo", "in_turns"]

Keep: TypeAlias = Callable[[tuple[Any, ...]], None]
"""Takes a slice of what a large value holds."""

_T = TypeVar("_T")


async def in_turns(slices: Iterable[_T]) -> list[_T]:
    """Take every slice, with a turn for others between two, and return them. Being cancelled ends it there."""
    taken: list[_T] = []
    for one in slices:
        if taken:
            await asyncio.sleep(0)
        taken.append(one)
    return taken


class LettingGo:
    """Frees what a very large value holds in slices, when it is asked to release it: to free a million objects at once holds up all threads.

    So whoever looks at a large value keeps a part of what it holds in each of many tuples, which are dropped one after the other when
    the value itself is gone. Where somebody else still holds the value, nothing happens but that. Full collections of garbage are put
    off meanwhile.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Any, ...]] = []
        self._putting_off: AbstractContextManager[None] | None = None

    def keep(self, items: tuple[Any, ...]) -> None:
        """Keep a part of what the value holds: few objects, all of which are freed at once."""
        if self._putting_off is None:
            self._putting_off = full_collections_put_off()
            self._putting_off.__enter__()
        self._kept.append(items)

    def begin(self) -> None:
        """Let go from now on, as soon as whoever runs now waits for something. To be called on an event loop."""
        if self._kept:
            asyncio.get_running_loop().call_soon(self._go_on)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.begin()

    def _go_on(self) -> None:
        self._kept.pop()
        if self._kept:
            asyncio.get_running_loop().call_soon(self._go_on)
        elif self._putting_off is not None:
            self._putting_off.__exit__(None, None, None)
