"""Anthropic Messages, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session."""

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from treadle.errors import ConfigurationError
from treadle.messages import Media, Message, Opaque, Result, Text, Thinking, ToolCall
from treadle.ports import ModelFacts, ModelRequest, ToolChoice, ToolSpec
from treadle.providers.http.listings import Listing, Page, number, objects
from treadle.providers.known import known_facts
from treadle.providers.payload import (
    EncodedMessages,
    ToolSets,
    cited_in,
    flag_option,
    grouped,
    held_in,
    is_foreign,
    object_option,
    object_schema,
    open_turn,
    opening,
    sendable_arguments,
    server_tools,
    to_json,
    turns_json,
    wire_id,
    wire_name,
)
from treadle.redaction import redacted_logger
from treadle.tools import JsonObject
from treadle.validation.schema import resolved

__all__ = [
    "LISTING",
    "PROVIDER",
    "AnthropicRequests",
    "blocks_of",
    "container_marker",
    "is_provable",
    "strict_schema",
]


# --- Anthropic's JSON Schema: a tool's schema in the words that the vendor takes. Checks nothing: the gate enforces the
# original.

_CHOICES = ("allOf", "anyOf", "oneOf")

_COPIED = frozenset({"const", "description", "title", "type"})
_TOLD = frozenset(
    {
        *("exclusiveMaximum", "exclusiveMinimum", "format", "maximum", "minimum", "multipleOf"),
        *("maxItems", "maxLength", "minItems", "minLength", "pattern", "uniqueItems"),
    }
)
"""Limits that the gate enforces anyway."""
_CLOSING = frozenset({"$defs", "additionalProperties", "properties", "required"})
"""What makes an object, written together."""
_IGNORED = frozenset({"$comment", "$id", "$schema", "default", "deprecated", "discriminator", "examples"})
_FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"},
)


class _NotStrict(Exception):
    """The schema says something that a strict tool cannot."""


class _StrictLimits:
    """Counts what the vendor limits in the strict tools of one request: tools, optional parameters, and parameters of several types.

    The limits are those of platform.claude.com/docs/en/build-with-claude/structured-outputs ("Schema complexity limits").
    """

    def __init__(self) -> None:
        self._left: tuple[int, ...] = (20, 24, 16)

    def take(self, schema: JsonObject) -> bool:
        """Return whether a tool of this strict schema still fits, and count it if so."""
        left = tuple(most - used for most, used in zip(self._left, (1, *_counted(schema)), strict=True))
        if min(left) < 0:
            return False
        self._left = left
        return True


def _counted(schema: Any) -> tuple[int, int]:
    """Return how many optional parameters a schema has, and how many of several types, at every depth."""
    optional = unions = 0
    if isinstance(schema, Mapping):
        properties, required = schema.get("properties"), schema.get("required")
        if isinstance(properties, Mapping):
            optional = len(properties.keys() - set(required if isinstance(required, list) else ()))
        unions = int("anyOf" in schema or isinstance(schema.get("type"), list))
    inner = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    for one in inner:
        more = _counted(one)
        optional, unions = optional + more[0], unions + more[1]
    return optional, unions


def strict_schema(schema: JsonObject) -> JsonObject | None:
    """Return the schema in the strict subset, or None where it cannot be said there.

    What fits the strict schema fits the original, but for limits such as `maximum`: those are stated in the description.
    """
    if any(word in schema for word in _CHOICES):
        return None
    top = {**_opened(schema, schema), "type": "object"}
    try:
        written = _node(top, is_top=True)
        if definitions := schema.get("$defs"):
            written["$defs"] = {name: _node(one) for name, one in dict(definitions).items()}
        _check_references(written)
    except (
        _NotStrict,
        TypeError,
        RecursionError,
    ):  # a TypeError: what should be a list is not a list, and the gate says so
        return None
    return written


def _opened(schema: Any, root: JsonObject) -> JsonObject:
    """Return a schema whose top is not a reference."""
    top = resolved(schema, root)
    kept = {"$defs": root["$defs"]} if "$defs" in root and schema is root else {}
    return {word: value for word, value in {**top, **kept}.items() if word != "$ref"}


def _properties(schema: JsonObject) -> JsonObject:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _node(schema: Any, *, is_top: bool = False) -> JsonObject:
    if not isinstance(schema, dict):
        raise _NotStrict
    if "$ref" in schema:
        return _reference(schema["$ref"])
    written: JsonObject = {}
    described: JsonObject = {}
    for word, value in schema.items():
        if word in _TOLD and not _is_taken(word, value):
            described[word] = value
        elif word not in _IGNORED and word not in _CLOSING:
            written |= _word(word, value)
    if "object" in _types(schema):
        written |= _closed(schema, is_top=is_top)
    return _with_told(written, described)


def _word(word: str, value: Any) -> JsonObject:
    match word:
        case "anyOf" | "oneOf":
            return {"anyOf": [_node(one) for one in value]}
        case "items":
            return {"items": _node(value)}
        case "enum" if not any(isinstance(one, dict | list) for one in value):
            return {"enum": value}
        case _ if word in _COPIED or word in _TOLD:
            return {word: value}
        case _:
            raise _NotStrict


def _is_taken(word: str, value: Any) -> bool:
    """Whether the strict subset has this limit after all."""
    return (word == "format" and value in _FORMATS) or (word == "minItems" and value in (0, 1))


def _closed(schema: JsonObject, *, is_top: bool) -> JsonObject:
    """Return an object without further properties. One that is meant to be open cannot be strict."""
    properties = _properties(schema)
    if schema.get("additionalProperties", False) is not False or not (properties or is_top):
        raise _NotStrict
    return {
        "properties": {name: _node(one) for name, one in properties.items()},
        "required": [name for name in schema.get("required", ()) if name in properties],
        "additionalProperties": False,
    }


def _types(schema: Mapping[str, Any]) -> tuple[Any, ...]:
    found = schema.get("type", "object" if "properties" in schema else ())
    return tuple(found) if isinstance(found, list | tuple) else (found,)


def _reference(target: Any) -> JsonObject:
    if not isinstance(target, str) or not target.startswith("#/$defs/"):
        raise _NotStrict
    return {"$ref": target}


def _with_told(written: JsonObject, described: JsonObject) -> JsonObject:
    if not described:
        return written
    text = ", ".join(f"{word}: {msgspec.json.encode(described[word]).decode()}" for word in sorted(described))
    said = written.get("description")
    return {**written, "description": f"{said} ({text})" if said else f"({text})"}


def _check_references(schema: JsonObject) -> None:
    """Refuse definitions that are missing or contain themselves: the vendor compiles a grammar without recursion."""
    definitions = schema.get("$defs", {})
    reached = {name: _references(one) for name, one in definitions.items()}
    if not _references(schema) <= definitions.keys():
        raise _NotStrict
    for name, nearest in reached.items():
        waiting, seen = set(nearest), set[str]()
        while waiting:
            current = waiting.pop()
            seen.add(current)
            waiting |= reached[current] - seen
        if name in seen:
            raise _NotStrict


def _references(schema: Any) -> set[str]:
    """Return the names of the definitions that a written schema refers to."""
    match schema:
        case {"$ref": str(target)}:
            return {target.removeprefix("#/$defs/")}
        case dict():
            return set[str]().union(*map(_references, schema.values()))
        case list():
            return set[str]().union(*map(_references, schema))
        case _:
            return set()


# --- Anthropic Messages, outward: the content blocks of one message. Knows no request, and nothing of the other
# messages.

PROVIDER = "anthropic"
"""Marks the items that only this provider understands."""

_Block: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_CONTAINER = "treadle.container"

_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})


def blocks_of(message: Message, *, origin: str) -> list[_Block]:
    """Return the blocks of a message: results in call order for a step, none for an assistant that said nothing.

    Args:
        origin: Signatures, thinking and the provider's own items go back to the model that made them and to no other.
    """
    match message.role:
        case "assistant":
            return list(_assistant(message, is_own=message.origin == origin))
        case "tool":
            return [_result(result) for result in message.results]
        case "user":
            # A user's turn may not be empty, and dropping it would change who speaks.
            return list(_user(message)) or [_text("(empty message)")]


def container_marker(container_id: str) -> Opaque:
    """Return the part that remembers in which of the vendor's containers a response waits. It is not a block, and not sent as one."""
    return Opaque(provider=PROVIDER, payload={"type": _CONTAINER, "id": container_id})


def _container_of(message: Message, *, origin: str) -> str | None:
    """Return the id of the container in which a message waits; None where it waits in none."""
    if message.origin != origin:
        return None
    ids = [str(part.payload["id"]) for part in message.parts if isinstance(part, Opaque) and _is_marker(part)]
    return ids[-1] if ids else None


def _is_marker(part: Opaque) -> bool:
    return isinstance(part.payload, dict) and part.payload.get("type") == _CONTAINER


def _assistant(message: Message, *, is_own: bool) -> Iterator[_Block]:
    for part in message.parts:
        match part:
            case Text() if part.text.strip():  # a text of blanks is refused
                yield _said(part, is_own=is_own)
            case Thinking() if is_own and is_provable(part):
                yield _thinking(part)
            case ToolCall():
                yield _call(part, is_own=is_own)
            case Opaque() if is_own and part.provider == PROVIDER and not _is_marker(part):
                yield part.payload
            case _:
                pass


def _said(part: Text, *, is_own: bool) -> _Block:
    cited = cited_in(part.signature) if is_own else []
    # The vendor tells the name of a file there, and refuses to be told it.
    sendable = [{name: value for name, value in one.items() if name != "file_id"} for one in cited]
    return {**_text(part.text), **({"citations": sendable} if sendable else {})}


def is_provable(part: Thinking) -> bool:
    """Whether the vendor takes a thought back. It refuses what nobody signed: what a driver read from words, or a limit cut off."""
    return bool(part.signature) or part.payload is not None


def _thinking(part: Thinking) -> _Block:
    if part.payload is not None:
        payload: _Block = part.payload
        return payload
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _call(call: ToolCall, *, is_own: bool) -> _Block:
    arguments = msgspec.json.decode(sendable_arguments(call.arguments))
    block = {"type": "tool_use", "id": _id(call.id), "name": wire_name(call.name), "input": arguments}
    if is_own and (caller := held_in(call.signature)):
        block["caller"] = caller
    return block


def _result(result: Result) -> _Block:
    block: _Block = {"type": "tool_result", "tool_use_id": _id(result.call_id)}
    if result.media:
        shown = [_text(result.content)] if result.content.strip() else []
        # An error may hold text only.
        block["content"] = [*shown, *map(_mention if result.is_error else _media, result.media)]
    elif result.content:
        block["content"] = result.content
    if result.is_error:
        block["is_error"] = True
    return block


def _user(message: Message) -> Iterator[_Block]:
    for part in message.parts:
        match part:
            case Text() if part.text.strip():
                yield _text(part.text)
            case Media():
                yield _media(part)
            case _:
                pass


def _text(text: str) -> _Block:
    return {"type": "text", "text": text}


def _media(media: Media) -> _Block:
    if media.media_type in _IMAGES and (source := _source(media)):
        return {"type": "image", "source": source}
    if media.media_type == "application/pdf" and (source := _source(media)):
        return _document(source, media)
    if media.media_type.startswith("text/") and (text := _words(media)):
        return _document({"type": "text", "media_type": "text/plain", "data": text}, media)
    return _mention(media)  # the dialect takes no other kind


def _mention(media: Media) -> _Block:
    """Tell the model of what it cannot be shown."""
    return _text(f"[{media.media_type}: {media.url or media.name or 'not shown'}]")


def _source(media: Media) -> _Block | None:
    if media.base64 is not None:
        return {"type": "base64", "media_type": media.media_type, "data": media.base64}
    return {"type": "url", "url": media.url} if media.url else None


def _words(media: Media) -> str:
    """Return the text of a text file; nothing where there is none to read."""
    try:
        text = b64decode(media.base64 or "").decode("utf-8", "replace")
    except ValueError:
        return ""
    return text if text.strip() else ""


def _document(source: _Block, media: Media) -> _Block:
    return {"type": "document", "source": source, **({"title": media.name} if media.name else {})}


def _id(call_id: str) -> str:
    """Return the id in the letters that the dialect takes; servers of others write `functions.grep:0`."""
    return wire_id(call_id, plain=_PLAIN_ID)


# --- Anthropic Messages, outward: from a neutral request to the bytes of its body. Sends nothing, keeps no session.

logger = redacted_logger(__name__)

_Wire: TypeAlias = dict[str, Any]  # Any: a JSON object on its way out

_OURS = frozenset({"messages", "model", "stream", "system", "tool_choice", "tools"})
"""Fields of the body that come from the request; an option may not replace them."""

_EARLIER = b'{"type":"text","text":"(earlier messages are left out)"}'
"""What comes before a window on a longer history that begins with the model: the vendor wants the person to speak first."""

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
    """Writes request bodies for one model. `Requests` says what it is made with."""

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
        self.tools: Final = ToolSets(self._written, server_tools=self._options.server_tools)

    def body(self, request: ModelRequest) -> bytes:
        """Return the body. What changes least comes first, and the messages last: the bytes of one step begin those of the next."""
        thinks_by_hand = self._options.thinks_by_hand and not is_foreign(
            request.messages, origin=self._origin, is_provable=is_provable
        )
        thinks = thinks_by_hand or not self._options.thinks_by_hand
        instructions = request.instructions if request.instructions and request.instructions.strip() else None
        head = [self._openings[request.raise_output_limit, thinks], *self._output(request), *self._container(request)]
        if tools := self.tools.listed(request.tools):
            # Tools stand before the instructions in what the vendor caches, so the last of both is the end of what is stable.
            head += [b',"tools":[', tools if instructions else self._marked(tools, b"}"), b"]"]
            head += [b',"tool_choice":', to_json(self._choice(request, thinks_by_hand=thinks_by_hand))]
        if instructions:
            head += [b',"system":', self._marked(to_json([{"type": "text", "text": instructions}]), b"}]")]
        return b"".join((*head, b',"messages":[', b",".join(self._turns(request.messages)), b"]}"))

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
        waits_in = (_container_of(message, origin=self._origin) for message in open_turn(request.messages))
        if not isinstance(container, str) and (known := next(filter(None, waits_in), None)):
            container = {"id": known, **container} if container else known
        return [b',"container":' + to_json(container)] if container else []

    def _written(self, tools: Iterable[ToolSpec]) -> Iterator[_Wire]:
        """Yield the tools: strict ones up to the vendor's limits, by name, and plain ones beyond."""
        limits = _StrictLimits()
        for spec in tools:
            tool: _Wire = {"name": wire_name(spec.name), "description": spec.description}
            schema = strict_schema(spec.parameters) if self._options.is_strict else None
            if schema is not None and limits.take(schema):
                yield {**tool, "input_schema": schema, "strict": True}
            else:
                yield {**tool, "input_schema": object_schema(spec.parameters)}

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


_OF = "an Anthropic model"


def _sorted_out(options: Mapping[str, Any]) -> _Options:
    opening({}, options, ours=_OURS)  # raises where an option is not valid JSON, or one of ours
    rest = dict(options)
    cache = object_option("cache_control", rest.pop("cache_control", {"type": "ephemeral"}), of=_OF)
    return _Options(
        thinking=object_option("thinking", rest.pop("thinking", None), of=_OF),
        output_config=object_option("output_config", rest.pop("output_config", None), of=_OF),
        container=_container_option(rest.pop("container", None)),
        server_tools=server_tools(
            rest.pop("server_tools", None),
            example="{'type': 'web_search_20250305', 'name': 'web_search'}",
            is_function=lambda tool: tool.get("type", "custom") == "custom",
        ),
        marker=b',"cache_control":' + to_json(cache) if cache else b"",
        is_strict=flag_option("strict_tools", rest.pop("strict_tools", None), of=_OF),
        is_parallel=flag_option("parallel_tool_calls", rest.pop("parallel_tool_calls", None), of=_OF, default=True),
        fields=rest,
    )


def _container_option(value: Any) -> Any:
    if not isinstance(value, str | Mapping | None):
        raise ConfigurationError(f"The option container of {_OF} must be the id of a container or an object.")
    return value


# --- Anthropic's list of models, in pages.


def _read(value: Any) -> Page | None:
    listed = objects(value.get("data")) if isinstance(value, dict) else None
    if listed is None:
        return None
    last = value.get("last_id") if value.get("has_more") else None
    return Page(
        {
            one["id"]: ModelFacts(window=number(one.get("max_input_tokens")), output=number(one.get("max_tokens")))
            for one in listed
            if isinstance(one.get("id"), str)
        },
        {"after_id": last} if isinstance(last, str) and last else None,
    )


LISTING = Listing(
    read=_read,
    query={"limit": "1000"},
    key_header="x-api-key",
    key_prefix="",
    headers={"anthropic-version": "2023-06-01"},
)
