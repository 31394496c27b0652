"""Anthropic Messages: what the dialect takes, and how it says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import itertools
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias, Union, cast

import msgspec
from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Dialect,
    Fault,
    Piece,
    PieceKind,
    Refusal,
    arguments_text,
    arguments_value,
    aws_error,
    aws_exception,
    called,
    error_fields,
    event_frame,
    event_lines,
    exception_frame,
    finish_name,
    json_bytes,
    read,
    used_tokens,
    whole,
)
from treadle.mock.script import Turn, fragments
from treadle.tools import JsonObject

__all__ = [
    "AnthropicMessages",
    "ClaudeAtACloud",
    "anthropic_events",
    "check_anthropic_history",
    "check_anthropic_request",
    "claude_dialects",
]


# --- What the vendor takes, declared. Fields that no rule looks at are open: what they hold is the vendor's business.

_MAX_MARKERS = 4
_MIN_TOP_P = 0.95
"""What a model that thinks may sample from at least."""
_UNSUPPORTED = {
    "integer": ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"),
    "number": ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"),
    "string": ("maxLength", "minLength"),
    "array": ("maxItems", "uniqueItems"),
    "object": ("maxProperties", "minProperties", "patternProperties", "propertyNames"),
}
"""Limits that a strict schema may not set, by type."""

_Id: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_-]+\Z")]
_Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}\Z")]
_Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Marker(msgspec.Struct, tag_field="type", tag="ephemeral"):
    ttl: Any = None


class _Citation(msgspec.Struct):
    type: str
    file_id: Any = UNSET

    def __post_init__(self) -> None:
        if self.file_id is not UNSET:  # it is in answers, and in no request
            raise ValueError("file_id: Extra inputs are not permitted")


class _Block(msgspec.Struct, tag_field="type"):
    cache_control: _Marker | None = None


class _Text(_Block, tag="text", kw_only=True):
    text: str
    citations: list[_Citation] | None = None

    def __post_init__(self) -> None:
        if not self.text:
            raise ValueError("text content blocks must be non-empty")
        if not self.text.strip():
            raise ValueError("text content blocks must contain non-whitespace text")


class _Source(msgspec.Struct):
    type: Literal["base64", "content", "file", "text", "url"]
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None

    def __post_init__(self) -> None:
        needed = {
            "base64": ("media_type", "data"),
            "text": ("media_type", "data"),
            "url": ("url",),
            "file": ("file_id",),
        }
        for name in needed.get(self.type, ()):
            if getattr(self, name) is None:
                raise ValueError(f"{name}: Field required")


class _Image(_Block, tag="image", kw_only=True):
    source: _Source


class _Document(_Block, tag="document", kw_only=True):
    source: _Source


class _SearchResult(_Block, tag="search_result", kw_only=True):
    content: list[_Text]


class _ToolReference(_Block, tag="tool_reference"):
    pass


class _Thinking(msgspec.Struct, tag_field="type", tag="thinking", forbid_unknown_fields=True):
    thinking: str
    signature: str

    def __post_init__(self) -> None:
        if not self.signature:
            raise ValueError("Invalid `signature` in `thinking` block")


class _RedactedThinking(msgspec.Struct, tag_field="type", tag="redacted_thinking", forbid_unknown_fields=True):
    data: str


class _ToolUse(_Block, tag="tool_use", kw_only=True):
    id: _Id
    name: _Name
    input: JsonObject
    caller: JsonObject | None = None


class _ToolResult(_Block, tag="tool_result", kw_only=True):
    tool_use_id: _Id
    content: str | list[_Text | _Image | _Document | _SearchResult | _ToolReference] = ""
    is_error: bool = False

    def __post_init__(self) -> None:
        if self.is_error and not all(isinstance(block, str | _Text) for block in self.content):
            raise ValueError('all content must be type "text" if `is_error` is true')


class _ServerToolUse(_Block, tag="server_tool_use", kw_only=True):
    id: str
    name: str
    input: JsonObject


class _McpToolUse(_ServerToolUse, tag="mcp_tool_use", kw_only=True):
    server_name: str


class _ServerResult(_Block, kw_only=True):
    tool_use_id: str


_SERVER_RESULTS = tuple(
    msgspec.defstruct(f"_{kind}", [], bases=(_ServerResult,), tag=f"{kind}_tool_result")
    for kind in (
        *("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution"),
        *("tool_search", "advisor", "mcp"),
    )
)
_Said: Any = Union[
    _Text, _Thinking, _RedactedThinking, _ToolUse, _ServerToolUse, _McpToolUse, *_SERVER_RESULTS
]  # Any: mypy follows no union that is made


class _User(msgspec.Struct, tag_field="role", tag="user", forbid_unknown_fields=True):
    content: str | list[_Text | _Image | _Document | _SearchResult | _ToolResult]


class _Assistant(msgspec.Struct, tag_field="role", tag="assistant", forbid_unknown_fields=True):
    content: str | list[_Said]


class _History(msgspec.Struct):
    messages: list[_User | _Assistant]


class _Tool(msgspec.Struct):
    name: _Name
    input_schema: JsonObject
    description: str = ""
    strict: bool | None = None
    cache_control: _Marker | None = None

    def __post_init__(self) -> None:
        if self.input_schema.get("type") != "object":
            problem = "Input should be 'object'" if "type" in self.input_schema else "Field required"
            raise ValueError(f"custom.input_schema.type: {problem}")
        if any(word in self.input_schema for word in ("oneOf", "allOf", "anyOf")):
            raise ValueError("custom.input_schema does not support oneOf, allOf, or anyOf at the top level")


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def __post_init__(self) -> None:
        allowed = {"tool": ("name", "disable_parallel_tool_use"), "none": ()}
        for field in ("name", "disable_parallel_tool_use"):
            if getattr(self, field) is not None and field not in allowed.get(self.type, ("disable_parallel_tool_use",)):
                raise ValueError(f"{self.type}.{field}: Extra inputs are not permitted")


class _Thoughts(msgspec.Struct):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, msgspec.Meta(ge=1024)] | None = None

    def __post_init__(self) -> None:
        if self.type == "enabled" and self.budget_tokens is None:
            raise ValueError("enabled.budget_tokens: Field required")


class _Form(msgspec.Struct, tag_field="type", tag="json_schema"):
    schema: JsonObject


class _Output(msgspec.Struct):
    format: _Form | None = None


class _Request(_History, kw_only=True, forbid_unknown_fields=True):
    model: Annotated[str, msgspec.Meta(min_length=1)]
    max_tokens: Annotated[int, msgspec.Meta(ge=1)]
    stream: bool = False
    system: str | list[_Text] | None = None
    tools: list[JsonObject] | None = None
    tool_choice: _Choice | None = None
    temperature: _Share = 1
    top_p: _Share = 1
    top_k: int | msgspec.UnsetType = UNSET
    thinking: _Thoughts | None = None
    output_config: _Output | None = None
    container: Any = None
    cache_control: _Marker | None = None
    stop_sequences: list[str] | None = None
    metadata: Any = None
    service_tier: Any = None
    mcp_servers: Any = None
    context_management: Any = None
    inference_geo: Any = None
    speed: Any = None


_KINDS = {
    "array": "list",
    "object": "dictionary or object to extract fields from",
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
}
_LIMITS = {
    ">=": "Input should be greater than or equal to",
    "<=": "Input should be less than or equal to",
    "length >=": "String should have at least",
}


def _refusal(fault: Fault) -> Refusal:
    """Say a fault in the vendor's words."""
    if fault.path[-1:] == ("role",) and fault.kind == "value":
        return Refusal(
            f'messages: Unexpected role "{fault.got}". Allowed roles are "user" or "assistant". The Messages API accepts a '
            'top-level `system` parameter, not "system" as an input message role.'
        )
    is_tag = fault.path[-1:] == ("type",) and fault.kind == "value"
    place = _place(fault.path[:-1] if is_tag else fault.path, fault.holders)
    match fault.kind:
        case "missing":
            said = "Field required"
        case "unknown":
            said = "Extra inputs are not permitted"
        case "type":
            said = next(f"Input should be a valid {kind}" for word, kind in _KINDS.items() if word in fault.expected)
        case "limit":
            said = f"{_LIMITS[fault.limit]} {fault.bound.removesuffix('.0')}"
            said += " character" if fault.limit == "length >=" else ""
        case "pattern":
            said = f"String should match pattern '{fault.bound.replace(chr(92) + 'Z', '$')}'"
        case "value":
            said = f"Input tag '{fault.got}' found using 'type' does not match any of the expected tags"
        case _:
            said = fault.words
    separator = "." if fault.kind == "rule" and re.match(r"[\w.]+:", said) else ": "  # a struct may name its own field
    return Refusal(f"{place}{separator}{said}" if place else said)


def _place(path: tuple[str | int, ...], holders: tuple[Any, ...]) -> str:
    """Return where a value stands: the vendor names the kind of each block on the way."""
    names: list[str] = []
    for step, holder in zip(path, holders, strict=False):
        if isinstance(holder, dict) and isinstance(holder.get("type"), str) and step != "type":
            names.append(holder["type"])
        names.append(str(step))
    return ".".join(names)


# --- The rules that no field can declare.


def check_anthropic_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request that the vendor takes.

    Raises:
        Refusal: The vendor refuses it.
    """
    request = read(body, _Request, _refusal)
    names = _check_tools(request.tools or [])
    _check_tool_choice(request.tool_choice, names)
    _check_thinking(request)
    _check_container(request)
    if request.output_config is not None and request.output_config.format is not None:
        _check_strict(request.output_config.format.schema, "output_config.format.schema")
    markers = _markers(body)
    if markers > _MAX_MARKERS:
        raise Refusal(f"A maximum of {_MAX_MARKERS} blocks with cache_control may be provided. Found {markers}.")
    _check_messages(request.messages)
    return cast("JsonObject", body)


@checked
def check_anthropic_history(messages: Any) -> None:  # Any: JSON of strangers
    """Check the `messages` of one request as the vendor does.

    Example:
        >>> check_anthropic_history([{"role": "user", "content": "go"}])
        >>> check_anthropic_history([{"role": "assistant", "content": "go"}])
        Traceback (most recent call last):
        treadle.mock.dialects.shared.Refusal: messages: first message must use the "user" role

    Args:
        messages: The value of `messages`.

    Raises:
        Refusal: The history is not one that the vendor takes; the first fault in order.
    """
    _check_messages(read({"messages": messages}, _History, _refusal).messages)


def _check_tools(tools: list[JsonObject]) -> list[str]:
    """Return the names of the tools, each tool checked."""
    names: list[str] = []
    for index, tool in enumerate(tools):
        if tool.get("type", "custom") not in (None, "custom"):  # one of the vendor's own: it has no schema
            names.append(str(tool.get("name") or tool["type"]))
            continue
        own = read({**tool, "type": "custom"}, _Tool, _refusal, at=("tools", index))
        if own.strict:
            _check_strict(tool["input_schema"], f"tools.{index}.custom")
        names.append(own.name)
    if len(set(names)) < len(names):
        raise Refusal("tools: Tool names must be unique.")
    return names


def _check_strict(schema: Any, where: str) -> None:
    if isinstance(schema, list):
        for below in schema:
            _check_strict(below, where)
    if not isinstance(schema, dict):
        return
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        found = [word for word in _UNSUPPORTED.get(str(kind), ()) if word in schema]
        if found:
            raise Refusal(f"{where}: For '{kind}' type, properties {', '.join(found)} are not supported")
        if kind == "object" and schema.get("additionalProperties") is not False:
            raise Refusal(f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    for word in ("oneOf", "not", "if", "prefixItems"):
        if word in schema:
            raise Refusal(f"{where}: Schema type '{word}' is not supported")
    for word in ("properties", "$defs"):
        _check_strict(list(schema.get(word, {}).values()), where)
    _check_strict([schema.get(word) for word in ("items", "anyOf", "allOf")], where)


def _check_tool_choice(choice: _Choice | None, names: list[str]) -> None:
    if choice is not None and not names:
        raise Refusal("tool_choice: tool_choice may only be specified while providing tools")
    if choice is not None and choice.type == "tool" and choice.name not in names:
        raise Refusal(f"Tool '{choice.name}' not found in provided tools")


def _check_thinking(request: _Request) -> None:
    thinking = request.thinking
    if thinking is not None and thinking.type in ("enabled", "adaptive"):
        if request.temperature != 1:
            raise Refusal("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.")
        if request.top_p < _MIN_TOP_P:
            raise Refusal(f"`top_p` must be greater than or equal to {_MIN_TOP_P} or unset when thinking is enabled.")
        if request.top_k is not UNSET:
            raise Refusal("`top_k` must be unset when thinking is enabled.")
    if thinking is None or thinking.type != "enabled":
        return
    if (thinking.budget_tokens or 0) >= request.max_tokens:
        raise Refusal("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if request.tool_choice is not None and request.tool_choice.type in ("any", "tool"):
        raise Refusal("Thinking may not be enabled when tool_choice forces tool use.")
    # The turn that continues after results must hold thinking: nothing else proves what the model thought.
    turn = [(index, _blocks(message)[:1]) for index, message in _open_turn(request.messages)]
    if turn and not any(isinstance(block, _Thinking | _RedactedThinking) for _, first in turn for block in first):
        index, first = turn[-1]
        found = first[0].__struct_config__.tag if first else "text"
        raise Refusal(
            f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and "
            "`tool_result` blocks)."
        )


def _blocks(message: _User | _Assistant) -> Sequence[Any]:
    """Return the blocks of a message. A text by itself is one."""
    if isinstance(message.content, str):
        return [_Text(text=message.content)] if message.content else []
    return message.content


def _open_turn(messages: list[_User | _Assistant]) -> list[tuple[int, _Assistant]]:
    """Return the assistant's messages since the person last spoke alone, where results end the history."""
    turn: list[tuple[int, _Assistant]] = []
    for index, message in reversed(list(enumerate(messages))):
        if isinstance(message, _Assistant):
            if index == len(messages) - 1:
                return []
            turn.insert(0, (index, message))
        elif not any(isinstance(block, _ToolResult) for block in message.content):
            break
    return turn


def _check_container(request: _Request) -> None:
    """A call that the vendor's code made waits in a container, which the request with its result must name."""
    for _, message in _open_turn(request.messages)[-1:]:
        callers = [block.caller or {} for block in message.content if isinstance(block, _ToolUse)]
        by_code = any(str(caller.get("type")).startswith("code_execution") for caller in callers)
        if by_code and not request.container:
            raise Refusal(
                "container_id is required when there are pending tool uses generated by code execution with tools."
            )


def _markers(value: Any) -> int:
    """Count the cache markers of blocks and tools. What a call holds in its `input` is data."""
    if isinstance(value, list):
        return sum(map(_markers, value))
    if not isinstance(value, dict):
        return 0
    below = (value.get(key) for key in ("system", "tools", "messages", "content"))
    return sum(map(_markers, below)) + ("type" in value and value.get("cache_control") is not None)


def _check_messages(messages: list[_User | _Assistant]) -> None:
    """Check who speaks when, and that each call has its result in the message after it."""
    if not messages:
        raise Refusal("messages: at least one message is required")
    if not isinstance(messages[0], _User):
        raise Refusal('messages: first message must use the "user" role')
    turns: list[tuple[bool, list[tuple[str, Any]]]] = []
    for index, message in enumerate(messages):
        is_user = isinstance(message, _User)
        blocks = [(f"messages.{index}.content.{place}", block) for place, block in enumerate(_blocks(message))]
        if not blocks and (is_user or index < len(messages) - 1):
            raise Refusal(
                f"messages.{index}: all messages must have non-empty content except for the optional final assistant message"
            )
        # The vendor joins neighbours of one role, but wants all results of a step in the one message after it.
        if turns and not turns[-1][0] and not is_user:
            turns[-1][1].extend(blocks)
        else:
            turns.append((is_user, blocks))
    if not turns[-1][0] and turns[-1][1]:
        last = turns[-1][1][-1][1]
        if isinstance(last, _Text) and last.text != last.text.rstrip():
            raise Refusal("messages: final assistant content cannot end with trailing whitespace")
    _check_pairs(turns)


def _check_pairs(turns: list[tuple[bool, list[tuple[str, Any]]]]) -> None:
    asked: list[str] = []
    seen: set[str] = set()
    where_asked = ""
    for is_user, blocks in turns:
        if is_user:
            _check_results(blocks, asked, where_asked)
            asked = []
            continue
        where_asked = blocks[0][0].partition(".content")[0] if blocks else ""
        asked = [block.id for _, block in blocks if isinstance(block, _ToolUse)]
        if len({*asked}) < len(asked) or seen & {*asked}:
            raise Refusal("messages: `tool_use` ids must be unique")
        seen |= {*asked}
        _check_server_results(blocks)
    _check_none_left(asked, where_asked)


def _check_results(blocks: list[tuple[str, Any]], asked: list[str], where_asked: str) -> None:
    """Take the results that come first; one behind anything else answers nothing."""
    answered: list[str] = []
    for where, block in itertools.takewhile(lambda one: isinstance(one[1], _ToolResult), blocks):
        if block.tool_use_id in answered:
            raise Refusal(
                f"{where}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {block.tool_use_id}"
            )
        if block.tool_use_id not in asked:
            raise _unasked(where, block.tool_use_id, "tool_result", "tool_use` block in the previous message")
        answered.append(block.tool_use_id)
    _check_none_left([call_id for call_id in asked if call_id not in answered], where_asked)
    for where, block in blocks[len(answered) :]:
        if isinstance(block, _ToolResult):
            raise _unasked(where, block.tool_use_id, "tool_result", "tool_use` block in the previous message")


def _check_none_left(asked: list[str], where: str) -> None:
    if asked:
        raise Refusal(
            f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(asked)}. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message."
        )


def _check_server_results(blocks: list[tuple[str, Any]]) -> None:
    """A result of the vendor's own tool is in the same message, behind its call."""
    called: set[str] = set()
    for where, block in blocks:
        if isinstance(block, _ServerToolUse):
            called.add(block.id)
        elif isinstance(block, _ServerResult) and block.tool_use_id not in called:
            raise _unasked(
                where, block.tool_use_id, str(block.__struct_config__.tag), "server_tool_use` block before it"
            )


def _unasked(where: str, call_id: str, kind: str, wanted: str) -> Refusal:
    return Refusal(
        f"{where}: unexpected `tool_use_id` found in `{kind}` blocks: {call_id}. Each `{kind}` block must have a corresponding "
        f"`{wanted}."
    )


# --- Anthropic Messages: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket.

_FINISHES = {Finish.STOP: "end_turn", Finish.CALLS: "tool_use", Finish.LENGTH: "max_tokens", Finish.REFUSED: "refusal"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_SIGNATURE = "bW9jaw=="


class AnthropicMessages:
    """The dialect of `POST /v1/messages`."""

    path = "/messages"

    def with_head(self, path: str, headers: Mapping[str, str]) -> Self:
        if "anthropic-version" not in headers:
            raise Refusal("anthropic-version: header is required")
        return self

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        return check_anthropic_request(body)

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        message = {
            "id": f"msg_mock_{number}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": _content(turn, ids),
            "stop_reason": finish_name(turn, _FINISHES),
            "stop_sequence": None,
            **({} if turn.usage is None else {"usage": _usage(turn, body)}),
        }
        if body.get("stream") is True:
            pieces = tuple(_pieces(message, turn))
            return Answer(pieces=pieces, content_type="text/event-stream; charset=utf-8", is_stream=True)
        return whole(
            _error(turn.status, turn.error) if turn.error is not None else {**message, "content": _whole(message)}
        )

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return json_bytes(_error(status, error))


def anthropic_events(message: JsonObject, *, pieces: int = 3) -> bytes:
    """Return the stream that says a message which was sent whole.

    Example:
        >>> anthropic_events({"content": [], "stop_reason": "end_turn", "usage": {}}).count(b"event: ")
        3

    Args:
        message: A whole answer's JSON object.
        pieces: Fragments of each text and of each call's arguments.
    """
    return b"".join(piece.content for piece in _pieces(message, Turn(pieces=pieces)))


def _error(status: int, error: str | JsonObject) -> JsonObject:
    kind = _ERRORS.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": "", **error_fields(error)},
        "request_id": "req_mock",
    }


def _content(turn: Turn, ids: Iterator[str]) -> list[JsonObject]:
    """Return the blocks of a turn; the input of a call is its raw text."""
    content: list[JsonObject] = []
    if turn.thinking is not None:
        content.append({"type": "thinking", "thinking": turn.thinking, "signature": _SIGNATURE})
    content += ({"type": "text", "text": text} for text in (turn.text, turn.refusal) if text)
    for made, named in called(turn, ids):
        content.append({"type": "tool_use", **named, "name": made.name, "input": made.arguments})
    return content


def _whole(message: JsonObject) -> list[JsonObject]:
    """Return the blocks with objects as input. One that is not valid JSON, which the vendor never sends whole, stays text."""
    return [
        {**block, "input": arguments_value(block["input"])} if "input" in block else block
        for block in message["content"]
    ]


def _pieces(message: JsonObject, turn: Turn) -> Iterator[Piece]:
    """Yield the events of a message, in order."""

    def piece(kind: PieceKind, event: JsonObject, *, call: int | None = None, is_last: bool = False) -> Piece:
        content = event_lines(json_bytes(event), turn, kind=event["type"])
        return Piece(kind=kind, content=content, call=call, is_last=is_last)

    usage = message.get("usage", {})
    head = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": min(1, len(usage))}}
    yield piece("start", {"type": "message_start", "message": head if usage else {**head, "usage": {}}})
    call = -1
    for index, block in enumerate(message["content"]):
        call += block["type"] == "tool_use"
        kind = _piece_kind(block)
        for event in _block_events(block, turn.pieces):
            is_last = event["type"] == "content_block_stop"
            position = call if kind == "call" else None
            yield piece(kind, {**event, "index": index}, call=position, is_last=is_last)
    if turn.error is not None:
        yield piece("error", _error(turn.status, turn.error))
        return
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield piece("finish", {"type": "message_delta", "delta": delta, "usage": usage})
    yield piece("done", {"type": "message_stop"})


def _piece_kind(block: JsonObject) -> PieceKind:
    match block["type"]:
        case "text":
            return "text"
        case "tool_use":
            return "call"
        case _:
            return "thinking"


def _block_events(block: JsonObject, pieces: int) -> Iterator[JsonObject]:
    kind, deltas = block["type"], list[JsonObject]()
    match kind:
        case "text":
            start = {**block, "text": "", **({"citations": []} if "citations" in block else {})}
            deltas += ({"type": "citations_delta", "citation": one} for one in block.get("citations") or ())
            deltas += ({"type": "text_delta", "text": part} for part in fragments(block["text"], pieces))
        case "thinking":
            start = {**block, "thinking": "", "signature": ""}
            deltas += ({"type": "thinking_delta", "thinking": part} for part in fragments(block["thinking"], pieces))
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            start = {**block, "input": {}}
            parts = ["", *fragments(arguments_text(block["input"]), pieces)]
            deltas += ({"type": "input_json_delta", "partial_json": part} for part in parts)
        case _:
            start = block
    yield {"type": "content_block_start", "content_block": start}
    yield from ({"type": "content_block_delta", "delta": delta} for delta in deltas)
    yield {"type": "content_block_stop"}


def _usage(turn: Turn, body: JsonObject) -> JsonObject:
    used = used_tokens(turn, body["messages"])
    return {
        "input_tokens": used.input_tokens - used.cached_input_tokens - used.cache_written_tokens,
        "cache_creation_input_tokens": used.cache_written_tokens,
        "cache_read_input_tokens": used.cached_input_tokens,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"thinking_tokens": used.reasoning_tokens},
    }


# --- Anthropic Messages at a cloud: Bedrock's InvokeModel and Vertex's rawPredict. Checks what differs
# there; the rest is the dialect.

_Cloud: TypeAlias = Literal["bedrock", "vertex"]

_VERSIONS = {"bedrock": "bedrock-2023-05-31", "vertex": "vertex-2023-10-16"}
_PATHS = {
    ("bedrock", False): ("/invoke", re.compile(r"/model/([A-Za-z0-9._~-]|%[0-9A-F]{2}){1,2048}/invoke")),
    ("bedrock", True): (
        "/invoke-with-response-stream",
        re.compile(r"/model/([A-Za-z0-9._~-]|%[0-9A-F]{2}){1,2048}/invoke-with-response-stream"),
    ),
    ("vertex", False): (":rawPredict", re.compile(r"/publishers/anthropic/models/[A-Za-z0-9._@%-]+:rawPredict")),
    ("vertex", True): (
        ":streamRawPredict",
        re.compile(r"/publishers/anthropic/models/[A-Za-z0-9._@%-]+:streamRawPredict"),
    ),
}
_DATA = re.compile(rb"data: (.*?)[\r\n]")


class ClaudeAtACloud:
    """Claude at one cloud, streamed or whole: the path says which.

    Args:
        cloud: Which cloud it is.
        is_stream: Whether its answers are streams.
    """

    def __init__(self, cloud: _Cloud, *, is_stream: bool) -> None:
        self.path, self._whole_path = _PATHS[cloud, is_stream]
        self._cloud = cloud
        self._is_stream = is_stream
        self._inner = AnthropicMessages()

    def with_head(self, path: str, headers: Mapping[str, str]) -> "ClaudeAtACloud":
        if self._whole_path.search(path) is None:
            raise Refusal("The provided model identifier is invalid.")
        return self

    def check(self, body: Any) -> JsonObject:  # Any: JSON of strangers
        if not isinstance(body, dict):
            raise Refusal("Malformed input request: expected an object")
        version = _VERSIONS[self._cloud]
        if body.get("anthropic_version") != version:
            raise Refusal(f"anthropic_version: Input should be '{version}'")
        for key in ("model", *(("stream",) if self._cloud == "bedrock" else ())):
            if key in body:
                raise Refusal(f"{key}: Extra inputs are not permitted")
        if self._cloud == "vertex" and body.get("stream", False) is not self._is_stream:
            raise Refusal("stream: Input should agree with the method")
        if self._cloud == "bedrock" and _has_url(body.get("messages")):
            raise Refusal("messages: URL sources are not supported")
        betas = body.get("anthropic_beta", [])
        if not isinstance(betas, list) or not all(isinstance(beta, str) for beta in betas):
            raise Refusal("anthropic_beta: Input should be a valid list")
        rest = {key: value for key, value in body.items() if key not in ("anthropic_version", "anthropic_beta")}
        return self._inner.check({**rest, "model": "claude", "stream": self._is_stream})

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        answer = self._inner.answer(turn, body, number=number, ids=ids)
        if self._cloud == "vertex":
            return answer
        if not self._is_stream:
            if turn.error is not None:
                return Answer(pieces=(Piece(kind="whole", content=aws_error(turn.status, turn.error)),))
            return answer
        pieces = tuple(_framed(piece, turn) for piece in answer.pieces)
        return Answer(pieces=pieces, content_type="application/vnd.amazon.eventstream", is_stream=True)

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        return aws_error(status, error) if self._cloud == "bedrock" else self._inner.error(status, error)


def claude_dialects() -> list[Dialect]:
    """Return all doors."""
    return [
        ClaudeAtACloud("bedrock", is_stream=True),
        ClaudeAtACloud("bedrock", is_stream=False),
        ClaudeAtACloud("vertex", is_stream=True),
        ClaudeAtACloud("vertex", is_stream=False),
    ]


def _framed(piece: Piece, turn: Turn) -> Piece:
    """Return an event as Bedrock sends it: in base64, inside one of its own."""
    if piece.kind == "error" and turn.error is not None:
        return msgspec.structs.replace(piece, content=exception_frame(*aws_exception(turn.status, turn.error)))
    found = _DATA.search(piece.content)
    data = found[1] if found else b""
    content = event_frame("chunk", json_bytes({"bytes": b64encode(data).decode(), "p": "abc"}))
    return msgspec.structs.replace(piece, content=content)


def _has_url(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_url, value))
    if not isinstance(value, dict):
        return False
    source = value.get("source")
    return (isinstance(source, dict) and source.get("type") == "url") or _has_url(value.get("content"))
