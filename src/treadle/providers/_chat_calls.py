"""Chat Completions, inward: the calls of one response, put together from fragments. Knows nothing of the rest of the answer."""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.messages import ToolCall
from treadle.providers._arguments import ObjectEnd
from treadle.providers._lenient import arguments_text, text_or_nothing

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


class CallSlot:
    """One call that is being put together."""

    __slots__ = ("end", "id", "name", "pieces", "position", "signature")

    def __init__(self, position: int) -> None:
        self.position = position
        self.id = ""
        self.name = ""
        self.signature: str | None = None
        self.pieces: list[str] = []
        self.end = ObjectEnd()

    @property
    def is_ready(self) -> bool:
        return self.end.is_closed and not self.end.has_tail and bool(self.name)

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.end.feed(text)

    def call(self, names: Mapping[str, str]) -> ToolCall:
        return ToolCall(
            # A server without ids still has positions, and ModelEnd must be able to name a call that was cut.
            id=self.id or f"call_{self.position}",
            name=names.get(self.name, self.name),
            arguments="".join(self.pieces),
            signature=self.signature,
        )


class Calls:
    """The calls of one response, from fragments to call order.

    A fragment belongs to the call at its index. Servers that leave the index out, or send 0 for every call, begin a new call by
    a new id, or by a name after the open call has closed.
    """

    def __init__(self) -> None:
        self._slots: dict[int, CallSlot] = {}
        self._open: dict[int, CallSlot] = {}
        self._last: CallSlot | None = None
        self._next = 0
        self._told = 0

    def add(self, fragment: Fragment, *, is_whole: bool) -> None:
        function = fragment.function or _NO_FUNCTION
        call_id = str(fragment.id) if type(fragment.id) is int else text_or_nothing(fragment.id)
        name = text_or_nothing(function.name)
        text = arguments_text(function.arguments)
        slot = self._slot(_index(fragment.index), call_id, name, text, is_whole=is_whole)
        if slot.position >= self._told:  # a call that was handed out keeps the id that it had
            slot.id = slot.id or call_id
        if name and name != slot.name:
            slot.name = _whole_name(slot.name, name)
        if fragment.extra_content:
            slot.signature = slot.signature or _signature(fragment.extra_content)
        if text:
            slot.add(text)

    def ready(self) -> list[CallSlot]:
        """Return the calls that have become complete, in call order: none before an earlier one."""
        found = []
        while (slot := self._slots.get(self._told)) is not None and slot.is_ready:
            found.append(slot)
            self._told += 1
        return found

    def in_order(self) -> list[CallSlot]:
        return [self._slots[position] for position in sorted(self._slots)]

    def _slot(self, index: int | None, call_id: str, name: str, text: str, *, is_whole: bool) -> CallSlot:
        open_slot = self._last if index is None else self._open.get(index)
        if open_slot is None or is_whole or _begins_another(open_slot, index, call_id, name, text):
            position = index if index is not None and index not in self._slots else self._next
            open_slot = self._slots[position] = CallSlot(position)
            self._next = max(self._next, position + 1)
        if index is not None:
            self._open[index] = open_slot
        self._last = open_slot
        return open_slot


def _whole_name(known: str, told: str) -> str:
    """Join a name that comes in pieces. One that is told again, as far as it goes by then, is no piece."""
    return told if told.startswith(known) else known + told


def _begins_another(slot: CallSlot, index: int | None, call_id: str, name: str, text: str) -> bool:
    if call_id and slot.id and call_id != slot.id:
        return True
    if index is None and name and slot.name and name != slot.name:
        return True
    is_repeat = index is not None and bool(call_id) and call_id == slot.id
    return bool(name) and slot.end.is_closed and not is_repeat and text.lstrip().startswith("{")


def _index(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _signature(extra: Any) -> str | None:
    google = extra.get("google") if isinstance(extra, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    return signature if isinstance(signature, str) and signature else None
