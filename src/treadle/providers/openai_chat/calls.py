"""Chat Completions, inward: the calls of one response, put together from fragments. Knows nothing of the rest of the answer."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from treadle.canonical import text_key
from treadle.concurrency.pieces import Pieces
from treadle.messages import ToolCall
from treadle.providers.payload.arguments import ObjectEnd, may_have_lost
from treadle.providers.payload.lenient import arguments_text, call_arguments, text_or_nothing
from treadle.providers.payload.schemas import without_absent

__all__ = ["CallSlot", "Calls", "Fragment", "Function"]


class Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    """Kept raw: a server that sends an object instead of its text means exactly those bytes."""

    @property
    def says_something(self) -> bool:
        return bool(text_or_nothing(self.name) or arguments_text(self.arguments))


class Fragment(msgspec.Struct, gc=False):
    index: Any = None
    id: Any = None
    function: Function | None = None
    extra_content: Any = None


_NO_FUNCTION = Function()

_Action: TypeAlias = tuple[str, bytes]


class CallSlot:
    """One call that is being put together."""

    __slots__ = ("end", "id", "index", "is_begun_again", "is_streamed", "name", "pieces", "position", "signature")

    def __init__(self, position: int, index: int | None) -> None:
        self.position = position
        self.index = index
        self.id = ""
        self.name = ""
        self.signature: str | None = None
        self.pieces = Pieces()
        self.end = ObjectEnd()
        self.is_begun_again = False
        """Whether its id and name came again after its end, so that further arguments repeat it."""
        self.is_streamed = True
        """Whether it came in pieces, or at least could have."""

    @property
    def given_id(self) -> str:
        """The id in a message. A server without ids still has positions, and ModelEnd must be able to name a call that was cut."""
        return self.id or f"call_{self.position}"

    @property
    def is_ready(self) -> bool:
        return self.end.is_closed and not self.end.has_tail and bool(self.name)

    @property
    def has_arguments(self) -> bool:
        """Whether any came: a call of a tool without parameters may have none."""
        return any(map(str.strip, self.pieces))

    @property
    def says_something(self) -> bool:
        return bool(self.id) or self.has_arguments

    @property
    def action(self) -> _Action:
        """What the call does, however its arguments are written."""
        return self.name, text_key("".join(self.pieces))

    def add(self, text: str) -> None:
        self.pieces.add(text)
        self.end.feed(text)

    def call(self, names: Mapping[str, str], schemas: Mapping[str, Mapping[str, Any]]) -> ToolCall:
        """Return the call as our own schema wants it: by our name, without nulls that stand for absent properties."""
        name = names.get(self.name, self.name)
        arguments = call_arguments(self.pieces)
        if name in schemas:
            arguments = without_absent(arguments, schemas[name])
        return ToolCall(id=self.given_id, name=name, arguments=arguments, signature=self.signature)


class Calls:
    """The calls of one response, from fragments to call order.

    A fragment belongs to the call at its index. Servers that leave the index out, or send 0 for every call, begin a new call by
    a new id and its name, or by a name after the open call has closed. A fragment without a name begins none, whatever its id: some
    servers write a new one into each. A call that is reported again under its id begins anew as well: whoever collects the response
    compares both.
    """

    def __init__(self) -> None:
        self._slots: dict[int, CallSlot] = {}
        self._open: dict[int, CallSlot] = {}
        self._last: CallSlot | None = None
        self._next = 0
        self._told = 0
        self._has_lost = False
        self.size = 0
        """How many fragments it has taken, those that only repeat a call left out."""

    def add(self, fragment: Fragment) -> None:
        """Take a fragment of a call."""
        call_id, name, text = _read(fragment)
        self.size += bool(call_id or name or text)
        slot = self._slot(_index(fragment.index), call_id, name, text)
        if slot is None:
            self._has_lost = True
            return
        if slot.position >= self._told:  # a call that was handed out keeps the id that it had
            slot.id = slot.id or call_id
        if name and call_id == slot.id and slot.end.is_closed and not text.strip():
            slot.is_begun_again = bool(call_id)
        _fill(slot, fragment, name, text)

    def add_whole(self, fragments: Iterable[Fragment], *, is_again: bool) -> None:
        """Take the calls of a whole message.

        Args:
            is_again: Whether the message repeats what was streamed before it. Each call that equals a streamed one is that one
                then, whatever its id; one with the same id first.
        """
        read = [(fragment, *_read(fragment)) for fragment in fragments]
        repeated: set[int] = set()
        if is_again:
            streamed = [(slot.id, slot.action) for slot in self.in_order()]
            actions = [(call_id, (name, text_key(text))) for _, call_id, name, text in read]
            repeated = _matched(actions, streamed)
        for place, (fragment, call_id, name, text) in enumerate(read):
            if place not in repeated:
                self.size += 1
                slot = self._begin(_index(fragment.index))
                slot.id, slot.is_streamed = call_id, False
                _fill(slot, fragment, name, text)

    def ready(self) -> list[CallSlot]:
        """Return the calls that have become complete, in call order: none before an earlier one."""
        found: list[CallSlot] = []
        while not self._has_lost and (slot := self._slots.get(self._told)) is not None and slot.is_ready:
            found.append(slot)
            self._told += 1
        return found

    def in_order(self) -> list[CallSlot]:
        """Return the calls. What never got a name is one only where there is no other, so that the model is told of it."""
        slots = [self._slots[position] for position in sorted(self._slots)]
        return [slot for slot in slots if slot.name] or [slot for slot in slots if slot.says_something]

    @property
    def has_strays(self) -> bool:
        """Whether nobody can say of some fragment to which call it belongs."""
        slots = [self._slots[position] for position in sorted(self._slots)]
        if self._has_lost or any(slot.says_something and not slot.name for slot in slots):
            return True
        streamed = [slot for slot in slots if slot.is_streamed]
        broken = {slot.index for slot in streamed if slot.has_arguments and not slot.is_ready}
        sharing = Counter(slot.index for slot in streamed)
        return (
            any(sharing[index] > 1 for index in broken)
            or may_have_lost((slot.index, slot.name, slot.has_arguments) for slot in streamed)
            or may_have_lost((slot.id, slot.name, slot.has_arguments) for slot in slots if slot.id)
        )

    def _slot(self, index: int | None, call_id: str, name: str, text: str) -> CallSlot | None:
        """Return the call that a fragment belongs to; None where it may be one or another."""
        slot = self._last if index is None else self._open.get(index)
        if not name and (slot is not None or call_id):
            slot, is_known = self._meant(slot, index, call_id, text)
            if not is_known:
                return None
        elif slot is not None and call_id and slot.id not in ("", call_id):
            slot = self._going_on(index, call_id, text)  # calls that share an index take turns
        if slot is not None and slot.is_begun_again and text.lstrip().startswith("{"):
            again = self._begin(index)
            again.id, again.name = slot.id, slot.name
            return again
        if slot is None or _begins_another(slot, index, call_id, name, text):
            return self._begin(index)
        if index is not None:
            self._open[index] = slot
        self._last = slot
        return slot

    def _begin(self, index: int | None) -> CallSlot:
        position = index if index is not None and index not in self._slots else self._next
        slot = self._slots[position] = CallSlot(position, index)
        self._next = max(self._next, position + 1)
        if index is not None:
            self._open[index] = slot
        self._last = slot
        return slot

    def _meant(self, slot: CallSlot | None, index: int | None, call_id: str, text: str) -> tuple[CallSlot | None, bool]:
        """Return the call that a fragment without a name continues, None for one that has yet to get its name, and whether
        there is no other that it may continue.

        Args:
            slot: The one at its index; the last one where it has no index.
        """
        if slot is not None and (slot.id == call_id != "" or not text.strip()):
            return slot, True
        going = [one for one in self._slots.values() if not one.end.is_closed]
        if own := [one for one in going if call_id and one.id == call_id]:
            is_known = len(own) == 1 and (slot is None or index is None or own[0].index == index)
            return own[0], is_known
        if slot is None:
            return None, True
        rivals = [one for one in going if one is not slot and index in (None, one.index)]
        is_second = slot.end.is_closed and text.lstrip().startswith("{") and not slot.is_begun_again
        return slot, not rivals and not is_second

    def _going_on(self, index: int | None, call_id: str, text: str) -> CallSlot | None:
        """Return the call of that id and index that is not complete yet."""
        mine = (slot for slot in self._slots.values() if slot.id == call_id and slot.index == index)
        return next((slot for slot in mine if not slot.end.is_closed), None)


def _matched(calls: Sequence[tuple[str, _Action]], streamed: Sequence[tuple[str, _Action]]) -> set[int]:
    """Return the places of the calls that are one of the streamed calls each: with the same id, else with another one."""
    by_id = Counter(streamed)
    places = set()
    for place, call in enumerate(calls):
        if by_id[call] > 0:
            by_id[call] -= 1
            places.add(place)
    by_action = Counter(action for _, action in by_id.elements())
    for place, (_, action) in enumerate(calls):
        if place not in places and by_action[action] > 0:
            by_action[action] -= 1
            places.add(place)
    return places


def _read(fragment: Fragment) -> tuple[str, str, str]:
    """Return the id, the name and the text of a fragment."""
    function = fragment.function or _NO_FUNCTION
    call_id = str(fragment.id) if type(fragment.id) is int else text_or_nothing(fragment.id)
    return call_id, text_or_nothing(function.name), arguments_text(function.arguments)


def _fill(slot: CallSlot, fragment: Fragment, name: str, text: str) -> None:
    if name and name != slot.name:
        slot.name = _whole_name(slot.name, name)
    if fragment.extra_content:
        slot.signature = slot.signature or _signature(fragment.extra_content)
    if text:
        slot.add(text)


def _whole_name(known: str, reported: str) -> str:
    """Join a name that comes in pieces. One that is repeated, as far as it goes by then, is not a piece."""
    return reported if reported.startswith(known) else known + reported


def _begins_another(slot: CallSlot, index: int | None, call_id: str, name: str, text: str) -> bool:
    if index is None and name and slot.name and name != slot.name:
        return True
    return bool(name) and slot.end.is_closed and (text.lstrip().startswith("{") or not slot.name)


def _index(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _signature(extra: Any) -> str | None:
    google = extra.get("google") if isinstance(extra, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return signature if isinstance(signature, str) and signature else None
