"""Toolsets: what is opened for a run, offered step by step, and closed; and what becomes of a run when one of them fails."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lines import LineServer

from loop_tools import echo_tool
from treadle import (
    Agent,
    Budget,
    ConfigurationError,
    RunResult,
    StopReason,
    Tool,
    ToolContext,
    allow,
    ask,
    open_session,
)
from treadle.drivers import ReActDriver
from treadle.errors import ToolNameConflict
from treadle.events import AnyEvent, ToolsetFailed, ToolsetListed
from treadle.journals.memory import MemoryJournal
from treadle.ports import OpenToolset, SessionView, ToolsetContext
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import JsonObject

Tools = Sequence[Tool] | Callable[[SessionView], Any]


class Set:
    """A toolset of tools that are there already, which notes what becomes of it."""

    def __init__(self, name: str, tools: Tools = (), *, breaks: str = "", waits: asyncio.Event | None = None) -> None:
        self.name = name
        self.log: list[str] = []
        self.contexts: list[ToolsetContext] = []
        self._tools = tools
        self._breaks = breaks
        self._waits = waits

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
        self.log.append("opening")
        self.contexts.append(ctx)
        if self._breaks == "open":
            raise OSError("no such server")
        if self._breaks == "exit":
            raise SystemExit(3)
        if self._waits is not None:
            await self._waits.wait()
        self.log.append("opened")
        try:
            yield self
        finally:
            self.log.append("closed")
            if self._breaks == "close":
                raise OSError("it will not close")

    def tools(self, session: SessionView) -> Any:
        return self._tools(session) if callable(self._tools) else self._tools


def named(name: str, act: Callable[[], Any] = lambda: "done", **words: Any) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        value = act()
        return await value if asyncio.iscoroutine(value) else value

    return Tool(name=name, parameters={}, run=run, **{"description": f"Do {name}.", "effect": "read", **words})


def offered(model: ScriptedModel) -> list[list[str]]:
    return [[spec.name for spec in request.tools] for request in model.requests]


def results(result: RunResult) -> list[str]:
    return [one.content for message in result.messages for one in message.results]


# --- a server process


@pytest.mark.row("R-TOOLSET")
async def test_a_server_process_is_started_for_a_run_asked_for_its_tools_and_ended_with_it():
    server = LineServer("add")
    model = ScriptedModel([call("add", a=2, b=3), text("Five.")])

    result = await Agent(model, tools=[server]).run("How much is 2 + 3?")

    assert result.completed
    assert offered(model) == [["add"], ["add"]]
    assert results(result) == ["5"]
    assert server.opened[0].process.returncode == -signal.SIGKILL
    assert server.opened[0].listings == 1


@pytest.mark.row("R-TOOLSET-FAILS")
async def test_a_server_that_is_killed_in_mid_run_takes_its_tools_with_it_and_nothing_else():
    server, events = LineServer("add", "die"), list[AnyEvent]()
    model = ScriptedModel(
        [call("add", a=1, b=1), [call("die"), call("echo", n=1)], call("add", a=2, b=2), call("echo", n=2), text("ok")]
    )

    result = await Agent(model, tools=[server, echo_tool()], subscribers=[events.append]).run("go")

    assert result.completed
    assert [one.status for one in result.tool_calls] == ["ok", "failed", "ok", "failed", "ok"]
    assert offered(model) == [["add", "die", "echo"], ["add", "die", "echo"], ["echo"], ["echo"], ["echo"]]
    told = json.loads(results(result)[3])
    assert told["code"] == "toolset_unavailable"
    assert told["message"] == (
        "add did not run: its toolset lines is unavailable. ConnectionError (its message is in the log)."
    )
    failed = [event for event in events if isinstance(event, ToolsetFailed)]
    assert [(one.toolset, one.phase, one.tools) for one in failed] == [("lines", "run", ("add", "die"))]
    assert "unavailable now, and their tools are missing: lines" in str(model.requests[2].instructions)
    assert model.requests[1].instructions is None


@pytest.mark.row("R-TOOLSET-CHANGES")
async def test_tools_that_a_server_adds_after_a_call_are_offered_in_the_next_request():
    server, events = LineServer("unlock"), list[AnyEvent]()
    model = ScriptedModel([[call("unlock"), call("open_vault")], call("open_vault"), text("ok")])

    result = await Agent(model, tools=[server], subscribers=[events.append]).run("go")

    assert offered(model) == [["unlock"], ["open_vault", "unlock"], ["open_vault", "unlock"]]
    assert [one.status for one in result.tool_calls] == ["ok", "unknown_tool", "ok"]
    listed = [event.tools for event in events if isinstance(event, ToolsetListed)]
    assert listed == [("unlock",), ("unlock", "open_vault")]


async def test_each_run_has_a_server_of_its_own_and_side_by_side_runs_do_not_meet():
    server = LineServer("whoami")
    agents = [Agent(ScriptedModel([call("whoami"), text("ok")]), tools=[server]) for _ in "ab"]
    both = await asyncio.gather(*(agent.run("go") for agent in agents))

    assert len({results(one)[0] for one in both}) == 2


# --- opened and closed


async def test_it_is_opened_before_the_first_request_with_what_the_run_was_given():
    seen = list[str]()
    toolset = Set("a", [named("look")])
    model = ScriptedModel([text("ok")])
    on_event = lambda event: seen.append(event.type) if not event.is_live else None

    result = await Agent(model, tools=[toolset], subscribers=[on_event]).run("go", deps={"token": 7})

    assert seen.index("run.started") < seen.index("toolset.listed") < seen.index("model.started")
    assert toolset.contexts[0].deps == {"token": 7}
    assert toolset.contexts[0].session.id == result.session.id
    assert toolset.log == ["opening", "opened", "closed"]


@pytest.mark.row("R-TOOLSET")
@pytest.mark.parametrize("end", ["answer", "crash", "cancel", "limit", "loop cancelled"])
async def test_it_is_closed_at_every_end_of_the_run(end):
    begun, crash = asyncio.Event(), dict[str, Any]()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    toolset, other = Set("a", [named("wait", wait)]), Set("b")
    model = ScriptedModel([call("wait") if end in ("cancel", "limit", "loop cancelled") else text("ok")])
    if end == "crash":
        crash = {"driver": Crashing()}
    budget = Budget(max_wall_time_seconds=0.1) if end == "limit" else Budget()
    agent = Agent(model, tools=[toolset, other], budget=budget, on_limit="report", **crash)
    run = agent.stream("go")
    running = asyncio.ensure_future(run.finish())
    if end in ("cancel", "loop cancelled"):
        await begun.wait()
        run.cancel() if end == "cancel" else running.cancel()
    await asyncio.wait({running})

    assert toolset.log == other.log == ["opening", "opened", "closed"]
    if end == "crash":
        assert isinstance(running.exception(), ZeroDivisionError)


class Crashing:
    """A driver with a fault that is not one of a model."""

    def bind(self, model: Any, tools: Any, executor: Any) -> "Crashing":
        return self

    async def propose(self, request: Any) -> AsyncIterator[Any]:
        raise ZeroDivisionError
        yield


@pytest.mark.row("R-TOOLSET-FAILS")
@pytest.mark.parametrize("breaks", ["open", "exit"])
async def test_one_that_cannot_be_opened_is_told_and_the_run_goes_on_with_the_others(breaks):
    broken, well, events = Set("broken", [named("look")], breaks=breaks), Set("well", [named("see")]), list[AnyEvent]()
    model = ScriptedModel([call("see"), text("ok")])

    result = await Agent(model, tools=[broken, well], subscribers=[events.append]).run("go")

    assert result.completed
    assert offered(model) == [["see"], ["see"]]
    failed = [event for event in events if isinstance(event, ToolsetFailed)]
    assert [(one.toolset, one.phase) for one in failed] == [("broken", "open")]
    assert failed[0].message.startswith("OSError: no such server." if breaks == "open" else "SystemExit")
    assert well.log == ["opening", "opened", "closed"]


@pytest.mark.parametrize(("seconds", "is_budget"), [(5, False), (3, True)], ids=["its own time", "the time of the run"])
async def test_one_that_takes_too_long_to_open_is_given_up_and_the_time_of_the_run_counts(
    seconds: int, is_budget: bool
):
    clock, never, events = FakeClock(), asyncio.Event(), list[AnyEvent]()
    slow, model = Set("slow", [named("look")], waits=never), ScriptedModel([text("ok")])
    budget = Budget(max_wall_time_seconds=3 if is_budget else 60)
    async with open_session(MemoryJournal(), clock=clock) as session:
        agent = Agent(model, tools=[slow], toolset_seconds=5, budget=budget, subscribers=[events.append])
        running = asyncio.ensure_future(agent.run("go", session=session))
        await clock.wait_waits(2)  # the time of the run, and that of the opening
        clock.advance(seconds)
        result = await running

    if is_budget:
        assert (result.reason, model.requests) == (StopReason.BUDGET_EXCEEDED, [])
    else:
        assert result.completed
        assert [one.message for one in events if isinstance(one, ToolsetFailed)] == [
            "It did not open within 5 seconds."
        ]


async def test_a_cancel_does_not_wait_for_one_that_opens():
    never = asyncio.Event()
    slow, well = Set("slow", waits=never), Set("well")
    run = Agent(ScriptedModel([text("ok")]), tools=[well, slow]).stream("go")
    running = asyncio.ensure_future(run.finish())
    while slow.log != ["opening"] or well.log != ["opening", "opened"]:
        await asyncio.sleep(0)
    run.cancel()
    result = await running

    assert result.reason is StopReason.CANCELLED
    assert well.log == ["opening", "opened", "closed"]
    assert slow.log == ["opening"]


@pytest.mark.row("R-TOOLSET-FAILS")
async def test_one_that_fails_as_it_closes_keeps_the_answer_and_the_others_are_closed():
    broken, well = Set("broken", breaks="close"), Set("well")

    result = await Agent(ScriptedModel([text("ok")]), tools=[broken, well]).run("go")

    assert result.completed
    assert well.log == ["opening", "opened", "closed"]


async def test_one_that_never_closes_is_cancelled_and_the_run_ends():
    clock, closing = FakeClock(), asyncio.Event()

    class Stuck(Set):
        @asynccontextmanager
        async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
            try:
                yield self
            finally:
                closing.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.log.append("cancelled")

    stuck = Stuck("stuck")
    async with open_session(MemoryJournal(), clock=clock) as session:
        running = asyncio.ensure_future(Agent(ScriptedModel([text("ok")]), tools=[stuck]).run("go", session=session))
        await closing.wait()
        clock.advance(30)
        result = await running

    assert result.completed
    assert stuck.log == ["cancelled"]


# --- what is offered


@pytest.mark.row("R-TOOLSET-CHANGES")
async def test_a_call_is_judged_by_what_its_own_request_offered():
    shows = [["a", "b"]]
    tools = {name: named(name, lambda: shows.append(["b"])) for name in ("a", "b")}
    toolset = Set("s", lambda session: [tools[name] for name in shows[-1]])
    model = ScriptedModel([[call("a"), call("b"), call("a", again=1)], call("a"), text("ok")])

    result = await Agent(model, tools=[toolset]).run("go")

    assert offered(model) == [["a", "b"], ["b"], ["b"]]
    assert [one.status for one in result.tool_calls] == ["ok", "ok", "ok", "unknown_tool"]
    assert json.loads(results(result)[3])["message"] == "a did not run: s no longer has a tool of this name."


@pytest.mark.row("R-TOOLSET-FAILS")
async def test_one_that_cannot_list_its_tools_is_asked_again_before_the_next_request():
    times = list[int]()

    def tools(session: SessionView) -> list[Tool]:
        times.append(1)
        if len(times) == 2:
            raise OSError("it restarts")
        return [named("look")]

    model, events = ScriptedModel([call("look"), call("look"), call("look"), text("ok")]), list[AnyEvent]()
    result = await Agent(model, tools=[Set("s", tools)], subscribers=[events.append]).run("go")

    assert offered(model) == [["look"], [], ["look"], ["look"]]
    assert [one.status for one in result.tool_calls] == ["ok", "failed", "ok"]
    kinds = [(one.type) for one in events if isinstance(one, ToolsetListed | ToolsetFailed)]
    assert kinds == ["toolset.listed", "toolset.failed", "toolset.listed"]


async def test_what_is_no_list_of_tools_is_a_failure_that_says_so():
    events = list[AnyEvent]()
    sets = [Set("a", lambda _: "look"), Set("b", lambda _: [named("x"), "look"]), Set("c", lambda _: None)]

    result = await Agent(ScriptedModel([text("ok")]), tools=sets, subscribers=[events.append]).run("go")

    assert result.completed
    told = [one.message for one in events if isinstance(one, ToolsetFailed)]
    assert [message.partition(" must ")[0] for message in told] == ["ToolDefinitionError: tools()"] * 3


@pytest.mark.row("R-TOOLSET-NAMES")
async def test_a_name_that_is_taken_is_refused_with_the_way_out_and_the_first_owner_keeps_it():
    own, events = named("look", lambda: "mine"), list[AnyEvent]()
    one = Set("one", [named("look", lambda: "not mine"), named("see", lambda: "one's")])
    two = Set("two", [named("see", lambda: "two's"), named("hear", lambda: "two's")])
    model = ScriptedModel([[call("look"), call("see"), call("hear")], text("ok")])

    result = await Agent(model, tools=[one, own, two], subscribers=[events.append]).run("go")

    assert results(result) == ["mine", "one's", "two's"]
    assert {event.toolset: event.refused for event in events if isinstance(event, ToolsetListed)} == {
        "one": {"look": "The agent has a tool named 'look' of its own. Wrap the toolset in Prefixed or Renamed."},
        "two": {"see": "Toolset 'one' has a tool named 'see' too. Wrap the toolset in Prefixed or Renamed."},
    }


@pytest.mark.row("R-TOOLSET-NAMES")
async def test_nobody_takes_over_the_name_of_a_tool_whose_toolset_has_failed():
    times = list[int]()

    def first(session: SessionView) -> list[Tool]:
        times.append(1)
        if len(times) > 1:
            raise OSError("gone")
        return [named("pay")]

    def second(session: SessionView) -> list[Tool]:
        return [named("pay", lambda: "to somebody else")] if len(times) > 1 else []

    model = ScriptedModel([call("pay"), call("pay"), text("ok")])
    result = await Agent(model, tools=[Set("bank", first), Set("other", second)]).run("go")

    assert [one.status for one in result.tool_calls] == ["ok", "failed"]
    assert "toolset bank is unavailable" in results(result)[1]


def test_two_tools_or_toolsets_of_one_name_and_what_is_no_toolset_are_refused_by_the_agent():
    with pytest.raises(ToolNameConflict, match="Two tools are named 'a'"):
        Agent(ScriptedModel([text("ok")]), tools=[named("a"), named("a")])
    with pytest.raises(ToolNameConflict, match="Two toolsets are named 'a'"):
        Agent(ScriptedModel([text("ok")]), tools=[Set("a"), Set("a")])
    with pytest.raises(ConfigurationError, match="neither a Tool nor a toolset"):
        Agent(ScriptedModel([text("ok")]), tools=["look"])  # type: ignore[list-item]  # what is refused here
    with pytest.raises(ConfigurationError, match="neither a Tool nor a toolset"):
        Agent(ScriptedModel([text("ok")]), tools=[Set])  # type: ignore[list-item]  # a class is not an instance
    with pytest.raises(ConfigurationError, match="name has 1 to"):
        Agent(ScriptedModel([text("ok")]), tools=[Set("")])


async def test_a_tool_with_a_broken_contract_is_left_out_and_the_others_stay():
    events, broken = list[AnyEvent](), named("broken", output_schema={"type": "nonsense"})
    model = ScriptedModel([call("look"), text("ok")])

    result = await Agent(model, tools=[Set("s", [broken, named("look")])], subscribers=[events.append]).run("go")

    assert result.completed
    assert offered(model)[0] == ["look"]
    assert [list(one.refused) for one in events if isinstance(one, ToolsetListed)] == [["broken"]]


async def test_equal_tools_of_a_new_list_are_told_to_the_model_in_the_same_objects():
    toolset = Set("s", lambda _: [named("look", output_schema={"type": "string"})])
    model = ScriptedModel([call("look"), call("look", n=1), text("ok")])

    result = await Agent(model, tools=[toolset]).run("go")

    assert [one.status for one in result.tool_calls] == ["ok", "ok"]
    assert model.requests[0].tools is model.requests[1].tools is model.requests[2].tools


async def test_a_react_driver_offers_the_tools_of_each_step():
    server = LineServer("unlock")

    def decision(tool: str | None) -> str:
        wanted = {"type": "call_tool", "tool": tool, "args": {}} if tool else {"type": "final_answer", "answer": "ok"}
        return json.dumps({"thought": "I continue.", **wanted})

    model = ScriptedModel([text(decision("unlock")), text(decision("open_vault")), text(decision(None))])
    result = await Agent(model, tools=[server], driver=ReActDriver()).run("go")

    assert result.completed, result.message
    assert [(one.name, one.status) for one in result.tool_calls] == [("unlock", "ok"), ("open_vault", "ok")]
    assert "open_vault" not in str(model.requests[0].instructions)
    assert "open_vault" in str(model.requests[1].instructions)


# --- resumed


@pytest.mark.row("R-TOOLSET-RESUME")
async def test_open_calls_whose_tool_is_gone_are_told_before_anything_runs(tmp_path: Path):
    order = list[str]()
    pay = named("pay", lambda: order.append("paid") or "paid", effect="unsafe")
    both = Set("bank", [pay, named("transfer", effect="unsafe")])
    path = tmp_path / "a.db"
    async with open_session(path, id="s") as session:
        asked = ScriptedModel([[call("transfer"), call("pay")]])
        paused = await Agent(asked, tools=[both], policy=ask("*")).run("go", session=session)
        for approval in paused.approvals:
            await session.answer(approval.id, "allow")
    assert paused.reason is StopReason.APPROVAL_REQUIRED
    async with open_session(path, id="s") as session:
        left = Set("bank", [pay])
        other = Set("other", [named("transfer", lambda: order.append("stolen"))])
        events = list[AnyEvent]()
        agent = Agent(ScriptedModel([text("ok")]), tools=[left, other], policy=ask("*"), subscribers=[events.append])
        result = await agent.resume(session)

    assert result.completed
    assert order == ["paid"]
    assert [one.status for one in result.tool_calls] == ["unknown_tool", "ok"]
    finished = next(i for i, one in enumerate(events) if one.type == "tool.finished")
    assert finished < next(i for i, one in enumerate(events) if one.type == "tool.started")


@pytest.mark.row("R-TOOLSET-RESUME")
async def test_an_open_call_of_a_tool_that_was_offered_runs_though_the_tool_has_been_hidden_since(tmp_path: Path):
    is_shown = [True]
    pay = named("pay", visible=lambda session: is_shown[0], effect="unsafe")
    path = tmp_path / "a.db"
    async with open_session(path, id="s") as session:
        paused = await Agent(ScriptedModel([call("pay")]), tools=[pay]).run("go", session=session)
        await session.answer(paused.approvals[0].id, "allow")
    is_shown[0] = False
    async with open_session(path, id="s") as session:
        model = ScriptedModel([text("ok")])
        result = await Agent(model, tools=[pay]).resume(session)

    assert [one.status for one in result.tool_calls] == ["ok"]
    assert offered(model) == [[]]


async def test_a_call_that_waits_goes_on_in_a_new_server_of_another_process_life(tmp_path: Path):
    path, server = tmp_path / "a.db", LineServer("pay")
    async with open_session(path, id="s") as session:
        paused = await Agent(ScriptedModel([call("pay", amount=3)]), tools=[server]).run("go", session=session)
        await session.answer(paused.approvals[0].id, "allow")
    async with open_session(path, id="s") as session:
        result = await Agent(ScriptedModel([text("ok")]), tools=[server]).resume(session)

    first, second = server.opened
    assert results(result) == [f"pay of {second.process.pid}"]
    assert first.process.returncode == -signal.SIGKILL


# --- agents as tools


async def test_an_agent_as_a_tool_opens_its_own_toolsets_in_its_own_run():
    inner, outer = Set("inner", [named("look")]), Set("outer", [named("see")])
    child = Agent(ScriptedModel([call("look"), text("seen")]), tools=[inner])
    events = list[AnyEvent]()
    lead = Agent(
        ScriptedModel([call("research", task="go"), text("ok")]),
        tools=[outer, child.as_tool("research", "Find out.", effect="read")],
        subscribers=[events.append],
    )

    result = await lead.run("go")

    assert result.completed
    assert inner.log == outer.log == ["opening", "opened", "closed"]
    assert {one.toolset for one in events if isinstance(one, ToolsetListed)} == {"outer"}
    assert inner.contexts[0].session.id != outer.contexts[0].session.id


async def test_a_policy_judges_the_tools_of_toolsets_like_any_other():
    toolset = Set("s", [named("act", effect="unsafe"), named("look")])
    model = ScriptedModel([[call("look"), call("act")], text("ok")])

    paused = await Agent(model, tools=[toolset]).run("go")
    allowed = await Agent(ScriptedModel([call("act"), text("ok")]), tools=[toolset], policy=allow("act")).run("go")

    assert [one.tool for one in paused.approvals] == ["act"]
    assert allowed.completed


# --- names, fingerprints, choices


async def test_a_forced_choice_may_name_a_tool_of_a_toolset_and_falls_away_where_it_is_missing():
    there, missing = ScriptedModel([call("look"), text("ok")]), ScriptedModel([text("ok")])
    await Agent(there, tools=[Set("s", [named("look")])], tool_choice="look").run("go")
    await Agent(missing, tools=[Set("s", [named("look")], breaks="open")], tool_choice="look").run("go")

    assert [request.tool_choice for request in there.requests] == ["look", "auto"]
    assert missing.requests[0].tool_choice == "auto"


def test_the_fingerprint_of_an_agent_names_its_toolsets():
    def agent(*names: str) -> Agent:
        return Agent(ScriptedModel([text("ok")]), name="a", tools=[Set(name) for name in names])

    assert agent("x").fingerprint["tools"] != agent("y").fingerprint["tools"]
    assert agent("x").fingerprint == agent("x").fingerprint
    assert [one.name for one in agent("x", "y").toolsets] == ["x", "y"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_run_sync_of_a_forked_process_opens_a_server_of_its_own():
    server = LineServer("whoami")
    agent = Agent(ScriptedModel([call("whoami"), text("ok"), call("whoami"), text("ok")]), tools=[server])
    before = json.loads(json.dumps(results(agent.run_sync("go"))))
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, json.dumps(results(agent.run_sync("go"))).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as told:
        after = json.loads(told.read())
    assert os.waitpid(pid, 0)[1] == 0
    assert before != after


@pytest.mark.row("R-TOOLSET-FAILS")
async def test_a_toolset_that_does_not_list_its_tools_in_time_is_left_and_the_run_goes_on():
    clock, asked, left = FakeClock(auto=True), asyncio.Event(), []

    async def never(session: SessionView) -> Sequence[Tool]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.append(True)
        return ()

    model = ScriptedModel([call("echo", n=1), text("Done.")])
    async with open_session(MemoryJournal(), clock=clock) as session:
        agent = Agent(model, tools=[Set("slow", never), echo_tool()], toolset_seconds=7)
        result = await agent.run("go", session=session)
        failed = [one for one in await session.events() if isinstance(one, ToolsetFailed)]

    assert result.completed
    assert [(one.toolset, one.phase, one.message) for one in failed] == [
        ("slow", "list", "It did not list its tools within 7 seconds.")
    ]
    assert offered(model) == [["echo"], ["echo"]]
    assert left == [True, True]  # it is asked again before the next request


@pytest.mark.row("R-TOOLSET-FAILS")
@pytest.mark.parametrize(("required", "is_there"), [("shop", True), ("buy", True), ("sell", False), ("other", False)])
async def test_a_run_needs_the_toolsets_and_the_tools_that_its_agent_requires(required: str, *, is_there: bool):
    model = ScriptedModel([text("Done.")])

    result = await Agent(model, tools=[Set("shop", [named("buy")])], required=[required]).run("go")

    assert result.completed is is_there
    assert is_there or "There is no tool and no toolset of this name." in result.message


class Dying(Set):
    """A toolset that ends in the middle of a run, once it is told to."""

    def __init__(self, name: str, tools: Tools = ()) -> None:
        super().__init__(name, tools)
        self.dies = asyncio.Event()

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._die())
            yield self

    async def _die(self) -> None:
        await self.dies.wait()
        raise OSError("the server is gone")


@pytest.mark.row("R-TOOLSET-FAILS")
async def test_a_call_whose_toolset_has_ended_did_not_run_and_one_that_was_under_way_may_have_acted():
    ran: list[str] = []

    async def dies() -> str:
        ran.append("first")
        server.dies.set()
        return await asyncio.Event().wait()

    words = {"effect": "unsafe", "permission": "allow"}
    tools = [named("first", dies, **words), named("second", lambda: ran.append("second"), **words)]
    server = Dying("server", tools)

    result = await Agent(
        ScriptedModel([[call("first"), call("second")], text("Done.")]), tools=[server], cancel_siblings="never"
    ).run("go")

    told = [json.loads(one) for one in results(result)]
    assert [one.status for one in result.tool_calls] == ["outcome_unknown", "failed"]
    assert (told[1]["code"], told[1]["may_have_acted"]) == ("toolset_unavailable", False)
    assert "the server is gone" in told[1]["message"]
    assert ran == ["first"]
