"""OpenAI Agents SDK in the conformance suite: its SQLite session for histories, its run state for approvals."""

import json
from importlib.metadata import version
from typing import Any

from agents.run_config import ToolExecutionConfig
from openai import NOT_GIVEN, AsyncOpenAI

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)

set_tracing_disabled(True)  # traces would leave the machine
from warm import prepare


async def adapter(job: Any) -> dict[str, Any]:
    return await _run(job, RunConfig())


async def advised(job: Any) -> dict[str, Any]:
    """Names that do not exist are told to the model, and calls run one after the other."""
    one_by_one = ToolExecutionConfig(max_function_tool_concurrency=1)
    return await _run(job, RunConfig(tool_not_found_behavior="return_error_to_model", tool_execution=one_by_one))


async def _run(job: Any, config: RunConfig) -> dict[str, Any]:
    agent, paused, ended = _agent(job), job.state / "paused.json", job.state / "ended.json"
    if job.action == "resume":
        return json.loads(ended.read_text())
    session = SQLiteSession(job.session, job.state / "sessions.db") if job.keeps_state else None
    given: Any = job.prompt
    if job.action == "decide":
        allowed = {one["tool"]: one["allow"] for one in job.decisions}
        given = await RunState.from_json(agent, json.loads(paused.read_text()))
        for item in given.get_interruptions():
            (given.approve if allowed[item.name] else given.reject)(item)
    result = Runner.run_streamed(agent, given, max_turns=job.max_steps, session=session, run_config=config)
    async for _ in result.stream_events():
        pass
    told = _told(result)
    if job.keeps_state:
        ended.write_text(json.dumps(told))
        if result.interruptions:
            paused.write_text(json.dumps(result.to_state().to_json()))
    return told


def _agent(job: Any) -> Agent:
    timeout = NOT_GIVEN if job.model_timeout is None else job.model_timeout
    client = AsyncOpenAI(base_url=job.base_url, api_key=job.api_key, max_retries=job.max_attempts - 1, timeout=timeout)
    return Agent(
        name="assistant",
        instructions=job.system,
        model=OpenAIChatCompletionsModel(model=job.model, openai_client=client),
        model_settings=ModelSettings(include_usage=True),
        tools=[
            function_tool(one.async_function, timeout=job.tool_timeout, needs_approval=one.needs_approval)
            for one in job.tools
        ],
    )


def _told(result: Any) -> dict[str, Any]:
    used = result.context_wrapper.usage
    calls = [{"tool": one.name, "arguments": json.loads(one.arguments)} for one in result.interruptions]
    return {
        "answer": result.final_output,
        "completed": not calls,
        "waiting": calls,
        "usage": {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens},
    }


adapter.name = advised.name = "OpenAI Agents SDK"
adapter.version = advised.version = version("openai-agents")
adapter.offers = (
    *("chat", "stream", "max_steps", "retries", "tool_timeout", "model_timeout", "usage"),
    *("sessions", "cancel", "approvals"),
)
advised.offers = (*adapter.offers, "effects")
adapter.prepare = advised.prepare = lambda: prepare(adapter)
