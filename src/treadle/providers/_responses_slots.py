"""Responses, inward: the output items of one response, put together from events. Knows nothing of the rest of the answer.

Servers repeat themselves: an item comes at a second index, or once more in the final output under a new id. And proxies give two
items one index. So the index says where an item goes on, and its own ids say which one it is.
"""

from collections.abc import Iterator, Sequence

import msgspec

from treadle.canonical import text_key
from treadle.providers._responses_items import Item, message_text

__all__ = ["NOTHING", "Slot", "Slots"]

NOTHING = msgspec.Raw(b"null")

_CALL = "function_call"


class Slot:
    """One output item that is being put together."""

    __slots__ = ("arguments", "has_said", "has_thought", "index", "is_done", "item", "number", "text")

    def __init__(self, index: int, number: int) -> None:
        self.index = index
        self.number = number
        """Its place among the items, in the order in which they came."""
        self.item = Item(value={})
        self.text: list[str] = []
        self.arguments: list[str] = []
        self.has_said = False
        self.has_thought = False
        self.is_done = False

    @property
    def is_whole(self) -> bool:
        return self.is_done and not self.item.is_open

    @property
    def streamed(self) -> str:
        """The arguments that came in pieces."""
        return "".join(self.arguments)

    def close(self, item: Item) -> None:
        """Take the item whole. Some servers send it without the arguments that they have streamed."""
        if item.kind == _CALL and not item.arguments.strip():
            item = msgspec.structs.replace(item, arguments=self.streamed or self.item.arguments)
        self.item, self.is_done = item, True

    def is_again(self, item: Item) -> bool:
        """Whether this item, which is whole, is reported again: nothing in it is new."""
        mine = self.item
        if not self.is_done or mine.kind != item.kind:
            return False
        if item.kind == "message":
            return message_text(mine.value) == message_text(item.value)
        if item.kind != _CALL:
            return True
        is_equal = not item.arguments.strip() or text_key(item.arguments) == text_key(mine.arguments)
        return is_equal and mine.value.get("name") == item.value.get("name")

    def may_be(self, item: Item) -> bool:
        """Whether the item may be what this slot waits for."""
        mine = self.item
        if self.is_done or mine.kind not in ("", item.kind):
            return False
        return not (mine.call_id and item.call_id and mine.call_id != item.call_id)

    def final(self) -> Item:
        """Return the item; of one that never ended, what came of it."""
        if self.is_done:
            return self.item
        if self.item.kind == _CALL or self.arguments:
            value = {"type": _CALL, **self.item.value}
            return Item(value=value, arguments=self.streamed or self.item.arguments)
        if self.item.kind == "reasoning":  # cut off: its seal is not the one that may go back
            return Item(value={"type": "reasoning", "summary": []})
        if self.text:
            content = [{"type": "output_text", "text": "".join(self.text), "annotations": []}]
            return Item(value={"type": "message", "role": "assistant", "content": content})
        return self.item


class Slots:
    """The items of one response, in their order."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        self._at: dict[int, Slot] = {}
        self._by_id: dict[str, Slot] = {}
        self._by_call: dict[str, Slot] = {}
        self._told: list[Slot] = []

    def begin(self, index: object, item: Item) -> None:
        """Take the beginning of an item: of a new one, unless it is known by its id."""
        place = self._place(index)
        slot = self._known(item)
        if slot is None:
            at = self._at.get(place)
            slot = at if at is not None and not at.item.value and not at.is_done else self._new(place)
            slot.item = item
        self._at.setdefault(place, slot)
        self._remember(slot, item)

    def going_on(self, index: object, item_id: str) -> Slot | None:
        """Return the slot that a piece belongs to; None where the piece repeats an item that came already."""
        place = _number(index)
        slot = self._by_id.get(item_id) or (self._last if place is None else self._at.get(place))
        if slot is None:
            slot = self._new(place or 0)
        return None if slot.is_done or place not in (None, slot.index) else slot

    def end(self, index: object, item: Item) -> Slot:
        """Return the slot of an item that is whole: the one that it closes, or that has had it already."""
        slot = self._known(item)
        if slot is None or (slot.is_done and not slot.is_again(item)):
            place = _number(index)
            at = self._last if place is None else self._at.get(place)
            slot = at if at is not None and at.may_be(item) else self._new(self._place(index))
        self._remember(slot, item)
        return slot

    def missing(self, output: Sequence[Item]) -> Iterator[tuple[Slot, Item]]:
        """Yield what of the final output no event brought whole.

        The output lists what was streamed, under whatever ids: each of its items is one of ours where one is equal. One that
        equals none is new.
        """
        free = list(self._slots)
        pairs: dict[int, Slot] = {}
        for is_match in (_has_id, Slot.is_again, Slot.may_be, _is_alike):
            for place, item in enumerate(output):
                if place not in pairs and (found := next((slot for slot in free if is_match(slot, item)), None)):
                    pairs[place] = found
                    free.remove(found)
        for place, item in enumerate(output):
            slot = pairs.get(place) or self._new(place if place not in self._at else self._place(None))
            if not slot.is_done:
                yield slot, item

    def ready(self) -> Iterator[Slot]:
        """Yield the slots that have become whole, in order: none before an earlier one."""
        for slot in self.in_order()[len(self._told) :]:
            is_next = slot.index <= (self._told[-1].index + 1 if self._told else 0)
            if not slot.is_whole or not is_next:
                return
            self._told.append(slot)
            yield slot

    def in_order(self) -> list[Slot]:
        """Return the slots in the order of their indexes. What was given out stays before what came after it."""
        told = set(map(id, self._told))
        rest = (slot for slot in self._slots if id(slot) not in told)
        return [*self._told, *sorted(rest, key=_order)]

    @property
    def _last(self) -> Slot | None:
        return max(self._slots, key=_order, default=None)

    def _new(self, place: int) -> Slot:
        slot = self._at[place] = Slot(place, len(self._slots))
        self._slots.append(slot)
        return slot

    def _place(self, index: object) -> int:
        """Return the index; where a server sends none, the next one."""
        place = _number(index)
        return max((slot.index + 1 for slot in self._slots), default=0) if place is None else place

    def _known(self, item: Item) -> Slot | None:
        if item.call_id in self._by_call:
            return self._by_call[item.call_id]
        slot = self._by_id.get(item.id)
        return slot if slot is not None and (slot.may_be(item) or slot.is_again(item)) else None

    def _remember(self, slot: Slot, item: Item) -> None:
        if item.call_id:
            self._by_call.setdefault(item.call_id, slot)
        if item.id:
            self._by_id[item.id] = slot


def _order(slot: Slot) -> tuple[int, int]:
    return slot.index, slot.number


def _number(index: object) -> int | None:
    return index if type(index) is int and index >= 0 else None


def _has_id(slot: Slot, item: Item) -> bool:
    mine = slot.item
    is_same = item.call_id == mine.call_id if item.call_id else bool(item.id) and item.id == mine.id
    return is_same and (slot.may_be(item) or slot.is_again(item))


def _is_alike(slot: Slot, item: Item) -> bool:
    """Whether the item is of the same kind, where that is enough: a call never is another one."""
    return item.kind != _CALL and slot.item.kind == item.kind
