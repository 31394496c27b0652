"""Responses, inward: from the events of one answer to the parts of one response. Does no I/O.

Values are read as they come and judged here: `Any` in the structs below is the wire's.
"""

from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from treadle.canonical import text_key
from treadle.concurrency import Pieces
from treadle.errors import ModelRejected, ModelResponseInvalid
from treadle.messages import Finish, Part, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.providers.http.failures import finish_of
from treadle.providers.http.reading import AnswerError, Response, without_ending
from treadle.providers.openai_responses.request import (
    Item,
    is_refusal,
    left_to_the_client,
    message_text,
    parts_of,
    read_item,
    state_marker,
    thinking_text,
)
from treadle.providers.payload import (
    CountNames,
    ObjectEnd,
    OwnArguments,
    count,
    decode,
    may_have_lost,
    text_or_nothing,
    usage_of,
)

__all__ = ["NOTHING", "ResponsesResponse", "Slots"]


# --- Responses, inward: the output items of one response, put together from events. Knows nothing of the rest of the
# answer.

NOTHING = msgspec.Raw(b"null")

_CALL = "function_call"

_Content: TypeAlias = tuple[str | bytes, ...]


class _Slot:
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
        """Take the item whole. Some servers send it without the arguments that they have streamed, or with an empty object."""
        if item.kind == _CALL and _is_bare(item):
            item = msgspec.structs.replace(item, arguments=self.streamed or self.item.arguments or item.arguments)
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
        self._slots: list[_Slot] = []
        self._rest: list[_Slot] = []
        """Those that were not given out, in order."""
        self._highest: _Slot | None = None
        self._at: dict[int, _Slot] = {}
        self._by_id: dict[str, _Slot] = {}
        self._by_call: dict[str, _Slot] = {}
        self._told: list[_Slot] = []
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

    def going_on(self, index: object, item_id: str) -> _Slot | None:
        """Return the slot that a piece belongs to; None where the piece repeats an item that came already."""
        place = _number(index)
        slot = self._by_id.get(item_id) or (self._highest if place is None else self._at.get(place))
        if slot is None:
            slot = self._new(place or 0)
        return None if slot.is_done or place not in (None, slot.index) else slot

    def argued(self, index: object, item_id: str, piece: str) -> _Slot | None:
        """Return the call that a piece of arguments belongs to; None where it is one that came already, or that is unknown."""
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
        """Whether it is unknown of some arguments to which call they belong."""
        found = [(slot, slot.final()) for slot in self._slots]
        calls = [(slot, item) for slot, item in found if item.kind == _CALL]
        bare = [slot for slot, item in calls if _is_bare(item)]
        shared = ((item.call_id, item.name, bool(item.arguments.strip())) for _, item in calls if item.call_id)
        is_lost = self._has_lost or any(slot.has_lost for slot in bare)
        return is_lost or any(not item.name for _, item in calls) or may_have_lost(shared)

    def end(self, index: object, item: Item) -> _Slot:
        """Return the slot of an item that is whole: the one that it closes, or that has had it already."""
        slot = self._known(item)
        if slot is None or (slot.is_done and not slot.is_again(item)):
            place = _number(index)
            at = self._highest if place is None else self._at.get(place)
            slot = at if at is not None and at.may_be(item) else self._new(self._place(index))
        self._remember(slot, item)
        return slot

    def missing(self, output: Sequence[Item]) -> Iterator[tuple[_Slot, Item]]:
        """Yield what of the final output no event brought whole.

        The output lists what was streamed, under whatever ids: each of its items is one of ours where one is equal. One that
        equals none is new.
        """
        free = _Free(self._slots)
        pairs: dict[int, _Slot] = {}
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

    def ready(self) -> Iterator[_Slot]:
        """Yield the slots that have become whole, in order: none before an earlier one."""
        while self._rest:
            slot = self._rest[0]
            is_next = slot.index <= (self._told[-1].index + 1 if self._told else 0)
            if not slot.is_whole or not is_next:
                return
            self._told.append(self._rest.pop(0))
            yield slot

    def in_order(self) -> list[_Slot]:
        """Return the slots in the order of their indexes. What was given out stays before what came after it."""
        return [*self._told, *self._rest]

    def _new(self, place: int) -> _Slot:
        slot = self._at[place] = _Slot(place, len(self._slots))
        self._slots.append(slot)
        insort(self._rest, slot, key=_order)
        if self._highest is None or _order(slot) > _order(self._highest):
            self._highest = slot
        return slot

    def _place(self, index: object) -> int:
        """Return the index; where a server sends none, the next one."""
        place = _number(index)
        return place if place is not None else self._highest.index + 1 if self._highest is not None else 0

    def _known(self, item: Item) -> _Slot | None:
        if item.call_id in self._by_call:
            return self._by_call[item.call_id]
        slot = self._by_id.get(item.id)
        return slot if slot is not None and (slot.may_be(item) or slot.is_again(item)) else None

    def _remember(self, slot: _Slot, item: Item) -> None:
        if item.call_id:
            self._by_call.setdefault(item.call_id, slot)
        if item.id:
            self._by_id[item.id] = slot


def _order(slot: _Slot) -> tuple[int, int]:
    return slot.index, slot.number


def _number(index: object) -> int | None:
    return index if type(index) is int and index >= 0 else None


class _Free:
    """The slots that no item of the final output was found to be, by what an item may be found by."""

    def __init__(self, slots: Iterable[_Slot]) -> None:
        self._found: dict[Hashable, deque[_Slot]] = {}
        self._taken: set[_Slot] = set()
        for slot in slots:
            for key in _keys(slot):
                self._found.setdefault(key, deque()).append(slot)

    def take(self, keys: Iterable[Hashable]) -> _Slot | None:
        """Return the first slot that one of the keys finds. It is found no more after that."""
        heads = [head for key in keys if (head := self._head(key)) is not None]
        first = min(heads, key=_number_of, default=None)
        if first is not None:
            self._taken.add(first)
        return first

    def _head(self, key: Hashable) -> _Slot | None:
        slots = self._found.get(key)
        while slots and slots[0] in self._taken:
            slots.popleft()
        return slots[0] if slots else None


def _keys(slot: _Slot) -> Iterator[Hashable]:
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
    return (item.kind, item.name) if _is_bare(item) else (item.kind, item.name, text_key(item.arguments))


def _is_bare(item: Item) -> bool:
    """Whether a call has no arguments, or none but an empty object."""
    return item.arguments.strip() in ("", "{}")


def _contents(item: Item) -> tuple[_Content, ...]:
    """Return what may be said of the item when it is sent again."""
    content = _content(item)
    return (content, content[:2]) if len(content) > 2 else (content,)


def _number_of(slot: _Slot) -> int:
    return slot.number


# --- Responses, inward: from the events of one answer to the parts of one response. Does no I/O.

_TERMINALS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_PIECES = frozenset({
    *("response.output_text.delta", "response.refusal.delta"),
    *("response.reasoning_summary_part.added", "response.reasoning_summary_text.delta", "response.reasoning_text.delta"),
})  # fmt: skip
_ENDS = frozenset({"failed", "cancelled", "incomplete"})


class _Body(msgspec.Struct):
    """The response object: whole, or inside a terminal event."""

    id: Any = None
    status: Any = None
    error: Any = None
    incomplete_details: Any = None
    output: list[msgspec.Raw] | None = None
    usage: Any = None
    object: Any = None
    model: Any = None


class _Event(msgspec.Struct):
    type: Any = None
    output_index: Any = None
    item_id: Any = None
    summary_index: Any = None
    delta: Any = None
    arguments: Any = None
    item: msgspec.Raw = NOTHING
    response: _Body | None = None
    error: Any = None


_events = msgspec.json.Decoder(_Event)
_bodies = msgspec.json.Decoder(_Body)
_values = msgspec.json.Decoder()


class ResponsesResponse(Response):
    """Takes the data of each event, and gives the parts that it makes.

    Args:
        names: Our names of tools that were renamed for the wire.
        after: How many messages the request had, where the server keeps the response; else None.
        own_arguments: Returns the arguments of a call, which it gets by our name, as the tool's own schema wants them.
    """

    terminal = "response.completed, response.incomplete or response.failed"

    def __init__(
        self,
        names: Mapping[str, str],
        *,
        after: int | None = None,
        own_arguments: OwnArguments | None = None,
    ) -> None:
        self._own_arguments = own_arguments
        self._names = names
        self._after = after
        self._slots = Slots()
        self._body = _Body()
        self._finish = Finish.UNKNOWN
        self._finish_reason: str | None = None

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream. Raises as `Response.add` does."""
        data = data.strip()
        if not data or data == b"[DONE]" or self.is_done:  # some servers send a [DONE]; it ends nothing here
            return []
        event = decode(data, _events)
        kind = text_or_nothing(event.type)
        if kind == "error" or (not kind and event.error):
            raise AnswerError(event.error or decode(data, _values))
        if kind.startswith("response."):
            self.is_empty = False
        parts: list[ModelPart] = []
        self._take(kind, event, parts)
        return parts

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object. Raises as `add` does, and `IncompleteStream` where it has neither status nor items."""
        response = decode(body, _bodies)
        if response.object == "error" or response.error:
            raise AnswerError(response.error or decode(body, _values))
        if response.output is None and response.status is None:
            raise ModelResponseInvalid("The answer has no output.")
        parts: list[ModelPart] = []
        self._conclude(response, parts)
        if not text_or_nothing(response.status) and not response.output:
            raise without_ending("status")
        return parts

    def end(self) -> ModelEnd:
        """Return the whole message."""
        parts: list[Part] = []
        cut: set[str] = set()
        unnamed: set[str] = set()
        finals = [(slot, slot.final()) for slot in self._slots.in_order()]
        is_named = any(item.kind == "function_call" and item.name for _, item in finals)
        for slot, item in finals:
            if is_named and item.kind == "function_call" and not item.name:
                continue  # a call only where there is no other, so that the model is told of it
            made = self._parts_of(item, slot)
            parts += made
            ids = {part.id for part in made if isinstance(part, ToolCall)}
            if self._is_cut(slot, item):
                cut |= ids
            if not item.call_id and not item.id:
                unnamed |= ids
        if self._after is not None and isinstance(self._body.id, str) and self._body.id:
            parts.append(state_marker(self._body.id, self._after))
        return ModelEnd(
            parts=tuple(parts),
            finish=self._finish,
            usage=self.counted,
            cut_calls=frozenset(cut),
            unnamed_calls=frozenset(unnamed),
            is_retold=self._slots.is_retold,
            has_strays=self._slots.has_strays,
            finish_reason=self._finish_reason,
        )

    def _parts_of(self, item: Item, slot: _Slot) -> list[Part]:
        """Return the parts of an item, its call as our own schema wants it."""
        return [self._own(part) for part in parts_of(item, self._names, slot.number)]

    def _own(self, part: Part) -> Part:
        if not isinstance(part, ToolCall) or self._own_arguments is None:
            return part
        return msgspec.structs.replace(part, arguments=self._own_arguments(part.name, part.arguments))

    def _take(self, kind: str, event: _Event, parts: list[ModelPart]) -> None:
        match kind:
            case "response.created":
                self._slots.begin_again()
            case "response.output_item.added":
                self._slots.begin(event.output_index, read_item(event.item))
            case "response.output_item.done":
                item = read_item(event.item)
                self._close(self._slots.end(event.output_index, item), item, parts)
            case _ if kind in _TERMINALS:
                self._conclude(event.response or _Body(), parts, status=kind.removeprefix("response."))
            case "response.function_call_arguments.delta" | "response.function_call_arguments.done":
                piece = text_or_nothing(event.delta) or text_or_nothing(event.arguments)
                slot = self._slots.argued(event.output_index, text_or_nothing(event.item_id), piece)
                if slot is not None:
                    self._argue(slot, event)
            case _ if kind in _PIECES:
                slot = self._slots.going_on(event.output_index, text_or_nothing(event.item_id))
                if slot is not None:
                    self._grow(slot, kind, event, parts)

    def _grow(self, slot: _Slot, kind: str, event: _Event, parts: list[ModelPart]) -> None:
        """Take a piece of an item."""
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                self._say(slot, text_or_nothing(event.delta), parts)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._think(slot, text_or_nothing(event.delta), parts)
            case "response.reasoning_summary_part.added" if event.summary_index:
                self._think(slot, "\n\n", parts)

    def _argue(self, slot: _Slot, event: _Event) -> None:
        """Take a piece of a call's arguments, or the whole of them."""
        if event.type == "response.function_call_arguments.delta":
            slot.arguments.add(text_or_nothing(event.delta))
        elif isinstance(event.arguments, str):
            slot.arguments = Pieces([event.arguments])

    def _say(self, slot: _Slot, said: str, parts: list[ModelPart]) -> None:
        if said:
            slot.has_said = True
            slot.text.add(said)
            parts.append(TextDelta(said))

    def _think(self, slot: _Slot, thought: str, parts: list[ModelPart]) -> None:
        if thought:
            slot.has_thought = True
            parts.append(ThinkingDelta(thought))

    def _close(self, slot: _Slot, item: Item, parts: list[ModelPart]) -> None:
        """Take an item whole, and give what of it was not streamed. One that has had its end is reported again."""
        if slot.is_done:
            return
        slot.close(item)
        if item.kind == "message" and not slot.has_said:
            self._say(slot, message_text(item.value), parts)
        if item.kind == "reasoning" and not slot.has_thought:
            self._think(slot, thinking_text(item.value), parts)
        for ready in self._slots.ready():
            if ready.item.kind == "function_call" and ready.item.name:
                made = self._parts_of(ready.item, ready)
                parts += [CallReady(part) for part in made if isinstance(part, ToolCall)]

    def _conclude(self, body: _Body, parts: list[ModelPart], *, status: str | None = None) -> None:
        """Take the end of the response: its status, and the items that no event brought."""
        self._body, self.counted = body, _usage(body.usage)
        self.id, self.model = text_or_nothing(body.id), text_or_nothing(body.model)
        reported = self._worst(text_or_nothing(body.status), status)
        _check_status(reported, body)
        for slot, item in self._slots.missing([read_item(raw) for raw in body.output or ()]):
            self._close(slot, item, parts)
        status = self._worst(reported, "incomplete" if self._has_half_a_message else None)
        self.is_whole = self.is_done = True
        self.is_empty, self.is_cut_off = False, status in _ENDS
        if status != "completed" and finish_of(status) not in (Finish.STOP, Finish.CALLS):
            self._finish_reason = self._incomplete_reason or status
        self._finish = self._judge([slot.final() for slot in self._slots.in_order()])

    @property
    def _has_half_a_message(self) -> bool:
        """Whether a message says of itself that it is not whole. Calls that do are refused one by one."""
        items = (slot.final() for slot in self._slots.in_order())
        return any(item.kind == "message" and item.value.get("status") == "incomplete" for item in items)

    @property
    def _incomplete_reason(self) -> str | None:
        details = self._body.incomplete_details
        return text_or_nothing(details.get("reason")) or None if isinstance(details, dict) else None

    def _worst(self, *reported: str | None) -> str:
        """Return the status that is furthest from a completion, where body and event contradict each other."""
        others = [status for status in reported if status and status != "completed"]
        if self._incomplete_reason and not others:
            return "incomplete"
        return next((status for status in others if status in _ENDS), others[0] if others else "completed")

    def _judge(self, items: list[Item]) -> Finish:
        if self._finish_reason is not None:
            finish = finish_of(
                self._finish_reason
            )  # a response that is not completed is cut off or refused, if anything
            return finish if finish in (Finish.LENGTH, Finish.REFUSED) else Finish.UNKNOWN
        if any(is_refusal(item.value) for item in items):
            return Finish.REFUSED
        if any(item.kind == "function_call" for item in items):
            return Finish.CALLS
        foreign = left_to_the_client([item.value for item in items])
        if foreign and not any(item.kind == "message" and message_text(item.value) for item in items):
            raise ModelRejected(_NOT_OURS.format(foreign[0]["type"], foreign[0].get("name") or "no name"))
        return Finish.STOP

    def _is_cut(self, slot: _Slot, item: Item) -> bool:
        if not slot.is_done or item.value.get("status") == "incomplete":
            return True
        if item.is_open:  # the call of a program waits for its result, in a response that is complete
            return self._finish is not Finish.CALLS or not ObjectEnd().feed(item.arguments)
        is_told = item.value.get("status") == "completed"
        return self._finish is Finish.LENGTH and not is_told and not ObjectEnd().feed(item.arguments)


_NOT_OURS = (
    "The model answered with nothing but a {} ({}), which only a client made for it can carry out. "
    "Offer the tool as a function instead, or take it out of the option server_tools."
)


def _check_status(status: str, body: _Body) -> None:
    if status in ("failed", "cancelled"):
        raise AnswerError(body.error or {"message": f"the response is {status}"})
    if status in ("queued", "in_progress"):
        raise ModelRejected(
            f"The server answered with a response that is still {status}: it runs in the background, which is not waited for."
        )


_COUNTS = CountNames(prompt=("input_tokens",), completion=("output_tokens",))


def _usage(counts: Any) -> Usage | None:
    if not isinstance(counts, dict):
        return None
    reasoning = count(counts.get("output_tokens_details"), "reasoning_tokens")
    return usage_of(counts, _COUNTS, details=counts.get("input_tokens_details"), reasoning=reasoning)
