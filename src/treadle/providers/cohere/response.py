"""Cohere, inward: from the events of one answer to the parts of one response. Does no I/O.

Values are read as they come and judged here: `Any` in the structs below is the wire's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.errors import ModelResponseInvalid
from treadle.messages import Usage
from treadle.ports import ModelPart
from treadle.providers.cohere.parts import CohereBlock, Content, ToolCallPiece, call_block, content_block
from treadle.providers.http.block_response import BlockResponse
from treadle.providers.http.reading import AnswerError
from treadle.providers.payload.lenient import (
    cached_count,
    count,
    counted,
    decode,
    is_unreadable,
    text_or_nothing,
)

__all__ = ["CohereResponse"]


class _Delta(msgspec.Struct):
    message: "_Added | None" = None
    finish_reason: Any = None
    usage: Any = None
    error: Any = None


class _Added(msgspec.Struct):
    """What one event adds to the message. The start of a message has empty lists in it."""

    content: Content | list[Any] | None = None
    tool_plan: Any = None
    tool_calls: ToolCallPiece | list[Any] | None = None
    citations: Any = None


class _Event(msgspec.Struct):
    type: Any = None
    id: Any = None
    index: Any = None
    delta: _Delta | None = None
    message: Any = None
    error: Any = None


class _Message(msgspec.Struct):
    content: str | list[Content | None] | None = None
    tool_plan: Any = None
    tool_calls: list[ToolCallPiece] | None = None
    citations: Any = None


class _Whole(msgspec.Struct):
    id: Any = None
    message: _Message | str | None = None
    finish_reason: Any = None
    usage: Any = None
    error: Any = None


_events = msgspec.json.Decoder(_Event)
_wholes = msgspec.json.Decoder(_Whole)
_values = msgspec.json.Decoder()

_FAILURES = {
    "ERROR": "the generation failed (finish_reason ERROR)",
    "TIMEOUT": "the generation took too long (finish_reason TIMEOUT)",
}
"""Ends of a generation that failed, and what is said of them."""

# The indexes of blocks and of calls are counted apart on the wire, and the plan has none.
_PLAN = -1


def _place_of_call(index: int) -> int:
    return -2 - index


class CohereResponse(BlockResponse[CohereBlock]):
    """One answer of the dialect, streamed or whole."""

    terminal = "message-end"
    reason_field = "finish_reason"

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self._content: dict[int, CohereBlock] = {}
        """The blocks of content by their index: what is cited may come when its block has ended."""
        self._last_text: CohereBlock | None = None

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream.

        Raises:
            AnswerError: It is the provider's error.
            ModelResponseInvalid: It is not valid JSON, or of another shape.
        """
        data = data.strip()
        if not data or data == b"[DONE]" or self.is_done:
            return []
        event = decode(data, _events)
        if event.error or (event.type is None and isinstance(event.message, str)):
            raise AnswerError(event.error or {"message": event.message})
        self.is_empty = self.is_empty and not isinstance(event.type, str)
        return self._take(event, data) + self._ready()

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object. Raises as `add` does, and `IncompleteStream` where it has no finish reason."""
        whole = decode(body, _wholes)
        self.id = text_or_nothing(whole.id)
        if whole.error:
            raise AnswerError(whole.error)
        if isinstance(whole.message, str):
            raise AnswerError(decode(body, _values))
        if whole.message is None:
            raise ModelResponseInvalid("The answer has no message.")
        self._finish(whole.finish_reason, whole.usage)
        parts = self._take_blocks(self._whole_blocks(whole.message, body))
        for cited in _listed(whole.message.citations):
            self._cite(cited)
        return parts

    def _take(self, event: _Event, data: bytes) -> list[ModelPart]:
        delta = event.delta or _NO_DELTA
        added = delta.message or _NOTHING_ADDED
        match event.type:
            case "tool-plan-delta":
                return self._grow_text(_PLAN, "text", text_or_nothing(added.tool_plan))
            case "content-start" | "content-delta" if isinstance(added.content, Content):
                return self._take_content(event, added.content, data)
            case "content-end":
                return self._blocks.close(_index(event))
            case "tool-call-start" | "tool-call-delta" if isinstance(added.tool_calls, ToolCallPiece):
                return self._take_call(event, added.tool_calls)
            case "tool-call-end":
                return self._blocks.close(_place_of_call(_index(event)))
        self.id = self.id or text_or_nothing(event.id)  # the first event has it
        self._take_mark(event.type, delta)
        return []

    def _take_mark(self, kind: Any, delta: _Delta) -> None:
        """Take an event that says nothing new."""
        match kind:
            case "message-start":
                self._blocks.start()
                self._content, self._last_text = {}, None
            case "citation-start":
                for cited in _listed(delta.message.citations if delta.message is not None else None):
                    self._cite(cited)
            case "message-end":
                self._finish(delta.finish_reason, delta.usage, delta.error)
                self.is_done = self.is_whole = bool(self._reason)

    def _take_content(self, event: _Event, content: Content, data: bytes) -> list[ModelPart]:
        index = _index(event)
        if event.type == "content-delta":
            return self._grow_text(index, content.kind, content.words)
        payload = decode(data, _values)["delta"]["message"]["content"] if content.kind == "other" else None
        return self._begin_content(index, content_block(content, payload))

    def _begin_content(self, index: int, block: CohereBlock) -> list[ModelPart]:
        parts = self._blocks.begin(index, block)
        # A start that is sent twice begins nothing.
        self._content[index] = block = self._blocks.open_at(index) or block
        if block.kind == "text":
            self._last_text = block
        return parts

    def _grow_text(self, index: int, kind: str, piece: str) -> list[ModelPart]:
        """Take a piece of words. A block without a start begins with its first piece."""
        block = self._blocks.open_at(index)
        if block is None:
            return self._begin_content(index, CohereBlock(kind, first=piece))
        return self._blocks.shown(block, block.grow(piece))

    def _take_call(self, event: _Event, piece: ToolCallPiece) -> list[ModelPart]:
        place = _place_of_call(_index(event))
        if event.type == "tool-call-start":
            return self._blocks.begin(place, call_block(piece))
        block = self._blocks.open_at(place)
        if block is None:
            self._blocks.lose(piece.arguments)
            return []
        return self._blocks.shown(block, block.grow(piece.arguments))

    def _whole_blocks(self, message: _Message, body: bytes) -> list[CohereBlock]:
        blocks = []
        if plan := text_or_nothing(message.tool_plan):
            self._content[_PLAN] = self._last_text = CohereBlock("text", first=plan)
            blocks.append(self._last_text)
        content = [Content(text=message.content)] if isinstance(message.content, str) else message.content or []
        for index, one in enumerate(content):
            if one is None:
                continue
            payload = decode(body, _values)["message"]["content"][index] if one.kind == "other" else None
            block = content_block(one, payload)
            self._content[index] = block
            self._last_text = block if block.kind == "text" else self._last_text
            blocks.append(block)
        return blocks + list(map(call_block, message.tool_calls or ()))

    def _cite(self, cited: Any) -> None:
        index = _PLAN if cited.get("type") == "PLAN" else cited.get("content_index")
        block = self._content.get(index) if type(index) is int else None
        if (block := block or self._last_text) is not None:
            block.cite(cited)

    def _finish(self, reason: Any, usage: Any, error: Any = None) -> None:
        self.counted = _usage(usage) or self.counted
        self._reason = text_or_nothing(reason)
        if error or self._reason in _FAILURES:
            words = error if isinstance(error, str) and error else _FAILURES.get(self._reason, "it names an error")
            raise AnswerError({"message": words} if not isinstance(error, dict) else error)


_NO_DELTA = _Delta()
_NOTHING_ADDED = _Added()


def _listed(values: Any) -> list[Any]:
    """Return the objects of a list; one that stands alone is a list of one."""
    return [value for value in (values if isinstance(values, list) else [values]) if isinstance(value, dict)]


def _index(event: _Event) -> int:
    if type(event.index) is not int or event.index < 0:
        raise ModelResponseInvalid("The server sent a block without an index.")
    return event.index


def _usage(usage: Any) -> Usage | None:
    """Return the tokens, or None where the server counts nothing: no request has an empty prompt.

    What the model read and wrote is counted, which fills its window; the vendor charges for fewer.
    """
    counts = usage.get("tokens") if isinstance(usage, dict) else None
    if not isinstance(usage, dict) or not (counts := counts or usage.get("billed_units")):
        return None
    prompt, completion = count(counts, "input_tokens"), count(counts, "output_tokens")
    return counted(
        prompt,
        completion,
        cached=min(cached_count(usage), prompt),
        reasoning=count(counts, "reasoning_tokens"),
        is_partial=is_unreadable(counts, "input_tokens", "output_tokens"),
    )
