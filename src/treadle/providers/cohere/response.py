"""Cohere, inward: from the events of one answer to the parts of one response. Does no I/O.

Values are read as they come and judged here: `Any` in the structs below is the wire's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.concurrency import Pieces
from treadle.errors import ModelResponseInvalid
from treadle.messages import Opaque, Part, Text, Thinking, Usage
from treadle.ports import ModelPart
from treadle.providers.cohere.request import PROVIDER
from treadle.providers.http.model import BlockResponse
from treadle.providers.http.reading import AnswerError
from treadle.providers.payload import (
    ContentBlock,
    CountNames,
    ObjectEnd,
    arguments_text,
    count,
    decode,
    name_or_nothing,
    text_or_nothing,
    to_json,
    usage_of,
)

__all__ = ["CohereResponse", "Content", "content_block"]


# --- Cohere, inward: one piece of a message (text, thinking or a call) that is being put together. Knows nothing of the
# rest of the answer.


class Content(msgspec.Struct, gc=False):
    """A block of content, or what one event adds to it. `Any` is the wire's."""

    type: Any = None
    text: Any = None
    thinking: Any = None

    @property
    def words(self) -> str:
        return text_or_nothing(self.text) or text_or_nothing(self.thinking)

    @property
    def kind(self) -> str:
        """What a block that begins so is; one that does not say it is what it holds."""
        if self.type is None:
            return "thinking" if self.text is None and self.thinking is not None else "text"
        return self.type if self.type in ("text", "thinking") else "other"


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")
    """Kept raw: a server that sends an object instead of its text means exactly those bytes."""


class _ToolCallPiece(msgspec.Struct, gc=False):
    """A call, or what one event adds to it."""

    id: Any = None
    function: _Function | None = None

    @property
    def arguments(self) -> str:
        return arguments_text(self.function.arguments) if self.function is not None else ""


class _CohereBlock(ContentBlock):
    """One piece of a message, from its start to its end."""

    def __init__(self, kind: str, *, block_id: str = "", name: str = "", first: str = "", payload: Any = None) -> None:
        super().__init__(kind, block_id=block_id, name=name, is_call=kind == "call")
        self._first = first
        self._payload = payload
        self._citations: list[Any] = []

    def begin(self) -> list[ModelPart]:
        """Take what came with the start: all of it, where the block came whole."""
        return self.grow(self._first)

    def grow(self, piece: str) -> list[ModelPart]:
        """Take a piece of its words, or of its arguments."""
        if self.is_call:
            self.add_arguments(piece)
            return []
        return self.say(piece)

    def cite(self, citation: Any) -> None:
        """Take what its text cites."""
        if isinstance(citation, dict):
            self._citations.append(citation)

    def close(self) -> None:
        """Take the end. The vendor may write `null` as the arguments of a tool that has no parameters."""
        super().close()
        if self.is_call and "".join(self._arguments).strip() == "null":
            self._arguments, self._object = Pieces(), ObjectEnd()

    @property
    def _cited(self) -> str | None:
        return to_json({"citations": self._citations}).decode() if self._citations else None

    def part(self, *, is_last: bool) -> Part | None:
        """Return what the block is in a message, a call excepted; nothing where nothing was said."""
        match self.kind:
            case "text":
                return Text(self.said, signature=self._cited) if self.said else None
            case "thinking":
                return Thinking(text=self.said, signature=self._cited) if self.said else None
            case _:
                return Opaque(provider=PROVIDER, payload=self._payload)


def content_block(content: Content, payload: Any = None) -> _CohereBlock:
    """Return a block of content as it begins.

    Args:
        payload: What came, as a JSON value.
    """
    return _CohereBlock(content.kind, first=content.words, payload=payload)


def _call_block(call: _ToolCallPiece) -> _CohereBlock:
    """Return a call as it begins."""
    name = name_or_nothing(call.function.name) if call.function is not None else ""
    return _CohereBlock("call", block_id=text_or_nothing(call.id), name=name, first=call.arguments)


# --- Cohere, inward: from the events of one answer to the parts of one response. Does no I/O.


class _Delta(msgspec.Struct):
    message: "_Added | None" = None
    finish_reason: Any = None
    usage: Any = None
    error: Any = None


class _Added(msgspec.Struct):
    """What one event adds to the message. The start of a message has empty lists in it."""

    content: Content | list[Any] | None = None
    tool_plan: Any = None
    tool_calls: _ToolCallPiece | list[Any] | None = None
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
    tool_calls: list[_ToolCallPiece] | None = None
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


class CohereResponse(BlockResponse[_CohereBlock]):
    """One answer of the dialect, streamed or whole."""

    terminal = "message-end"
    reason_field = "finish_reason"

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self._content: dict[int, _CohereBlock] = {}
        """The blocks of content by their index: what is cited may come when its block has ended."""
        self._last_text: _CohereBlock | None = None

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream. Raises as `Response.add` does."""
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
            case "tool-call-start" | "tool-call-delta" if isinstance(added.tool_calls, _ToolCallPiece):
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

    def _begin_content(self, index: int, block: _CohereBlock) -> list[ModelPart]:
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
            return self._begin_content(index, _CohereBlock(kind, first=piece))
        return self._blocks.shown(block, block.grow(piece))

    def _take_call(self, event: _Event, piece: _ToolCallPiece) -> list[ModelPart]:
        place = _place_of_call(_index(event))
        if event.type == "tool-call-start":
            return self._blocks.begin(place, _call_block(piece))
        block = self._blocks.open_at(place)
        if block is None:
            self._blocks.lose(piece.arguments)
            return []
        return self._blocks.shown(block, block.grow(piece.arguments))

    def _whole_blocks(self, message: _Message, body: bytes) -> list[_CohereBlock]:
        blocks = []
        if plan := text_or_nothing(message.tool_plan):
            self._content[_PLAN] = self._last_text = _CohereBlock("text", first=plan)
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
        return blocks + list(map(_call_block, message.tool_calls or ()))

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
    """Return the objects of a list; one that is alone is a list of one."""
    return [value for value in (values if isinstance(values, list) else [values]) if isinstance(value, dict)]


def _index(event: _Event) -> int:
    if type(event.index) is not int or event.index < 0:
        raise ModelResponseInvalid("The server sent a block without an index.")
    return event.index


_COUNTS = CountNames(prompt=("input_tokens",), completion=("output_tokens",))


def _usage(usage: Any) -> Usage | None:
    """Return the tokens. What the model read and wrote is counted, which fills its window; the vendor charges for fewer."""
    counts = (usage.get("tokens") or usage.get("billed_units")) if isinstance(usage, dict) else None
    return usage_of(counts, _COUNTS, details=usage, reasoning=count(counts, "reasoning_tokens"))
