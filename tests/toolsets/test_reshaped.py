"""Toolsets made of toolsets: prefixed, renamed, filtered, with a person's word, shown by state, shared, and searched on demand."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lines import LineServer
from test_toolsets import named, offered, results

from treadle import Agent, ConfigurationError, Tool, ToolContext, ToolOutput, allow, file_tools, open_session
from treadle.ports import OpenToolset, SessionView, ToolsetContext
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject
from treadle.toolsets import Filtered, OnDemand, Prefixed, Renamed, RequireApproval, Shared, ToolList, VisibleWhen


async def offers(*tools: Any) -> list[str]:
    model = ScriptedModel([text("ok")])
    await Agent(model, tools=tools).run("go")
    return offered(model)[0]


async def test_a_prefix_keeps_two_servers_of_equal_names_apart():
    model = ScriptedModel([[call("a_add", a=1, b=1), call("b_add", a=2, b=2)], text("ok")])
    sets = [Prefixed(LineServer("add", name="one"), "a_"), Prefixed(LineServer("add", name="two"), "b_")]

    result = await Agent(model, tools=sets).run("go")

    assert results(result) == ["2", "4"]


async def test_lists_of_tools_are_wrapped_like_toolsets(tmp_path: Path):
    (tmp_path / "a.txt").write_text("Hello")
    model = ScriptedModel([call("fs_read", path="a.txt"), text("ok")])

    result = await Agent(model, tools=[Prefixed(file_tools(tmp_path), "fs_")]).run("go")

    assert [one.status for one in result.tool_calls] == ["ok"]
    assert offered(model)[0] == ["fs_glob", "fs_grep", "fs_list", "fs_read"]


async def test_tools_are_renamed_and_filtered_by_name_and_by_function():
    tools = [named("a"), named("b"), named("c", effect="unsafe")]

    assert await offers(Renamed(tools, {"a": "z"})) == ["b", "c", "z"]
    assert await offers(Filtered(tools, ["a", "c", "other"])) == ["a", "c"]
    assert await offers(Filtered(tools, lambda tool: tool.effect == "read")) == ["a", "b"]
    assert await offers(Prefixed(Filtered(ToolList(tools, name="x"), {"a"}), "p_")) == ["p_a"]


@pytest.mark.row("R-TOOLSET-WRAPPERS")
async def test_a_person_is_asked_though_a_policy_allows_the_call(tmp_path: Path):
    tools = [named("look"), named("write", lambda: "written", effect="unsafe")]
    toolset = RequireApproval(tools, when=lambda call: not call.effect.is_read)
    model = ScriptedModel([[call("look"), call("write")], text("ok")])
    async with open_session(tmp_path / "a.db") as session:
        agent = Agent(model, tools=[toolset], policy=allow("*"))
        paused = await agent.run("go", session=session)
        await session.answer(paused.approvals[0].id, "allow")
        result = await agent.resume(session)

    assert [(one.tool, one.rule) for one in paused.approvals] == [("write", "tool write permission")]
    assert result.completed
    assert results(result) == ["done", "written"]


@pytest.mark.row("R-TOOLSET-WRAPPERS")
@pytest.mark.parametrize("when", [None, lambda call: 1 / 0, lambda call: call.arguments.clear() or call.name == "act"])
async def test_a_condition_that_raises_asks_and_one_that_plays_with_the_arguments_changes_nothing(when):
    seen = list[JsonObject]()

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        seen.append(arguments)
        return "done"

    act = Tool(name="act", description="", parameters={"properties": {"n": {}}, "type": "object"}, run=run)
    agent = Agent(
        ScriptedModel([call("act", n=1), text("ok")]), tools=[RequireApproval([act], when=when)], policy=allow("*")
    )
    paused = await agent.run("go")
    await paused.session.answer(paused.approvals[0].id, "allow")
    await agent.resume(paused.session)

    assert seen == [{"n": 1}]


async def test_wrappers_within_wrappers_hold_together():
    asks_for_a = RequireApproval([named("a"), named("b"), named("c")], when=lambda call: call.name.endswith("a"))
    toolset = Prefixed(RequireApproval(asks_for_a, when=lambda call: call.name.endswith("b")), "x_")
    model = ScriptedModel([[call("x_a"), call("x_b"), call("x_c")], text("ok")])

    paused = await Agent(model, tools=[toolset], policy=allow("*")).run("go")

    assert [one.tool for one in paused.approvals] == ["x_a", "x_b"]


@pytest.mark.row("T06")
async def test_tools_are_visible_while_a_fact_of_the_session_says_so():
    async def plan(arguments: JsonObject, ctx: ToolContext) -> ToolOutput:
        return ToolOutput(data="planned", facts={"plan": {"step": 1}})

    planner = Tool(name="plan", description="", parameters={}, effect="read", run=plan)
    deploy = VisibleWhen(
        [named("deploy"), named("never", visible=False)], lambda session: "plan" in session.state.facts.values
    )
    model = ScriptedModel([[call("plan"), call("deploy")], call("deploy"), text("ok")])

    result = await Agent(model, tools=[planner, deploy]).run("go")

    assert offered(model) == [["plan"], ["deploy", "plan"], ["deploy", "plan"]]
    assert [one.status for one in result.tool_calls] == ["ok", "unknown_tool", "ok"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Prefixed([named("a")], ""),
        lambda: Prefixed(named("a"), "x_"),
        lambda: Prefixed(Prefixed, "x_"),
        lambda: Renamed([named("a")], "b"),
        lambda: Renamed([named("a")], {"a": ""}),
        lambda: Filtered([named("a")], "a"),
        lambda: RequireApproval([named("a")], when=True),
        lambda: VisibleWhen([named("a")], True),
        lambda: OnDemand([named("a")], found=0),
        lambda: OnDemand([named("a")], always="a"),
        lambda: ToolList(["a"]),
    ],
)
def test_what_cannot_be_wrapped_is_refused_at_once(make):
    with pytest.raises(ConfigurationError):
        make()


# --- shared


class Counted:
    """A toolset that counts how often it is open, and that fails when it is told to."""

    name = "counted"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fails = asyncio.Event()
        self.all_in = asyncio.Barrier(2)

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
        self.log.append("open")
        try:
            async with asyncio.TaskGroup() as group:
                failing = group.create_task(self._fail())
                yield self
                failing.cancel()
        finally:
            self.log.append("close")

    async def _fail(self) -> None:
        await self.fails.wait()
        raise ConnectionError("it broke")

    def tools(self, session: SessionView) -> Sequence[Tool]:
        async def meet(arguments: JsonObject, ctx: ToolContext) -> str:
            await self.all_in.wait()
            return "met"

        async def fail(arguments: JsonObject, ctx: ToolContext) -> str:
            self.fails.set()
            return await asyncio.Event().wait()  # type: ignore[return-value]  # its toolset ends first

        return [
            Tool(name="meet", description="", parameters={}, effect="read", run=meet),
            Tool(name="fail", description="", parameters={}, effect="read", retries=0, run=fail),
        ]


@pytest.mark.row("R-TOOLSET-SHARED")
async def test_a_shared_toolset_is_opened_by_the_first_run_and_closed_after_the_last():
    counted = Counted()
    shared = Shared(counted)
    agents = [Agent(ScriptedModel([call("meet"), text("ok")]), tools=[shared]) for _ in "ab"]

    both = await asyncio.gather(*(agent.run("go") for agent in agents))
    again = await Agent(ScriptedModel([text("ok")]), tools=[shared]).run("go")

    assert [results(one) for one in both] == [["met"], ["met"]]
    assert again.completed
    assert counted.log == ["open", "close", "open", "close"]


@pytest.mark.row("R-TOOLSET-SHARED")
async def test_a_shared_toolset_that_fails_is_told_in_each_run_and_opened_anew_for_the_next():
    counted = Counted()
    shared = Shared(counted)
    one = Agent(ScriptedModel([call("meet"), call("fail"), call("meet"), text("ok")]), tools=[shared])
    other = Agent(ScriptedModel([call("meet"), call("fail", n=1), call("meet"), text("ok")]), tools=[shared])

    both = await asyncio.gather(one.run("go"), other.run("go"))
    counted.fails.clear()
    again = await Agent(ScriptedModel([text("ok")]), tools=[shared]).run("go")

    assert [[call.status for call in result.tool_calls] for result in both] == [["ok", "failed", "failed"]] * 2
    assert all("ConnectionError" in results(result)[2] for result in both)
    assert again.completed
    assert counted.log == ["open", "close", "open", "close"]


@pytest.mark.row("R-TOOLSET-SHARED")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_opens_a_shared_server_of_its_own_and_leaves_the_parents_alone():
    server = LineServer("whoami")
    shared = Shared(server)

    async def outer() -> tuple[list[str], list[str], list[str]]:
        ours, theirs = os.pipe()
        held = asyncio.Event()
        forked = asyncio.Event()

        async def hold(arguments: JsonObject, ctx: ToolContext) -> str:
            held.set()
            await forked.wait()
            return "held"

        holder = Tool(name="hold", description="", parameters={}, effect="read", run=hold)
        model = ScriptedModel([call("whoami"), call("hold"), call("whoami"), text("ok")])
        running = asyncio.ensure_future(Agent(model, tools=[shared, holder]).run("go"))
        await held.wait()
        pid = os.fork()
        if pid == 0:
            asyncio.events._set_running_loop(None)
            inner = Agent(ScriptedModel([call("whoami"), text("ok")]), tools=[shared])
            os.write(theirs, json.dumps(results(asyncio.new_event_loop().run_until_complete(inner.run("go")))).encode())
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as told:
            child = json.loads(await asyncio.to_thread(told.read))
        assert os.waitpid(pid, 0)[1] == 0
        forked.set()
        mine = results(await running)
        return [mine[0]], child, [mine[2]]

    before, child, after = asyncio.run(outer())

    assert before == after != child


# --- on demand


def catalogue(count: int = 200) -> list[Tool]:
    kinds = ("invoice", "customer", "ticket", "shipment", "refund")
    acts = ("create", "read", "update", "delete", "list", "export", "archive", "merge", "assign", "print")
    names = [f"{act}_{kind}_{number}" for number in range(4) for kind in kinds for act in acts]
    return [named(name, lambda name=name: name, description=f"{name.replace('_', ' ')}.") for name in names[:count]]


@pytest.mark.row("T09", "R-TOOLSET-SEARCH")
async def test_of_two_hundred_tools_each_request_offers_the_few_that_the_model_has_searched_for():
    model = ScriptedModel(
        [
            call("search_tools", query="refund a customer: create a refund"),
            call("create_refund_0"),
            call("search_tools", query="export_invoice_2"),
            [call("export_invoice_2"), call("merge_ticket_1")],
            text("ok"),
        ]
    )

    result = await Agent(model, tools=[OnDemand(catalogue(), always=["list_customer_0"])]).run("go")

    assert len(catalogue()) == 200
    assert offered(model)[0] == ["list_customer_0", "search_tools"]
    assert max(len(names) for names in offered(model)) <= 12
    assert "200 more tools" in model.requests[0].tools[1].description
    assert [one.status for one in result.tool_calls] == ["ok", "ok", "ok", "ok", "unknown_tool"]
    assert results(result)[1] == "create_refund_0"


@pytest.mark.row("R-TOOLSET-SEARCH")
async def test_what_was_found_is_still_offered_after_a_restart_and_what_was_found_long_ago_is_not(tmp_path: Path):
    toolset = OnDemand(catalogue(), found=2, kept=3)
    searches = [call("search_tools", query=f"export_{kind}_0") for kind in ("invoice", "ticket")]
    async with open_session(tmp_path / "a.db", id="s") as session:
        await Agent(ScriptedModel([*searches, text("ok")]), tools=[toolset]).run("go", session=session)
    async with open_session(tmp_path / "a.db", id="s") as session:
        model = ScriptedModel([text("ok")])
        await Agent(model, tools=[toolset]).run("again", session=session)

    assert len(offered(model)[0]) == 4
    assert {"export_ticket_0", "search_tools"} < set(offered(model)[0])


async def test_a_search_that_finds_nothing_says_so_and_one_of_an_odd_text_breaks_nothing():
    queries = ["zebra", "(((", "  ", "ü", "EXPORT invoices"]
    model = ScriptedModel([*[call("search_tools", query=query) for query in queries], text("ok")])

    result = await Agent(model, tools=[OnDemand(catalogue())]).run("go")

    found = [json.loads(one)["found"] for one in results(result)]
    assert [bool(one) for one in found] == [False, False, False, False, True]
    assert all("export_invoice" in one["name"] for one in found[4][:4])
