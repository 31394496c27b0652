"""mini-swe-agent in the conformance suite. It has one tool, the shell: a call of a function becomes a command, and a text ends the run."""

import json
import logging
import os
import tempfile
from importlib.metadata import version
from typing import Any

os.environ["MSWEA_COST_TRACKING"] = "ignore_errors"
os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = tempfile.gettempdir()
os.environ["MSWEA_SILENT_STARTUP"] = "1"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import Submitted
from minisweagent.models.litellm_model import LitellmModel
from warm import prepare

logging.disable(logging.CRITICAL)


def adapter(job: Any) -> dict[str, Any]:
    os.environ["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] = "1"  # the client's own retries are bounded below
    options = {"api_base": job.base_url, "api_key": job.api_key, "max_retries": job.max_attempts - 1}
    if job.model_timeout is not None:
        options["timeout"] = job.model_timeout
    model = _Functions(job.tools, model_name=f"openai/{job.model}", model_kwargs=options)
    agent = DefaultAgent(
        model, _Tools(job.tools), system_template=job.system, instance_template="{{task}}", step_limit=job.max_steps
    )
    ended = agent.run(job.prompt)
    return {"answer": ended["submission"] or None, "completed": ended["exit_status"] == "Submitted"}


class _Functions(LitellmModel):
    """A model that is offered functions. As in the library's own models, `_query` asks and `_parse_actions` finds the commands."""

    def __init__(self, tools: list[Any], **options: Any) -> None:
        super().__init__(**options)
        self._offered = [
            {
                "type": "function",
                "function": {"name": one.name, "description": one.description, "parameters": one.parameters},
            }
            for one in tools
        ]

    def _query(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        tools = {"tools": self._offered} if self._offered else {}
        return litellm.completion(
            model=self.config.model_name, messages=messages, **tools, **(self.config.model_kwargs | options)
        )

    def _parse_actions(self, response: Any) -> list[dict[str, Any]]:
        message = response.choices[0].message
        is_cut = response.choices[0].finish_reason in ("length", "content_filter")
        if message.content and not message.tool_calls and not is_cut:
            ended = {"exit_status": "Submitted", "submission": message.content}
            raise Submitted({"role": "exit", "content": message.content, "extra": ended})
        if not message.tool_calls:
            return super()._parse_actions(response)
        return [
            {"command": one.function.name, "arguments": one.function.arguments, "tool_call_id": one.id}
            for one in message.tool_calls
        ]


class _Tools:
    """An environment whose commands are the tools. A command that fails says so, as in the library's own environments."""

    config = None

    def __init__(self, tools: list[Any]) -> None:
        self._tools = {one.name: one for one in tools}

    def execute(self, action: dict[str, Any], cwd: str = "", **_: Any) -> dict[str, Any]:
        try:
            output = self._tools[action["command"]].run(json.loads(action["arguments"] or "{}"))
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever a command does is its output
            return {"output": "", "returncode": -1, "exception_info": f"An error occurred: {exc}"}
        return {"output": output, "returncode": 0, "exception_info": ""}

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


adapter.name = "mini-swe-agent"
adapter.version = version("mini-swe-agent")
adapter.offers = (
    *("chat", "max_steps", "retries", "model_timeout"),
    *("-arguments", "-schemas", "-parallel/one-invalid", "-limits/invalid-for-ever"),  # a command has no schema
)
adapter.prepare = lambda: prepare(adapter)
