"""Bedrock Converse, inward: from the events of one answer to the parts of one response. Does no I/O.

Values are read as they come and judged here: `Any` in the structs below is the wire's.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.errors import ModelResponseInvalid
from treadle.messages import Opaque, Part, Text, Thinking
from treadle.ports import ModelEnd, ModelPart
from treadle.providers.bedrock.request import PROVIDER
from treadle.providers.http.model import BlockResponse
from treadle.providers.http.reading import AnswerError, EventStreamReader, StreamException, exception_error
from treadle.providers.payload import (
    ContentBlock,
    CountNames,
    arguments_text,
    decode,
    name_or_nothing,
    objects_in,
    text_or_nothing,
    to_json,
    usage_of,
)

__all__ = ["ConverseResponse", "Reasoning"]


# --- Bedrock Converse, inward: one content block that is being put together. Knows nothing of the rest of the answer.


class Reasoning(msgspec.Struct, rename="camel"):
    """A thought, or what one event adds to it. `Any` is the wire's."""

    text: Any = None
    signature: Any = None
    redacted_content: Any = None
    reasoning_text: Any = None


class _ToolUse(msgspec.Struct, rename="camel"):
    tool_use_id: Any = None
    name: Any = None
    type: Any = None
    input: msgspec.Raw = msgspec.Raw(b"null")
    """Kept raw: those bytes are what the model wrote, as near as one can get."""


class _Delta(msgspec.Struct, rename="camel"):
    """What one event adds to a block. `Any` is the wire's."""

    text: Any = None
    tool_use: _ToolUse | None = None
    tool_result: Any = None
    reasoning_content: Reasoning | None = None
    citation: Any = None


class _Block(msgspec.Struct, rename="camel"):
    text: Any = None
    tool_use: _ToolUse | None = None
    tool_result: Any = None
    reasoning_content: Reasoning | None = None
    citations_content: Any = None


_blocks = msgspec.json.Decoder(_Block)
_objects = msgspec.json.Decoder(dict[str, Any])

_OWN_CALL = "server_tool_use"
"""The type of a call that the vendor carries out itself."""


class _ConverseBlock(ContentBlock):
    """One block, from its start, or from its first piece where it has no start, to its end."""

    def __init__(self, raw: bytes | msgspec.Raw = b"{}") -> None:
        self._raw = bytes(raw)
        self._start = start = decode(self._raw, _blocks)
        call = start.tool_use
        is_own_call = call is not None and call.type == _OWN_CALL
        kind = "toolUse" if call is not None else "text"
        if start.tool_result is not None or is_own_call:
            kind = "other"
        elif start.reasoning_content is not None:
            kind = "thinking"
        super().__init__(
            kind,
            block_id=text_or_nothing(call.tool_use_id) if call is not None else "",
            name=name_or_nothing(call.name) if call is not None else "",
            is_call=call is not None and not is_own_call,
        )
        self._signature: list[str] = []
        self._sealed: list[str] = []
        self._citations: list[Any] = []
        self._results: list[Any] = []

    def begin(self) -> list[ModelPart]:
        """Take what came with the start: all of it, where the block came whole."""
        start = self._start
        parts = self.say(text_or_nothing(start.text))
        if isinstance(cited := start.citations_content, dict):
            self._citations += objects_in(cited.get("citations"))
            for piece in objects_in(cited.get("content")):
                parts += self.say(text_or_nothing(piece.get("text")))
        if start.reasoning_content is not None:
            parts += self._think(start.reasoning_content)
        return parts

    def grow(self, delta: _Delta) -> list[ModelPart]:
        """Take what one event adds. The first piece of a block without a start says what the block is."""
        if delta.reasoning_content is not None:
            if self.kind == "text" and not self._said:
                self.kind = "thinking"
            return self._think(delta.reasoning_content)
        if delta.tool_use is not None:
            self.add_arguments(arguments_text(delta.tool_use.input))
        if delta.tool_result is not None:
            self._results += delta.tool_result if isinstance(delta.tool_result, list) else [delta.tool_result]
        if isinstance(delta.citation, dict):
            self._citations.append(delta.citation)
        return self.say(text_or_nothing(delta.text))

    def close(self) -> None:
        """Take the end. Where the arguments came whole, with the start, they are taken now."""
        super().close()
        if self._start.tool_use is not None and not self.has_arguments:
            whole = arguments_text(self._start.tool_use.input)
            self.add_arguments("" if whole.strip() == "{}" else whole)

    def part(self, *, is_last: bool) -> Part | None:
        """Return what the block is in a message, a call excepted; nothing where nothing was said."""
        match self.kind:
            case "text":
                cited = to_json({"citations": self._citations}).decode() if self._citations else None
                return Text(self.said, signature=cited) if self.said else None
            case "thinking" if self._sealed:
                return Thinking(payload={"reasoningContent": {"redactedContent": _joined(self._sealed)}})
            case "thinking":
                signature = "".join(self._signature) or None
                return Thinking(text=self.said, signature=signature) if self.said or signature else None
            case _:
                return Opaque(provider=PROVIDER, payload=self._payload())

    def _think(self, thought: Reasoning) -> list[ModelPart]:
        whole = thought.reasoning_text if isinstance(thought.reasoning_text, dict) else {}
        self._signature += filter(None, (text_or_nothing(thought.signature), text_or_nothing(whole.get("signature"))))
        if sealed := text_or_nothing(thought.redacted_content):
            self._sealed.append(sealed)
        return self.say(text_or_nothing(thought.text)) + self.say(text_or_nothing(whole.get("text")))

    def _payload(self) -> dict[str, Any]:
        payload = decode(self._raw, _objects)
        if isinstance(call := payload.get("toolUse"), dict) and self.has_arguments and self.is_complete:
            payload["toolUse"] = {**call, "input": decode(self.arguments.encode(), _objects)}
        if isinstance(result := payload.get("toolResult"), dict) and self._results:
            payload["toolResult"] = {**result, "content": self._results}
        return payload


def _joined(sealed: list[str]) -> str:
    """Return the pieces of a sealed thought as one: each is base64 by itself."""
    if len(sealed) == 1:
        return sealed[0]
    try:
        return b64encode(b"".join(map(b64decode, sealed))).decode()
    except ValueError:
        return "".join(sealed)


# --- Bedrock Converse, inward: from the events of one answer to the parts of one response. Does no I/O.


class _BlockEvent(msgspec.Struct, rename="camel"):
    content_block_index: Any = None
    start: msgspec.Raw = msgspec.Raw(b"{}")
    delta: _Delta | None = None


class _Stop(msgspec.Struct, rename="camel"):
    stop_reason: Any = None


class _Metadata(msgspec.Struct):
    usage: Any = None
    trace: Any = None


class _Event(msgspec.Struct, rename="camel"):
    message_start: Any = None
    content_block_start: _BlockEvent | None = None
    content_block_delta: _BlockEvent | None = None
    content_block_stop: _BlockEvent | None = None
    message_stop: _Stop | None = None
    metadata: _Metadata | None = None
    exception: StreamException | None = None


class _Message(msgspec.Struct):
    content: list[msgspec.Raw] | None = None


class _Output(msgspec.Struct):
    message: _Message | None = None


class _Whole(msgspec.Struct, rename="camel"):
    output: _Output | None = None
    stop_reason: Any = None
    usage: Any = None
    trace: Any = None
    message: Any = None


_events = msgspec.json.Decoder(_Event)
_wholes = msgspec.json.Decoder(_Whole)

_GARBLED = frozenset({"malformed_model_output", "malformed_tool_use"})
"""The model wrote what its own server could not read. The next attempt is likely better."""


class ConverseResponse(BlockResponse[_ConverseBlock]):
    """One answer of the dialect, streamed or whole."""

    terminal = "messageStop"
    reason_field = "stopReason"
    frames = EventStreamReader

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self._trace: Any = None

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream. Raises as `Response.add` does."""
        if self.is_done:
            return []
        event = decode(data, _events)
        if event.exception is not None:
            raise AnswerError(exception_error(event.exception))
        parts = self._take(event)
        return parts + self._ready()

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object. Raises as `add` does, and `IncompleteStream` where it has no stop reason."""
        whole = decode(body, _wholes)
        content = (
            whole.output.message.content if whole.output is not None and whole.output.message is not None else None
        )
        if content is None:
            if isinstance(whole.message, str):
                raise AnswerError({"message": whole.message})
            raise ModelResponseInvalid("The answer has no output.")
        self._count(whole.usage)
        self._trace = whole.trace
        self._reason = text_or_nothing(whole.stop_reason)
        return self._take_blocks(map(_ConverseBlock, content))

    def end(self) -> ModelEnd:
        """Return the whole message.

        Raises:
            ModelResponseInvalid: The model wrote what its server could not read.
        """
        if self._reason in _GARBLED:
            raise ModelResponseInvalid(f"The model's answer could not be read by its own server ({self._reason}).")
        return msgspec.structs.replace(super().end(), message=self._refusal)

    @property
    def _refusal(self) -> str:
        """Return what the guardrail says that it did, where it intervened."""
        guardrail = self._trace.get("guardrail") if isinstance(self._trace, dict) else None
        if self._reason != "guardrail_intervened" or not isinstance(guardrail, dict):
            return ""
        return text_or_nothing(guardrail.get("actionReason"))

    def _take(self, event: _Event) -> list[ModelPart]:
        self.is_empty = self.is_empty and event == _NOTHING
        if self.is_whole and (event.content_block_delta is not None or event.content_block_start is not None):
            self.is_whole, self.may_go_on, self.goes_on = (
                False,
                True,
                True,
            )  # the stop before this content was not the end
        if event.content_block_delta is not None:
            return self._grow(event.content_block_delta)
        if event.content_block_start is not None:
            start = event.content_block_start
            return self._blocks.begin(_index(start), _ConverseBlock(start.start))
        if event.content_block_stop is not None:
            return self._blocks.close(_index(event.content_block_stop))
        if event.message_start is not None:
            self._blocks.start()
        if event.message_stop is not None:
            self._reason = text_or_nothing(event.message_stop.stop_reason) or self._reason
            self.is_whole, self.may_go_on = True, False  # nothing but the usage follows
        if event.metadata is not None:
            self._count(event.metadata.usage)
            self._trace = event.metadata.trace or self._trace
            self.is_done = self.is_whole
        return []

    def _grow(self, event: _BlockEvent) -> list[ModelPart]:
        index = _index(event)
        if event.delta is None:
            raise ModelResponseInvalid("The server sent a piece of a block that holds nothing.")
        block = self._blocks.open_at(index)
        if event.delta.tool_use is not None and (block is None or block.kind in ("text", "thinking")):
            self._blocks.lose(arguments_text(event.delta.tool_use.input))
            return []
        if block is None:
            block = _ConverseBlock()  # words and thoughts have no start
            self._blocks.begin(index, block)
            if event.delta.reasoning_content is not None:
                block.kind = "thinking"
        return self._blocks.shown(block, block.grow(event.delta))

    def _count(self, usage: Any) -> None:
        self.counted = usage_of(usage, _COUNTS) or self.counted


_NOTHING = _Event()


def _index(event: _BlockEvent) -> int:
    if type(event.content_block_index) is not int:
        raise ModelResponseInvalid("The server sent a block without an index.")
    return event.content_block_index


_COUNTS = CountNames(
    prompt=("inputTokens",),
    completion=("outputTokens",),
    cached=("cacheReadInputTokens", "cacheReadInputTokenCount"),
    written=("cacheWriteInputTokens", "cacheWriteInputTokenCount"),
    is_net=True,
)
