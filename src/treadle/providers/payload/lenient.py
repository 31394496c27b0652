"""Lenient: read the JSON that servers really send. Marks what is not text, repairs nothing, and knows no dialect.

JSON that holds damage (broken UTF-8, control characters, half a surrogate pair) is read a second time, with a character of private use in the
place of each damage. What was read gets its damage back, in the form of `characters.py`: what it was part of decides what happens to
it. Arguments stay damaged, and so invalid; text is repaired.
"""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from treadle.errors import ModelResponseInvalid
from treadle.messages import Finish, Media, Opaque, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import ModelEnd
from treadle.validation.characters import (
    damaged_byte,
    damaged_json,
    is_damaged,
    is_damaged_throughout,
    joined,
    repaired,
    repaired_value,
)

__all__ = [
    "arguments_text",
    "cached_count",
    "call_arguments",
    "count",
    "counted",
    "decode",
    "is_unreadable",
    "is_worse",
    "repaired_end",
    "text_or_nothing",
    "written_count",
]

_T = TypeVar("_T")

_MAX_VALUES = 300_000
"""Values in one JSON text: each costs far more than its few bytes on the wire."""
_MAX_MENDED_BYTES = 1024 * 1024
"""Bytes of a JSON text that is read a second time, because what it holds is not Unicode."""
_MAX_LOOKS = 10_000
"""Places in it at which such damage is looked for: each costs microseconds."""
_HARMLESS = bytes(set(range(0x20, 0x7F)) - set(b'"\\'))

_texts = msgspec.json.Decoder(str)

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_DAMAGE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?P<half>[dD][89a-fA-F][0-9a-fA-F]{2})|[^\x00-\x1f])"
    "|[\x00-\x1f]|[\udc80-\udcff]"
)
# In place of damage stand characters of the last private area: 2,048 for the halves, 256 for bytes and control characters. One that
# a server really sends in a damaged text is read as damage, and never the other way round.
_FIRST_HALF = 0x10E000
_FIRST_BYTE = 0x10E800
_STAND_INS = re.compile("[\U0010e000-\U0010e8ff]")
_ESCAPED_BYTES = re.compile("[\udc80-\udcff]")


def decode(data: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Decode JSON. Damage in it is found again in the texts of the value: see `characters.py`.

    Raises:
        ModelResponseInvalid: It is not JSON, has another shape, or is too large to be decoded without holding the event loop.
    """
    if len(data) > _MAX_VALUES and data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_VALUES:
        raise ModelResponseInvalid(f"The server sent one JSON text of more than {_MAX_VALUES} values.")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        if len(data) > _MAX_MENDED_BYTES or len(data.translate(None, _HARMLESS)) > _MAX_LOOKS:
            raise ModelResponseInvalid(f"The server sent something that does not follow its protocol: {exc}.") from exc
    try:
        value = decoder.decode(_with_stand_ins(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ModelResponseInvalid(f"The server sent something that does not follow its protocol: {exc}.") from exc
    restored: _T = _restored(value)
    return restored


def text_or_nothing(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count(counts: Any, *names: str) -> int:
    """Return the largest of the numbers of tokens under these names; 0 where the server gives none, or nonsense."""
    found = [counts.get(name) for name in names] if isinstance(counts, dict) else []
    return max((_number(value) or 0 for value in found), default=0)


def cached_count(counts: Any, details: Any = None) -> int:
    """Return the tokens of the prompt that came from a cache, by whichever name: gateways send several, and 0 under the wrong one."""
    return max(count(counts, *_CACHED), count(details, *_CACHED))


def written_count(counts: Any, details: Any = None) -> int:
    """Return the tokens of the prompt that were written to a cache, by whichever name."""
    return max(count(counts, *_WRITTEN), count(details, *_WRITTEN))


_CACHED = (
    "cached_tokens",  # OpenAI in the details; Moonshot beside them
    "prompt_cache_hit_tokens",  # DeepSeek
    "cache_read_input_tokens",  # Anthropic, and LiteLLM for it
    "cache_read_tokens",
)
_WRITTEN = ("cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens")


def is_unreadable(counts: Any, *names: str) -> bool:
    """Whether the server sends one of these numbers in a form that is not a number of tokens."""
    return isinstance(counts, dict) and any(
        counts.get(name) is not None and _number(counts[name]) is None for name in names
    )


def _number(value: Any) -> int | None:
    """Return a number of tokens, which may be written as text; None for anything else. A boolean counts nothing."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:20])
    if type(value) is not int and type(value) is not float:
        return None
    return int(value) if 0 <= value < 2**53 else None


def counted(
    prompt: int, completion: int, *, cached: int, written: int = 0, reasoning: int = 0, is_partial: bool = False
) -> Usage | None:
    """Return the tokens, or None where the server counts nothing: no request has an empty prompt.

    Args:
        is_partial: Whether a number could not be read. The usage is then marked as an estimate, and the engine fills in what is 0.
    """
    if not prompt and not completion:
        return None
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cached_input_tokens=cached,
        cache_written_tokens=written,
        reasoning_tokens=reasoning,
        estimated=is_partial or not prompt,
    )


def call_arguments(pieces: Iterable[str]) -> str:
    """Return the arguments of a call from their pieces. Damaged ones are not valid JSON, wherever they are read."""
    text = "".join(pieces)
    return text if text.isascii() else damaged_json(joined(text))


def arguments_text(raw: msgspec.Raw) -> str:
    """Return the text of a call's arguments: of a string its content, of an object its own JSON, as it came, damage included."""
    encoded = bytes(raw)
    if encoded.startswith(b'"'):
        return decode(encoded, _texts)
    if encoded == b"null":
        return ""
    text = encoded.decode("utf-8", "surrogateescape")
    return text if text.isascii() else _ESCAPED_BYTES.sub(lambda found: damaged_byte(ord(found[0]) - 0xDC00), text)


def is_worse(finish: Finish, other: Finish) -> bool:
    """Whether the first of two finishes of one response is further from a completion. Servers report several."""
    return _FROM_BEST.index(finish) >= _FROM_BEST.index(other)


_FROM_BEST = (Finish.STOP, Finish.CALLS, Finish.UNKNOWN, Finish.LENGTH, Finish.REFUSED)


def repaired_end(end: ModelEnd) -> ModelEnd:
    """Return the end of a response with texts that can be stored. Whether something was lost stands in it.

    Raises:
        ModelResponseInvalid: So much is damaged that repairing it would hold the event loop.
    """
    for part in end.parts:
        if isinstance(part, Text | Thinking) and is_damaged_throughout(part.text):
            raise ModelResponseInvalid("The text of the response is damaged throughout: it is mostly not text.")
    parts = tuple(map(_repaired_part, end.parts))
    said = (part.text for part in end.parts if isinstance(part, Text))
    return msgspec.structs.replace(end, parts=parts, has_damaged_text=any(is_damaged(joined(text)) for text in said))


def _repaired_part(part: Part) -> Part:
    match part:
        case ToolCall(signature=signature) if signature:
            return msgspec.structs.replace(part, signature=repaired(signature))
        case Text(signature=signature):
            return Text(repaired(part.text), signature=signature and repaired(signature))
        case Thinking(signature=signature):
            payload = repaired_value(part.payload)
            return Thinking(text=repaired(part.text), signature=signature and repaired(signature), payload=payload)
        case Opaque():
            return Opaque(provider=part.provider, payload=repaired_value(part.payload))
        case Media():
            return msgspec.structs.replace(
                part, media_type=repaired(part.media_type), base64=part.base64 and repaired(part.base64)
            )
        case _:
            return part


# --- damage ----------------------------------------------------------------------------------------------------------


def _with_stand_ins(data: bytes) -> bytes:
    """Put a character of private use in place of what is not Unicode in the strings of a JSON text."""
    text = data.decode("utf-8", "surrogateescape")
    return _STRINGS.sub(lambda string: _DAMAGE.sub(_stand_in, string[0]), text).encode("utf-8", "surrogateescape")


def _stand_in(found: re.Match[str]) -> str:
    if found["half"]:
        return chr(_FIRST_HALF + int(found["half"], 16) - 0xD800)
    character = found[0]
    if len(character) > 1:
        return character
    return chr(_FIRST_BYTE + (ord(character) & 0xFF))


def _restored(value: Any) -> Any:
    """Put the damage back into what was read. What is raw gets the very bytes that came."""
    match value:
        case str():
            return value if value.isascii() else _STAND_INS.sub(_damage, value)
        case msgspec.Raw():
            text = bytes(value).decode("utf-8", "surrogateescape")
            return msgspec.Raw(_STAND_INS.sub(_damage_on_the_wire, text).encode("utf-8", "surrogateescape"))
        case dict():
            return {_restored(name): _restored(item) for name, item in value.items()}
        case list():
            return [_restored(item) for item in value]
        case msgspec.Struct():
            for name in value.__struct_fields__:
                setattr(value, name, _restored(getattr(value, name)))
            return value
        case _:
            return value


def _damage(found: re.Match[str]) -> str:
    place = ord(found[0])
    return chr(place - _FIRST_HALF + 0xD800) if place < _FIRST_BYTE else damaged_byte(place - _FIRST_BYTE)


def _damage_on_the_wire(found: re.Match[str]) -> str:
    place = ord(found[0])
    if place < _FIRST_BYTE:
        return f"\\u{place - _FIRST_HALF + 0xD800:04x}"
    byte = place - _FIRST_BYTE
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)
