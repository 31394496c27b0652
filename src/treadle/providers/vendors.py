"""Vendors: the servers people use, as data: which dialect each speaks, where it is, whose key it takes, what it refuses.

A compatible server's quirks are rows here, not branches in an adapter. Loads nothing.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.ports import Capability

__all__ = ["LOCAL_SERVERS", "VENDORS", "Vendor"]


class Vendor(msgspec.Struct, frozen=True, kw_only=True):
    """One name before the colon of a model's name."""

    adapter: str
    """Module and class; all are constructed alike."""
    address: str
    """Base URL; empty where there is none but one's own. A word in braces is the variable that holds this part of it."""
    address_variable: str
    """Environment variable that names another address."""
    key_variable: str = ""
    """Environment variable of the key; empty for servers that never want one."""
    other_key_variable: str = ""
    """Another name of it, asked second."""
    needs_key: bool = True
    """Whether there is no asking at its address without a key."""
    cloud_endpoint: str = ""
    """Module and function that find address and credentials, for a cloud; nothing where address and key are all there is."""
    families: Mapping[str, str] = {}
    """Other rows that serve the models whose names begin so, under this row's name."""
    options: Mapping[str, Any] = {}
    """Fields of each request's body; None removes one that the server refuses."""
    quirks: Mapping[str, Any] = {}
    """Further words for the adapter's constructor."""
    capabilities: frozenset[Capability] = frozenset()
    """What is special about all of its models."""


_ANTHROPIC = "treadle.providers.anthropic:Anthropic"
_CHAT = "treadle.providers.openai_chat:OpenAIChat"
_AZURE_KEYS = ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY")
_BEDROCK_KEYS = ("AWS_BEARER_TOKEN_BEDROCK",)
_VERTEX_KEYS = ("VERTEX_API_KEY",)


def _compatible(
    dialect: str,
    address: str,
    *,
    key_variable: str = "",
    other_key_variable: str = "",
    options: Mapping[str, Any] | None = None,
    quirks: Mapping[str, Any] | None = None,
    capabilities: frozenset[Capability] = frozenset(),
) -> dict[str, Vendor]:
    """Describe a vendor that speaks Chat Completions under its own name."""
    variable = key_variable or f"{dialect.upper()}_API_KEY"
    vendor = Vendor(
        adapter=_CHAT,
        address=address,
        address_variable=f"{dialect.upper()}_BASE_URL",
        key_variable=variable,
        other_key_variable=other_key_variable,
        options=options or {},
        quirks={"dialect": dialect, "key_variable": variable, **(quirks or {})},
        capabilities=capabilities,
    )
    return {dialect: vendor}


def _local(
    dialect: str,
    port: int,
    *,
    key_variable: str = "",
    other_key_variable: str = "",
    quirks: Mapping[str, Any] | None = None,
    capabilities: frozenset[Capability] = frozenset(),
) -> dict[str, Vendor]:
    """Describe a server of one's own; it may have been started with a key.

    Started without a parser for reasoning, it sends no opening tag where the model's template has put that into the prompt, as
    DeepSeek-R1's and QwQ's do (docs.vllm.ai/features/reasoning_outputs).
    """
    vendor = Vendor(
        adapter=_CHAT,
        address=f"http://127.0.0.1:{port}/v1",
        address_variable=f"{dialect.upper()}_BASE_URL",
        key_variable=key_variable,
        other_key_variable=other_key_variable,
        needs_key=False,
        quirks={"dialect": dialect, "key_variable": key_variable, "thinking_tags": "closing", **(quirks or {})},
        capabilities=capabilities,
    )
    return {dialect: vendor}


def _cloud(
    name: str,
    adapter: str,
    *,
    cloud_endpoint: str,
    key_variables: tuple[str, ...],
    families: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Vendor]:
    """Describe a cloud: its address depends on a region, a project or a resource, and a key is one of several ways to ask."""
    vendor = Vendor(
        adapter=adapter,
        address="",
        address_variable=f"{name.partition('-')[0].upper()}_BASE_URL",
        key_variable=key_variables[0],
        other_key_variable=key_variables[1] if len(key_variables) > 1 else "",
        needs_key=False,
        cloud_endpoint=f"treadle.providers.clouds.{cloud_endpoint}",
        families=families or {},
        options=options or {},
    )
    return {name: vendor}


VENDORS: Mapping[str, Vendor] = {
    "openai": Vendor(
        adapter="treadle.providers.openai_responses:OpenAIResponses",
        address="https://api.openai.com/v1",
        address_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
    ),
    "openai-chat": Vendor(
        adapter=_CHAT,
        address="https://api.openai.com/v1",
        address_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        options={"strict_tools": True},
    ),
    "anthropic": Vendor(
        adapter=_ANTHROPIC,
        address="https://api.anthropic.com/v1",
        address_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
    ),
    "gemini": Vendor(
        adapter="treadle.providers.gemini:Gemini",
        address="https://generativelanguage.googleapis.com/v1beta",
        address_variable="GEMINI_BASE_URL",
        key_variable="GEMINI_API_KEY",
        other_key_variable="GOOGLE_API_KEY",
    ),
    "cohere": Vendor(
        adapter="treadle.providers.cohere:Cohere",
        address="https://api.cohere.com/v2",
        address_variable="COHERE_BASE_URL",
        key_variable="COHERE_API_KEY",
        other_key_variable="CO_API_KEY",
    ),
    **_cloud(
        "azure", _CHAT, cloud_endpoint="azure:chat_endpoint", key_variables=_AZURE_KEYS, options={"strict_tools": True}
    ),
    **_cloud(
        "azure-responses",
        "treadle.providers.openai_responses:OpenAIResponses",
        cloud_endpoint="azure:responses_endpoint",
        key_variables=_AZURE_KEYS,
    ),
    **_cloud(
        "bedrock",
        "treadle.providers.bedrock:Bedrock",
        cloud_endpoint="aws:converse_endpoint",
        key_variables=_BEDROCK_KEYS,
    ),
    **_cloud("bedrock-claude", _ANTHROPIC, cloud_endpoint="aws:invoke_endpoint", key_variables=_BEDROCK_KEYS),
    **_cloud(
        "vertex",
        "treadle.providers.gemini:Gemini",
        cloud_endpoint="google:gemini_endpoint",
        key_variables=_VERTEX_KEYS,
        families={"claude": "vertex-claude"},
    ),
    **_cloud("vertex-claude", _ANTHROPIC, cloud_endpoint="google:claude_endpoint", key_variables=_VERTEX_KEYS),
    # DeepSeek thinks by default, and refuses a history whose calls have lost the reasoning that led to them
    # (api-docs.deepseek.com/guides/thinking_mode).
    **_compatible("deepseek", "https://api.deepseek.com/v1", quirks={"thinking_field": "reasoning_content"}),
    **_compatible("groq", "https://api.groq.com/openai/v1"),
    # Mistral refuses fields that it does not know (it sends usage in every stream without being asked), ids that are not
    # of its own form, a user's message right after a tool's, and a model's message of nothing.
    **_compatible(
        "mistral",
        "https://api.mistral.ai/v1",
        options={"stream_options": None},
        quirks={"call_id": "[a-zA-Z0-9]{9}", "bridge": "Ok."},
    ),
    **_compatible("openrouter", "https://openrouter.ai/api/v1"),
    # xAI tells a bad key with status 400, and a prompt that is too long as "maximum prompt length" (docs.x.ai/docs).
    **_compatible("xai", "https://api.x.ai/v1"),
    # Moonshot's models think, and refuse a history whose calls have lost the reasoning that led to them, and a demanded call while they think
    # (platform.kimi.ai/docs).
    **_compatible("moonshot", "https://api.moonshot.ai/v1", quirks={"thinking_field": "reasoning_content"}),
    # Z.ai knows no choice but auto, and sends usage without being asked (docs.z.ai/api-reference/llm/chat-completion).
    **_compatible(
        "zai", "https://api.z.ai/api/paas/v4", options={"stream_options": None}, quirks={"forced_choice": False}
    ),
    # Alibaba demands a call by its name only: "required" is refused (alibabacloud.com/help/en/model-studio/qwen-function-calling).
    **_compatible(
        "alibaba",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_variable="DASHSCOPE_API_KEY",
        other_key_variable="ALIBABA_API_KEY",
    ),
    **_compatible("together", "https://api.together.xyz/v1"),
    # Perplexity's Sonar calls no functions (docs.perplexity.ai/docs/sonar).
    **_compatible(
        "perplexity",
        "https://api.perplexity.ai",
        other_key_variable="PPLX_API_KEY",
        capabilities=frozenset({Capability.NO_TOOLS}),
    ),
    # Hugging Face's router passes on what vLLM and SGLang send, which may lack the opening tag of reasoning.
    **_compatible(
        "huggingface",
        "https://router.huggingface.co/v1",
        key_variable="HF_TOKEN",
        quirks={"thinking_tags": "closing"},
    ),
    **_compatible(
        "vercel",
        "https://ai-gateway.vercel.sh/v1",
        key_variable="AI_GATEWAY_API_KEY",
        other_key_variable="VERCEL_OIDC_TOKEN",
    ),
    # Databricks has one address for each workspace, Cloudflare one for each account.
    **_compatible("databricks", "{DATABRICKS_HOST}/serving-endpoints", key_variable="DATABRICKS_TOKEN"),
    **_compatible(
        "cloudflare",
        "https://api.cloudflare.com/client/v4/accounts/{CLOUDFLARE_ACCOUNT_ID}/ai/v1",
        key_variable="CLOUDFLARE_API_TOKEN",
        other_key_variable="CLOUDFLARE_API_KEY",
    ),
    # GitHub publishes no page on Copilot's own server. It takes tokens of GitHub's sign-in, and refuses clients that name no editor or
    # integration of theirs in a header.
    **_compatible("copilot", "https://api.githubcopilot.com", key_variable="COPILOT_GITHUB_TOKEN"),
    # llama.cpp reads calls in the markup of the model's template only, and its small models leave that out. It holds every model to a schema.
    **_local(
        "llamacpp",
        8080,
        key_variable="LLAMACPP_API_KEY",
        other_key_variable="LLAMA_API_KEY",
        quirks={"text_calls": "run"},
        capabilities=frozenset({Capability.JSON_SCHEMA}),
    ),
    # LM Studio knows the choices that are a word, and none by name.
    **_local("lmstudio", 1234, quirks={"named_choice": False}),
    **_local("ollama", 11434),
    **_local("vllm", 8000, key_variable="VLLM_API_KEY"),
}

LOCAL_SERVERS = tuple(name for name, vendor in VENDORS.items() if vendor.address.startswith("http://127.0.0.1"))
"""Servers that people run on their own machine; `treadle doctor` looks for them on loopback."""
