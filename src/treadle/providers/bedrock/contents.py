"""Bedrock Converse, outward: the content blocks of one message. Knows no request, and nothing of the other messages."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from treadle.messages import Media, Message, Opaque, Result, Text, Thinking, ToolCall
from treadle.providers.bedrock.families import Family
from treadle.providers.payload.bodies import sendable_arguments
from treadle.providers.payload.names import wire_id, wire_name

__all__ = ["PROVIDER", "blocks_of", "is_provable"]

PROVIDER = "bedrock"
"""Marks the items that only this dialect understands."""

_Block: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_objects = msgspec.json.Decoder(dict[str, Any])

_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_IMAGES = {"image/gif": "gif", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/png": "png", "image/webp": "webp"}
_VIDEOS = {
    "video/mp4": "mp4",
    "video/mpeg": "mpeg",
    "video/quicktime": "mov",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/x-matroska": "mkv",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
_DOCUMENTS = {
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/plain": "txt",
}
_STRANGE = re.compile(r"[^a-zA-Z0-9()\[\]-]+")
"""What no document's name may hold; single blanks may stand between the words."""


def blocks_of(message: Message, *, origin: str, family: Family) -> list[_Block]:
    """Return the blocks of a message: results in call order for a step, none for an assistant that said nothing.

    Args:
        origin: Signatures, thinking and the provider's own items go back to the model that made them and to no other.
        family: What the model takes.
    """
    match message.role:
        case "assistant":
            return list(_assistant(message, is_own=message.origin == origin))
        case "tool":
            return [_result(result, family) for result in message.results]
        case "user":
            return _user(message)


def is_provable(part: Thinking) -> bool:
    """Whether the vendor takes a thought back: a signed one, or one that it sealed. Models that sign none refuse theirs."""
    return bool(part.signature) or isinstance(part.payload, dict)


def _assistant(message: Message, *, is_own: bool) -> Iterator[_Block]:
    for part in message.parts:
        match part:
            case Text() if part.text.strip():  # a text of blanks is refused
                yield _said(part, is_own=is_own)
            case Thinking() if is_own and is_provable(part):
                yield _thinking(part)
            case ToolCall():
                arguments = msgspec.json.decode(sendable_arguments(part.arguments))
                yield {"toolUse": {"toolUseId": _id(part.id), "name": wire_name(part.name), "input": arguments}}
            case Opaque() if is_own and part.provider == PROVIDER:
                yield part.payload
            case _:
                pass


def _said(part: Text, *, is_own: bool) -> _Block:
    """Return a text, with what it cites where this model wrote it."""
    try:
        held = _objects.decode(part.signature) if is_own and part.signature is not None else {}
    except msgspec.DecodeError:
        held = {}
    if isinstance(cited := held.get("citations"), list) and cited:
        return {"citationsContent": {"content": [{"text": part.text}], "citations": cited}}
    return {"text": part.text}


def _thinking(part: Thinking) -> _Block:
    if part.payload is not None:
        payload: _Block = part.payload
        return payload
    return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}


def _result(result: Result, family: Family) -> _Block:
    content = [_told(result.content)] if result.content.strip() else []
    # An error may hold text only.
    show = _mention if result.is_error else _media
    content += [show(media, salt=f"{result.call_id}/{place}") for place, media in enumerate(result.media)]
    block: _Block = {"toolUseId": _id(result.call_id), "content": content or [{"text": "(no output)"}]}
    if result.is_error and family.takes_status:
        block["status"] = "error"
    return {"toolResult": block}


def _told(content: str) -> _Block:
    """Return what a tool said: an object as JSON, in the tool's own bytes, and anything else as text."""
    if content.lstrip().startswith("{"):
        try:
            encoded = content.encode()
            if isinstance(msgspec.json.decode(encoded), dict):
                return {"json": msgspec.Raw(encoded)}
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
    return {"text": content}


def _user(message: Message) -> list[_Block]:
    blocks: list[_Block] = []
    for place, part in enumerate(message.parts):
        match part:
            case Text() if part.text.strip():
                blocks.append({"text": part.text})
            case Media():
                blocks.append(_media(part, salt=f"{message.text}/{place}"))
            case _:
                pass
    if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
        blocks.append({"text": "(The document is attached.)"})  # a document may not stand alone
    # A user's turn may not be empty, and dropping it would change who speaks.
    return blocks or [{"text": "(empty message)"}]


def _media(media: Media, *, salt: str) -> _Block:
    kind = media.media_type.partition(";")[0].strip().lower()
    source = _source(media)
    if source is None:
        return _mention(media, salt=salt)
    if kind in _IMAGES:
        return {"image": {"format": _IMAGES[kind], "source": source}}
    if kind in _VIDEOS:
        return {"video": {"format": _VIDEOS[kind], "source": source}}
    if kind in _DOCUMENTS:
        return {"document": {"format": _DOCUMENTS[kind], "name": _name(media, salt), "source": source}}
    return _mention(media, salt=salt)


def _mention(media: Media, *, salt: str) -> _Block:
    """Tell the model of what it cannot be shown."""
    return {"text": f"[{media.media_type}: {media.url or media.name or 'not shown'}]"}


def _source(media: Media) -> _Block | None:
    """Return where a file is; None for an address outside of the vendor's own store, which it does not fetch."""
    if media.base64:
        return {"bytes": media.base64}
    if media.url is not None and media.url.startswith("s3://"):
        return {"s3Location": {"uri": media.url}}
    return None


def _name(media: Media, salt: str) -> str:
    """Return a document's name in the letters that the vendor takes; no two documents of a request may share one."""
    said = _STRANGE.sub(" ", (media.name or "document").rpartition(".")[0] or media.name or "document").strip()
    digest = hashlib.sha256(f"{salt}/{media.name}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{said[:100] or 'document'} {digest[:12]}"


def _id(call_id: str) -> str:
    return wire_id(call_id, plain=_PLAIN_ID)
