"""What a survey of mutations showed that no test noticed: all that a tool may know of a plain call, on the loop and in a thread."""

import copy
from typing import Any

import pytest

from pipeline_tools import act, on_fake_clock, read
from treadle import Agent, Agents, Budget, ConfigurationError, Prefixed, ToolContext, allow, open_session, tool
from treadle.journals.memory import MemoryJournal
from treadle.messages import Usage
from treadle.testing import ScriptedModel, Turn, call, text
from treadle.tools import JsonObject


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
async def test_a_tool_knows_its_call_its_session_and_that_nobody_has_stopped_it(in_thread: bool) -> None:
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


async def test_each_attempt_of_a_call_has_its_number_and_the_same_key() -> None:
    seen: list[tuple[int, str, bool]] = []

    async def fails_twice(arguments: JsonObject, ctx: ToolContext) -> str:
        seen.append((ctx.attempt, ctx.idempotency_key, ctx.cancelled))
        if ctx.attempt < 3:
            raise ConnectionError
        return "done"

    async with on_fake_clock() as session:
        model = ScriptedModel([call("look"), text("Done.")])
        await Agent(model, tools=[read(fails_twice, retries=2)]).run("go", session=session)

    assert [(attempt, cancelled) for attempt, _, cancelled in seen] == [(1, False), (2, False), (3, False)]
    assert len({key for _, key, _ in seen}) == 1


@pytest.mark.row("T03")
async def test_a_tool_reads_its_sessions_metadata_tenant_and_status_and_what_is_left_of_the_budget() -> None:
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

    assert seen[0][:3] == ("active", {"tenant": "K7", "plan": {"level": 1}}, "K7")
    assert 0 < seen[0][3].pop("max_wall_time_seconds") <= 60
    tokens = {"max_input_tokens": 1000 - lead_usage.input_tokens, "max_output_tokens": 1000 - lead_usage.output_tokens}
    assert seen[0][3] == {"max_tool_calls": 4, "max_model_turns": 9, **tokens}
    assert session.state.metadata == {"tenant": "K7", "plan": {"level": 1}}
    status, metadata, tenant, below = seen[1]
    assert (status, metadata, tenant) == ("active", {}, "")
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
async def test_a_run_without_what_its_tools_find_in_deps_is_refused_when_it_starts(how: str) -> None:
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


async def test_a_tool_whose_deps_may_be_none_runs_without_them() -> None:
    result = await Agent(ScriptedModel([call("lookup"), text("x")]), tools=[lookup]).run("go")

    assert [one.status for one in result.tool_calls] == ["ok"]
