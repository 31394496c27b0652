"""Early start: reads begin while the response still streams; nothing else does, and nothing on half an input."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
import pytest

from invariants import check_session
from pipeline_tools import DyingJournal, Recorder, act, on_fake_clock, read, results, statuses, types
from treadle import Agent, Budget, Decision, Suspended, ToolContext, allow, open_session, resolve_model
from treadle.errors import JournalError, ModelRejected
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.messages import Finish, Text, ToolCall
from treadle.ports import CallReady, Hook, ModelEnd, ModelPart, ModelRequest, SessionView
from treadle.testing import FaultyJournal, Gate, MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import CheckedCall, JsonObject


def opens(gate: Any, on: str = "tool.started", when: Any = lambda event: True) -> Any:
    """Return a subscriber that opens a gate, or sets an event, at such an event."""

    def watch(event: AnyEvent) -> None:
        if event.type == on and when(event):
            (gate.open if isinstance(gate, Gate) else gate.set)()

    return watch


def breaks_off(gate: Any, *calls: Any) -> Turn:
    """Return a response that breaks off when its calls have been heard and the gate is open."""
    return Turn(calls=calls, cut="before-terminal", gate=gate, hold_after_call=len(calls) - 1)


@pytest.mark.row("S07")
async def test_a_read_ends_while_the_response_still_streams_over_http():
    recorder, ended = Recorder(), asyncio.Event()
    turn = Turn(calls=(call("look", n=1), call("look", n=2)), gate="rest", hold_after_call=0)
    async with MockProvider([turn, text("Done.")]) as provider:

        def watch(event):
            if event.type == "tool.finished" and not ended.is_set():
                ended.set()
                provider.gate("rest").open()  # the stream continues only once the first call has its result

        model = resolve_model("openai-chat:mock", base_url=provider.base_url)
        run = await Agent(model, tools=[read(recorder)], subscribers=[watch]).run("go")

    assert run.completed
    events = [event.type for event in await types(run, "tool.finished", "model.finished")]
    assert events[:2] == ["tool.finished", "model.finished"]
    await check_session(run.session)


@pytest.mark.row("S08")
async def test_a_read_behind_a_write_waits_for_it_and_no_write_starts_early():
    recorder = Recorder()
    model = ScriptedModel([[call("act", n=1), call("look", n=2)], text("Done.")])
    run = await Agent(model, tools=[read(recorder), act(recorder)]).run("go")

    assert recorder.log == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]
    events = await types(run, "model.finished", "tool.started")
    assert [event.type for event in events][:3] == ["model.finished", "tool.started", "tool.started"]


@pytest.mark.row("S08", "S04")
async def test_a_write_waits_for_the_reads_that_started_early_before_it():
    log, release = [], asyncio.Event()

    async def slow(arguments, ctx):
        log.append("+read")
        await release.wait()
        log.append("-read")

    async def write(arguments, ctx):
        log.append("write")

    model = ScriptedModel([[call("look"), call("act")], text("Done.")])
    agent = Agent(model, tools=[read(slow), act(write)], subscribers=[opens(release, "model.finished")])
    run = await agent.run("go")

    assert log == ["+read", "-read", "write"]
    told = [(event.type, event.call_id) for event in await types(run, "tool.started", "tool.finished")]
    assert told[1:3] == [("tool.finished", "call_1"), ("tool.started", "call_2")]


@pytest.mark.row("S09")
async def test_nothing_starts_before_its_input_is_whole():
    recorder = Recorder()
    turn = Turn(calls=(call("look", n=1),), cut="mid-arguments")
    async with MockProvider([turn, call("look", n=2), text("Done.")]) as provider, on_fake_clock() as session:
        model = resolve_model("openai-chat:mock", base_url=provider.base_url)
        run = await Agent(model, tools=[read(recorder)]).run("go", session=session)

    assert [n for word, n in recorder.log if word == "begin"] == [2]
    assert run.completed


@pytest.mark.row("S07", "S08", "N01")
@pytest.mark.parametrize(
    ("afterwards", "begun", "reused"),
    [
        ([[call("look", n=1), call("look", n=3)]], [1, 2, 3], 1),
        ([[call("act", n=4), call("look", n=1)]], [1, 2, 4, 1], 0),
        ([call("act", n=4), call("look", n=1)], [1, 2, 4, 1], 0),
    ],
    ids=["at once", "behind an act", "in a later step"],
)
async def test_the_results_of_a_response_that_broke_off_answer_equal_calls_of_the_retry(afterwards, begun, reused):
    recorder, both_begun = Recorder(), Gate()
    broken = breaks_off(both_begun, call("look", n=1), call("look", n=2))
    both = opens(both_begun, when=lambda event: event.call_id == "call_2")
    agent = Agent(
        ScriptedModel([broken, *afterwards, text("Done.")]), tools=[read(recorder), act(recorder)], subscribers=[both]
    )
    async with on_fake_clock() as session:
        run = await agent.run("go", session=session)
        await check_session(session)

    assert [n for word, n in recorder.log if word == "begin"] == begun
    assert (statuses(run), results(run)) == (["ok", "ok"], ["done", "done"])
    found = [event.call_id for event in await types(run, "tool.finished") if event.reused_from]
    assert found == [one.id for one in run.tool_calls[:reused]]


async def test_early_calls_of_a_cancelled_task_are_stopped_and_recorded():
    begun = asyncio.Event()
    turn = Turn(calls=(call("look"),), gate="never", hold_after_call=0)
    async with on_fake_clock() as session:
        agent = Agent(ScriptedModel([turn]), tools=[hanging_look(begun, [])])
        running = asyncio.create_task(agent.run("go", session=session))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        await check_session(session)
        kinds = [event.type for event in await session.events()]
    assert (kinds[-1], kinds.count("tool.finished")) == ("run.finished", 1)


async def test_a_read_behind_a_call_whose_arguments_never_became_whole_does_not_start_early():
    recorder = Recorder()
    model = ScriptedModel([[call("look", arguments="{"), call("look", n=1)], text("Done.")])
    run = await Agent(model, tools=[read(recorder)]).run("go")

    assert recorder.runs == 1
    assert not any(event.early for event in await types(run, "tool.started"))


def hanging_look(begun: asyncio.Event, log: list[str]) -> Any:
    async def look(arguments: JsonObject, ctx: ToolContext) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            log.append("cleaned up")

    return read(look)


AFTERWARDS: dict[str, list[Any]] = {
    "an answer without calls": [text("Never mind.")],
    "a call of something else": [call("act"), text("Done.")],
    "a refusal": [Turn(text="I may not.", finish="content_filter")],
    "calls that were cut off": [Turn(calls=(call("act"),), finish="length"), text("Done.")],
    "no answer at all": [ModelRejected("401", status=401)],
    "a broken stream each time": [Turn(text="I", cut="before-terminal")] * 5,
    "a call of an unknown tool": [call("nothing"), text("Done.")],
}


@pytest.mark.row("N01")
@pytest.mark.parametrize("afterwards", AFTERWARDS.values(), ids=AFTERWARDS)
async def test_a_read_of_a_response_that_broke_off_ends_before_its_run_whatever_came_instead(afterwards):
    gate, log, kinds = Gate(), [], []
    model = ScriptedModel([breaks_off(gate, call("look")), *afterwards])
    tools, hear = (
        [hanging_look(asyncio.Event(), log), act(Recorder())],
        [opens(gate), lambda event: kinds.append(event.type)],
    )
    async with on_fake_clock() as session:
        await Agent(model, tools=tools, subscribers=hear).run("go", session=session)
        assert (log, kinds[-1], len(asyncio.all_tasks())) == (["cleaned up"], "run.finished", 1)

        again = await Agent(ScriptedModel([text("Next.")])).run("next", session=session)
        assert again.completed
        await check_session(session)


@pytest.mark.row("N01")
@pytest.mark.parametrize("fail_at", range(3, 9))
async def test_no_early_call_outlives_a_run_whose_journal_fails(fail_at):
    begun, log = asyncio.Event(), []
    turn = Turn(calls=(call("look"), call("look", n=2)), gate="never", hold_after_call=1)
    store = FaultyJournal(MemoryJournal(), fail_at=fail_at)
    async with on_fake_clock(store) as session:
        agent = Agent(ScriptedModel([turn]), tools=[hanging_look(begun, log)])
        running = asyncio.create_task(agent.run("go", session=session))
        begins = asyncio.create_task(begun.wait())
        await asyncio.wait({running, begins}, return_when=asyncio.FIRST_COMPLETED)
        begins.cancel()
        running.cancel()
        with pytest.raises((asyncio.CancelledError, JournalError)):
            await running
        await asyncio.wait({begins})
        assert len(asyncio.all_tasks()) == 1


@pytest.mark.row("N01")
async def test_an_early_call_of_a_crashed_run_is_settled_once_when_another_task_begins():
    begun, store = asyncio.Event(), MemoryJournal()
    turn = Turn(calls=(call("look"),), gate="never", hold_after_call=0)
    async with on_fake_clock(DyingJournal(store, after="tool.started")) as session:
        running = asyncio.create_task(
            Agent(ScriptedModel([turn]), tools=[hanging_look(begun, [])]).run("go", session=session)
        )
        await begun.wait()
        running.cancel()
        with pytest.raises((asyncio.CancelledError, JournalError)):
            await running

    async with open_session(store, id=session.id) as again:
        assert list(again.state.early)
        await Agent(ScriptedModel([text("Next.")])).run("next", session=again)
        await Agent(ScriptedModel([text("More.")])).run("more", session=again)
        await check_session(again)
        finished = [event for event in await again.events() if event.type == "tool.finished"]
    assert len(finished) == 1


def when_started(gate: Gate) -> Any:
    """Open the gate once the call before it has been carried out."""

    def watch(event: AnyEvent) -> None:
        if event.type == "tool.started":
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, loop.call_soon, gate.open)

    return watch


async def test_a_start_names_the_attempt_whose_response_streamed():
    gates = [Gate(), Gate()]
    turns = [
        breaks_off(gates[0], call("look", n=1)),
        Turn(calls=(call("look", n=2),), gate=gates[1], hold_after_call=0),
    ]
    both = [when_started(gate) for gate in gates]
    async with on_fake_clock() as session:
        agent = Agent(ScriptedModel([*turns, text("Done.")]), tools=[read(Recorder())])
        async with agent.stream("go", session=session) as run:
            async for event in run:
                if event.type == "tool.started":
                    both.pop(0)(event)
        started = [event for event in await session.events() if event.type == "tool.started"]

    assert [(one.early, one.attempt) for one in started] == [(True, 1), (True, 2)]


# --- a read whose response must be whole before
@pytest.mark.row("S07", "R-HOOKS")
@pytest.mark.parametrize(
    "words",
    [{"hooks": [Hook(at="after_response", run=lambda _: None)]}, {"budget": Budget(max_tool_calls=1)}, {"budget": Budget(max_model_turns=1)}, {}],
)  # fmt: skip
async def test_no_read_starts_early_where_a_hook_looks_at_the_response_or_a_limit_comes_with_the_call(words):
    gate = Gate()

    def watch(event: AnyEvent) -> None:
        if event.type == "model.delta" and event.call is not None and not tasks:
            tasks.append(asyncio.ensure_future(opened_later()))

    async def opened_later() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        gate.open()

    tasks: list[asyncio.Future[None]] = []
    turn = Turn(calls=(call("look"),), gate=gate, hold_after_call=0)
    agent = Agent(ScriptedModel([turn, text("Done.")]), tools=[read(Recorder())], subscribers=[watch], **words)
    run = await agent.run("go")

    (started,) = await types(run, "tool.started")
    assert started.early is not bool(words)
    assert statuses(run) == ["ok"]


# --- a read that waits for something
async def letter(arguments: JsonObject, ctx: ToolContext) -> Any:
    if not ctx.inputs:
        raise Suspended("a letter")
    return ctx.inputs[-1]


@pytest.mark.row("S07", "SF11")
@pytest.mark.parametrize(
    ("follows", "said"), [("the rest", ["Dear Ada", "done"]), ("an equal call", ["Dear Ada"]), ("another call", ["done"]), ("an answer", [])]
)  # fmt: skip
async def test_a_read_that_waits_for_something_may_have_started_while_its_response_streamed(follows, said):
    gate, recorder = Gate(), Recorder()
    calls = (call("letter", n=1), call("look", n=2))
    first = Turn(calls=calls, gate=gate, hold_after_call=0, cut=None if follows == "the rest" else "before-terminal")
    again = {"an equal call": [call("letter", n=1)], "another call": [call("look", n=3)]}
    turns = [first, *([again[follows]] if follows in again else []), text("Done.")]
    tools = [read(letter, "letter"), read(recorder)]
    async with on_fake_clock() as session:
        run = await Agent(ScriptedModel(turns), tools=tools, subscribers=[when_started(gate)]).run(
            "go", session=session
        )
        waits = run.reason == "input_required"
        for state in session.state.suspended:
            await session.input(state.call.id, "Dear Ada")
        if waits:
            run = await Agent(ScriptedModel([text("Done.")]), tools=tools).resume(session)

    started = [event.call_id for event in await types(run, "tool.started") if event.early]
    assert started[0] == "call_1"
    assert (run.completed, waits) == (True, "Dear Ada" in said)
    assert results(run) == said
    await check_session(run.session)


class Reformatting:
    """A model whose final message writes the arguments of a call in another way than its stream did."""

    name, price = "reformatting", None

    def __init__(self, streamed: ToolCall, final: ToolCall, gate: asyncio.Event) -> None:
        self._streamed, self._final, self._gate = streamed, final, gate

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart]:
        if len(request.messages) > 1:
            yield ModelEnd(parts=(Text("Done."),), finish=Finish.STOP)
            return
        yield CallReady(self._streamed)
        await self._gate.wait()
        yield ModelEnd(parts=(self._final,), finish=Finish.CALLS)


@pytest.mark.row("N02", "S07")
@pytest.mark.parametrize("change", [{"arguments": '{"n": 1}'}, {"signature": "s"}])
async def test_a_call_that_started_early_is_the_same_call_however_the_final_message_writes_it(change):
    recorder, begun = Recorder(), asyncio.Event()
    streamed = ToolCall(id="a", name="look", arguments='{"n":1}')
    model = Reformatting(streamed, msgspec.structs.replace(streamed, **change), begun)
    run = await Agent(model, tools=[read(recorder)], subscribers=[opens(begun)]).run("go")

    assert (run.completed, statuses(run)) == (True, ["ok"])
    assert recorder.log == [("begin", 1), ("end", 1)]
    assert len(await types(run, "tool.finished")) == 1
    await check_session(run.session)


@pytest.mark.row("S07")
async def test_a_policy_is_asked_once_about_a_call_that_it_saw_while_its_response_streamed():
    asked, seen = [], asyncio.Event()

    class Counting:
        def decide(self, call: CheckedCall, session: SessionView) -> Decision:
            asked.append(call.id)
            seen.set()
            return Decision(kind="allow")

    one = ToolCall(id="a", name="act", arguments='{"n":1}')
    final = ToolCall(id="a", name="act", arguments='{"n": 1}', signature="s")
    run = await Agent(Reformatting(one, final, seen), tools=[act(Recorder())], policy=Counting()).run("go")

    assert (statuses(run), asked) == (["ok"], ["a"])


@pytest.mark.row("R-MODE", "S07")
async def test_what_was_decided_while_the_response_streamed_is_decided_anew_in_another_mode():
    seen, changed, recorder = asyncio.Event(), asyncio.Event(), Recorder()

    class Undecided:
        def decide(self, call: CheckedCall, session: SessionView) -> None:
            seen.set()

    one, hear = ToolCall(id="a", name="act", arguments='{"n":1}'), [opens(changed, "mode.changed")]
    tools = [act(recorder, permission=None)]
    agent = Agent(Reformatting(one, one, changed), tools=tools, policy=Undecided(), subscribers=hear)
    async with open_session("memory:") as session:
        running = asyncio.create_task(agent.run("go", session=session))
        await seen.wait()
        await session.set_mode("bypass")
        run = await running

    assert run.completed, run.message
    assert recorder.log == [("begin", 1), ("end", 1)]


async def test_an_early_call_whose_start_is_being_stored_when_its_step_fails_never_begins():
    begun, release, recorder = asyncio.Event(), asyncio.Event(), Recorder()

    class Slow(MemoryJournal):
        async def append(self, session_id: str, events: Sequence[AnyEvent], **options: Any) -> None:
            if any(event.type == "tool.started" for event in events):
                begun.set()
                await release.wait()
            await super().append(session_id, events, **options)

    class Broken:
        name, price = "broken", None

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelPart]:
            yield CallReady(ToolCall(id="a", name="look", arguments='{"n":1}'))
            await begun.wait()
            raise RuntimeError("a mistake in the model")

    async with open_session(Slow()) as session:
        running = asyncio.create_task(Agent(Broken(), tools=[read(recorder)]).run("go", session=session))
        await begun.wait()
        for _ in range(50):  # until the step is over, and waits for the end of the call
            await asyncio.sleep(0)
        release.set()
        with pytest.raises(RuntimeError, match="a mistake"):
            await running
        ended = [event for event in await session.events() if event.type == "tool.finished"]

    assert recorder.log == []
    assert [event.call_id for event in ended] == ["a"]


# --- calls that start early
@pytest.mark.row("S07")
@pytest.mark.parametrize(
    ("resources", "early"),
    [(None, True), ({"folder": "read"}, True), ({}, True), ({"folder": "write"}, False)],
    ids=["none named", "reads one", "names none", "claims one"],
)
async def test_a_read_starts_early_unless_it_claims_something_for_itself(resources, early):
    begun = Gate()
    last = opens(begun, when=lambda event: event.tool == ("look" if early else "first"))
    turn = Turn(calls=(call("first", n=1), call("look", n=2)), gate=begun, hold_after_call=1)
    named = None if resources is None else (lambda _: resources)
    tools = [read(Recorder(), "first"), read(Recorder(), resources=named)]
    result = await Agent(ScriptedModel([turn, text("Done.")]), tools=tools, subscribers=[last]).run("go")

    assert {event.tool: event.early for event in await types(result, "tool.started")} == {"first": True, "look": early}
    assert statuses(result) == ["ok", "ok"]


async def test_an_agent_as_a_tool_does_not_start_while_the_response_that_calls_it_still_streams():
    child, gate = Agent(ScriptedModel([text("Found it.")])), Gate()
    turn = Turn(calls=(call("see", n=1), call("clerk", task="Look"), call("see", n=2)), gate=gate, hold_after_call=2)
    tools = [read(Recorder(), "see"), child.as_tool("clerk", "Looks.", effect="read")]
    agent = Agent(ScriptedModel([turn, text("Done.")]), tools=tools, policy=allow("*"), subscribers=[opens(gate)])
    started = await types(await agent.run("go"), "tool.started")

    assert [(event.tool, event.early) for event in started] == [("see", True), ("clerk", False), ("see", False)]
