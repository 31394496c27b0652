"""Cohere, outward: the messages of a history. Knows no request."""

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from treadle.messages import Media, Message, Opaque, Part, Result, Text, Thinking, ToolCall
from treadle.providers.payload.bodies import sendable_arguments
from treadle.providers.payload.contents import data_url, in_words, user_content
from treadle.providers.payload.encoded import to_json
from treadle.providers.payload.names import wire_id, wire_name

__all__ = ["PROVIDER", "CohereMessages"]

PROVIDER = "cohere"
"""Marks the items that only this dialect understands."""

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_PLAIN_ID = re.compile(r"[!-~]{1,256}")
"""The vendor's own ids begin with the name of the tool, so they may be long."""
_PLAN = "PLAN"
"""The type of a citation in what is said before calls."""
_NOTHING = "(no output)"
_SILENCE = "(empty message)"

_objects = msgspec.json.Decoder(dict[str, Any])


class CohereMessages:
    """Writes the messages for one model.

    Args:
        origin: What messages of this model are marked with; thinking and citations go back to no other.
        sends_thinking: Whether earlier thinking goes back. The vendor refuses it where thinking is switched off.
    """

    def __init__(self, *, origin: str, sends_thinking: bool) -> None:
        self._origin = origin
        self._sends_thinking = sends_thinking

    def encode(self, message: Message) -> bytes:
        """Return the wire's messages of one message, joined by commas; nothing for an assistant that said nothing."""
        match message.role:
            case "assistant":
                wire = self._assistant(message)
                return to_json(wire) if len(wire) > 1 else b""
            case "tool":
                return b",".join(map(to_json, _results(message.results)))
            case "user":
                content = user_content(message, text=_text, media=_media)
                return to_json({"role": "user", "content": content or _SILENCE})

    def _assistant(self, message: Message) -> _Wire:
        is_own = message.origin == self._origin
        said = list(self._said(message, is_own=is_own))
        wire: _Wire = {"role": "assistant"}
        if calls := [_call(call) for call in message.calls]:
            # The vendor takes no text beside calls: what was said there is the plan.
            if plan := message.text:
                wire["tool_plan"] = plan
            said = [(part, block) for part, block in said if not isinstance(part, Text)]
            wire["tool_calls"] = calls
        if said:
            wire["content"] = [block for _, block in said]
        if is_own and (cited := list(_citations(message, [part for part, _ in said]))):
            wire["citations"] = cited
        return wire

    def _said(self, message: Message, *, is_own: bool) -> Iterator[tuple[Part, _Wire]]:
        """Yield each part that is content, and its block."""
        for part in message.parts:
            match part:
                case Text() if part.text:
                    yield part, _text(part.text)
                case Thinking() if is_own and self._sends_thinking and part.text:
                    yield part, {"type": "thinking", "thinking": part.text}
                case Opaque() if is_own and part.provider == PROVIDER:
                    yield part, part.payload
                case _:
                    pass


def _citations(message: Message, sent: list[Part]) -> Iterator[_Wire]:
    """Yield what is cited in what goes back. The place of a block that a citation names is the one in this request."""
    for part in message.parts:
        if not isinstance(part, Text | Thinking):
            continue
        place = next((place for place, one in enumerate(sent) if one is part), None)
        for cited in _cited(part):
            if place is not None or cited.get("type") == _PLAN:
                yield {**cited, "content_index": place} if "content_index" in cited and place is not None else cited


def _cited(part: Text | Thinking) -> list[_Wire]:
    try:
        held = _objects.decode(part.signature or "{}").get("citations")
    except msgspec.DecodeError:
        return []
    return [one for one in held if isinstance(one, dict)] if isinstance(held, list) else []


def _call(call: ToolCall) -> _Wire:
    function = {"name": wire_name(call.name), "arguments": sendable_arguments(call.arguments)}
    return {"id": _id(call.id), "type": "function", "function": function}


def _results(results: tuple[Result, ...]) -> Iterator[_Wire]:
    for result in results:
        yield {
            "role": "tool",
            "tool_call_id": _id(result.call_id),
            "content": result.content if result.content.strip() else _NOTHING,
        }
    # Tool messages carry text and documents only; and they must follow their calls without another message between them.
    if shown := [result for result in results if result.media]:
        yield {"role": "user", "content": [part for result in shown for part in _attachments(result)]}


def _attachments(result: Result) -> Iterator[_Wire]:
    yield _text(f"Attached to the result of {result.name} ({_id(result.call_id)}):")
    yield from map(_media, result.media)


def _text(text: str) -> _Wire:
    return {"type": "text", "text": text}


def _media(media: Media) -> _Wire:
    """Return a picture. The dialect carries no other media: the model is told of them at least."""
    if media.media_type.startswith("image/") and (url := data_url(media) or media.url):
        return {"type": "image_url", "image_url": {"url": url}}
    return _text(in_words(media))


def _id(call_id: str) -> str:
    return wire_id(call_id, plain=_PLAIN_ID)
