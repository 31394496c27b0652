"""Gemini, inward: from the chunks of one answer to the parts of one response. Does no I/O.

Values are read as they come and judged here: `Any` in the structs below is the wire's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.concurrency import Pieces
from treadle.errors import ModelRejected, ModelResponseInvalid
from treadle.messages import Finish, Media, Opaque, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.providers.gemini.request import PROVIDER
from treadle.providers.http.failures import finish_of
from treadle.providers.http.reading import AnswerError, Response, without_ending
from treadle.providers.payload import (
    CountNames,
    arguments_text,
    call_arguments,
    count,
    decode,
    is_worse,
    may_have_lost,
    name_or_nothing,
    text_or_nothing,
    usage_of,
)
from treadle.tools import JsonObject

__all__ = ["GeminiResponse"]


# --- Gemini's parts, inward: put together in the order in which they came. Knows nothing of the rest of the answer.


class _Call(msgspec.Struct, rename="camel"):
    name: Any = None
    args: msgspec.Raw = msgspec.Raw(b"{}")
    """Kept raw: the call's arguments are exactly these bytes."""
    id: Any = None
    partial_args: Any = None
    will_continue: Any = None


class _Part(msgspec.Struct, rename="camel"):
    text: Any = None
    thought: Any = None
    thought_signature: Any = None
    function_call: _Call | None = None
    inline_data: Any = None


_parts = msgspec.json.Decoder(_Part)
_values = msgspec.json.Decoder(JsonObject)

_WORDS = frozenset({"text", "thought", "thoughtSignature"})
"""What a part of words may hold."""


class _GeminiParts:
    """The parts of one response. Words of one kind that follow each other are one part; a signed part stays by itself."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._whole: list[Part] = []
        self._words = Pieces()
        self._is_thought = False
        self._calls = 0
        self.size = 0
        """How many parts that say something it has taken."""
        self.unnamed: set[str] = set()
        """Ids that were made up here: models before Gemini 3 send none."""

    @property
    def has_calls(self) -> bool:
        return self._calls > 0

    def add(self, raw: bytes) -> list[ModelPart]:
        """Take one part of a chunk."""
        part = decode(raw, _parts)
        signature = text_or_nothing(part.thought_signature) or None
        if part.function_call is not None:
            return self._add_call(part.function_call, signature)
        if isinstance(part.text, str):
            return self._add_words(part.text, signature, is_thought=part.thought is True)
        payload = decode(raw, _values)
        if payload.keys() <= _WORDS:  # a signature that came by itself
            return self._add_words("", signature, is_thought=part.thought is True)
        self._close_words()
        self.size += 1
        self._whole.append(_other(part, payload))
        return []

    def all(self) -> tuple[Part, ...]:
        """Return the parts as they stand."""
        self._close_words()
        calls = [part for part in self._whole if isinstance(part, ToolCall)]
        if any(
            call.name for call in calls
        ):  # one without a name is a call only where there is no other, so that the model is told
            return tuple(part for part in self._whole if not isinstance(part, ToolCall) or part.name)
        return tuple(self._whole)

    @property
    def has_strays(self) -> bool:
        """Whether it is unknown of some arguments to which call they belong."""
        calls = [part for part in self._whole if isinstance(part, ToolCall)]
        named = ((call.id, call.name, call.arguments.strip() != "{}") for call in calls if call.id not in self.unnamed)
        return any(not call.name for call in calls) or may_have_lost(named)

    def _add_call(self, call: _Call, signature: str | None) -> list[ModelPart]:
        if call.partial_args or call.will_continue:
            raise ModelResponseInvalid("The server streams a call's arguments in pieces, which nobody asked for.")
        self._close_words()
        name = name_or_nothing(call.name)
        call_id = text_or_nothing(call.id)
        if not call_id:
            call_id = f"call_{self._calls}"
            self.unnamed.add(call_id)
        made = ToolCall(
            id=call_id,
            name=self._names.get(name, name),
            arguments=call_arguments([arguments_text(call.args)]) or "{}",
            signature=signature,
        )
        self._calls += 1
        self.size += 1
        self._whole.append(made)
        return [CallReady(made)] if made.name else []

    def _add_words(self, text: str, signature: str | None, *, is_thought: bool) -> list[ModelPart]:
        if not text and signature is None:
            return []
        self.size += 1
        # A signature belongs to the part that it came on: joined to its neighbours it would prove nothing.
        if signature is not None or is_thought is not self._is_thought:
            self._close_words()
        self._is_thought = is_thought
        self._words.add(text)
        if signature is not None:
            self._close_words(signature)
        if not text:
            return []
        return [ThinkingDelta(text) if is_thought else TextDelta(text)]

    def _close_words(self, signature: str | None = None) -> None:
        if not self._words:
            return
        text = "".join(self._words)
        self._words = Pieces()
        self._whole.append(
            Thinking(text=text, signature=signature) if self._is_thought else Text(text, signature=signature)
        )


def _other(part: _Part, payload: JsonObject) -> Part:
    """Return a picture as such; whatever else there is (code that ran on the server, a signed picture) as it came."""
    blob = part.inline_data
    if part.thought_signature is None and isinstance(blob, dict):
        kind, content = blob.get("mimeType"), blob.get("data")
        if isinstance(kind, str) and isinstance(content, str):
            return Media(media_type=kind, base64=content)
    return Opaque(provider=PROVIDER, payload=payload)


# --- Gemini, inward: from the chunks of one answer to the parts of one response. Does no I/O.


class _Content(msgspec.Struct):
    parts: list[msgspec.Raw] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    index: Any = None
    content: _Content | None = None
    finish_reason: Any = None
    finish_message: Any = None
    grounding_metadata: Any = None
    citation_metadata: Any = None
    url_context_metadata: Any = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate | None] | None = None
    prompt_feedback: Any = None
    usage_metadata: Any = None
    error: Any = None
    response_id: Any = None
    model_version: Any = None


_chunks = msgspec.json.Decoder(_Chunk)
_answers = msgspec.json.Decoder(_Chunk | list[_Chunk])

_GARBLED = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})
"""The model wrote what its own server could not read. The next attempt is likely better."""


class GeminiResponse(Response):
    """Takes the data of each event, and gives the parts that it makes.

    A finish reason makes it whole, or word that the prompt is refused. It is never done: the vendor marks no end, and the last chunk
    may follow the finish reason.

    Args:
        names: Our names of tools that were renamed for the wire.
    """

    terminal = "a finishReason"

    def __init__(self, names: Mapping[str, str]) -> None:
        self._parts = _GeminiParts(names)
        self._about: dict[str, Any] = {}
        self._reason = ""
        self._message = ""

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream. Raises as `Response.add` does."""
        data = data.strip()
        if not data or data == b"[DONE]":  # gateways end every stream so
            return []
        return self._take(decode(data, _chunks))

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object, or a list of chunks: a stream without `alt=sse`.

        Raises:
            AnswerError: It is the provider's error.
            ModelResponseInvalid: It is not valid JSON, or of another shape.
            IncompleteStream: It has neither a finish reason nor anything that the model said.
        """
        answer = decode(body, _answers)
        chunks = answer if isinstance(answer, list) else [answer]
        parts = [part for chunk in chunks for part in self._take(chunk)]
        if self.is_empty:
            raise ModelResponseInvalid("The answer has no candidates.")
        if not self.is_whole and not self._parts.size:
            raise without_ending("finishReason")
        self.is_whole = self.is_done = True
        return parts

    def end(self) -> ModelEnd:
        """Return the whole message.

        Raises:
            ModelResponseInvalid: The model wrote a call that its server could not read.
            ModelRejected: The history lacks a signature.
        """
        if self._reason in _GARBLED:
            raise ModelResponseInvalid(f"The model's answer could not be read by its own server ({self._told}).")
        if self._reason == "MISSING_THOUGHT_SIGNATURE":
            raise ModelRejected(
                f"The server reports that a thought signature is missing in the history ({self._told})."
            )
        about = [Opaque(provider=PROVIDER, payload={name: value}) for name, value in sorted(self._about.items())]
        parts = (*self._parts.all(), *about)
        return ModelEnd(
            parts=parts,
            finish=self._finish,
            usage=self.counted,
            unnamed_calls=frozenset(self._parts.unnamed),
            has_strays=self._parts.has_strays,
            finish_reason=self._reason or None,
        )

    @property
    def _told(self) -> str:
        return f"{self._reason}: {self._message}" if self._message else self._reason

    @property
    def _finish(self) -> Finish:
        finish = finish_of(self._reason)
        # Calls end with STOP too; and a call of an undeclared tool is still a call, which its result will answer.
        is_natural = finish is Finish.STOP or self._reason == "UNEXPECTED_TOOL_CALL"
        return Finish.CALLS if is_natural and self._parts.has_calls else finish

    def _take(self, chunk: _Chunk) -> list[ModelPart]:
        if chunk.error:
            raise AnswerError(chunk.error)
        has_said = self._parts.size > 0 or bool(chunk.candidates)
        self.counted = _usage(chunk.usage_metadata, has_said=has_said) or self.counted
        if not self.id and not self.model:
            self.id, self.model = text_or_nothing(chunk.response_id), text_or_nothing(chunk.model_version)
        parts: list[ModelPart] = []
        for candidate in chunk.candidates or ():
            if candidate is not None and not candidate.index:  # the first one only, should an option ask for more
                self.is_empty = False
                parts += self._take_candidate(candidate)
        if not chunk.candidates and (blocked := _block_reason(chunk.prompt_feedback)):
            self._finish_with("SAFETY", blocked)
        return parts

    def _take_candidate(self, candidate: _Candidate) -> list[ModelPart]:
        content = candidate.content
        before = self._parts.size
        parts = [part for raw in (content and content.parts) or () for part in self._parts.add(bytes(raw))]
        if self._parts.size > before:
            self.goes_on = self.goes_on or self.is_whole
            self.is_whole = False  # a finish that came before this content was not the end
        about = {
            "citationMetadata": candidate.citation_metadata,
            "groundingMetadata": candidate.grounding_metadata,
            "urlContextMetadata": candidate.url_context_metadata,
        }
        self._about |= {name: value for name, value in about.items() if value}
        reason = text_or_nothing(candidate.finish_reason)
        if reason and reason != "FINISH_REASON_UNSPECIFIED":
            self._finish_with(reason, text_or_nothing(candidate.finish_message))
        return parts

    def _finish_with(self, reason: str, message: str) -> None:
        is_worst = is_worse(finish_of(reason), finish_of(self._reason))
        if not self._reason or is_worst:
            self._reason, self._message = reason, message
        self.is_whole, self.is_empty = True, False


def _block_reason(feedback: Any) -> str:
    """Return why the prompt was refused; nothing where it was not."""
    if not isinstance(feedback, dict):
        return ""
    return text_or_nothing(feedback.get("blockReason"))


_COUNTS = CountNames(
    prompt=("promptTokenCount", "toolUsePromptTokenCount"),
    completion=("candidatesTokenCount", "thoughtsTokenCount"),
    cached=("cachedContentTokenCount",),
    written=(),
    total="totalTokenCount",
)


def _usage(counts: Any, *, has_said: bool) -> Usage | None:
    if isinstance(counts, dict) and not any(counts.get(name) for name in _COUNTS.prompt):
        return None  # an event in between
    return usage_of(counts, _COUNTS, reasoning=count(counts, "thoughtsTokenCount"), has_said=has_said)
