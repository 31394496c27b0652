"""Pydantic AI, as its documentation has it: what a tool refuses is a ModelRetry."""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import runs
from openai import AsyncOpenAI
from pydantic_ai import Agent, ModelRetry, capture_run_messages
from pydantic_ai.messages import RetryPromptPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits
from tasks import Refused


class PydanticAI:
    """One agent a task."""

    async def run(self, base_url: str, tools: Sequence[Callable[..., Any]], task: str) -> runs.Outcome:
        client = AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0)
        model = OpenAIChatModel(runs.MODEL, provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, instructions=runs.INSTRUCTIONS, tools=list(map(_retrying, tools)), retries=2)
        with capture_run_messages() as messages:
            try:
                result = await agent.run(task, usage_limits=UsageLimits(request_limit=runs.MOST_REQUESTS))
                answer, is_completed, note = str(result.output), True, ""
            except Exception as error:  # noqa: BLE001 - the note says which
                answer, is_completed, note = "", False, f"{type(error).__name__}: {error}"[:300]
        parts = [part for message in messages for part in message.parts]
        good = {part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)}
        good -= {part.tool_call_id for part in parts if isinstance(part, RetryPromptPart)}
        calls = [(part.tool_name, part.tool_call_id in good) for part in parts if isinstance(part, ToolCallPart)]
        return runs.Outcome(answer, is_completed, calls, note)


def _retrying(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def retrying(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Refused as error:
            raise ModelRetry(str(error)) from error

    return retrying


if __name__ == "__main__":
    runs.main(PydanticAI())
