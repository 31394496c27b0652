"""Requests in Responses: refuse a body that the vendor refuses. The pairing of its items is checked elsewhere."""

import json
import re
from typing import Any

from treadle.mock.dialects.openai_checks import (
    Bounds,
    check_function,
    check_scalars,
    did_you_mean,
    object_of,
    refuse,
    refuse_missing,
    refuse_schema,
    refuse_type,
    refuse_value,
)
from treadle.mock.dialects.openai_responses.strict import check_strict_schema
from treadle.tools import JsonObject

__all__ = ["check_responses_request"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FLAGS = ("stream", "store", "parallel_tool_calls", "background")
_NUMBERS: Bounds = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "max_output_tokens": (16, None),
    "max_tool_calls": (1, None),
    "top_logprobs": (0, 20),
}
_TEXTS = ("instructions", "previous_response_id", "user", "prompt_cache_key", "safety_identifier", "service_tier")
_OTHERS = (
    *("model", "input", "tools", "tool_choice", "include", "text", "reasoning", "metadata", "truncation"),
    *("stream_options", "prompt", "conversation", "prompt_cache_retention"),
)
_KNOWN = frozenset((*_FLAGS, *_NUMBERS, *_TEXTS, *_OTHERS))
_MOVED = {"messages": "input", "response_format": "text.format", "max_tokens": "max_output_tokens"}
"""Parameters of Chat Completions, and where they are here."""
_INCLUDABLE = frozenset({
    *("reasoning.encrypted_content", "web_search_call.action.sources", "web_search_call.results"),
    *("code_interpreter_call.outputs", "file_search_call.results", "message.input_image.image_url"),
    *("computer_call_output.output.image_url", "message.output_text.logprobs"),
})  # fmt: skip
_SERVER_TOOLS = frozenset({
    *("web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search"),
    *("local_shell", "shell", "apply_patch", "computer_use_preview", "custom"),
})  # fmt: skip


def check_responses_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but the pairing of its items checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        refuse("We could not parse the JSON body of your request: it must be an object.", None)
    _check_names(body)
    check_scalars(body, flags=_FLAGS, texts=_TEXTS, numbers=_NUMBERS)
    _check_include(body)
    names = _check_tools(body)
    _check_tool_choice(body, names)
    _check_text(body)
    return body


def _check_names(body: JsonObject) -> None:
    for key in body:
        if key in _MOVED:
            refuse(
                f"Unsupported parameter: '{key}'. In the Responses API, this parameter has moved to '{_MOVED[key]}'.",
                key,
                "unsupported_parameter",
            )
        if key not in _KNOWN:
            refuse(f"Unknown parameter: '{key}'.{did_you_mean(key, _KNOWN)}", key, "unknown_parameter")
    for key in ("model", "input"):
        if body.get(key) in (None, ""):
            refuse_missing(key)
    if not isinstance(body["model"], str):
        refuse_type("model", "a string", body["model"])


def _check_include(body: JsonObject) -> None:
    include = body.get("include")
    if include is None:
        return
    if not isinstance(include, list):
        refuse_type("include", "an array of strings", include)
    for index, word in enumerate(include):
        if word not in _INCLUDABLE:
            refuse_value(f"include[{index}]", json.dumps(word), ", ".join(f"'{one}'" for one in sorted(_INCLUDABLE)))


def _check_tools(body: JsonObject) -> list[str]:
    """Return the names of the functions, each tool checked."""
    tools = body.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        refuse_type("tools", "an array of objects", tools)
    names: list[str] = []
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        name = _tool_name(object_of(tool, where), where)
        if name is not None and name in names:
            refuse(f"Invalid 'tools': the function name '{name}' is used by more than one tool.", f"{where}.name")
        names += [name] if name is not None else []
    return names


def _tool_name(tool: JsonObject, where: str) -> str | None:
    kind = tool.get("type")
    if kind is None:
        refuse_missing(f"{where}.type")
    if kind in _SERVER_TOOLS:
        return None
    if kind != "function":
        refuse_value(f"{where}.type", json.dumps(kind), "'function' and others")
    name, schema = check_function(tool, where)
    if tool.get("strict") is not False and (fault := check_strict_schema(schema)) is not None:
        refuse_schema(name, where, fault)
    return name


def _check_tool_choice(body: JsonObject, names: list[str]) -> None:
    choice = body.get("tool_choice")
    match choice:
        case None | "none" | "auto" | {"type": "allowed_tools", "mode": "auto" | "required", "tools": list()}:
            return
        case "required":
            if not body.get("tools"):
                refuse("Tool choice 'required' must be specified with 'tools' parameter.", "tool_choice")
        case str():
            refuse_value("tool_choice", f"'{choice}'", "'none', 'auto', and 'required'")
        case {"type": str(kind)}:
            _check_named_tool(choice, kind, names)
        case _:
            refuse_type("tool_choice", "'none', 'auto', 'required' or an object that names a function", choice)


def _check_named_tool(choice: JsonObject, kind: str, names: list[str]) -> None:
    if kind in _SERVER_TOOLS:
        return
    if kind != "function":
        refuse_value("tool_choice.type", f"'{kind}'", "'function' and others")
    name = choice.get("name")
    if name is None:
        refuse_missing("tool_choice.name")
    if name not in names:
        refuse(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice")


def _check_text(body: JsonObject) -> None:
    text = body.get("text")
    if text is None:
        return
    if not isinstance(text, dict):
        refuse_type("text", "an object", text)
    match text.get("format"):
        case None | {"type": "text" | "json_object"}:
            return
        case {"type": "json_schema", "name": str(name), "schema": dict() as schema, **more} if _NAME.fullmatch(name):
            if more.get("strict") is not False and (fault := check_strict_schema(schema)) is not None:
                refuse(
                    f"Invalid schema for response_format '{name}': {fault}", "text.format.schema", "invalid_json_schema"
                )
        case {"type": "json_schema", "json_schema": _}:
            refuse_missing("text.format.name")
        case _:
            refuse(
                "Invalid parameter: 'text.format' must be text, json_object, or json_schema with a name and a schema.",
                "text.format",
            )
