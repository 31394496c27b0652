"""Long texts: decode a JSON text that holds texts of megabytes, in slices. Knows no event.

A decoder holds up all threads of the process until it is done. So long texts are decoded by themselves, a slice at a time, and put in the
places of short ones.
"""

import re
from itertools import pairwise
from typing import Any

import msgspec

__all__ = ["decode_slowly"]

_LONG = 256 * 1024
"""Characters of a text from which on it is decoded by itself, and of one slice."""
_MOST_TEXTS = 20_000
"""Texts that are looked at one by one: of many short ones, none is long enough to matter."""
_MARK = "\ufdd0long text "

_INSIDE = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_ESCAPE = 6
"""Characters of an escape such as those of half a surrogate pair."""

_texts = msgspec.json.Decoder(str)


def decode_slowly(body: str) -> Any:  # Any: JSON
    """Return the value of a JSON text: new dicts, lists and scalars.

    Raises:
        msgspec.DecodeError: It is not JSON.
    """
    try:
        short, texts = _without_long_texts(body)
        if texts and short.count(_MARK) == len(texts):
            return _with_long_texts(msgspec.json.decode(short), texts)
    except msgspec.DecodeError:
        pass  # of a part: the whole says where
    return msgspec.json.decode(body)


def _without_long_texts(body: str) -> tuple[str, list[str]]:
    """Put short texts in the places of the long ones."""
    pieces: list[str] = []
    texts: list[str] = []
    taken, start = 0, body.find('"')
    for _ in range(_MOST_TEXTS):
        if start < 0:
            break
        cuts = _cuts(body, start + 1)
        if len(cuts) > 2:
            pieces += (body[taken:start], f'"{_MARK}{len(texts)}"')
            texts.append("".join([_decoded(body[begin:end]) for begin, end in pairwise(cuts)]))
            taken = cuts[-1] + 1
        start = body.find('"', cuts[-1] + 1)
    return "".join([*pieces, body[taken:]]), texts


def _cuts(body: str, start: int) -> list[int]:
    """Return where the slices of a text begin, and where it ends."""
    cuts = [start]
    while True:
        found = _INSIDE.match(body, cuts[-1], cuts[-1] + _LONG)
        end = cuts[-1] if found is None else found.end()
        if end == len(body) or body[end] == '"' or end - cuts[-1] < _LONG // 2:
            return [*cuts, end]
        cuts.append(_before_half_an_escape(body, cuts[-1], end))


def _before_half_an_escape(body: str, start: int, end: int) -> int:
    """Return a place at or before `end` that divides no escape, and no two that are one character together."""
    last = body.rfind("\\u", max(start, end - _ESCAPE), end)
    if last < 0 or _is_escaped(body, start, last):
        return end
    if last + _ESCAPE == end and not _HIGH.match(body, last):
        return end
    return last - _ESCAPE if _HIGH.match(body, last - _ESCAPE) else last


def _is_escaped(body: str, start: int, place: int) -> bool:
    """Whether the backslash at a place is the second of a pair."""
    before = place
    while before > start and body[before - 1] == "\\":
        before -= 1
    return (place - before) % 2 == 1


def _decoded(inside: str) -> str:
    return _texts.decode(f'"{inside}"')


def _with_long_texts(value: Any, texts: list[str]) -> Any:
    match value:
        case str() if value.startswith(_MARK):
            return texts[int(value.removeprefix(_MARK))]
        case dict():
            return {_with_long_texts(name, texts): _with_long_texts(item, texts) for name, item in value.items()}
        case list():
            return [_with_long_texts(item, texts) for item in value]
        case _:
            return value
