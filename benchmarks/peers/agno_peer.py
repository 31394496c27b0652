"""Agno, with an agent for each run, as its documentation has it for runs side by side without a database."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ["AGNO_TELEMETRY"] = "false"
sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from agno.agent import Agent
from agno.models.openai.like import OpenAILike


class Parts(NamedTuple):
    """What agents are made of."""

    model: OpenAILike
    tool: Callable[..., Any]

    def agent(self) -> Agent:
        return Agent(model=self.model, tools=[self.tool], system_message=harness.INSTRUCTIONS, telemetry=False)


class Agno:
    """An agent a run, over one model."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Parts:
        return Parts(OpenAILike(id="mock", base_url=base_url, api_key="x", max_retries=0), tool)

    async def run(self, parts: Parts) -> str:
        return (await parts.agent().arun(harness.TASK)).content

    async def stream(self, parts: Parts, on_text: Callable[[str], None]) -> str:
        text = []
        async for event in parts.agent().arun(harness.TASK, stream=True):
            if event.event == "RunContent" and event.content:
                on_text(event.content)
                text.append(event.content)
        return "".join(text)

    async def close(self) -> None:
        """Nothing: the process ends."""


if __name__ == "__main__":
    harness.main(Agno())
