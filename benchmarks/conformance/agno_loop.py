"""Agno in the conformance suite: its JSON database for conversations, its confirmations for approvals."""

import os
from importlib.metadata import version
from typing import Any

os.environ["AGNO_TELEMETRY"] = "false"
from agno.agent import Agent
from agno.db.json import JsonDb
from agno.models.openai.like import OpenAILike
from agno.run.agent import RunErrorEvent
from agno.run.base import RunStatus
from agno.tools import tool
from warm import prepare


async def adapter(job: Any) -> dict[str, Any]:
    agent = _agent(job)
    if job.action == "start":
        return _told(await _last(agent.arun(job.prompt, stream=True, yield_run_output=True)))
    paused = agent.get_last_run_output(session_id=job.session)
    if job.action == "resume":
        return _told(paused)
    allowed = {one["tool"]: one["allow"] for one in job.decisions}
    for one in paused.active_requirements:
        one.confirm() if allowed[one.tool_execution.tool_name] else one.reject()
    continued = agent.acontinue_run(
        run_id=paused.run_id,
        requirements=paused.requirements,
        session_id=job.session,
        stream=True,
        yield_run_output=True,
    )
    return _told(await _last(continued))


async def _last(events: Any) -> Any:
    return [one async for one in events][-1]


def _agent(job: Any) -> Agent:
    model = OpenAILike(
        id=job.model,
        base_url=job.base_url,
        api_key=job.api_key,
        max_retries=job.max_attempts - 1,
        timeout=job.model_timeout,
    )
    keeps = {"db": JsonDb(db_path=str(job.state)), "add_history_to_context": True} if job.keeps_state else {}
    return Agent(
        id="assistant",
        model=model,
        tools=[tool(requires_confirmation=one.needs_approval)(one.async_function) for one in job.tools],
        system_message=job.system,
        session_id=job.session,
        telemetry=False,
        **keeps,
    )


def _told(run: Any) -> dict[str, Any]:
    if isinstance(run, RunErrorEvent):
        return {"answer": None, "completed": False, "error": run.content}
    calls = [one.tool_execution for one in run.active_requirements] if run.status == RunStatus.paused else []
    used = run.metrics
    return {
        "answer": run.content,
        "completed": run.status == RunStatus.completed,
        "waiting": [{"tool": one.tool_name, "arguments": one.tool_args} for one in calls],
        "usage": {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens} if used else {},
    }


adapter.name = "Agno"
adapter.version = version("agno")
adapter.offers = ("chat", "stream", "retries", "model_timeout", "usage", "sessions", "cancel", "approvals")
adapter.prepare = lambda: prepare(adapter)
