"""Bodies: what the request bodies of all dialects have in common: options, tools written once, arguments fit to send. Knows no dialect."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.ports import ToolSpec
from treadle.providers.payload.encoded import to_json
from treadle.providers.payload.names import own_names, wire_name

__all__ = ["ToolSet", "ToolSets", "opening", "sendable_arguments", "server_tools"]

_MAX_BROKEN_CHARS = 2_000
_MAX_TOOL_SETS = 64


class ToolSet(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a request, written."""

    tools: tuple[ToolSpec, ...]
    """Kept, so that their id stays their own."""
    encoded: bytes
    """A JSON array, sorted by name."""
    own_names: Mapping[str, str]
    """Our names of those that had to be renamed for the wire."""


class ToolSets:
    """Tools as bytes, each tuple of them written once.

    Args:
        write: Returns one tool as the dialect's JSON value.
        name: Returns a tool's name in the letters that the dialect takes.
    """

    def __init__(self, write: Callable[[ToolSpec], Any], *, name: Callable[[str], str] = wire_name) -> None:
        self._write = write
        self._name = name
        self._known: dict[int, ToolSet] = {}

    def of(self, tools: tuple[ToolSpec, ...]) -> ToolSet:
        known = self._known.get(id(tools))
        if known is None:
            if len(self._known) >= _MAX_TOOL_SETS:
                self._known.clear()
            in_order = sorted(tools, key=lambda spec: spec.name)
            known = self._known[id(tools)] = ToolSet(
                tools=tools,
                encoded=to_json([self._write(spec) for spec in in_order]),
                own_names=own_names((spec.name for spec in tools), self._name),
            )
        return known


def opening(fields: Mapping[str, Any], options: Mapping[str, Any], *, ours: AbstractSet[str]) -> bytes:
    """Return the beginning of a body, without its last brace: the dialect's own fields and the person's options.

    Args:
        fields: What the dialect sends by itself; an option of that name replaces it, and one that is None takes it away.
        options: Further fields.
        ours: Fields that come from the request; an option may not set them.

    Raises:
        ConfigurationError: An option is not valid JSON, or names a field of ours.
    """
    if taken := ours & options.keys():
        raise ConfigurationError(
            f"The model's options must not contain {', '.join(sorted(taken))}: Treadle sets this in each request."
        )
    chosen = {name: value for name, value in {**fields, **options}.items() if value is not None}
    try:
        encoded = to_json(chosen)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ConfigurationError(f"The model's options are not plain JSON: {exc}.") from exc
    return encoded.removesuffix(b"}")


def server_tools(given: Any, *, example: str, is_function: Callable[[Mapping[str, Any]], bool]) -> bytes:
    """Return the option `server_tools`, the tools that the server runs by itself: written, without the brackets.

    Args:
        given: The option's value; None or an empty list for no such tool.
        example: What one looks like in the dialect, for the message.
        is_function: Whether one of them is a function: those are the agent's own tools.

    Raises:
        ConfigurationError: It is not a list of objects, or one of them is a function.
    """
    tools = [] if given is None else given
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Mapping) and tool for tool in tools):
        raise ConfigurationError(
            f"The option server_tools must be a list of objects such as {example}; got {shown(given)}."
        )
    if any(map(is_function, tools)):
        raise ConfigurationError("The option server_tools holds a function: give functions to the agent as its tools.")
    written = opening({}, {"tools": list(tools)}, ours=frozenset())
    return written.removeprefix(b'{"tools":[').removesuffix(b"]")


def sendable_arguments(raw: str) -> str:
    """Return the arguments as the model wrote them; broken ones inside an object, since servers parse the history too.

    llama.cpp answers 500 to arguments that are not valid JSON. The call's result tells the model what was wrong with them.
    """
    if not raw.strip():
        return "{}"
    try:
        if isinstance(msgspec.json.decode(raw), dict):
            return raw
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    return to_json({"_invalid": raw[:_MAX_BROKEN_CHARS]}).decode()
