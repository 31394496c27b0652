"""Google ADK over LiteLLM in the conformance suite: its SQLite sessions for conversations, its confirmations for approvals."""

import json
import logging
import os
import warnings
from importlib.metadata import version
from typing import Any

warnings.filterwarnings("ignore")
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["OTEL_SDK_DISABLED"] = "true"
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import FunctionTool
from google.genai import types
from warm import prepare

logging.disable(logging.CRITICAL)
_APP = {"app_name": "conformance", "user_id": "person"}
_ASKS = "adk_request_confirmation"


async def adapter(job: Any) -> dict[str, Any]:
    ended = job.state / "ended.json"
    if job.action == "resume":
        return json.loads(ended.read_text())
    sessions = SqliteSessionService(str(job.state / "sessions.db")) if job.keeps_state else InMemorySessionService()
    if await sessions.get_session(**_APP, session_id=job.session) is None:
        await sessions.create_session(**_APP, session_id=job.session)
    runner = Runner(agent=_agent(job), app_name=_APP["app_name"], session_service=sessions)
    if job.action == "decide":
        allowed = {one["tool"]: one["allow"] for one in job.decisions}
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=one["id"], name=_ASKS, response={"confirmed": allowed[one["tool"]]}
                )
            )
            for one in json.loads(ended.read_text())["waiting"]
        ]
    else:
        parts = [types.Part(text=job.prompt)]
    events = runner.run_async(
        user_id=_APP["user_id"],
        session_id=job.session,
        run_config=RunConfig(max_llm_calls=job.max_steps, streaming_mode=StreamingMode.SSE),
        new_message=types.Content(role="user", parts=parts),
    )
    told = _told([event async for event in events if not event.partial])
    if job.keeps_state:
        ended.write_text(json.dumps(told))
    return told


def _agent(job: Any) -> LlmAgent:
    options = {} if job.model_timeout is None else {"timeout": job.model_timeout}
    return LlmAgent(
        name="assistant",
        model=LiteLlm(
            model=f"openai/{job.model}",
            api_base=job.base_url,
            api_key=job.api_key,
            max_retries=job.max_attempts - 1,
            **options,
        ),
        instruction=job.system,
        tools=[FunctionTool(one.async_function, require_confirmation=one.needs_approval) for one in job.tools],
    )


def _told(events: list[Any]) -> dict[str, Any]:
    asked = [call for event in events for call in event.get_function_calls() if call.name == _ASKS]
    answers = [event for event in events if event.is_final_response() and event.content and event.content.parts]
    text = "".join(part.text or "" for part in answers[-1].content.parts) if answers else None
    failed = next((event.error_message or event.error_code for event in events if event.error_code), None)
    used = [event.usage_metadata for event in events if event.usage_metadata]
    return {
        "answer": None if asked else text,
        "completed": not asked and failed is None,
        "error": failed,
        "waiting": [_waiting(one) for one in asked],
        "usage": {
            "input_tokens": sum(one.prompt_token_count or 0 for one in used),
            "output_tokens": sum((one.total_token_count or 0) - (one.prompt_token_count or 0) for one in used),
        },
    }


def _waiting(asked: Any) -> dict[str, Any]:
    call = asked.args["originalFunctionCall"]
    return {"id": asked.id, "tool": call["name"], "arguments": call["args"]}


adapter.name = "Google ADK"
adapter.version = version("google-adk")
adapter.offers = (
    *("chat", "stream", "max_steps", "retries", "model_timeout", "usage", "sessions", "cancel", "approvals"),
)
adapter.prepare = lambda: prepare(adapter)
