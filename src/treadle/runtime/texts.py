"""Texts: what a model wrote, made such that every journal and wire can hold it. Changes nothing that is text already."""

import msgspec

from treadle.messages import Part, Text, Thinking, ToolCall

__all__ = ["encodable", "encodable_call", "encodable_part"]


def encodable(words: str) -> str:
    """Join surrogate pairs that were streamed in halves, and replace halves without their other half."""
    if words.isascii():
        return words
    try:
        words.encode()
    except UnicodeEncodeError:
        return words.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return words


def encodable_part(part: Part) -> Part:
    """Return the part with words that can be stored."""
    match part:
        case ToolCall():
            return encodable_call(part)
        case Text() | Thinking():
            words = encodable(part.text)
            return part if words is part.text else msgspec.structs.replace(part, text=words)
        case _:
            return part


def encodable_call(call: ToolCall) -> ToolCall:
    """Write half a surrogate pair as its escape: so the arguments stay what they are, invalid, and never run mended."""
    if call.arguments.isascii() and call.name.isascii():
        return call
    return msgspec.structs.replace(call, name=_escaped(call.name), arguments=_escaped(call.arguments))


def _escaped(words: str) -> str:
    return words.encode("utf-8", "backslashreplace").decode()
