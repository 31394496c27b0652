"""An agent describes itself: whole, alike in every process, without secrets."""

import inspect
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from treadle import Agent, Budget, Done, TenantBudget, Tool, ToolContext, allow, ask, deny, first_of
from treadle.agents.agent import AgentSpec
from treadle.budgets import Guards
from treadle.context.compaction import ClearResults
from treadle.context.compilers import CurrentTrace
from treadle.drivers.react import ReActDriver
from treadle.ports import Hook
from treadle.testing import ScriptedModel, text
from treadle.tools import JsonObject
from treadle.toolsets import artifact_tool


def agent(**options: Any) -> Agent:
    return Agent(**{"model": ScriptedModel([text("x")]), "tools": [artifact_tool()], **options})


def watch(*_: Any) -> None:
    """Listen to nothing."""


def is_done(session: Any) -> Done | None:
    return None


class Guardian:
    """Stand before each call."""

    def before(self, call: Any) -> Any:
        return call

    def after(self, call: Any, result: Any) -> Any:
        return result


class Box:
    """A place to run in."""

    name = "box"

    async def run(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class Shelf:
    """Tools that are made for each run."""

    name = "shelf"

    def open(self, ctx: Any) -> Any:
        raise NotImplementedError


async def act(arguments: JsonObject, ctx: ToolContext) -> str:
    return "done"


PAY = Tool(name="pay", description="Pay.", parameters={}, run=act)

CHANGES: dict[str, Any] = {
    "model": "demo",
    "name": "clerk",
    "instructions": "Be brief.",
    "tools": [PAY],
    "policy": first_of(deny("pay(amount=9*)"), ask("pay")),
    "sandbox": Box(),
    "approver": allow("pay"),
    "approver_seconds": 5.0,
    "driver": ReActDriver(),
    "budget": Budget(max_model_turns=3),
    "tenant_budgets": [TenantBudget(max_total_cost=3)],
    "profile": "research",
    "compiler": CurrentTrace(),
    "compactor": ClearResults(),
    "output": list[str],
    "tool_choice": "none",
    "history": "current",
    "guards": Guards(repeats=7),
    "required": ["read_artifact"],
    "on_limit": "report",
    "cancel_siblings": "on_unsafe_error",
    "on_failure": "stop",
    "on_denial": "skip",
    "strict": True,
    "failure_text": "whole",
    "max_depth": 1,
    "unpriced": "warn",
    "parallel_hint": False,
    "in_doubt": "tell",
    "approval_seconds": 60.0,
    "batch_seconds": 5.0,
    "toolset_seconds": 5.0,
    "step_result_chars": 1000,
    "done_when": is_done,
    "subscribers": [watch],
    "interceptors": [Guardian()],
    "hooks": [Hook(at="stop", run=watch)],
}


@pytest.mark.row("T14")
@pytest.mark.parametrize("option", [name for name in inspect.signature(Agent.__init__).parameters if name != "self"])
def test_every_option_of_an_agent_shows(option):
    assert agent(**{option: CHANGES[option]}).describe() != agent().describe()


@pytest.mark.row("T14")
def test_every_field_is_there_and_is_json():
    described = agent(tools=[PAY, artifact_tool(), Shelf()]).describe()
    left_out = {"fingerprint", "opened", "policies_above", "toolbox"}
    assert {*AgentSpec.__struct_fields__} - left_out <= {*described}
    assert json.loads(json.dumps(described)) == described
    assert [tool["name"] for tool in described["tools"]] == ["pay", "read_artifact"]
    assert described["tools"][0]["run"] == f"{__name__}.act"
    assert described["toolsets"] == [f"{__name__}.Shelf"]
    assert "0x" not in json.dumps(described)


@pytest.mark.row("T14")
def test_rules_are_told_as_they_were_written():
    told = json.dumps(agent(policy=first_of(deny("pay(amount=9*)"), ask("pay"))).describe()["policy"])
    assert "pay(amount=9*)" in told
    assert told.index("deny") < told.index("ask")


@pytest.mark.row("T14")
def test_secrets_are_left_out():
    key = "sk-live-abcdefghijklmnop1234567890"
    named = Agent("openai-chat:x", instructions=f"The password=hunter2 and {key}")
    os.environ["OPENAI_API_KEY"] = key
    try:
        told = json.dumps(named.describe())
    finally:
        del os.environ["OPENAI_API_KEY"]
    assert key not in told
    assert "hunter2" not in told


SHOP = """
from treadle import Agent, deny, tool

@tool(effect="read")
def stock(product: str) -> int:
    "Pieces in stock."
    return 1

print(Agent("demo", tools=[stock], policy=deny("stock(product=cup)")).describe())
"""


@pytest.mark.row("T14")
def test_an_agent_describes_itself_alike_in_every_process():
    said = [
        subprocess.run(
            [sys.executable, "-c", SHOP], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1]
    assert "stock(product=cup)" in said[0]
