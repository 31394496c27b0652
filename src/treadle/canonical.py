"""Canonical JSON and digests: one text for one value, whatever the order of its keys. Knows no tool and no model."""

import enum
import hashlib
import math
from typing import Any, NoReturn

import msgspec

from treadle.errors import ConfigurationError, check_kind, shown
from treadle.fields import explained

__all__ = [
    "MAX_SCHEMA_VALUES",
    "artifact_id",
    "call_digests",
    "copied",
    "digest",
    "encode",
    "encoded",
    "execution_id",
    "find_unencodable",
    "holds_more",
    "read_only",
    "text_key",
]

_ordered = msgspec.json.Encoder(order="sorted")


def encode(value: Any) -> bytes:
    """Return the canonical JSON of a JSON value: keys sorted, no spaces, `1.0` and `1` the same number.

    Raises:
        ConfigurationError: It is not JSON.
    """
    try:
        return _ordered.encode(_fold_numbers(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise ConfigurationError(f"The value is not JSON: {find_unencodable(value) or exc}.") from exc


def encoded(value: Any) -> msgspec.Raw:
    """Return the canonical JSON as a piece of a larger value, so that several digests encode it once."""
    return msgspec.Raw(encode(value))


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(encode(value)).hexdigest()


@explained
def text_key(text: str) -> bytes:
    """Return what texts of equal JSON have in common, however they are written: of a text that is not JSON, its own bytes."""
    try:
        return _ordered.encode(_fold_numbers(msgspec.json.decode(text)))
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return text.encode("utf-8", "surrogatepass")


def copied(value: Any) -> Any:
    """Return a JSON value again, sharing nothing that can be changed."""
    if isinstance(value, dict):
        return {key: copied(item) if isinstance(item, _CONTAINERS) else item for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) if isinstance(item, _CONTAINERS) else item for item in value]
    return value


_CONTAINERS = (dict, list)


def read_only(value: Any) -> Any:  # Any: a JSON value
    """Return a copy of a JSON value that refuses every change, for those who may look at it; `copy.deepcopy` gives a plain one again.

    One that refuses changes already, and what is neither an object nor a list, stays as it is.
    """
    kind = type(value)
    if kind is dict:
        return _ReadOnlyDict({name: read_only(one) for name, one in value.items()})
    return _ReadOnlyList(map(read_only, value)) if kind is list else value


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("This value is read-only. Change a copy of it: copy.deepcopy(value).")


class _ReadOnlyDict(dict[str, Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: object) -> Any:
        return copied(self)

    def __reduce__(self) -> Any:
        return dict, (copied(self),)


class _ReadOnlyList(list[Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = _refuse
    pop = remove = reverse = sort = _refuse

    def __deepcopy__(self, memo: object) -> Any:
        return copied(self)

    def __reduce__(self) -> Any:
        return list, (copied(self),)


def call_digests(session_id: str, step: int, position: int, tool: str, arguments: Any) -> tuple[str, str]:
    """Return what equal calls have in common, and the idempotency key of one logical call.

    The key is stable over attempts, resumes and processes. It is never derived from the provider's call id, which servers repeat.

    Raises:
        ConfigurationError: They are not JSON.
    """
    canonical = encoded(arguments)
    try:
        equal, key = _ordered.encode([tool, canonical]), _ordered.encode([session_id, step, position, tool, canonical])
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise ConfigurationError(f"A call's session, place and tool must be JSON: {exc}.") from exc
    return hashlib.sha256(equal).hexdigest(), f"tk_{hashlib.sha256(key).hexdigest()[:40]}"


def execution_id(run_id: str, step: int, call_id: str) -> str:
    """Return what ties a result in the transcript to its events."""
    return f"{run_id}.{step}.{call_id}"


@explained
def artifact_id(digest: str) -> str:
    """Return the name by which the model knows stored bytes, made from their digest: short enough to be repeated without a fault."""
    return f"a_{digest[:20]}"


def _fold_numbers(value: Any) -> Any:
    match value:
        case dict():
            if _FOLDED.isdisjoint(map(type, value.values())):  # the usual arguments: texts and whole numbers
                return value
            return {key: _fold_numbers(item) for key, item in value.items()}
        case list() | tuple():
            if _FOLDED.isdisjoint(map(type, value)):
                return value
            return [_fold_numbers(item) for item in value]
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case _:
            return value


_FOLDED = {float, dict, list, tuple}


MAX_SCHEMA_VALUES = 100_000
"""Values that a JSON Schema may hold, all its parts together."""


def find_unencodable(value: Any, *, max_depth: int = 200, max_values: int | None = None) -> str | None:
    """Say what keeps a value from being plain JSON, and where; None when nothing does.

    Finds what encoders change silently: NaN and infinities, sets, bytes, lone surrogates, cycles, keys that are not text.

    Args:
        max_depth: Levels of nesting; a value that contains itself has too many.
        max_values: Values that it may hold; None for any number.
    """
    try:
        if max_values is not None and holds_more(value, max_values):
            return f"$ holds more than {max_values:,} values, or contains itself"
        return _find(value, "$", max_depth)
    except TypeError:
        check_kind("max_depth", max_depth, int, "a whole number")
        check_kind("max_values", max_values, (int, type(None)), "a whole number or None")
        raise


def holds_more(value: Any, values: int) -> bool:
    """Whether a value holds more than this number of values. One that contains itself does."""
    check_kind("values", values, int, "a whole number")
    pending, seen = [value], 0
    while pending:
        one = pending.pop()
        seen += 1
        held = one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        if seen + len(pending) + len(held) > values:
            return True
        pending.extend(held)
    return False


def _find(value: Any, path: str, depth: int) -> str | None:
    if depth < 0:
        return f"{path[:60]}... is nested too deeply or contains itself"
    match value:
        case dict():
            return _find_in_object(value, path, depth)
        case list() | tuple():
            found = (_find(item, f"{path}[{index}]", depth - 1) for index, item in enumerate(value))
            return next((problem for problem in found if problem), None)
        case _:
            return _find_in_scalar(value, path)


def _find_in_object(value: dict[Any, Any], path: str, depth: int) -> str | None:
    for key, item in value.items():
        if not isinstance(key, str):
            return f"{path} has the key {shown(key)}, which is not text"
        if not _is_unicode(key):
            return f"{path} has a key with a lone surrogate"
        if found := _find(item, f"{path}.{key}", depth - 1):
            return found
    return None


def _find_in_scalar(value: Any, path: str) -> str | None:
    if value is None or isinstance(value, bool | enum.Enum):
        return None if not isinstance(value, enum.Enum) or isinstance(value, str | int) else _no_json(value, path)
    kind = type(value)
    if kind is str:
        return None if _is_unicode(value) else f"{path} holds a lone surrogate, which is not text"
    if kind is int:
        return (
            None
            if -_TOO_LONG < value < _TOO_LONG
            else f"{path} is an integer of more than {_MOST_DIGITS} digits: {_AS_TEXT}"
        )
    if kind is float and math.isfinite(value):
        return None
    return _no_json(value, path)


def _no_json(value: Any, path: str) -> str:
    if type(value) is float:
        return f"{path} is {value}, which JSON cannot hold"
    kind = type(value).__name__
    if isinstance(value, str | int | float):  # numpy's numbers, markup: an encoder refuses them
        return f"{path} is a {kind}: convert it to a plain {_plain_kind(value)}"
    return f"{path} is a {kind}, which JSON cannot hold"


def _plain_kind(value: str | float) -> str:
    return "str" if isinstance(value, str) else "float" if isinstance(value, float) else "int"


_AS_TEXT = "send it as a string"
_MOST_DIGITS = 4300
_TOO_LONG = 10**_MOST_DIGITS
"""Python itself, like most readers of JSON, neither writes nor reads longer numbers."""


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
