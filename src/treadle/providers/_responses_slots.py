"""Responses, inward: the output items of one response, put together from events. Knows nothing of the rest of the answer."""

from collections.abc import Iterator

import msgspec

from treadle.providers._lenient import text_or_nothing
from treadle.providers._responses_items import Item, read_item

__all__ = ["NOTHING", "Slot", "Slots", "id_of"]

NOTHING = msgspec.Raw(b"null")


class Slot:
    """One output item that is being put together."""

    __slots__ = ("arguments", "has_said", "has_thought", "is_done", "item", "text")

    def __init__(self) -> None:
        self.item = Item(value={})
        self.text: list[str] = []
        self.arguments: list[str] = []
        self.has_said = False
        self.has_thought = False
        self.is_done = False

    @property
    def is_whole(self) -> bool:
        return self.is_done and not self.item.is_open

    def final(self) -> Item:
        """Return the item; of one that never ended, what came of it."""
        if self.is_done:
            return self.item
        if self.item.kind == "function_call" or self.arguments:
            value = {"type": "function_call", **self.item.value}
            return Item(value=value, arguments="".join(self.arguments) or self.item.arguments)
        if self.item.kind == "reasoning":  # cut off: its seal is not the one that may go back
            return Item(value={"type": "reasoning", "summary": []})
        if self.text:
            content = [{"type": "output_text", "text": "".join(self.text), "annotations": []}]
            return Item(value={"type": "message", "role": "assistant", "content": content})
        return self.item


class Slots:
    """The items of one response, in their order."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._positions: dict[str, int] = {}
        self._told = 0

    def at(self, index: object, item_id: str, raw: msgspec.Raw = NOTHING, *, is_new: bool = False) -> Slot:
        """Return the slot of an event: by its index, else by its item's id, else a new one for a new item, else the last."""
        own_id = id_of(raw)
        position = index if type(index) is int and index >= 0 else self._positions.get(item_id or own_id)
        if position is None:
            position = len(self._slots) if is_new or not self._slots else max(self._slots)
        if own_id:
            self._positions[own_id] = position
        return self._slots.setdefault(position, Slot())

    def missing(self, output: list[msgspec.Raw]) -> Iterator[tuple[Slot, msgspec.Raw]]:
        """Yield what of the whole output no event brought. An item that came is known by its id, whatever its index was."""
        if len(self._slots) >= len(output) and all(slot.is_done for slot in self._slots.values()):
            return
        for place, raw in enumerate(output):
            slot = self._slots.setdefault(self._positions.get(id_of(raw), place), Slot())
            if not slot.is_done:
                yield slot, raw

    def ready(self) -> Iterator[tuple[int, Item]]:
        """Yield the items that have become whole, in order: none before an earlier one."""
        while (slot := self._slots.get(self._told)) is not None and slot.is_whole:
            yield self._told, slot.item
            self._told += 1

    def in_order(self) -> list[tuple[int, Slot]]:
        return sorted(self._slots.items(), key=lambda entry: entry[0])


def id_of(raw: msgspec.Raw) -> str:
    """Return what an item is known by; nothing for no item."""
    if bytes(raw) == b"null":
        return ""
    value = read_item(raw).value
    return text_or_nothing(value.get("id")) or text_or_nothing(value.get("call_id"))
