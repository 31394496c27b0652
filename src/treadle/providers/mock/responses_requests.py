"""Requests in Responses: refuse a body that the vendor refuses. The pairing of its items is checked elsewhere."""

import difflib
import json
import re
from typing import Any, NoReturn

from treadle.providers.mock.answers import Refusal
from treadle.providers.mock.responses_strict import check_strict_schema
from treadle.tools import JsonObject

__all__ = ["check_responses_request"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FLAGS = ("stream", "store", "parallel_tool_calls", "background")
_NUMBERS = {
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
_REFUSED_AT_ROOT = ("oneOf", "anyOf", "allOf", "enum", "not")


def check_responses_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but the pairing of its items checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        _refuse("We could not parse the JSON body of your request: it must be an object.", None)
    _check_names(body)
    _check_scalars(body)
    _check_include(body)
    names = _check_tools(body)
    _check_tool_choice(body, names)
    _check_text(body)
    return body


def _check_names(body: JsonObject) -> None:
    for key in body:
        if key in _MOVED:
            _refuse(
                f"Unsupported parameter: '{key}'. In the Responses API, this parameter has moved to '{_MOVED[key]}'.",
                key,
                "unsupported_parameter",
            )
        if key not in _KNOWN:
            near = difflib.get_close_matches(key, _KNOWN, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            _refuse(f"Unknown parameter: '{key}'.{hint}", key, "unknown_parameter")
    for key in ("model", "input"):
        if body.get(key) in (None, ""):
            _refuse(f"Missing required parameter: '{key}'.", key, "missing_required_parameter")
    if not isinstance(body["model"], str):
        _refuse_type("model", "a string")


def _check_scalars(body: JsonObject) -> None:
    for key in _FLAGS:
        if not isinstance(body.get(key), bool | None):
            _refuse_type(key, "a boolean")
    for key in _TEXTS:
        if not isinstance(body.get(key), str | None):
            _refuse_type(key, "a string")
    for key, (least, most) in _NUMBERS.items():
        value = body.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse_type(key, "a number")
        if value < least:
            _refuse(
                f"Invalid '{key}': below minimum value. Expected a value >= {least}, but got {value} instead.",
                key,
                "below_min_value",
            )
        if most is not None and value > most:
            _refuse(
                f"Invalid '{key}': above maximum value. Expected a value <= {most}, but got {value} instead.",
                key,
                "above_max_value",
            )


def _check_include(body: JsonObject) -> None:
    include = body.get("include")
    if include is None:
        return
    if not isinstance(include, list):
        _refuse_type("include", "an array of strings")
    for index, word in enumerate(include):
        if word not in _INCLUDABLE:
            known = ", ".join(f"'{one}'" for one in sorted(_INCLUDABLE))
            _refuse(
                f"Invalid value: {json.dumps(word)}. Supported values are: {known}.",
                f"include[{index}]",
                "invalid_value",
            )


def _check_tools(body: JsonObject) -> list[str]:
    """Return the names of the functions, each tool checked."""
    tools = body.get("tools")
    if tools is None:
        return []
    if not isinstance(tools, list):
        _refuse_type("tools", "an array of objects")
    names: list[str] = []
    for index, tool in enumerate(tools):
        name = _tool_name(tool, f"tools[{index}]")
        if name is not None and name in names:
            _refuse(
                f"Invalid 'tools': the function name '{name}' is used by more than one tool.", f"tools[{index}].name"
            )
        names += [name] if name is not None else []
    return names


def _tool_name(tool: Any, where: str) -> str | None:
    if not isinstance(tool, dict):
        _refuse_type(where, "an object")
    kind = tool.get("type")
    if kind is None:
        _refuse(f"Missing required parameter: '{where}.type'.", f"{where}.type", "missing_required_parameter")
    if kind in _SERVER_TOOLS:
        return None
    if kind != "function":
        _refuse(f"Invalid value: {json.dumps(kind)}. Supported values are: 'function' and others.", f"{where}.type")
    name = tool.get("name")
    if name is None:
        _refuse(f"Missing required parameter: '{where}.name'.", f"{where}.name", "missing_required_parameter")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(
            f"Invalid '{where}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            f"{where}.name",
            "invalid_value",
        )
    if not isinstance(tool.get("description"), str | None):
        _refuse_type(f"{where}.description", "a string")
    if not isinstance(tool.get("strict"), bool | None):
        _refuse_type(f"{where}.strict", "a boolean")
    _check_parameters(tool, name, where)
    return name


def _check_parameters(tool: JsonObject, name: str, where: str) -> None:
    place = f"{where}.parameters"
    if "parameters" not in tool:
        _refuse(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")
    schema = tool["parameters"]
    if not isinstance(schema, dict):
        _refuse_type(place, "an object")
    if schema.get("type") != "object":
        kind = json.dumps(schema.get("type"))
        _refuse_schema(name, place, f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {kind}'.")
    for key in _REFUSED_AT_ROOT:
        if key in schema:
            words = "'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
            _refuse_schema(name, place, f"schema must have type 'object' and not have {words}")
    if tool.get("strict") is not False and (fault := check_strict_schema(schema)) is not None:
        _refuse_schema(name, place, fault)


def _check_tool_choice(body: JsonObject, names: list[str]) -> None:
    choice = body.get("tool_choice")
    match choice:
        case None | "none" | "auto" | {"type": "allowed_tools", "mode": "auto" | "required", "tools": list()}:
            return
        case "required":
            if not body.get("tools"):
                _refuse("Tool choice 'required' must be specified with 'tools' parameter.", "tool_choice")
        case str():
            words = "Supported values are: 'none', 'auto', and 'required'."
            _refuse(f"Invalid value: '{choice}'. {words}", "tool_choice", "invalid_value")
        case {"type": str(kind)}:
            _check_named_tool(choice, kind, names)
        case _:
            _refuse_type("tool_choice", "'none', 'auto', 'required' or an object that names a function")


def _check_named_tool(choice: JsonObject, kind: str, names: list[str]) -> None:
    if kind in _SERVER_TOOLS:
        return
    if kind != "function":
        _refuse(f"Invalid value: '{kind}'. Supported values are: 'function' and others.", "tool_choice.type")
    name = choice.get("name")
    if name is None:
        _refuse("Missing required parameter: 'tool_choice.name'.", "tool_choice.name", "missing_required_parameter")
    if name not in names:
        _refuse(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice")


def _check_text(body: JsonObject) -> None:
    text = body.get("text")
    if text is None:
        return
    if not isinstance(text, dict):
        _refuse_type("text", "an object")
    match text.get("format"):
        case None | {"type": "text" | "json_object"}:
            return
        case {"type": "json_schema", "name": str(name), "schema": dict() as schema, **more} if _NAME.fullmatch(name):
            if more.get("strict") is not False and (fault := check_strict_schema(schema)) is not None:
                _refuse(
                    f"Invalid schema for response_format '{name}': {fault}", "text.format.schema", "invalid_json_schema"
                )
        case {"type": "json_schema", "json_schema": _}:
            _refuse("Missing required parameter: 'text.format.name'.", "text.format.name", "missing_required_parameter")
        case _:
            _refuse(
                "Invalid parameter: 'text.format' must be text, json_object, or json_schema with a name and a schema.",
                "text.format",
            )


def _refuse_schema(name: str, where: str, fault: str) -> NoReturn:
    _refuse(f"Invalid schema for function '{name}': {fault}", where, "invalid_function_parameters")


def _refuse_type(where: str, expected: str) -> NoReturn:
    _refuse(f"Invalid type for '{where}': expected {expected}.", where, "invalid_type")


def _refuse(message: str, param: str | None, code: str | None = None) -> NoReturn:
    raise Refusal(message, param=param, code=code)
