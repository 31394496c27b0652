"""Naming: the calls of one response, each once and under an id that is unique in its session. Values only.

An id names a call, whatever its index or its wrapping: a call with the same id, name and arguments is the same call, reported again.
Where two calls may be meant, both are kept and the second is marked: one id with two sets of arguments, equal calls of which one has no
id, and equal calls in a response that the server reported twice.
"""

from collections.abc import Collection, Container, Iterable
from typing import TypeAlias

import msgspec

from treadle.canonical import text_key
from treadle.messages import Part, ToolCall

__all__ = ["CallNames", "Collected", "ResponseCalls"]

LONGEST_ID = 256
"""What is kept as the server sent it: it goes back to that server unchanged. An adapter writes it anew where its dialect takes less."""


_Action: TypeAlias = tuple[str, bytes]
_Identity: TypeAlias = tuple[str, str, bytes]


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

    def __init__(self, taken: Container[str], step: int) -> None:
        self._names = CallNames(taken, step)
        self._early: dict[_Identity, list[_Reported]] = {}
        self._keys: dict[str, bytes] = {}
        """By the text of arguments: most are read early, and in the final message."""
        self.early_count = 0

    def ready(self, call: ToolCall) -> ToolCall | None:
        """Return a call that is ready early, under its own id; None for one that was reported already."""
        twins = self._early.setdefault(self._identity(call), [])
        if call.id and twins:
            return None
        named = msgspec.structs.replace(call, id=self._names.give(self.early_count, call.id))
        twins.append(_Reported(raw=call, named=named))
        self.early_count += 1
        return named

    def collect(
        self, parts: Iterable[Part], *, cut: Collection[str], unnamed: Collection[str], is_retold: bool = False
    ) -> Collected:
        """Return the final message: each call once, under the id that it had when it was ready early.

        A call that was ready early and is missing from the final message comes last: it was proposed, so it gets its result.

        Args:
            cut: The provider's ids of calls that the response may have cut off.
            unnamed: Ids that the provider did not send.
            is_retold: Whether the provider may have reported one call under two ids.
        """
        kept: list[Part] = []
        known: dict[_Identity, _Reported] = {}
        ids: set[str] = set()
        actions: dict[_Action, bool] = {}
        repeated: list[str] = []
        reported: list[_Reported] = []
        for part in parts:
            if not isinstance(part, ToolCall):
                kept.append(part)
                continue
            is_named = bool(part.id) and part.id not in unnamed
            identity = self._identity(part)
            if is_named and (again := known.get(identity)) is not None:
                kept[again.place] = again.with_signature(part)
                continue
            one = _Reported(raw=part, named=self._named(part, identity, len(reported)), place=len(kept))
            action = identity[1:]
            may_be_known = action in actions and (is_retold or not (is_named and actions[action]))
            if (is_named and part.id in ids) or may_be_known:
                repeated.append(one.named.id)
            if part.id not in cut:  # a call that does not start is not a first of two
                actions[action] = actions.get(action, True) and is_named
            if is_named:
                known[identity] = one
            ids.add(part.id)
            reported.append(one)
            kept.append(one.named)
        kept += [
            one.named for early in self._early.values() for one in early if not one.is_final and one.raw.id not in ids
        ]
        cut_ids = frozenset(one.named.id for one in reported if one.raw.id in cut)
        return Collected(parts=tuple(kept), cut=cut_ids, repeated=frozenset(repeated))

    def _identity(self, call: ToolCall) -> _Identity:
        """Return what makes a call the same as another: its id and what it does, however the JSON of its arguments is written."""
        key = self._keys.get(call.arguments)
        if key is None:
            key = self._keys[call.arguments] = text_key(call.arguments.strip() or "{}")
        return call.id, call.name, key

    def _named(self, call: ToolCall, identity: _Identity, position: int) -> ToolCall:
        """Return the call under its id. One that continued after it looked complete is another call, with another id."""
        for early in self._early.get(identity, ()):
            if not early.is_final:
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

    def with_signature(self, again: ToolCall) -> ToolCall:
        """Return the call with its proof of origin, which only one of its reports may carry."""
        if self.named.signature is None and again.signature is not None:
            self.named = msgspec.structs.replace(self.named, signature=again.signature)
        return self.named


class CallNames:
    """The ids of one response's calls. A usable id stays; a missing, repeated, overlong or strange one is replaced."""

    def __init__(self, taken: Container[str], step: int) -> None:
        self._taken = taken
        self._step = step
        self._given: dict[str, None] = {}  # a set takes 200 bytes while it is empty

    def give(self, position: int, raw: str) -> str:
        """Return the id of the call at this position."""
        name = raw if self._is_usable(raw) else self._new(position)
        self._given[name] = None
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
