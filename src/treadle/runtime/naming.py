"""Naming: give every call of a session an id of its own, whatever the provider sent. Values only."""

from collections.abc import Set as AbstractSet

__all__ = ["CallNames"]

LONGEST_ID = 40
"""What the strictest dialect takes for a call id."""


class CallNames:
    """The ids of one response's calls. A usable id stays; a missing, repeated, overlong or strange one is replaced."""

    def __init__(self, taken: AbstractSet[str], step: int) -> None:
        self._taken = taken
        self._step = step
        self._names: dict[int, str] = {}
        self._given: set[str] = set()

    def name(self, position: int, raw: str) -> str:
        """Return the id of the call at this position: the same one each time."""
        if position not in self._names:
            self._give(position, raw if self._is_usable(raw) else self._new(position))
        return self._names[position]

    def rename(self, position: int) -> str:
        """Give the call at this position another id: the one it had belongs to a call that has already started."""
        self._give(position, self._new(position))
        return self._names[position]

    def _give(self, position: int, name: str) -> None:
        self._names[position] = name
        self._given.add(name)

    def _is_usable(self, raw: str) -> bool:
        is_plain = raw.isascii() and raw.isprintable() and " " not in raw
        return 0 < len(raw) <= LONGEST_ID and is_plain and not self._is_taken(raw)

    def _is_taken(self, name: str) -> bool:
        return name in self._taken or name in self._given

    def _new(self, position: int) -> str:
        name, number = f"call_{self._step}_{position + 1}", 1
        while self._is_taken(name):
            number += 1
            name = f"call_{self._step}_{position + 1}_{number}"
        return name
