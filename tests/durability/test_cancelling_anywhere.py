"""Cancelling at every event of whole runs, by `run.cancel()` and by cancelling the task: one ending for every instant."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from invariants import check_session
from treadle import Agent, Budget, Run, Session, Tool, ToolContext, open_session
from treadle.errors import ModelUnavailable, Transient
from treadle.events import AnyEvent
from treadle.testing import FakeClock, FixedRandomness, Gate, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject

ANYTHING: JsonObject = {"type": "object", "additionalProperties": True}


class Town(msgspec.Struct):
    name: str


def tool(name: str, effect: Any = "read", permission: Any = "allow", run: Any = None) -> Tool:
    async def quick(arguments: JsonObject, ctx: ToolContext) -> str:
        ctx.progress("half")
        await asyncio.sleep(0)
        return "done"

    return Tool(
        name=name, description=name, parameters=ANYTHING, effect=effect, permission=permission, run=run or quick
    )


def parallel_batch() -> Agent:
    calls = [call("look", n=1), call("look", n=2), call("pay", n=3), call("look", n=4)]
    return Agent(ScriptedModel([calls, text("Done.")]), tools=[tool("look"), tool("pay", "unsafe")])


def approval() -> Agent:
    calls = [call("look", n=1), call("buy", n=2), call("buy", n=3)]
    return Agent(ScriptedModel([calls, text("Done.")]), tools=[tool("look"), tool("buy", "unsafe", "ask")])


def early_start() -> Agent:
    gate = Gate()

    def watch(event: AnyEvent) -> None:
        if event.type == "tool.finished":
            gate.open()

    turn = Turn(calls=(call("look", n=1), call("pay", n=2)), gate=gate, hold_after_call=0)
    model = ScriptedModel([turn, text("Done.")])
    return Agent(model, tools=[tool("look"), tool("pay", "unsafe")], subscribers=[watch])


def broken_early_start() -> Agent:
    gate = Gate()

    def watch(event: AnyEvent) -> None:
        if event.type == "tool.started":
            gate.open()

    broken = Turn(calls=(call("look", n=1), call("look", n=2)), cut="before-terminal", gate=gate, hold_after_call=0)
    return Agent(ScriptedModel([broken, [call("look", n=1)], text("Done.")]), tools=[tool("look")], subscribers=[watch])


def retries() -> Agent:
    failures = iter([Transient("busy"), Transient("busy")])

    async def flaky(arguments: JsonObject, ctx: ToolContext) -> str:
        if (error := next(failures, None)) is not None:
            raise error
        return "done"

    busy = ModelUnavailable("503", status=503)
    model = ScriptedModel([busy, busy, call("flaky"), busy, text("Done.")])
    return Agent(model, tools=[tool("flaky", "keyed", run=flaky)])


def closing_request() -> Agent:
    model = ScriptedModel([[call("look", n=1), call("pay", n=2)], text("So far.")])
    return Agent(model, tools=[tool("look"), tool("pay", "unsafe")], budget=Budget(max_model_turns=1))


def structured_answer() -> Agent:
    return Agent(
        ScriptedModel([text("Bree"), call("look"), text('{"name": "Bree"}')]), tools=[tool("look")], output=Town
    )


def agent_as_tool() -> Agent:
    child = Agent(ScriptedModel([call("look"), text("Found.")]), tools=[tool("look")])
    helper = child.as_tool("helper", "Ask a helper.", effect="read")
    return Agent(ScriptedModel([[call("helper", task="look")], text("Done.")]), tools=[helper])


SCENARIOS: dict[str, Callable[[], Agent]] = {
    made.__name__: made
    for made in (
        parallel_batch,
        approval,
        early_start,
        broken_early_start,
        retries,
        closing_request,
        structured_answer,
        agent_as_tool,
    )
}


class Life:
    """One session's life: a run, the answers to what it asks, and its resumption. It is cancelled at one event."""

    def __init__(self, agent: Agent, session: Session, *, way: str, at: int) -> None:
        self.agent = agent
        self.session = session
        self.events: list[str] = []
        self._way = way
        self._at = at
        self._run: Run | None = None
        self._task: asyncio.Task[Any] | None = None

    @property
    def is_cancelled(self) -> bool:
        return len(self.events) > self._at

    def _hear(self, event: AnyEvent) -> None:
        self.events.append(event.type)
        if len(self.events) == self._at + 1:
            assert self._run is not None
            assert self._task is not None
            if self._way == "run.cancel":
                self._run.cancel()
            else:
                self._task.cancel()

    async def live(self) -> None:
        await self._carry_out(self.agent.stream("go", session=self.session))
        while self.session.approvals() and not self.is_cancelled:
            for one in self.session.approvals():
                await self.session.answer(one.id, "allow")
            await self._carry_out(self.agent.stream_resume(self.session))

    async def _carry_out(self, run: Run) -> None:
        self._run = run
        run.subscribe(self._hear)
        self._task = asyncio.create_task(run.finish())
        try:
            await self._task
        except asyncio.CancelledError:
            assert self._way == "task.cancel", "run.cancel() is not an exception"

    async def ends(self) -> Sequence[str]:
        kinds = [event.type for event in await self.session.events()]
        return [kind for kind in kinds if kind in ("run.finished", "run.paused")]


@pytest.mark.row("H08")
@pytest.mark.parametrize("way", ["run.cancel", "task.cancel"])
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_run_that_is_cancelled_at_any_event_has_an_end_and_leaves_nothing_open(name: str, way: str) -> None:
    at = 0
    while True:
        async with open_session("memory:", clock=FakeClock(auto=True), randomness=FixedRandomness([0.5])) as session:
            life = Life(SCENARIOS[name](), session, way=way, at=at)
            await life.live()
            await check_session(session)
            where = f"cancelled at event {at}: {life.events[at : at + 1]}"
            assert session.state.run is not None
            assert session.state.run.status != "running", where
            assert asyncio.all_tasks() == {asyncio.current_task()}, where
            if not life.is_cancelled:
                assert session.state.run.status in ("completed", "stopped"), "the scenario is carried to its end"
                break
            if session.state.run.status == "paused":  # it was paused as it was cancelled: its calls still wait
                assert life.events[at] == "run.paused", where
            else:
                assert session.approvals() == (), where
                assert not session.state.has_open_calls, where
            await _goes_on(session, where)
        at += 1


async def _goes_on(session: Session, where: str) -> None:
    """The session can be used: another task is carried out in it."""
    result = await Agent(ScriptedModel([text("Another.")])).run("another task", session=session)
    assert (result.reason, result.text) == ("completed", "Another."), where
    await check_session(session)


@pytest.mark.row("H08")
async def test_an_answer_to_a_run_that_was_cancelled_as_it_resumed_leads_to_no_open_approval() -> None:
    agent = approval()
    async with open_session("memory:") as session:
        await agent.run("go", session=session)
        for one in session.approvals():
            await session.answer(one.id, "allow")
        run = agent.stream_resume(session)
        run.subscribe(lambda event: run.cancel() if event.type == "run.resumed" else None)
        result = await run.finish()

        assert [record.status for record in result.tool_calls] == ["ok", "skipped", "skipped"]
        assert await session.approvals() == ()
        assert (await agent.resume(session)).completed
        await check_session(session)
