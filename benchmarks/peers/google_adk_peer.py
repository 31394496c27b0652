"""Google ADK over LiteLLM, with a session in memory for each run."""

import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

warnings.filterwarnings("ignore")
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["OTEL_SDK_DISABLED"] = "true"
sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

logging.disable(logging.CRITICAL)
WHO = {"app_name": "bench", "user_id": "u"}
TASK = types.Content(role="user", parts=[types.Part(text=harness.TASK)])


class Parts(NamedTuple):
    """What runs are made of."""

    runner: Runner
    sessions: InMemorySessionService


class GoogleAdk:
    """A session a run, over one agent."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Parts:
        model = LiteLlm(model="openai/mock", api_base=base_url, api_key="x", num_retries=0)
        agent = LlmAgent(name="a", model=model, instruction=harness.INSTRUCTIONS, tools=[tool])
        sessions = InMemorySessionService()
        return Parts(Runner(agent=agent, app_name="bench", session_service=sessions), sessions)

    async def run(self, parts: Parts) -> str:
        return await self._carry_out(parts, RunConfig(max_llm_calls=10_000), lambda _: None)

    async def stream(self, parts: Parts, on_text: Callable[[str], None]) -> str:
        streaming = RunConfig(max_llm_calls=10_000, streaming_mode=StreamingMode.SSE)
        return await self._carry_out(parts, streaming, on_text)

    async def _carry_out(self, parts: Parts, config: RunConfig, on_text: Callable[[str], None]) -> str:
        session = await parts.sessions.create_session(**WHO)
        text = ""
        events = parts.runner.run_async(user_id="u", session_id=session.id, run_config=config, new_message=TASK)
        async for event in events:
            for part in event.content.parts if event.content and event.content.parts else ():
                if part.text:
                    text = part.text
                    if event.partial:
                        on_text(text)
        await parts.sessions.delete_session(session_id=session.id, **WHO)
        return text

    async def close(self) -> None:
        """Nothing: the process ends."""


if __name__ == "__main__":
    harness.main(GoogleAdk())
