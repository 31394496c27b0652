"""Cohere, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from treadle.errors import ConfigurationError, shown
from treadle.ports import ModelRequest, ToolSpec
from treadle.providers.cohere.messages import CohereMessages
from treadle.providers.payload.bodies import ToolSets, opening, server_tools
from treadle.providers.payload.encoded import EncodedMessages, to_json
from treadle.providers.payload.names import wire_name
from treadle.providers.payload.schemas import object_schema, with_schema

__all__ = ["CohereRequests"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({"messages", "model", "stream", "tool_choice", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""
_OWN_WORDS = ("server_tools", "strict_tools")
_MAX_STRICT_FIELDS = 200
"""Fields of all tools together that the vendor holds a model to."""


class CohereRequests:
    """Writes request bodies for one model.

    Args:
        model: As the server knows it.
        origin: What messages of this model are marked with; thinking and citations go back to no other.
        options: Further fields of the body; one that is None takes the field away. See `Cohere` for those with a meaning of their own.
        stream: Whether to ask for a stream.

    Raises:
        ConfigurationError: An option is not valid JSON, of another kind, or names a field that the request itself fills.
    """

    def __init__(self, model: str, *, origin: str, options: Mapping[str, Any], stream: bool) -> None:
        further = {name: value for name, value in options.items() if name not in _OWN_WORDS}
        self._opening = opening({"model": model, "stream": stream}, further, ours=_OURS)
        self._has_form = options.get("response_format") is not None
        self._has_documents = bool(options.get("documents"))
        self._is_strict = _flag(options.get("strict_tools"))
        self._server_tools = server_tools(
            options.get("server_tools"),
            example="{'type': 'web_search'}",
            is_function=lambda tool: tool.get("type") == "function",
        )
        messages = CohereMessages(origin=origin, sends_thinking=not _is_off(options.get("thinking")))
        self._messages = EncodedMessages(messages.encode)
        self._tools = ToolSets(_tool)

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least stands first, and the messages last: the bytes of one step begin those of the next."""
        head = [self._opening]
        if request.output_schema is not None and not self._tells_schema(request):
            form = {"type": "json_object", "json_schema": request.output_schema}
            head.append(b',"response_format":' + to_json(form))
        if tools := self._all_tools(request):
            head += [b',"tools":', tools]
            if self._is_strict and _can_be_strict(request.tools):
                head.append(b',"strict_tools":true')
            if request.tools and request.tool_choice != "auto":
                head.append(b',"tool_choice":"NONE"' if request.tool_choice == "none" else b',"tool_choice":"REQUIRED"')
        head.append(b',"messages":[')
        if instructions := self._instructions_of(request):
            head.append(to_json({"role": "system", "content": instructions}))
        return self._messages.body(b"".join(head), request.messages, session_id=request.session_id)

    def own_names(self, request: ModelRequest) -> Mapping[str, str]:
        """Return our names of those tools that had to be renamed for the wire."""
        return self._tools.of(request.tools).own_names if request.tools else {}

    def _all_tools(self, request: ModelRequest) -> bytes:
        """Return the tools as a JSON array, the server's own last; nothing where there are none."""
        offered = request.tools
        if request.tool_choice not in (
            "auto",
            "none",
            "required",
        ):  # the dialect demands any tool, and none by its name
            offered = tuple(spec for spec in offered if spec.name == request.tool_choice)
        ours = self._tools.of(offered).encoded if offered else b""
        if not self._server_tools:
            return ours
        return b"".join((ours[:-1] + b"," if ours else b"[", self._server_tools, b"]"))

    def _tells_schema(self, request: ModelRequest) -> bool:
        """Return whether the schema goes into the instructions: the vendor takes no form of answer beside tools or documents."""
        return bool(request.tools or self._server_tools or self._has_documents or self._has_form)

    def _instructions_of(self, request: ModelRequest) -> str:
        told = request.output_schema if self._tells_schema(request) else None
        return with_schema(request.instructions or "", told)


def _tool(spec: ToolSpec) -> _Wire:
    schema = object_schema(spec.parameters)
    function = {
        "name": wire_name(spec.name),
        "description": spec.description,
        "parameters": {"properties": {}, **schema},
    }
    return {"type": "function", "function": function}


def _can_be_strict(tools: tuple[ToolSpec, ...]) -> bool:
    """Whether the vendor can hold the model to these tools: each has a parameter that is required, and there are not too many."""
    schemas = [object_schema(spec.parameters) for spec in tools]
    fields = sum(map(_fields, schemas))
    return fields <= _MAX_STRICT_FIELDS and all(schema.get("required") for schema in schemas)


def _fields(schema: Any) -> int:
    """Return how many properties a schema has, those of the objects in it included."""
    if isinstance(schema, list):
        return sum(map(_fields, schema))
    if not isinstance(schema, dict):
        return 0
    properties = schema.get("properties")
    return (len(properties) if isinstance(properties, dict) else 0) + sum(map(_fields, schema.values()))


def _flag(value: Any) -> bool:
    if not isinstance(value, bool | None):
        raise ConfigurationError(f"The option strict_tools must be true or false; got {shown(value)}.")
    return value or False


def _is_off(thinking: Any) -> bool:
    """Whether the person has switched thinking off."""
    return isinstance(thinking, Mapping) and thinking.get("type") == "disabled"
