"""The Claude Agent SDK in the conformance suite: the program that its wheel brings, and the tools as a server of the SDK in this process."""

import json
import os
import uuid
from importlib.metadata import version
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    SdkMcpTool,
    ToolAnnotations,
    create_sdk_mcp_server,
)


async def adapter(job: Any) -> dict[str, Any]:
    told = job.state / "told.json"
    if job.action == "resume":
        return json.loads(told.read_text())
    async with ClaudeSDKClient(_options(job)) as client:
        if job.prompt:  # else what waits for a person continues by itself
            await client.query(job.prompt)
        messages = [one async for one in client.receive_response()]
    outcome = _outcome(messages[-1])
    told.write_text(json.dumps(outcome))
    return outcome


def _outcome(last: ResultMessage) -> dict[str, Any]:
    asked = last.deferred_tool_use
    used = last.usage or {}
    read = (used.get(name) or 0 for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"))
    return {
        "answer": last.result if asked is None else None,
        "completed": last.subtype == "success" and not last.is_error and asked is None,
        "waiting": [] if asked is None else [{"tool": asked.name, "arguments": asked.input}],
        "error": None if not last.is_error else last.result or last.subtype,
        "usage": {"input_tokens": sum(read), "output_tokens": used.get("output_tokens")},
    }


def _options(job: Any) -> ClaudeAgentOptions:
    begun = job.state / "begun"
    session = str(uuid.uuid5(uuid.NAMESPACE_URL, job.session))
    same = {"resume": session} if begun.exists() else {"session_id": session}
    begun.touch()
    return ClaudeAgentOptions(
        model="claude-sonnet-4-5",
        system_prompt=job.system,
        tools=[],
        mcp_servers={"tools": create_sdk_mcp_server("tools", tools=[_tool(one) for one in job.tools])},
        strict_mcp_config=True,
        allowed_tools=["mcp__tools", *(one.name for one in job.tools)],
        hooks={"PreToolUse": [HookMatcher(hooks=[_asking(job)])]},
        setting_sources=[],
        max_turns=job.max_steps,
        thinking={"type": "disabled"},  # the provider does not think
        cwd=job.state,
        env=_environment(job),
        **same,
    )


def _asking(job: Any) -> Any:
    """Return a hook that lets a call wait for a person, or says what the person has decided."""
    asks = {one.name for one in job.tools if one.needs_approval}
    decided = {one["tool"]: one["allow"] for one in job.decisions}

    async def decide(given: Any, *_: Any) -> Any:
        name = given["tool_name"]
        if name not in asks:
            return {}
        decision = "defer" if name not in decided else "allow" if decided.pop(name) else "deny"
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision}}

    return decide


def _environment(job: Any) -> dict[str, str]:
    seconds = job.tool_timeout
    return {
        **({} if seconds is None else {"MCP_TOOL_TIMEOUT": str(round(1000 * seconds))}),
        "ANTHROPIC_BASE_URL": job.root_url,
        "ANTHROPIC_API_KEY": job.api_key,
        "CLAUDE_AGENT_SDK_MCP_NO_PREFIX": "1",  # the model then calls the tools by their own names
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": str(job.max_attempts - 1),
        "CLAUDE_CONFIG_DIR": str(job.state),
        "HOME": str(job.state),
        "PATH": os.environ["PATH"],
    }


def _tool(told: Any) -> SdkMcpTool[Any]:
    async def run(arguments: dict[str, Any]) -> dict[str, Any]:
        result = await told.run_async(arguments)
        return {"content": [{"type": "text", "text": result if isinstance(result, str) else json.dumps(result)}]}

    reads = ToolAnnotations(readOnlyHint=told.effect == "read")
    return SdkMcpTool(told.name, told.description, told.parameters, run, annotations=reads)


adapter.name = "Claude Agent SDK"
adapter.version = version("claude-agent-sdk")
adapter.offers = (
    *(
        "anthropic",
        "stream",
        "max_steps",
        "retries",
        "tool_timeout",
        "effects",
        "usage",
        "sessions",
        "cancel",
        "approvals",
    ),
    "-contents/long-argument",  # it asks the vendor to count tokens, which the suite's provider does not do
)
