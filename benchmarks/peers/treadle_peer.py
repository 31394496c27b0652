"""Treadle as its users write it, with the journal in memory that a run without a session gets."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

from treadle import Agent, Budget, resolve_model, tool

BUDGET = Budget(max_model_turns=10_000, max_tool_calls=100_000, max_parallel_tool_calls=harness.PARALLEL_CALLS)


class Agents(NamedTuple):
    """The same agent, on a model that answers whole and on one that streams."""

    whole: Agent
    streaming: Agent


class Treadle:
    """The peer that all of this is about."""

    def open(self, base_url: str, tool_function: Callable[..., Any]) -> Agents:
        tools = [tool(effect="read")(tool_function)]

        def agent(*, stream: bool) -> Agent:
            model = resolve_model("openai-chat:mock", base_url=base_url, api_key="x", stream=stream)
            return Agent(model, tools=tools, instructions=harness.INSTRUCTIONS, budget=BUDGET)

        return Agents(agent(stream=False), agent(stream=True))

    async def run(self, agent: Agents) -> str:
        return (await agent.whole.run(harness.TASK)).text

    async def stream(self, agent: Agents, on_text: Callable[[str], None]) -> str:
        async with agent.streaming.stream(harness.TASK) as run:
            async for event in run:
                if event.type == "model.delta" and event.text:
                    on_text(event.text)
        return run.result.text

    async def close(self) -> None:
        """Nothing: the HTTP client closes with its event loop."""


if __name__ == "__main__":
    harness.main(Treadle())
