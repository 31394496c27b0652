"""Promises that one wrong line once broke without any test noticing: each test here was seen to fail with that line."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, on_fake_clock, raising, read, results, run_calls, statuses, tool_of, types
from treadle import Agent, Budget, Decision, JournalError, Tool, ask, open_session
from treadle.errors import ApprovalExpired, SessionConflict
from treadle.events import AnyEvent, ModelFinished, RunFinished
from treadle.journals.memory import MemoryJournal
from treadle.messages import Finish, Text, Usage
from treadle.ports import Lease, ModelEnd, ModelPart, ModelRequest, TextDelta
from treadle.testing import FakeClock, Gate, ScriptedModel, Turn, call, text

N = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 12}}, "required": ["n"]}

# --- the end of a run


@pytest.mark.row("L10", "L06")
@pytest.mark.parametrize("budget", [Budget(max_model_turns=2), Budget(max_tool_calls=2)], ids=["turns", "calls"])
async def test_what_the_closing_response_calls_is_never_carried_out(budget: Budget) -> None:
    recorder = Recorder()
    model = ScriptedModel([call("look", n=1), call("look", n=2), call("pay", n=3), text("never")])

    result = await Agent(model, tools=[read(Recorder()), act(recorder, "pay")], budget=budget).run("go")

    assert recorder.runs == 0
    assert statuses(result) == ["ok", "ok", "skipped"]
    assert "the run is at its limit" in results(result)[2]["message"]
    assert (result.completed, len(model.requests)) == (False, 3)
    await check_session(result.session)


@pytest.mark.row("L22")
async def test_a_step_is_shown_while_the_run_goes_on() -> None:
    model = ScriptedModel([call("look", n=n) for n in range(50)])
    shown: list[int] = []

    async with Agent(model, tools=[read(Recorder())]).stream("go") as run:
        async for step in run.steps():
            shown.append(len(step.messages))
            if len(shown) == 2:
                run.cancel()

    assert run.result.reason == "cancelled"
    assert shown[:2] == [3, 5]
    assert len(model.requests) < 50


@pytest.mark.row("L21")
@pytest.mark.parametrize("on_limit", ["report", "summarize"])
async def test_the_end_of_a_stopped_run_has_the_last_text_in_its_record(on_limit: Any) -> None:
    turns = [Turn(text=f"Looking {n}", calls=(call("look", n=n),)) for n in range(9)]
    budget = Budget(max_model_turns=2)

    result = await Agent(ScriptedModel(turns), tools=[read(Recorder())], budget=budget, on_limit=on_limit).run("go")

    last = "Looking 1" if on_limit == "report" else "Looking 2"
    (ended,) = [event for event in await result.session.events() if isinstance(event, RunFinished)]
    assert (ended.text, result.text, ended.status) == (last, last, "stopped")


@pytest.mark.row("L15")
@pytest.mark.parametrize("error", [RuntimeError("broke"), ConnectionError("gone")])
async def test_a_failed_call_of_a_tool_that_ends_the_run_does_not_end_it(error: BaseException) -> None:
    submit = read(raising(error), "submit", ends_run=True, retries=0)

    result = await run_calls(call("submit", answer=1), tools=[submit], answer="I could not submit.")

    assert (result.reason, result.text, statuses(result)) == ("completed", "I could not submit.", ["failed"])


@pytest.mark.row("L15")
async def test_every_call_beside_one_that_ends_the_run_has_a_result_and_those_that_ran_keep_theirs() -> None:
    async def submit(arguments: Any, ctx: Any) -> Any:
        return {"answer": 42}

    tools = [read(Recorder("seen")), read(submit, "submit", ends_run=True), act(Recorder("acted"))]
    batch = [call("look"), call("nope"), call("submit"), call("act", n=1), call("look", n=2)]

    result = await run_calls(*batch, tools=tools)

    assert (result.reason, result.report()["output"]) == ("done_condition_satisfied", {"answer": 42})
    assert statuses(result) == ["ok", "unknown_tool", "ok", "skipped", "skipped"]
    await check_session(result.session)


# --- what a tool is given


@pytest.mark.row("T03", "T04")
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_the_messages_that_a_tool_sees_are_a_copy_that_nothing_changes(effect: str) -> None:
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


@pytest.mark.row("T04")
async def test_a_tool_has_the_history_the_application_and_the_signal_to_stop() -> None:
    begun, told = asyncio.Event(), []

    async def run(arguments: Any, ctx: Any) -> Any:
        told.append((ctx.deps, [message.text for message in ctx.session.messages], ctx.cancelled))
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.cancelled)

    agent = Agent(ScriptedModel([call("act", n=1)]), tools=[act(run)])
    async with agent.stream("the task", deps={"db": 1}) as run_:
        await begun.wait()
        run_.cancel()

    assert told[0][0] == {"db": 1}
    assert told[0][1][0] == "the task"
    assert (told[0][2], told[1]) == (False, True)


@pytest.mark.row("T11")
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "returns-at-once"])
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_progress_of_an_async_tool_comes_before_its_end_and_never_to_the_model(waits: bool, effect: str) -> None:
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


@pytest.mark.row("T05", "B02")
@pytest.mark.parametrize(
    ("own", "budget", "attempts"), [(5, 1, 2), (0, 3, 1), (1, 3, 2), (None, 2, 3), (5, 0, 1), (4, None, 5)]
)
async def test_the_smaller_number_of_retries_holds(own: int | None, budget: int | None, attempts: int) -> None:
    flaky = read(raising(ConnectionError("no")), retries=own)
    async with on_fake_clock() as session:
        limits = Budget(max_retries_per_tool_call=budget)
        result = await run_calls(call("look"), tools=[flaky], budget=limits, session=session)

    assert [one.attempts for one in result.tool_calls] == [attempts]


# --- what the model is told


@pytest.mark.row("V04", "F03")
async def test_the_model_is_told_of_every_violation_with_field_constraint_and_value() -> None:
    schema = {
        "type": "object",
        "properties": {
            "quantity": {"type": "integer", "minimum": 1, "maximum": 12},
            "target": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            "where": {"enum": ["Skaro", "Earth"]},
        },
        "required": ["quantity", "when"],
        "additionalProperties": False,
    }
    wrong = {"quantity": "many", "target": {"name": 3}, "where": "Mars", "extra": True}

    result = await run_calls(call("summon", **wrong), tools=[tool_of(Recorder(), "summon", parameters=schema)])

    told = results(result)[0]["details"]
    assert {row["field"]: row["value"] for row in told if row["field"] != "when"} == {
        "quantity": "many", "target.name": 3, "where": "Mars", "extra": True,
    }  # fmt: skip
    assert sorted(row["field"] for row in told) == ["extra", "quantity", "target.name", "when", "where"]
    assert next(row["constraint"] for row in told if row["field"] == "quantity") == "integer 1..12"


class Slowly:
    """A model whose every part takes its time."""

    name, price = "slow", None

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        self._clock.advance(2.0)
        yield TextDelta(text="Good ")
        self._clock.advance(3.0)
        yield TextDelta(text="morning.")
        self._clock.advance(4.0)
        yield ModelEnd(parts=(Text("Good morning."),), finish=Finish.STOP, usage=Usage(input_tokens=1, output_tokens=2))


@pytest.mark.row("W09")
async def test_the_time_to_the_first_token_is_not_the_time_of_the_whole_response() -> None:
    clock = FakeClock()
    heard: list[AnyEvent] = []
    async with open_session("memory:", clock=clock) as session:
        await Agent(Slowly(clock), subscribers=[heard.append]).run("go", session=session)

    (finished,) = [event for event in heard if isinstance(event, ModelFinished)]
    assert (finished.first_token_seconds, finished.duration_seconds) == (2.0, 9.0)


# --- consent


class Desk:
    """A session with one call that waits for consent, and what becomes of it under another tool."""

    def __init__(self) -> None:
        self.journal, self.clock, self.recorder = MemoryJournal(), FakeClock(), Recorder()

    def tool(self, **words: Any) -> Tool:
        return tool_of(self.recorder, "pay", **{"parameters": N, "effect": "unsafe", **words})

    async def ask(self, tool: Tool) -> Any:
        async with open_session(self.journal, id="s", clock=self.clock) as session:
            model = ScriptedModel([call("pay", n=1)])
            return await Agent(model, tools=[tool], policy=ask("pay")).run("go", session=session)

    async def answer(self, approval_id: str) -> None:
        async with open_session(self.journal, id="s", clock=self.clock) as session:
            await session.answer(approval_id, "allow")

    async def go_on(self, tool: Tool) -> Any:
        async with open_session(self.journal, id="s", clock=self.clock) as session:
            return await Agent(ScriptedModel([text("Paid.")]), tools=[tool], policy=ask("pay")).resume(session)


@pytest.mark.row("P06")
@pytest.mark.parametrize(
    "change",
    [
        {"effect": "idempotent"},
        {"output_schema": {"type": "string"}},
        {"parameters": {**N, "properties": {"n": {"type": "integer", "maximum": 99}}}},
    ],
    ids=["effect", "output_schema", "parameters"],
)
async def test_consent_to_a_tool_that_has_changed_since_is_asked_again(change: Any) -> None:
    desk = Desk()
    paused = await desk.ask(desk.tool())
    await desk.answer(paused.approvals[0].id)

    again = await desk.go_on(desk.tool(**change))

    assert (again.reason, desk.recorder.runs) == ("approval_required", 0)
    assert again.approvals[0].id != paused.approvals[0].id
    assert again.approvals[0].digest != paused.approvals[0].digest


@pytest.mark.row("P05", "P06")
@pytest.mark.parametrize("waits", [61.0, 6.9 * 86_400.0], ids=["1m", "6d"])
async def test_a_question_waits_for_days(waits: float) -> None:
    desk = Desk()
    paused = await desk.ask(desk.tool())
    desk.clock.advance(waits)
    await desk.answer(paused.approvals[0].id)

    done = await desk.go_on(desk.tool())

    assert (desk.recorder.runs, done.completed) == (1, True)


@pytest.mark.row("P05", "P06")
async def test_a_question_does_not_wait_for_ever() -> None:
    desk = Desk()
    paused = await desk.ask(desk.tool())
    desk.clock.advance(8 * 86_400.0)
    with pytest.raises(ApprovalExpired):
        await desk.answer(paused.approvals[0].id)

    again = await desk.go_on(desk.tool())

    assert (desk.recorder.runs, again.reason) == (0, "approval_required")


# --- after a death


class Dying(MemoryJournal):
    """A journal that stores nothing more once an event of this type comes, as when its process is killed right before."""

    def __init__(self, before: str) -> None:
        super().__init__()
        self.before = before

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if any(event.type == self.before for event in events):
            raise JournalError("killed")
        await super().append(session_id, events, state=state, durable=durable)


@pytest.mark.row("B03", "B15")
async def test_the_running_time_of_a_killed_process_counts_after_it_and_the_time_between_does_not() -> None:
    clock, journal = FakeClock(), Dying("run.finished")

    async def work(arguments: Any, ctx: Any) -> str:
        clock.advance(40.0)
        return "done"

    budget = Budget(max_wall_time_seconds=100)
    turns = [call("act", n=1), text("Done.")]
    async with open_session(journal, id="s", clock=clock) as session:
        with pytest.raises(JournalError, match="killed"):
            await Agent(ScriptedModel(turns), tools=[act(work)], budget=budget).run("go", session=session)
    journal.before = ""
    clock.advance(5000.0)

    async with open_session(journal, id="s", clock=clock) as session:
        agent = Agent(ScriptedModel([call("act", n=2), call("act", n=3), text("x")]), tools=[act(work)], budget=budget)
        result = await agent.resume(session)

    report = result.report()
    assert (report["reason"], report["budget"]) == ("budget_exceeded", "max_wall_time_seconds")
    assert statuses(result) == ["ok", "ok", "ok"]
    assert result.spent.wall_seconds == pytest.approx(120.0)


class Wavering:
    """A policy that allows so many times, and then nothing."""

    def __init__(self, times: int) -> None:
        self.times = times

    def decide(self, call: Any, session: Any) -> Decision:
        self.times -= 1
        return Decision(kind="allow" if self.times >= 0 else "deny", rule="wavering", reason="no more")


@pytest.mark.row("R05", "P03")
@pytest.mark.parametrize("effect", ["unsafe", "keyed", "idempotent"])
@pytest.mark.parametrize("allowed", [0, 1])
async def test_a_call_in_doubt_that_is_denied_now_is_told_as_unknown_and_not_as_denied(
    effect: str, allowed: int
) -> None:
    journal, recorder = Dying("tool.finished"), Recorder()
    tool = act(recorder, effect=effect)
    async with open_session(journal, id="s") as session:
        with pytest.raises(JournalError, match="killed"):
            await Agent(ScriptedModel([call("act", n=1)]), tools=[tool]).run("go", session=session)
    journal.before = ""

    async with open_session(journal, id="s") as session:
        result = await Agent(ScriptedModel([text("x")]), tools=[tool], policy=Wavering(allowed)).resume(session)

    assert (statuses(result), recorder.runs) == (["outcome_unknown"], 1)
    assert "may have taken effect" in results(result)[0]["message"]
    assert len(await types(result, "tool.in_doubt")) == (0 if allowed and effect != "unsafe" else 1)


class Silent:
    """A lease that says why it is lost."""

    loss = "the server was silent for 30 s"

    def __init__(self, lease: Lease) -> None:
        self.head, self.has_messages, self.release = lease.head, lease.has_messages, lease.release


class Leased(MemoryJournal):
    """A journal whose lease another process can take over, as a real one's."""

    def __init__(self) -> None:
        super().__init__()
        self.take_over: Callable[[], None] = lambda: None
        self._is_lost = False

    async def acquire(self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> Lease:
        def lose() -> None:
            self._is_lost = True
            on_lost()

        self.take_over = lose
        return Silent(await super().acquire(session_id, on_lost=on_lost, on_message=on_message))

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if self._is_lost:
            raise SessionConflict("taken over")
        await super().append(session_id, events, state=state, durable=durable)


@pytest.mark.row("SF5", "S22")
async def test_a_run_that_has_lost_its_session_waits_for_no_tool_that_would_rather_end_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal, entered, never = Leased(), Gate(), Gate()
    clock = FakeClock()
    cut: list[str] = []

    async def write(arguments: Any, ctx: Any) -> None:
        entered.open()
        try:
            await never.wait()
        except asyncio.CancelledError:
            cut.append("cut")
            raise

    tool = act(write, interrupt="block", timeout=3600.0)
    async with open_session(journal, id="s", clock=clock) as session:
        with pytest.raises(SessionConflict):
            async with Agent(ScriptedModel([call("act", n=1)]), tools=[tool]).stream("go", session=session) as run:
                await entered.wait()
                journal.take_over()
                for _ in range(200):
                    await asyncio.sleep(0)
                was_cut = list(cut)
                never.open()

    assert was_cut == ["cut"]
    assert run is not None
    assert "the server was silent for 30 s" in caplog.text
