"""Plain: what a tool returned, as JSON data. Refuses what JSON cannot hold; never shows a value by its repr."""

import dataclasses
import datetime as dt
import decimal
import sys
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import msgspec

from treadle.canonical import find_unencodable
from treadle.errors import shown

__all__ = ["NotData", "Walk", "data_of"]

_MAX_DEPTH = 200
_MAX_VALUES = 2_500_000
"""Values of one result: a mapping can go on for ever."""
_SLICE = 2000
"""Values between two pauses."""
_LONG_TEXT = 256 * 1024
"""Characters of a text that are looked at, or encoded, without a pause."""
_HEAVY = 20_000
"""Weight of what is encoded without a pause: a value weighs 1, and so do 16 characters."""
_LIGHT = 64
"""Weight up to which none is noted down."""
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


class Walk:
    """The conversion of one value. Drive `steps` to its end; it pauses after each slice of the work.

    Example:
        walk = Walk(value)
        for _ in walk.steps(): ...
        walk.data
    """

    def __init__(self, value: Any, *, max_values: int = _MAX_VALUES) -> None:
        self.data: Any = None
        """The value as plain JSON, once all steps are done."""
        self.values = 0
        """How many values it holds."""
        self.chars = 0
        """How many characters its texts hold."""
        self.has_whole_floats = False
        """Whether a float such as 3.0 is among them."""
        self._value = value
        self._max_values = max_values
        self._pause_at = _SLICE
        self._weights: dict[int, int] = {}
        """By the id of a list or dict in `data`."""

    @property
    def is_heavy(self) -> bool:
        """Whether looking at the data takes long enough to need pauses."""
        return self._weight > _HEAVY

    @property
    def _weight(self) -> int:
        return self.values + self.chars // 16

    def steps(self) -> Generator[None]:
        """Convert the value, a slice at a time.

        Raises:
            NotData: Part of it has no such form.
        """
        self.data = yield from self._plain(self._value, _MAX_DEPTH)

    def encoded(self) -> Generator[bytes]:
        """Give the JSON text of the data in pieces, each of which is a slice of the work."""
        return self._pieces(self.data)

    def _pieces(self, data: Any) -> Generator[bytes]:
        if isinstance(data, str) and len(data) > _LONG_TEXT:
            yield b'"'
            for start in range(0, len(data), _LONG_TEXT):
                yield msgspec.json.encode(data[start : start + _LONG_TEXT])[1:-1]
            yield b'"'
        elif isinstance(data, dict) and self._weighs(data) > _HEAVY:
            yield b"{"
            for number, fields in enumerate(self._fields(data)):
                if number:
                    yield b","
                if len(fields) > 1:
                    yield msgspec.json.encode(fields)[1:-1]
                else:
                    ((name, item),) = fields.items()
                    yield msgspec.json.encode(name) + b":"
                    yield from self._pieces(item)
            yield b"}"
        elif isinstance(data, list) and self._weighs(data) > _HEAVY:
            yield b"["
            for number, group in enumerate(self._groups(data)):
                if number:
                    yield b","
                yield from self._pieces(group[0]) if len(group) == 1 else (msgspec.json.encode(group)[1:-1],)
            yield b"]"
        else:
            yield msgspec.json.encode(data)

    def _fields(self, data: dict[str, Any]) -> Generator[dict[str, Any]]:
        """Divide an object into ones that are light enough to be encoded at once."""
        fields: dict[str, Any] = {}
        weight = 0
        for name, item in data.items():
            weighs = self._weighs(name) + self._weighs(item)
            if fields and weight + weighs > _HEAVY:
                yield fields
                fields, weight = {}, 0
            fields[name] = item
            weight += weighs
        yield fields

    def _groups(self, items: list[Any]) -> Generator[list[Any]]:
        """Divide a list into runs that are light enough to be encoded at once."""
        start, weight = 0, 0
        for index, item in enumerate(items):
            weighs = self._weighs(item)
            if index > start and weight + weighs > _HEAVY:
                yield items[start:index]
                start, weight = index, 0
            weight += weighs
        yield items[start:]

    def _weighs(self, data: Any) -> int:
        return len(data) // 16 + 1 if isinstance(data, str) else self._weights.get(id(data), _LIGHT)

    def _note_weight(self, plain: Any, before: int) -> None:
        if (weight := self._weight - before) > _LIGHT:
            self._weights[id(plain)] = weight

    def _is_due(self, values: int = 1) -> bool:
        """Count values; return whether it is time for a pause."""
        self.values += values
        if self.values < self._pause_at:
            return False
        self._pause_at = self.values + _SLICE
        if self.values > self._max_values:
            raise NotData(f" has more than {self._max_values} values")
        return True

    def _plain(self, value: Any, depth: int) -> Generator[None, None, Any]:
        if depth < 0:
            raise NotData(" is nested too deeply or contains itself")
        if self._is_due():
            yield
        match value:
            case Enum():
                return (yield from self._plain(value.value, depth - 1))
            case str() if len(value) > _LONG_TEXT:
                return (yield from self._long_text(value))
            case None | str() | float() | int():
                return self._scalar(value)
            case Mapping():
                return (yield from self._object(_items_of(value), depth))
            case list() | tuple():
                return (yield from self._array(value, depth))
            case _:
                return (yield from self._of_class(value, depth))

    def _array(self, items: list[Any] | tuple[Any, ...], depth: int) -> Generator[None, None, list[Any]]:
        plain: list[Any] = []
        before = self._weight
        for start in range(0, len(items), _SLICE):
            part = items[start : start + _SLICE]
            if set(map(type, part)) <= _ATOMS:
                plain += part
                if self._is_due(len(part)):
                    yield
                continue
            for index, item in enumerate(part, start):
                try:
                    plain.append((yield from self._plain(item, depth - 1)))
                except NotData as error:
                    raise error.within(f"[{index}]") from error.__cause__
        self._note_weight(plain, before)
        return plain

    def _object(self, items: Iterable[tuple[Any, Any]], depth: int) -> Generator[None, None, dict[str, Any]]:
        plain: dict[str, Any] = {}
        before = self._weight
        for key, item in items:
            text = key.value if isinstance(key, Enum) else key
            if not isinstance(text, str):
                raise NotData(f" has a key that is a {type(key).__name__}, not text")
            try:
                name = str(self._scalar(text))
            except NotData as error:
                raise error.within(", in a key,") from None
            if name in plain:
                raise NotData(f" has the key {shown(name, 200)} twice")
            try:
                plain[name] = yield from self._plain(item, depth - 1)
            except NotData as error:
                raise error.within(f".{name[:200]}") from error.__cause__
        self._note_weight(plain, before)
        return plain

    def _long_text(self, text: str) -> Generator[None, None, str]:
        plain = str.__str__(text)
        for start in range(0, len(plain), _LONG_TEXT):
            self._scalar(plain[start : start + _LONG_TEXT])
            yield
        return plain

    def _scalar(self, value: Any) -> str | int | float | None:
        """Return the value as its plain class: a subclass (numpy's, for one) is not JSON's."""
        if value is None or isinstance(value, bool):
            return value
        plain: str | int | float
        if isinstance(value, str):
            plain = str.__str__(value)
            self.chars += len(plain)
        elif isinstance(value, float):
            plain = float.__float__(value)
            self.has_whole_floats = self.has_whole_floats or plain.is_integer()
        else:
            plain = int.__int__(value) if isinstance(value, int) else value
        if problem := find_unencodable(plain):
            raise NotData(problem.removeprefix("$"))
        return plain

    def _of_class(self, value: Any, depth: int) -> Generator[None, None, Any]:
        match value:
            case dt.date() | dt.time() | dt.timedelta() | uuid.UUID():
                return msgspec.to_builtins(value)
            case decimal.Decimal():
                return _decimal(value)
            case PurePath():
                return self._scalar(str(value))
            case msgspec.Struct():
                return (yield from self._struct(value, depth))
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
                return (yield from self._object(fields, depth))
            case _ if _is_model(value):
                return (yield from self._plain(value.model_dump(by_alias=True), depth - 1))
            case _:
                raise NotData(f" is a {type(value).__name__}, which JSON cannot hold{_advice(value)}")

    def _struct(self, value: msgspec.Struct, depth: int) -> Generator[None, None, Any]:
        config = value.__struct_config__
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = [(name, item) for name, field in names if (item := getattr(value, field)) is not msgspec.UNSET]
        if config.tag is not None and config.tag_field is not None:
            fields.insert(0, (config.tag_field, config.tag))
        if config.array_like:
            return (yield from self._plain([item for _, item in fields], depth))
        return (yield from self._object(fields, depth))


def data_of(value: Any) -> Any:  # Any: whatever a tool's author returns; JSON data goes out
    """Return a tool's value as plain JSON data: new objects, lists, texts, numbers, true, false and null.

    Dataclasses, msgspec structs, pydantic models and mappings become objects, tuples become arrays, enum members their
    values; dates, times, durations, UUIDs, decimals and paths become text.

    Raises:
        NotData: Part of it has no such form: NaN, a set, bytes, half a surrogate pair, a key that is no text, itself.
    """
    walk = Walk(value)
    for _ in walk.steps():
        pass
    return walk.data


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


def _is_model(value: Any) -> bool:
    """Whether it is a pydantic model. When pydantic is not loaded there are none, and it is not loaded to find out."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def _advice(value: Any) -> str:
    match value:
        case set() | frozenset():
            return ": return a sorted list"
        case bytes() | bytearray() | memoryview():
            return ": return text, or ToolOutput with media"
        case _:
            return ": return an object, a dataclass or a model"
