"""Pydantic AI in the conformance suite. History and approvals are kept in a file, as its documentation has it."""

import functools
import json
from collections.abc import AsyncIterable, Callable
from importlib.metadata import version
from typing import Any

from openai import NOT_GIVEN, AsyncOpenAI
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool, ToolDenied, ToolFailed
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits
from warm import prepare


async def adapter(job: Any) -> dict[str, Any]:
    return await _run(job, {})


async def advised(job: Any) -> dict[str, Any]:
    """With more corrections for the model, tools whose failures it reads, and a check of how the answer ended."""
    return await _run(job, {"retries": {"tools": 3, "output": 3}})


async def _run(job: Any, options: dict[str, Any]) -> dict[str, Any]:
    history, waiting = job.state / "messages.json", job.state / "waiting.json"
    if job.action == "resume":  # it continues from a history only
        return json.loads(waiting.read_text())
    messages = ModelMessagesTypeAdapter.validate_json(history.read_bytes()) if history.exists() else None
    about = {
        "usage_limits": UsageLimits(request_limit=job.max_steps),
        "event_stream_handler": _read,
        "message_history": messages,
    }
    if job.action == "decide":
        allowed = {one["tool"]: one["allow"] for one in job.decisions}
        calls = {one["id"]: allowed[one["tool"]] or ToolDenied() for one in json.loads(waiting.read_text())["waiting"]}
        result = await _agent(job, options).run(deferred_tool_results=DeferredToolResults(approvals=calls), **about)
    else:
        result = await _agent(job, options).run(job.prompt, **about)
    told = _told(result, is_strict=bool(options))
    if job.keeps_state:
        history.write_bytes(result.all_messages_json())
        waiting.write_text(json.dumps(told))
    return told


def _agent(job: Any, options: dict[str, Any]) -> Agent:
    timeout = NOT_GIVEN if job.model_timeout is None else job.model_timeout
    client = AsyncOpenAI(base_url=job.base_url, api_key=job.api_key, max_retries=job.max_attempts - 1, timeout=timeout)
    model = OpenAIChatModel(job.model, provider=OpenAIProvider(openai_client=client))
    tools = [
        Tool(
            _telling(one.async_function) if options else one.async_function,
            timeout=job.tool_timeout,
            sequential=one.effect == "write",
            requires_approval=one.needs_approval,
        )
        for one in job.tools
    ]
    asks = any(one.needs_approval for one in job.tools)
    output = [str, DeferredToolRequests] if asks else str
    return Agent(model, instructions=job.system, tools=tools, output_type=output, **options)


def _telling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the tool with its exceptions as failures that the model reads."""

    @functools.wraps(function)
    async def telling(*values: Any, **keywords: Any) -> Any:
        try:
            return await function(*values, **keywords)
        except Exception as exc:
            raise ToolFailed(f"{type(exc).__name__}: {exc}") from exc

    return telling


async def _read(_: Any, events: AsyncIterable[Any]) -> None:
    async for _event in events:
        pass


def _told(result: Any, *, is_strict: bool) -> dict[str, Any]:
    used = result.usage
    told = {"usage": {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}}
    if isinstance(result.output, DeferredToolRequests):
        calls = [
            {"id": one.tool_call_id, "tool": one.tool_name, "arguments": one.args_as_dict()}
            for one in result.output.approvals
        ]
        return {**told, "answer": None, "completed": False, "waiting": calls}
    is_whole = not is_strict or result.response.finish_reason not in ("length", "content_filter", "error")
    return {**told, "answer": result.output, "completed": is_whole}


adapter.name = advised.name = "Pydantic AI"
adapter.version = advised.version = version("pydantic-ai-slim")
adapter.offers = advised.offers = (
    *("chat", "stream", "max_steps", "retries", "tool_timeout", "model_timeout", "effects", "usage"),
    *("sessions", "cancel", "approvals"),
)
adapter.prepare = advised.prepare = lambda: prepare(adapter)
