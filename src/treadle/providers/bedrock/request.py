"""Bedrock Converse, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

import msgspec

from treadle.errors import ConfigurationError
from treadle.messages import Message
from treadle.ports import ModelRequest, ToolChoice, ToolSpec
from treadle.providers.bedrock.contents import blocks_of, is_provable
from treadle.providers.bedrock.families import Family, family_of
from treadle.providers.bedrock.schema import input_schema
from treadle.providers.payload.bodies import ToolSets, opening, server_tools
from treadle.providers.payload.encoded import EncodedMessages, to_json
from treadle.providers.payload.names import wire_name
from treadle.providers.payload.schemas import strict_schema
from treadle.providers.payload.turns import grouped, is_foreign, turns_json
from treadle.redaction import redacted_logger
from treadle.tools import JsonObject

__all__ = ["BedrockRequests"]

logger = redacted_logger(__name__)

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({"messages", "modelId", "model", "stream", "system", "toolConfig", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""
_INFERENCE = frozenset({"maxTokens", "stopSequences", "temperature", "topP"})
"""Options that the vendor wants inside `inferenceConfig`."""
_THINKING = ("thinking", "reasoning_config")
"""What Claude's thinking is called among the model's own fields."""

_EARLIER = b'{"text":"(earlier messages are left out)"}'
"""What stands before a window on a longer history that begins with the model: the vendor wants the person to speak first."""
_IN_WORDS = "Answer in words now. Do not call any tool."
"""The dialect has no tool choice `none`, and wants the tools of a history declared."""


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """The person's options, those of them sorted out that are more than fields of the body."""

    fields: Mapping[str, Any]
    model_fields: Mapping[str, Any]
    """The model's own fields, beside those of the dialect."""
    output_config: Mapping[str, Any]
    server_tools: bytes
    """The vendor's own tools, written without the brackets."""
    cache_point: bytes
    """A cache point, written; nothing for no caching."""
    caches_tools: bool
    is_strict: bool

    @property
    def thinks_by_hand(self) -> bool:
        """Whether Claude thinks with a budget: then it is forced to no tool, and wants each turn to begin with thinking."""
        said = (self.model_fields.get(name) for name in _THINKING)
        return any(isinstance(one, Mapping) and one.get("type") == "enabled" for one in said)


class BedrockRequests:
    """Writes request bodies for one model.

    Args:
        model: Its id, or that of a profile.
        origin: What messages of this model are marked with; signatures and thinking go back to no other.
        options: Further fields of the body; one that is None takes the field away. See `Bedrock` for those with a meaning of their own.

    Raises:
        ConfigurationError: An option is not valid JSON, of another kind, or names a field that the request itself fills.
    """

    def __init__(self, model: str, *, origin: str, options: Mapping[str, Any]) -> None:
        self._origin = origin
        self._family = family_of(model)
        self._options = _sorted_out(options, self._family)
        self._openings = {thinks: self._open(thinks=thinks) for thinks in (False, True)}
        self._messages = EncodedMessages(self._encode)
        self._tools = ToolSets(self._tool)

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least stands first, and the messages last: the bytes of one step begin those of the next."""
        thinks_by_hand = self._options.thinks_by_hand and not is_foreign(
            request.messages, origin=self._origin, is_provable=is_provable
        )
        thinks = thinks_by_hand or not self._options.thinks_by_hand
        head = [self._openings[thinks]]
        if output := self._output(request):
            head += [b',"outputConfig":', to_json(output)]
        instructions = self._instructions(request)
        if tools := self._all_tools(request, is_last=not instructions):
            choice = self._choice(request, thinks_by_hand=thinks_by_hand)
            head += [b',"toolConfig":{"tools":[', tools, b"]"]
            head += [b',"toolChoice":', to_json(choice), b"}"] if choice else [b"}"]
        if instructions:
            head += [b',"system":[', b",".join(instructions), b"]"]
        written = b"".join((*head, b',"messages":[', b",".join(self._turns(request.messages)), b"]}"))
        return b"{" + written[2:] if written.startswith(b"{,") else written

    def own_names(self, request: ModelRequest) -> Mapping[str, str]:
        """Return our names of those tools that had to be renamed for the wire."""
        return self._tools.of(request.tools).own_names if request.tools else {}

    def _open(self, *, thinks: bool) -> bytes:
        own = self._options.model_fields
        kept = own if thinks else {name: value for name, value in own.items() if name not in _THINKING}
        return opening({}, {**self._options.fields, "additionalModelRequestFields": kept or None}, ours=_OURS)

    def _encode(self, message: Message) -> bytes:
        return to_json(blocks_of(message, origin=self._origin, family=self._family))[1:-1]

    def _turns(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the wire's messages, with the marks of the vendor's cache."""
        turns = grouped(messages, self._messages, earlier=_EARLIER)
        if self._options.cache_point:
            # The end of the request before is marked too: that is what the vendor has cached.
            for role, blocks_of_turn in turns[-3:]:
                if role == b"user":
                    blocks_of_turn.append(self._options.cache_point)
        return turns_json(turns)

    def _output(self, request: ModelRequest) -> _Wire:
        config = dict(self._options.output_config)
        if request.output_schema is not None:
            schema = strict_schema(request.output_schema) or request.output_schema
            written = {"name": "answer", "schema": to_json(schema).decode()}
            config["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": written}}
        return config

    def _instructions(self, request: ModelRequest) -> list[bytes]:
        """Return the blocks of the instructions, a cache point behind what stays the same."""
        blocks = []
        if request.instructions and request.instructions.strip():
            blocks.append(to_json({"text": request.instructions}))
            blocks += [self._options.cache_point] if self._options.cache_point else []
        if request.tool_choice == "none" and (request.tools or _called(request.messages)):
            blocks.append(to_json({"text": _IN_WORDS}))
        return blocks

    def _all_tools(self, request: ModelRequest, *, is_last: bool) -> bytes:
        """Return the tools without the brackets, the vendor's own last. Every request whose history holds calls must declare some."""
        ours = self._tools.of(request.tools).encoded[1:-1] if request.tools else b""
        tools = [ours, self._options.server_tools]
        if not ours and (called := _called(request.messages)):
            tools.append(to_json([_gone(name) for name in called])[1:-1])
        if is_last and self._options.caches_tools and any(tools):
            tools.append(self._options.cache_point)
        return b",".join(filter(None, tools))

    def _tool(self, spec: ToolSpec) -> _Wire:
        tool: _Wire = {"name": wire_name(spec.name)}
        if spec.description.strip():
            tool["description"] = spec.description
        if self._options.is_strict and (schema := strict_schema(spec.parameters)) is not None:
            return {"toolSpec": {**tool, "inputSchema": {"json": schema}, "strict": True}}
        schema = input_schema(spec.parameters, is_plain=self._family.plain_schemas)
        return {"toolSpec": {**tool, "inputSchema": {"json": schema}}}

    def _choice(self, request: ModelRequest, *, thinks_by_hand: bool) -> _Wire | None:
        choice = _tool_choice(request.tool_choice) if request.tools else None
        if choice is not None and thinks_by_hand:
            logger.warning(
                "%s: tool_choice %r is sent as auto, since the vendor forces no tool while the model thinks with a budget.",
                self._origin,
                request.tool_choice,
            )
            return None
        return choice


def _called(messages: Iterable[Message]) -> list[str]:
    """Return the names of the tools that a history calls, each once."""
    return list(dict.fromkeys(wire_name(call.name) for message in messages for call in message.calls))


def _gone(name: str) -> _Wire:
    return {
        "toolSpec": {
            "name": name,
            "description": "This tool is no longer available.",
            "inputSchema": {"json": {"type": "object", "properties": {}}},
        }
    }


def _tool_choice(choice: ToolChoice) -> _Wire | None:
    """Return the choice in the vendor's words; None for its default, which is to let the model choose."""
    match choice:
        case "auto" | "none":
            return None
        case "required":
            return {"any": {}}
        case _:
            return {"tool": {"name": wire_name(choice)}}


def _sorted_out(options: Mapping[str, Any], family: Family) -> _Options:
    opening({}, options, ours=_OURS)  # raises where an option is not valid JSON, or one of ours
    rest = dict(options)
    inference = {
        **_object("inferenceConfig", rest.pop("inferenceConfig", None)),
        **{name: rest.pop(name) for name in _INFERENCE & rest.keys()},
    }
    inference = {name: value for name, value in inference.items() if value is not None}
    usual = {"type": "default"} if family.caches else None
    cache = _object("cachePoint", rest.pop("cachePoint", usual))
    own = _object("additionalModelRequestFields", rest.pop("additionalModelRequestFields", None))
    return _Options(
        model_fields={name: value for name, value in own.items() if value is not None},
        output_config=_object("outputConfig", rest.pop("outputConfig", None)),
        server_tools=server_tools(
            rest.pop("server_tools", None),
            example="{'systemTool': {'name': 'nova_grounding'}}",
            is_function=lambda tool: "systemTool" not in tool,
        ),
        cache_point=to_json({"cachePoint": {"type": "default", **cache}}) if cache else b"",
        caches_tools=bool(cache) and (family.caches_tools or family == Family()),
        is_strict=_flag("strict_tools", rest.pop("strict_tools", None)),
        fields={**rest, "inferenceConfig": inference or None},
    )


def _object(name: str, value: Any) -> JsonObject:
    """Return an option that is an object; an empty one where it is None."""
    if value is not None and not isinstance(value, Mapping):
        _refuse(name, "an object")
    return dict(value or {})


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | None):
        _refuse(name, "true or false")
    return bool(value)


def _refuse(name: str, expected: str) -> NoReturn:
    raise ConfigurationError(f"The option {name} of a Bedrock model must be {expected}.")
