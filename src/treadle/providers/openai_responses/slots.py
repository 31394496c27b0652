"""Responses, inward: the output items of one response, put together from events. Knows nothing of the rest of the answer.

Servers repeat themselves: an item comes at a second index, or again in the final output under a new id. And proxies give two
items one index. So the index says where an item continues, and its own ids say which one it is.
"""

from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from treadle.canonical import text_key
from treadle.concurrency.pieces import Pieces
from treadle.providers.openai_responses.items import Item, message_text
from treadle.providers.payload.arguments import may_have_lost

__all__ = ["NOTHING", "Slot", "Slots"]

NOTHING = msgspec.Raw(b"null")

_CALL = "function_call"

_Content: TypeAlias = tuple[str | bytes, ...]


class Slot:
    """One output item that is being put together."""

    __slots__ = ("arguments", "has_lost", "has_said", "has_thought", "index", "is_done", "item", "number", "text")

    def __init__(self, index: int, number: int) -> None:
        self.index = index
        self.number = number
        """Its place among the items, in the order in which they came."""
        self.item = Item(value={})
        self.text = Pieces()
        self.arguments = Pieces()
        self.has_said = False
        self.has_thought = False
        self.has_lost = False
        """Whether a piece of its arguments was left out, as a repetition: it was none where no others came."""
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
        return self.is_done and _content(item) in _contents(self.item)

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
        self._rest: list[Slot] = []
        """Those that were not given out, in order."""
        self._highest: Slot | None = None
        self._at: dict[int, Slot] = {}
        self._by_id: dict[str, Slot] = {}
        self._by_call: dict[str, Slot] = {}
        self._told: list[Slot] = []
        self._has_lost = False
        self.is_retold = False
        """Whether a call may have been sent under two ids: the response began again, or its final output lists a further call."""

    def begin_again(self) -> None:
        """Take the beginning of the response. After an item it is the second one."""
        self.is_retold = self.is_retold or bool(self._slots)

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
        slot = self._by_id.get(item_id) or (self._highest if place is None else self._at.get(place))
        if slot is None:
            slot = self._new(place or 0)
        return None if slot.is_done or place not in (None, slot.index) else slot

    def argued(self, index: object, item_id: str, piece: str) -> Slot | None:
        """Return the call that a piece of arguments belongs to; None where it is one that came already, or nobody can say."""
        place, own = _number(index), self._by_id.get(item_id)
        if (slot := self.going_on(index, item_id)) is None:
            for one in (own, self._highest if place is None else self._at.get(place)):
                if one is not None:
                    one.has_lost = one.has_lost or piece.strip() not in ("", "{}")
            return None
        going = [one for one in self._slots if not one.is_done and one.item.kind in ("", _CALL)]
        if slot in going and (place is not None or own is not None or len(going) == 1):
            return slot
        self._has_lost = self._has_lost or bool(piece.strip())
        return None

    @property
    def has_strays(self) -> bool:
        """Whether nobody can say of some arguments to which call they belong."""
        found = [(slot, slot.final()) for slot in self._slots]
        calls = [(slot, item) for slot, item in found if item.kind == _CALL]
        bare = [slot for slot, item in calls if not item.arguments.strip()]
        shared = ((item.call_id, item.name, bool(item.arguments.strip())) for _, item in calls if item.call_id)
        is_lost = self._has_lost or any(slot.has_lost for slot in bare)
        return is_lost or any(not item.name for _, item in calls) or may_have_lost(shared)

    def end(self, index: object, item: Item) -> Slot:
        """Return the slot of an item that is whole: the one that it closes, or that has had it already."""
        slot = self._known(item)
        if slot is None or (slot.is_done and not slot.is_again(item)):
            place = _number(index)
            at = self._highest if place is None else self._at.get(place)
            slot = at if at is not None and at.may_be(item) else self._new(self._place(index))
        self._remember(slot, item)
        return slot

    def missing(self, output: Sequence[Item]) -> Iterator[tuple[Slot, Item]]:
        """Yield what of the final output no event brought whole.

        The output lists what was streamed, under whatever ids: each of its items is one of ours where one is equal. One that
        equals none is new.
        """
        free = _Free(self._slots)
        pairs: dict[int, Slot] = {}
        for keys in (_by_id, _by_content, _by_kind_of_open, _by_kind):
            for place, item in enumerate(output):
                if place not in pairs and (found := free.take(keys(item))) is not None:
                    pairs[place] = found
        for place, item in enumerate(output):
            slot = pairs.get(place)
            if slot is None:
                self.is_retold = self.is_retold or item.kind == _CALL
                slot = self._new(place if place not in self._at else self._place(None))
            if not slot.is_done:
                yield slot, item

    def ready(self) -> Iterator[Slot]:
        """Yield the slots that have become whole, in order: none before an earlier one."""
        while self._rest:
            slot = self._rest[0]
            is_next = slot.index <= (self._told[-1].index + 1 if self._told else 0)
            if not slot.is_whole or not is_next:
                return
            self._told.append(self._rest.pop(0))
            yield slot

    def in_order(self) -> list[Slot]:
        """Return the slots in the order of their indexes. What was given out stays before what came after it."""
        return [*self._told, *self._rest]

    def _new(self, place: int) -> Slot:
        slot = self._at[place] = Slot(place, len(self._slots))
        self._slots.append(slot)
        insort(self._rest, slot, key=_order)
        if self._highest is None or _order(slot) > _order(self._highest):
            self._highest = slot
        return slot

    def _place(self, index: object) -> int:
        """Return the index; where a server sends none, the next one."""
        place = _number(index)
        return place if place is not None else self._highest.index + 1 if self._highest is not None else 0

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


class _Free:
    """The slots that no item of the final output was found to be, by what an item may be found by."""

    def __init__(self, slots: Iterable[Slot]) -> None:
        self._found: dict[Hashable, deque[Slot]] = {}
        self._taken: set[Slot] = set()
        for slot in slots:
            for key in _keys(slot):
                self._found.setdefault(key, deque()).append(slot)

    def take(self, keys: Iterable[Hashable]) -> Slot | None:
        """Return the first slot that one of the keys finds. It is found no more after that."""
        heads = [head for key in keys if (head := self._head(key)) is not None]
        first = min(heads, key=_number_of, default=None)
        if first is not None:
            self._taken.add(first)
        return first

    def _head(self, key: Hashable) -> Slot | None:
        slots = self._found.get(key)
        while slots and slots[0] in self._taken:
            slots.popleft()
        return slots[0] if slots else None


def _keys(slot: Slot) -> Iterator[Hashable]:
    """Yield what a slot is found by."""
    item = slot.item
    ids = [("call", item.call_id)] if item.call_id else []
    ids += [("item", item.id)] if item.id else []
    contents = _contents(item) if slot.is_done else ()
    yield from contents
    yield from ((one, content) for one in ids for content in contents)
    if not slot.is_done:
        yield from ((one, "open", item.kind) for one in ids)
        yield "open", item.kind, bool(item.call_id)
    if item.kind != _CALL:
        yield "kind", item.kind


def _by_id(item: Item) -> Iterator[Hashable]:
    if item.call_id or item.id:
        one = ("call", item.call_id) if item.call_id else ("item", item.id)
        yield one, _content(item)
        yield one, "open", item.kind
        yield one, "open", ""


def _by_content(item: Item) -> Iterator[Hashable]:
    yield _content(item)


def _by_kind_of_open(item: Item) -> Iterator[Hashable]:
    """Find an item that was begun. A call never is one that has another id."""
    for kind in {item.kind, ""}:
        yield "open", kind, False
        if not item.call_id:
            yield "open", kind, True


def _by_kind(item: Item) -> Iterator[Hashable]:
    """Find an item of the same kind, where that is enough: a call never is another one."""
    if item.kind != _CALL:
        yield "kind", item.kind


def _content(item: Item) -> _Content:
    """Return what the item says, whatever its ids. Some servers send a call again without its arguments."""
    if item.kind == "message":
        return item.kind, message_text(item.value)
    if item.kind != _CALL:
        return (item.kind,)
    return (item.kind, item.name, text_key(item.arguments)) if item.arguments.strip() else (item.kind, item.name)


def _contents(item: Item) -> tuple[_Content, ...]:
    """Return what may be said of the item when it is sent again."""
    content = _content(item)
    return (content, content[:2]) if len(content) > 2 else (content,)


def _number_of(slot: Slot) -> int:
    return slot.number
