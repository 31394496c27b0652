"""Kinds: which values an annotation accepts, and the words for them. Refuses nothing."""

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal, NamedTuple, TypeVar

import typing_extensions

__all__ = ["ANYTHING", "Kind", "kind_of"]


class Kind(NamedTuple):
    """A test, and the words for what passes it."""

    fits: Callable[[Any], bool]  # Any: values of strangers
    description: str


ANYTHING = Kind(lambda _: True, "anything")


_LARGEST = 1.7e308
"""Below the largest number that a float can hold."""


def kind_of(annotation: Any) -> Kind:  # Any: any annotation
    """Return what values an annotation accepts."""
    if _is_hashable(annotation) and annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if isinstance(annotation, TypeVar | typing_extensions.TypeVar):
        return ANYTHING if annotation.__bound__ is None else kind_of(annotation.__bound__)
    if isinstance(annotation, typing_extensions.TypeAliasType):
        return kind_of(annotation.__value__)
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    return _FORMS[origin](inner) if origin in _FORMS else _of_class(origin or annotation, inner)


def _literal(values: tuple[Any, ...]) -> Kind:  # Any: texts, numbers, None
    return Kind(
        lambda value: any(type(value) is type(one) and value == one for one in values),
        " or ".join(repr(one) for one in values),
    )


def _one_of(annotations: tuple[Any, ...]) -> Kind:  # Any: any annotations
    kinds = [kind_of(one) for one in annotations]
    names = list(dict.fromkeys(kind.description for kind in kinds))
    tests = tuple(kind.fits for kind in kinds)

    def fits(value: object) -> bool:
        for test in tests:  # noqa: SIM110 - a generator costs more, at every border
            if test(value):
                return True
        return False

    return Kind(fits, " or ".join([*names[:_MANY], "..."][: len(names)]))


def _of_class(kind: Any, inner: tuple[Any, ...]) -> Kind:  # Any: a class, or what stands for one
    if not isinstance(kind, type):
        return ANYTHING
    if getattr(kind, "_is_protocol", False):
        return _with_members(kind)
    if issubclass(kind, Mapping):
        return _mapping(kind, inner)
    if issubclass(kind, Collection) and not issubclass(kind, str | bytes):
        return _collection(kind, inner)
    return Kind(lambda value: isinstance(value, kind), f"{_article(kind.__name__)} {kind.__name__}")


def _mapping(kind: type, inner: tuple[Any, ...]) -> Kind:
    base = dict if kind is dict else Mapping
    if len(inner) != 2:
        return Kind(lambda value: isinstance(value, base), "a mapping")
    key, item = (kind_of(one) for one in inner)
    text = "a mapping" if item is ANYTHING else f"a mapping from {_many(key)} to {_many(item)}"
    return Kind(
        lambda value: isinstance(value, base) and all(key.fits(k) and item.fits(v) for k, v in value.items()), text
    )


def _collection(kind: type, inner: tuple[Any, ...]) -> Kind:
    """A list serves wherever a tuple or another sequence does; a text serves nowhere as a list of strings."""
    if kind is tuple and inner and inner[-1] is not ...:
        return _tuple_of([kind_of(one) for one in inner])
    is_set = issubclass(kind, AbstractSet)
    bases: tuple[type, ...] = (kind, set, frozenset) if is_set else (kind, list, tuple)
    item = kind_of(inner[0]) if inner else ANYTHING
    noun = "a set" if is_set else "a list"
    fits = item.fits

    def is_list(value: Any) -> bool:  # Any: values of strangers
        if not isinstance(value, bases) or isinstance(value, _NO_LISTS):
            return False
        items: Iterable[Any] = value  # type: ignore[assignment]  # each of the bases is one
        return all(map(fits, items))

    return Kind(
        is_list,
        noun if item is ANYTHING else f"{noun} of {_many(item)}",
    )


def _tuple_of(parts: Sequence[Kind]) -> Kind:
    def fits(value: Any) -> bool:  # Any: values of strangers
        return (
            isinstance(value, tuple)
            and len(value) == len(parts)
            and all(part.fits(one) for part, one in zip(parts, value, strict=True))
        )

    return Kind(fits, "a tuple of " + ", ".join(part.description for part in parts))


def _with_members(port: Any) -> Kind:  # Any: a Protocol
    """A port is whatever has its members, but not the class that makes one.

    Of a port with many members, most are enough: a port may have grown since the object of a stranger was written.
    """
    members = typing_extensions.get_protocol_members(port)
    methods = {name for name in members if callable(getattr(port, name, None))}
    names = methods or members

    wanted = len(names) if len(names) <= _FEW else len(names) // 2 + 1
    known: set[type] = set()  # one look at each class

    def fits(value: object) -> bool:
        if type(value) in known:
            return True
        if isinstance(value, type):
            return False
        if sum(hasattr(type(value), name) for name in names) >= wanted:
            known.add(type(value))
            return True
        return sum(hasattr(value, name) for name in names) >= wanted

    shown_members = ", ".join(sorted(names)[:_MANY])
    more = " and more" if len(names) > _MANY else ""
    return Kind(fits, f"{_article(port.__name__)} {port.__name__}, which has {shown_members}{more}")


def _many(kind: Kind) -> str:
    return {"a string": "strings", "a whole number": "whole numbers", "a number": "numbers", "bytes": "bytes"}.get(
        kind.description, f"values, each {kind.description}"
    )


def _article(name: str) -> str:
    return "an" if name[:1] in "AEIO" else "a"


def _is_hashable(annotation: object) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:  # Any: whatever a stranger gives
    """Return whether it is a number that a float holds. NaN does not count: no comparison with it holds."""
    if isinstance(value, float):
        return value == value  # noqa: PLR0124 - NaN alone is not equal to itself
    return _is_whole(value) and -_LARGEST < value < _LARGEST


def _iterable(inner: tuple[Any, ...]) -> Kind:  # Any: any annotations
    """What can be run through but once is not looked into."""
    as_list = _collection(list, inner)

    def fits(value: object) -> bool:
        if isinstance(value, list | tuple):
            return as_list.fits(value)
        return isinstance(value, Iterable) and not isinstance(value, _NO_LISTS)

    return Kind(fits, as_list.description)


_NO_LISTS = (str, bytes, bytearray, Mapping)
_MANY = 4
_FEW = 5

_FORMS: dict[Any, Callable[[tuple[Any, ...]], Kind]] = {
    typing.Union: _one_of,
    types.UnionType: _one_of,
    Literal: _literal,
    typing.Annotated: lambda inner: kind_of(inner[0]),
    Callable: lambda _: Kind(callable, "a function"),
    type: lambda _: Kind(lambda value: isinstance(value, type), "a class"),
    Iterable: _iterable,
}
"""By the origin of an annotation: what makes its kind of what stands in its brackets."""

_SIMPLE: dict[Any, Kind] = {
    Any: ANYTHING,
    object: ANYTHING,
    typing.Self: ANYTHING,
    typing_extensions.Self: ANYTHING,
    inspect.Parameter.empty: ANYTHING,
    None: Kind(lambda value: value is None, "None"),
    type(None): Kind(lambda value: value is None, "None"),
    str: Kind(lambda value: isinstance(value, str), "a string"),
    bytes: Kind(lambda value: isinstance(value, bytes), "bytes"),
    bool: Kind(lambda value: isinstance(value, bool), "True or False"),
    int: Kind(_is_whole, "a whole number"),
    float: Kind(_is_number, "a number"),
}
