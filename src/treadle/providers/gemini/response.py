"""Gemini, inward: from the chunks of one answer to the parts of one response. Does no I/O.

Values are read as they come and judged here: `Any` in the structs below is the wire's.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.errors import ModelRejected, ModelResponseInvalid
from treadle.messages import Finish, Opaque, Usage
from treadle.ports import ModelEnd, ModelPart
from treadle.providers.gemini.contents import PROVIDER
from treadle.providers.gemini.parts import GeminiParts
from treadle.providers.http.reading import AnswerError, Response, without_ending
from treadle.providers.http.wordings import finish_of
from treadle.providers.payload.lenient import count, counted, decode, is_unreadable, is_worse, text_or_nothing

__all__ = ["GeminiResponse"]


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
        self._parts = GeminiParts(names)
        self._about: dict[str, Any] = {}
        self._reason = ""
        self._message = ""

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream.

        Raises:
            AnswerError: It is the provider's error.
            ModelResponseInvalid: It is not valid JSON, or of another shape.
        """
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
        self.counted = _usage(chunk.usage_metadata) or self.counted
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


def _usage(value: Any) -> Usage | None:
    """Return the tokens, or None where the server counts nothing: no request has an empty prompt."""
    prompt = count(value, "promptTokenCount") + count(value, "toolUsePromptTokenCount")
    thoughts = count(value, "thoughtsTokenCount")
    given, total = count(value, "candidatesTokenCount") + thoughts, count(value, "totalTokenCount")
    is_lost = is_unreadable(value, "promptTokenCount")
    if not prompt and not is_lost:
        return None
    prompt = max(total - given, 0) if is_lost else prompt
    return counted(
        prompt,
        max(given, total - prompt) if prompt else given,  # some servers leave a count out, and only the total tells
        cached=min(count(value, "cachedContentTokenCount"), prompt),
        reasoning=thoughts,
        is_partial=not total and is_unreadable(value, "promptTokenCount", "candidatesTokenCount"),
    )
