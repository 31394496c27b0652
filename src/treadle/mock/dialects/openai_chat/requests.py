"""Requests in Chat Completions: refuse a body that the vendor refuses. The messages' pairing is checked elsewhere."""

import json
import re
from typing import Any

from treadle.mock.dialects.openai_checks import (
    Bounds,
    check_function,
    check_scalars,
    did_you_mean,
    items_of,
    object_of,
    refuse,
    refuse_missing,
    refuse_schema,
    refuse_type,
    refuse_value,
)
from treadle.mock.dialects.openai_responses.strict import check_strict_schema
from treadle.tools import JsonObject

__all__ = ["check_chat_request"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FLAGS = ("stream", "store", "parallel_tool_calls", "logprobs")
_NUMBERS: Bounds = {
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
        refuse("We could not parse the JSON body of your request: it must be an object.", None)
    _check_names(body)
    _check_model(body)
    check_scalars(body, flags=_FLAGS, numbers=_NUMBERS)
    _check_stream_options(body)
    names = _check_tools(body)
    _check_tool_choice(body, names)
    _check_response_format(body)
    return body


def _check_names(body: JsonObject) -> None:
    for key in body:
        if key not in _KNOWN:
            hint = did_you_mean(key, _KNOWN)
            refuse(f"Unrecognized request argument supplied: {key}.{hint}", key, "unknown_parameter")
    if "messages" not in body:
        refuse_missing("messages")


def _check_model(body: JsonObject) -> None:
    if "model" not in body or body["model"] == "":
        refuse("you must provide a model parameter", "model")
    if not isinstance(body["model"], str):
        refuse_type("model", "a string", body["model"])


def _check_stream_options(body: JsonObject) -> None:
    options = body.get("stream_options")
    if options is None:
        return
    if body.get("stream") is not True:
        refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if not isinstance(options, dict) or not isinstance(options.get("include_usage"), bool | None):
        refuse_type("stream_options", "an object", options)


def _check_tools(body: JsonObject) -> list[str]:
    """Return the names of the tools, each tool checked."""
    tools = body.get("tools")
    if tools is None:
        if body.get("parallel_tool_calls") is not None:
            refuse(
                "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.",
                "parallel_tool_calls",
            )
        return []
    names: list[str] = []
    for index, tool in enumerate(items_of(tools, "tools", most=128)):
        where = f"tools[{index}]"
        name = _tool_name(object_of(tool, where), where)
        if name in names:
            message = f"Invalid 'tools': the function name '{name}' is used by more than one tool."
            refuse(message, f"{where}.function.name", "invalid_value")
        names.append(name)
    return names


def _tool_name(tool: JsonObject, where: str) -> str:
    if "type" not in tool:
        refuse_missing(f"{where}.type")
    if tool["type"] != "function":
        refuse_value(f"{where}.type", json.dumps(tool["type"]), "'function'")
    where = f"{where}.function"
    if not isinstance(tool.get("function"), dict):
        refuse_missing(where)
    name, schema = check_function(tool["function"], where)
    for key, kind in (("properties", dict), ("required", list)):
        if not isinstance(schema.get(key, kind()), kind):
            refuse_schema(name, where, f"{json.dumps(schema[key])} is not of type '{kind.__name__}'.")
    if tool["function"].get("strict") and (fault := check_strict_schema(schema)) is not None:
        refuse_schema(name, where, fault)
    return name


def _check_tool_choice(body: JsonObject, names: list[str]) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not names:
        refuse(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.", "tool_choice"
        )
    match choice:
        case "none" | "auto" | "required":
            return
        case str():
            refuse_value("tool_choice", f"'{choice}'", "'none', 'auto', and 'required'")
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in names:
                refuse(
                    f"Invalid value for 'tool_choice': tool choice 'function.name': '{name}' not found in 'tools' parameter.",
                    "tool_choice",
                )
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required", "tools": list()}}:
            return
        case _:
            refuse_type("tool_choice", "'none', 'auto', 'required' or an object that names a function", choice)


def _check_response_format(body: JsonObject) -> None:
    match body.get("response_format"):
        case None | {"type": "text" | "json_object"}:
            return
        case {"type": "json_schema", "json_schema": {"name": str(name), "schema": dict() as schema, **more}} if (
            _NAME.fullmatch(name)
        ):
            if more.get("strict") and (fault := check_strict_schema(schema)) is not None:
                message = f"Invalid schema for response_format '{name}': {fault}"
                refuse(message, "response_format.json_schema.schema", "invalid_json_schema")
        case _:
            refuse(
                "Invalid parameter: 'response_format' must be text, json_object, or json_schema with a name and a schema.",
                "response_format",
            )
