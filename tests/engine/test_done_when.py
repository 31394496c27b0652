"""The user's own end of a run: a condition that is asked after each batch, alike under every driver."""

import asyncio
import contextlib
import itertools
from typing import Any

import pytest

from invariants import check_session
from loop_tools import counter_tool, echo_tool, failing_tool, lines
from pipeline_tools import Recorder, act, read
from treadle import Agent, Budget, Done, StopReason, open_session
from treadle.budgets import Guards
from treadle.drivers.native import NativeDriver
from treadle.drivers.react import ReActDriver
from treadle.drivers.scripted import ScriptedDriver
from treadle.errors import JournalError
from treadle.journals.memory import MemoryJournal
from treadle.testing import FaultyJournal, ScriptedModel, call, text

REACT = '{"thought": null, "type": "call_tool", "tool": "echo", "args": {"x": 1}}'


def has_result(session: Any) -> Done | None:
    """Done as soon as one call has given something back; the payload is its text."""
    results = [result for message in session.messages for result in message.results]
    return Done({"found": results[0].content}) if results else None


@pytest.mark.row("L15")
@pytest.mark.parametrize(
    ("driver", "turn"),
    [(NativeDriver(), call("echo", x=1)), (ReActDriver(), text(REACT)), (ScriptedDriver(ScriptedModel([call("echo", x=1)])), text("Never asked."))],
    ids=["native", "react", "scripted"],
)  # fmt: skip
async def test_a_condition_of_the_users_own_ends_the_run_with_its_payload(driver, turn):
    model = ScriptedModel([turn, text("Never asked.")])

    result = await Agent(model, tools=[echo_tool()], driver=driver, done_when=has_result).run("go")

    assert (result.reason, result.completed) == (StopReason.DONE_CONDITION_SATISFIED, True)
    assert result.output == result.report()["output"] == {"found": '{"x":1}'}
    assert len(model.requests) == (0 if isinstance(driver, ScriptedDriver) else 1)
    await check_session(result.session)


@pytest.mark.row("L15")
async def test_every_call_of_the_batch_after_which_a_run_is_done_has_its_result(tmp_path):
    ran = tmp_path / "ran"
    asking = counter_tool(tmp_path / "paid", name="pay", effect="unsafe")
    model = ScriptedModel([[call("echo", x=1), call("rec"), call("fail"), call("nope"), call("pay")], text("No.")])
    tools = [echo_tool(), counter_tool(ran), failing_tool(), asking]

    result = await Agent(model, tools=tools, done_when=lambda session: True).run("go")

    assert (result.reason, result.output) == (StopReason.DONE_CONDITION_SATISFIED, None)
    assert [one.status for one in result.tool_calls] == ["ok", "ok", "failed", "unknown_tool", "skipped"]
    assert (lines(ran), lines(tmp_path / "paid"), result.approvals) == (1, 0, ())
    await check_session(result.session)


@pytest.mark.row("L15")
async def test_a_condition_may_be_async_and_a_cancelled_run_does_not_wait_for_it():
    asked = asyncio.Event()

    async def hangs(session: Any) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    agent = Agent(ScriptedModel([call("echo", x=1), text("No.")]), tools=[echo_tool()], done_when=hangs)
    async with agent.stream("go") as run:
        await asked.wait()
        run.cancel()

    assert run.result.reason is StopReason.CANCELLED


@pytest.mark.row("L15", "H21")
@pytest.mark.parametrize(
    "answer", ["yes", 1, {"done": True}, Done(object()), Done(float("nan")), ZeroDivisionError, SystemExit]
)
async def test_a_condition_that_is_broken_is_logged_and_ends_nothing(answer, caplog):
    def broken(session: Any) -> Any:
        if isinstance(answer, type):
            raise answer
        return answer

    model = ScriptedModel([call("echo", x=1), text("Done.")])

    result = await Agent(model, tools=[echo_tool()], done_when=broken).run("go")

    assert (result.reason, result.text) == (StopReason.COMPLETED, "Done.")
    assert "done_when" in caplog.text


@pytest.mark.row("L15")
async def test_being_done_counts_before_a_guard_and_before_a_limit():
    model = ScriptedModel([call("fail"), text("No.")])
    words: dict[str, Any] = {"guards": Guards(failures=1), "budget": Budget(max_model_turns=1)}

    result = await Agent(model, tools=[failing_tool()], done_when=has_result, **words).run("go")

    assert result.reason is StopReason.DONE_CONDITION_SATISFIED


@pytest.mark.row("L15")
async def test_a_tool_that_ends_the_run_has_the_last_word_on_the_payload():
    submit = read(Recorder("mine"), "submit", ends_run=True)
    result = await Agent(ScriptedModel([call("submit")]), tools=[submit], done_when=has_result).run("go")

    assert result.output == "mine"


@pytest.mark.row("L15")
@pytest.mark.parametrize(
    ("names", "results", "words"),
    [
        (("echo", "rec"), 2, {"ends_run": True}),
        (("echo", "rec"), 2, {"done_when": has_result}),
        (("rec", "pay"), 1, {"ends_run": True, "effect": "unsafe"}),  # and `pay`, of the same batch, is not answered
    ],
    ids=["by a tool", "by its condition", "by a tool with calls behind it"],
)  # fmt: skip
async def test_a_run_that_died_after_its_last_result_ends_without_another_request_or_call(names, results, words):
    """Die before each write in turn: what is recorded decides whether the model is needed again."""
    of_agent = {key: words[key] for key in words.keys() & {"done_when"}}
    of_tool = {key: words[key] for key in words.keys() - of_agent.keys()}
    ended_before = 0
    for number in itertools.count(1):
        rec, paid, store = Recorder(), Recorder(), MemoryJournal()
        tools = [act(rec, "rec", **{"effect": "read", **of_tool}), act(paid, "pay"), echo_tool()]
        journal = FaultyJournal(store, fail_at=number)
        with contextlib.suppress(JournalError):
            async with open_session(journal, id="s") as session:
                model = ScriptedModel([[call(name, x=1) for name in names]])
                await Agent(model, tools=tools, **of_agent).run("go", session=session)
        if not journal.has_failed:
            break
        types = [event.type for event in await store.read("s")] if await store.sessions() else []
        if types.count("tool.finished") < results or "run.finished" in types:
            continue
        ended_before += 1
        model = ScriptedModel([text("Asked once more.")])
        async with open_session(store, id="s") as session:
            result = await Agent(model, tools=tools, **of_agent).resume(session)

        assert (result.reason, model.requests) == (StopReason.DONE_CONDITION_SATISFIED, [])
        assert (rec.runs, paid.runs, result.output is None) == (1, 0, False)
        await check_session(result.session)
    assert ended_before


@pytest.mark.parametrize("answer", [True, Done, Done()])
async def test_each_way_to_say_that_it_is_done_ends_the_run(answer):
    model = ScriptedModel([call("act"), text("Done.")])
    run = await Agent(model, tools=[act(Recorder())], done_when=lambda view: answer).run("go")

    assert (run.reason, run.completed) == ("done_condition_satisfied", True)
    assert run.message == "The condition of done_when holds."
