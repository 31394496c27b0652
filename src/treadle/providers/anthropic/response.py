"""Anthropic Messages, inward: from the events of one answer to the parts of one response. Does no I/O.

Compatible servers differ in everything but the names of the fields, so values are read as they come and judged here: `Any` in the
structs below is the wire's.
"""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.errors import ModelResponseInvalid
from treadle.messages import Opaque, Part, Text, Thinking, Usage
from treadle.ports import ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.providers.anthropic.request import PROVIDER, container_marker
from treadle.providers.http.model import BlockResponse
from treadle.providers.http.reading import AnswerError, EventStreamReader, StreamException, exception_error
from treadle.providers.payload import (
    ContentBlock,
    CountNames,
    arguments_text,
    count,
    decode,
    name_or_nothing,
    objects_in,
    text_or_nothing,
    to_json,
    usage_of,
)

__all__ = ["AnthropicResponse", "InvokedResponse"]


# --- Anthropic Messages, inward: one content block that is being put together. Knows nothing of the rest of the answer.


class _BlockDelta(msgspec.Struct):
    """What one event adds to a block. `Any` is the wire's."""

    type: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    partial_json: Any = None
    citation: Any = None
    content: Any = None
    stop_reason: Any = None
    container: Any = None


class _Start(msgspec.Struct):
    type: Any = None
    id: Any = None
    name: Any = None
    text: Any = None
    thinking: Any = None
    signature: Any = None
    citations: Any = None
    input: msgspec.Raw = msgspec.Raw(b"null")
    """Kept raw: those bytes are what the model wrote, as near as one can get."""
    caller: Any = None


NOTHING = msgspec.Raw(b"null")

_starts = msgspec.json.Decoder(_Start)
_objects = msgspec.json.Decoder(dict[str, Any])


class _AnswerBlock(ContentBlock):
    """One block, from its start to its end."""

    def __init__(self, raw: bytes | msgspec.Raw = b"{}") -> None:
        self._raw = bytes(raw)
        self._start = start = decode(self._raw, _starts)
        super().__init__(
            text_or_nothing(start.type),
            block_id=text_or_nothing(start.id),
            name=name_or_nothing(start.name) if start.type is not None else "",
            is_call=start.type == "tool_use" or (start.type is None and start.input != NOTHING),
        )
        self._signature = text_or_nothing(start.signature)
        self._citations = objects_in(start.citations)

    def begin(self) -> list[ModelPart]:
        """Take what came with the start."""
        return self.grow(_BlockDelta(text=self._start.text, thinking=self._start.thinking))

    def grow(self, delta: _BlockDelta) -> list[ModelPart]:
        """Take what one event adds."""
        self._signature = text_or_nothing(delta.signature) or self._signature
        if delta.citation is not None:
            self._citations += objects_in([delta.citation])
        self.add_arguments(text_or_nothing(delta.partial_json))
        if said := text_or_nothing(delta.thinking):
            self._said.add(said)
            return [ThinkingDelta(said)]
        if said := text_or_nothing(delta.text):
            self._said.add(said)
            return [TextDelta(said)]
        if said := text_or_nothing(delta.content):
            self._said.add(said)
        return []

    def close(self) -> None:
        """Take the end. Some servers send the arguments whole, with the start, and no piece of them after it."""
        super().close()
        whole = arguments_text(self._start.input)
        if not self.has_arguments and whole.strip() not in ("", "{}"):
            self.add_arguments(whole)

    @property
    def call_signature(self) -> str | None:
        """Who called, where it was not the model itself but its code on the vendor's side: that must travel back."""
        caller = self._start.caller
        if not isinstance(caller, dict) or caller.get("type") in (None, "direct"):
            return None
        return to_json(caller).decode()

    def part(self, *, is_last: bool) -> Part | None:
        """Return what the block is in a message, a call excepted; nothing where nothing was said."""
        said = self.said
        match self._start.type:
            case "text":
                return Text(said, signature=self._cited()) if said else None
            case "thinking":
                return self._thought(said, is_last=is_last) if said or self._signature else None
            case None:  # it cannot be sent back
                return Text(said) if said else None
            case "redacted_thinking":
                return Thinking(payload=decode(self._raw, _objects))
            case _:
                return Opaque(provider=PROVIDER, payload=self._payload(said))

    def _cited(self) -> str | None:
        """Return what a text cites as its signature: it must travel back to the model that wrote it, and says nothing to others."""
        return to_json({"citations": self._citations}).decode() if self._citations else None

    def _thought(self, said: str, *, is_last: bool) -> Thinking:
        """Return a thought. Without a signature it goes back as it came, for some servers sign none, unless it was cut off."""
        if self._signature or is_last:
            return Thinking(text=said, signature=self._signature or None)
        block = decode(self._raw, _objects)
        return Thinking(text=said, payload={**block, "thinking": said})

    def _payload(self, said: str) -> dict[str, Any]:
        payload = decode(self._raw, _objects)
        if self.has_arguments and self.is_complete:
            payload["input"] = decode(self.arguments.encode(), _objects)
        if said:
            payload["content"] = said
        return payload


# --- Anthropic Messages, inward: from the events of one answer to the parts of one response. Does no I/O.


class _Message(msgspec.Struct):
    usage: Any = None
    container: Any = None
    id: Any = None
    model: Any = None


class _Event(msgspec.Struct):
    type: Any = None
    index: Any = None
    content_block: msgspec.Raw = msgspec.Raw(b"null")
    delta: _BlockDelta | None = None
    message: _Message | None = None
    usage: Any = None
    error: Any = None


class _Whole(msgspec.Struct):
    type: Any = None
    content: list[msgspec.Raw] | None = None
    stop_reason: Any = None
    usage: Any = None
    container: Any = None
    error: Any = None
    id: Any = None
    model: Any = None


class _Chunk(msgspec.Struct):
    bytes: Any = None


class _Framed(msgspec.Struct):
    chunk: _Chunk | None = None
    exception: StreamException | None = None


_events = msgspec.json.Decoder(_Event)
_framed = msgspec.json.Decoder(_Framed)
_wholes = msgspec.json.Decoder(_Whole)


class AnthropicResponse(BlockResponse[_AnswerBlock]):
    """One answer of the dialect, streamed or whole."""

    terminal = "message_stop"
    reason_field = "stop_reason"

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self._usage: dict[str, Any] = {}
        self._container = ""

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream. Raises as `Response.add` does."""
        data = self._unframed(data.strip())
        if not data or self.is_done:
            return []
        if data == b"[DONE]":  # gateways end every stream so; it is the end where a stop reason came
            self.is_done = self.is_whole = bool(self._reason)
            return []
        return self._take(decode(data, _events))

    def _unframed(self, data: bytes) -> bytes:
        """Return an event as the dialect writes it, without what a cloud puts around it."""
        return data

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object. Raises as `add` does, and `IncompleteStream` where it has no stop reason."""
        whole = decode(body, _wholes)
        if whole.type == "error" or whole.error:
            raise AnswerError(whole.error)
        if whole.content is None:
            raise ModelResponseInvalid("The answer has no content.")
        self._count(whole.usage)
        self._take_container(whole.container)
        self._reason = text_or_nothing(whole.stop_reason)
        self.id, self.model = text_or_nothing(whole.id), text_or_nothing(whole.model)
        return self._take_blocks(map(_AnswerBlock, whole.content))

    def end(self) -> ModelEnd:
        """Return the whole message."""
        end = super().end()
        if self._container and (self._blocks.calls or self.is_paused):
            return msgspec.structs.replace(end, parts=(*end.parts, container_marker(self._container)))
        return end

    @property
    def is_paused(self) -> bool:
        """Whether the vendor paused a long turn of its own tools: sent back, it continues. Calls are answered first."""
        return self._reason == "pause_turn" and not self._blocks.calls

    def _take(self, event: _Event) -> list[ModelPart]:
        match event.type:
            case "content_block_delta":
                return self._grow(event)
            case "content_block_start":
                parts = self._begin(event)
                return parts + self._ready()
            case "content_block_stop":
                parts = self._blocks.close(_index(event))
                return parts + self._ready()
            case "message_start" | "message_delta" | "message_stop":
                self.is_empty = False
                self._take_frame(event)
                return self._ready()
            case "error":
                raise AnswerError(event.error)
            case _:  # a ping, or something new: the vendor asks to pass over what one does not know
                return []

    def _take_frame(self, event: _Event) -> None:
        """Take what is said of the message as a whole."""
        self._count(event.usage if event.message is None else event.message.usage)
        if event.type == "message_start":
            self._blocks.start()
        if event.message is not None:
            self._take_container(event.message.container)
            self.id, self.model = text_or_nothing(event.message.id), text_or_nothing(event.message.model)
        if event.delta is not None:
            self._take_container(event.delta.container)
            self._reason = text_or_nothing(event.delta.stop_reason) or self._reason
        if event.type == "message_stop":
            self.is_done = self.is_whole = True

    def _take_container(self, container: Any) -> None:
        """Take where the vendor's code runs. A call waits there for its result, and is not found without it."""
        if isinstance(container, dict):
            self._container = text_or_nothing(container.get("id")) or self._container

    def _begin(self, event: _Event) -> list[ModelPart]:
        self.is_empty = False
        return self._blocks.begin(_index(event), _AnswerBlock(event.content_block))

    def _grow(self, event: _Event) -> list[ModelPart]:
        block = self._blocks.open_at(_index(event))
        arguments = text_or_nothing(event.delta and event.delta.partial_json)
        if arguments and (block is None or block.kind in ("", "text", "thinking")):
            self._blocks.lose(arguments)
            return []
        if block is None or event.delta is None:
            raise ModelResponseInvalid("The server sent a piece of a block that it did not begin.")
        return self._blocks.shown(block, block.grow(event.delta))

    def _count(self, usage: Any) -> None:
        """Take counts, which are reported twice: at the start, and at the end as they have become."""
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value or name not in self._usage}
            self.counted = _usage(self._usage)


class InvokedResponse(AnthropicResponse):
    """An answer of Bedrock's InvokeModel: each event is in base64 inside an event of AWS's."""

    frames = EventStreamReader

    def _unframed(self, data: bytes) -> bytes:
        framed = decode(data, _framed)
        if framed.exception is not None:
            raise AnswerError(exception_error(framed.exception))
        if framed.chunk is None:
            return b""  # something new: passed over, as in the dialect itself
        try:
            return b64decode(text_or_nothing(framed.chunk.bytes), validate=True).strip()
        except ValueError as exc:
            raise ModelResponseInvalid("The server sent a chunk that is not base64.") from exc


def _index(event: _Event) -> int:
    if type(event.index) is not int:
        raise ModelResponseInvalid("The server sent a block without an index.")
    return event.index


_COUNTS = CountNames(prompt=("input_tokens",), completion=("output_tokens",), is_net=True)


def _usage(counts: dict[str, Any]) -> Usage | None:
    # What was written to the cache is counted in all, or in two parts: for minutes and for an hour.
    written = sum(count(counts.get("cache_creation"), f"ephemeral_{span}_input_tokens") for span in ("5m", "1h"))
    reasoning = count(counts.get("output_tokens_details"), "thinking_tokens")
    return usage_of(counts, _COUNTS, written=written, reasoning=reasoning)
