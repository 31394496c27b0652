"""Agents whose toolsets stay open over many runs: `async with agent.open() as opened`."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ConfigurationError, RunResult, Tool, allow, mcp_server, open_session
from treadle.events import AnyEvent, ToolsetFailed
from treadle.journals.memory import MemoryJournal
from treadle.ports import ToolsetContext
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject, ToolContext
from treadle.workers import Worker, submit
from treadle.workers import result as wait_for_result

RAW = Path(__file__).with_name("mcp_raw_server.py")


def starts(folder: Path) -> list[int]:
    """Return the ids of the server's processes, in the order of their starts."""
    lines = (folder / "log").read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("started")]


def raw_agent(folder: Path, model: ScriptedModel, **options: Any) -> Agent:
    server = mcp_server("raw", [sys.executable, "-S", "-E", str(RAW), str(folder)], **options)
    return Agent(model, tools=[server], policy=allow("*"))


def contents(result: RunResult) -> list[str]:
    return [one.content for message in result.messages for one in message.results]


class Counter:
    """A toolset whose tool counts its calls, and which notes what becomes of it."""

    name = "counter"

    def __init__(self, *, gate: asyncio.Event | None = None, breaks: bool = False) -> None:
        self.log: list[str] = []
        self.contexts: list[ToolsetContext] = []
        self.end = asyncio.Event()
        """Set to have it end by itself."""
        self.breaks = breaks
        self._gate = gate

    @asynccontextmanager
    async def open(self, ctx: ToolsetContext) -> AsyncIterator["Counter"]:
        self.log.append("opening")
        self.contexts.append(ctx)
        if self._gate is not None:
            await self._gate.wait()
        if self.breaks:
            raise OSError("no such server")
        self.count = 0
        task = asyncio.current_task()
        watching = asyncio.create_task(self.end.wait())
        watching.add_done_callback(lambda one: one.cancelled() or task is None or task.cancel())
        try:
            yield self
        finally:
            watching.cancel()
            self.log.append("closed")

    def tools(self, session: object) -> list[Tool]:
        return self._tools

    @property
    def _tools(self) -> list[Tool]:
        if not hasattr(self, "_made"):
            self._made = [Tool(name="count", description="Count.", parameters={}, effect="read", run=self._count)]
        return self._made

    async def _count(self, arguments: JsonObject, ctx: ToolContext) -> int:
        self.count += 1
        return self.count


async def test_a_server_is_started_once_for_ten_runs_and_ended_with_them(tmp_path):
    model = ScriptedModel([turn for n in range(10) for turn in (call("mcp__raw__echo", text=str(n)), text("ok"))])

    async with raw_agent(tmp_path, model).open() as opened:
        result = await opened.run("Go")
        for _ in range(9):
            result = await opened.run("Go on", session=result.session)

        assert contents(result) == [str(n) for n in range(10)]
        assert len(starts(tmp_path)) == 1

    assert (tmp_path / "log").read_text().splitlines()[-1] == "end of input"


async def test_a_server_that_ends_between_two_runs_is_started_again_at_its_next_call_and_its_end_is_reported_once(
    tmp_path, lost
):
    turns = [
        call("mcp__raw__echo", text="1"),
        text("ok"),
        text("no call"),
        call("mcp__raw__echo", text="2"),
        text("ok"),
    ]
    model, events = ScriptedModel([*turns, text("ok")]), list[AnyEvent]()
    agent = raw_agent(tmp_path, model)

    async with agent.open() as opened:
        result = await opened.run("Go")
        os.kill(starts(tmp_path)[0], signal.SIGKILL)
        await lost.wait()
        for task in ("Do not call", "Call", "Answer"):
            run = opened.stream(task, session=result.session)
            run.subscribe(events.append)
            result = await run.finish()
            if task == "Do not call":
                assert len(starts(tmp_path)) == 1

    assert contents(result) == ["1", "2"]
    assert len(starts(tmp_path)) == 2
    assert all("mcp__raw__echo" in [spec.name for spec in request.tools] for request in model.requests)
    ended = [event for event in events if isinstance(event, ToolsetFailed)]
    assert [(one.toolset, one.phase, one.tools) for one in ended] == [("raw", "run", ())]
    assert ended[0].message.endswith("It is started again at its next call.")


@pytest.fixture
def lost() -> Iterator[asyncio.Event]:
    """Set once the log has reported a lost connection."""
    noticed = Noticed()
    logging.getLogger("treadle").addHandler(noticed)
    yield noticed.is_lost
    logging.getLogger("treadle").removeHandler(noticed)


class Noticed(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.is_lost = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "is not connected" in record.getMessage():
            self.is_lost.set()


async def test_runs_that_share_a_toolset_share_its_state_and_what_it_was_opened_with():
    counter = Counter()
    model = ScriptedModel([call("count"), text("ok"), call("count"), text("ok")])

    agent = Agent(model, tools=[counter])

    async with open_session("memory:") as session, agent.open(session=session, deps={"token": 7}) as opened:
        await opened.run("Go", session=session)
        result = await opened.run("Go", session=session)
        assert counter.log == ["opening"]

    assert contents(result) == ["1", "2"]
    assert counter.log == ["opening", "closed"]
    assert counter.contexts[0].session.id == session.id
    assert counter.contexts[0].deps == {"token": 7}


async def test_a_cancelled_run_leaves_the_shared_toolset_open_for_the_next():
    counter = Counter()
    model = ScriptedModel([call("count"), text("ok"), call("count"), text("ok")])

    async with Agent(model, tools=[counter]).open() as opened:
        await opened.run("Go")
        run = opened.stream("Go")
        run.cancel()
        assert (await run.finish()).reason == "cancelled"
        result = await opened.run("Go")

    assert contents(result) == ["2"]
    assert counter.log == ["opening", "closed"]


async def test_an_opened_agent_says_the_state_of_each_toolset():
    gate, counter = asyncio.Event(), Counter()
    slow, broken = Counter(gate=gate), Counter(breaks=True)
    slow.name, broken.name = "slow", "broken"
    agent = Agent(ScriptedModel([text("ok")]), tools=[counter, slow, broken])
    assert agent.toolset_states == {}

    async with agent.open(in_background=True) as opened:
        while len(opened.opening) > 1:
            await asyncio.sleep(0)
        assert opened.toolset_states == {"counter": "open", "slow": "opening", "broken": "OSError: no such server."}
        gate.set()
        counter.end.set()
        while opened.opening or "closed" not in counter.log:
            await asyncio.sleep(0)
        assert opened.toolset_states["slow"] == "open"
        assert opened.toolset_states["counter"] != "open"


async def test_a_shared_toolset_that_has_ended_is_opened_again_by_the_next_run():
    counter = Counter()
    model = ScriptedModel([call("count"), text("ok"), call("count"), text("ok")])

    async with Agent(model, tools=[counter]).open() as opened:
        await opened.run("Go")
        counter.end.set()
        while "closed" not in counter.log:
            await asyncio.sleep(0)
        counter.end.clear()
        result = await opened.run("Go")

    assert contents(result) == ["1"]
    assert counter.log == ["opening", "closed", "opening", "closed"]


async def test_one_that_could_not_be_opened_is_reported_by_the_run_that_lacks_it_and_tried_again_by_the_next():
    counter, events = Counter(breaks=True), list[AnyEvent]()
    model = ScriptedModel([text("ok"), call("count"), text("ok")])

    async with Agent(model, tools=[counter], subscribers=[events.append]).open() as opened:
        await opened.run("Go")
        counter.breaks = False
        result = await opened.run("Go")

    failed = [(one.phase, one.message) for one in events if isinstance(one, ToolsetFailed)]
    assert failed == [("open", "OSError: no such server.")]
    assert contents(result) == ["1"]


async def test_a_run_in_the_foreground_does_without_what_opens_in_the_background_until_it_is_open():
    gate = asyncio.Event()
    counter = Counter(gate=gate)

    async def wait(arguments: JsonObject, ctx: ToolContext) -> str:
        gate.set()
        while opened.opening:
            await asyncio.sleep(0)
        return "open"

    waiting = Tool(name="wait", description="Wait.", parameters={}, effect="read", run=wait)
    model = ScriptedModel([call("wait"), call("count"), text("ok")])

    async with Agent(model, tools=[counter, waiting]).open(in_background=True) as opened:
        assert opened.opening == ("counter",)
        result = await opened.run("Go")

    assert contents(result) == ["open", "1"]
    assert [[spec.name for spec in request.tools] for request in model.requests] == [
        ["wait"], ["count", "wait"], ["count", "wait"],
    ]  # fmt: skip


@pytest.mark.parametrize("needs", ["required", "tool_choice"])
async def test_a_run_waits_for_what_it_needs_of_what_opens_in_the_background_and_a_cancel_ends_the_wait(needs):
    gate = asyncio.Event()
    counter = Counter(gate=gate)
    options: dict[str, Any] = {"required": ["count"]} if needs == "required" else {"tool_choice": "count"}
    model = ScriptedModel([call("count"), text("ok")])

    async with Agent(model, tools=[counter], **options).open(in_background=True) as opened:
        run = opened.stream("Go")
        async with run:
            run.cancel()
        assert run.result.reason == "cancelled"
        waiting = asyncio.ensure_future(opened.run("Go"))
        gate.set()
        result = await waiting

    assert contents(result) == ["1"]
    assert len(counter.log) == 2


async def test_leaving_ends_what_is_still_being_opened():
    counter = Counter(gate=asyncio.Event())

    async with Agent(ScriptedModel([text("ok")]), tools=[counter]).open(in_background=True) as opened:
        assert (await opened.run("Go")).completed

    assert opened.opening == ()


async def test_one_that_takes_too_long_is_given_up():
    counter, events = Counter(gate=asyncio.Event()), list[AnyEvent]()
    agent = Agent(ScriptedModel([text("ok")]), tools=[counter], toolset_seconds=0.05, subscribers=[events.append])

    async with agent.open() as opened:
        await opened.run("Go")

    failed = [(one.phase, one.message) for one in events if isinstance(one, ToolsetFailed)]
    assert failed == [("open", "TimeoutError: It did not open within 0.05 seconds.")]


async def test_a_closed_agent_and_another_event_loop_are_refused_with_the_way_out():
    agent = Agent(ScriptedModel([text("ok")]), tools=[Counter()])

    async with agent.open() as opened:
        with pytest.raises(ConfigurationError, match="another event loop"):
            await asyncio.to_thread(opened.run_sync, "Go")
    with pytest.raises(ConfigurationError, match="is closed now"):
        await opened.run("Go")


async def test_a_worker_that_is_given_an_opened_agent_opens_nothing_for_its_sessions():
    counter = Counter()
    model = ScriptedModel([call("count"), text("one"), call("count"), text("two")])
    journal = MemoryJournal()

    async with Agent(model, name="clerk", tools=[counter]).open() as opened:
        worker = Worker(journal, [opened], concurrency=1)
        running = asyncio.create_task(worker.run())
        for _ in range(2):
            session_id = await submit(journal, "clerk", "Count")
            assert (await wait_for_result(journal, session_id)).completed
        worker.stop()
        await running
        assert counter.count == 2

    assert counter.log == ["opening", "closed"]


async def test_an_opened_agent_describes_itself_as_before():
    agent = Agent(ScriptedModel([text("ok")]), name="clerk", tools=[Counter()])

    async with agent.open() as opened:
        assert opened.describe() == agent.describe()
        assert opened.fingerprint == agent.fingerprint
