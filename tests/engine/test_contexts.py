"""All that a tool may know of its call, its session and its run, on the loop and in a thread."""

import asyncio
import copy
from typing import Any

import pytest

from pipeline_tools import Recorder, act, on_fake_clock, read, tool_of, types
from treadle import Agent, Agents, Budget, ConfigurationError, ToolContext, allow, open_session, tool
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.messages import Usage
from treadle.testing import Gate, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject
from treadle.toolsets import Prefixed


def known(ctx: ToolContext) -> dict[str, Any]:
    """Return everything that a context says."""
    return {
        "call": (ctx.call.id, ctx.call.name, ctx.call.arguments),
        "decision": (ctx.decision.kind, ctx.decision.rule, ctx.decision.scope, ctx.decision.mode),
        "subjects": dict(ctx.subjects),
        "runner": ctx.runner,
        "has_key": len(ctx.idempotency_key) > 20,
        "attempt": ctx.attempt,
        "cancelled": ctx.cancelled,
        "deps": ctx.deps,
        "inputs": ctx.inputs,
        "facts": ctx.facts,
        "result_chars": ctx.result_chars,
        "session": (ctx.session.id, ctx.session.step, [message.role for message in ctx.session.messages]),
        "trace": dict(ctx.trace),
    }


EXPECTED = {
    "call": ("a", "act", '{"n": 1}'),
    "decision": ("allow", "allow act", "agent", "ask"),
    "subjects": {},
    "runner": None,
    "has_key": True,
    "attempt": 1,
    "cancelled": False,
    "deps": "the shop",
    "inputs": (),
    "facts": {},
    "result_chars": 500,
    "session": ("s", 1, ["user", "assistant"]),
    "trace": {},
}


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_tool_knows_its_call_its_session_and_that_nobody_has_stopped_it(in_thread):
    seen: list[dict[str, Any]] = []

    def blocking(arguments: JsonObject, ctx: ToolContext) -> str:
        seen.append(known(ctx))
        return "done"

    async def waiting(arguments: JsonObject, ctx: ToolContext) -> str:
        seen.append(known(ctx))
        return "done"

    tool = act(blocking if in_thread else waiting, permission=None)
    model = ScriptedModel([call("act", id="a", n=1), text("Done.")])
    agent = Agent(model, tools=[tool], policy=allow("act"), budget=Budget(max_tool_result_chars=500))
    async with open_session("memory:", id="s") as session:
        await agent.run("go", session=session, deps="the shop")

    assert seen == [EXPECTED]


@pytest.mark.row("T03")
async def test_a_tool_reads_its_sessions_metadata_tenant_and_status_and_what_is_left_of_the_budget():
    seen: list[Any] = []

    async def note(arguments: JsonObject, ctx: ToolContext) -> None:
        session = ctx.session
        seen.append((session.status, copy.deepcopy(session.metadata), session.tenant, dict(session.budget_left)))
        session.metadata.setdefault("plan", {})["level"] = 99  # a copy: nothing changes

    child = Agent(ScriptedModel([call("look"), text("x")]), tools=[read(note)], budget=Budget(max_tool_calls=9))
    lead_usage = Usage(input_tokens=7, output_tokens=3)
    lead = ScriptedModel([Turn(calls=(call("look"),), usage=lead_usage), call("help", task="Look."), text("x")])
    tools = [read(note), child.as_tool("help", "Help.", effect="read")]
    budget = Budget(
        max_tool_calls=5, max_model_turns=10, max_input_tokens=1000, max_output_tokens=1000, max_wall_time_seconds=60
    )
    async with on_fake_clock() as session:
        await session.change(metadata={"tenant": "K7", "plan": {"level": 1}})
        await Agent(lead, tools=tools, budget=budget).run("go", session=session)

    assert seen[0][:3] == ("running", {"tenant": "K7", "plan": {"level": 1}}, "K7")
    assert 0 < seen[0][3].pop("max_wall_time_seconds") <= 60
    tokens = {"max_input_tokens": 1000 - lead_usage.input_tokens, "max_output_tokens": 1000 - lead_usage.output_tokens}
    assert seen[0][3] == {"max_tool_calls": 4, "max_model_turns": 9, **tokens}
    assert session.state.metadata == {"tenant": "K7", "plan": {"level": 1}}
    status, metadata, tenant, below = seen[1]
    assert (status, metadata, tenant) == seen[0][:3]  # whose session it is, also below
    assert (below["max_tool_calls"], below["max_model_turns"]) == (2, 7)  # those of the caller, which are fewer


class Bank:
    """What a tool finds in `ctx.deps`."""


@tool(effect="read")
async def balance(ctx: ToolContext[Bank]) -> int:
    """Return the balance."""
    return 1


@tool(effect="read")
async def lookup(ctx: ToolContext[Bank | None]) -> int:
    """Look it up."""
    return 2


@pytest.mark.row("FAULTS-16")
@pytest.mark.parametrize("how", ["run", "resume", "child", "toolset"])
async def test_a_run_without_what_its_tools_find_in_deps_is_refused_when_it_starts(how):
    model = ScriptedModel([call("balance"), text("x")])
    agent = Agent(model, name="clerk", tools=[Prefixed([balance], "my_")] if how == "toolset" else [balance])
    if how == "child":
        agent = Agent(ScriptedModel([text("x")]), name="lead", tools=[agent.as_tool("help", "Help.")])
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        if how == "resume":
            await agent.run("go", session=session, deps=Bank(), budget=Budget(max_model_turns=1), deadline=0)
        with pytest.raises(ConfigurationError, match=r"needs `ctx\.deps` of the type Bank, and the run was given none"):
            await (agent.resume(session) if how == "resume" else agent.run("go", session=session))
    if how == "resume":
        with pytest.raises(ConfigurationError, match=r"needs `ctx\.deps` of the type Bank, and the run was given none"):
            await Agents([agent]).resume(journal, "s")

    assert not model.requests


async def test_a_tool_whose_deps_may_be_none_runs_without_them():
    result = await Agent(ScriptedModel([call("lookup"), text("x")]), tools=[lookup]).run("go")

    assert [one.status for one in result.tool_calls] == ["ok"]


# --- what a tool is given
@pytest.mark.row("T03", "T04")
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_the_messages_that_a_tool_sees_are_a_copy_that_nothing_changes(effect):
    seen: list[Any] = []

    async def run(arguments: Any, ctx: Any) -> Any:
        seen.append((ctx.session.messages, len(ctx.session.messages), ctx))
        return "done"

    tool = tool_of(run, "look", effect=effect, permission="allow")
    result = await Agent(ScriptedModel([call("look", n=1), call("look", n=2), text("x")]), tools=[tool]).run("go")

    for messages, count, ctx in seen:
        assert isinstance(messages, tuple)
        assert len(messages) == count, "it has grown since"
        assert len(ctx.session.messages) == count
    assert len(result.messages) == 6


@pytest.mark.row("T11")
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "returns-at-once"])
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_progress_of_an_async_tool_comes_before_its_end_and_never_to_the_model(waits, effect):
    heard: list[AnyEvent] = []

    async def run(arguments: Any, ctx: Any) -> str:
        ctx.progress("half", done=1, total=2)
        if waits:
            await asyncio.sleep(0)
        ctx.progress("whole", done=2, total=2)
        return "done"

    tool = tool_of(run, "look", effect=effect, permission="allow")
    model = ScriptedModel([call("look"), text("Done.")])
    await Agent(model, tools=[tool], subscribers=[heard.append]).run("go")

    of_tools = [(event.type, getattr(event, "message", "")) for event in heard if event.type.startswith("tool.")]
    assert of_tools == [
        ("tool.started", ""), ("tool.progress", "half"), ("tool.progress", "whole"), ("tool.finished", ""),
    ]  # fmt: skip
    assert "half" not in str(model.requests[1].messages)


@pytest.mark.row("H21", "T04")
async def test_a_read_that_starts_early_sees_its_own_step_and_call():
    seen: list[Any] = []
    gate = Gate()

    async def look(arguments: JsonObject, ctx: ToolContext) -> str:
        last = ctx.session.messages[-1]
        seen.append((ctx.session.step, [one.id for one in last.calls], ctx.call.id, last.role))
        gate.open()
        return "done"

    turn = Turn(calls=(call("look", n=1), call("look", n=2)), gate=gate, hold_after_call=0)
    async with on_fake_clock() as session:
        result = await Agent(ScriptedModel([turn, call("look", n=3), text("x")]), tools=[read(look)]).run(
            "go", session=session
        )
        early = [event.call_id for event in await types(result, "tool.started") if event.early]

    assert early[0] == seen[0][2]
    assert [(step, own in ids, role) for step, ids, own, role in seen] == [
        (1, True, "assistant"), (1, True, "assistant"), (2, True, "assistant")
    ]  # fmt: skip


# --- a tracer
class Contextless:
    """A subscriber that traces calls, and cannot say in which context one runs."""

    def __call__(self, event: Any) -> None:
        pass

    def call_context(self, session_id: str, call_id: str) -> Any:
        raise ValueError("no context")


async def test_a_tracer_that_fails_stops_no_call():
    ran = Recorder()

    result = await Agent(ScriptedModel([call("look"), text("x")]), tools=[read(ran)], subscribers=[Contextless()]).run(
        "go"
    )

    assert (result.completed, ran.runs) == (True, 1)
