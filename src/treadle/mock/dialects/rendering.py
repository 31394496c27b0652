"""Rendering: what all dialects need to say a turn: JSON bytes, events of a stream, tokens that only have to be there. Knows no dialect."""

import json
from typing import Any

from treadle.messages import Usage
from treadle.mock.turns import Turn

__all__ = ["event_lines", "json_bytes", "used_tokens"]


def json_bytes(value: Any) -> bytes:
    """Return JSON in UTF-8; lone surrogates, which have no UTF-8, as escapes."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def event_lines(data: bytes, turn: Turn, *, kind: str | None = None) -> bytes:
    """Return one event of a stream, its lines ended as the turn says. `kind` is the name of its type, if it has one."""
    newline = turn.newline.encode()
    named = b"" if kind is None else b"event: " + kind.encode() + newline
    return named + b"data: " + data + newline + newline


def used_tokens(turn: Turn, prompt: Any) -> Usage:
    """Return the tokens of a turn: its own, or four characters a token."""
    if isinstance(turn.usage, Usage):
        return turn.usage
    said = [
        turn.text or "",
        turn.thinking or "",
        turn.refusal or "",
        *(made.name + made.arguments for made in turn.calls),
    ]
    return Usage(input_tokens=len(json_bytes(prompt)) // 4 + 1, output_tokens=sum(map(len, said)) // 4 + 1)
