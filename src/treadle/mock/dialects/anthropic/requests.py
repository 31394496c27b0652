"""Requests in Anthropic Messages: refuse a body that the vendor refuses. The messages' pairing is checked elsewhere."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from treadle.mock.dialects.answers import Refusal
from treadle.tools import JsonObject

__all__ = ["check_anthropic_request"]

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
