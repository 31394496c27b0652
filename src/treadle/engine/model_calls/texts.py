"""Texts: what a model wrote, made such that every journal and wire can hold it. Changes nothing that is text already."""

import msgspec

from treadle.messages import Message, Part, Text, Thinking, ToolCall
from treadle.validation.characters import damaged_json, is_damaged, joined
from treadle.validation.characters import repaired as encodable

__all__ = ["encodable", "encodable_call", "encodable_message", "encodable_part"]


def encodable_part(part: Part) -> Part:
    """Return the part with words that can be stored."""
    match part:
        case ToolCall():
            return encodable_call(part)
        case Text() | Thinking():
            text = encodable(part.text)
            return part if text is part.text else msgspec.structs.replace(part, text=text)
        case _:
            return part


def encodable_message(message: Message) -> Message:
    """Return the message with words that can be stored."""
    return msgspec.structs.replace(message, parts=tuple(map(encodable_part, message.parts)))


def encodable_call(call: ToolCall) -> ToolCall:
    """Join characters that were streamed in pieces. Damaged arguments stay invalid: they never run as something else."""
    if call.arguments.isascii() and call.name.isascii():
        return call
    if not is_damaged(call.arguments) and not is_damaged(call.name):
        return call
    return msgspec.structs.replace(
        call, name=_escaped(joined(call.name)), arguments=damaged_json(joined(call.arguments))
    )


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
