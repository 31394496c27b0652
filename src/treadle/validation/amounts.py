"""Amounts: how much the conversion of one value may look at, and the error for what is not data. Converts nothing."""

import sys
from collections import OrderedDict
from collections.abc import Generator, Iterator
from itertools import islice
from types import MemberDescriptorType
from typing import Any

__all__ = ["Amounts", "NotData", "has_own_dump", "is_field_stored", "is_model", "is_stored", "values_of_model"]

_MAX_CHARS = 2**28
"""Characters of the texts of one result."""
_MAX_MADE = 100_000
"""Values that are made while they are looked at, as those of a mapping that computes its items: these can continue for ever."""
_MAX_MADE_CHARS = 2**26
_MAX_REPEATED = 500_000
"""Values of lists and objects that stand in several places: thirty lists that hold each other twice are a thousand million values."""
_SLICE = 2000

_STORED_ITEMS = (dict.items, OrderedDict.items)
_STORED_PARTS = (list.__getitem__, tuple.__getitem__)
_STORED_LENGTHS = (list.__len__, tuple.__len__)


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


class Amounts:
    """What one conversion has looked at so far, compared with its limits.

    Args:
        max_values: Values in all.
    """

    __slots__ = ("_made", "_made_chars", "_made_since", "_max_values", "_met", "_new_depth", "_repeated")

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._made = 0
        self._made_chars = 0
        self._made_since: tuple[int, int] | None = None
        """The values and characters at which the outermost thing began that makes its values; None outside of such a thing."""
        self._new_depth = 0
        self._met: set[int] = set()
        """Ids of the heavy lists and objects that the value itself holds, and so stay as they are meanwhile."""
        self._repeated = 0

    def check(self, values: int, chars: int) -> None:
        """Compare the sums with the limits.

        Raises:
            NotData: The value holds too much.
        """
        if values > self._max_values:
            raise NotData(f" has more than {self._max_values} values")
        if chars > _MAX_CHARS:
            raise NotData(f" has more than {_MAX_CHARS} characters: store it, and return where it is")
        if self._made_since is None:
            return
        made, made_chars = values - self._made_since[0] + self._made, chars - self._made_since[1] + self._made_chars
        if made > _MAX_MADE or made_chars > _MAX_MADE_CHARS:
            what, limit = ("values", _MAX_MADE) if made > _MAX_MADE else ("characters", _MAX_MADE_CHARS)
            raise NotData(f" makes more than {limit} {what} while it is read: return a dict or a list of fewer")

    def enter_made(self, values: int, chars: int) -> bool:
        """Count what follows as made while it is looked at. Return whether that begins here."""
        if self._made_since is not None:
            return False
        self._made_since = (values, chars)
        return True

    def leave_made(self, values: int, chars: int) -> None:
        if self._made_since is not None:
            self._made += values - self._made_since[0]
            self._made_chars += chars - self._made_since[1]
            self._made_since = None

    def enter_new(self) -> None:
        """Look at objects that were made for this, whose ids others may have had before."""
        self._new_depth += 1

    def leave_new(self) -> None:
        self._new_depth -= 1

    def meet(self, source: object, weight: int) -> None:
        """Note a heavy list or object that the value holds.

        Raises:
            NotData: Such ones were met so often that the value is larger than anything that could be built.
        """
        if self._made_since is not None or self._new_depth:
            return
        if id(source) in self._met:
            self._repeated += weight
        self._met.add(id(source))
        if self._repeated > _MAX_REPEATED:
            raise _repeats()


def _repeats() -> NotData:
    return NotData(f" holds the same lists or objects so often that these are more than {_MAX_REPEATED} values")


def is_stored(value: object) -> bool:
    """Whether a mapping, list or tuple stores its items, and so has an end; else it may make them when it is read."""
    kind: Any = type(value)
    if kind is dict or kind is list:
        return True
    if isinstance(value, dict):
        return kind.items in _STORED_ITEMS and kind.__len__ is dict.__len__
    return isinstance(value, (list, tuple)) and kind.__getitem__ in _STORED_PARTS and kind.__len__ in _STORED_LENGTHS


def is_field_stored(value: object, name: str, item: object) -> bool:
    """Whether a field of a dataclass stores its value, and no property makes it."""
    if isinstance(getattr(type(value), name, None), MemberDescriptorType):  # one of its slots
        return True
    return getattr(value, "__dict__", {}).get(name, _NOTHING) is item


_NOTHING = object()


def is_model(value: object) -> bool:
    """Whether it is a pydantic model. When pydantic is not loaded there are none, and it is not loaded to find out."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def has_own_dump(model: Any) -> bool:
    """Whether the class of a pydantic model has a `model_dump` of its own, which may make anything."""
    return type(model).model_dump is not sys.modules["pydantic"].BaseModel.model_dump


def values_of_model(model: Any) -> Generator[int]:
    """Yield how many values a pydantic model was found to hold so far, once for each slice of the work.

    Its dump is one step that cannot be interrupted.

    Raises:
        NotData: It holds the same lists or objects so often that its dump would be larger than anything that could be built.
    """
    waiting: list[Iterator[Any]] = [iter((model,))]
    met: set[int] = set()
    counted, repeated, looked, pause_at = 0, 0, 0, _SLICE
    while waiting:
        some = list(islice(waiting[-1], _SLICE))
        if not some:
            waiting.pop()
        for value in filter(_has_parts, reversed(some)):
            inside = value.__dict__ if is_model(value) else value
            items = list(inside.values()) if isinstance(inside, dict) else list(inside)
            counted += len(items)
            if id(value) in met:
                repeated += len(items)
            met.add(id(value))
            waiting.append(iter(items))
            if repeated > _MAX_REPEATED:
                raise _repeats()
            if counted >= pause_at:
                yield counted
                pause_at = counted + _SLICE
        looked += len(some)
        if looked > 4 * _SLICE:  # most of them hold nothing: there was much to look at, and little to count
            yield counted
            looked = 0


def _has_parts(value: object) -> bool:
    """Whether a pydantic model's dump copies what it holds."""
    return isinstance(value, (set, frozenset)) or is_stored(value) or is_model(value)
