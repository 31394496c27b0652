"""Rules that match no call of the tools that there are: told once, the denials first, with the name that may be meant."""

import inspect
import logging
from contextlib import asynccontextmanager
from typing import Any

import pytest

from treadle import Agent, Tool, allow, ask, deny, file_tools, first_of, shell_tool
from treadle.agents import subagent_tool
from treadle.permissions import RuleSet, scoped
from treadle.permissions.policies import OWN_TOOLS
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Subject
from treadle.toolsets import (
    Prefixed,
    ShellTools,
    artifact_tool,
    ask_user_tool,
    exit_plan_tool,
    fetch_tool,
    notes_tools,
    todo_tool,
    writing_tools,
)


def named(name: str, properties: Any = None, **options: Any) -> Tool:
    async def run(arguments: Any, ctx: Any) -> str:
        return "ran"

    parameters = {"type": "object", "properties": properties or {}, **options.pop("schema", {})}
    return Tool(name=name, description="Do.", parameters=parameters, run=run, effect="read", **options)


class Set:
    """A toolset of one tool."""

    def __init__(self, name: str, *tools: Tool, fails: bool = False) -> None:
        self.name, self._tools, self._fails = name, tools, fails

    @asynccontextmanager
    async def open(self, ctx: Any) -> Any:
        if self._fails:
            raise OSError("away")
        yield self

    def tools(self, session: Any) -> Any:
        return self._tools


def agent(policy: Any, *tools: Any) -> Agent:
    return Agent(ScriptedModel([text("Done."), text("Done.")]), tools=tools, policy=policy)


def told(policy: Any, *tools: Any) -> list[tuple[str, str]]:
    return [(one.rule, one.near) for one in agent(policy, *tools).unmatched_rules()]


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    ("rule", "near"),
    [
        ("raed", "read"), ("READ", "read"), ("bash", "shell"), ("deploy", ""), ("fs_*", ""), ("mcp__git", ""), ("pya", "pay"), ("read(pat=x)", "path"),
        ("Read(file_path=x)", "path"), ("pay(amuont=5)", "amount"), ("fetch(hots=x)", "host"),
    ],
)  # fmt: skip
def test_a_rule_that_no_call_can_match_is_told_with_the_name_that_may_be_meant(tmp_path, rule, near):
    tools = [*file_tools(tmp_path), fetch_tool(), named("pay", {"amount": {}, "to": {}})]

    assert told(deny(rule), *tools) == [(rule, near)]


@pytest.mark.row("P11")
@pytest.mark.parametrize(
    "rule",
    ["*", "re*", "shell", "Bash(rm:*)", "write(src/*)", "Task(Explore)", "pay(to=x)", "fetch(example.com)", "*(path=x)", "read(path=x)",
     "open(page=x)", "named(page=x)", "free(x=1)", "*(x=1)"],
)  # fmt: skip
def test_a_rule_that_may_match_or_is_on_one_of_our_own_tools_is_not_told(tmp_path, rule):
    tools = [
        *file_tools(tmp_path),
        fetch_tool(),
        named("pay", {"to": {}}),
        named("open", {"to": {}}, schema={"additionalProperties": True}),
        named("named", {"to": {}}, subjects=lambda arguments: {"page": Subject(names=("x",))}),
        named("free", {"to": {}}, schema={"anyOf": [{}]}),
    ]

    assert told(deny(rule), *tools) == []


@pytest.mark.row("P11")
def test_a_permission_by_the_text_of_a_line_is_told_and_a_denial_by_it_is_not(tmp_path):
    policy = first_of(allow("shell(command=git log*)"), deny("shell(command=rm*)"))

    (found,) = agent(policy, shell_tool(tmp_path)).unmatched_rules()

    assert found.message == (
        "The rule `allow shell(command=git log*)` allows nothing: no line of shell is allowed by its text. Write the command, as in "
        "`shell(git log:*)`."
    )


@pytest.mark.row("P11")
def test_denials_come_first_and_each_names_where_it_is_written():
    policy = scoped(
        RuleSet(scope="user", allow=("pya",), ask=("deplyo",), origin="ann.toml"),
        RuleSet(scope="project", deny=("raed",), origin=".treadle/config.toml"),
        RuleSet(scope="session", deny=("deplyo",)),
    )
    found = agent(policy, named("pay"), named("deploy")).unmatched_rules()

    assert [(one.kind, one.rule, one.scope) for one in found] == [
        ("deny", "raed", "project"),
        ("deny", "deplyo", "session"),
        ("ask", "deplyo", "user"),
        ("allow", "pya", "user"),
    ]
    assert [one.message for one in found[:2]] == [
        "The rule `deny raed` of .treadle/config.toml denies nothing: there is no tool `raed`. Did you mean `read`?",
        "The rule `deny deplyo` denies nothing: there is no tool `deplyo`. Did you mean `deploy`?",
    ]
    assert "of ann.toml asks about nothing" in found[2].message


@pytest.mark.row("P11")
def test_where_more_tools_may_come_only_a_name_that_resembles_one_is_told():
    policy = deny("raed", "deploy", "fs_*", "mcp__gti__log", "mcp__git__lgo", "mcp__other__x")
    child = Agent(ScriptedModel([text("Done.")]), tools=[named("deploy")])

    assert told(policy, Set("git")) == [("raed", "read"), ("mcp__gti__log", "mcp__git")]
    assert told(deny("raed", "deploy"), child.as_tool("helper", "Help.")) == [("raed", "read")]


@pytest.mark.row("P11")
async def test_the_log_tells_it_once_for_an_agent_when_its_toolsets_are_open(caplog):
    caplog.set_level(logging.WARNING, "treadle")
    made = agent(deny("mcp__git__lgo", "mcp__git__log"), Set("git", named("mcp__git__log")))

    await made.run("One")
    await made.run("Two")

    assert [one.getMessage() for one in caplog.records] == [
        "The rule `deny mcp__git__lgo` denies nothing: there is no tool `mcp__git__lgo`. Did you mean `mcp__git__log`?"
    ]


@pytest.mark.row("P11")
async def test_a_toolset_that_is_away_may_have_the_tool(caplog):
    caplog.set_level(logging.WARNING, "treadle")

    await agent(deny("mcp__git__log", "deploy"), Set("git", fails=True)).run("One")

    assert not [one for one in caplog.records if "The rule" in one.getMessage()]


@pytest.mark.row("P11")
@pytest.mark.row("P11")
@pytest.mark.parametrize("rule", ["read(path=secrets/**)", "Read(secrets/**)", "read"])
async def test_a_rule_on_a_tool_that_a_wrapper_has_renamed_is_told(tmp_path, caplog, rule):
    caplog.set_level(logging.WARNING, "treadle")
    tools = Prefixed(file_tools(tmp_path), "fs_")

    await agent(deny(rule), tools).run("Go")
    await agent(deny(rule), tools, *file_tools(tmp_path)).run("Go")

    (found,) = [one.getMessage() for one in caplog.records]
    assert found.endswith("rules use the new name. Did you mean `fs_read`?")


async def test_an_agent_that_is_called_is_not_told_of_its_callers_rules(caplog):
    caplog.set_level(logging.WARNING, "treadle")
    child = Agent(ScriptedModel([text("Done.")]), tools=[named("look")], policy=deny("pya"))
    model = ScriptedModel([call("helper", task="Look"), text("Done.")])
    lead = Agent(model, tools=[child.as_tool("helper", "Help.", effect="read"), named("pay")], policy=ask("pya"))

    await lead.run("Go")

    assert [one.getMessage().partition(":")[0] for one in caplog.records] == ["The rule `ask pya` asks about nothing"]


async def listed(toolset: Any) -> list[Tool]:
    model = ScriptedModel([text("Done.")])
    result = await Agent(model, tools=[toolset]).run("Go")
    return [named(one.name) for one in model.requests[0].tools] if result.completed else []


async def test_the_names_of_treadles_own_tools_are_known(tmp_path):
    """A tool of ours with a new name is added to the list, or a rule on it is called a mistake wherever it is not offered."""
    found = [*file_tools(tmp_path), *writing_tools(tmp_path), shell_tool(tmp_path), fetch_tool(), todo_tool()]
    found += [artifact_tool(), ask_user_tool(), exit_plan_tool()]
    found += await listed(ShellTools(tmp_path)) + await listed(notes_tools(tmp_path / "notes"))

    assert {tool.name for tool in found} | {"spawn_agent", "skill"} == OWN_TOOLS
    assert inspect.signature(subagent_tool).parameters["name"].default == "spawn_agent"
