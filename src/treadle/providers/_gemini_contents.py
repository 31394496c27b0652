"""Gemini's contents: one neutral message in the dialect's parts. Sends nothing, knows no request around it."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from treadle.messages import Media, Message, Opaque, Part, Result, Text, Thinking, ToolCall
from treadle.providers._bodies import sendable_arguments
from treadle.providers._encoded import to_json
from treadle.providers._gemini_names import gemini_name
from treadle.providers._names import wire_id

__all__ = ["ABOUT_THE_ANSWER", "PROVIDER", "GeminiContents"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

PROVIDER = "gemini"
"""What opaque parts of this dialect are marked with."""

ABOUT_THE_ANSWER = frozenset({"citationMetadata", "groundingMetadata", "urlContextMetadata"})
"""What a server tells about its answer beside the parts of it."""

_UNSIGNED = "skip_thought_signature_validator"
"""The vendor's stand-in for a signature that cannot be had: a call of another model, or one that came without.

From its page on thought signatures (ai.google.dev/gemini-api/docs/thought-signatures). Gemini 3 answers 400 to a step whose first
call has neither; it checks no further call of the same step, and earlier models check none.
"""

_RESULT_MEDIA = frozenset({"application/pdf", "image/jpeg", "image/png", "image/webp", "text/plain"})
"""What Gemini 3 takes inside a function's response; other files, such as sound, follow the results."""


class GeminiContents:
    """Writes messages for one model.

    Args:
        origin: What messages of this model are marked with; signatures, thinking and opaque parts go back to no other.
        is_third_generation: Whether the model wants signatures on calls and takes files inside results.
    """

    def __init__(self, *, origin: str, is_third_generation: bool) -> None:
        self._origin = origin
        self._is_third_generation = is_third_generation

    def encode(self, message: Message) -> bytes:
        """Return a message as contents joined by commas: none, one, or (files after results) two."""
        return b",".join(to_json({"role": role, "parts": parts}) for role, parts in self._contents(message))

    def _contents(self, message: Message) -> Iterator[tuple[str, list[_Wire]]]:
        match message.role:
            case "user":
                # A part without words is refused, and so is a content without parts.
                yield "user", list(_user_parts(message.parts)) or [{"text": " "}]
            case "assistant":
                if parts := self._model_parts(message):
                    yield "model", parts
            case "tool":
                yield from self._results(message.results)

    def _model_parts(self, message: Message) -> list[_Wire]:
        is_own = message.origin == self._origin
        parts = [wire for part in message.parts if (wire := _model_part(part, is_own=is_own)) is not None]
        first_call = next((wire for wire in parts if "functionCall" in wire), None)
        if self._is_third_generation and first_call is not None:
            first_call.setdefault("thoughtSignature", _UNSIGNED)
        return parts

    def _results(self, results: tuple[Result, ...]) -> Iterator[tuple[str, list[_Wire]]]:
        if not results:
            return
        # All results of a step stand in one content, or the vendor counts too few of them.
        yield "user", [self._result(result) for result in results]
        following = [part for result in results for part in self._attachments(result)]
        if following:
            yield "user", following

    def _result(self, result: Result) -> _Wire:
        # The id is optional, and always sent: it tells two calls of one name apart. Servers without ids take any.
        response: _Wire = {
            "name": gemini_name(result.name),
            "response": _response(result),
            "id": wire_id(result.call_id),
        }
        if inside := [_media(media) for media in result.media if self._goes_inside(media)]:
            response["parts"] = inside
        return {"functionResponse": response}

    def _attachments(self, result: Result) -> Iterator[_Wire]:
        outside = [_media(media) for media in result.media if not self._goes_inside(media)]
        if outside:
            yield {"text": f"Attached to the result of {gemini_name(result.name)} ({wire_id(result.call_id)}):"}
            yield from outside

    def _goes_inside(self, media: Media) -> bool:
        return self._is_third_generation and media.base64 is not None and media.media_type in _RESULT_MEDIA


def _user_parts(parts: tuple[Part, ...]) -> Iterator[_Wire]:
    for part in parts:
        match part:
            case Text(text) if text:
                yield {"text": text}
            case Media():
                yield _media(part)


def _model_part(part: Part, *, is_own: bool) -> _Wire | None:
    """Return a part of the model's message; None for what this model cannot take."""
    match part:
        case Text() if part.text or (part.signature is not None and is_own):
            return _signed({"text": part.text}, part.signature, is_own=is_own)
        case Thinking() if is_own:
            return _signed({"text": part.text, "thought": True}, part.signature, is_own=is_own)
        case ToolCall():
            return _signed({"functionCall": _call(part)}, part.signature, is_own=is_own)
        case Media():
            return _media(part)
        case Opaque(provider=provider, payload=dict() as payload) if is_own and provider == PROVIDER:
            # What was said about the answer as a whole, such as its sources, is no part and does not go back.
            return None if payload.keys() & ABOUT_THE_ANSWER else payload
        case _:
            return None


def _signed(wire: _Wire, signature: str | None, *, is_own: bool) -> _Wire:
    return {**wire, "thoughtSignature": signature} if signature is not None and is_own else wire


def _call(call: ToolCall) -> _Wire:
    return {"name": gemini_name(call.name), "args": _arguments(call.arguments), "id": wire_id(call.id)}


def _arguments(raw: str) -> msgspec.Raw:
    """Return the arguments as an object in which every name stands once, as the vendor's parser wants it."""
    sendable = sendable_arguments(raw)
    try:
        return msgspec.Raw(to_json(msgspec.json.decode(sendable)))
    except RecursionError:
        return msgspec.Raw(sendable.encode())


def _response(result: Result) -> _Wire:
    """Return the result as the object that the vendor wants: `output` and `error` are its words for what is none."""
    value = _structure(result.content)
    if result.is_error:
        return {"error": result.content if value is None else value}
    if isinstance(value, dict):
        return value
    return {"output": result.content if value is None else value}


def _structure(content: str) -> Mapping[str, Any] | list[Any] | None:
    """Return the object or the list that a text is; None for words."""
    # The vendor takes any "$ref" in a response for one of its files, and refuses the request when there is none: so it stays text.
    if not content.lstrip().startswith(("{", "[")) or '"$ref"' in content:
        return None
    try:
        value = msgspec.json.decode(content)
        to_json(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _media(media: Media) -> _Wire:
    if media.base64 is not None:
        return {"inlineData": {"mimeType": media.media_type, "data": media.base64}}
    if media.url is not None:
        return {"fileData": {"mimeType": media.media_type, "fileUri": media.url}}
    return {"text": f"[{media.media_type}: {media.name or 'no content'}]"}
