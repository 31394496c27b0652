"""Pydantic AI, as its documentation has it."""

import sys
from collections.abc import AsyncIterable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

NO_LIMIT = UsageLimits(request_limit=None)


class PydanticAI:
    """One agent, run many times."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Agent:
        client = AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0)
        model = OpenAIChatModel("mock", provider=OpenAIProvider(openai_client=client))
        return Agent(model, system_prompt=harness.INSTRUCTIONS, tools=[tool])

    async def run(self, agent: Agent) -> str:
        return (await agent.run(harness.TASK, usage_limits=NO_LIMIT)).output

    async def stream(self, agent: Agent, on_text: Callable[[str], None]) -> str:
        async def show(_: Any, events: AsyncIterable[Any]) -> None:
            async for event in events:
                if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    on_text(event.delta.content_delta)
                elif isinstance(event, PartStartEvent) and isinstance(event.part, TextPart) and event.part.content:
                    on_text(event.part.content)

        return (await agent.run(harness.TASK, usage_limits=NO_LIMIT, event_stream_handler=show)).output

    async def close(self) -> None:
        """Nothing: the process ends."""


if __name__ == "__main__":
    harness.main(PydanticAI())
