"""Names: what OpenTelemetry's conventions for generative AI call things, as of version 1.44, and what we call the rest."""

from collections.abc import Mapping
from typing import Any

__all__ = [
    "AGENT_NAME",
    "ATTEMPT",
    "ATTEMPTS",
    "CACHE_READ_TOKENS",
    "CACHE_WRITE_TOKENS",
    "CONVERSATION",
    "COST",
    "DURATION",
    "DURATION_BUCKETS",
    "EFFECT",
    "ERROR_TYPE",
    "FINISH_REASONS",
    "FIRST_CHUNK",
    "FIRST_CHUNK_DURATION",
    "INPUT_MESSAGES",
    "INPUT_TOKENS",
    "OPERATION",
    "OUTPUT_MESSAGES",
    "OUTPUT_TOKENS",
    "OUTPUT_TYPE",
    "PROVIDER",
    "PURPOSE",
    "REASON",
    "REASONING_TOKENS",
    "REQUEST_MODEL",
    "RESPONSE_ID",
    "RESPONSE_MODEL",
    "RUN",
    "SCHEMA_URL",
    "SERVER_ADDRESS",
    "SERVER_PORT",
    "STATUS",
    "STEP",
    "SYSTEM_INSTRUCTIONS",
    "TOKENS",
    "TOKEN_BUCKETS",
    "TOKEN_TYPE",
    "TOOL_ARGUMENTS",
    "TOOL_CALL",
    "TOOL_DEFINITIONS",
    "TOOL_NAME",
    "TOOL_RESULT",
    "TOOL_TYPE",
    "finish_of",
    "parameters_of",
    "provider_of",
]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The published version whose names these are. Message contents are as in open-telemetry/semantic-conventions-genai, `model/gen-ai/*.json`."""

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
OUTPUT_TYPE = "gen_ai.output.type"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - no secret: `input` or `output`
ERROR_TYPE = "error.type"

DURATION = "gen_ai.client.operation.duration"
FIRST_CHUNK_DURATION = "gen_ai.client.operation.time_to_first_chunk"
TOKENS = "gen_ai.client.token.usage"

RUN = "treadle.run.id"
STEP = "treadle.step"
ATTEMPT = "treadle.attempt"
ATTEMPTS = "treadle.tool.attempts"
EFFECT = "treadle.tool.effect"
STATUS = "treadle.status"
REASON = "treadle.reason"
PURPOSE = "treadle.purpose"
COST = "treadle.cost"

DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds, as the conventions say."""
TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

_PROVIDERS = {
    "openai-chat": "openai",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock-anthropic": "aws.bedrock",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}


_FINISHES = {"calls": "tool_call", "refused": "content_filter"}


def finish_of(finish: str) -> str:
    """Return the reason why a response ended, as the conventions call it."""
    return _FINISHES.get(finish, finish)


_PARAMETERS: dict[str, tuple[str, Any]] = {  # Any: a type, or several
    "maxtokens": ("gen_ai.request.max_tokens", int),
    "maxcompletiontokens": ("gen_ai.request.max_tokens", int),
    "maxoutputtokens": ("gen_ai.request.max_tokens", int),
    "temperature": ("gen_ai.request.temperature", (int, float)),
    "topp": ("gen_ai.request.top_p", (int, float)),
    "p": ("gen_ai.request.top_p", (int, float)),
    "topk": ("gen_ai.request.top_k", int),
    "k": ("gen_ai.request.top_k", int),
    "seed": ("gen_ai.request.seed", int),
    "frequencypenalty": ("gen_ai.request.frequency_penalty", (int, float)),
    "presencepenalty": ("gen_ai.request.presence_penalty", (int, float)),
    "stop": ("gen_ai.request.stop_sequences", (str, list, tuple)),
    "stopsequences": ("gen_ai.request.stop_sequences", (str, list, tuple)),
    "n": ("gen_ai.request.choice.count", int),
    "candidatecount": ("gen_ai.request.choice.count", int),
    "stream": ("gen_ai.request.stream", bool),
}
"""By the options of all dialects, in small letters without `_`: `max_output_tokens`, `maxOutputTokens`."""
_GROUPS = frozenset({"generationconfig", "inferenceconfig"})
_FLOATS = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})


def parameters_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a request that the conventions have a name for."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        plain = name.replace("_", "").lower()
        if plain in _GROUPS and isinstance(value, Mapping):
            found |= parameters_of(value)
        known, kind = _PARAMETERS.get(plain, ("", ()))
        if not known or not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            continue
        if known.endswith("stop_sequences"):
            found[known] = [value] if isinstance(value, str) else [str(one) for one in value]
        elif value is not False and not (known.endswith("choice.count") and value == 1):
            found[known] = float(value) if known.rpartition(".")[2] in _FLOATS else value
    return found


def provider_of(model: str) -> tuple[str, str]:
    """Return the provider as the conventions call it, and the model without its prefix.

    Example:
        >>> provider_of("openai-chat:gpt-5-mini")
        ('openai', 'gpt-5-mini')
    """
    prefix, colon, name = model.partition(":")
    if not colon:
        return ("treadle" if model == "demo" else "unknown", model or "unknown")
    return _PROVIDERS.get(prefix, prefix), name
