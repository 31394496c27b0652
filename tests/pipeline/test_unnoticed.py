"""Behaviours that `make mutate` once broke without any test noticing: each test here was seen to fail with that change."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from pipeline_tools import Recorder, act, on_fake_clock, raising, read, results, run_calls, statuses, types
from test_can_fail import Dying

from invariants import check_session
from treadle import Agent, ConfigurationError, JournalError, NotDone, Rejected, open_session
from treadle.drivers.react import ReActDriver
from treadle.errors import ToolDefinitionError
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.messages import Finish
from treadle.ports import Decision, ModelEnd
from treadle.runtime.validation import Schema
from treadle.testing import FakeClock, Gate, ScriptedModel, Turn, call, text
from treadle.tools import CallStatus, Unfinished

# --- calls that start early


@pytest.mark.row("S07", "N01")
async def test_a_later_step_reads_anew_what_a_discarded_response_had_begun_to_read() -> None:
    begun, recorder = Gate(), Recorder("seen")
    broken = Turn(calls=(call("look", n=1),), cut="before-terminal", gate=begun, hold_after_call=0)
    turns = [broken, call("act", n=2), call("look", n=1), text("Done.")]

    def watch(event: AnyEvent) -> None:
        if event.type == "tool.started":
            begun.open()

    async with on_fake_clock() as session:
        agent = Agent(ScriptedModel(turns), tools=[read(recorder), act(Recorder())], subscribers=[watch])
        result = await agent.run("go", session=session)
        await check_session(session)

    assert (statuses(result), results(result)[-1]) == (["ok", "ok"], "seen")
    assert [n for word, n in recorder.log if word == "begin"] == [1, 1]


# --- calls that may have acted


@pytest.mark.row("R05", "TF9")
async def test_a_call_that_may_have_acted_and_is_cancelled_before_it_runs_again_is_told_as_unknown() -> None:
    journal, recorder = Dying("tool.finished"), Recorder()
    tool = act(recorder, effect="idempotent")
    async with open_session(journal, id="s") as session:
        with pytest.raises(JournalError, match="killed"):
            await Agent(ScriptedModel([call("act", n=1)]), tools=[tool]).run("go", session=session)
    journal.before = ""

    async with open_session(journal, id="s") as session:
        run = Agent(ScriptedModel([text("x")]), tools=[tool]).stream_resume(session)
        run.subscribe(lambda event: run.cancel() if event.type == "call.decided" else None)
        async with run:
            pass

    assert (statuses(run.result), recorder.runs) == (["outcome_unknown"], 1)
    assert "may have been carried out" in results(run.result)[0]["message"]


@pytest.mark.row("R02", "R10", "F09")
@pytest.mark.parametrize(("effect", "attempts"), [("keyed", 1), ("idempotent", 1), ("read", 3)])
async def test_no_second_attempt_that_acts_runs_beside_one_that_was_given_up(effect: str, attempts: int) -> None:
    release, running = asyncio.Event(), []

    async def deaf(arguments: Any, ctx: Any) -> str:
        running.append(ctx.attempt)
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return "late"

    tool = act(deaf, effect=effect, timeout=5.0, retries=2)
    async with on_fake_clock() as session:
        result = await run_calls(call("act", n=1), tools=[tool], session=session)
        release.set()

    assert [one.attempts for one in result.tool_calls] == [attempts]
    assert sorted(running) == list(range(1, attempts + 1))


@pytest.mark.row("B10", "F04")
@pytest.mark.parametrize(
    "error",
    [
        Rejected({"why": "x" * 5000}),
        Unfinished(CallStatus.CANCELLED, "It ended.", may_have_acted=False, body="x" * 5000),
    ],
)
async def test_the_words_of_a_refusal_are_cut_at_the_tools_own_limit(error: BaseException) -> None:
    result = await run_calls(call("look"), tools=[read(raising(error), result_limit=800)])

    (told,) = [one.content for message in result.messages for one in message.results]
    assert 100 < len(told) <= 800


@pytest.mark.row("F04", "R10")
@pytest.mark.parametrize("effect", ["unsafe", "keyed", "read"])
async def test_a_refusal_of_the_first_attempt_says_nothing_of_earlier_ones(effect: str) -> None:
    result = await run_calls(call("act"), tools=[act(raising(Rejected({"why": "full"})), effect=effect)])

    (finished,) = await types(result, "tool.finished")
    assert (finished.result.status, finished.result.may_have_acted) == ("rejected", False)
    assert "earlier attempt" not in finished.result.content


@pytest.mark.row("F06", "TF4")
async def test_what_breaks_a_tools_contract_is_on_record_as_a_row() -> None:
    result = await run_calls(call("look"), tools=[read(Recorder({"at": {1, 2}}))])

    (violated,) = await types(result, "contract.violated")
    assert statuses(result) == ["unexpected_result_shape"]
    assert [(row["field"], row["constraint"]) for row in violated.details] == [("", "plain JSON")]
    assert "set" in violated.details[0]["value"]


@pytest.mark.row("F06", "R05")
@pytest.mark.parametrize("effect", ["unsafe", "idempotent", "read"])
@pytest.mark.parametrize("value", [{1, 2}, "no object"])
async def test_a_call_whose_result_is_withheld_may_have_acted_unless_it_reads(effect: str, value: Any) -> None:
    tool = act(Recorder(value), effect=effect, output_schema={"type": "object"})

    result = await run_calls(call("act"), tools=[tool])

    (finished,) = await types(result, "tool.finished")
    assert finished.result.status == "unexpected_result_shape"
    assert finished.result.may_have_acted is results(result)[0]["may_have_acted"] is (effect != "read")


# --- responses that were cut off


@pytest.mark.row("L26")
async def test_more_room_is_asked_for_only_once_a_response_was_cut() -> None:
    model = ScriptedModel([call("look", n=1), Turn(text="So", finish="length"), text(" be it.")])

    result = await Agent(model, tools=[read(Recorder())]).run("go")

    assert result.text == "So be it."
    assert [request.larger_output for request in model.requests] == [False, False, True]


@pytest.mark.row("L26", "PF14")
async def test_calls_that_are_cut_for_the_first_time_are_asked_for_again_however_many_steps_came_before() -> None:
    cut = Turn(calls=(call("look", n=9),), finish="length")
    model = ScriptedModel([*(call("look", n=n) for n in range(6)), cut, text("Done.")])

    result = await Agent(model, tools=[read(Recorder())]).run("go")

    assert (result.reason, len(model.requests)) == ("completed", 8)


# --- what people and models are told


@pytest.mark.row("L12")
async def test_the_call_that_ends_a_run_as_a_repetition_says_which_call_it_was_and_how_often_it_came() -> None:
    model = ScriptedModel([call("look", n=1)])

    result = await Agent(model, tools=[read(Recorder())]).run("go")

    decided = [event for event in await types(result, "call.decided") if event.rule != "guard repeats"]
    told = results(result)[-1]
    assert told["details"] == [{"tool": "look", "arguments_digest": decided[0].digest, "count": 3}]
    assert told["code"] == "repeated_tool_call"


@pytest.mark.row("D11")
async def test_a_draft_that_is_worded_anew_is_no_rejected_decision() -> None:
    draft = text('{"thought": "", "type": "final_answer", "tool": null, "args": null, "answer": "draft"}')
    model = ScriptedModel([draft, text("Well worded.")])

    result = await Agent(model, driver=ReActDriver(final_via_inference=True)).run("go")

    assert (result.text, result.spent.model_turns) == ("Well worded.", 2)
    assert await types(result, "decision.rejected") == []


class Sandboxing:
    """A policy that would have everything but `look` run in a sandbox."""

    def decide(self, call: Any, session: Any) -> Decision | None:
        return None if call.name == "look" else Decision(kind="sandbox", rule="boxed", reason="unsure")


@pytest.mark.row("P02", "H12")
async def test_what_may_run_in_a_sandbox_only_is_among_the_denials_of_the_report() -> None:
    async def look(arguments: Any, ctx: Any) -> str:
        return str((await ctx.decide("delete", {"path": "a"})).kind)

    tools = [read(look), act(Recorder())]
    result = await run_calls(call("look"), call("act"), tools=tools, policy=Sandboxing())

    assert (results(result)[0], statuses(result)) == ("sandbox", ["ok", "denied"])
    assert sorted((one.tool, one.rule, one.reason) for one in result.denials) == [
        ("act", "boxed", "unsure"), ("delete", "boxed", "unsure"),
    ]  # fmt: skip


class Odd:
    """A policy whose answer is no decision."""

    def decide(self, call: Any, session: Any) -> Any:
        return {"allow": True}


@pytest.mark.row("P01", "P03")
async def test_a_policy_whose_answer_is_no_decision_is_named_to_the_model() -> None:
    result = await run_calls(call("look"), tools=[read(Recorder())], policy=Odd())

    assert statuses(result) == ["denied"]
    assert "The policy answered with a dict that is no Decision" in results(result)[0]["message"]


@pytest.mark.row("W11", "L29")
async def test_a_refusal_that_the_provider_explains_ends_the_run_with_those_words() -> None:
    class Refusing:
        name, price = "refusing", None

        async def stream(self, request: Any) -> Any:
            yield ModelEnd(parts=(), finish=Finish.REFUSED, message="Blocked: PROHIBITED_CONTENT.")

    result = await Agent(Refusing()).run("go")

    assert (result.reason, result.report()["message"]) == ("refused", "Blocked: PROHIBITED_CONTENT.")


@pytest.mark.row("B14", "B06")
async def test_a_deadline_that_cuts_into_a_tool_is_what_the_run_names_as_its_end() -> None:
    async def hang(arguments: Any, ctx: Any) -> None:
        await asyncio.Event().wait()

    async with on_fake_clock() as session:
        model = ScriptedModel([call("look"), text("x")])
        deadline = session.clock.now() + 0.3
        result = await Agent(model, tools=[read(hang)]).run("go", session=session, deadline=deadline)

    report = result.report()
    assert (report["reason"], statuses(result)) == ("budget_exceeded", ["timeout"])
    assert "deadline" in report["message"]


@pytest.mark.row("V02", "MF3")
@pytest.mark.parametrize(("length", "told"), [(100, "n" * 100), (101, "n" * 100 + "...")])
async def test_the_name_of_an_unknown_tool_is_told_up_to_a_hundred_characters(length: int, told: str) -> None:
    result = await run_calls(call("n" * length), tools=[read(Recorder())])

    assert results(result)[0]["name"] == told


@pytest.mark.row("V13", "F01")
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_numbers_that_are_no_json_are_refused(number: str) -> None:
    recorder = Recorder()

    result = await run_calls(call("look", arguments=f'{{"n": {number}}}'), tools=[read(recorder)])

    assert (statuses(result), recorder.runs) == (["invalid_json"], 0)


@pytest.mark.row("F01", "F03", "MF6")
async def test_the_same_broken_arguments_again_and_again_are_no_repetition() -> None:
    result = await Agent(ScriptedModel([call("look", arguments="{")]), tools=[read(Recorder())]).run("go")

    assert (result.reason, statuses(result)) == ("invalid_call_limit", ["invalid_json"] * 3)


@pytest.mark.row("L27")
@pytest.mark.parametrize(
    ("turn", "phase"), [(call("look"), "tool"), (Turn(text="I", gate="never", hold_after_pieces=1), "model")]
)
async def test_a_cancelled_run_says_in_which_phase_it_was(turn: Any, phase: str) -> None:
    begun = asyncio.Event()

    async def hang(arguments: Any, ctx: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    def watch(event: AnyEvent) -> None:
        if event.type == "model.delta" and event.text:
            begun.set()

    async with Agent(ScriptedModel([turn]), tools=[read(hang)], subscribers=[watch]).stream("go") as run:
        await begun.wait()
        run.cancel()

    assert (run.result.reason, run.result.report()["phase"]) == ("cancelled", phase)


# --- the journal


class Noting(MemoryJournal):
    """A journal that notes what must survive a power cut, and how often its inbox is looked into."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: set[str] = set()
        self.looks = 0

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if durable:
            self.durable |= {event.type for event in events}
        await super().append(session_id, events, state=state, durable=durable)

    async def inbox(self, session_id: str) -> Any:
        self.looks += 1
        return await super().inbox(session_id)


@pytest.mark.row("SF7", "N14")
async def test_what_people_do_to_a_session_survives_a_power_cut() -> None:
    journal = Noting()
    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([text("x")])).run("go", session=session)
        await session.mark("here")
        journal.durable.clear()
        await session.mark("there")
        await session.rewind("here")
        await session.change(metadata={"tier": "gold"})
        assert journal.durable == {"session.marked", "session.rewound", "session.changed"}
        journal.durable.clear()
        await session.move("elsewhere")

    assert journal.durable == {"session.changed"}


@pytest.mark.row("Q05", "E02")
async def test_a_busy_loop_asks_its_inbox_only_now_and_then() -> None:
    journal = Noting()
    async with open_session(journal, id="s", clock=FakeClock()) as session:
        turns = [*(call("look", n=n) for n in range(40)), text("x")]
        await Agent(ScriptedModel(turns), tools=[read(Recorder())]).run("go", session=session)

    assert journal.looks <= 5


# --- the list of sessions


@pytest.mark.row("Q08")
async def test_a_session_is_listed_as_running_while_its_tool_runs() -> None:
    journal, states = MemoryJournal(), []

    async def look(arguments: Any, ctx: Any) -> str:
        states.extend([one.state for one in await journal.sessions()])
        return "seen"

    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([call("look"), text("x")]), tools=[read(look)]).run("go", session=session)

    assert states == ["running"]
    assert [one.state for one in await journal.sessions()] == ["completed"]


@pytest.mark.row("ST04", "HF2")
async def test_a_run_that_another_process_has_begun_meanwhile_can_be_cancelled() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as seen, open_session(journal, id="s") as session:
        paused = await Agent(ScriptedModel([call("act")]), tools=[act(Recorder(), permission="ask")]).run(
            "go", session=session
        )
        is_cancelled = await seen.cancel()
        again = await Agent(ScriptedModel([text("x")]), tools=[act(Recorder())]).resume(session)

    assert (paused.reason, is_cancelled, again.reason) == ("approval_required", True, "cancelled")


@pytest.mark.row("E09", "Q02")
async def test_a_run_that_is_resumed_from_a_stale_view_keeps_its_id() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as stale, open_session(journal, id="s") as session:
        await Agent(ScriptedModel([call("act")]), tools=[act(Recorder(), permission="ask")]).run("go", session=session)
        await Agent(ScriptedModel([text("x")]), tools=[act(Recorder(), permission="ask")]).resume(stale)
        run_ids = {event.run_id for event in await stale.events()}

    assert len(run_ids) == 1


class Childless(MemoryJournal):
    """A journal that stores nothing of a child's run, as when the process is killed right after its session was made."""

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if session_id != "s" and any(event.type == "run.started" for event in events):
            raise JournalError("killed")
        await super().append(session_id, events, state=state, durable=durable)


@pytest.mark.row("N07", "N01")
async def test_a_child_that_never_began_its_run_is_ended_with_its_call() -> None:
    journal = Childless()
    child = Agent(ScriptedModel([text("x")])).as_tool("research", "Find out.", effect="read")
    async with open_session(journal, id="s") as session:
        turns = [call("research", task="look"), text("I could not.")]
        await Agent(ScriptedModel(turns), tools=[child]).run("go", session=session)
        (ended,) = [event for event in await session.events() if event.type == "child.ended"]
        await check_session(session)

    assert (ended.status, ended.reason) == ("stopped", "cancelled")


# --- validation


@pytest.mark.row("V05", "F12")
async def test_a_tool_that_cannot_check_its_arguments_fails_as_an_error_of_its_own() -> None:
    def broken(arguments: Any) -> None:
        raise ZeroDivisionError("no")

    recorder = Recorder()
    result = await run_calls(call("look"), tools=[read(recorder, validate=broken)])

    assert (statuses(result), recorder.runs) == (["failed"], 0)
    assert results(result)[0]["code"] == "internal_error"


@pytest.mark.row("V04")
def test_a_property_whose_name_is_no_identifier_is_told_in_brackets() -> None:
    schema = Schema(
        {"type": "object", "properties": {"a b": {"type": "integer"}, "c-d": {"type": "integer"}}}, where="x"
    )

    assert [row["field"] for row in schema.violations({"a b": "x", "c-d": "y"})] == ['["a b"]', "c-d"]


@pytest.mark.row("V11", "V03")
@pytest.mark.parametrize("value", [3.0, 2.0**51, 2.0**53, 1e20, -1e20, 1e300])
def test_a_whole_float_in_a_result_is_no_integer_however_large_it_is(value: float) -> None:
    assert len(Schema({"type": "integer"}, where="x").check_result(value)) == 1
    assert Schema({"type": "number"}, where="x").check_result(value) == []


@pytest.mark.row("V03")
def test_a_text_that_is_no_date_is_no_date() -> None:
    schema = Schema({"type": "string", "format": "date"}, where="x")

    assert (len(schema.violations("tomorrow")), schema.violations("2026-11-22")) == (1, [])


class Words(str):
    """A text of a class of its own."""

    __slots__ = ()


@pytest.mark.row("H21", "T02")
@pytest.mark.parametrize("word", [{"maximum": 10**5000}, {"title": Words("n")}, {"default": float("nan")}])
def test_a_schema_that_cannot_be_written_as_json_is_refused_where_it_is_given(word: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="parameters of 'x' cannot be used"):
        Schema({"type": "integer", **word}, where="parameters of 'x'")


@pytest.mark.row("TF4", "MF7")
@pytest.mark.parametrize("place", [0, 299_999, 600_000, 899_999])
async def test_half_a_surrogate_pair_anywhere_in_a_long_result_is_found(place: int) -> None:
    words = "x" * place + "\ud800" + "x" * (899_999 - place)

    result = await run_calls(call("look"), tools=[read(Recorder(words))])

    assert statuses(result) == ["unexpected_result_shape"]


# --- what cannot be stored


@pytest.mark.row("SF15")
@pytest.mark.parametrize("origin", [["folder"], {"folder": "\ud800"}, {"at": float("nan")}, {1: 2}])
def test_what_a_run_is_to_remember_must_be_an_object_that_can_be_stored(origin: Any) -> None:
    run = Agent(ScriptedModel([text("x")])).stream("go")

    with pytest.raises(ConfigurationError, match="must be a JSON object"):
        run.remember(origin)


@pytest.mark.row("N13")
async def test_what_a_run_is_to_remember_is_on_record() -> None:
    run = Agent(ScriptedModel([text("x")])).stream("go")
    run.remember({"folder": "/srv"})
    async with run:
        pass

    state = run.result.session.state.run
    assert state is not None
    assert state.origin == {"folder": "/srv"}


@pytest.mark.row("SF15", "ST10")
@pytest.mark.parametrize(("word", "words"), [("by", {"by": 3}), ("reason", {"reason": "\ud800"})])
async def test_what_is_said_of_a_doubt_must_be_text_that_can_be_stored(word: str, words: Any) -> None:
    async with open_session("memory:") as session:
        with pytest.raises(ConfigurationError, match=f"^{word} (must be a text|cannot be stored)"):
            await session.resolve("p", NotDone, **{"by": "ada", "reason": "seen", **words})


# --- who watches


@pytest.mark.row("S10", "E01")
async def test_what_is_seen_of_a_response_that_streams_belongs_to_its_step() -> None:
    heard: list[AnyEvent] = []
    turns = [Turn(text="I look.", thinking="Hm.", calls=(call("look"),)), text("Done.")]

    await Agent(ScriptedModel(turns), tools=[read(Recorder())], subscribers=[heard.append]).run("go")

    deltas = [event for event in heard if event.type == "model.delta"]
    assert {(bool(one.text), bool(one.thinking), one.call is not None, one.step) for one in deltas} == {
        (True, False, False, 1), (False, True, False, 1), (False, False, True, 1), (True, False, False, 2),
    }  # fmt: skip


class Watching:
    """A policy that notes how often others had a turn of the event loop."""

    def __init__(self) -> None:
        self.turns, self.seen = 0, set[int]()

    def decide(self, call: Any, session: Any) -> None:
        self.seen.add(self.turns)

    async def tick(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


@pytest.mark.row("N10", "MF5")
async def test_others_have_turns_while_a_batch_of_many_calls_is_looked_at() -> None:
    policy = Watching()
    ticking = asyncio.create_task(policy.tick())
    batch = [call("act", n=n) for n in range(200)]

    await run_calls(*batch, tools=[act(Recorder())], policy=policy)
    ticking.cancel()

    assert len(policy.seen) >= 3


_heard: list[Any] = []
sys.addaudithook(lambda name, details: _heard.append(details) if name == "treadle.recorded" else None)


@pytest.mark.row("E02", "E07")
async def test_who_watches_the_process_hears_of_every_commit_with_its_session() -> None:
    _heard.clear()
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([call("look"), text("x")]), tools=[read(Recorder())]).run("go", session=session)
        events = await session.events()

    assert [event for name, _, commit in _heard if name == session.id for event in commit] == list(events)
