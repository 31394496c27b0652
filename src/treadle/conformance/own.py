"""Treadle as a subject of its own suite, written as its users write it."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from treadle import Agent, Budget, Tool, ToolContext, allow, open_session, resolve_model
from treadle.conformance.host import Job, JobTool
from treadle.providers import Timeouts
from treadle.testing import MockProvider, Turn, call
from treadle.tools import JsonObject

__all__ = ["adapter"]

_MODELS = {"chat": "openai-chat", "responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}


async def adapter(job: Job) -> dict[str, Any]:
    """Run Treadle's loop once."""
    agent = _agent(job)
    async with open_session(job.state / "agent.db" if job.keeps_state else "memory:", id=job.session) as session:
        if job.action == "start":
            result = await agent.run(job.prompt, session=session)
        else:
            allowed = {one["tool"]: one["allow"] for one in job.decisions}
            for approval in await session.approvals():
                await session.answer(approval.id, "allow" if allowed[approval.tool] else "deny")
            result = await agent.resume(session)
    return {
        "answer": result.text,
        "completed": result.completed,
        "reason": result.reason,
        "waiting": [{"tool": one.tool, "arguments": one.arguments} for one in result.approvals],
        "usage": {"input_tokens": result.spent.usage.input_tokens, "output_tokens": result.spent.usage.output_tokens},
    }


def _agent(job: Job) -> Agent:
    seconds = job.model_timeout
    model = resolve_model(
        f"{_MODELS[job.dialect]}:{job.model}",
        base_url=job.base_url,
        api_key=job.api_key,
        stream=job.stream,
        timeouts=Timeouts() if seconds is None else Timeouts(first_byte_seconds=seconds, idle_seconds=seconds),
    )
    budget = Budget(max_model_turns=job.max_steps, max_retries_per_model_call=job.max_attempts - 1)
    if job.max_result_chars is not None:
        budget = msgspec.structs.replace(budget, max_tool_result_chars=job.max_result_chars)
    return Agent(
        model,
        tools=[_tool(one, job) for one in job.tools],
        instructions=job.system,
        policy=allow("*"),
        budget=budget,
    )


def _tool(tool: JobTool, job: Job) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        return await tool.run_async(arguments)

    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        run=run,
        effect="read" if tool.effect == "read" else "unsafe",
        timeout=job.tool_timeout,
        requires_approval=tool.needs_approval,
    )


def _prepare() -> None:
    """Load what runs need before the host forks: one run in each dialect."""
    with tempfile.TemporaryDirectory() as folder, MockProvider(_first).in_thread() as provider:
        for dialect in _MODELS:
            told = {
                "action": "start", "prompt": "Go.", "system": "Be brief.", "dialect": dialect, "model": "mock", "stream": True,
                "base_url": provider.base_url, "root_url": "", "api_key": "none", "state": folder, "session": dialect, "keeps_state": True,
                "max_steps": 3, "max_attempts": 1, "tool_timeout": None, "model_timeout": None, "max_result_chars": None, "decisions": [],
                "ledger": str(Path(folder) / "ledger"),
                "tools": [
                    {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}, "effect": "read",
                     "needs_approval": False, "behaviour": {}}
                ],
            }  # fmt: skip
            asyncio.run(adapter(Job.read(told)))


def _first(body: Any) -> Turn:
    has_result = "ran with" in str(body)
    return Turn(text="Done.") if has_result else Turn(calls=(call("look"),))


adapter.name = "treadle"  # type: ignore[attr-defined]  # what the host reads of an adapter
adapter.prepare = _prepare  # type: ignore[attr-defined]  # the same
adapter.offers = (  # type: ignore[attr-defined]  # the same
    *_MODELS,
    *("stream", "max_steps", "retries", "tool_timeout", "model_timeout", "effects", "sessions", "handover", "resume"),
    *("approvals", "cancel", "usage", "result_limit"),
)
