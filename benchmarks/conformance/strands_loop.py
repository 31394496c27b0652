"""Strands Agents in the conformance suite: its file sessions for conversations, its interrupts for approvals."""

import inspect
import json
import typing
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from strands import Agent, ModelRetryStrategy, tool
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager
from strands.tools.executors import SequentialToolExecutor
from warm import prepare


async def adapter(job: Any) -> dict[str, Any]:
    return await _run(job, is_advised=False)


async def advised(job: Any) -> dict[str, Any]:
    """The model is shown the whole schema, calls run one after the other, and how the answer ended is checked."""
    return await _run(job, is_advised=True)


async def _run(job: Any, *, is_advised: bool) -> dict[str, Any]:
    agent = _agent(job, is_advised)
    asked = job.state / "asked.json"
    given: Any = job.prompt
    if job.action == "resume":
        return json.loads(asked.read_text())
    if job.action == "decide":
        allowed = {one["tool"]: one["allow"] for one in job.decisions}
        given = [
            {"interruptResponse": {"interruptId": one["id"], "response": "y" if allowed[one["tool"]] else "n"}}
            for one in json.loads(asked.read_text())["waiting"]
        ]
    result: Any = None
    async for event in agent.stream_async(given, limits={"turns": job.max_steps}):
        result = event.get("result", result)
    told = _told(result, is_strict=is_advised)
    if job.keeps_state:
        asked.write_text(json.dumps(told))
    return told


def _agent(job: Any, is_advised: bool) -> Agent:
    client = {"base_url": job.base_url, "api_key": job.api_key, "max_retries": job.max_attempts - 1}
    if job.model_timeout is not None:
        client["timeout"] = job.model_timeout
    asks = {one.name for one in job.tools if one.needs_approval}
    return Agent(
        model=OpenAIModel(client_args=client, model_id=job.model),
        agent_id="assistant",
        tools=[_tool(one, is_advised) for one in job.tools] or [_never_called],
        system_prompt=job.system,
        callback_handler=None,
        retry_strategy=ModelRetryStrategy(max_attempts=1),  # the client's own retries are bounded above
        session_manager=FileSessionManager(job.session, str(job.state)) if job.keeps_state else None,
        hooks=[_Asks(asks)] if asks else [],
        tool_executor=SequentialToolExecutor() if is_advised else None,
    )


def _tool(told: Any, is_advised: bool) -> Any:
    function = _plain(told.async_function)
    return tool(inputSchema={"json": told.parameters})(function) if is_advised else tool(function)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function without limits in its hints, which the decorator refuses."""
    hints = typing.get_type_hints(function)
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=hints[one.name]) for one in signature.parameters.values()]
    function.__annotations__, function.__signature__ = hints, signature.replace(parameters=parameters)
    return function


@tool
def _never_called() -> None:
    """Do nothing. Without a tool, the library sends an empty list of tools, which the vendor refuses."""


class _Asks(HookProvider):
    """Interrupts the run at each call that a person must allow."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self._ask)

    def _ask(self, event: BeforeToolCallEvent) -> None:
        call = event.tool_use
        if call["name"] in self._names:
            answer = event.interrupt("approval", reason={"tool": call["name"], "arguments": call["input"]})
            if answer != "y":
                event.cancel_tool = "The person denied this call."


def _told(result: Any, *, is_strict: bool) -> dict[str, Any]:
    used = result.metrics.accumulated_usage
    return {
        "answer": str(result),
        "completed": result.stop_reason == "end_turn"
        or (not is_strict and result.stop_reason not in ("interrupt", "limit_turns")),
        "waiting": [{"id": one.id, **one.reason} for one in result.interrupts or ()],
        "usage": {"input_tokens": used["inputTokens"], "output_tokens": used["outputTokens"]},
    }


adapter.name = advised.name = "Strands Agents"
adapter.version = advised.version = version("strands-agents")
adapter.offers = (
    *("chat", "stream", "max_steps", "retries", "model_timeout", "usage", "sessions", "cancel", "approvals"),
)
advised.offers = (*adapter.offers, "effects")
adapter.prepare = advised.prepare = lambda: prepare(adapter)
