"""Anthropic Messages: how the dialect says a turn, streamed or whole. Knows no fault of the wire and no socket."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NoReturn, Self, TypeAlias

import msgspec
from msgspec import UNSET

from treadle.fields import checked
from treadle.messages import Finish
from treadle.mock.dialects.shared import (
    Answer,
    Dialect,
    Piece,
    PieceKind,
    Refusal,
    arguments_text,
    aws_error,
    aws_exception,
    event_frame,
    event_lines,
    exception_frame,
    finish_name,
    json_bytes,
    used_tokens,
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


# --- Requests in Anthropic Messages: refuse a body that the vendor refuses. The messages' pairing is checked elsewhere.

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_KNOWN = frozenset(
    (
        *(
            "model",
            "messages",
            "max_tokens",
            "stream",
            "system",
            "tools",
            "tool_choice",
            "temperature",
            "top_k",
            "top_p",
        ),
        *("stop_sequences", "metadata", "service_tier", "thinking", "container", "mcp_servers", "context_management"),
        *("output_config", "cache_control", "inference_geo", "speed"),
    )
)
_MAX_MARKERS = 4
_MIN_THINKING = 1024
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


def check_anthropic_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but its messages checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        _refuse("Input should be a valid dictionary or object to extract fields from")
    for key in body:
        if key not in _KNOWN:
            _refuse(f"{key}: Extra inputs are not permitted")
    for key in ("model", "messages", "max_tokens"):
        if key not in body:
            _refuse(f"{key}: Field required")
    _check_scalars(body)
    _check_system(body.get("system"))
    names = _check_tools(body.get("tools"))
    _check_tool_choice(body.get("tool_choice"), names)
    _check_thinking(body)
    _check_container(body)
    _check_output(body.get("output_config"))
    markers = sum(1 for _ in _markers({key: body.get(key) for key in ("system", "tools", "messages")}))
    if markers > _MAX_MARKERS:
        _refuse(f"A maximum of {_MAX_MARKERS} blocks with cache_control may be provided. Found {markers}.")
    return body


def _check_scalars(body: JsonObject) -> None:
    if not isinstance(body["model"], str):
        _refuse("model: Input should be a valid string")
    if not body["model"]:
        _refuse("model: String should have at least 1 character")
    if type(body["max_tokens"]) is not int:
        _refuse("max_tokens: Input should be a valid integer")
    if body["max_tokens"] < 1:
        _refuse("max_tokens: Input should be greater than or equal to 1")
    if not isinstance(body.get("stream", False), bool):
        _refuse("stream: Input should be a valid boolean")
    for key in ("temperature", "top_p"):
        value = body.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(f"{key}: Input should be a valid number")
        if not 0 <= value <= 1:
            _refuse(f"{key}: Input should be less than or equal to 1")


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        _refuse("system: Input should be a valid list")
    for index, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            _refuse(f"system.{index}: Input should be a text block")
        if not block["text"].strip():
            _refuse("system: text content blocks must be non-empty")


def _check_tools(tools: Any) -> list[str]:
    """Return the names of the tools, each tool checked."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        _refuse("tools: Input should be a valid list")
    names = [_tool_name(tool, f"tools.{index}") for index, tool in enumerate(tools)]
    if len(set(names)) < len(names):
        _refuse("tools: Tool names must be unique.")
    return names


def _tool_name(tool: Any, where: str) -> str:
    if not isinstance(tool, dict):
        _refuse(f"{where}: Input should be a valid dictionary or object to extract fields from")
    name = tool.get("name")
    if tool.get("type", "custom") not in (None, "custom"):  # one of the vendor's own: it has no schema
        return str(name or tool["type"])
    where = f"{where}.custom"
    if "name" not in tool:
        _refuse(f"{where}.name: Field required")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(f"{where}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if not isinstance(tool.get("description", ""), str):
        _refuse(f"{where}.description: Input should be a valid string")
    _check_schema(tool, where)
    return name


def _check_schema(tool: JsonObject, where: str) -> None:
    place = f"{where}.input_schema"
    if "input_schema" not in tool:
        _refuse(f"{place}: Field required")
    schema = tool["input_schema"]
    if not isinstance(schema, dict):
        _refuse(f"{place}: Input should be a valid dictionary")
    if "type" not in schema:
        _refuse(f"{place}.type: Field required")
    if schema["type"] != "object":
        _refuse(f"{place}.type: Input should be 'object'")
    if any(word in schema for word in ("oneOf", "allOf", "anyOf")):
        _refuse(f"{place}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if tool.get("strict"):
        _check_strict(schema, where)


def _check_strict(schema: Any, where: str) -> None:
    if isinstance(schema, list):
        for one in schema:
            _check_strict(one, where)
    if not isinstance(schema, dict):
        return
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        found = [word for word in _UNSUPPORTED.get(str(kind), ()) if word in schema]
        if found:
            _refuse(f"{where}: For '{kind}' type, properties {', '.join(found)} are not supported")
        if kind == "object" and schema.get("additionalProperties") is not False:
            _refuse(f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false")
    for word in ("oneOf", "not", "if", "prefixItems"):
        if word in schema:
            _refuse(f"{where}: Schema type '{word}' is not supported")
    for word in ("properties", "$defs"):
        _check_strict(list(schema.get(word, {}).values()), where)
    _check_strict([schema.get(word) for word in ("items", "anyOf", "allOf")], where)


def _check_tool_choice(choice: Any, names: list[str]) -> None:
    if choice is None:
        return
    if not names:
        _refuse("tool_choice: tool_choice may only be specified while providing tools")
    if not isinstance(choice, dict) or choice.get("type") not in ("auto", "any", "none", "tool"):
        _refuse(
            "tool_choice: Input tag found using 'type' does not match any of the expected tags: 'auto', 'any', 'tool', 'none'"
        )
    kind = choice["type"]
    allowed = {"auto": {"disable_parallel_tool_use"}, "any": {"disable_parallel_tool_use"}, "none": set[str]()}
    for key in choice.keys() - {"type"} - allowed.get(kind, {"name", "disable_parallel_tool_use"}):
        _refuse(f"tool_choice.{kind}.{key}: Extra inputs are not permitted")
    if not isinstance(choice.get("disable_parallel_tool_use", False), bool):
        _refuse(f"tool_choice.{kind}.disable_parallel_tool_use: Input should be a valid boolean")
    if kind == "tool" and choice.get("name") not in names:
        _refuse(f"Tool '{choice.get('name')}' not found in provided tools")


def _check_thinking(body: JsonObject) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    if not isinstance(thinking, dict) or thinking.get("type") not in (
        "enabled",
        "disabled",
        "adaptive",
        "between_tools",
    ):
        _refuse(
            "thinking: Input tag found using 'type' does not match any of the expected tags: 'disabled', 'enabled', 'adaptive'"
        )
    if thinking["type"] in ("enabled", "adaptive"):
        _check_sampling(body)
    if thinking["type"] != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if type(budget) is not int:
        _refuse("thinking.enabled.budget_tokens: Field required")
    if budget < _MIN_THINKING:
        _refuse(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {_MIN_THINKING}")
    if budget >= body["max_tokens"]:
        _refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if isinstance(body.get("tool_choice"), dict) and body["tool_choice"]["type"] in ("any", "tool"):
        _refuse("Thinking may not be enabled when tool_choice forces tool use.")
    _check_begins_with_thinking(body["messages"])


def _check_sampling(body: JsonObject) -> None:
    if body.get("temperature", 1) != 1:
        _refuse("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.")
    if body.get("top_p", 1) < _MIN_TOP_P:
        _refuse(f"`top_p` must be greater than or equal to {_MIN_TOP_P} or unset when thinking is enabled.")
    if "top_k" in body:
        _refuse("`top_k` must be unset when thinking is enabled.")


def _check_begins_with_thinking(messages: Any) -> None:
    """The turn that continues after results must hold thinking: nothing else proves what the model thought."""
    turn = [(index, _first_kind(content)) for index, content in _open_turn(messages)]
    if turn and not any(kind in ("thinking", "redacted_thinking") for _, kind in turn):
        index, kind = turn[-1]
        _refuse(
            f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and "
            "`tool_result` blocks)."
        )


def _first_kind(content: Any) -> str:
    blocks = content if isinstance(content, list) else []
    return str(blocks[0].get("type")) if blocks and isinstance(blocks[0], dict) else "text"


def _open_turn(messages: Any) -> list[tuple[int, Any]]:
    """Return the assistant's messages since the person last spoke alone, where results end the history."""
    turn: list[tuple[int, Any]] = []
    for index, message in reversed(list(enumerate(messages if isinstance(messages, list) else []))):
        if not isinstance(message, dict):
            return []
        if message.get("role") == "assistant":
            if index == len(messages) - 1:
                return []
            turn.insert(0, (index, message.get("content")))
        elif not _holds_results(message.get("content")):
            break
    return turn


def _holds_results(content: Any) -> bool:
    blocks = content if isinstance(content, list) else []
    return any(isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks)


def _check_container(body: JsonObject) -> None:
    """A call that the vendor's code made waits in a container, which the request with its result must name."""
    for _, content in _open_turn(body["messages"])[-1:]:
        callers = (
            [block.get("caller") for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        )
        by_code = any(str(one.get("type")).startswith("code_execution") for one in callers if isinstance(one, dict))
        if by_code and not body.get("container"):
            _refuse("container_id is required when there are pending tool uses generated by code execution with tools.")


def _check_output(config: Any) -> None:
    match config:
        case None | {"format": None}:
            return
        case {"format": {"type": "json_schema", "schema": dict(schema)}}:
            _check_strict(schema, "output_config.format.schema")
        case {"format": _}:
            _refuse("output_config.format: Input should be a json_schema with a schema")
        case dict():
            return
        case _:
            _refuse("output_config: Input should be a valid dictionary")


def _markers(value: Any) -> Iterator[Any]:
    """Yield every cache marker of blocks and tools. What a call holds in its `input` is data."""
    if isinstance(value, list):
        for one in value:
            yield from _markers(one)
    if isinstance(value, dict):
        marker = value.get("cache_control")
        if marker is not None:
            if not isinstance(marker, dict) or marker.get("type") != "ephemeral":
                _refuse(
                    f"cache_control: Input tag {json.dumps(marker)} does not match any of the expected tags: 'ephemeral'"
                )
            yield marker
        for key, one in value.items():
            if key in ("system", "tools", "messages", "content"):
                yield from _markers(one)


def _refuse(message: str) -> NoReturn:
    raise Refusal(message)


# --- Pairing in Anthropic Messages: refuse a history whose calls and results do not match. Repairs nothing.

_ID = re.compile(r"[a-zA-Z0-9_-]+")

_FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "text": {"text": str},
    "image": {"source": dict},
    "document": {"source": dict},
    "search_result": {"content": list},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_use": {"id": str, "name": str, "input": dict, "server_name": str},
}
"""What each kind of block must hold. The results of the vendor's own tools are one kind more."""

_SPOKEN = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result"}),
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use"}),
}
_SHOWN = frozenset({"text", "image", "document", "search_result"})
"""What a result may hold."""
_SOURCES = frozenset({"base64", "content", "file", "text", "url"})
_UNMARKED = frozenset({"thinking", "redacted_thinking"})
"""Blocks that cannot carry a cache marker."""

_KINDS: dict[type | tuple[type, ...], str] = {
    str: "Input should be a valid string",
    dict: "Input should be a valid dictionary",
    list: "Input should be a valid list",
}


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
    if not isinstance(messages, list):
        _refuse("messages: Input should be a valid list")
    if not messages:
        _refuse("messages: at least one message is required")
    turns: list[tuple[str, list[tuple[str, JsonObject]]]] = []
    for index, message in enumerate(messages):
        role = _role(message, index)
        blocks = list(_blocks(message, role, index, is_last=index == len(messages) - 1))
        # The vendor joins neighbours of one role, but wants all results of a step in the one message after it.
        if turns and turns[-1][0] == role == "assistant":
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    if turns[0][0] != "user":
        _refuse('messages: first message must use the "user" role')
    _check_pairs(turns)


def _role(message: Any, index: int) -> str:
    if not isinstance(message, dict):
        _refuse(f"messages.{index}: Input should be a valid dictionary or object to extract fields from")
    if "role" not in message:
        _refuse(f"messages.{index}.role: Field required")
    for key in message:
        if key not in ("role", "content"):
            _refuse(f"messages.{index}.{key}: Extra inputs are not permitted")
    role = message["role"]
    if role == "system":
        _refuse(
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not "system" as an input '
            "message role."
        )
    if not isinstance(role, str) or role not in _SPOKEN:
        _refuse(f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"')
    return role


def _blocks(message: JsonObject, role: str, index: int, *, is_last: bool) -> Iterator[tuple[str, JsonObject]]:
    """Yield the blocks of a message, each checked, with the place where it stands."""
    where = f"messages.{index}"
    content = message.get("content")
    if "content" not in message:
        _refuse(f"{where}.content: Field required")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        _refuse(f"{where}.content: Input should be a valid list")
    if not content and not (is_last and role == "assistant"):
        _refuse(f"{where}: all messages must have non-empty content except for the optional final assistant message")
    for place, block in enumerate(content):
        _check_block(block, role, f"{where}.content.{place}")
        yield f"{where}.content.{place}", block
    if is_last and role == "assistant" and content and _text_of(content[-1]) != _text_of(content[-1]).rstrip():
        _refuse("messages: final assistant content cannot end with trailing whitespace")


def _check_block(block: Any, role: str, where: str) -> None:
    kind = _kind(block, where)
    is_server_result = kind.endswith("_tool_result") and role == "assistant"
    if kind not in _FIELDS and not is_server_result:
        known = ", ".join(f"'{name}'" for name in sorted(_FIELDS))
        _refuse(f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {known}")
    if kind not in _SPOKEN[role] and not is_server_result:
        other = "assistant" if role == "user" else "user"
        _refuse(f"{where}: `{kind}` blocks can only be in `{other}` messages")
    _check_fields(block, {"tool_use_id": str} if is_server_result else _FIELDS[kind], f"{where}.{kind}")
    _check_marker(block, kind, where)
    match kind:
        case "text":
            _check_text(block["text"])
            _check_citations(block.get("citations"), f"{where}.text.citations")
        case "thinking" if not block["signature"]:
            _refuse(f"{where}: Invalid `signature` in `thinking` block")
        case "tool_use":
            _check_pattern(block["id"], _ID, "^[a-zA-Z0-9_-]+$", f"{where}.tool_use.id")
            _check_pattern(block["name"], _NAME, "^[a-zA-Z0-9_-]{1,128}$", f"{where}.tool_use.name")
        case "tool_result":
            _check_result(block, f"{where}.tool_result")
        case "image" | "document":
            _check_source(block, kind, where)


def _kind(block: Any, where: str) -> str:
    if not isinstance(block, dict):
        _refuse(f"{where}: Input should be a valid dictionary or object to extract fields from")
    if not isinstance(block.get("type"), str):
        _refuse(f"{where}.type: Field required")
    return str(block["type"])


def _check_fields(block: JsonObject, fields: dict[str, type | tuple[type, ...]], where: str) -> None:
    for name, kind in fields.items():
        if name not in block:
            _refuse(f"{where}.{name}: Field required")
        if not isinstance(block[name], kind):
            _refuse(f"{where}.{name}: {_KINDS[kind]}")


def _check_marker(block: JsonObject, kind: str, where: str) -> None:
    if block.get("cache_control") is None:
        return
    if kind in _UNMARKED:
        _refuse(f"{where}.{kind}.cache_control: Extra inputs are not permitted")
    if kind == "text" and not block["text"]:
        _refuse(f"{where}.text: cache_control cannot be set for empty text blocks")


def _check_text(text: str) -> None:
    if not text:
        _refuse("messages: text content blocks must be non-empty")
    if not text.strip():
        _refuse("messages: text content blocks must contain non-whitespace text")


def _check_citations(citations: Any, where: str) -> None:
    if citations is not None and not isinstance(citations, list):
        _refuse(f"{where}: Input should be a valid list")
    for place, cited in enumerate(citations or ()):
        kind = _kind(cited, f"{where}.{place}")
        if "file_id" in cited:  # it stands in answers, and in no request
            _refuse(f"{where}.{place}.{kind}.file_id: Extra inputs are not permitted")


def _check_pattern(value: str, pattern: re.Pattern[str], shown: str, where: str) -> None:
    if not pattern.fullmatch(value):
        _refuse(f"{where}: String should match pattern '{shown}'")


def _check_result(block: JsonObject, where: str) -> None:
    _check_pattern(block["tool_use_id"], _ID, "^[a-zA-Z0-9_-]+$", f"{where}.tool_use_id")
    if not isinstance(block.get("is_error", False), bool):
        _refuse(f"{where}.is_error: Input should be a valid boolean")
    content = block.get("content", [])
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        _refuse(f"{where}.content: Input should be a valid list")
    for place, shown in enumerate(content):
        kind = _kind(shown, f"{where}.content.{place}")
        if kind not in _SHOWN | {"tool_reference"}:
            _refuse(
                f"{where}.content.{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            )
        if block.get("is_error") and kind != "text":
            _refuse(f'{where}: all content must be type "text" if `is_error` is true')
        if kind in _SHOWN:
            _check_block(shown, "user", f"{where}.content.{place}")


def _check_source(block: JsonObject, kind: str, where: str) -> None:
    source = block["source"]
    if source.get("type") not in _SOURCES:
        _refuse(
            f"{where}.{kind}.source: Input tag '{source.get('type')}' found using 'type' does not match any of the expected tags"
        )
    needed = {"base64": ("media_type", "data"), "text": ("media_type", "data"), "url": ("url",), "file": ("file_id",)}
    for name in needed.get(source["type"], ()):
        if not isinstance(source.get(name), str):
            _refuse(f"{where}.{kind}.source.{source['type']}.{name}: Field required")


def _text_of(block: JsonObject) -> str:
    return str(block["text"]) if block["type"] == "text" else ""


# --- calls and results -----------------------------------------------------------------------------------------------


def _check_pairs(turns: list[tuple[str, list[tuple[str, JsonObject]]]]) -> None:
    asked: list[str] = []
    seen: set[str] = set()
    where_asked = ""
    for role, blocks in turns:
        where = blocks[0][0].partition(".content")[0] if blocks else ""
        if role == "assistant":
            asked, where_asked = _calls(blocks, seen), where
            _check_server_results(blocks)
        else:
            _check_results(blocks, asked, where_asked)
            asked = []
    _check_none_left(asked, where_asked)


def _calls(blocks: list[tuple[str, JsonObject]], seen: set[str]) -> list[str]:
    asked = [str(block["id"]) for _, block in blocks if block["type"] == "tool_use"]
    for call_id in asked:
        if call_id in seen:
            _refuse("messages: `tool_use` ids must be unique")
        seen.add(call_id)
    return asked


def _check_results(blocks: list[tuple[str, JsonObject]], asked: list[str], where_asked: str) -> None:
    """Take the results that stand first; one behind anything else answers nothing."""
    answered: list[str] = []
    for where, block in blocks:
        if block["type"] != "tool_result":
            break
        call_id = block["tool_use_id"]
        if call_id in answered:
            _refuse(
                f"{where}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call_id}"
            )
        if call_id not in asked:
            _refuse_unasked(where, call_id)
        answered.append(call_id)
    _check_none_left([call_id for call_id in asked if call_id not in answered], where_asked)
    for where, block in blocks[len(answered) :]:
        if block["type"] == "tool_result":
            _refuse_unasked(where, block["tool_use_id"])


def _check_none_left(asked: list[str], where: str) -> None:
    if asked:
        _refuse(
            f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(asked)}. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message."
        )


def _refuse_unasked(where: str, call_id: str) -> NoReturn:
    _refuse(
        f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` block must have a "
        "corresponding `tool_use` block in the previous message."
    )


def _check_server_results(blocks: list[tuple[str, JsonObject]]) -> None:
    """A result of the vendor's own tool stands in the same message, behind its call."""
    called: set[str] = set()
    for where, block in blocks:
        kind = block["type"]
        if kind in ("server_tool_use", "mcp_tool_use"):
            called.add(block["id"])
        elif kind.endswith("_tool_result") and block["tool_use_id"] not in called:
            _refuse(
                f"{where}: unexpected `tool_use_id` found in `{kind}` blocks: {block['tool_use_id']}. Each `{kind}` block must "
                "have a corresponding `server_tool_use` block before it."
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
        checked = check_anthropic_request(body)
        check_anthropic_history(checked["messages"])
        return checked

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
        whole = _error(turn.status, turn.error) if turn.error is not None else {**message, "content": _whole(message)}
        return Answer(pieces=(Piece(kind="whole", content=json_bytes(whole)),))

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
    body = {"message": error} if isinstance(error, str) else error.get("error", error)
    kind = _ERRORS.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": "", **(body if isinstance(body, dict) else {"message": body})},
        "request_id": "req_mock",
    }


def _content(turn: Turn, ids: Iterator[str]) -> list[JsonObject]:
    """Return the blocks of a turn; the input of a call is its raw text."""
    content: list[JsonObject] = []
    if turn.thinking is not None:
        content.append({"type": "thinking", "thinking": turn.thinking, "signature": _SIGNATURE})
    content += ({"type": "text", "text": text} for text in (turn.text, turn.refusal) if text)
    for made in turn.calls:
        call_id = next(ids) if made.id is UNSET else made.id
        named = {} if call_id is None else {"id": call_id}
        content.append({"type": "tool_use", **named, "name": made.name, "input": made.arguments})
    return content


def _whole(message: JsonObject) -> list[JsonObject]:
    """Return the blocks with objects as input. One that is not valid JSON, which the vendor never sends whole, stays text."""
    return [{**block, "input": _parsed(block["input"])} if "input" in block else block for block in message["content"]]


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return arguments


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


# --- Anthropic Messages behind a cloud's door: Bedrock's InvokeModel and Vertex's rawPredict. Checks what differs
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
        cloud: Whose door it is.
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
