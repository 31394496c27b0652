"""Scheduling: what runs side by side, what waits, and in which order results come back. Overlap is proved by barriers."""

import asyncio
import contextvars
import itertools
import subprocess
import sys
import threading

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, hang, on_fake_clock, read, results, run_calls, statuses, tool_of, types
from treadle import Agent, Budget, ConfigurationError, StopReason, open_session, resolve_model
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, MockProvider, ScriptedModel, call, text


class Overlap:
    """Counts how many are inside at once."""

    def __init__(self):
        self.now = self.most = 0
        self.order = []

    async def __call__(self, arguments, ctx):
        self.now += 1
        self.most = max(self.most, self.now)
        self.order.append(f"+{arguments.get('n')}")
        for _ in range(60):
            await asyncio.sleep(0)
        self.order.append(f"-{arguments.get('n')}")
        self.now -= 1
        return arguments.get("n")


@pytest.mark.row("S01")
async def test_reads_of_one_response_run_side_by_side():
    barrier = asyncio.Barrier(6)  # opens only when all six are inside

    async def run(arguments, ctx):
        await barrier.wait()
        return arguments["n"]

    result = await run_calls(*(call("look", n=n) for n in range(6)), tools=[read(run)])

    assert results(result) == [0, 1, 2, 3, 4, 5]


@pytest.mark.row("S01", "S16")
async def test_blocking_reads_run_side_by_side_in_threads_of_their_own():
    barrier = threading.Barrier(40)  # more than any default pool

    def run(arguments, ctx):
        barrier.wait(30)
        return threading.current_thread() is threading.main_thread()

    result = await run_calls(
        *(call("look", n=n) for n in range(40)), tools=[read(run)], budget=Budget(max_parallel_tool_calls=None)
    )

    assert results(result) == [False] * 40


@pytest.mark.row("S02", "S03", "S11")
@pytest.mark.parametrize("order", [*itertools.permutations(range(3)), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)], ids=str)
async def test_results_come_back_in_call_order_whatever_order_they_end_in(order):
    ends, seen = [asyncio.Event() for _ in order], []
    ends[order[0]].set()

    async def run(arguments, ctx):
        await ends[arguments["n"]].wait()
        return arguments["n"]

    def hear(event):
        if event.type == "tool.finished":
            seen.append(event.result.data)
            for n in order[len(seen) : len(seen) + 1]:
                ends[n].set()

    calls = [call("look", n=n) for n in range(len(order))]
    result = await run_calls(*calls, tools=[read(run)], subscribers=[hear])

    assert (tuple(seen), results(result)) == (order, [*range(len(order))])
    assert len([message for message in result.messages if message.role == "tool"]) == 1


@pytest.mark.row("S04", "S15")
async def test_reads_are_batched_between_writes_and_nothing_overtakes():
    overlap = Overlap()
    calls = [call("look" if kind == "R" else "act", n=n) for n, kind in enumerate("RRWRWR")]
    result = await run_calls(*calls, tools=[read(overlap), act(overlap)])

    assert sorted(overlap.order[:2]) == ["+0", "+1"]
    assert overlap.order[4:] == ["+2", "-2", "+3", "-3", "+4", "-4", "+5", "-5"]
    assert result.completed


@pytest.mark.row("S05")
async def test_the_effect_may_depend_on_the_arguments_and_a_predicate_that_raises_is_unsafe():
    overlap = Overlap()

    def effect(arguments):
        return {"ls": "read"}[arguments["command"]]

    ls, rm = [{"command": "ls", "n": n} for n in (1, 2)], {"command": "rm", "n": 3}
    tools = [tool_of(overlap, "shell", effect=effect, permission="allow")]
    result = await run_calls(*(call("shell", arguments=one) for one in (*ls, rm)), tools=tools)

    decided = await types(result, "call.decided")
    assert [event.effect for event in decided] == ["read", "read", "unsafe"]
    assert overlap.order[-2:] == ["+3", "-3"]
    assert sorted(overlap.order[:2]) == ["+1", "+2"]


@pytest.mark.row("S04", "T05")
async def test_writers_of_different_things_run_side_by_side_and_of_the_same_do_not():
    overlap = Overlap()

    def resources(arguments):
        arguments["path"] = "changed"  # a copy: it reaches nobody
        return {f"file:/{arguments['n']}": "write"}

    tools = [act(overlap, resources=resources)]
    result = await run_calls(call("act", n=1), call("act", n=2), call("act", n=2, x=1), tools=tools)

    assert overlap.order == ["+1", "+2", "-1", "-2", "+2", "-2"]
    assert result.completed


@pytest.mark.row("S06", "S15")
@pytest.mark.parametrize(
    "words",
    [{}, *({"resources": one} for one in (lambda _: 1 / 0, lambda _: None, lambda _: {"a": "everything"}, lambda _: {"*": "read"}))],
    ids=range(5),
)  # fmt: skip
async def test_tools_of_which_nobody_can_tell_what_they_touch_never_overlap(words):
    overlap = Overlap()
    await run_calls(
        call("act"), call("two"), call("act", n=2), tools=[act(overlap, **words), act(overlap, "two", **words)]
    )

    assert overlap.most == 1


@pytest.mark.row("B09")
@pytest.mark.parametrize("cap", [1, 2, 5])
@pytest.mark.parametrize("streamed", [True, False])
async def test_the_cap_on_parallel_calls_queues_and_rejects_nothing(cap, streamed):
    overlap = Overlap()
    calls = [call("look", n=n) for n in range(8)]
    first = [call("act", n=9)] if not streamed else []  # behind a write nothing starts early
    result = await run_calls(
        *first, *calls, tools=[read(overlap), act(overlap)], budget=Budget(max_parallel_tool_calls=cap)
    )

    assert set(statuses(result)) == {"ok"}
    assert overlap.most == cap
    await check_session(result.session)


@pytest.mark.row("R-MODE", "B09")
async def test_a_queued_call_that_is_decided_anew_runs_with_the_new_decision():
    """The mode changes while the second call waits for the slot of the first."""
    modes = []

    async def run(arguments, ctx):
        modes.append(ctx.decision.mode)
        if len(modes) == 1:
            await session.set_mode("bypass")

    tools = [act(run, resources=lambda arguments: {f"file:/{arguments['n']}": "write"})]
    one = Budget(max_parallel_tool_calls=1)
    async with open_session(MemoryJournal()) as session:
        result = await run_calls(call("act", n=1), call("act", n=2), tools=tools, budget=one, session=session)
        decided = await types(result, "call.decided")

    assert (statuses(result), modes) == (["ok", "ok"], ["ask", "bypass"])
    assert [(event.call_id, event.mode) for event in decided] == [
        ("call_1", "ask"),
        ("call_2", "ask"),
        ("call_2", "bypass"),
    ]


@pytest.mark.row("MF5")
async def test_a_thousand_calls_in_a_turn_all_get_results_up_to_the_budget():
    recorder = Recorder()
    result = await run_calls(
        *(call("look", n=n) for n in range(1000)), tools=[read(recorder)], budget=Budget(max_tool_calls=500)
    )

    assert recorder.runs == 500
    assert len(result.messages[2].results) == 1000
    assert statuses(result)[499:501] == ["ok", "skipped"]
    await check_session(result.session)


@pytest.mark.row("S10", "S14")
async def test_the_calls_in_progress_are_known_at_any_time_and_the_set_is_empty_in_the_end():
    running, most = set(), []
    barrier = asyncio.Barrier(4)

    def watch(event):
        if event.type in ("tool.started", "tool.finished"):
            running.symmetric_difference_update({event.call_id})
        most.append(len(running))

    async def run(arguments, ctx):
        await barrier.wait()
        return 1 // (arguments["n"] - 2)

    result = await run_calls(*(call("look", n=n) for n in range(4)), tools=[read(run, retries=0)], subscribers=[watch])

    assert (max(most), running) == (4, set())
    assert statuses(result) == ["ok", "ok", "failed", "ok"]


@pytest.mark.row("S16")
async def test_context_variables_are_carried_into_blocking_tools():
    user = contextvars.ContextVar("user", default="nobody")
    user.set("frodo")

    def run(arguments, ctx):
        name = user.get()
        user.set("sauron")  # a copy: it reaches nobody
        return name

    result = await run_calls(call("look", n=1), call("look", n=2), tools=[read(run)])

    assert results(result) == ["frodo", "frodo"]
    assert user.get() == "frodo"


@pytest.mark.row("S16", "T05")
@pytest.mark.parametrize("words", [{}, {"timeout": None}])
async def test_a_plain_function_that_makes_a_coroutine_is_awaited(words):
    async def inner(n):
        await asyncio.sleep(0)
        return n

    result = await run_calls(call("look", n=3), tools=[read(lambda arguments, ctx: inner(arguments["n"]), **words)])

    assert results(result) == [3]


STUCK = """
import asyncio, threading
from treadle import Agent, Tool
from treadle.testing import ScriptedModel, call, text

def stuck(arguments, ctx):
    threading.Event().wait()

tool = Tool(name="stuck", description="", parameters={}, effect="read", run=stuck, timeout=0.05, retries=0)
print(Agent(ScriptedModel([call("stuck"), text("Done.")]), tools=[tool]).run_sync("go").tool_calls[0].status)
"""


@pytest.mark.row("TF2", "S16")
def test_a_blocking_tool_that_is_stuck_for_ever_does_not_keep_the_process_alive():
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout.strip()) == (0, "timeout")


@pytest.mark.row("TF6")
async def test_what_a_tool_prints_reaches_no_model(capsys):
    result = await run_calls(call("look"), tools=[read(lambda arguments, ctx: print("noise") or "clean")])

    assert (results(result), capsys.readouterr().out) == (["clean"], "noise\n")


@pytest.mark.row("TF7", "T03")
async def test_a_tool_that_changes_its_arguments_or_context_changes_nothing_else():
    seen = []

    async def run(arguments, ctx):
        seen.append(dict(arguments["box"]))
        arguments["box"]["n"] = "changed"
        with pytest.raises(AttributeError):
            ctx.session.step = 99
        with pytest.raises(AttributeError):
            ctx.call.arguments = "{}"
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return ctx.call.arguments

    async with on_fake_clock() as session:
        result = await run_calls(call("look", box={"n": 1}), tools=[read(run)], session=session)

    assert seen == [{"n": 1}, {"n": 1}]
    assert results(result) == [{"box": {"n": 1}}]


@pytest.mark.row("T04", "T11")
async def test_a_blocking_tool_sees_that_it_is_to_stop_and_reports_how_far_it_is():
    begun, stopped = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    heard = []

    def run(arguments, ctx):
        ctx.progress("half", done=1, total=2)
        loop.call_soon_threadsafe(begun.set)
        while not ctx.cancelled:
            pass
        loop.call_soon_threadsafe(stopped.set)

    model = ScriptedModel([[call("act"), call("look")]])
    agent = Agent(model, tools=[act(Recorder()), read(run)], subscribers=[lambda event: heard.append(event.type)])
    async with agent.stream("go", deps={"any": 1}) as stream:
        await begun.wait()
        stream.cancel()
    await stopped.wait()

    assert stream.result.reason is StopReason.CANCELLED
    assert statuses(stream.result) == ["ok", "cancelled"]
    assert heard.index("tool.progress") < len(heard) - heard[::-1].index("tool.finished")
    assert "half" not in str(stream.result.messages)


@pytest.mark.row("R03")
async def test_the_idempotency_key_is_the_same_over_attempts_and_another_for_the_next_equal_call():
    recorder = Recorder()

    async def run(arguments, ctx):
        await recorder(arguments, ctx)
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return 1

    async with on_fake_clock() as session:
        tools = [tool_of(run, effect="keyed", permission="allow")]
        await run_calls(call("act", n=1), call("act", n=1), tools=tools, session=session)

    keys = [context.idempotency_key for context in recorder.contexts]
    assert keys[0] == keys[1]
    assert keys[2] == keys[3]
    assert keys[0] != keys[2]


@pytest.mark.row("T05", "B09", "V01")
@pytest.mark.parametrize("words", [{"effect": "read"}, {"permission": "ask"}])
async def test_a_tool_that_ends_the_run_leaves_no_question_open_and_no_call_that_waits_for_a_slot(words):
    recorder, finish = Recorder(), read(Recorder(), "finish", ends_run=True)
    tools, one = [finish, act(recorder, "look", **words)], Budget(max_parallel_tool_calls=1)
    result = await run_calls(call("finish"), call("look", n=1), tools=tools, budget=one)

    assert result.reason is StopReason.DONE_CONDITION_SATISFIED
    assert (statuses(result), recorder.runs, result.session.approvals()) == (["ok", "skipped"], 0, ())
    await check_session(result.session)


@pytest.mark.row("S02", "V09", "MF4")
async def test_ids_that_repeat_are_missing_or_too_long_are_made_good_over_http():
    first = [call("look", n=n, id=given) for n, given in enumerate(["call_0", "call_0", None, "", "x" * 200, "é"])]
    async with MockProvider([first, call("look", n=7, id="call_0"), text("Done.")]) as provider:
        model = resolve_model("openai-chat:mock", base_url=provider.base_url)
        result = await Agent(model, tools=[read(Recorder())]).run("go")

    assert (result.completed, provider.refusals, set(statuses(result))) == (True, [], {"ok"})
    await check_session(result.session)


@pytest.mark.row("S23")
async def test_the_report_says_what_parallel_calls_gained():
    clock, both, first_ended = FakeClock(), asyncio.Barrier(2), asyncio.Event()

    async def wait(arguments, ctx):
        seconds = arguments["seconds"]
        if seconds > 2:
            await both.wait()
        if seconds == 4:
            await first_ended.wait()  # three seconds have passed by then
        clock.advance(seconds if seconds < 4 else 1)

    hear = [lambda event: event.type == "tool.finished" and first_ended.set()]
    model = ScriptedModel([[call("look", seconds=3), call("look", seconds=4)], call("look", seconds=2), text("x")])
    async with open_session(MemoryJournal(), clock=clock) as session:
        result = await Agent(model, tools=[read(wait)], subscribers=hear).run("go", session=session)

    assert result.report()["tool_seconds"] == {"sum": 9.0, "critical_path": 6.0, "gained": 3.0}


@pytest.mark.row("N10", "MF5")
async def test_others_have_turns_while_a_batch_of_many_calls_is_looked_at():
    turns, seen = [], set()

    async def tick():
        while True:
            turns.append("one more")
            await asyncio.sleep(0)

    class Noting:
        def decide(self, one, session):
            seen.add(len(turns))

    ticking = asyncio.create_task(tick())
    await run_calls(*(call("act", n=n) for n in range(200)), tools=[act(Recorder())], policy=Noting())
    ticking.cancel()

    assert len(seen) >= 3


@pytest.mark.row("S17")
async def test_the_time_of_a_batch_cuts_what_still_runs_and_keeps_what_has_ended():
    async with on_fake_clock() as session:
        result = await run_calls(
            call("look", n=1), call("slow"), call("look", n=2), call("act"), call("look", n=3),
            tools=[read(Recorder()), read(hang, "slow", timeout=60), act(Recorder())],
            session=session, batch_seconds=5,
        )  # fmt: skip
        await check_session(session)

    assert statuses(result) == ["ok", "timeout", "ok", "skipped", "skipped"]
    started = [event.call_id for event in await types(result, "tool.started")]
    assert started == ["call_1", "call_2", "call_3"]
    assert result.tool_calls[1].duration_seconds == pytest.approx(5, abs=0.5)
    assert [one["code"] for one in results(result)[3:]] == ["batch_deadline", "batch_deadline"]
    assert "5 seconds in total" in results(result)[3]["message"]
    assert result.completed


@pytest.mark.row("S17")
@pytest.mark.parametrize(("effect", "status"), [("read", "timeout"), ("unsafe", "outcome_unknown")])
async def test_calls_that_wait_for_a_slot_are_skipped_when_the_time_of_their_batch_is_over(effect, status):
    async with on_fake_clock() as session:
        result = await run_calls(
            call("act", n=1), call("act", n=2), tools=[act(hang, effect=effect)], session=session, batch_seconds=5,
            budget=Budget(max_parallel_tool_calls=1),
        )  # fmt: skip

    assert statuses(result) == [status, "skipped"]


@pytest.mark.row("S17")
async def test_each_batch_has_the_whole_time_and_a_tool_has_its_own_limit_within_it():
    clock = FakeClock(auto=True)

    async def work(arguments, ctx):
        worked = asyncio.Event()
        clock.call_later(4, worked.set)
        await worked.wait()
        return "done"

    async with open_session(MemoryJournal(), clock=clock) as session:
        model = ScriptedModel([call("look", n=1), call("look", n=2), call("slow"), text("Done.")])
        tools = [read(work), read(hang, "slow", timeout=1, retries=0)]
        result = await Agent(model, tools=tools, batch_seconds=5).run("go", session=session)
        ended = await types(result, "tool.finished")

    assert statuses(result) == ["ok", "ok", "timeout"]
    assert ended[-1].result.duration_seconds == pytest.approx(1, abs=0.1)


@pytest.mark.row("S17")
async def test_the_time_that_a_person_takes_is_not_the_batches():
    clock = FakeClock()
    async with open_session(MemoryJournal(), clock=clock) as session:
        model = ScriptedModel([[call("look"), call("act")], text("Done.")])
        agent = Agent(model, tools=[read(Recorder()), tool_of(Recorder())], batch_seconds=5)
        paused = await agent.run("go", session=session)
        clock.advance(3600)
        await session.answer(paused.approvals[0].id, "allow")
        result = await agent.resume(session)

    assert statuses(result) == ["ok", "ok"]


@pytest.mark.row("S17")
@pytest.mark.parametrize("value", [0, -1, "5", float("nan"), True])
def test_a_time_of_a_batch_that_is_no_number_of_seconds_is_refused(value):
    with pytest.raises(ConfigurationError, match="batch_seconds must be a"):
        Agent(ScriptedModel([text("Done.")]), batch_seconds=value)
