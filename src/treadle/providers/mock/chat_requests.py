"""Requests in Chat Completions: refuse a body that the vendor refuses. The messages' pairing is checked elsewhere."""

import difflib
import json
import re
from typing import Any, NoReturn

from treadle.providers.mock.answers import Refusal
from treadle.tools import JsonObject

__all__ = ["check_chat_request"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FLAGS = ("stream", "store", "parallel_tool_calls", "logprobs")
_NUMBERS = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "max_tokens": (1, None),
    "max_completion_tokens": (1, None),
    "n": (1, 128),
    "top_logprobs": (0, 20),
}
_OTHERS = (
    *("model", "messages", "tools", "tool_choice", "stream_options", "response_format", "stop", "seed", "user"),
    *("reasoning_effort", "verbosity", "metadata", "logit_bias", "modalities", "prediction", "audio", "service_tier"),
    *("web_search_options", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"),
)
_KNOWN = frozenset((*_FLAGS, *_NUMBERS, *_OTHERS))


def check_chat_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but its messages checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        _refuse("We could not parse the JSON body of your request: it must be an object.", None)
    _check_names(body)
    _check_model(body)
    _check_scalars(body)
    _check_stream_options(body)
    names = _check_tools(body)
    _check_tool_choice(body, names)
    _check_response_format(body)
    return body


def _check_names(body: JsonObject) -> None:
    for key in body:
        if key not in _KNOWN:
            near = difflib.get_close_matches(key, _KNOWN, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            _refuse(f"Unrecognized request argument supplied: {key}.{hint}", key, "unknown_parameter")
    if "messages" not in body:
        _refuse("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")


def _check_model(body: JsonObject) -> None:
    if "model" not in body or body["model"] == "":
        _refuse("you must provide a model parameter", "model")
    if not isinstance(body["model"], str):
        _refuse_type("model", "a string")


def _check_scalars(body: JsonObject) -> None:
    for key in _FLAGS:
        if not isinstance(body.get(key), bool | None):
            _refuse_type(key, "a boolean")
    for key, (least, most) in _NUMBERS.items():
        value = body.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse_type(key, "a number")
        if value < least or (most is not None and value > most):
            most_words = "" if most is None else f" and at most {most}"
            _refuse(
                f"Invalid '{key}': expected a number of at least {least}{most_words}, but got {value} instead.",
                key,
                "invalid_value",
            )


def _check_stream_options(body: JsonObject) -> None:
    options = body.get("stream_options")
    if options is None:
        return
    if body.get("stream") is not True:
        _refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if not isinstance(options, dict) or not isinstance(options.get("include_usage"), bool | None):
        _refuse_type("stream_options", "an object")


def _check_tools(body: JsonObject) -> list[str]:
    """Return the names of the tools, each tool checked."""
    tools = body.get("tools")
    if tools is None:
        if body.get("parallel_tool_calls") is not None:
            _refuse(
                "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.",
                "parallel_tool_calls",
            )
        return []
    if not isinstance(tools, list):
        _refuse_type("tools", "an array of objects")
    if not tools:
        _refuse(
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            "tools",
            "empty_array",
        )
    if len(tools) > 128:
        _refuse(
            f"Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length {len(tools)} instead.",
            "tools",
            "array_above_max_length",
        )
    names: list[str] = []
    for index, tool in enumerate(tools):
        name = _tool_name(tool, f"tools[{index}]")
        if name in names:
            _refuse(
                f"Invalid 'tools': the function name '{name}' is used by more than one tool.",
                f"tools[{index}].function.name",
                "invalid_value",
            )
        names.append(name)
    return names


def _tool_name(tool: Any, where: str) -> str:
    if not isinstance(tool, dict):
        _refuse_type(where, "an object")
    if "type" not in tool:
        _refuse(f"Missing required parameter: '{where}.type'.", f"{where}.type", "missing_required_parameter")
    if tool["type"] != "function":
        _refuse(
            f"Invalid value: {json.dumps(tool['type'])}. Supported values are: 'function'.",
            f"{where}.type",
            "invalid_value",
        )
    function = tool.get("function")
    where = f"{where}.function"
    if not isinstance(function, dict):
        _refuse(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    name = function.get("name")
    if name is None:
        _refuse(f"Missing required parameter: '{where}.name'.", f"{where}.name", "missing_required_parameter")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(
            f"Invalid '{where}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]{1,64}$'.",
            f"{where}.name",
            "invalid_value",
        )
    if not isinstance(function.get("description"), str | None):
        _refuse_type(f"{where}.description", "a string")
    _check_schema(function, name, where)
    return name


def _check_schema(function: JsonObject, name: str, where: str) -> None:
    """The vendor lets `parameters` be absent; here that is refused: a tool that forgot its schema looks just like it."""
    place = f"{where}.parameters"
    if "parameters" not in function:
        _refuse(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")
    schema = function["parameters"]
    if not isinstance(schema, dict):
        _refuse_type(place, "an object")
    if schema.get("type") != "object":
        kind = json.dumps(schema.get("type"))
        _refuse(
            f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', got 'type: {kind}'.",
            place,
            "invalid_function_parameters",
        )
    for key, kinds in (("properties", dict), ("required", list)):
        if not isinstance(schema.get(key, kinds()), kinds):
            _refuse(
                f"Invalid schema for function '{name}': {json.dumps(schema[key])} is not of type '{kinds.__name__}'.",
                place,
                "invalid_function_parameters",
            )


def _check_tool_choice(body: JsonObject, names: list[str]) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not names:
        _refuse(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.", "tool_choice"
        )
    match choice:
        case "none" | "auto" | "required":
            return
        case str():
            _refuse(
                f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'.",
                "tool_choice",
                "invalid_value",
            )
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in names:
                _refuse(
                    f"Invalid value for 'tool_choice': tool choice 'function.name': '{name}' not found in 'tools' parameter.",
                    "tool_choice",
                )
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required", "tools": list()}}:
            return
        case _:
            _refuse_type("tool_choice", "'none', 'auto', 'required' or an object that names a function")


def _check_response_format(body: JsonObject) -> None:
    match body.get("response_format"):
        case None | {"type": "text" | "json_object"}:
            return
        case {"type": "json_schema", "json_schema": {"name": str(name), "schema": dict()}} if _NAME.fullmatch(name):
            return
        case _:
            _refuse(
                "Invalid parameter: 'response_format' must be text, json_object, or json_schema with a name and a schema.",
                "response_format",
            )


def _refuse_type(where: str, expected: str) -> NoReturn:
    _refuse(f"Invalid type for '{where}': expected {expected}.", where, "invalid_type")


def _refuse(message: str, param: str | None, code: str | None = None) -> NoReturn:
    raise Refusal(message, param=param, code=code)
