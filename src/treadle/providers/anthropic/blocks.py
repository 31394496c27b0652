"""Anthropic Messages, outward: the content blocks of one message. Knows no request, and nothing of the other messages."""

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from treadle.messages import Media, Message, Opaque, Result, Text, Thinking, ToolCall
from treadle.providers.payload.bodies import sendable_arguments
from treadle.providers.payload.names import wire_id, wire_name

__all__ = ["PROVIDER", "blocks_of", "container_marker", "container_of", "is_provable"]

PROVIDER = "anthropic"
"""Marks the items that only this provider understands."""

_Block: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_CONTAINER = "treadle.container"

_objects = msgspec.json.Decoder(dict[str, Any])

_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})


def blocks_of(message: Message, *, origin: str) -> list[_Block]:
    """Return the blocks of a message: results in call order for a step, none for an assistant that said nothing.

    Args:
        origin: Signatures, thinking and the provider's own items go back to the model that made them and to no other.
    """
    match message.role:
        case "assistant":
            return list(_assistant(message, is_own=message.origin == origin))
        case "tool":
            return [_result(result) for result in message.results]
        case "user":
            # A user's turn may not be empty, and dropping it would change who speaks.
            return list(_user(message)) or [_text("(empty message)")]


def container_marker(container_id: str) -> Opaque:
    """Return the part that remembers in which of the vendor's containers a response waits. It is not a block, and not sent as one."""
    return Opaque(provider=PROVIDER, payload={"type": _CONTAINER, "id": container_id})


def container_of(message: Message, *, origin: str) -> str | None:
    """Return the id of the container in which a message waits; None where it waits in none."""
    if message.origin != origin:
        return None
    ids = [str(part.payload["id"]) for part in message.parts if isinstance(part, Opaque) and _is_marker(part)]
    return ids[-1] if ids else None


def _is_marker(part: Opaque) -> bool:
    return isinstance(part.payload, dict) and part.payload.get("type") == _CONTAINER


def _assistant(message: Message, *, is_own: bool) -> Iterator[_Block]:
    for part in message.parts:
        match part:
            case Text() if part.text.strip():  # a text of blanks is refused
                yield _said(part, is_own=is_own)
            case Thinking() if is_own and is_provable(part):
                yield _thinking(part)
            case ToolCall():
                yield _call(part, is_own=is_own)
            case Opaque() if is_own and part.provider == PROVIDER and not _is_marker(part):
                yield part.payload
            case _:
                pass


def _said(part: Text, *, is_own: bool) -> _Block:
    held = _held(part.signature).get("citations") if is_own else None
    cited = [one for one in held if isinstance(one, dict)] if isinstance(held, list) else []
    # The vendor tells the name of a file there, and refuses to be told it.
    sendable = [{name: value for name, value in one.items() if name != "file_id"} for one in cited]
    return {**_text(part.text), **({"citations": sendable} if sendable else {})}


def _held(signature: str | None) -> _Block:
    """Return the object that a signature is; an empty one where it is not one of ours, as in an imported history."""
    try:
        return _objects.decode(signature) if signature is not None else {}
    except msgspec.DecodeError:
        return {}


def is_provable(part: Thinking) -> bool:
    """Whether the vendor takes a thought back. It refuses what nobody signed: what a driver read from words, or a limit cut off."""
    return bool(part.signature) or part.payload is not None


def _thinking(part: Thinking) -> _Block:
    if part.payload is not None:
        payload: _Block = part.payload
        return payload
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _call(call: ToolCall, *, is_own: bool) -> _Block:
    arguments = msgspec.json.decode(sendable_arguments(call.arguments))
    block = {"type": "tool_use", "id": _id(call.id), "name": wire_name(call.name), "input": arguments}
    if is_own and (caller := _held(call.signature)):
        block["caller"] = caller
    return block


def _result(result: Result) -> _Block:
    block: _Block = {"type": "tool_result", "tool_use_id": _id(result.call_id)}
    if result.media:
        shown = [_text(result.content)] if result.content.strip() else []
        # An error may hold text only.
        block["content"] = [*shown, *map(_mention if result.is_error else _media, result.media)]
    elif result.content:
        block["content"] = result.content
    if result.is_error:
        block["is_error"] = True
    return block


def _user(message: Message) -> Iterator[_Block]:
    for part in message.parts:
        match part:
            case Text() if part.text.strip():
                yield _text(part.text)
            case Media():
                yield _media(part)
            case _:
                pass


def _text(text: str) -> _Block:
    return {"type": "text", "text": text}


def _media(media: Media) -> _Block:
    if media.media_type in _IMAGES and (source := _source(media)):
        return {"type": "image", "source": source}
    if media.media_type == "application/pdf" and (source := _source(media)):
        return _document(source, media)
    if media.media_type.startswith("text/") and (text := _words(media)):
        return _document({"type": "text", "media_type": "text/plain", "data": text}, media)
    return _mention(media)  # the dialect takes no other kind


def _mention(media: Media) -> _Block:
    """Tell the model of what it cannot be shown."""
    return _text(f"[{media.media_type}: {media.url or media.name or 'not shown'}]")


def _source(media: Media) -> _Block | None:
    if media.base64 is not None:
        return {"type": "base64", "media_type": media.media_type, "data": media.base64}
    return {"type": "url", "url": media.url} if media.url else None


def _words(media: Media) -> str:
    """Return the text of a text file; nothing where there is none to read."""
    try:
        text = b64decode(media.base64 or "").decode("utf-8", "replace")
    except ValueError:
        return ""
    return text if text.strip() else ""


def _document(source: _Block, media: Media) -> _Block:
    return {"type": "document", "source": source, **({"title": media.name} if media.name else {})}


def _id(call_id: str) -> str:
    """Return the id in the letters that the dialect takes; servers of others write `functions.grep:0`."""
    return wire_id(call_id, plain=_PLAIN_ID)
