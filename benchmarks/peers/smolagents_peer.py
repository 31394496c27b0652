"""smolagents, which is synchronous: each run has a thread, each tool blocks, and a run ends with a call of `final_answer`."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from smolagents import ChatMessageStreamDelta, OpenAIServerModel, ToolCallingAgent
from smolagents import tool as as_tool
from smolagents.monitoring import LogLevel

POOL = ThreadPoolExecutor(512)


class Parts(NamedTuple):
    """What agents are made of."""

    model: OpenAIServerModel
    tool: Any

    def agent(self, *, stream: bool = False) -> ToolCallingAgent:
        return ToolCallingAgent(
            tools=[self.tool],
            model=self.model,
            verbosity_level=LogLevel.OFF,
            max_steps=10_000,
            instructions=harness.INSTRUCTIONS,
            stream_outputs=stream,
        )


class Smolagents:
    """An agent a run, over one model."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Parts:
        address = base_url.replace("/v1", ",answer=final_answer/v1")
        model = OpenAIServerModel(model_id="mock", api_base=address, api_key="x", client_kwargs={"max_retries": 0})
        return Parts(model, as_tool(harness.blocking(tool)))

    async def run(self, parts: Parts) -> str:
        return await _in_a_thread(lambda: str(parts.agent().run(harness.TASK)))

    async def stream(self, parts: Parts, on_text: Callable[[str], None]) -> str:
        def go() -> str:
            output = None
            for event in parts.agent(stream=True).run(harness.TASK, stream=True):
                if not isinstance(event, ChatMessageStreamDelta):
                    output = getattr(event, "output", None)
                elif event.content:
                    on_text(event.content)
            return str(output)

        return await _in_a_thread(go)

    async def close(self) -> None:
        """Nothing: the process ends."""


def _in_a_thread(act: Callable[[], str]) -> "asyncio.Future[str]":
    return asyncio.get_running_loop().run_in_executor(POOL, act)


if __name__ == "__main__":
    harness.main(Smolagents())
