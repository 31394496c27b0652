"""Responses, inward: one output item to the parts of a message. Does no I/O, and knows no event.

What an item holds beside its words (its id, its phase, a namespace) travels in the part's signature, so that the model that wrote
it gets back what it wrote. To any other model it means nothing, and is not sent.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from treadle.messages import Media, Opaque, Part, Text, Thinking, ToolCall
from treadle.providers.payload.encoded import to_json
from treadle.providers.payload.lenient import arguments_text, call_arguments, decode, text_or_nothing

__all__ = ["PROVIDER", "Item", "is_refusal", "message_text", "parts_of", "read_item", "thinking_text"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object of the wire

PROVIDER = "openai"
"""What this dialect's opaque parts are marked with."""


class _Raw(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"null")


_raws = msgspec.json.Decoder(_Raw)
_objects = msgspec.json.Decoder(dict[str, Any])


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One output item as it came."""

    value: _Wire
    arguments: str = ""
    """The text of a function call's arguments: what the model wrote, even where a server sends an object for it."""

    @property
    def kind(self) -> str:
        return text_or_nothing(self.value.get("type"))

    @property
    def id(self) -> str:
        return text_or_nothing(self.value.get("id"))

    @property
    def call_id(self) -> str:
        """What names a function call, whatever its item's id; nothing for another item."""
        return text_or_nothing(self.value.get("call_id")) if self.kind == "function_call" else ""

    @property
    def name(self) -> str:
        return text_or_nothing(self.value.get("name"))

    @property
    def is_open(self) -> bool:
        """Whether the item itself says that it is not whole."""
        return self.value.get("status") in ("incomplete", "in_progress")


def read_item(raw: msgspec.Raw) -> Item:
    """Read an item.

    Raises:
        ModelResponseInvalid: It is not a JSON object.
    """
    data = bytes(raw)
    value = decode(data, _objects)
    is_call = value.get("type") == "function_call"
    return Item(value=value, arguments=arguments_text(decode(data, _raws).arguments) if is_call else "")


def parts_of(item: Item, names: Mapping[str, str], position: int) -> list[Part]:
    """Return the parts that an item makes."""
    value = item.value
    match item.kind:
        case "":
            return []
        case "message":
            return _message_parts(value)
        case "reasoning":
            return [Thinking(text=thinking_text(value), payload=value)]
        case "function_call":
            name = item.name
            call_id = item.call_id or item.id or f"call_{position}"
            rest = _without(value, "type", "call_id", "name", "arguments")
            return [
                ToolCall(
                    id=call_id,
                    name=names.get(name, name),
                    arguments=call_arguments([item.arguments]),
                    signature=_signature(rest),
                )
            ]
        case "image_generation_call":
            return [Opaque(provider=PROVIDER, payload=value), *_image(value)]
        case _:
            return [Opaque(provider=PROVIDER, payload=value)]


def message_text(value: Mapping[str, Any]) -> str:
    """Return the words of a message, those of a refusal included."""
    return "".join(
        text_or_nothing(piece.get("text")) or text_or_nothing(piece.get("refusal"))
        for piece in _pieces(value, "content")
    )


def is_refusal(value: Mapping[str, Any]) -> bool:
    return any(piece.get("type") == "refusal" for piece in _pieces(value, "content"))


def thinking_text(value: Mapping[str, Any]) -> str:
    """Return the summary of the reasoning, or, from servers that show it, the reasoning itself."""
    summaries = [text_or_nothing(piece.get("text")) for piece in _pieces(value, "summary")]
    shown = [text_or_nothing(piece.get("text")) for piece in _pieces(value, "content")]
    return "\n\n".join(filter(None, summaries)) or "".join(shown)


def _message_parts(value: _Wire) -> list[Part]:
    content = list(_pieces(value, "content"))
    is_plain = len(content) == 1 and content[0].get("type") == "output_text"
    rest = _without(value, "type", "role", "content") if is_plain else _without(value, "type", "role")
    if is_plain and (annotations := content[0].get("annotations")):
        rest["annotations"] = annotations
    said = message_text(value)
    return [Text(said, _signature(rest))] if said else []


def _image(value: Mapping[str, Any]) -> Iterator[Part]:
    result = value.get("result")
    if isinstance(result, str) and result:
        kind = text_or_nothing(value.get("output_format")) or "png"
        yield Media(media_type=f"image/{kind}", base64=result)


def _pieces(value: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    pieces = value.get(key)
    for piece in pieces if isinstance(pieces, list) else ():
        if isinstance(piece, dict):
            yield piece


def _without(value: _Wire, *names: str) -> _Wire:
    return {name: one for name, one in value.items() if name not in names}


def _signature(rest: _Wire) -> str | None:
    return to_json(rest).decode() if rest else None
