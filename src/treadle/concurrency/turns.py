"""Turns: carry long work out in slices, so that the event loop goes round between two of them. Knows no work."""

import asyncio
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["in_turns"]

_T = TypeVar("_T")


async def in_turns(slices: Iterable[_T]) -> list[_T]:
    """Take every slice, with a turn for others between two, and return them. Being cancelled ends it there."""
    taken: list[_T] = []
    for one in slices:
        if taken:
            await asyncio.sleep(0)
        taken.append(one)
    return taken
