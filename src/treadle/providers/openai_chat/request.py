"""Chat Completions, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

from collections.abc import Mapping
from functools import partial
from operator import is_
from typing import Any, TypeAlias

from treadle.errors import ConfigurationError, shown
from treadle.ports import ModelRequest, ToolChoice, ToolSpec
from treadle.providers.openai_chat.messages import ChatMessages
from treadle.providers.payload.bodies import ToolSets, opening, server_tools
from treadle.providers.payload.encoded import to_json
from treadle.providers.payload.names import wire_name
from treadle.providers.payload.schemas import nullable_schemas, object_schema, strict_schema

__all__ = ["ChatRequests"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({"messages", "model", "stream", "tool_choice", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""

_CHOICES = ("auto", "none", "required")
_OWN_WORDS = ("server_tools", "strict_tools")


class ChatRequests:
    """Writes request bodies for one model.

    Args:
        model: As the server knows it.
        origin: What messages of this model are marked with; signatures and thinking go back to no other.
        options: Further fields of the body; one that is None takes the field away. Two are our own: `server_tools`, tools that the
            server runs by itself, beside ours; and `strict_tools`, whether it holds the model to our schemas.
        stream: Whether to ask for a stream.
        thinking_field: Where earlier reasoning goes back, or None to keep it.
        call_id: A pattern of the ids that the server takes, or None for the dialect's.
        bridge: What the model is made to say between results and a user's message, and in place of nothing, where a server wants
            that.
        named_choice: Whether a tool may be demanded by its name; else it is shown alone, and any is demanded.
        forced_choice: Whether any call may be demanded; else the model chooses.

    Raises:
        ConfigurationError: An option is not valid JSON, or names a field that the request itself fills; or no id fits the pattern.
    """

    def __init__(
        self,
        model: str,
        *,
        origin: str,
        options: Mapping[str, Any],
        stream: bool,
        thinking_field: str | None = None,
        call_id: str | None = None,
        bridge: str | None = None,
        named_choice: bool = True,
        forced_choice: bool = True,
    ) -> None:
        further = {name: value for name, value in options.items() if name not in _OWN_WORDS}
        self._opening = opening(_fields(model, stream=stream), further, ours=_OURS)
        self._server_tools = server_tools(
            options.get("server_tools"),
            example="{'type': 'openrouter:web_search'}",
            is_function=lambda tool: tool.get("type") == "function",
        )
        self._has_parallel_option = "parallel_tool_calls" in options
        self._messages = ChatMessages(origin=origin, thinking_field=thinking_field, call_id=call_id, bridge=bridge)
        self._named_choice = named_choice
        self.forces_choice = forced_choice
        """Whether calls are demanded; false once the server has refused it."""
        self._is_strict = _flag(options.get("strict_tools"))
        self._tools = ToolSets(partial(_tool, is_strict=self._is_strict))
        self._schemas: tuple[tuple[ToolSpec, ...], Mapping[str, Mapping[str, Any]]] = ((), {})
        self._asked: tuple[object, ...] = (None,) * 6
        self._head = b""

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least stands first, and the messages last: the bytes of one step begin those of the next."""
        asked = (
            request.instructions,
            request.tools,
            request.tool_choice,
            request.output_schema,
            request.parallel_tool_calls,
            self.forces_choice,
        )
        if not all(map(is_, asked, self._asked)):
            self._asked, self._head = asked, self._written_head(request)
        return self._messages.body(self._head, request.messages, session_id=request.session_id)

    def _written_head(self, request: ModelRequest) -> bytes:
        """Return what stands before the messages, up to the instructions."""
        head = [self._opening]
        if request.output_schema is not None:
            head.append(b',"response_format":' + to_json(self._response_format(request.output_schema)))
        choice = request.tool_choice
        is_alone = not (self._named_choice and self.forces_choice) and choice not in _CHOICES
        if tools := self._only(choice, request.tools) if is_alone else self._all_tools(request):
            head += [b',"tools":', tools]
            said = "required" if is_alone else choice
            said = "auto" if said == "required" and not self.forces_choice else said
            head += [b',"tool_choice":', to_json(_tool_choice(said))]
            if not request.parallel_tool_calls and not self._has_parallel_option:
                head.append(b',"parallel_tool_calls":false')
        head.append(b',"messages":[')
        if request.instructions:
            head.append(to_json({"role": "system", "content": request.instructions}))
        return b"".join(head)

    def demands(self, request: ModelRequest) -> bool:
        """Return whether a request demands a call."""
        return bool(request.tools) and self.forces_choice and request.tool_choice not in ("auto", "none")

    def own_names(self, request: ModelRequest) -> Mapping[str, str]:
        """Return our names of those tools that had to be renamed for the wire."""
        return self._tools.of(request.tools).own_names if request.tools else {}

    def schemas(self, request: ModelRequest) -> Mapping[str, Mapping[str, Any]]:
        """Return the schemas of those tools whose optional properties may come back as null, by our names."""
        if self._is_strict and self._schemas[0] is not request.tools:
            self._schemas = (request.tools, nullable_schemas(request.tools))
        return self._schemas[1]

    def _only(self, name: str, tools: tuple[ToolSpec, ...]) -> bytes:
        return self._tools.of(tuple(spec for spec in tools if spec.name == name)).encoded

    def _all_tools(self, request: ModelRequest) -> bytes:
        """Return the tools as a JSON array, the server's own last; nothing where there are none."""
        ours = self._tools.of(request.tools).encoded if request.tools else b""
        if not self._server_tools:
            return ours
        return b"".join((ours[:-1] + b"," if ours else b"[", self._server_tools, b"]"))

    def _response_format(self, schema: Mapping[str, Any]) -> _Wire:
        output: _Wire = {"name": "output", "schema": schema}
        if self._is_strict and (strict := strict_schema(schema)) is not None:
            output |= {"schema": strict, "strict": True}
        return {"type": "json_schema", "json_schema": output}


def _fields(model: str, *, stream: bool) -> _Wire:
    fields: _Wire = {"model": model, "stream": stream}
    if stream:
        fields["stream_options"] = {"include_usage": True}
    return fields


def _flag(value: Any) -> bool:
    if not isinstance(value, bool | None):
        raise ConfigurationError(f"The option strict_tools must be true or false; got {shown(value)}.")
    return value or False


def _tool(spec: ToolSpec, *, is_strict: bool) -> _Wire:
    schema = object_schema(spec.parameters)
    function: _Wire = {"name": wire_name(spec.name), "description": spec.description, "parameters": schema}
    if is_strict and (strict := strict_schema(schema, nullable=True)) is not None:
        function |= {"parameters": strict, "strict": True}
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> str | _Wire:
    if choice in _CHOICES:
        return choice
    return {"type": "function", "function": {"name": wire_name(choice)}}
