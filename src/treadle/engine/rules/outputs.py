"""Outputs: the faces of what a tool returned: data, media, words for people. Checks no contract and bounds nothing."""

import base64
from typing import Any

import msgspec

from treadle.canonical import find_unencodable
from treadle.errors import shown
from treadle.messages import Media
from treadle.tools import ToolOutput

__all__ = ["fault_of", "output_of"]


def output_of(value: Any) -> tuple[ToolOutput, str | None]:
    """Give every value its faces: bytes become an object that holds them whole and says their size (M11).

    Returns:
        The faces, and why they cannot be read, or None. Never raises: looking at a stranger's object may raise anything.
    """
    try:
        return _output_of(value), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - as said above
        return ToolOutput(), f"$ cannot be read ({type(error).__name__})"


def _output_of(value: Any) -> ToolOutput:
    match value:
        case ToolOutput():
            return value if value.data is None else msgspec.structs.replace(value, data=_data_of(value.data))
        case Media():
            return ToolOutput(data={"media_type": value.media_type, "name": value.name}, media=(value,))
        case _:
            return ToolOutput(data=_data_of(value))


def _data_of(value: Any) -> Any:
    match value:
        case bytes() | bytearray() | memoryview():
            content = bytes(value)
            return {"base64": base64.b64encode(content).decode(), "size": len(content)}
        case _:
            return value


def fault_of(output: ToolOutput) -> str | None:
    """Say what is wrong with the faces beside the data, or None. A journal must be able to read them again."""
    if output.facts is not None and (fault := _fault_of_facts(output.facts)) is not None:
        return f"facts must be a JSON object: {fault}"
    if output.display is None and output.media is _NO_MEDIA:
        return None
    try:
        msgspec.json.decode(msgspec.json.encode((output.display, output.media)), type=_Faces)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return f"display must be text and media a tuple of Media: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - strangers' objects may raise anything
        return f"display must be text and media a tuple of Media: they cannot be read ({type(error).__name__})"
    return None


def _fault_of_facts(facts: object) -> str | None:
    if not isinstance(facts, dict):
        return f"got {shown(facts)}"
    return find_unencodable(facts)


_NO_MEDIA: tuple[Media, ...] = ()
_Faces = tuple[str | None, tuple[Media, ...]]
