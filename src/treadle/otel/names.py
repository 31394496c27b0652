"""Names: what OpenTelemetry's conventions for generative AI call things, as of version 1.42, and what we call the rest."""

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
    "PROVIDER",
    "PURPOSE",
    "REASON",
    "REASONING_TOKENS",
    "REQUEST_MODEL",
    "RUN",
    "STATUS",
    "STEP",
    "TOKENS",
    "TOKEN_BUCKETS",
    "TOKEN_TYPE",
    "TOOL_ARGUMENTS",
    "TOOL_CALL",
    "TOOL_NAME",
    "TOOL_RESULT",
    "TOOL_TYPE",
    "finish_of",
    "provider_of",
]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
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
