"""Strands Agents, with an agent for each run: an agent holds its conversation, and refuses to be run side by side."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from strands import Agent
from strands import tool as as_tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models.openai import OpenAIModel


class Parts(NamedTuple):
    """What agents are made of."""

    model: OpenAIModel
    tool: Any

    def agent(self) -> Agent:
        return Agent(
            model=self.model,
            tools=[self.tool],
            system_prompt=harness.INSTRUCTIONS,
            callback_handler=None,
            conversation_manager=NullConversationManager(),
        )


class Strands:
    """An agent a run, over one model."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Parts:
        client = {"base_url": base_url, "api_key": "x", "max_retries": 0}
        return Parts(OpenAIModel(client_args=client, model_id="mock"), as_tool(tool))

    async def run(self, parts: Parts) -> str:
        return str(await parts.agent().invoke_async(harness.TASK))

    async def stream(self, parts: Parts, on_text: Callable[[str], None]) -> str:
        result = None
        async for event in parts.agent().stream_async(harness.TASK):
            if "data" in event:
                on_text(event["data"])
            elif "result" in event:
                result = event["result"]
        return str(result)

    async def close(self) -> None:
        """Nothing: the process ends."""


if __name__ == "__main__":
    harness.main(Strands())
