"""Gemini's contents: neutral messages in the dialect's parts. Sends nothing, knows no request around them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from treadle.messages import Media, Message, Opaque, Part, Result, Text, Thinking, ToolCall
from treadle.providers.gemini.names import gemini_name
from treadle.providers.payload.bodies import sendable_arguments
from treadle.providers.payload.encoded import EncodedMessages, to_json
from treadle.providers.payload.names import wire_id

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

_MODEL = b'{"role":"model","parts":['
_NOBODY = b'{"role":"user","parts":[{"text":"Continue."}]}'
"""Stands where the vendor wants a person's words and there are none: before the model's first words, and after its last."""

_MAX_BROKEN_CHARS = 2_000

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
        self._encoded = EncodedMessages(self._encode)

    def write(self, messages: Iterable[Message]) -> bytes:
        """Return the messages as contents joined by commas. Each message is encoded once, however often it is sent."""
        contents: list[bytes] = []
        pieces: list[bytes] = []
        for message in messages:
            for piece in self._encoded.pieces((message,)):
                if message.role == "assistant":
                    pieces.append(piece)
                    continue
                contents += _model_content(pieces)
                contents.append(piece)
                pieces = []
        return b",".join(_between_people([*contents, *_model_content(pieces)]))

    def _encode(self, message: Message) -> bytes:
        """Return a message as contents; of the model's only the parts, since its neighbours share one content."""
        match message.role:
            case "user":
                # A part without words is refused, and so is a content without parts.
                return _content(list(_user_parts(message.parts)) or [{"text": " "}])
            case "assistant":
                return to_json(self._model_parts(message))[1:-1]
            case "tool":
                return b",".join(map(_content, self._results(message.results)))

    def _model_parts(self, message: Message) -> list[_Wire]:
        is_own = message.origin == self._origin
        parts = [wire for part in message.parts if (wire := _model_part(part, is_own=is_own)) is not None]
        first_call = next((wire for wire in parts if "functionCall" in wire), None)
        if self._is_third_generation and first_call is not None:
            first_call.setdefault("thoughtSignature", _UNSIGNED)
        return parts

    def _results(self, results: tuple[Result, ...]) -> Iterator[list[_Wire]]:
        """Yield the parts of one content of results, and of one with the files that these cannot hold."""
        # All results of a step stand in one content, or the vendor counts too few of them.
        if results:
            yield [self._result(result) for result in results]
        following = [part for result in results for part in self._attachments(result)]
        if following:
            yield following

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


def _content(parts: list[_Wire]) -> bytes:
    return to_json({"role": "user", "parts": parts})


def _model_content(pieces: list[bytes]) -> list[bytes]:
    return [_MODEL + b",".join(pieces) + b"]}"] if pieces else []


def _between_people(contents: list[bytes]) -> list[bytes]:
    """Return contents that begin and end with a person's words or with results: nothing else may stand around a call."""
    opening = [_NOBODY] if contents and contents[0].startswith(_MODEL) else []
    ending = [_NOBODY] if contents and contents[-1].startswith(_MODEL) else []
    return [*opening, *contents, *ending]


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
        case Thinking() if is_own and (part.text or part.signature is not None):
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


def _arguments(raw: str) -> _Wire:
    """Return the arguments as an object in which every name stands once, as the vendor's parser wants it."""
    arguments: _Wire = msgspec.json.decode(sendable_arguments(raw))
    return arguments if _can_be_written(arguments) else {"_invalid": raw[:_MAX_BROKEN_CHARS]}


def _response(result: Result) -> _Wire:
    """Return the result as the object that the vendor wants: `output` and `error` are its keys for any other value."""
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
        value: _Wire | list[Any] = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if _can_be_written(value) else None


def _can_be_written(value: Any) -> bool:
    """Return whether a value that could be read can be written too, some levels deeper: both stop at a depth of about 1,000."""
    try:
        to_json([[[[[[[[value]]]]]]]])
    except RecursionError:
        return False
    return True


def _media(media: Media) -> _Wire:
    if media.base64 is not None:
        return {"inlineData": {"mimeType": media.media_type, "data": media.base64}}
    if media.url is not None:
        return {"fileData": {"mimeType": media.media_type, "fileUri": media.url}}
    return {"text": f"[{media.media_type}: {media.name or 'no content'}]"}
