"""Plain: what a tool returned, as JSON data. Refuses what JSON cannot hold; never shows a value by its repr."""

import dataclasses
import datetime as dt
import decimal
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any

import msgspec

from treadle.canonical import find_unencodable
from treadle.errors import shown

__all__ = [
    "NotData",
    "TooMuch",
    "damaged_byte",
    "damaged_json",
    "data_of",
    "is_damaged",
    "is_damaged_throughout",
    "joined",
    "repaired",
    "repaired_value",
]

_MAX_DEPTH = 200
_MAX_VALUES = 2_500_000
_MAX_CHARS = 2**28
_LONG_NUMBER = 2**63
"""From which on a number is looked at closely."""
_ATOMS = frozenset({int, bool, type(None)})


class NotData(Exception):
    """Raised for a value that is not JSON data. Its message says where and why.

    Args:
        problem: What is wrong, to be read behind the place.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._steps: list[str] = []

    def within(self, step: str) -> "NotData":
        """Note that the place lies within this part of something larger."""
        self._steps.append(step)
        return self

    def __str__(self) -> str:
        return ("$" + "".join(reversed(self._steps)))[:200] + self._problem


class TooMuch(NotData):
    """Raised for a value that holds more than may be looked at."""


def data_of(
    value: Any, *, max_values: int = _MAX_VALUES, max_chars: int = _MAX_CHARS
) -> Any:  # Any: anything a tool returns
    """Return a tool's value as plain JSON data: new objects, lists, texts, numbers, true, false and null.

    Dataclasses, msgspec structs, pydantic models and mappings become objects, tuples become arrays, enum members their
    values; dates, times, durations, UUIDs, decimals and paths become text.

    Args:
        max_values: Values that are looked at. What makes its values while it is read, or holds itself often, has no end of its own.
        max_chars: Characters of its texts.

    Raises:
        TooMuch: It holds more than that.
        NotData: Part of it has no such form: NaN, a set, bytes, half a surrogate pair, a key that is not text, itself.
    """
    return _Conversion(max_values, max_chars).plain(value, _MAX_DEPTH)


class _Conversion:
    def __init__(self, max_values: int, max_chars: int) -> None:
        self._max_values = max_values
        self._max_chars = max_chars
        self._values = 0
        self._chars = 0

    def plain(self, value: Any, depth: int) -> Any:
        if depth < 0:
            raise NotData(" is nested too deeply or contains itself")
        self._count(1)
        match value:
            case Enum():
                return self.plain(value.value, depth - 1)
            case None | str() | float() | int():
                return self._scalar(value)
            case list() | tuple():
                return self._array(value, depth)
            case dict() | Mapping():
                return self._object(_items_of(value), depth)
            case _:
                return self._of_class(value, depth)

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > self._max_values:
            raise self._too_many()

    def _too_many(self) -> TooMuch:
        return TooMuch(f" has more than {self._max_values} values: store it, and return where it is")

    def _array(self, items: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        if self._values + len(items) > self._max_values:
            raise self._too_many()
        if type(items) is not list:  # a subclass may iterate over something else, without end
            items = list(list.__iter__(items) if isinstance(items, list) else tuple.__iter__(items))
        if _ATOMS.issuperset(map(type, items)) and not any(map(_is_long_number, items)):
            self._count(len(items))
            return list(items)
        plain = []
        for index, item in enumerate(items):
            try:
                plain.append(self.plain(item, depth - 1))
            except NotData as error:
                raise error.within(f"[{index}]") from error.__cause__
        return plain

    def _object(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, item in items:
            name = self._name(key)
            if name in plain:
                raise NotData(f" has the key {shown(name, 200)} twice")
            try:
                plain[name] = self.plain(item, depth - 1)
            except NotData as error:
                raise error.within(f".{name[:200]}") from error.__cause__
        return plain

    def _name(self, key: Any) -> str:
        text = key.value if isinstance(key, Enum) else key
        if not isinstance(text, str):
            raise NotData(f" has a key that is a {type(key).__name__}, not text")
        try:
            return str(self._scalar(text))
        except NotData as error:
            raise error.within(", in a key,") from None

    def _scalar(self, value: Any) -> str | int | float | None:
        """Return the value as its plain class: a subclass (numpy's, for one) is not JSON's."""
        if value is None or isinstance(value, bool):
            return value
        plain: str | int | float
        if isinstance(value, str):
            plain = str.__str__(value)
            self._chars += len(plain)
            if self._chars > self._max_chars:
                raise TooMuch(f" has more than {self._max_chars} characters: store it, and return where it is")
        else:
            plain = float.__float__(value) if isinstance(value, float) else int.__int__(value)
        if problem := find_unencodable(plain):
            raise NotData(problem.removeprefix("$"))
        return plain

    def _of_class(self, value: Any, depth: int) -> Any:
        match value:
            case dt.date() | dt.time() | dt.timedelta() | uuid.UUID():
                return msgspec.to_builtins(value)
            case decimal.Decimal():
                return _decimal(value)
            case PurePath():
                return self._scalar(str(value))
            case msgspec.Struct():
                return self._struct(value, depth)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                return self._object(
                    [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)], depth
                )
            case _ if _is_model(value):
                self._look_into(value)
                return self.plain(value.model_dump(by_alias=True), depth - 1)
            case _:
                raise NotData(f" is a {type(value).__name__}, which JSON cannot hold{_advice(value)}")

    def _struct(self, value: msgspec.Struct, depth: int) -> Any:
        config = value.__struct_config__
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = [(name, item) for name, field in names if (item := getattr(value, field)) is not msgspec.UNSET]
        if config.tag is not None and config.tag_field is not None:
            fields.insert(0, (config.tag_field, config.tag))
        if config.array_like:
            return self.plain([item for _, item in fields], depth)
        return self._object(fields, depth)

    def _look_into(self, model: Any) -> None:
        """Refuse a pydantic model that holds too much, before its dump makes a copy of all that."""
        pending, held = [model], self._values
        while pending:
            items = list(islice(_parts_of(pending.pop()), self._max_values + 1))
            held += len(items)
            if held > self._max_values:
                raise self._too_many()
            pending += [item for item in items if isinstance(item, _COPIED) or _is_model(item)]


_COPIED = (dict, list, tuple, set, frozenset)
"""What the dump of a pydantic model makes a copy of."""


def _parts_of(value: Any) -> Iterable[Any]:
    if _is_model(value):
        return (*value.__dict__.values(), *(value.__pydantic_extra__ or {}).values())
    return value.values() if isinstance(value, dict) else value


def _is_model(value: object) -> bool:
    """Whether it is a pydantic model. When pydantic is not loaded there are none, and it is not loaded to find out."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def _is_long_number(value: int | None) -> bool:
    return value is not None and not -_LONG_NUMBER < value < _LONG_NUMBER


def _items_of(value: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield as many items as a mapping says that it has: a stranger's may have no end."""
    count = len(value)
    for number, item in enumerate(value.items()):
        if number >= count:
            raise NotData(f" has a length of {count}, and more items than that")
        yield item


def _decimal(value: decimal.Decimal) -> str:
    if not value.is_finite():
        raise NotData(f" is {value}, which JSON cannot hold")
    return format(value, "f") if abs(value.adjusted()) < 400 else str(value)


def _advice(value: Any) -> str:
    match value:
        case set() | frozenset():
            return ": return a sorted list"
        case bytes() | bytearray() | memoryview():
            return ": return text, or ToolOutput with media"
        case _:
            return ": return an object, a dataclass or a model"


# --- Characters: text that a stream may have cut inside a character, or damaged. Joins what belongs together, repairs
# nothing else.

_BYTES = re.compile("(?:\udfff[\udc80-\udcff])+")
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_DAMAGE = re.compile("[\ud800-\udfff]")
_DAMAGED = re.compile("\udfff([\udc00-\udc1f\udc80-\udcff])|[\ud800-\udfff]")
_BLANKS = "\t\n\r"
_MOST_DAMAGE = 50_000
"""Characters."""


def damaged_byte(byte: int) -> str:
    """Return what stands for a bare control character, or for a byte that is not UTF-8."""
    return "\udfff" + chr(0xDC00 + byte)


def is_damaged(text: str) -> bool:
    """Whether something in the text is not text."""
    return not text.isascii() and _DAMAGE.search(text) is not None


def is_damaged_throughout(text: str) -> bool:
    """Whether more of the text is damaged than an honest server's mistakes explain."""
    return is_damaged(text) and sum(1 for _ in islice(_DAMAGE.finditer(text), _MOST_DAMAGE + 1)) > _MOST_DAMAGE


def joined(text: str) -> str:
    """Join the bytes of one character, and the halves of one surrogate pair, that came in several pieces.

    Example:
        joined("\\ud83d" + "\\ude00") == "\\U0001f600"
    """
    if not is_damaged(text):
        return text
    return _HALVES.sub(_character, _BYTES.sub(_decoded, text))


def repaired(text: str) -> str:
    """Join what came in pieces, replace the rest of what is not text by U+FFFD, and drop bare control characters.

    For text that is read. Never for arguments: what is carried out is what the model wrote.
    """
    if text.isascii() or not is_damaged(text):  # asked of every piece of a stream
        return text
    return _DAMAGED.sub(_replaced, joined(text))


def repaired_value(value: Any) -> Any:
    """Return a JSON value with its texts repaired: the same object where none is damaged."""
    match value:
        case str():
            return repaired(value)
        case dict():
            made = {repaired(name): repaired_value(item) for name, item in value.items()}
            return value if all(made.get(name, made) is item for name, item in value.items()) else made
        case list():
            items = [repaired_value(item) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        case _:
            return value


def damaged_json(text: str) -> str:
    """Return damaged JSON as text that can be stored and that is not valid JSON, wherever the damage stands."""
    if not is_damaged(text):
        return text
    # An escape loses its meaning behind a backslash, and finds its other half in an escape of the text's own. A control
    # character between them is invalid in every place.
    mark = "\x1a" if "\\" in text else ""
    return _DAMAGE.sub(lambda found: f"{mark}\\u{ord(found[0]):04x}", text)


def _decoded(found: re.Match[str]) -> str:
    try:
        return bytes(ord(half) - 0xDC00 for half in found[0][1::2]).decode()
    except UnicodeDecodeError:
        return found[0]


def _character(found: re.Match[str]) -> str:
    return found[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _replaced(found: re.Match[str]) -> str:
    byte = ord(found[1]) - 0xDC00 if found[1] else 0xFF
    if byte >= 0x80:
        return "\ufffd"
    return chr(byte) if chr(byte) in _BLANKS else ""
