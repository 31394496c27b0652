"""Rendering: what all dialects need to say a turn: JSON bytes, events of a stream, tokens that only have to be there. Knows no dialect."""

import json
from collections.abc import Mapping
from typing import Any

from treadle.messages import Finish, Usage
from treadle.mock.turns import Turn, finish_of

__all__ = ["arguments_text", "event_lines", "finish_name", "json_bytes", "used_tokens"]


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


def finish_name(turn: Turn, names: Mapping[Finish, str]) -> str | None:
    """Return why a turn ended, by the vendor's name for it; the turn's own text where the vendor has none. None for no reason.

    Args:
        names: The vendor's name of each reason.
    """
    if turn.finish is None:
        return None
    finish = finish_of(turn)
    return names[finish] if finish in names else str(turn.finish)


def arguments_text(arguments: Any) -> str:
    """Return a call's arguments as Anthropic and Bedrock stream them: as text, and nothing for an empty object."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return "" if text.strip() == "{}" else text


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
