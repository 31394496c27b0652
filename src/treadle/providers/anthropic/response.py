"""Anthropic Messages, inward: from the events of one answer to the parts of one response. Does no I/O.

Compatible servers differ in everything but the names of the fields, so values are read as they come and judged here: `Any` in the
structs below is the wire's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.errors import ModelResponseInvalid
from treadle.messages import Finish, Part, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart
from treadle.providers.anthropic.blocks import container_marker
from treadle.providers.anthropic.parts import AnswerBlock, BlockDelta
from treadle.providers.http.reading import AnswerError, Response, without_ending
from treadle.providers.payload.lenient import count, decode, text_or_nothing

__all__ = ["AnthropicResponse"]


class _Message(msgspec.Struct):
    usage: Any = None
    container: Any = None


class _Event(msgspec.Struct):
    type: Any = None
    index: Any = None
    content_block: msgspec.Raw = msgspec.Raw(b"null")
    delta: BlockDelta | None = None
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


_events = msgspec.json.Decoder(_Event)
_wholes = msgspec.json.Decoder(_Whole)

_FINISHES = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "tool_use": Finish.CALLS,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "pause_turn": Finish.LENGTH,
    "refusal": Finish.REFUSED,
}


class AnthropicResponse(Response):
    """Takes the data of each event, and gives the parts that it makes.

    Args:
        names: Our names of tools that were renamed for the wire.
    """

    terminal = "message_stop"

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._blocks: list[AnswerBlock] = []
        self._calls: list[AnswerBlock] = []
        self._open: dict[int, AnswerBlock] = {}
        self._at: dict[int, AnswerBlock] = {}
        """The blocks of a message that has begun again, by their index."""
        self._begun: dict[int, AnswerBlock] = {}
        self._by_id: dict[str, AnswerBlock] = {}
        self._twins: dict[AnswerBlock, AnswerBlock] = {}
        """Blocks that may be the repetition of an earlier one: what they say is held until that is known."""
        self._has_started = self._is_retold = False
        self._told = 0
        self._stop_reason = ""
        self._usage: dict[str, Any] = {}
        self._container = ""

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream.

        Raises:
            AnswerError: It is the provider's error.
            ModelResponseInvalid: It is no JSON, or of another shape.
        """
        data = data.strip()
        if not data or self.is_done:
            return []
        if data == b"[DONE]":  # gateways end every stream so; it is the end where a stop reason came
            self.is_done = self.is_whole = bool(self._stop_reason)
            return []
        return self._take(decode(data, _events))

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object. Raises as `add` does, and `IncompleteStream` where it has no stop reason."""
        whole = decode(body, _wholes)
        if whole.type == "error" or whole.error:
            raise AnswerError(whole.error)
        if whole.content is None:
            raise ModelResponseInvalid("The answer has no content.")
        self._count(whole.usage)
        self._take_container(whole.container)
        self._stop_reason = text_or_nothing(whole.stop_reason)
        parts: list[ModelPart] = []
        for raw in whole.content:
            block = self._append(AnswerBlock(raw))
            parts += block.begin()
            block.close()
        if not self._stop_reason:
            raise without_ending("stop_reason")
        # A call that a limit cut cannot be told from a whole one here: its input was mended into an object.
        if self._is_cut and self._blocks:
            self._blocks[-1].is_doubtful = True
        self.is_empty = False
        self.is_done = self.is_whole = True
        return parts + self._ready()

    def end(self) -> ModelEnd:
        """Return the whole message."""
        parts: list[Part | None] = []
        cut: list[str] = []
        unnamed: list[str] = []
        for block in list(self._twins):
            self._compare(block)
        for block in self._blocks:
            if not block.is_call:
                parts.append(block.part(is_last=block is self._blocks[-1]))
                continue
            call = self._call(block)
            parts.append(call)
            if block.is_doubtful or (self._is_cut and not self._is_ready(block)):
                cut.append(call.id)
            if not block.id:
                unnamed.append(call.id)
        if self._container and (self._calls or self.is_paused):
            parts.append(container_marker(self._container))
        return ModelEnd(
            parts=tuple(part for part in parts if part is not None),
            finish=_FINISHES.get(self._stop_reason, Finish.UNKNOWN),
            usage=self.counted,
            cut_calls=frozenset(cut),
            unnamed_calls=frozenset(unnamed),
            is_retold=self._is_retold,
            finish_reason=self._stop_reason or None,
        )

    @property
    def is_paused(self) -> bool:
        """Whether the vendor paused a long turn of its own tools: sent back, it goes on. Calls are answered first."""
        return self._stop_reason == "pause_turn" and not self._calls

    @property
    def _is_cut(self) -> bool:
        return _FINISHES.get(self._stop_reason) is Finish.LENGTH

    def _take(self, event: _Event) -> list[ModelPart]:
        match event.type:
            case "content_block_delta":
                return self._grow(event)
            case "content_block_start":
                parts = self._begin(event)
                return parts + self._ready()
            case "content_block_stop":
                parts = self._close(event)
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
            self._start()
        if event.message is not None:
            self._take_container(event.message.container)
        if event.delta is not None:
            self._take_container(event.delta.container)
            self._stop_reason = text_or_nothing(event.delta.stop_reason) or self._stop_reason
        if event.type == "message_stop":
            self.is_done = self.is_whole = True

    def _take_container(self, container: Any) -> None:
        """Take where the vendor's code runs. A call waits there for its result, and is not found without it."""
        if isinstance(container, dict):
            self._container = text_or_nothing(container.get("id")) or self._container

    def _start(self) -> None:
        """Take the start of the message. A second one may begin it again: each block is then compared with the earlier one."""
        if self._has_started:
            self._at, self._begun = self._begun, {}
            self._is_retold = self._is_retold or bool(self._calls)
        self._has_started = True

    def _begin(self, event: _Event) -> list[ModelPart]:
        self.is_empty = False
        index = _index(event)
        block = AnswerBlock(event.content_block)
        at = self._at.pop(index, None)
        known = (self._by_id.get(block.id) if block.is_call and block.id else None) or at
        earlier = self._open.get(index)
        if known is not None and known is earlier and known.is_call and not known.has_arguments:
            return []  # its start was sent twice
        if earlier is not None and earlier is not known:
            earlier.break_off()  # what comes next at this index belongs to the new block
        self._open[index] = self._begun[index] = self._append(block)
        parts = block.begin()
        if known is None:
            return parts
        self._twins[block] = known
        return []

    def _append(self, block: AnswerBlock) -> AnswerBlock:
        self._blocks.append(block)
        if block.is_call:
            self._calls.append(block)
            self._by_id.setdefault(block.id, block)
        return block

    def _grow(self, event: _Event) -> list[ModelPart]:
        block = self._open.get(_index(event))
        if block is None or event.delta is None:
            raise ModelResponseInvalid("The server sent a piece of a block that it did not begin.")
        parts = block.grow(event.delta)
        return [] if block in self._twins else parts

    def _close(self, event: _Event) -> list[ModelPart]:
        block = self._open.pop(_index(event), None)
        if block is None:
            return []
        block.close()
        return self._compare(block) if block in self._twins else []

    def _compare(self, block: AnswerBlock) -> list[ModelPart]:
        """Keep one of a block and its repetition. Where they differ both are kept."""
        known = self._twins.pop(block)
        if block.content == known.content:
            self._remove(block)
            return []
        if block.goes_on(known) and known in self._blocks:
            self._remove(block)
            for blocks in (self._blocks, self._calls):
                blocks[:] = [block if one is known else one for one in blocks]
            return block.rest(known)
        known.break_off()
        return block.rest(AnswerBlock())

    def _remove(self, block: AnswerBlock) -> None:
        for blocks in (self._blocks, self._calls):
            blocks[:] = [one for one in blocks if one is not block]

    def _ready(self) -> list[ModelPart]:
        """Return the calls that have become complete, in call order: none before an earlier one."""
        found: list[ModelPart] = []
        for block in self._calls[self._told :]:
            if not self._is_ready(block):
                break
            found.append(CallReady(self._call(block)))
            self._told += 1
        return found

    def _is_ready(self, block: AnswerBlock) -> bool:
        if block.is_doubtful:
            return False
        if not block.is_closed or block.has_arguments:
            return block.is_closed and block.is_complete
        # Without arguments it is whole, or cut right after its name: what comes next tells.
        return block is not self._blocks[-1] or (bool(self._stop_reason) and not self._is_cut)

    def _call(self, block: AnswerBlock) -> ToolCall:
        return block.call(self._calls.index(block), self._names)

    def _count(self, usage: Any) -> None:
        """Take counts, which are told twice: at the start, and at the end as they have become."""
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value}
            self.counted = _usage(self._usage)


def _index(event: _Event) -> int:
    if type(event.index) is not int:
        raise ModelResponseInvalid("The server sent a block without an index.")
    return event.index


def _usage(counts: dict[str, Any]) -> Usage | None:
    """Return the tokens, or None where the server counts nothing: no request has an empty prompt."""
    cached = count(counts, "cache_read_input_tokens")
    written = _written(counts)
    # The vendor's input_tokens are those that came from no cache and went to none.
    prompt = count(counts, "input_tokens") + written + cached
    completion = count(counts, "output_tokens")
    if not prompt and not completion:
        return None
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cached_input_tokens=cached,
        cache_written_tokens=written,
        reasoning_tokens=count(counts.get("output_tokens_details"), "thinking_tokens"),
    )


def _written(counts: dict[str, Any]) -> int:
    """Return what was written to the cache, for minutes and for an hour together, by the total or by its parts."""
    parts = counts.get("cache_creation")
    for_minutes, for_an_hour = count(parts, "ephemeral_5m_input_tokens"), count(parts, "ephemeral_1h_input_tokens")
    return max(count(counts, "cache_creation_input_tokens"), for_minutes + for_an_hour)
