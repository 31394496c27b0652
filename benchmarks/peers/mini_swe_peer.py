"""mini-swe-agent, which is synchronous and has the one tool `bash`: it is carried out in process, and submits after the last call."""

import asyncio
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

os.environ["MSWEA_COST_TRACKING"] = "ignore_errors"
os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = tempfile.gettempdir()
os.environ["MSWEA_SILENT_STARTUP"] = "1"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
sys.path.insert(0, str(Path(__file__).parents[1]))
import harness
from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import Submitted
from minisweagent.models.litellm_model import LitellmModel

logging.disable(logging.CRITICAL)
POOL = ThreadPoolExecutor(512)


class InProcess:
    """An environment that runs a function for each command, and submits once all calls of the scenario were made."""

    config = None

    def __init__(self, tool: Callable[..., str], calls: int) -> None:
        self._tool = tool
        self._left = calls

    def execute(self, action: dict[str, Any], cwd: str = "", **_: Any) -> dict[str, Any]:
        if self._left <= 0:
            extra = {"exit_status": "Submitted", "submission": "done"}
            raise Submitted({"role": "exit", "content": "done", "extra": extra})
        self._left -= 1
        return {"output": self._tool(action["command"], 0), "returncode": 0, "exception_info": ""}

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


class Parts(NamedTuple):
    """What agents are made of."""

    model: LitellmModel
    tool: Callable[..., str]
    calls: int


class MiniSwe:
    """An agent a run, over one model."""

    def open(self, base_url: str, tool: Callable[..., Any]) -> Parts:
        turns = int(re.search(r"turns=(\d+)", base_url)[1])
        address = base_url.replace(f"turns={turns}", f"turns={turns + 1}").replace(f"tool={tool.__name__}", "tool=bash")
        model = LitellmModel(
            model_name="openai/mock",
            model_kwargs={"api_base": address, "api_key": "x"},
            observation_template="{{output.output}}",
        )
        return Parts(model, harness.blocking(tool), turns)

    async def run(self, parts: Parts) -> str:
        def go() -> str:
            environment = InProcess(parts.tool, parts.calls)
            agent = DefaultAgent(
                parts.model, environment, system_template=harness.INSTRUCTIONS, instance_template="{{task}}"
            )
            return str(agent.run(harness.TASK).get("submission"))

        return await asyncio.get_running_loop().run_in_executor(POOL, go)

    async def stream(self, parts: Parts, on_text: Callable[[str], None]) -> str:
        raise SystemExit("mini-swe-agent does not stream.")

    async def close(self) -> None:
        """Nothing: the process ends."""


if __name__ == "__main__":
    harness.main(MiniSwe())
