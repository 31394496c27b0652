"""Naming: the calls of one response, each once and under an id that is unique in its session. Values only.

An id names a call, whatever its index or its wrapping: a call with the same id, name and arguments is the same call, reported again.
Where two calls may be meant (one id with two sets of arguments, or equal calls without ids), both are kept and the second is marked.
"""

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

import msgspec

from treadle.canonical import text_key
from treadle.messages import Part, ToolCall

__all__ = ["CallNames", "Collected", "ResponseCalls"]

LONGEST_ID = 40
"""What the strictest dialect takes for a call id."""


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """One whole response."""

    parts: tuple[Part, ...]
    """Each call once, under its own id."""
    cut: frozenset[str] = frozenset()
    """Ids of the calls whose end may be missing."""
    repeated: frozenset[str] = frozenset()
    """Ids of the calls that may be the repetition of an earlier one."""


class ResponseCalls:
    """Collects the calls of one response, those that were ready early and those of its final message."""

    def __init__(self, taken: AbstractSet[str], step: int) -> None:
        self._names = CallNames(taken, step)
        self._early: dict[str, list[_Reported]] = {}
        self.early_count = 0

    def ready(self, call: ToolCall) -> ToolCall | None:
        """Return a call that is ready early, under its own id; None for one that was reported already."""
        twins = self._early.setdefault(call.id, [])
        if call.id and any(twin.is_again(call) for twin in twins):
            return None
        named = msgspec.structs.replace(call, id=self._names.give(self.early_count, call.id))
        twins.append(_Reported(raw=call, named=named))
        self.early_count += 1
        return named

    def collect(self, parts: Iterable[Part], *, cut: Collection[str], unnamed: Collection[str]) -> Collected:
        """Return the final message: each call once, under the id that it had when it was ready early.

        A call that was ready early and is missing from the final message comes last: it was proposed, so it gets its result.

        Args:
            cut: The provider's ids of calls that the response may have cut off.
            unnamed: Ids that the provider did not send.
        """
        kept: list[Part] = []
        known: dict[object, list[_Reported]] = {}
        repeated: list[str] = []
        position = 0
        for part in parts:
            if not isinstance(part, ToolCall):
                kept.append(part)
                continue
            is_named = bool(part.id) and part.id not in unnamed
            twins = known.setdefault(part.id if is_named else _action(part), [])
            if is_named and (again := next((twin for twin in twins if twin.is_again(part)), None)) is not None:
                kept[again.place] = again.with_signature(part)
                continue
            one = _Reported(raw=part, named=self._named(part, position), place=len(kept))
            if twins:
                repeated.append(one.named.id)
            twins.append(one)
            kept.append(one.named)
            position += 1
        reported = [one for twins in known.values() for one in twins]
        ids = {one.raw.id for one in reported}
        kept += [
            one.named for early in self._early.values() for one in early if not one.is_final and one.raw.id not in ids
        ]
        cut_ids = frozenset(one.named.id for one in reported if one.raw.id in cut)
        return Collected(parts=tuple(kept), cut=cut_ids, repeated=frozenset(repeated))

    def _named(self, call: ToolCall, position: int) -> ToolCall:
        """Return the call under its id. One that went on after it looked complete is another call, with another id."""
        for early in self._early.get(call.id, ()):
            if not early.is_final and early.is_again(call):
                early.is_final = True
                return msgspec.structs.replace(call, id=early.named.id)
        return msgspec.structs.replace(call, id=self._names.give(position, call.id))


class _Reported(msgspec.Struct, kw_only=True):
    """A call that was reported."""

    raw: ToolCall
    """Under the provider's id."""
    named: ToolCall
    place: int = -1
    """Where it stands among the parts."""
    is_final: bool = False
    """Whether the final message holds this early call."""

    def is_again(self, call: ToolCall) -> bool:
        """Whether the call is this one, reported again."""
        mine = self.raw
        if mine.id != call.id or mine.name != call.name:
            return False
        return mine.arguments == call.arguments or _action(mine) == _action(call)

    def with_signature(self, again: ToolCall) -> ToolCall:
        """Return the call with its proof of origin, which only one of its reports may carry."""
        if self.named.signature is None and again.signature is not None:
            self.named = msgspec.structs.replace(self.named, signature=again.signature)
        return self.named


def _action(call: ToolCall) -> tuple[str, bytes]:
    """Return what a call does: its name and its arguments, however their JSON is written."""
    return call.name, text_key(call.arguments.strip() or "{}")


class CallNames:
    """The ids of one response's calls. A usable id stays; a missing, repeated, overlong or strange one is replaced."""

    def __init__(self, taken: AbstractSet[str], step: int) -> None:
        self._taken = taken
        self._step = step
        self._given: set[str] = set()

    def give(self, position: int, raw: str) -> str:
        """Return the id of the call at this position."""
        name = raw if self._is_usable(raw) else self._new(position)
        self._given.add(name)
        return name

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
