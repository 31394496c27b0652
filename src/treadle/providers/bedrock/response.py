"""Bedrock Converse, inward: from the events of one answer to the parts of one response. Does no I/O.

Values are read as they come and judged here: `Any` in the structs below is the wire's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.errors import ModelResponseInvalid
from treadle.messages import Usage
from treadle.ports import ModelEnd, ModelPart
from treadle.providers.bedrock.parts import ConverseBlock, Delta
from treadle.providers.http.block_response import BlockResponse
from treadle.providers.http.event_stream import EventStreamReader, StreamException, exception_error
from treadle.providers.http.reading import AnswerError
from treadle.providers.payload.lenient import arguments_text, count, counted, decode, is_unreadable, text_or_nothing

__all__ = ["ConverseResponse"]


class _BlockEvent(msgspec.Struct, rename="camel"):
    content_block_index: Any = None
    start: msgspec.Raw = msgspec.Raw(b"{}")
    delta: Delta | None = None


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


class ConverseResponse(BlockResponse[ConverseBlock]):
    """One answer of the dialect, streamed or whole."""

    terminal = "messageStop"
    reason_field = "stopReason"
    frames = EventStreamReader

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self._trace: Any = None

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream.

        Raises:
            AnswerError: It is the provider's error.
            ModelResponseInvalid: It is not valid JSON, or of another shape.
        """
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
        return self._take_blocks(map(ConverseBlock, content))

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
            return self._blocks.begin(_index(start), ConverseBlock(start.start))
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
            block = ConverseBlock()  # words and thoughts have no start
            self._blocks.begin(index, block)
            if event.delta.reasoning_content is not None:
                block.kind = "thinking"
        return self._blocks.shown(block, block.grow(event.delta))

    def _count(self, usage: Any) -> None:
        self.counted = _usage(usage) or self.counted


_NOTHING = _Event()


def _index(event: _BlockEvent) -> int:
    if type(event.content_block_index) is not int:
        raise ModelResponseInvalid("The server sent a block without an index.")
    return event.content_block_index


def _usage(counts: Any) -> Usage | None:
    """Return the tokens, or None where the server counts nothing: no request has an empty prompt."""
    cached = count(counts, "cacheReadInputTokens", "cacheReadInputTokenCount")
    written = count(counts, "cacheWriteInputTokens", "cacheWriteInputTokenCount")
    is_lost = is_unreadable(counts, "inputTokens")
    # The vendor's inputTokens are those that came from no cache and went to none.
    return counted(
        0 if is_lost else count(counts, "inputTokens") + cached + written,
        count(counts, "outputTokens"),
        cached=cached,
        written=written,
        is_partial=is_lost or is_unreadable(counts, "outputTokens"),
    )
