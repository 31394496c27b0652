"""Shortening: how much room texts take, how several share one, and what of a long one is kept. Values only."""

import re
from collections.abc import Sequence

import msgspec

from treadle.messages import Media, Part, Result

__all__ = ["CLEARED", "MEDIA_CHARS", "clipped", "is_cleared", "sent_chars", "shares"]

MEDIA_CHARS = 6_000
"""What a picture, a sound or a file counts: 1,500 tokens, about a large picture with the vendors who tell."""

CLEARED = "[Old result of {tool} cleared; kept as artifact {artifact}.]"
"""What stands in place of an old result that was cleared."""
_CLEARED = re.compile(r"\[Old result of (.+) cleared; kept as artifact a_\w{1,20}\.\]")


def is_cleared(part: Result) -> bool:
    """Whether nothing of a result is left but the name of the artifact that holds it."""
    found = _CLEARED.fullmatch(part.content)
    return found is not None and found[1] == part.name


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


def sent_chars(part: Part) -> int:
    """Return about how many characters of a request a part takes. What is not text counts a fixed number."""
    match part:
        case Media(media_type=kind, base64=str(content)) if kind.startswith("text/"):
            return len(content)
        case Media():
            return MEDIA_CHARS
        case Result(media=media) if media:
            return len(part.content) + sum(map(sent_chars, media))
        case _:
            return len(msgspec.json.encode(part))
