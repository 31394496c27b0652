"""Responses, inward: from the events of one answer to the parts of one response. Does no I/O.

Values are read as they come and judged here: `Any` in the structs below is the wire's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.concurrency.pieces import Pieces
from treadle.errors import ModelRejected, ModelResponseInvalid
from treadle.messages import Finish, Part, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.providers.http.reading import AnswerError, Response, without_ending
from treadle.providers.http.wordings import finish_of
from treadle.providers.openai_responses.history import left_to_the_client, state_marker
from treadle.providers.openai_responses.items import Item, is_refusal, message_text, parts_of, read_item, thinking_text
from treadle.providers.openai_responses.slots import NOTHING, Slot, Slots
from treadle.providers.payload.arguments import ObjectEnd
from treadle.providers.payload.lenient import (
    cached_count,
    count,
    counted,
    decode,
    is_unreadable,
    text_or_nothing,
    written_count,
)
from treadle.providers.payload.schemas import without_absent

__all__ = ["ResponsesResponse"]

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
        schemas: Of the tools, by our names, for whose absent properties the model writes null.
    """

    terminal = "response.completed, response.incomplete or response.failed"

    def __init__(
        self,
        names: Mapping[str, str],
        *,
        after: int | None = None,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._schemas = schemas or {}
        self._names = names
        self._after = after
        self._slots = Slots()
        self._body = _Body()
        self._finish = Finish.UNKNOWN
        self._finish_reason: str | None = None

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream.

        Raises:
            AnswerError: It is the provider's error.
            ModelRejected: The response asks for what nobody here can do.
            ModelResponseInvalid: It is not valid JSON, or of another shape.
        """
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

    def _parts_of(self, item: Item, slot: Slot) -> list[Part]:
        """Return the parts of an item, its call as our own schema wants it."""
        return [self._own(part) for part in parts_of(item, self._names, slot.number)]

    def _own(self, part: Part) -> Part:
        if not isinstance(part, ToolCall) or part.name not in self._schemas:
            return part
        return msgspec.structs.replace(part, arguments=without_absent(part.arguments, self._schemas[part.name]))

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

    def _grow(self, slot: Slot, kind: str, event: _Event, parts: list[ModelPart]) -> None:
        """Take a piece of an item."""
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                self._say(slot, text_or_nothing(event.delta), parts)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._think(slot, text_or_nothing(event.delta), parts)
            case "response.reasoning_summary_part.added" if event.summary_index:
                self._think(slot, "\n\n", parts)

    def _argue(self, slot: Slot, event: _Event) -> None:
        """Take a piece of a call's arguments, or the whole of them."""
        if event.type == "response.function_call_arguments.delta":
            slot.arguments.add(text_or_nothing(event.delta))
        elif isinstance(event.arguments, str):
            slot.arguments = Pieces([event.arguments])

    def _say(self, slot: Slot, said: str, parts: list[ModelPart]) -> None:
        if said:
            slot.has_said = True
            slot.text.add(said)
            parts.append(TextDelta(said))

    def _think(self, slot: Slot, thought: str, parts: list[ModelPart]) -> None:
        if thought:
            slot.has_thought = True
            parts.append(ThinkingDelta(thought))

    def _close(self, slot: Slot, item: Item, parts: list[ModelPart]) -> None:
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
        self.is_empty = False
        if status != "completed":
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

    def _is_cut(self, slot: Slot, item: Item) -> bool:
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


def _usage(value: Any) -> Usage | None:
    """Return the tokens, or None where the server counts nothing: no request has an empty prompt."""
    if not isinstance(value, dict):
        return None
    taken, given = count(value, "input_tokens"), count(value, "output_tokens")
    details = value.get("input_tokens_details")
    cached = min(cached_count(value, details), taken)
    return counted(
        taken,
        given,
        cached=cached,
        written=min(written_count(value, details), taken - cached),
        reasoning=count(value.get("output_tokens_details"), "reasoning_tokens"),
        is_partial=is_unreadable(value, "input_tokens", "output_tokens"),
    )
