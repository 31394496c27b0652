"""Requests in Gemini: refuse a body that the vendor refuses. The pairing of the contents is checked elsewhere."""

import json
import re
from collections.abc import Collection, Iterable
from typing import Any, NoReturn

from treadle.mock.dialects.answers import Refusal
from treadle.tools import JsonObject

__all__ = ["check_gemini_request"]

_KNOWN = frozenset(
    {
        *("contents", "tools", "toolConfig", "safetySettings", "systemInstruction", "generationConfig"),
        *("cachedContent", "labels", "serviceTier", "store", "model"),
    }
)
_HOSTED = frozenset(
    {
        *("googleSearch", "googleSearchRetrieval", "codeExecution", "urlContext", "computerUse", "googleMaps"),
        *("fileSearch", "mcpServers", "enterpriseWebSearch", "retrieval"),
    }
)
_DECLARATION = frozenset(
    {"name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior"}
)
_OPENAPI = frozenset(
    {
        *(
            "type",
            "format",
            "title",
            "description",
            "nullable",
            "enum",
            "maxItems",
            "minItems",
            "properties",
            "required",
        ),
        *("minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf", "default"),
        *("propertyOrdering", "items", "minimum", "maximum"),
    }
)
"""The words of `parameters`, which is not a JSON Schema."""
_MODES = ("AUTO", "ANY", "NONE", "VALIDATED")
_NUMBERS = {
    "temperature": (0, 2),
    "topP": (0, 1),
    "topK": (1, None),
    "maxOutputTokens": (1, None),
    "candidateCount": (1, 8),
    "presencePenalty": (-2, 2),
    "frequencyPenalty": (-2, 2),
    "logprobs": (0, 20),
    "seed": (None, None),
}
_GENERATION = frozenset(
    {
        *_NUMBERS,
        *("stopSequences", "responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities"),
        *("responseLogprobs", "speechConfig", "thinkingConfig", "mediaResolution", "imageConfig", "audioTimestamp"),
        *("enableEnhancedCivicAnswers", "routingConfig", "modelSelectionConfig"),
    }
)
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_SNAKE = re.compile(r"_([a-z])")


def check_gemini_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request in camel case, all but its contents checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        _refuse("Invalid JSON payload received. Expected an object.")
    named = _named(body, _KNOWN, "")
    _check_instruction(named.get("systemInstruction"))
    _check_generation(named.get("generationConfig"))
    names = _check_tools(named.get("tools"))
    _check_tool_config(named.get("toolConfig"), names)
    return named


def _named(holder: Any, known: Collection[str], where: str) -> JsonObject:
    """Return an object with its names in camel case, which the vendor takes beside its own snake case."""
    if not isinstance(holder, dict):
        _refuse(f"Invalid value at '{where}' (type.googleapis.com/google.protobuf.Message), {json.dumps(holder)}")
    named = {_SNAKE.sub(lambda found: found[1].upper(), key): value for key, value in holder.items()}
    for key in named:
        if key not in known:
            place = f" at '{where}'" if where else ""
            _refuse(f'Invalid JSON payload received. Unknown name "{key}"{place}: Cannot find field.')
    return named


def _check_instruction(instruction: Any) -> None:
    if instruction is None:
        return
    parts = _named(instruction, ("role", "parts"), "system_instruction").get("parts")
    # One part may stand without its list.
    listed = parts if isinstance(parts, list) else [parts]
    if not listed or not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in listed):
        _refuse("* GenerateContentRequest.system_instruction.parts: parts with text must not be empty.")


def _check_generation(config: Any) -> None:
    if config is None:
        return
    named = _named(config, _GENERATION, "generation_config")
    for key, (least, most) in _NUMBERS.items():
        if (value := named.get(key)) is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(f"Invalid value at 'generation_config.{key}' (TYPE_NUMBER), {json.dumps(value)}")
        if (least is not None and value < least) or (most is not None and value > most):
            _refuse(f"* GenerateContentRequest.generation_config.{key}: {key} must be in the range [{least}, {most}].")
    mime = named.get("responseMimeType")
    if mime not in (None, "text/plain", "application/json", "text/x.enum"):
        _refuse(
            "* GenerateContentRequest.generation_config.response_mime_type: allowed mimetypes are `text/plain`, "
            "`application/json`, `application/xml`, `application/yaml` and `text/x.enum`."
        )
    schemas = [key for key in ("responseSchema", "responseJsonSchema") if named.get(key) is not None]
    if schemas and mime not in ("application/json", "text/x.enum"):
        _refuse(
            "Setting response_schema is only supported when response mime type is `application/json` or `text/x.enum`."
        )
    if len(schemas) > 1:
        _refuse("Only one of response_schema and response_json_schema may be set.")


def _check_tools(tools: Any) -> list[str]:
    """Return the names of the functions, each checked."""
    if tools is None:
        return []
    names: list[str] = []
    for index, tool in enumerate([tools] if isinstance(tools, dict) else _list(tools, "tools")):
        where = f"tools[{index}]"
        named = _named(tool, {"functionDeclarations", *_HOSTED}, where)
        place = f"{where}.function_declarations"
        declarations = named.get("functionDeclarations", [])
        for number, declaration in enumerate(_list(declarations, place)):
            names.append(_check_declaration(declaration, f"{place}[{number}]"))
    for number, name in enumerate(names):
        if name in names[:number]:
            _refuse(f"Duplicate function declaration found: {name}")
    return names


def _check_declaration(declaration: Any, where: str) -> str:
    named = _named(declaration, _DECLARATION, where)
    name = named.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(
            f"* GenerateContentRequest.{where}.name: [FIELD_INVALID] Invalid function name. Must start with a letter or an "
            "underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a "
            "maximum length of 64."
        )
    if not isinstance(named.get("description", ""), str):
        _refuse(f"Invalid value at '{where}.description' (TYPE_STRING), {json.dumps(named['description'])}")
    if "parameters" in named and "parametersJsonSchema" in named:
        _refuse(f"* GenerateContentRequest.{where}: only one of parameters and parameters_json_schema may be set.")
    if "parameters" in named:
        _check_openapi(named["parameters"], f"{where}.parameters")
    if "parametersJsonSchema" in named:
        _check_json_schema(named["parametersJsonSchema"], f"{where}.parameters_json_schema")
    return name


def _check_openapi(schema: Any, where: str) -> None:
    named = _named(schema, _OPENAPI, where)
    if not isinstance(named.get("type", ""), str):
        _refuse(f"Invalid value at '{where}.type' (TYPE_ENUM), {json.dumps(named['type'])}")
    properties = named.get("properties") or {}
    if not isinstance(properties, dict):
        _refuse(f"Invalid value at '{where}.properties' (map), {json.dumps(properties)}")
    for name, one in properties.items():
        _check_openapi(one, f"{where}.properties[{name}].value")
    if "items" in named:
        _check_openapi(named["items"], f"{where}.items")
    for index, one in enumerate(_list(named.get("anyOf", []), f"{where}.any_of")):
        _check_openapi(one, f"{where}.any_of[{index}]")


def _check_json_schema(schema: Any, where: str) -> None:
    if not isinstance(schema, dict) or schema.get("type") != "object":
        _refuse(f"* GenerateContentRequest.{where}: schema at top-level must be type object")
    for node in _nodes(schema):
        if "$ref" in node and node.keys() - {"$ref", "description", "default", "$defs"}:
            _refuse(
                f"$ref '{node['$ref']}' was set alongside unsupported fields. If a schema node has $ref set, then only "
                "description and default can be set alongside it."
            )
        if "$ref" in node and str(node["$ref"]).rpartition("/")[2] not in schema.get("$defs", {}):
            _refuse(f"reference to undefined schema at {where}")


def _nodes(schema: Any) -> Iterable[JsonObject]:
    """Yield every sub-schema. Names of properties are not keywords."""
    if isinstance(schema, list):
        for one in schema:
            yield from _nodes(one)
    if not isinstance(schema, dict):
        return
    yield schema
    for word, value in schema.items():
        if word in ("properties", "patternProperties", "$defs") and isinstance(value, dict):
            for one in value.values():
                yield from _nodes(one)
        elif word in ("items", "prefixItems", "additionalProperties", "anyOf", "oneOf", "allOf", "not"):
            yield from _nodes(value)


def _check_tool_config(config: Any, names: list[str]) -> None:
    if config is None:
        return
    known = ("functionCallingConfig", "retrievalConfig", "includeServerSideToolInvocations")
    calling = _named(config, known, "tool_config").get("functionCallingConfig")
    if calling is None:
        return
    if not names:
        _refuse("Function calling config is set without function_declarations.")
    fields = ("mode", "allowedFunctionNames", "streamFunctionCallArguments")
    named = _named(calling, fields, "tool_config.function_calling_config")
    mode = named.get("mode", "AUTO")
    if mode not in _MODES:
        _refuse(f"Invalid value at 'tool_config.function_calling_config.mode' (TYPE_ENUM), {json.dumps(mode)}")
    allowed = _list(named.get("allowedFunctionNames", []), "tool_config.function_calling_config.allowed_function_names")
    if allowed and mode not in ("ANY", "VALIDATED"):
        _refuse("Allowed function names can only be set when the function calling mode is ANY or VALIDATED.")
    for name in allowed:
        if name not in names:
            _refuse(f"Allowed function name {json.dumps(name)} is not among the function declarations.")


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        _refuse(f"Invalid value at '{where}' (list), {json.dumps(value)}")
    return value


def _refuse(message: str) -> NoReturn:
    raise Refusal(message)
