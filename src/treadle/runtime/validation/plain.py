"""Plain: what a tool returned, as JSON data. Refuses what JSON cannot hold; never shows a value by its repr."""

import dataclasses
import datetime as dt
import decimal
import sys
import uuid
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import msgspec

from treadle.canonical import find_unencodable

__all__ = ["NotData", "data_of"]

_MAX_DEPTH = 200


class NotData(Exception):
    """Raised for a value that is no JSON data. Its message says where and why."""


def data_of(value: Any) -> Any:  # Any: whatever a tool's author returns; JSON data goes out
    """Return a tool's value as plain JSON data: new objects, lists, texts, numbers, true, false and null.

    Dataclasses, msgspec structs, pydantic models and mappings become objects, tuples become arrays, enum members their
    values; dates, times, durations, UUIDs, decimals and paths become text.

    Raises:
        NotData: Part of it has no such form: NaN, a set, bytes, half a surrogate pair, a key that is no text, itself.
    """
    return _plain(value, "$", _MAX_DEPTH)


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth < 0:
        raise NotData(f"{path[:200]} is nested too deeply or contains itself")
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value, path, depth - 1)
        case str() | float() | int():
            return _scalar(value, path)
        case Mapping():
            return _object(value.items(), path, depth)
        case list() | tuple():
            return [_plain(item, f"{path}[{index}]", depth - 1) for index, item in enumerate(value)]
        case _:
            return _of_class(value, path, depth)


def _scalar(value: Any, path: str) -> str | int | float:
    """Return the value as its plain class: a subclass (numpy's, for one) is not JSON's."""
    if problem := find_unencodable(value):
        raise NotData(path + problem.removeprefix("$"))
    if isinstance(value, str):
        return str.__str__(value)
    return float.__float__(value) if isinstance(value, float) else int.__int__(value)


def _object(items: Iterable[tuple[Any, Any]], path: str, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in items:
        text = key.value if isinstance(key, Enum) else key
        if not isinstance(text, str):
            raise NotData(f"{path} has a key that is a {type(key).__name__}, not text")
        name = str(_scalar(text, f"{path}, in a key,"))
        if name in plain:
            raise NotData(f"{path} has the key {name!r} twice")
        plain[name] = _plain(item, f"{path}.{name}", depth - 1)
    return plain


def _of_class(value: Any, path: str, depth: int) -> Any:
    match value:
        case dt.date() | dt.time() | dt.timedelta() | uuid.UUID():
            return msgspec.to_builtins(value)
        case decimal.Decimal():
            return _decimal(value, path)
        case PurePath():
            return _scalar(str(value), path)
        case msgspec.Struct():
            return _struct(value, path, depth)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
            return _object(fields, path, depth)
        case _ if _is_model(value):
            return _plain(value.model_dump(by_alias=True), path, depth - 1)
        case _:
            raise NotData(f"{path} is a {type(value).__name__}, which JSON cannot hold{_advice(value)}")


def _decimal(value: decimal.Decimal, path: str) -> str:
    if not value.is_finite():
        raise NotData(f"{path} is {value}, which JSON cannot hold")
    return format(value, "f") if abs(value.adjusted()) < 400 else str(value)


def _struct(value: msgspec.Struct, path: str, depth: int) -> Any:
    config = value.__struct_config__
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    fields = [(name, item) for name, field in names if (item := getattr(value, field)) is not msgspec.UNSET]
    if config.tag is not None and config.tag_field is not None:
        fields.insert(0, (config.tag_field, config.tag))
    if config.array_like:
        return _plain([item for _, item in fields], path, depth)
    return _object(fields, path, depth)


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
