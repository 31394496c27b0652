"""Outputs: the faces of what a tool returned: data, media, words for people. Checks no contract and bounds nothing."""

import base64
from typing import Any

import msgspec

from treadle.messages import Media
from treadle.tools import ToolOutput

__all__ = ["fault_of", "output_of"]


def output_of(value: Any) -> ToolOutput:
    """Give every value its faces: bytes become an object that holds them whole and says their size (M11)."""
    match value:
        case ToolOutput():
            return value
        case bytes() | bytearray() | memoryview():
            content = bytes(value)
            return ToolOutput(data={"base64": base64.b64encode(content).decode(), "size": len(content)})
        case Media():
            return ToolOutput(data={"media_type": value.media_type, "name": value.name}, media=(value,))
        case _:
            return ToolOutput(data=value)


def fault_of(output: ToolOutput) -> str | None:
    """Say what is wrong with the faces beside the data, or None. A journal must be able to read them again."""
    if output.display is None and output.media == ():
        return None
    try:
        msgspec.json.decode(msgspec.json.encode((output.display, output.media)), type=_Faces)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return f"display must be text and media a tuple of Media: {error}"
    return None


_Faces = tuple[str | None, tuple[Media, ...]]
