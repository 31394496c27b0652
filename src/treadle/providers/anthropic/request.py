"""Anthropic Messages, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec

from treadle.errors import ConfigurationError
from treadle.messages import Message
from treadle.ports import ModelRequest, ToolChoice, ToolSpec
from treadle.providers.anthropic.blocks import blocks_of, container_of, is_provable
from treadle.providers.anthropic.schema import StrictLimits, input_schema, strict_schema
from treadle.providers.known import known_facts
from treadle.providers.payload.bodies import ToolSet, ToolSets, opening, server_tools
from treadle.providers.payload.encoded import EncodedMessages, to_json
from treadle.providers.payload.names import wire_name
from treadle.providers.payload.turns import grouped, is_foreign, open_turn, turns_json
from treadle.redaction import redacted_logger
from treadle.tools import JsonObject

__all__ = ["AnthropicRequests"]

logger = redacted_logger(__name__)

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({"messages", "model", "stream", "system", "tool_choice", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""

_EARLIER = b'{"type":"text","text":"(earlier messages are left out)"}'
"""What stands before a window on a longer history that begins with the model: the vendor wants the person to speak first."""

_MAX_TOKENS = 16_384
"""What a response may hold, where no option says otherwise and the model can write as much. The dialect demands a number."""
_LARGER_MAX_TOKENS = 64_000
"""What is asked for once the limit has cut a response, of models that are known to write so much: a limit above a model's own is
refused with 400."""
_CLAUDE = re.compile(r"claude-.*")


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """The person's options, those of them sorted out that are more than fields of the body."""

    fields: Mapping[str, Any]
    thinking: Mapping[str, Any]
    """How the model thinks; empty where no option says it."""
    output_config: Mapping[str, Any]
    container: Any
    """Where the vendor's code runs, or what its container is to hold; None where no option says it."""
    server_tools: bytes
    """The vendor's own tools, which run on its side, written without the brackets."""
    marker: bytes
    """What is put into the last stable blocks, so that the vendor caches everything before; nothing for no caching."""
    is_strict: bool
    is_parallel: bool

    @property
    def thinks_by_hand(self) -> bool:
        """Whether thinking has a budget: then the vendor forces no tool, and wants each turn to begin with thinking."""
        return self.thinking.get("type") == "enabled"


class AnthropicRequests:
    """Writes request bodies for one model.

    Args:
        model: As the server knows it.
        origin: What messages of this model are marked with; signatures and thinking go back to no other.
        options: Further fields of the body; one that is None takes the field away. See `Anthropic` for those with a meaning of
            their own.
        stream: Whether to ask for a stream.
        fields: What the body holds otherwise at a cloud's own address; None takes a field away.

    Raises:
        ConfigurationError: An option is not valid JSON, of another kind, or names a field that the request itself fills.
    """

    def __init__(
        self,
        model: str,
        *,
        origin: str,
        options: Mapping[str, Any],
        stream: bool,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self._origin = origin
        self._fields = fields or {}
        self._options = _sorted_out(options)
        self._openings = {
            (is_larger, thinks): self._open(model, stream=stream, is_larger=is_larger, thinks=thinks)
            for is_larger in (False, True)
            for thinks in (False, True)
        }
        self._messages = EncodedMessages(self._encode)
        self._tools = ToolSets(self._tool)
        self._limits = StrictLimits()

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least stands first, and the messages last: the bytes of one step begin those of the next."""
        thinks_by_hand = self._options.thinks_by_hand and not is_foreign(
            request.messages, origin=self._origin, is_provable=is_provable
        )
        thinks = thinks_by_hand or not self._options.thinks_by_hand
        instructions = request.instructions if request.instructions and request.instructions.strip() else None
        head = [self._openings[request.raise_output_limit, thinks], *self._output(request), *self._container(request)]
        if tools := self._all_tools(request):
            # Tools stand before the instructions in what the vendor caches, so the last of both is the end of what is stable.
            head += [b',"tools":', tools if instructions else self._marked(tools, b"}]")]
            head += [b',"tool_choice":', to_json(self._choice(request, thinks_by_hand=thinks_by_hand))]
        if instructions:
            head += [b',"system":', self._marked(to_json([{"type": "text", "text": instructions}]), b"}]")]
        return b"".join((*head, b',"messages":[', b",".join(self._turns(request.messages)), b"]}"))

    def own_names(self, request: ModelRequest) -> Mapping[str, str]:
        """Return our names of those tools that had to be renamed for the wire."""
        return self._set_of(request.tools).own_names if request.tools else {}

    def _open(self, model: str, *, stream: bool, is_larger: bool, thinks: bool) -> bytes:
        thinking = self._options.thinking
        limit = _max_tokens(model, thinking, is_larger=is_larger)
        fields = {"model": model, "max_tokens": limit, "stream": stream, **self._fields}
        options = {**self._options.fields, "thinking": thinking if thinking and thinks else None}
        return opening(fields, options, ours=_OURS)

    def _encode(self, message: Message) -> bytes:
        return to_json(blocks_of(message, origin=self._origin))[1:-1]

    def _turns(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the wire's messages, with the marks of the vendor's cache."""
        turns = grouped(messages, self._messages, earlier=_EARLIER)
        # The end of the request before is marked too: the vendor looks only 20 blocks back for what it has cached.
        for role, blocks_of_turn in turns[-3:]:
            if role == b"user":
                blocks_of_turn[-1] = self._marked(blocks_of_turn[-1], b"}")
        return turns_json(turns)

    def _marked(self, encoded: bytes, end: bytes) -> bytes:
        return encoded.removesuffix(end) + self._options.marker + end if self._options.marker else encoded

    def _output(self, request: ModelRequest) -> list[bytes]:
        config = dict(self._options.output_config)
        if request.output_schema is not None:
            schema = strict_schema(request.output_schema) or request.output_schema
            config["format"] = {"type": "json_schema", "schema": schema}
        return [b',"output_config":' + to_json(config)] if config else []

    def _container(self, request: ModelRequest) -> list[bytes]:
        """Return the field that says where the vendor's code continues. A container that the person named stays."""
        container = self._options.container
        waits_in = (container_of(message, origin=self._origin) for message in open_turn(request.messages))
        if not isinstance(container, str) and (known := next(filter(None, waits_in), None)):
            container = {"id": known, **container} if container else known
        return [b',"container":' + to_json(container)] if container else []

    def _all_tools(self, request: ModelRequest) -> bytes:
        """Return the tools as a JSON array, the vendor's own last; nothing where there are none."""
        ours = self._set_of(request.tools).encoded if request.tools else b""
        if not self._options.server_tools:
            return ours
        return b"".join((ours[:-1] + b"," if ours else b"[", self._options.server_tools, b"]"))

    def _set_of(self, tools: tuple[ToolSpec, ...]) -> ToolSet:
        """Return the tools, written: strict ones up to the vendor's limits, by name, and plain ones beyond."""
        self._limits = StrictLimits()
        return self._tools.of(tools)

    def _tool(self, spec: ToolSpec) -> _Wire:
        tool: _Wire = {"name": wire_name(spec.name), "description": spec.description}
        schema = strict_schema(spec.parameters) if self._options.is_strict else None
        if schema is not None and self._limits.take(schema):
            return {**tool, "input_schema": schema, "strict": True}
        return {**tool, "input_schema": input_schema(spec.parameters)}

    def _choice(self, request: ModelRequest, *, thinks_by_hand: bool) -> _Wire:
        choice = _tool_choice(request.tool_choice)
        if thinks_by_hand and choice["type"] in ("any", "tool"):
            logger.warning(
                "%s: tool_choice %r is sent as auto, since the vendor forces no tool while the model thinks with a budget.",
                self._origin,
                request.tool_choice,
            )
            choice = {"type": "auto"}
        if choice["type"] != "none" and not (request.parallel_tool_calls and self._options.is_parallel):
            choice["disable_parallel_tool_use"] = True
        return choice


def _tool_choice(choice: ToolChoice) -> _Wire:
    match choice:
        case "auto" | "none":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case _:
            return {"type": "tool", "name": wire_name(choice)}


def _max_tokens(model: str, thinking: Mapping[str, Any], *, is_larger: bool) -> int:
    """Return the output limit, in tokens. What the model may think counts as output."""
    named = _CLAUDE.search(model)  # clouds and gateways put words before it
    own = None if named is None else known_facts("anthropic", named[0]).output
    most = _MAX_TOKENS if own is None else min(own, _MAX_TOKENS)
    budget = thinking.get("budget_tokens")
    usual = most + budget if type(budget) is int else most
    may_write_more = is_larger and own is not None and own >= _LARGER_MAX_TOKENS
    return max(usual, _LARGER_MAX_TOKENS) if may_write_more else usual


def _sorted_out(options: Mapping[str, Any]) -> _Options:
    opening({}, options, ours=_OURS)  # raises where an option is not valid JSON, or one of ours
    rest = dict(options)
    cache = _object("cache_control", rest.pop("cache_control", {"type": "ephemeral"}))
    return _Options(
        thinking=_object("thinking", rest.pop("thinking", None)),
        output_config=_object("output_config", rest.pop("output_config", None)),
        container=_container_option(rest.pop("container", None)),
        server_tools=server_tools(
            rest.pop("server_tools", None),
            example="{'type': 'web_search_20250305', 'name': 'web_search'}",
            is_function=lambda tool: tool.get("type", "custom") == "custom",
        ),
        marker=b',"cache_control":' + to_json(cache) if cache else b"",
        is_strict=_flag("strict_tools", rest.pop("strict_tools", None), default=False),
        is_parallel=_flag("parallel_tool_calls", rest.pop("parallel_tool_calls", None), default=True),
        fields=rest,
    )


def _object(name: str, value: Any) -> JsonObject:
    """Return an option that is an object; an empty one where it is None."""
    if value is not None and not isinstance(value, Mapping):
        _refuse(name, "an object")
    return dict(value or {})


def _container_option(value: Any) -> Any:
    if not isinstance(value, str | Mapping | None):
        _refuse("container", "the id of a container or an object")
    return value


def _flag(name: str, value: Any, *, default: bool) -> bool:
    if not isinstance(value, bool | None):
        _refuse(name, "true or false")
    return default if value is None else value


def _refuse(name: str, expected: str) -> NoReturn:
    raise ConfigurationError(f"The option {name} of an Anthropic model must be {expected}.")
