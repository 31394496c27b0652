"""Chat Completions, inward: from the events of one answer to the parts of one response. Does no I/O.

Servers differ in everything but the names of the fields, so values are read as they come and judged here: `Any` in the structs
below is the wire's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.concurrency.pieces import Pieces
from treadle.errors import ModelResponseInvalid
from treadle.messages import Finish, Part, Text, Thinking, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.providers.http.reading import AnswerError, Response, without_ending
from treadle.providers.http.wordings import finish_of
from treadle.providers.openai_chat.calls import Calls, Fragment, Function
from treadle.providers.openai_chat.reasoning import ReasoningDetails
from treadle.providers.payload.lenient import (
    cached_count,
    count,
    counted,
    decode,
    is_unreadable,
    is_worse,
    text_or_nothing,
    written_count,
)

__all__ = ["ChatResponse"]


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: list[Fragment | None] | None = None
    function_call: Function | None = None
    """What a call was before there were several."""


class _Choice(msgspec.Struct, gc=False):
    index: Any = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice | None] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None
    id: Any = None
    model: Any = None


_chunks = msgspec.json.Decoder(_Chunk)
_values = msgspec.json.Decoder()


class ChatResponse(Response):
    """Takes the data of each event, and gives the parts that it makes.

    A finish reason or `[DONE]` makes it whole, either; nothing follows `[DONE]`.

    Args:
        names: Our names of tools that were renamed for the wire.
        schemas: The schemas of those tools whose optional properties may come back as null, by our names.
    """

    terminal = "a finish reason or [DONE]"

    def __init__(self, names: Mapping[str, str], *, schemas: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._names = names
        self._schemas = schemas or {}
        self._text = Pieces()
        self._thinking = Pieces()
        self._details: ReasoningDetails | None = None
        self._is_refused = False
        self._has_begun = False
        """Whether something came already: a whole message then repeats it."""
        self._has_message = False
        self._is_retold = False
        self._calls = Calls()
        self._finish = Finish.UNKNOWN
        self._finish_reason: str | None = None

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream.

        Raises:
            AnswerError: It is the provider's error.
            ModelResponseInvalid: It is not valid JSON, or of another shape.
        """
        data = data.strip()
        if not data or self.is_done:
            return []
        if data == b"[DONE]":
            self.is_done = self.is_whole = True
            self.is_empty = False
            return []
        return self._take(_chunk(data))

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object. Raises as `add` does, and `IncompleteStream` where it neither ends nor says anything."""
        chunk = _chunk(body)
        if chunk.choices is None and not chunk.error:
            raise ModelResponseInvalid("The answer has no choices.")
        parts = self._take(chunk)
        if not (self._finish_reason is not None or self._has_begun or self._is_refused or _has_blank_finish(chunk)):
            raise without_ending("finish_reason")
        self.is_done = self.is_whole = True
        return parts

    def end(self) -> ModelEnd:
        """Return the whole message."""
        finish = Finish.REFUSED if self._is_refused else self._finish
        parts: list[Part] = []
        details = [] if self._details is None else self._details.whole()
        if self._thinking or details:
            payload = {"reasoning_details": details} if details else None
            parts.append(Thinking(text="".join(self._thinking), payload=payload))
        if self._text:
            parts.append(Text("".join(self._text)))
        slots = self._calls.in_order()
        calls = [slot.call(self._names, self._schemas) for slot in slots]
        pairs = zip(slots, calls, strict=True)
        cut = [call.id for slot, call in pairs if not slot.end.is_closed] if finish is Finish.LENGTH else ()
        return ModelEnd(
            parts=(*parts, *calls),
            finish=finish,
            usage=self.counted,
            cut_calls=frozenset(cut),
            unnamed_calls=frozenset(slot.given_id for slot in slots if not slot.id),
            is_retold=self._is_retold,
            has_strays=self._calls.has_strays,
            finish_reason=self._finish_reason,
        )

    def _take(self, chunk: _Chunk) -> list[ModelPart]:
        if chunk.error:
            raise AnswerError(chunk.error)
        if chunk.usage is not None:
            self.counted = _usage(chunk.usage) or self.counted
            if self.is_whole and not chunk.choices:  # the vendor's last word before [DONE]
                self.may_go_on = False
        if chunk.id and not self.id:
            self.id, self.model = text_or_nothing(chunk.id), text_or_nothing(chunk.model)
        parts: list[ModelPart] = []
        if chunk.choices is None:
            return parts
        self.is_empty = False
        for choice in chunk.choices:
            if choice is not None and not choice.index:  # the first choice only, should an option ask for more
                self._take_choice(choice, parts)
        return parts

    def _take_choice(self, choice: _Choice, parts: list[ModelPart]) -> None:
        if choice.error:
            raise AnswerError(choice.error)
        before = self._calls.size, len(parts)
        if choice.delta is not None:
            self._take_delta(choice.delta, parts)
        if choice.message is not None:
            self._take_message(choice.message, parts)
        if (self._calls.size, len(parts)) != before:
            if self.is_whole:  # this server continues after a finish: it may do so again, however late
                self.goes_on = True
            self.is_whole = False  # the finish that came before this content was not the end
        if choice.finish_reason and isinstance(choice.finish_reason, str):
            if choice.finish_reason == "error":
                raise AnswerError({"message": "finish_reason is error"})
            finish = finish_of(choice.finish_reason)
            if self._finish_reason is None or is_worse(finish, self._finish):
                self._finish, self._finish_reason = finish, choice.finish_reason
            self.is_whole = True

    def _take_message(self, message: _Delta, parts: list[ModelPart]) -> None:
        """Take a whole message. After others it reports again what they said, and only what is new in it counts."""
        if self._has_begun:
            message.content = _rest(_said(message), "".join(self._text))
            message.refusal = bool(message.refusal)
            message.reasoning_content = _rest(_thinking(message), "".join(self._thinking))
            message.reasoning = None
            message.reasoning_details = None if self._details else message.reasoning_details
        self._take_words(message, parts, is_whole=True)
        if calls := _calls(message):
            before = self._calls.size
            self._calls.add_whole(calls, is_again=self._has_begun)
            self._is_retold = self._is_retold or (self._has_begun and self._calls.size > before)
            self._has_message = True
            parts += self._ready()
        self._has_begun = self._has_begun or bool(calls or self._text or self._thinking)

    def _take_delta(self, delta: _Delta, parts: list[ModelPart]) -> None:
        self._take_words(delta, parts, is_whole=False)
        self._has_begun = self._has_begun or bool(parts)
        if delta.tool_calls is None and delta.function_call is None:  # most pieces of a stream
            return
        if calls := _calls(delta):
            self._has_begun = True
            self._is_retold = self._is_retold or self._has_message
            for fragment in calls:
                self._calls.add(fragment)
            parts += self._ready()

    def _take_words(self, delta: _Delta, parts: list[ModelPart], *, is_whole: bool) -> None:
        if thought := _thinking(delta):
            self._thinking.add(thought)
            parts.append(ThinkingDelta(thought))
        if delta.reasoning_details:
            self._details = self._details or ReasoningDetails()
            self._details.add(delta.reasoning_details, is_whole=is_whole)
        if delta.refusal is not None and (text_or_nothing(delta.refusal) or delta.refusal is True):
            self._is_refused = True
        if said := _said(delta):
            self._text.add(said)
            parts.append(TextDelta(said))

    def _ready(self) -> list[ModelPart]:
        return [CallReady(slot.call(self._names, self._schemas)) for slot in self._calls.ready()]


def _has_blank_finish(chunk: _Chunk) -> bool:
    """Whether the finish reason is the empty text: Snowflake ends every whole answer so. Null or absent is not an ending."""
    return any(choice is not None and choice.finish_reason == "" for choice in chunk.choices or ())


def _said(delta: _Delta) -> str:
    """Return the words, those of a refusal included."""
    content = delta.content
    said = content if isinstance(content, str) else _pieces(content, "text")
    return said if delta.refusal is None else said + text_or_nothing(delta.refusal)


def _calls(delta: _Delta) -> Sequence[Fragment]:
    if delta.tool_calls is not None:
        return [fragment for fragment in delta.tool_calls if fragment is not None]
    if delta.function_call is not None and delta.function_call.says_something:
        return [Fragment(index=0, function=delta.function_call)]
    return ()


def _rest(whole: str, streamed: str) -> str:
    """Return what a whole message says beyond what was streamed of it. Where they differ, what was streamed stands."""
    return whole.removeprefix(streamed) if whole.startswith(streamed) else ""


def _thinking(delta: _Delta) -> str:
    """Return the reasoning. Gateways send the same words in both fields, so the first counts."""
    for reported in (delta.reasoning_content, delta.reasoning):
        if reported and isinstance(reported, str):
            return reported
    if not isinstance(delta.content, list):
        return ""
    nested = [piece.get("thinking") for piece in delta.content if isinstance(piece, dict)]
    return "".join(piece if isinstance(piece, str) else _pieces(piece, "text") for piece in nested)


def _pieces(content: Any, kind: str) -> str:
    """Return the text of Mistral's list of typed pieces."""
    if not isinstance(content, list):
        return ""
    return "".join(
        text_or_nothing(piece.get(kind)) for piece in content if isinstance(piece, dict) and piece.get("type") == kind
    )


def _usage(value: Any) -> Usage | None:
    """Return the tokens, or None where the server counts nothing: no request has an empty prompt."""
    if not isinstance(value, dict):
        return None
    prompt, completion, total = (count(value, f"{name}_tokens") for name in ("prompt", "completion", "total"))
    if not prompt and not completion:
        return None
    details = value.get("prompt_tokens_details")
    prompt = prompt or max(total - completion, 0)
    cached = min(cached_count(value, details), prompt)
    return counted(
        prompt,
        # Some servers leave the reasoning out of the completion, and only the total tells.
        max(completion, total - prompt),
        cached=cached,
        written=min(written_count(value, details), prompt - cached),
        reasoning=count(value.get("completion_tokens_details"), "reasoning_tokens"),
        is_partial=not total
        and (is_unreadable(value, "prompt_tokens", "completion_tokens") or value.get("completion_tokens") is None),
    )


def _chunk(data: bytes) -> _Chunk:
    chunk = decode(data, _chunks)
    if chunk.object == "error" and not chunk.error:  # vLLM: the whole object is the error
        raise AnswerError(decode(data, _values))
    return chunk
