"""The face of a run: as a result, as events, as a stream, from code that is not async; and how it is cancelled."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from loop_tools import echo_tool
from pipeline_tools import Recorder, act
from treadle import Agent, Budget, ConfigurationError, Tool, ToolContext, ask, open_session
from treadle.errors import SessionHeld
from treadle.events import AnyEvent, RunStarted, on
from treadle.messages import Message, Text, ToolCall
from treadle.testing import FakeClock, FixedRandomness, Gate, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject, ToolResult


def types(events: list[AnyEvent]) -> list[str]:
    return [event.type for event in events]


def gated(entered: Gate, leave: Gate, *, effect: str = "read") -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        entered.open()
        await leave.wait()
        return "left"

    return act(run, "wait", effect=effect, timeout=None)


@pytest.mark.row("E01", "E02", "S11", "S14")
async def test_the_event_stream_tells_the_whole_run_in_order_with_ids_and_durations():
    unsafe = Tool(name="act", description="Act.", parameters={}, permission="allow", run=_act)
    model = ScriptedModel([[text("I look"), call("act")], text("done")])
    async with Agent(model, tools=[unsafe]).stream("go") as run:
        events = [event async for event in run]

    journaled = [event for event in events if not event.is_live]
    assert types(journaled) == [
        "run.started", "message.added",
        "model.started", "model.finished", "call.decided", "tool.started", "tool.finished",
        "model.started", "model.finished", "run.finished",
    ]  # fmt: skip
    assert [event.seq for event in journaled] == list(range(1, 11))
    assert {event.session_id for event in events} == {run.result.session_id}
    assert len({event.run_id for event in events}) == 1
    assert {event.call_id for event in journaled[4:7]} == {"call_1"}
    assert [event.step for event in journaled] == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]
    started, finished = journaled[2], journaled[3]
    assert finished.duration_seconds >= 0
    assert started.model == "scripted"
    assert journaled[6].result.duration_seconds > 0
    assert next(event.text for event in events if event.type == "model.delta" and event.text).startswith("I")


async def _act(arguments: JsonObject, ctx: ToolContext) -> str:
    return "acted"


@pytest.mark.row("E02")
@pytest.mark.parametrize("error", [RuntimeError("listener"), SystemExit(1), asyncio.CancelledError()], ids=repr)
async def test_a_listener_that_raises_changes_nothing_and_one_may_choose_what_it_hears(error):
    heard: list[str] = []

    def broken(event: AnyEvent) -> None:
        raise error

    def script() -> ScriptedModel:
        return ScriptedModel([call("echo", x=1), text("done")])

    choosy = on("tool.started", "tool.finished", call=lambda event: heard.append(event.type))
    alone = await Agent(script(), tools=[echo_tool()]).run("go")
    watched = await Agent(script(), tools=[echo_tool()], subscribers=[broken, choosy]).run("go")

    assert heard == ["tool.started", "tool.finished"]
    assert [m.parts[0] for m in watched.messages[:2]] == [m.parts[0] for m in alone.messages[:2]]
    assert watched.completed


# --- cancelling
async def test_leaving_the_stream_early_by_an_exception_ends_the_run():
    entered, leave = Gate(), Gate()
    agent = Agent(ScriptedModel([call("wait")]), tools=[gated(entered, leave)])
    async with open_session("memory:") as session:
        with pytest.raises(ValueError, match="mine"):
            async with agent.stream("go", session=session) as run:
                await entered.wait()
                raise ValueError("mine")
        assert session.state.run_status == "stopped"
        assert not session.is_running
    assert run.result.reason == "cancelled"  # it has ended, and says how


async def test_a_run_that_has_not_begun_says_what_to_do_first():
    run = Agent(ScriptedModel([text("done")])).stream("go")

    with pytest.raises(RuntimeError, match="has not ended"):
        _ = run.result
    with pytest.raises(RuntimeError, match="Enter the run first"):
        async for _ in run:
            pass
    with pytest.raises(RuntimeError, match="has not begun"):
        await run.steer("Hurry.")
    assert (await run.finish()).text == "done"


@pytest.mark.row("H08")
@pytest.mark.parametrize("turns", [None, 0, 1, 2, 3])
async def test_a_run_that_is_cancelled_before_its_session_is_open_ends_as_cancelled(turns, tmp_path):
    """None: before it has begun; else after so many turns of the event loop."""
    model = ScriptedModel([text("never")])
    async with open_session(tmp_path / "j.db") as session:
        run = Agent(model).stream("go", session=session)
        if turns is None:
            run.cancel()
        async with run:
            for _ in range(turns or 0):
                await asyncio.sleep(0)
            run.cancel()
        types_of = types(await session.events())

    assert (run.result.reason, model.requests) == ("cancelled", [])
    assert types_of == ["run.started", "message.added", "run.finished"]


async def test_a_caller_that_leaves_before_the_session_is_open_leaves_nothing_behind():
    model = ScriptedModel([text("never")])
    async with open_session("memory:") as session:
        with pytest.raises(ValueError, match="mine"):
            async with Agent(model).stream("go", session=session):
                raise ValueError("mine")

        assert (model.requests, list(await session.events())) == ([], [])


async def test_a_resume_without_a_budget_goes_on_with_the_one_that_the_run_was_given():
    agent = Agent(ScriptedModel([call("echo", n=n) for n in range(9)]), tools=[echo_tool()], on_limit="report")
    async with open_session("memory:") as session:
        await agent.run("go", session=session, budget=Budget(max_model_turns=1))
        result = await agent.resume(session)

    assert (result.report()["budget"], result.report()["limit"]) == ("max_model_turns", 1)


async def test_an_interceptor_that_hangs_after_a_call_does_not_outlive_the_run():
    hanging = asyncio.Event()

    class Hanging:
        def before(self, call: ToolCall) -> ToolCall:
            return call

        async def after(self, call: ToolCall, result: ToolResult) -> ToolResult:
            hanging.set()
            await asyncio.Event().wait()
            return result

    agent = Agent(ScriptedModel([call("echo", x=1)]), tools=[echo_tool()], interceptors=[Hanging()])
    async with agent.stream("go") as run:
        await hanging.wait()
        run.cancel()

    assert run.result.reason == "cancelled"
    assert [one.status for one in run.result.tool_calls] == ["ok"]  # it was done, whatever came after


async def test_what_a_run_raises_reaches_whoever_goes_through_it():
    class Broken(ScriptedModel):
        async def stream(self, request):
            raise ZeroDivisionError("adapter bug")
            yield

    with pytest.raises(ZeroDivisionError):
        await Agent(Broken([text("x")])).run("go")
    with pytest.raises(ZeroDivisionError):
        async with Agent(Broken([text("x")])).stream("go") as run:
            async for _ in run:
                pass


# --- not async
async def test_run_sync_inside_async_code_says_what_to_write_instead():
    with pytest.raises(RuntimeError, match=r"await agent\.run"):
        Agent(ScriptedModel([text("x")])).run_sync("go")


def test_run_sync_works_from_many_threads_on_one_loop():
    loops: list[int] = []

    async def run(arguments: JsonObject, ctx: ToolContext) -> None:
        loops.append(id(asyncio.get_running_loop()))

    def work(_: int) -> str:
        return Agent(ScriptedModel([call("act"), text("done")]), tools=[act(run)]).run_sync("go").text

    with ThreadPoolExecutor(5) as threads:
        assert [*threads.map(work, range(5))] == ["done"] * 5
    assert len(set(loops)) == 1


def test_a_paused_run_goes_on_without_async_code():
    agent = Agent(ScriptedModel([call("act"), text("done")]), tools=[act(Recorder(), permission="ask")])
    paused = agent.run_sync("go")
    assert paused.reason == "approval_required"
    asyncio.run(paused.session.answer(paused.approvals[0].id, "allow"))
    assert agent.resume_sync(paused.session).text == "done"


@pytest.mark.parametrize(("at", "times", "last"), [("tool.started", 1, "['tool.finished', 'run.finished']"), ("run.started", 20, "run.finished")])  # fmt: skip
def test_ctrl_c_in_run_sync_cancels_the_run_and_comes_through_whatever_the_caller_has_come_to(at, times, last):
    """At the first event the caller may not wait yet: no run continues behind its back."""
    child = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests run with it ignored\n"
        "from treadle import Agent, Tool\n"
        "from treadle.testing import Gate, ScriptedModel, call\n"
        "async def run(arguments, ctx):\n"
        "    await Gate().wait()\n"
        "tool = Tool(name='t', description='d', parameters={}, effect='read', run=run)\n"
        "def hear(event):\n"
        "    events.append(event.type)\n"
        f"    if event.type == '{at}':\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.setswitchinterval(1e-6)\n"
        f"for _ in range({times}):\n"
        "    events = []\n"
        "    try:\n"
        "        Agent(ScriptedModel([call('t')]), tools=[tool], subscribers=[hear]).run_sync('go')\n"
        "    except KeyboardInterrupt:\n"
        f"        print({'events[-1]' if times > 1 else 'events[-2:]'})\n"
    )
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=110)
    assert done.stdout.splitlines() == [last] * times, done.stderr


# --- the description
@pytest.mark.row("T01")
async def test_what_the_model_is_told_of_a_tool_and_its_longer_guidance():
    tool = Tool(
        name="act", description="Act.", parameters={}, effect="read", guidance="Only on Mondays.",
        examples=({"x": 1},), run=_act,
    )  # fmt: skip
    model = ScriptedModel([text("x")])
    await Agent(model, tools=[tool, echo_tool("b")], instructions="Be brief.").run("go")

    request = model.requests[0]
    assert request.instructions == "Be brief.\n\n## act\nOnly on Mondays."
    assert [(spec.name, "Examples" in spec.description) for spec in request.tools] == [("act", True), ("b", False)]
    assert "Mondays" not in request.tools[0].description


async def test_a_task_may_be_a_message_of_several_parts():
    model = ScriptedModel([text("x")])
    task = Message(role="user", parts=(Text("one "), Text("two")))
    result = await Agent(model).run(task)
    assert model.requests[0].messages == (task,)
    assert result.messages[0].text == "one two"


async def test_text_that_is_no_unicode_is_replaced_and_never_breaks_the_journal():
    async with open_session("memory:") as session:
        result = await Agent(ScriptedModel([text("x")])).run("caf\udce9", session=session)
    assert result.messages[0].text == "caf?"


@pytest.mark.row("R06")
async def test_the_pause_between_attempts_grows_with_full_jitter_and_honours_retry_after():
    clock, chance = FakeClock(auto=True), FixedRandomness([0.5])
    turns = [Turn(status=503)] * 3 + [Turn(status=429, headers={"retry-after": "20"})] + [Turn(text="done")]
    async with open_session("memory:", clock=clock, randomness=chance) as session:
        events: list[AnyEvent] = []
        agent = Agent(ScriptedModel(turns), subscribers=[events.append], budget=Budget(max_wall_time_seconds=None))
        result = await agent.run("go", session=session)

    assert result.completed
    waits = [event.retry_in_seconds for event in events if event.type == "model.failed"]
    assert waits == [0.5, 1.0, 2.0, 20.0]


async def test_a_provider_that_asks_for_half_an_hour_is_not_waited_for():
    model = ScriptedModel([Turn(status=429, headers={"retry-after": "1800"})])
    result = await Agent(model).run("go")
    assert (result.reason, len(model.requests)) == ("model_error", 1)
    assert "asks to wait 1,800 s" in (result.message or "")


@pytest.mark.row("H12")
async def test_a_held_session_that_the_caller_handles_is_no_logged_error(caplog):
    gate = Gate()
    async with open_session("memory:") as session:
        agent = Agent(ScriptedModel([Turn(text="done", gate=gate)]))
        async with agent.stream("first", session=session) as first:
            async for event in first:
                if event.type != "model.started":
                    continue
                with pytest.raises(SessionHeld):
                    await agent.run("second", session=session)
                with pytest.raises(SessionHeld):
                    async with agent.stream("third", session=session) as third:
                        async for _ in third:
                            pass
                gate.open()
    assert caplog.records == []


async def test_the_steps_of_a_new_task_hold_no_step_of_the_one_before_whose_calls_it_settles():
    asking = Agent(ScriptedModel([call("echo", n=1)]), tools=[echo_tool()], policy=ask("echo"))
    async with open_session("memory:") as session:
        await asking.run("go", session=session)
        async with Agent(ScriptedModel([text("done")])).stream("another", session=session) as run:
            steps = [(step.number, step.message.text) async for step in run.steps()]

    assert steps == [(1, "done")]


# --- what cannot be stored
@pytest.mark.row("SF15")
@pytest.mark.parametrize("origin", [["folder"], {"folder": "\ud800"}, {"at": float("nan")}, {1: 2}])
def test_what_a_run_is_to_remember_must_be_an_object_that_can_be_stored(origin):
    run = Agent(ScriptedModel([text("x")])).stream("go")

    with pytest.raises(ConfigurationError, match="must be a JSON object"):
        run.remember(origin)


@pytest.mark.row("N13")
async def test_what_a_run_is_to_remember_is_on_record():
    run = Agent(ScriptedModel([text("x")])).stream("go")
    run.remember({"folder": "/srv"})
    async with run:
        pass

    state = run.result.session.state.run
    assert state is not None
    assert state.origin == {"folder": "/srv"}


async def test_a_listener_s_interrupt_reaches_the_person():
    def stops(event: Any) -> None:
        if event.type == "run.started":
            raise KeyboardInterrupt

    async with open_session("memory:") as session:
        session.ledger.subscribers.append(stops)
        with pytest.raises(KeyboardInterrupt):
            await session.ledger.record(RunStarted(task="go"))
