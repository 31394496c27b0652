"""Shortening: how several texts share one room, and what of a long one is kept. Texts and numbers only."""

from collections.abc import Sequence

__all__ = ["clipped", "shares"]


def shares(sizes: Sequence[int], limit: int) -> list[int]:
    """Return how much of each of several sizes fits into a limit for all of them: the biggest are cut first.

    What is not cut is kept whole; all that are cut get the same share.
    """
    left = limit
    cut = dict.fromkeys(range(len(sizes)))
    for place in sorted(cut, key=lambda one: sizes[one]):
        if sizes[place] > left // len(cut):
            break
        left -= sizes[place]
        del cut[place]
    return [left // len(cut) if place in cut else size for place, size in enumerate(sizes)]


def clipped(text: str, room: int) -> str:
    """Return a text with its head and its tail around a word on what is left out; the same where it fits."""
    if len(text) <= room:
        return text
    mark = f" [... {len(text)} characters in all ...] "
    kept = max(room - len(mark), 0)
    tail = kept // 3
    return text[: kept - tail] + mark + (text[-tail:] if tail else "")
