"""Calls that had started or waited when their run was lost or ended: what is recorded of them, and what the model reads."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import DyingJournal, Recorder, act, raising, results, statuses, types
from treadle import Agent, Budget, Decision, Suspended, Tool, ToolContext, allow, ask, open_session
from treadle.errors import JournalError, SessionConflict
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.ports import Lease
from treadle.testing import FakeClock, Gate, ScriptedModel, call, text
from treadle.tools import JsonObject


# --- after a death
async def killed(
    turns: list[Any], tools: list[Tool], before: str | None = None, call_id: str | None = None, *, clock: Any = None, **words: Any
) -> DyingJournal:  # fmt: skip
    """Return the journal of a run that was killed before such an event was stored; it works again."""
    journal = DyingJournal(None, before, call_id=call_id)
    async with open_session(journal, id="s", clock=clock) as session:
        with pytest.raises(JournalError, match="gone"):
            await Agent(ScriptedModel(turns), tools=tools, **words).run("go", session=session)
    journal.dies = False
    return journal


@pytest.mark.row("B03", "B15")
async def test_the_running_time_of_a_killed_process_counts_after_it_and_the_time_between_does_not():
    clock, budget = FakeClock(), Budget(max_wall_time_seconds=100)

    async def work(arguments: Any, ctx: Any) -> str:
        clock.advance(40.0)
        return "done"

    turns = [call("act", n=1), text("Done.")]
    journal = await killed(turns, [act(work)], "run.finished", clock=clock, budget=budget)
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
async def test_a_call_in_doubt_that_is_denied_now_is_told_as_unknown_and_not_as_denied(effect, allowed):
    recorder = Recorder()
    tools = [act(recorder, effect=effect)]
    async with open_session(await killed([call("act", n=1)], tools), id="s") as session:
        result = await Agent(ScriptedModel([text("x")]), tools=tools, policy=Wavering(allowed)).resume(session)

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
async def test_a_run_that_has_lost_its_session_waits_for_no_tool_that_would_rather_end_by_itself(caplog):
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


# --- calls that may have acted
@pytest.mark.row("R05", "TF9")
async def test_a_call_that_may_have_acted_and_is_cancelled_before_it_runs_again_is_told_as_unknown():
    recorder = Recorder()
    tools = [act(recorder, effect="idempotent")]
    async with open_session(await killed([call("act", n=1)], tools), id="s") as session:
        run = Agent(ScriptedModel([text("x")]), tools=tools).stream_resume(session)
        run.subscribe(lambda event: run.cancel() if event.type == "call.decided" else None)
        async with run:
            pass

    assert (statuses(run.result), recorder.runs) == (["outcome_unknown"], 1)
    assert "may have taken effect" in results(run.result)[0]["message"]


@pytest.mark.parametrize(
    ("effect", "status"), [("keyed", "outcome_unknown"), ("idempotent", "outcome_unknown"), ("read", "skipped")]
)
async def test_a_started_call_that_the_end_of_the_run_overtakes_is_in_doubt_where_it_acts(effect, status):
    """`finish` ends the run, and its result is stored; `pay`, which ran beside it, was not told when the process died."""
    finished, ran = asyncio.Event(), []

    async def pay(arguments: JsonObject, ctx: ToolContext) -> str:
        ran.append(ctx.call.id)
        await finished.wait()
        return "paid"

    def hear(event: AnyEvent) -> None:
        if event.type == "tool.finished" and event.call_id == "f":
            finished.set()

    end = act(Recorder(), "finish", effect="idempotent", ends_run=True, resources=lambda _: {"finish": "write"})
    tools = [act(pay, "pay", effect=effect, key=lambda _: "k", resources=lambda _: {"pay": "write"}), end]
    turns = [[call("pay", id="p"), call("finish", id="f")]]
    async with open_session(await killed(turns, tools, "tool.finished", "p", subscribers=[hear]), id="s") as session:
        result = await Agent(ScriptedModel([text("x")]), tools=tools).resume(session)
        await check_session(session)

    assert [(one.id, one.status) for one in result.tool_calls] == [("p", status), ("f", "ok")]
    assert ran == ["p"]


async def test_a_call_that_had_started_takes_no_place_of_those_that_a_smaller_budget_still_covers():
    recorder = Recorder()
    tools = [act(recorder, "pay", effect="keyed")]
    turns = [[call("pay", id=one, n=n) for n, one in enumerate("pqr")]]
    async with open_session(await killed(turns, tools, "tool.finished", "p"), id="s") as session:
        await Agent(ScriptedModel([text("x")]), tools=tools).resume(session, budget=Budget(max_tool_calls=2))
        await check_session(session)

    assert [context.call.id for context in recorder.contexts] == ["p", "p", "q"]


# --- what is settled without a run
@pytest.mark.row("Q10", "ST10")
@pytest.mark.parametrize(("effect", "doubts"), [("unsafe", ["p"]), ("idempotent", ["p"]), ("read", [])])
async def test_a_rewind_records_the_doubt_about_a_call_that_had_started(effect, doubts):
    journal = await killed([call("pay", id="p")], [act(Recorder(), "pay", effect=effect)])
    async with open_session(journal, id="s") as session:
        await session.rewind(2)
        events = await session.events()

    assert [event.call_id for event in events if event.type == "tool.in_doubt"] == doubts
    (finished,) = [event for event in events if event.type == "tool.finished"]
    assert finished.result.status == ("outcome_unknown" if doubts else "cancelled")


async def test_a_call_that_still_waits_when_its_sibling_ends_the_run_is_told_as_given_up():
    letters: list[str] = []

    async def read_letter(arguments: JsonObject, ctx: ToolContext) -> str:
        if not letters:
            raise Suspended("a letter")
        return letters[0]

    tools = [act(read_letter, "letter", ends_run=True), act(raising(Suspended("the bank")), "bank")]
    async with open_session("memory:") as session:
        model = ScriptedModel([[call("letter", id="a"), call("bank", id="b")]])
        paused = await Agent(model, tools=tools).run("go", session=session)
        assert paused.reason == "input_required"
        letters.append("yes")
        done = await Agent(ScriptedModel([text("never")]), tools=tools).resume(session)
        await check_session(session)

    assert (done.reason, done.output) == ("done_condition_satisfied", "yes")
    [told] = [result for message in done.messages for result in message.results if result.call_id == "b"]
    said = msgspec.json.decode(told.content)
    assert (said["type"], said["code"]) == ("cancelled", "suspended_call_ended")
    assert "waited for the bank" in said["message"]


@pytest.mark.parametrize(("asks", "reason"), [(True, "approval_required"), (False, "input_required")])
async def test_a_suspension_says_whether_it_waits_for_consent_or_for_an_input(asks, reason):
    below = Agent(ScriptedModel([call("pay", id="p")]), tools=[act(Recorder(), "pay")], policy=ask("pay"))
    tool = below.as_tool("clerk", "Pays.") if asks else act(raising(Suspended("a number")), "clerk")
    model = ScriptedModel([call("clerk", task="pay")])
    paused = await Agent(model, tools=[tool], policy=allow("clerk")).run("go")

    [event] = await types(paused, "tool.suspended")
    assert (event.reason, paused.reason) == (reason, reason)
