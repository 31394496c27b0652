"""Large: what is kept of one list or object that is too large to be kept as values: its JSON text, and what it held for a while."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import msgspec

__all__ = ["SLICE", "Holding", "Keep", "Writing"]

SLICE = 2000
"""Values between two pauses."""
Keep: TypeAlias = Callable[[tuple[Any, ...]], None]


class _Counting(Protocol):
    """A walk through a value that counts what it has seen."""

    values: int


class Holding:
    """What one list or object holds, on its way to whoever keeps it: nothing of a small one, and of a large one slice by slice."""

    __slots__ = ("_held", "_keep", "_mark", "_walk")

    def __init__(self, walk: _Counting, keep: Keep) -> None:
        self._walk = walk
        self._keep = keep
        self._mark = walk.values
        self._held: list[Any] | None = None

    def add(self, item: Any, made: Any) -> None:
        if self._held is not None:
            self._held += (item, made)
        if self._walk.values - self._mark > SLICE:
            if self._held:
                self._keep(tuple(self._held))
            self._held, self._mark = [], self._walk.values

    def add_many(self, items: Iterable[Any]) -> None:
        self._keep((*(self._held or ()), *items))
        self._held, self._mark = [], self._walk.values


class Writing:
    """The JSON text of a list or object that is too large to be kept as values, in pieces."""

    def __init__(self, brackets: bytes, *, has_names: bool = False) -> None:
        self._brackets = brackets
        self._pieces: list[bytes] = []
        self._names: set[str] | None = set() if has_names else None
        """Those of the fields that are in it, where a key could come twice."""

    def holds(self, name: str) -> bool:
        return self._names is not None and name in self._names

    def add(self, pieces: list[bytes], names: Iterable[str], *, field: str | None = None) -> None:
        """Add further items or fields.

        Args:
            field: The name of the one field whose value the pieces are.
        """
        if self._pieces:
            self._pieces.append(b",")
        if field is not None:
            self._pieces.append(msgspec.json.encode(field) + b":")
        self._pieces += pieces
        if self._names is not None:
            self._names.update(names)

    def whole(self) -> list[bytes]:
        return [self._brackets[:1], *self._pieces, self._brackets[1:]]
