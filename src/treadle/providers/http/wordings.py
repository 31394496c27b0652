"""Wordings: what vendors call an ending, and how they say no. One row a wording, each with its source. Decides nothing, sends nothing.

A word that one vendor uses counts in every dialect: gateways pass on what stands behind them.
"""

import re
from typing import Literal, NamedTuple, TypeAlias, get_args

from treadle.messages import Finish

__all__ = ["BREAKS", "ENDINGS", "WORDINGS", "Ending", "Meaning", "Wording", "finish_of", "is_known", "says"]


class Ending(NamedTuple):
    """What one word for the end of a response means."""

    word: str
    """In lower case."""
    finish: Finish
    source: str


class Wording(NamedTuple):
    """What an error means whose code or message matches a pattern."""

    meaning: "Meaning"
    pattern: str
    """A regular expression; letter case does not count."""
    example: str
    """What a vendor says so."""
    source: str
    is_code: bool = False
    """Whether it counts in the code only: in a message it may be the name of a parameter."""


Meaning: TypeAlias = Literal["refused", "no_credit", "too_long"]
"""`refused`: the vendor's policy forbids it. `no_credit`: waiting does not help. `too_long`: a shorter request may be accepted."""

_OPENAI = "platform.openai.com/docs/api-reference/chat/object"
_ANTHROPIC = "docs.claude.com/en/api/messages, stop_reason"
_GEMINI = "ai.google.dev/api/generate-content, FinishReason"
_BEDROCK = "docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html, stopReason"
_COHERE = "docs.cohere.com/reference/chat, finish_reason"
_TGI = "huggingface.co/docs/text-generation-inference, FinishReason"
_ZAI = "docs.z.ai/api-reference/llm/chat-completion, finish_reason"

ENDINGS = (
    Ending("stop", Finish.STOP, _OPENAI),
    Ending("end_turn", Finish.STOP, _ANTHROPIC),
    Ending("stop_sequence", Finish.STOP, _ANTHROPIC),
    Ending("complete", Finish.STOP, _COHERE),
    Ending("eos", Finish.STOP, "docs.together.ai/reference/chat-completions-1"),
    Ending("eos_token", Finish.STOP, _TGI),
    Ending("tool_calls", Finish.CALLS, _OPENAI),
    Ending("function_call", Finish.CALLS, _OPENAI),
    Ending("tool_use", Finish.CALLS, _ANTHROPIC),
    Ending("tool_call", Finish.CALLS, _COHERE),
    Ending("length", Finish.LENGTH, _OPENAI),
    Ending("max_output_tokens", Finish.LENGTH, "platform.openai.com/docs/api-reference/responses, incomplete_details"),
    Ending("max_tokens", Finish.LENGTH, _ANTHROPIC),
    Ending("model_context_window_exceeded", Finish.LENGTH, f"{_ANTHROPIC}; {_ZAI}"),
    Ending("pause_turn", Finish.LENGTH, _ANTHROPIC),
    Ending("model_length", Finish.LENGTH, "docs.mistral.ai/api, finish_reason"),
    Ending("continuation", Finish.LENGTH, _GEMINI),
    Ending("error_limit", Finish.LENGTH, _COHERE),
    Ending("content_filter", Finish.REFUSED, _OPENAI),
    Ending("refusal", Finish.REFUSED, _ANTHROPIC),
    Ending("sensitive", Finish.REFUSED, _ZAI),
    Ending("guardrail_intervened", Finish.REFUSED, _BEDROCK),
    Ending("content_filtered", Finish.REFUSED, _BEDROCK),
    Ending("error_toxic", Finish.REFUSED, _COHERE),
    *(
        Ending(word, Finish.REFUSED, _GEMINI)
        for word in (
            *("safety", "recitation", "language", "blocklist", "prohibited_content", "spii", "escalation"),
            *("image_safety", "image_prohibited_content", "image_recitation", "pup_limited_disabled", "model_armor"),
        )
    ),
)
"""Any other word is an ending that is not known here, and so not a completion."""

BREAKS = (
    Ending(
        "insufficient_system_resource",
        Finish.UNKNOWN,
        "api-docs.deepseek.com/api/create-chat-completion, finish_reason",
    ),
    Ending("network_error", Finish.UNKNOWN, _ZAI),
    Ending("abort", Finish.UNKNOWN, "docs.vllm.ai; github.com/sgl-project/sglang"),
    Ending("cancelled", Finish.UNKNOWN, "platform.openai.com/docs/api-reference/responses, status"),
    Ending("error", Finish.UNKNOWN, "openrouter.ai/docs/api-reference/errors"),
    Ending("incomplete", Finish.UNKNOWN, "platform.openai.com/docs/api-reference/responses, status"),
    Ending("max_tool_calls", Finish.UNKNOWN, "platform.openai.com/docs/api-reference/responses, incomplete_details"),
    Ending("other", Finish.UNKNOWN, _GEMINI),
    Ending("timeout", Finish.UNKNOWN, _COHERE),
)
"""Words that say that a response broke off: what it proposes is not taken, however whole it looks."""

WORDINGS = (
    # --- the vendor's policy
    Wording("refused", "_policy|policy_|PolicyViolation", "content_policy_violation", "platform.openai.com/docs/guides/error-codes", is_code=True),
    Wording("refused", "content_filter", "content_filter", "learn.microsoft.com/azure/ai-services/openai/concepts/content-filter; platform.kimi.ai/docs", is_code=True),
    Wording("refused", "misalignment_", "misalignment_detected", "platform.openai.com/docs/guides/safety-checks", is_code=True),
    Wording("refused", "moderation_blocked", "moderation_blocked", "platform.openai.com/docs/guides/image-generation", is_code=True),
    Wording("refused", "content (filter|filtering|management) policy", "The prompt triggered the content management policy.", "learn.microsoft.com/azure/ai-services/openai/concepts/content-filter"),
    Wording("refused", "violating our usage polic|violates (our )?usage", "Your prompt was flagged as potentially violating our usage policy.", "platform.openai.com/docs/guides/reasoning"),
    Wording("refused", "input was flagged", "This request requires moderation. Your input was flagged for violence.", "openrouter.ai/docs/api-reference/errors"),
    Wording("refused", "as a result of our safety system", "Your request was rejected as a result of our safety system.", "platform.openai.com/docs/guides/image-generation"),
    Wording("refused", "data_?inspection_?failed", "data_inspection_failed", "alibabacloud.com/help/en/model-studio/error-code"),
    Wording("refused", "may contain inappropriate content", "Input data may contain inappropriate content.", "alibabacloud.com/help/en/model-studio/error-code"),
    Wording("refused", "content exists risk", "Content Exists Risk", "github.com/deepseek-ai/DeepSeek-V2/issues/30"),
    Wording("refused", "unsafe or sensitive content", "System detected potentially unsafe or sensitive content in input or generation.", "docs.z.ai/api-reference/api-code, 1301"),
    Wording("refused", "considered high risk", "The request was rejected because it was considered high risk", "platform.kimi.ai/docs, errors"),
    Wording("refused", "Sensitive(Content|Information)Detected", "InputTextSensitiveContentDetected", "volcengine.com/docs/82379/1299023"),
    Wording("refused", "(input|output) new_sensitive", "input new_sensitive", "platform.minimax.io/docs, 1026 and 1027"),
    Wording("refused", "content violates (usage )?guidelines", "Content violates usage guidelines.", "docs.x.ai/docs"),
    Wording("refused", "blocked due to sensitive content", "The request was blocked due to sensitive content", "platform.stepfun.com/docs, 451"),
    # --- no credit
    Wording("no_credit", "insufficient_quota", "insufficient_quota", "platform.openai.com/docs/guides/error-codes"),
    Wording("no_credit", "billing_hard_limit|billing_not_active|billing_error", "billing_hard_limit_reached", "platform.openai.com/docs/guides/error-codes; docs.claude.com/en/api/errors"),
    Wording("no_credit", "credit balance is too low", "Your credit balance is too low to access the Anthropic API.", "docs.claude.com/en/api/errors"),
    Wording("no_credit", "insufficient_credits", "insufficient_credits", "openrouter.ai/docs/api-reference/errors"),
    Wording("no_credit", "limited to [0-9,]+ API calls ?/ ?month", "You are using a Trial key, which is limited to 1000 API calls / month.", "docs.cohere.com/docs/rate-limits"),
    Wording("no_credit", "exceeded_current_quota", "exceeded_current_quota_error", "platform.kimi.ai/docs, errors"),
    Wording("no_credit", "insufficient[ _]balance|balance is (insufficient|not enough)", "Insufficient Balance", "api-docs.deepseek.com/quick_start/error_codes; docs.z.ai/api-reference/api-code, 1113"),
    Wording("no_credit", "arrearage|overdue[ -]?payment", "Arrearage", "alibabacloud.com/help/en/model-studio/error-code"),
    Wording("no_credit", "FreeTierOnly", "AllocationQuota.FreeTierOnly", "alibabacloud.com/help/en/model-studio/error-code"),
    Wording("no_credit", "AccountOverdue", "AccountOverdueError", "volcengine.com/docs/82379/1299023"),
    Wording("no_credit", "(doesn't|does not) have any credits|used all available credits", "Your newly created team doesn't have any credits yet.", "docs.x.ai/docs"),
    # --- longer than the model's context
    Wording("too_long", "context_length_exceeded", "context_length_exceeded", "platform.openai.com/docs/guides/error-codes"),
    Wording("too_long", "too_many_prompt_tokens|requested_too_many_tokens", "requested_too_many_tokens", "docs.perplexity.ai; github.com/OpenRouterTeam/ai-sdk-provider/issues/121"),
    Wording("too_long", "prompt of length \\d+,? (which )?exceeds", "Requested 115120 to generate tokens, following a prompt of length 40055, which exceeds the max limit of 128000 tokens.", "docs.perplexity.ai; github.com/OpenRouterTeam/ai-sdk-provider/issues/121"),
    Wording("too_long", "exceed_context_size", "exceed_context_size_error", "github.com/ggml-org/llama.cpp, tools/server"),
    Wording("too_long", "model_max_prompt_tokens_exceeded", "model_max_prompt_tokens_exceeded", "api.githubcopilot.com"),
    Wording("too_long", "(maximum|max) context|context (length|window|size|limit)", "This model's maximum context length is 8192 tokens.", "platform.openai.com/docs; docs.vllm.ai; platform.minimax.io"),
    Wording("too_long", "context shift is disabled", "context shift is disabled", "github.com/ggml-org/llama.cpp, tools/server"),
    Wording("too_long", "prompt (is )?too long", "prompt is too long: 213462 tokens > 200000 maximum", "docs.claude.com/en/api/errors"),
    Wording("too_long", "maximum prompt length", "This model's maximum prompt length is 131072 but the request contains 200000 tokens.", "docs.x.ai/docs"),
    Wording("too_long", "too many (input )?tokens(?! per|, please wait)", "too many tokens: size limit exceeded", "docs.cohere.com/reference/errors"),
    Wording("too_long", "inputs? (is |tokens )?too long", "Input is too long for requested model.", "docs.aws.amazon.com/bedrock"),
    Wording("too_long", "input token (count|length)", "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", "ai.google.dev/gemini-api/docs/troubleshooting"),
    Wording("too_long", "token count of \\d+ exceeds", "prompt token count of 9000 exceeds the limit of 8192", "api.githubcopilot.com"),
    Wording("too_long", "range of input length", "Range of input length should be [1, 129024]", "alibabacloud.com/help/en/model-studio/error-code"),
    Wording("too_long", "reduce (the length of )?(the|your) (input )?(messages|prompt)", "Please reduce the length of the messages or completion.", "console.groq.com/docs/errors; docs.vllm.ai"),
    Wording("too_long", "model token limit|token limit exceeded", "Your request exceeded model token limit: 131072", "platform.kimi.ai/docs, errors"),
    Wording("too_long", "tokens_limit_reached", "tokens_limit_reached", "docs.github.com/en/github-models"),
    Wording("too_long", "`inputs` (tokens \\+|must have less than)", "`inputs` tokens + `max_new_tokens` must be <= 8193", _TGI),
    Wording("too_long", "(input|prompt) (length|tokens?)( of)?( \\(?\\d+( tokens)?\\)?)? exceed", "Input length 9000 exceeds maximum input length 8192", "github.com/sgl-project/sglang; nvidia.github.io/TensorRT-LLM; docs.perplexity.ai"),
    Wording("too_long", "number of input tokens", "The number of input tokens must be less than 8192", "docs.databricks.com"),
    Wording("too_long", "expected maxlength", "expected maxLength: 100000, actual: 120000", "docs.aws.amazon.com/bedrock"),
    Wording("too_long", "maximum model length", "The prompt is longer than the maximum model length of 8192", "docs.vllm.ai"),
    Wording("too_long", "prompt exceeds max", "Prompt exceeds max length", "docs.z.ai/api-reference/api-code, 1261"),
    Wording("too_long", "string_above_max_length", "string_above_max_length", "platform.openai.com/docs/guides/error-codes"),
    Wording("too_long", "request_too_large", "request_too_large", "docs.claude.com/en/api/errors"),
    Wording("too_long", "token count exceeds", "Requested token count exceeds the model's maximum", "github.com/sgl-project/sglang"),
    Wording("too_long", "tokens? must be reduced", "The input tokens must be reduced", "docs.perplexity.ai"),
    Wording("too_long", "exceeds? (the )?max(imum)? (allowed )?(input|prompt|token|sequence)", "The request exceeds the maximum input tokens allowed", "docs.perplexity.ai"),
)  # fmt: skip


def finish_of(word: str) -> Finish:
    """Return what a vendor's word for the end of a response means; UNKNOWN for a word that is not known here."""
    return _FINISHES.get(word.lower(), Finish.UNKNOWN)


def is_known(word: str) -> bool:
    """Whether a vendor's word for the end of a response is known here, be it as one for a response that broke off."""
    return word.lower() in _FINISHES or any(word.lower() == ending.word for ending in BREAKS)


def says(meaning: Meaning, code: str, message: str) -> bool:
    """Whether an error has this meaning, whoever sent it."""
    in_code, anywhere = _PATTERNS[meaning]
    return bool(in_code.search(code) or anywhere.search(f"{code} {message}"))


_FINISHES = {ending.word: ending.finish for ending in ENDINGS}


def _pattern(meaning: Meaning, *, is_code: bool) -> re.Pattern[str]:
    rows = [row.pattern for row in WORDINGS if row.meaning == meaning and row.is_code == is_code]
    return re.compile("|".join(rows) or "(?!)", re.IGNORECASE)


_PATTERNS = {
    meaning: (_pattern(meaning, is_code=True), _pattern(meaning, is_code=False)) for meaning in get_args(Meaning)
}
