"""OpenAI Agents SDK, as its documentation has it, without tracing, which would leave the machine."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import runs
from openai import AsyncOpenAI

from agents import (
    Agent,
    MaxTurnsExceeded,
    OpenAIChatCompletionsModel,
    Runner,
    ToolCallItem,
    ToolCallOutputItem,
    function_tool,
    set_tracing_disabled,
)

set_tracing_disabled(True)


class OpenAIAgents:
    """One agent a task."""

    async def run(self, base_url: str, tools: Sequence[Callable[..., Any]], task: str) -> runs.Outcome:
        client = AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0)
        model = OpenAIChatCompletionsModel(model=runs.MODEL, openai_client=client)
        agent = Agent(name="shop", instructions=runs.INSTRUCTIONS, model=model, tools=list(map(function_tool, tools)))
        try:
            result = await Runner.run(agent, task, max_turns=runs.MOST_REQUESTS)
        except MaxTurnsExceeded as error:
            items = [] if error.run_data is None else error.run_data.new_items
            return runs.Outcome("", False, _calls(items), "MaxTurnsExceeded")
        return runs.Outcome(str(result.final_output), True, _calls(result.new_items))


def _calls(items: Sequence[Any]) -> list[tuple[str, bool]]:
    outputs = {one.raw_item["call_id"]: str(one.output) for one in items if isinstance(one, ToolCallOutputItem)}
    calls = [one.raw_item for one in items if isinstance(one, ToolCallItem)]
    return [(call.name, not outputs.get(call.call_id, "An error").startswith("An error")) for call in calls]


if __name__ == "__main__":
    runs.main(OpenAIAgents())
