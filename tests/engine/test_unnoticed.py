"""Behaviours that `make mutate` once broke without any test noticing: calls, and what is told of them."""

import asyncio
import contextlib
from typing import Any

import pytest
from test_can_fail import Dying

from invariants import check_session
from pipeline_tools import Recorder, act, on_fake_clock, raising, read, results, run_calls, statuses, types
from treadle import Agent, JournalError, Rejected, open_session
from treadle.drivers.react import ReActDriver
from treadle.events import AnyEvent
from treadle.messages import Finish
from treadle.ports import Decision, ModelEnd
from treadle.testing import Gate, ScriptedModel, Turn, call, text
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
    assert "may have taken effect" in results(run.result)[0]["message"]


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


@pytest.mark.row("B10", "F04")
async def test_the_words_of_a_refusal_that_fit_the_limit_are_told_whole() -> None:
    body = {"why": "x" * 500}

    result = await run_calls(call("look"), tools=[read(raising(Rejected(body)), result_limit=900)])

    assert results(result)[0]["details"] == [body]


# --- responses that were cut off


@pytest.mark.row("L26")
async def test_more_room_is_asked_for_only_once_a_response_was_cut() -> None:
    model = ScriptedModel([call("look", n=1), Turn(text="So", finish="length"), text(" be it.")])

    result = await Agent(model, tools=[read(Recorder())]).run("go")

    assert result.text == "So be it."
    assert [request.raise_output_limit for request in model.requests] == [False, False, True]


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

    result = await Agent(model, tools=[read(Recorder())], on_limit="report").run("go")

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
    """A policy whose answer is not a decision."""

    def decide(self, call: Any, session: Any) -> Any:
        return {"allow": True}


@pytest.mark.row("P01", "P03")
async def test_a_policy_whose_answer_is_no_decision_is_named_to_the_model() -> None:
    result = await run_calls(call("look"), tools=[read(Recorder())], policy=Odd())

    assert statuses(result) == ["denied"]
    assert "The policy returned a dict, which is not a valid Decision" in results(result)[0]["message"]


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
    result = await Agent(ScriptedModel([call("look", arguments="{")]), tools=[read(Recorder())], on_limit="report").run(
        "go"
    )

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
