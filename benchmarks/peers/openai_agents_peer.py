"""OpenAI Agents SDK, as its documentation has it, without tracing, which would leave the machine."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from openai import AsyncOpenAI

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)


class OpenAIAgents:
    """One agent, run many times."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Agent:
        client = AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0)
        model = OpenAIChatCompletionsModel(model="mock", openai_client=client)
        return Agent(name="a", instructions=harness.INSTRUCTIONS, model=model, tools=[function_tool(tool)])

    async def run(self, agent: Agent) -> str:
        return (await Runner.run(agent, harness.TASK, max_turns=10_000)).final_output

    async def stream(self, agent: Agent, on_text: Callable[[str], None]) -> str:
        result = Runner.run_streamed(agent, harness.TASK, max_turns=10_000)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                on_text(event.data.delta)
        return result.final_output

    async def close(self) -> None:
        """Nothing: the process ends."""


if __name__ == "__main__":
    harness.main(OpenAIAgents())
