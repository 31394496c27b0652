"""Scripts: a model's turns from a JSON file, read strictly. Plays nothing; the mock provider and ScriptedModel do.

A script is a JSON list of turns. Every key of a turn is optional:

    text              what the model says
    calls             list of {"name", "arguments", "id"}; arguments an object, or a raw string that need not be JSON;
                      id null to send none, absent for call_1, call_2, ...
    thinking          reasoning, sent before the text
    refusal           the text of a refusal
    finish            stop, tool_calls, length, content_filter, or any other word; "" to send none
    usage             {"input_tokens", "output_tokens", "cached_input_tokens", "cache_written_tokens", "reasoning_tokens"}, or
                      the vendor's names (prompt_tokens, completion_tokens); null to send none
    status            HTTP status (200); from 400 on the body is the vendor's error
    error             the error's message or object; with status 200 an error event inside the stream
    headers           further response headers, such as {"retry-after": "2"}; a content-length may lie
    body              the whole body instead of an answer: text (HTML, nothing, "data: ..." for a stream), or JSON
    body_base64       the same as bytes in base64, for what is not UTF-8
    prefix            text before the body, such as ": keep-alive\\n\\n" or a byte order mark
    newline           "\\n", "\\r\\n" or "\\r": how the lines of a stream end
    delay_ms          milliseconds before the first byte
    gap_ms            milliseconds between two writes
    chunk_size        bytes a write; small ones split events and characters
    pieces            fragments that a text or one call's arguments are streamed in (3)
    interleave        true: the fragments of several calls come in turns
    cut               where the answer breaks off: a number of bytes of the body, "before-answer" (no byte at all),
                      "before-body", "mid-text", "mid-arguments" (of the last call), "before-terminal" (content whole,
                      no finish), "before-done" (finish sent, nothing after it), "reset" (half-way, by a reset)
    cut_by            how: "close" (broken body), "reset" (TCP reset), "clean" (proper end of the body), "stall" (silence),
                      "endless" (comment lines for ever)
    bomb_bytes        so many bytes of comment lines after the body, all of it compressed with gzip into a thousandth
    gate              name of a gate (MockProvider.gate) at which the turn waits
    hold_after_call   wait there after this call, counted from 0, instead of before the answer
    hold_after_pieces wait there after so many pieces of the stream

The last turn repeats when the script is used up.
"""

import base64
import binascii
import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import msgspec
from msgspec import UNSET

from treadle.errors import ConfigurationError, check_kind, check_path
from treadle.fields import checked, checked_but
from treadle.messages import Usage
from treadle.mock.turns import CutBy, ScriptedCall, Turn, TurnLike, as_turn, call

__all__ = ["Script", "load_script", "parse_script", "parse_turn", "turn_of"]

_PLACES = ("before-answer", "before-body", "mid-text", "mid-arguments", "before-terminal", "before-done", "reset")
_TOKENS = {
    "input_tokens": "input_tokens",
    "prompt_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "completion_tokens": "output_tokens",
    "cached_input_tokens": "cached_input_tokens",
    "cached_tokens": "cached_input_tokens",
    "cache_written_tokens": "cache_written_tokens",
    "reasoning_tokens": "reasoning_tokens",
}
"""Names of token counts, ours and the vendor's, and the field of Usage that each is."""
_TOKEN_GROUPS = ("total_tokens", "prompt_tokens_details", "completion_tokens_details")
"""What else a vendor's usage holds; the sum is ours to make."""


class Script:
    """Turns in their order. The last one repeats when all are used up.

    Example:
        >>> Script([call("look"), "Done."]).turn(5).text
        'Done.'

    Args:
        turns: text, calls, turns, lists of them, or mappings as in a script file.
        exhausted: `repeat` the last turn, or treat a further request as an `error`.
    """

    @checked_but("turns")
    def __init__(
        self, turns: Sequence[TurnLike | Mapping[str, Any]], *, exhausted: Literal["repeat", "error"] = "repeat"
    ) -> None:
        if not isinstance(turns, Sequence) or isinstance(turns, str | bytes) or not turns:
            raise ConfigurationError("A script needs a list of at least one turn.")
        self.turns = tuple(turn_of(turn) for turn in turns)
        self.exhausted = exhausted

    @checked
    def turn(self, index: int) -> Turn | None:
        """Return the turn of the request numbered from 0, or None when the script is used up and does not repeat."""
        if index < len(self.turns):
            return self.turns[index]
        return self.turns[-1] if self.exhausted == "repeat" else None


@checked
def load_script(path: str | Path) -> Script:
    """Read a script from a JSON file.

    Example:
        >>> load_script("nowhere.json")
        Traceback (most recent call last):
        treadle.errors.ConfigurationError: Script 'nowhere.json' cannot be read: No such file or directory. Check its path.

    Raises:
        ConfigurationError: There is no such file, or it is not a script; the message says where and what to write.
    """
    check_path("path", path)
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as exc:
        why = (exc.strerror if isinstance(exc, OSError) else None) or exc
        raise ConfigurationError(f"Script {str(path)!r} cannot be read: {why}. Check its path.") from exc
    return parse_script(content, where=str(path))


@checked
def parse_script(content: str | bytes, *, where: str = "script") -> Script:
    """Read a script from JSON.

    Example:
        >>> parse_script('[{"text": "Hello."}]').turns[0].text
        'Hello.'

    Raises:
        ConfigurationError: It is not a script; the message names `where`, the turn and the key.
    """
    check_kind("content", content, (str, bytes), "a JSON list of turns, as text or bytes")
    try:
        value = json.loads(content, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise ConfigurationError(f"{where} is not JSON: {exc}. A script is a JSON list of turns.") from exc
    if not isinstance(value, list):
        raise ConfigurationError(f"{where} must be a list of turns; got {_kind(value)}.")
    if not value:
        raise ConfigurationError(f"{where} is an empty list; a script needs at least one turn.")
    return Script([parse_turn(turn, where=f"{where}: turn [{index}]") for index, turn in enumerate(value)])


def turn_of(item: TurnLike | Mapping[str, Any]) -> Turn:
    """Return one turn of words, calls, a list of both, or a mapping as a script file has it.

    Raises:
        ConfigurationError: It is nothing of the kind.
    """
    return parse_turn(dict(item)) if isinstance(item, Mapping) else as_turn(item)


def parse_turn(value: Any, *, where: str = "turn") -> Turn:  # Any: JSON of strangers
    """Read one turn from its JSON value.

    Raises:
        ConfigurationError: It is not a turn; the message names `where` and the key.
    """
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} must be an object; got {_kind(value)}.")
    fields = dict(_parsed(value, _TURN_KEYS, where))
    if "body_base64" in fields:
        if "body" in fields:
            raise ConfigurationError(f"{where} has both body and body_base64; give one of them.")
        fields["body"] = fields.pop("body_base64")
    try:
        return Turn(**fields)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{where}: {exc}") from exc


class _Wrong(Exception):
    """A value is not what its key takes; says what it must be."""


_Check = Callable[[Any], Any]


def _parsed(value: Mapping[str, Any], keys: Mapping[str, _Check], where: str) -> Iterable[tuple[str, Any]]:
    for key, item in value.items():
        if key not in keys:
            raise ConfigurationError(f"{where} has the unknown key {key!r}; {_nearest(key, keys)}")
        try:
            yield key, keys[key](item)
        except _Wrong as exc:
            raise ConfigurationError(f"{where}: {key} must be {exc}; got {_kind(item)}.") from None
        except ConfigurationError as exc:
            raise ConfigurationError(f"{where}: {key}{exc}") from exc


def _nearest(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key.lower(), known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."


def _kind(value: Any) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            shown = json.dumps(value)
            return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in one object (script broken arguments as a raw string)")
    return result


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON value (script broken arguments as a raw string)")


def _a_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Wrong("a string")
    return value


def _some_text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _Wrong("a string or null")
    return value


def _a_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Wrong("true or false")
    return value


def _a_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _Wrong("a whole number of 0 or more")
    return value


def _a_span(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise _Wrong("a number of 0 or more")
    return value


def _one_of(*choices: str) -> _Check:
    def check(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise _Wrong(f"one of {', '.join(map(json.dumps, choices))}")
        return value

    return check


def _calls(value: Any) -> tuple[ScriptedCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _Wrong("a list of calls")
    return tuple(_call(item, f"[{index}]") for index, item in enumerate(value))


def _call(value: Any, where: str) -> ScriptedCall:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} must be an object with a name; got {_kind(value)}.")
    fields = dict(_parsed(value, _CALL_KEYS, where))
    if "name" not in fields:
        raise ConfigurationError(f"{where} has no name.")
    try:
        return call(fields.pop("name"), **fields)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{where}: {exc}") from exc


def _arguments(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise _Wrong("an object, or a string with the raw text")
    return value


def _finish(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise _Wrong("a string")
    return UNSET if value is None else value or None


def _usage(value: Any) -> Usage | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _Wrong("an object of token counts, or null to send none")
    counts = {_TOKENS[key]: number for key, number in _token_counts(value, "") if key in _TOKENS}
    return msgspec.convert(counts, Usage)


def _token_counts(value: Mapping[str, Any], where: str) -> Iterable[tuple[str, int]]:
    for key, item in value.items():
        if key not in _TOKENS and key not in _TOKEN_GROUPS:
            raise ConfigurationError(f"{where} has the unknown key {key!r}; {_nearest(key, _TOKENS)}")
        if isinstance(item, dict) and key in _TOKEN_GROUPS:
            yield from _token_counts(item, f"{where}.{key}")
        elif isinstance(item, bool) or not isinstance(item, int) or item < 0:
            raise ConfigurationError(f"{where}.{key} must be a whole number of 0 or more; got {_kind(item)}.")
        else:
            yield key, item


def _headers(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(_is_header_value(item) for item in value.values()):
        raise _Wrong("an object of header names and strings or numbers")
    return {name: str(item) for name, item in value.items()}


def _is_header_value(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _body(value: Any) -> bytes:
    if not isinstance(value, str | dict | list):
        raise _Wrong("a string, an object or a list")
    return _encoded(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _base64(value: Any) -> bytes:
    try:
        return base64.b64decode(_a_text(value), validate=True)
    except (binascii.Error, ValueError):
        raise _Wrong("base64") from None


def _prefix(value: Any) -> bytes:
    return _encoded(_a_text(value))


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _Wrong("text without lone surrogates (body_base64 takes any bytes)") from None


def _error(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise _Wrong("a message or an object")
    return value


def _status(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 200 <= value <= 599:
        raise _Wrong("an HTTP status from 200 to 599")
    return value


def _cut(value: Any) -> Any:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    if not isinstance(value, str) or value not in _PLACES:
        raise _Wrong(f"a number of bytes of 0 or more, or one of {', '.join(_PLACES)}")
    return value


_CALL_KEYS: Mapping[str, _Check] = {"name": _a_text, "arguments": _arguments, "id": _some_text}
_TURN_KEYS: Mapping[str, _Check] = {
    "text": _some_text,
    "calls": _calls,
    "thinking": _some_text,
    "refusal": _some_text,
    "finish": _finish,
    "usage": _usage,
    "status": _status,
    "error": _error,
    "headers": _headers,
    "body": _body,
    "body_base64": _base64,
    "prefix": _prefix,
    "newline": _one_of("\n", "\r\n", "\r"),
    "delay_ms": _a_span,
    "gap_ms": _a_span,
    "chunk_size": _a_count,
    "pieces": _a_count,
    "interleave": _a_flag,
    "bomb_bytes": _a_count,
    "cut": _cut,
    "cut_by": _one_of(*get_args(CutBy)),
    "gate": _a_text,
    "hold_after_call": _a_count,
    "hold_after_pieces": _a_count,
}
