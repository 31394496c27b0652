"""Plain: what a tool returned, as JSON data. Refuses what JSON cannot hold; never shows a value by its repr."""

import dataclasses
import datetime as dt
import decimal
import math
import re
import sys
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import Any, get_origin

import msgspec

from treadle.canonical import find_unencodable
from treadle.errors import shown
from treadle.validation.arguments import (
    SLICE,
    Amounts,
    Holding,
    Keep,
    NotData,
    Writing,
    has_own_dump,
    is_field_stored,
    is_model,
    is_stored,
    values_of_model,
)

__all__ = [
    "NotData",
    "Rows",
    "Walk",
    "damaged_byte",
    "damaged_json",
    "data_of",
    "dumped",
    "is_damaged",
    "is_damaged_throughout",
    "joined",
    "repaired",
    "repaired_value",
]


# --- Models: the dump of a large pydantic model in parts, because a whole one is a single step that cannot be
# interrupted.

_PART = 1000
"""Items of an object that are dumped at once; a list with more is dumped while it is read."""


class Rows:
    """The dump of a long list of a model, made slice by slice as it is read: nobody holds the whole of it.

    Args:
        part: A copy of the model, which is given one slice of the list after the other.
        keep: Is given what each slice was made of, so that not all of it is freed at once.
    """

    def __init__(self, part: Any, name: str, items: list[Any], keep: Keep | None) -> None:
        self._part = part
        self._name = name
        self._items = items
        self._keep = keep

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: slice) -> list[Any]:
        some = self._items[place]
        if self._keep is not None:
            self._keep(tuple(some))
        self._part.__dict__[self._name] = some
        ((_, made),) = self._part.model_dump(by_alias=True, include={self._name}).items()
        return list(made)


def dumped(model: Any, keep: Keep | None = None) -> Generator[None, None, Any]:  # Any: a pydantic model, and its dump
    """Return what `model_dump(by_alias=True)` makes of a pydantic model, with a pause after each part, and `Rows` for long lists.

    Args:
        keep: Is given what the long lists and dicts of the model hold, a part at a time, so that not all of it is freed at once.
    """
    if not _has_plain_dump(model):
        return model.model_dump(by_alias=True)
    made: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        value = model.__dict__.get(name)
        if _is_plain_collection(field, value):
            made |= yield from _in_parts(model, name, value, keep)
        elif _is_plain_model(field, value):
            made[field.serialization_alias or name] = yield from dumped(value, keep)
        else:
            made |= model.model_dump(by_alias=True, include={name})
        yield
    extra = model.__pydantic_extra__ or {}
    return made | (model.model_dump(by_alias=True, include=set(extra)) if extra else {})


def _in_parts(model: Any, name: str, value: Any, keep: Keep | None) -> Generator[None, None, dict[str, Any]]:
    """Dump one field: a model that differs from this one by holding only a part of it, again and again."""
    part = sys.modules["pydantic"].BaseModel.__copy__(model)
    part.__dict__[name] = type(value)()
    made: dict[str, Any] = part.model_dump(by_alias=True, include={name})
    if isinstance(value, list):
        return dict.fromkeys(made, Rows(part, name, value, keep))
    items = iter(value.items())
    while made and (some := dict(islice(items, _PART))):
        if keep is not None:
            keep(tuple(some.items()))
        part.__dict__[name] = some
        for key, more in part.model_dump(by_alias=True, include={name}).items():
            made[key].update(more)
        yield
    return made


def _has_plain_dump(model: Any) -> bool:
    """Whether nothing but the types of its fields says how a model is dumped."""
    kind = type(model)
    own = kind.__pydantic_decorators__
    has_own = own.field_serializers or own.model_serializers or own.computed_fields or has_own_dump(model)
    is_known = "__get_pydantic_core_schema__" not in vars(kind) and not kind.__pydantic_root_model__
    return not has_own and is_known


def _is_plain_field(field: Any) -> bool:
    return not (field.metadata or field.exclude or getattr(field, "exclude_if", None))


def _is_plain_collection(field: Any, value: Any) -> bool:
    kind = type(value)
    is_long = kind in (list, dict) and len(value) > _PART
    return is_long and get_origin(field.annotation) is kind and _is_plain_field(field)


def _is_plain_model(field: Any, value: Any) -> bool:
    is_model = isinstance(value, sys.modules["pydantic"].BaseModel)
    return is_model and type(value) is field.annotation and _is_plain_field(field)


# --- Plain: what a tool returned, as JSON data. Refuses what JSON cannot hold; never shows a value by its repr.

_MAX_DEPTH = 200
_MAX_VALUES = 2_500_000
"""Values of one result."""
_LONG_TEXT = 256 * 1024
"""Characters of a text that are looked at, or encoded, without a pause."""
_HEAVY = 20_000
"""Weight of what is encoded without a pause: a value weighs 1, and so do 16 characters."""
_LIGHT = 64
"""Weight up to which none is noted down."""
_FEW = 64
"""Items or fields up to which a list or object is freed at once, with what they hold."""
_LONG_NUMBER = 2**63
"""From which on a number is looked at closely."""
_NOTHING: Any = object()
_ATOMS = frozenset({int, bool, type(None)})


class Walk:
    """The conversion of one value. Drive `steps` to its end; it pauses after each slice of the work.

    A copy of a million objects is a million objects more for the garbage collector to look at, and to free at once: each holds up all
    threads. So where only the text of a large value will be used, it is written while the value is converted.

    Example:
        walk = Walk(value)
        for _ in walk.steps(): ...
        walk.data

    Args:
        max_values: Values that it may hold.
        text_from: Values from which on only the JSON text of a list or object is kept; None to keep all as values.
        keep: Is given what a large value and its copy hold, a slice at a time, so that not all of it is freed at once.
    """

    def __init__(
        self,
        value: Any,
        *,
        max_values: int = _MAX_VALUES,
        text_from: int | None = None,
        keep: Keep | None = None,
    ) -> None:
        self.data: Any = None
        """The value as plain JSON, once all steps are done; None where only its text is kept."""
        self.is_text = False
        """Whether only the JSON text of the value is kept, because it holds so much."""
        self.values = 0
        """How many values it holds."""
        self.chars = 0
        """How many characters its texts hold."""
        self.has_whole_floats = False
        """Whether a float such as 3.0 is among them."""
        self._value = value
        self._amounts = Amounts(max_values)
        self._text_from = text_from
        self._keep = keep
        self._write_at = math.inf if text_from is None else text_from
        """The number of values at which the list or object at hand is written."""
        self._pieces: list[bytes] = []
        self._pause_at = SLICE
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
        plain = yield from self._plain(self._value, _MAX_DEPTH)
        if isinstance(plain, Writing):
            self._pieces, self.is_text = plain.whole(), True
        else:
            self.data = plain

    def encoded(self) -> Iterable[bytes]:
        """Give the JSON text of the data in pieces, each of which is a slice of the work."""
        return self._pieces if self.is_text else self._written(self.data)

    def _written(self, data: Any) -> Generator[bytes]:
        if isinstance(data, str) and len(data) > _LONG_TEXT:
            yield b'"'
            for start in range(0, len(data), _LONG_TEXT):
                yield msgspec.json.encode(data[start : start + _LONG_TEXT])[1:-1]
            yield b'"'
        elif data and isinstance(data, dict) and self._weighs(data) > _HEAVY:
            yield b"{"
            for number, fields in enumerate(self._fields(data)):
                if number:
                    yield b","
                if len(fields) > 1:
                    yield msgspec.json.encode(fields)[1:-1]
                else:
                    ((name, item),) = fields.items()
                    yield msgspec.json.encode(name) + b":"
                    yield from self._written(item)
            yield b"}"
        elif data and isinstance(data, list) and self._weighs(data) > _HEAVY:
            yield b"["
            for number, group in enumerate(self._groups(data)):
                if number:
                    yield b","
                yield from self._written(group[0]) if len(group) == 1 else (msgspec.json.encode(group)[1:-1],)
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
        if self._keep is not None:
            self._keep(())  # there is much to look at, whatever is kept of it
        self._pause_at = self.values + SLICE
        self._amounts.check(self.values, self.chars)
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
            case Mapping() | list() | tuple():
                return (yield from self._collection(value, depth))
            case Rows():
                return (yield from self._array(value, depth))
            case _:
                return (yield from self._of_class(value, depth))

    def _collection(
        self, value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], depth: int
    ) -> Generator[None, None, Any]:
        """Convert an object or array. One that makes its items while they are read may make fewer than one that stores them."""
        begins_making = not is_stored(value) and self._amounts.enter_made(self.values, self.chars)
        before = self._weight
        if isinstance(value, Mapping):
            made: Any = yield from self._object(_items_of(value), depth, source=value)
        else:
            made = yield from self._array(value, depth)
        if begins_making:
            self._amounts.check(self.values, self.chars)
            self._amounts.leave_made(self.values, self.chars)
        elif (weight := self._weight - before) > _LIGHT:
            self._amounts.meet(value, weight)
        return made

    def _array(
        self, items: list[Any] | tuple[Any, ...] | Rows, depth: int
    ) -> Generator[None, None, list[Any] | Writing]:
        plain: list[Any] = []
        before = self._weight
        writing: Writing | None = None
        holding = self._holding(len(items))
        for start in range(0, len(items), SLICE):
            part = items[start : start + SLICE]
            if set(map(type, part)) <= _ATOMS and not any(map(_is_long_number, part)):
                plain += part
                if self._is_due(len(part)):
                    yield
                if holding is not None:
                    holding.add_many(part)
                continue
            for index, item in enumerate(part, start):
                try:
                    made = yield from self._plain(item, depth - 1)
                except NotData as error:
                    raise error.within(f"[{index}]") from error.__cause__
                if self.values < self._write_at and not isinstance(made, Writing):
                    plain.append(made)
                else:
                    writing = writing or Writing(b"[]")
                    yield from self._write(writing, plain, made)
                if holding is not None:
                    holding.add(item, made)
        if writing is None:
            self._note_weight(plain, before)
            return plain
        yield from self._write(writing, plain)
        return writing

    def _object(
        self, items: Iterable[tuple[Any, Any]], depth: int, *, source: Mapping[Any, Any] | None = None
    ) -> Generator[None, None, dict[str, Any] | Writing]:
        plain: dict[str, Any] = {}
        before = self._weight
        writing: Writing | None = None
        holding = self._holding(0 if source is None else len(source))
        for key, item in items:
            name = self._name(key)
            if name in plain or (writing is not None and writing.holds(name)):
                raise NotData(f" has the key {shown(name, 200)} twice")
            try:
                made = yield from self._plain(item, depth - 1)
            except NotData as error:
                raise error.within(f".{name[:200]}") from error.__cause__
            if self.values < self._write_at and not isinstance(made, Writing):
                plain[name] = made
            else:
                writing = writing or Writing(b"{}", has_names=not (yield from _has_text_keys(source)))
                yield from self._write(writing, plain, made, name)
            if holding is not None:
                holding.add((key, item), made)
        if writing is None:
            self._note_weight(plain, before)
            return plain
        yield from self._write(writing, plain)
        return writing

    def _holding(self, items: int) -> Holding | None:
        return None if self._keep is None or items <= _FEW else Holding(self, self._keep)

    def _name(self, key: Any) -> str:
        text = key.value if isinstance(key, Enum) else key
        if not isinstance(text, str):
            raise NotData(f" has a key that is a {type(key).__name__}, not text")
        try:
            return str(self._scalar(text))
        except NotData as error:
            raise error.within(", in a key,") from None

    def _write(
        self, writing: Writing, plain: list[Any] | dict[str, Any], made: Any = _NOTHING, name: str | None = None
    ) -> Generator[None]:
        """Write what was converted of a list or object, and empty it."""
        if plain:
            pieces: list[bytes] = []
            self._weights[id(plain)] = _HEAVY + 1  # nobody knows yet, and it may hold megabytes
            for piece in self._written(plain):
                pieces.append(piece)
                yield
            writing.add(pieces[1:-1], plain if isinstance(plain, dict) else ())
            plain.clear()
            del self._weights[id(plain)]  # once it is gone, another object may have its id
        if made is not _NOTHING:
            pieces = made.whole() if isinstance(made, Writing) else list(self._written(made))
            writing.add(pieces, () if name is None else (name,), field=name)
        if self._text_from is not None:
            self._write_at = self.values + self._text_from

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
            if len(plain) > SLICE:
                self._amounts.check(self.values, self.chars)
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
                return (yield from self._of_dataclass(value, depth))
            case _ if is_model(value):
                return (yield from self._model(value, depth))
            case _:
                raise NotData(f" is a {type(value).__name__}, which JSON cannot hold{_advice(value)}")

    def _of_dataclass(self, value: Any, depth: int) -> Generator[None, None, Any]:
        fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
        is_made = not all(is_field_stored(value, name, item) for name, item in fields)
        begins_making = is_made and self._amounts.enter_made(self.values, self.chars)
        made = yield from self._object(fields, depth)
        if begins_making:
            self._amounts.leave_made(self.values, self.chars)
        return made

    def _model(self, value: Any, depth: int) -> Generator[None, None, Any]:
        """Convert a pydantic model by its own dump. How much that will be is asked before: some parts of it cannot be interrupted."""
        is_large = False
        for values in values_of_model(value):
            self._amounts.check(self.values + values, self.chars)
            is_large = True
            yield
        begins_making = has_own_dump(value) and self._amounts.enter_made(self.values, self.chars)
        self._amounts.enter_new()
        whole = (yield from dumped(value, self._keep)) if is_large else value.model_dump(by_alias=True)
        made = yield from self._plain(whole, depth - 1)
        self._amounts.leave_new()
        if begins_making:
            self._amounts.leave_made(self.values, self.chars)
        return made

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
        NotData: Part of it has no such form: NaN, a set, bytes, half a surrogate pair, a key that is not text, itself.
    """
    walk = Walk(value)
    for _ in walk.steps():
        pass
    return walk.data


def _has_text_keys(source: Mapping[Any, Any] | None) -> Generator[None, None, bool]:
    """Whether no key can come twice: the mapping is a dict, and all keys are texts."""
    if type(source) is not dict:
        return False
    keys = iter(source)
    while kinds := set(map(type, islice(keys, SLICE))):
        if kinds != {str}:
            return False
        yield
    return True


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
