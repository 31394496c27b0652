"""Responses, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from treadle.canonical import digest
from treadle.errors import ConfigurationError, shown
from treadle.messages import Message
from treadle.ports import ModelRequest, ToolChoice, ToolSpec
from treadle.providers.openai_responses.history import callers_in, items_of, state_id
from treadle.providers.payload.bodies import ToolSets, opening, server_tools
from treadle.providers.payload.encoded import EncodedMessages, to_json
from treadle.providers.payload.names import wire_name
from treadle.providers.payload.schemas import nullable_schemas, object_schema, strict_schema

__all__ = ["ResponsesRequests"]

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({
    *("model", "input", "instructions", "stream", "tools", "tool_choice"),
    *("previous_response_id", "conversation", "background"),
})  # fmt: skip
"""Fields of the body that come from the request, or that would change whose memory and whose time it runs on."""

_ENCRYPTED = "reasoning.encrypted_content"
_OWN_WORDS = ("state", "server_tools", "text")

_MOST_CALLERS = 10_000
"""Of calls that programs made, so many are remembered, in all sessions of the model."""


class ResponsesRequests:
    """Writes request bodies for one model.

    Args:
        model: As the server knows it.
        origin: What messages of this model are marked with; ids, reasoning and server-side items go back to no other.
        options: Further fields of the body; one that is None takes the field away. `state` and `server_tools` are our own.
        stream: Whether to ask for a stream.

    Raises:
        ConfigurationError: An option cannot be used.
    """

    def __init__(self, model: str, *, origin: str, options: Mapping[str, Any], stream: bool) -> None:
        self._origin = origin
        self.is_stateful = _is_stateful(options.get("state", "client"))
        self.wants_encrypted = True
        """Whether reasoning is asked for in its sealed form. Models that do not reason refuse the wish."""
        fields = {"model": model, "stream": stream, "store": self.is_stateful, "include": [_ENCRYPTED]}
        further = {name: value for name, value in options.items() if name not in _OWN_WORDS}
        include = further.get("include", fields["include"])
        self._opening = opening(fields, further, ours=_OURS)
        self._plain_opening = opening(fields, {**further, "include": _without_encrypted(include)}, ours=_OURS)
        self._text = _checked_text(options.get("text"))
        self._server_tools = server_tools(
            options.get("server_tools"),
            example="{'type': 'web_search'}",
            is_function=lambda tool: tool.get("type") == "function",
        )
        self._has_parallel_option = "parallel_tool_calls" in options
        self._has_cache_key = "prompt_cache_key" in options
        self._is_stored = bool(options.get("store", self.is_stateful))
        self._messages = EncodedMessages(self._encode)
        self._callers: dict[str, _Wire] = {}
        self._tools = ToolSets(_tool)
        self._schemas: tuple[tuple[ToolSpec, ...], Mapping[str, Mapping[str, Any]]] = ((), {})

    def body(self, request: ModelRequest, *, resumes: bool) -> bytes:
        """Return the body. What changes least stands first, and the input last: the bytes of one step begin those of the next.

        Args:
            resumes: Whether to send only what is new since the last response that the server keeps.
        """
        head = [self._opening if self.wants_encrypted else self._plain_opening]
        head += self._written_text(request)
        head += self._written_tools(request)
        if request.instructions:
            head += [b',"instructions":', to_json(request.instructions)]
        messages = request.messages
        if resumes and (kept := self._kept(request)) is not None:
            position, response_id = kept
            messages = request.messages[position + 1 :]
            self._note_callers(request.messages[position])
            head += [b',"previous_response_id":', to_json(response_id)]
        if request.session_id and not self._has_cache_key:
            # A digest: a session's id may name a person. The same for all requests of a session, whose cache lies on one machine then.
            head += [b',"prompt_cache_key":', to_json(digest(request.session_id)[:32])]
        head.append(b',"input":[')
        return self._messages.body(b"".join(head), messages, session_id=request.session_id)

    def can_resume(self, request: ModelRequest) -> bool:
        """Whether the server keeps a response that this request continues from."""
        return self._kept(request) is not None

    def own_names(self, request: ModelRequest) -> Mapping[str, str]:
        """Return our names of those tools that had to be renamed for the wire."""
        return self._tools.of(request.tools).own_names if request.tools else {}

    def schemas(self, request: ModelRequest) -> Mapping[str, Mapping[str, Any]]:
        """Return the schemas of those tools whose optional properties may come back as null, by our names."""
        if self._schemas[0] is not request.tools:
            self._schemas = (request.tools, nullable_schemas(request.tools))
        return self._schemas[1]

    def _kept(self, request: ModelRequest) -> tuple[int, str] | None:
        """Return position and id of the last message that the server keeps, where something new follows it."""
        if not self.is_stateful:
            return None
        for position in range(len(request.messages) - 2, -1, -1):
            message = request.messages[position]
            if message.origin == self._origin and message.role == "assistant":
                response_id = state_id(message, position)
                return None if response_id is None else (position, response_id)
        return None

    def _encode(self, message: Message) -> bytes:
        is_own = message.origin == self._origin
        if is_own:
            self._note_callers(message)
        items = items_of(message, is_own=is_own, is_stored=self._is_stored, callers=self._callers)
        return b",".join(to_json(item) for item in items)

    def _note_callers(self, message: Message) -> None:
        """Remember which calls a program of the model made, for their results, which come in the next message."""
        self._callers |= callers_in(message)
        while len(self._callers) > _MOST_CALLERS:
            del self._callers[next(iter(self._callers))]

    def _written_text(self, request: ModelRequest) -> list[bytes]:
        text = self._text
        if request.output_schema is not None:
            text = {**text, "format": _output_format(request.output_schema)}
        return [b',"text":', to_json(text)] if text else []

    def _written_tools(self, request: ModelRequest) -> list[bytes]:
        written = [self._tools.of(request.tools).encoded[1:-1]] if request.tools else []
        if self._server_tools:
            written.append(self._server_tools)
        if not written:
            return []
        head = [b',"tools":[', b",".join(written), b"]", b',"tool_choice":', to_json(_tool_choice(request.tool_choice))]
        if not request.parallel_tool_calls and not self._has_parallel_option:
            head.append(b',"parallel_tool_calls":false')
        return head


def _is_stateful(state: Any) -> bool:
    if state not in ("client", "server"):
        raise ConfigurationError(
            f"The option state must be 'client' (all items in each request) or 'server' (the server keeps them); got {shown(state)}."
        )
    return bool(state == "server")


def _without_encrypted(include: Any) -> list[Any] | None:
    if not isinstance(include, list | tuple):
        return None
    return [one for one in include if one != _ENCRYPTED] or None


def _checked_text(text: Any) -> _Wire:
    if text is not None and not isinstance(text, Mapping):
        raise ConfigurationError(
            f"The option text must be an object such as {{'verbosity': 'low'}}; got {shown(text)}."
        )
    opening({}, {"text": text}, ours=frozenset())  # plain JSON, or a clear refusal
    return dict(text or {})


def _output_format(schema: Mapping[str, Any]) -> _Wire:
    strict = strict_schema(schema)
    return {
        "type": "json_schema",
        "name": "output",
        "schema": schema if strict is None else strict,
        "strict": strict is not None,
    }


def _tool(spec: ToolSpec) -> _Wire:
    schema = object_schema(spec.parameters)
    strict = strict_schema(schema, nullable=True)
    return {
        "type": "function",
        "name": wire_name(spec.name),
        "description": spec.description,
        "parameters": schema if strict is None else strict,
        "strict": strict is not None,  # left out it would mean true
    }


def _tool_choice(choice: ToolChoice) -> str | _Wire:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "name": wire_name(choice)}
