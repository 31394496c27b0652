"""What OpenTelemetry's conventions for generative AI allow on each span, and how they write messages, as tables to check spans by.

Sources: open-telemetry/semantic-conventions-genai, `model/gen-ai/spans.yaml` and `model/gen-ai/gen-ai-*.json`, as of August 2026; names of
attributes also from the package opentelemetry-semantic-conventions.
"""

from typing import Any

import jsonschema_rs

_CONTENT = {"gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions"}
_COMMON = {
    "error.type", "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.conversation.id", "gen_ai.output.type",
    "gen_ai.request.max_tokens", "gen_ai.request.choice.count", "gen_ai.request.temperature", "gen_ai.request.top_p",
    "gen_ai.request.stop_sequences", "gen_ai.request.frequency_penalty", "gen_ai.request.presence_penalty", "gen_ai.request.seed",
    "gen_ai.response.finish_reasons", "gen_ai.usage.input_tokens", "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.output_tokens",
}  # fmt: skip
ALLOWED = {
    "chat": _COMMON | _CONTENT | {
        "server.address", "server.port", "gen_ai.request.top_k", "gen_ai.request.stream", "gen_ai.response.id", "gen_ai.response.model",
        "gen_ai.response.time_to_first_chunk", "gen_ai.usage.reasoning.output_tokens",
    },
    "invoke_agent": _COMMON | _CONTENT | {"gen_ai.agent.id", "gen_ai.agent.name", "gen_ai.agent.description", "gen_ai.agent.version"},
    "execute_tool": {
        "error.type", "gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.description", "gen_ai.tool.type",
        "gen_ai.tool.call.arguments", "gen_ai.tool.call.result",
    },
}  # fmt: skip
REQUIRED = {
    "chat": {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"},
    "invoke_agent": {"gen_ai.operation.name", "gen_ai.provider.name"},
    "execute_tool": {"gen_ai.operation.name", "gen_ai.tool.name"},
}


def _part(kind: str, **fields: Any) -> dict[str, Any]:
    required = ["type", *(name for name in fields if not name.startswith("_"))]
    named = {name.lstrip("_"): schema for name, schema in fields.items()}
    return {"type": "object", "properties": {"type": {"const": kind}, **named}, "required": required}


_TEXT = {"type": "string"}
_MAYBE = {"type": ["string", "null"]}
_KNOWN = [
    _part("text", content={**_TEXT, "minLength": 1}),
    _part("reasoning", content=_TEXT),
    _part("tool_call", name=_TEXT, _id=_MAYBE, _arguments={}),
    _part("tool_call_response", response={}, _id=_MAYBE),
    _part("blob", modality=_TEXT, content=_TEXT, _mime_type=_MAYBE),
    _part("uri", modality=_TEXT, uri=_TEXT, _mime_type=_MAYBE),
    _part("file", modality=_TEXT, file_id=_TEXT, _mime_type=_MAYBE),
]
_OTHER = {
    "properties": {"type": {"type": "string", "not": {"enum": [one["properties"]["type"]["const"] for one in _KNOWN]}}}
}
"""A part of a type of one's own, which the conventions allow. An empty text part is not theirs to forbid, and ours to leave out."""
_PARTS = {"type": "array", "minItems": 1, "items": {"required": ["type"], "anyOf": [*_KNOWN, _OTHER]}}
_ROLE = {"enum": ["system", "user", "assistant", "tool"]}
_INPUT = {"type": "object", "properties": {"role": _ROLE, "parts": _PARTS}, "required": ["role", "parts"]}
_FINISH = {"enum": ["stop", "length", "content_filter", "tool_call", "error"]}
# Of output messages `finish_reason` was required until mid-2026, and is optional since.
_OUTPUT = {
    **_INPUT,
    "properties": {**_INPUT["properties"], "finish_reason": _FINISH},
    "required": ["role", "parts", "finish_reason"],
}  # type: ignore[dict-item]  # a schema
_TOOL = {
    "type": "object",
    "properties": {"type": {"const": "function"}, "name": _TEXT, "description": _MAYBE},
    "required": ["type", "name"],
}
SCHEMAS = {
    "gen_ai.input.messages": jsonschema_rs.Draft202012Validator({"type": "array", "items": _INPUT}),
    "gen_ai.output.messages": jsonschema_rs.Draft202012Validator({"type": "array", "items": _OUTPUT}),
    "gen_ai.system_instructions": jsonschema_rs.Draft202012Validator({"type": "array", "items": _KNOWN[0]}),
    "gen_ai.tool.definitions": jsonschema_rs.Draft202012Validator({"type": "array", "items": _TOOL}),
    "gen_ai.tool.call.arguments": jsonschema_rs.Draft202012Validator({"type": "object"}),
}
