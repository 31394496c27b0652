"""Requests in Cohere's Chat: refuse a body that the vendor refuses. The messages' pairing is checked elsewhere."""

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from treadle.mock.dialects.answers import Refusal
from treadle.tools import JsonObject

__all__ = ["check_cohere_request"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FLAGS = ("stream", "strict_tools", "logprobs", "raw_prompting", "return_prompt")
_NUMBERS: Mapping[str, tuple[float, float | None]] = {
    "temperature": (0, 1),
    "frequency_penalty": (0, 1),
    "presence_penalty": (0, 1),
    "k": (0, 500),
    "p": (0.01, 0.99),
    "max_tokens": (0, None),
    "seed": (0, 18446744073709551615),
    "priority": (0, 999),
}
_WORDS = {
    "safety_mode": frozenset({"CONTEXTUAL", "STRICT", "OFF", "NONE"}),
    "tool_choice": frozenset({"REQUIRED", "NONE"}),
}
_OTHERS = (
    *("model", "messages", "tools", "documents", "citation_options", "response_format", "stop_sequences", "thinking"),
    "truncation_mode",
)
_KNOWN = frozenset((*_FLAGS, *_NUMBERS, *_WORDS, *_OTHERS))
_CITING = frozenset({"ENABLED", "DISABLED", "FAST", "ACCURATE", "OFF"})
_MAX_STRICT_FIELDS = 200


def check_cohere_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but its messages checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        _refuse("invalid json syntax: the body must be an object")
    for name in body:
        if name not in _KNOWN:
            _unknown(name)
    if not isinstance(body.get("model"), str) or not body["model"]:
        _refuse("a model parameter is required for this endpoint.")
    if "messages" not in body:
        _refuse("invalid request: message must be at least 1 token long or tool results must be specified.")
    _check_scalars(body)
    _check_choices(body)
    _check_tools(body)
    _check_form(body)
    _check_objects(body)
    return body


def _check_scalars(body: JsonObject) -> None:
    for name in _FLAGS:
        if not isinstance(body.get(name), bool | None):
            _wrong_type(name, "bool")
    for name, (least, most) in _NUMBERS.items():
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            _wrong_type(name, "number")
        if value < least or (most is not None and value > most):
            _refuse(f"invalid request: {name} must be between {least} and {most} inclusive.")
    if body.get("frequency_penalty") and body.get("presence_penalty"):
        _refuse("invalid request: cannot specify both frequency_penalty and presence_penalty.")


def _check_choices(body: JsonObject) -> None:
    for name, words in _WORDS.items():
        if body.get(name) is not None and body[name] not in words:
            _refuse(f"invalid request: {name} must be one of {', '.join(sorted(words))}")
    stops = body.get("stop_sequences")
    if stops is None:
        return
    if not (isinstance(stops, list) and all(isinstance(stop, str) for stop in stops)):
        _wrong_type("stop_sequences", "list of strings")
    if len(stops) > 5:
        _refuse("invalid request: stop_sequences must hold at most 5 strings")


def _check_tools(body: JsonObject) -> None:
    tools = body.get("tools")
    if tools is None:
        if body.get("tool_choice") is not None:
            _refuse("invalid request: tool_choice cannot be specified without tools")
        return
    if not isinstance(tools, list) or not tools:
        _refuse("invalid request: tools must not be empty")
    schemas = [_check_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools)]
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) < len(names):
        _refuse("invalid request: two tools have the same name")
    if body.get("strict_tools"):
        if not all(schema.get("required") for schema in schemas):
            _refuse("invalid request: each tool must have at least one required parameter when strict_tools is enabled")
        if sum(map(_fields, schemas)) > _MAX_STRICT_FIELDS:
            _refuse(f"invalid request: at most {_MAX_STRICT_FIELDS} fields are allowed when strict_tools is enabled")


def _check_tool(tool: Any, where: str) -> JsonObject:
    """Check one tool; return its schema."""
    if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
        _refuse(f"invalid request: '{where}' must be a function")
    function = tool["function"]
    for name in [*(tool.keys() - {"type", "function"}), *(function.keys() - {"name", "description", "parameters"})]:
        _unknown(name)
    if not isinstance(function.get("name"), str) or not _NAME.fullmatch(function["name"]):
        _refuse(f"invalid request: invalid tool name at '{where}.function.name'")
    if not isinstance(function.get("description"), str | None):
        _wrong_type(f"{where}.function.description", "string")
    schema = function.get("parameters")
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        _refuse(f"invalid request: '{where}.function.parameters' must be a JSON schema of an object with properties")
    return schema


def _check_form(body: JsonObject) -> None:
    form = body.get("response_format")
    if form is None:
        return
    if not isinstance(form, dict) or form.get("type") not in ("text", "json_object"):
        _refuse("invalid request: response_format.type must be text or json_object")
    for name in form.keys() - {"type", "json_schema", "schema"}:
        _unknown(name)
    if form["type"] == "json_object" and body.get("documents"):
        _refuse("invalid request: response_format is not supported with RAG.")
    if form["type"] == "json_object" and body.get("tools"):
        _refuse("invalid request: response_format is not supported with tools.")
    schema = form.get("json_schema", form.get("schema"))
    if schema is not None and (not isinstance(schema, dict) or schema.get("type") != "object"):
        _refuse("invalid request: the top level type of response_format.json_schema must be object")


def _check_objects(body: JsonObject) -> None:
    thinking = body.get("thinking")
    if thinking is not None and (
        not isinstance(thinking, dict)
        or thinking.get("type") not in ("enabled", "disabled")
        or thinking.keys() - {"type", "token_budget"}
    ):
        _refuse("invalid request: thinking.type must be enabled or disabled")
    citing = body.get("citation_options")
    if citing is not None and (not isinstance(citing, dict) or citing.get("mode") not in _CITING):
        _refuse(f"invalid request: citation_options.mode must be one of {', '.join(sorted(_CITING))}")
    documents = body.get("documents")
    if documents is not None and (not isinstance(documents, list) or not documents):
        _refuse("invalid request: list of documents must not be empty")
    for place, document in enumerate(documents or ()):
        if not isinstance(document, str) and not (isinstance(document, dict) and "data" in document):
            _wrong_type(f"documents[{place}]", "string or an object with data")


def _fields(schema: Any) -> int:
    """Return how many properties a schema declares, at every depth."""
    if isinstance(schema, dict):
        own = schema.get("properties")
        return (len(own) if isinstance(own, dict) else 0) + sum(_fields(one) for one in schema.values())
    return sum(_fields(one) for one in schema) if isinstance(schema, list) else 0


def _unknown(name: str) -> NoReturn:
    message = f"unknown field: parameter '{name}' is not a valid field. For proper usage, please refer to https://docs.cohere.com/v2/reference/chat"
    raise Refusal(message, param=name, status=422)


def _wrong_type(name: str, expected: str) -> NoReturn:
    raise Refusal(f"invalid type: parameter '{name}' should be of type {expected}.", param=name, status=422)


def _refuse(message: str) -> NoReturn:
    raise Refusal(message)
