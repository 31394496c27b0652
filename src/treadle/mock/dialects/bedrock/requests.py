"""Requests in Bedrock Converse: refuse a body that the vendor refuses. The messages are checked elsewhere."""

import json
import re
from collections.abc import Mapping
from typing import Any

from treadle.mock.dialects.bedrock.refusing import malformed, refuse
from treadle.tools import JsonObject

__all__ = ["check_converse_request"]

_KINDS: Mapping[str, type] = {
    "messages": list,
    "system": list,
    "inferenceConfig": dict,
    "toolConfig": dict,
    "guardrailConfig": dict,
    "additionalModelRequestFields": object,
    "promptVariables": dict,
    "additionalModelResponseFieldPaths": list,
    "requestMetadata": dict,
    "performanceConfig": dict,
    "serviceTier": dict,
    "outputConfig": dict,
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FRACTIONS = ("temperature", "topP")
_MAX_CACHE_POINTS = 4
_MAX_SEQUENCES = 2_500


def check_converse_request(body: Any) -> JsonObject:  # Any: JSON of strangers
    """Return the body of a request, all but its messages checked.

    Raises:
        Refusal: The vendor refuses it.
    """
    if not isinstance(body, dict):
        malformed("expected an object")
    for key, value in body.items():
        if key not in _KINDS:
            malformed(f"#: extraneous key [{key}] is not permitted")
        if not isinstance(value, _KINDS[key]):
            malformed(f"#/{key}: expected type: {_KINDS[key].__name__}")
    if "messages" not in body:
        refuse("The value at messages is missing: at least one message is required.")
    _check_inference(body.get("inferenceConfig", {}))
    points = _check_system(body.get("system", []))
    if "toolConfig" in body:
        points += _check_tools(body["toolConfig"])
        _check_forced(body)
    _check_output(body.get("outputConfig", {}))
    points += _points_of(body["messages"])
    if points > _MAX_CACHE_POINTS:
        refuse(f"A maximum of {_MAX_CACHE_POINTS} cache points may be provided. Found {points}.")
    return body


def _check_inference(config: JsonObject) -> None:
    for key in config:
        if key not in ("maxTokens", "stopSequences", *_FRACTIONS):
            malformed(f"#/inferenceConfig: extraneous key [{key}] is not permitted")
    limit = config.get("maxTokens", 1)
    if type(limit) is not int or limit < 1:
        refuse(
            "Value at 'inferenceConfig.maxTokens' failed to satisfy constraint: Member must have value greater than or equal to 1"
        )
    for key in _FRACTIONS:
        value = config.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            refuse(
                f"Value at 'inferenceConfig.{key}' failed to satisfy constraint: Member must have value less than or equal to 1"
            )
    sequences = config.get("stopSequences", [])
    if (
        not isinstance(sequences, list)
        or len(sequences) > _MAX_SEQUENCES
        or not all(isinstance(one, str) and one for one in sequences)
    ):
        refuse("Value at 'inferenceConfig.stopSequences' failed to satisfy constraint: Member must not be empty")


def _check_system(system: list[Any]) -> int:
    """Check the instructions; return how many cache points stand there."""
    points = 0
    for index, block in enumerate(system):
        kind, value = _union(block, ("text", "guardContent", "cachePoint"), f"system.{index}")
        if kind == "text" and (not isinstance(value, str) or not value.strip()):
            refuse(
                f"The text field in the SystemContentBlock object at system.{index} is blank. Add text to the text field, and try again."
            )
        if kind == "cachePoint":
            _check_point(value, f"system.{index}.cachePoint")
            points += 1
            if index == 0:
                refuse("system.0.cachePoint: a cache point must stand behind what is to be cached.")
    return points


def _check_tools(config: JsonObject) -> int:
    """Check the tools; return how many cache points stand among them."""
    for key in config:
        if key not in ("tools", "toolChoice"):
            malformed(f"#/toolConfig: extraneous key [{key}] is not permitted")
    tools = config.get("tools")
    if not isinstance(tools, list) or not tools:
        refuse(
            "Value at 'toolConfig.tools' failed to satisfy constraint: Member must have length greater than or equal to 1"
        )
    names: list[str] = []
    points = 0
    for index, tool in enumerate(tools):
        where = f"toolConfig.tools.{index}"
        kind, value = _union(tool, ("toolSpec", "systemTool", "cachePoint"), where)
        if kind == "toolSpec":
            names.append(_tool_name(value, f"{where}.toolSpec"))
        elif kind == "cachePoint":
            _check_point(value, f"{where}.cachePoint")
            points += 1
    if len(set(names)) < len(names):
        refuse("The toolConfig.tools contains duplicate tool names: every name must be unique.")
    if "toolChoice" in config:
        _check_choice(config["toolChoice"], names)
    return points


def _check_choice(choice: Any, names: list[str]) -> None:
    kind, value = _union(choice, ("auto", "any", "tool"), "toolConfig.toolChoice")
    if not isinstance(value, dict):
        malformed(f"#/toolConfig/toolChoice/{kind}: expected type: JSONObject")
    if kind == "tool" and value.get("name") not in names:
        refuse(f"The toolChoice names the tool {value.get('name')!r}, which is not in toolConfig.tools.")
    if kind != "tool" and value:
        malformed(f"#/toolConfig/toolChoice/{kind}: extraneous key [{next(iter(value))}] is not permitted")


def _tool_name(spec: Any, where: str) -> str:
    if not isinstance(spec, dict):
        malformed(f"#/{where}: expected type: JSONObject")
    for key in spec:
        if key not in ("name", "description", "inputSchema", "strict"):
            malformed(f"#/{where}: extraneous key [{key}] is not permitted")
    name = spec.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse(
            f"Value {name!r} at '{where}.name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_-]+"
        )
    if "description" in spec and (not isinstance(spec["description"], str) or not spec["description"]):
        refuse(
            f"Value at '{where}.description' failed to satisfy constraint: Member must have length greater than or equal to 1"
        )
    if not isinstance(spec.get("strict", False), bool):
        malformed(f"#/{where}/strict: expected type: Boolean")
    held = spec.get("inputSchema")
    if not isinstance(held, dict) or list(held) != ["json"] or not isinstance(held["json"], dict):
        refuse(f"The {where}.inputSchema must hold the member json, an object.")
    if held["json"].get("type") != "object":
        refuse(f"The value at {where}.inputSchema.json.type must be one of the following: object.")
    if any(word in held["json"] for word in ("oneOf", "allOf", "anyOf")):
        refuse(f"{where}.inputSchema.json: input_schema does not support oneOf, allOf, or anyOf at the top level")
    return name


def _check_forced(body: JsonObject) -> None:
    fields = body.get("additionalModelRequestFields")
    thinking = (fields.get("thinking") or fields.get("reasoning_config")) if isinstance(fields, dict) else None
    is_on = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    if is_on and ({"any", "tool"} & body["toolConfig"].get("toolChoice", {}).keys()):
        refuse("The model returned the following errors: Thinking may not be enabled when tool_choice forces tool use.")


def _check_output(config: JsonObject) -> None:
    for key in config:
        if key not in ("textFormat", "effort"):
            malformed(f"#/outputConfig: extraneous key [{key}] is not permitted")
    match config.get("textFormat"):
        case None:
            return
        case {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(schema)}}}:
            try:
                json.loads(schema)
            except ValueError:
                refuse("outputConfig.textFormat.structure.jsonSchema.schema is not valid JSON.")
        case _:
            refuse("outputConfig.textFormat must be of the type json_schema, with a schema as text.")


def _points_of(messages: list[Any]) -> int:
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    return sum(
        "cachePoint" in block
        for content in contents
        if isinstance(content, list)
        for block in content
        if isinstance(block, dict)
    )


def _check_point(point: Any, where: str) -> None:
    """Check one cache point."""
    if not isinstance(point, dict) or point.get("type") != "default" or point.get("ttl", "5m") not in ("5m", "1h"):
        refuse(f"Value at '{where}' failed to satisfy constraint: type must be default, and ttl 5m or 1h")


def _union(value: Any, members: tuple[str, ...], where: str) -> tuple[str, Any]:
    """Return the one member of a union that is set, and its value."""
    if not isinstance(value, dict):
        malformed(f"#/{where}: expected type: JSONObject")
    for key in value:
        if key not in members:
            malformed(f"#/{where}: extraneous key [{key}] is not permitted")
    if len(value) != 1:
        malformed(f"#/{where}: exactly one member of the union must be set, found {len(value)}")
    return next(iter(value.items()))
