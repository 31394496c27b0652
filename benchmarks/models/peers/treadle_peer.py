"""Treadle as its users write it. Its mode is the first argument: default, text_calls, react or native."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))
import runs
from tasks import ACTS, Refused

from treadle import Agent, Budget, Rejected, allow, resolve_model, tool
from treadle.drivers import NativeDriver, ReActDriver
from treadle.ports import Driver


class Treadle:
    """Treadle in one of its modes."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    async def run(self, base_url: str, tools: Sequence[Callable[..., Any]], task: str) -> runs.Outcome:
        text_calls = "off" if self._mode == "native" else None
        model = resolve_model(f"llamacpp:{runs.MODEL}", base_url=base_url, stream=False, text_calls=text_calls)
        budget = Budget(max_model_turns=runs.MOST_REQUESTS)
        agent = Agent(
            model,
            tools=list(map(as_tool, tools)),
            instructions=runs.INSTRUCTIONS,
            policy=allow("*"),
            budget=budget,
            driver=self._driver(),
        )
        result = await agent.run(task)
        calls = [(call.name, call.status == "ok") for call in result.tool_calls if call.status != "skipped"]
        return runs.Outcome(result.text, result.completed, calls, f"{result.reason}: {result.message}"[:300])

    def _driver(self) -> Driver | None:
        match self._mode:
            case "react":
                return ReActDriver()
            case "native" | "text_calls":
                return NativeDriver()
            case _:
                return None


def as_tool(function: Callable[..., Any]) -> Any:
    """Return a tool whose refusals are refusals of Treadle."""

    def refusing(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Refused as error:
            raise Rejected(str(error)) from error

    refusing.__dict__["__wrapped__"] = function  # its signature and its text
    refusing.__name__, refusing.__doc__ = function.__name__, function.__doc__
    return tool(effect=cast("Any", "unsafe" if function.__name__ in ACTS else "read"))(refusing)


if __name__ == "__main__":
    runs.main(Treadle(sys.argv.pop(1)))
