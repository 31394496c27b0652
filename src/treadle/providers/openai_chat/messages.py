"""Chat Completions, outward: the messages of a history, as one server takes them. Knows no request."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from treadle.messages import Media, Message, Result, Text, Thinking, ToolCall
from treadle.providers.payload.bodies import sendable_arguments
from treadle.providers.payload.contents import data_url, in_words, user_content
from treadle.providers.payload.encoded import EncodedMessages, to_json
from treadle.providers.payload.names import id_pattern, wire_id, wire_name

__all__ = ["ChatMessages"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class ChatMessages:
    """Writes the messages for one model, each once.

    Args:
        origin: What messages of this model are marked with; signatures and thinking go back to no other.
        thinking_field: Where earlier reasoning goes back, in every message of the model; None to keep it.
        call_id: A pattern of the ids that the server takes, or None for the dialect's.
        bridge: What the model is made to say between results and a user's message, and in place of nothing; None where the
            server takes both.

    Raises:
        ConfigurationError: No id can be made that fits the pattern.
    """

    def __init__(self, *, origin: str, thinking_field: str | None, call_id: str | None, bridge: str | None) -> None:
        self._origin = origin
        self._thinking_field = thinking_field
        self._plain_id = id_pattern(call_id)
        self._silence = bridge or ""
        self._bridge = Message(role="assistant", parts=(Text(bridge),)) if bridge else None
        self._encoded = EncodedMessages(self._encode)

    def body(self, head: bytes, messages: Sequence[Message], *, session_id: str) -> bytes:
        """Return the body of a request: its head, the messages and its end. See `EncodedMessages.body`."""
        sent = messages if self._bridge is None else list(_bridged(messages, self._bridge))
        return self._encoded.body(head, sent, session_id=session_id)

    def _encode(self, message: Message) -> bytes:
        match message.role:
            case "user":
                return to_json({"role": "user", "content": user_content(message, text=_text, media=_media)})
            case "assistant":
                return to_json(self._assistant(message))
            case "tool":
                return b",".join(map(to_json, self._results(message.results)))

    def _assistant(self, message: Message) -> _Wire:
        is_own = message.origin == self._origin
        wire: _Wire = {"role": "assistant"}
        calls = [self._call(call, is_own=is_own) for call in message.calls]
        # Content may be absent only beside calls.
        if (text := message.text) or not calls:
            wire["content"] = text or self._silence
        thoughts = [part for part in message.parts if isinstance(part, Thinking)] if is_own else []
        if self._thinking_field is not None:
            # Who wants it refuses a message without it, whoever wrote that; an empty one is taken.
            wire[self._thinking_field] = "".join(thought.text for thought in thoughts)
        if details := [detail for thought in thoughts for detail in _details(thought)]:
            wire["reasoning_details"] = details
        if calls:
            wire["tool_calls"] = calls
        return wire

    def _call(self, call: ToolCall, *, is_own: bool) -> _Wire:
        function = {"name": wire_name(call.name), "arguments": sendable_arguments(call.arguments)}
        wire: _Wire = {"id": self._id(call.id), "type": "function", "function": function}
        if call.signature is not None and is_own:
            # Gemini's compatible endpoint refuses a history whose calls have lost their signatures.
            wire["extra_content"] = {"google": {"thought_signature": call.signature}}
        return wire

    def _results(self, results: tuple[Result, ...]) -> Iterator[_Wire]:
        for result in results:
            yield {"role": "tool", "tool_call_id": self._id(result.call_id), "content": result.content}
        # Tool messages carry text only; and they must follow their calls without another message between them.
        shown = [result for result in results if result.media]
        if shown and self._bridge is not None:
            yield self._assistant(self._bridge)
        if shown:
            yield {"role": "user", "content": [part for result in shown for part in self._attachments(result)]}

    def _attachments(self, result: Result) -> Iterator[_Wire]:
        yield _text(f"Attached to the result of {result.name} ({self._id(result.call_id)}):")
        for media in result.media:
            yield _media(media)

    def _id(self, call_id: str) -> str:
        return wire_id(call_id, plain=self._plain_id)


def _bridged(messages: Sequence[Message], bridge: Message) -> Iterator[Message]:
    """Yield the messages, with the bridge wherever a user's would follow results."""
    yield from messages[:1]
    for earlier, later in pairwise(messages):
        if earlier.role == "tool" and later.role == "user":
            yield bridge
        yield later


def _details(thought: Thinking) -> list[Any]:
    """Return the gateway's own form of a thought, as it came; nothing where it came without."""
    match thought.payload:
        case {"reasoning_details": list(details)}:
            return details
        case _:
            return []


def _text(text: str) -> _Wire:
    return {"type": "text", "text": text}


def _media(media: Media) -> _Wire:
    data = data_url(media)
    if media.media_type.startswith("image/") and (url := data or media.url):
        return {"type": "image_url", "image_url": {"url": url}}
    if media.media_type in _AUDIO_FORMATS and media.base64 is not None:
        audio = {"data": media.base64, "format": _AUDIO_FORMATS[media.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    if data is not None:
        return {"type": "file", "file": {"filename": media.name or "attachment", "file_data": data}}
    # The dialect has no file by address: the model is told of it at least.
    return _text(in_words(media))
