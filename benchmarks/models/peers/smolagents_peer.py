"""smolagents: its agent for tool calls. A run ends with a call of `final_answer`, which is no call of ours."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import runs
from smolagents import OpenAIServerModel, ToolCallingAgent
from smolagents import tool as as_tool
from smolagents.monitoring import LogLevel


class Smolagents:
    """One agent a task."""

    def run(self, base_url: str, tools: Sequence[Callable[..., Any]], task: str) -> runs.Outcome:
        model = OpenAIServerModel(model_id=runs.MODEL, api_base=base_url, api_key="x", client_kwargs={"max_retries": 0})
        agent = ToolCallingAgent(
            tools=list(map(as_tool, tools)),
            model=model,
            instructions=runs.INSTRUCTIONS,
            max_steps=runs.MOST_REQUESTS,
            verbosity_level=LogLevel.OFF,
            return_full_result=True,
        )
        result = agent.run(task)
        calls = []
        for step in agent.memory.steps:
            is_good = getattr(step, "error", None) is None
            calls += [
                (one.name, is_good) for one in getattr(step, "tool_calls", None) or [] if one.name != "final_answer"
            ]
        return runs.Outcome(str(result.output), result.state == "success", calls, str(result.state))


if __name__ == "__main__":
    runs.main(Smolagents())
