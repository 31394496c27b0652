"""LangGraph, by way of LangChain's `create_agent`, in the conformance suite. Conversations are in its SQLite checkpointer."""

import os
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any

os.environ["LANGSMITH_TRACING"] = "false"  # traces would leave the machine
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelCallLimitMiddleware, ToolErrorMiddleware
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from warm import prepare


async def adapter(job: Any) -> dict[str, Any]:
    return await _run(job, is_advised=False)


async def advised(job: Any) -> dict[str, Any]:
    """Tools that fail are told to the model, and how the answer ended is checked."""
    return await _run(job, is_advised=True)


async def _run(job: Any, *, is_advised: bool) -> dict[str, Any]:
    usage = UsageMetadataCallbackHandler()
    config = {"configurable": {"thread_id": job.session}, "callbacks": [usage]}
    async with AsyncExitStack() as opened:
        saver, durability = None, {}
        if job.keeps_state:
            saver = await opened.enter_async_context(AsyncSqliteSaver.from_conn_string(str(job.state / "graph.db")))
            durability = {"durability": "sync"}
        agent = create_agent(
            ChatOpenAI(
                model=job.model,
                base_url=job.base_url,
                api_key=job.api_key,
                max_retries=job.max_attempts - 1,
                timeout=job.model_timeout,
                stream_usage=True,
            ),
            tools=[tool(one.async_function) for one in job.tools],
            system_prompt=job.system,
            middleware=_middleware(job, is_advised),
            checkpointer=saver,
        )
        state: dict[str, Any] = {}
        given = await _given(job, agent, config)
        async for mode, part in agent.astream(given, config, stream_mode=["messages", "values"], **durability):
            state = part if mode == "values" else state
        if not state:  # nothing was left to do
            state = (await agent.aget_state(config)).values
    return _told(state, usage.usage_metadata, is_strict=is_advised)


async def _given(job: Any, agent: Any, config: Any) -> Any:
    if job.action == "start":
        return {"messages": [{"role": "user", "content": job.prompt}]}
    if job.action == "resume":
        return None
    allowed = {one["tool"]: one["allow"] for one in job.decisions}
    asked = (await agent.aget_state(config)).interrupts[0].value["action_requests"]
    return Command(resume={"decisions": [{"type": "approve" if allowed[one["name"]] else "reject"} for one in asked]})


def _middleware(job: Any, is_advised: bool) -> list[Any]:
    found: list[Any] = [ModelCallLimitMiddleware(run_limit=job.max_steps, exit_behavior="error")]
    if asks := {one.name: {"allowed_decisions": ["approve", "reject"]} for one in job.tools if one.needs_approval}:
        found.append(HumanInTheLoopMiddleware(interrupt_on=asks))
    if is_advised:
        found.append(ToolErrorMiddleware(lambda exc, _: f"The tool failed: {type(exc).__name__}: {exc}"))
    return found


def _told(state: dict[str, Any], used: dict[str, Any], *, is_strict: bool) -> dict[str, Any]:
    last = state["messages"][-1]
    asked = [one for interrupt in state.get("__interrupt__", ()) for one in interrupt.value["action_requests"]]
    is_whole = not is_strict or last.response_metadata.get("finish_reason") not in ("length", "content_filter")
    return {
        "answer": None if asked else last.text,
        "completed": not asked and is_whole,
        "waiting": [{"tool": one["name"], "arguments": one["args"]} for one in asked],
        "usage": {key: sum(one[key] for one in used.values()) for key in ("input_tokens", "output_tokens")},
    }


adapter.name = advised.name = "LangGraph"
adapter.version = advised.version = version("langgraph")
adapter.offers = advised.offers = (
    *("chat", "stream", "max_steps", "retries", "model_timeout", "usage", "sessions", "cancel", "resume", "approvals"),
)
adapter.prepare = advised.prepare = lambda: prepare(adapter)
