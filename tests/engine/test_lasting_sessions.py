"""Sessions: what lasts, what is restored, who may run one, and how a paused or stopped run continues."""

import asyncio
import os
import sys
from typing import Any

import msgspec
import pytest

from loop_tools import chat, counter_tool, echo_tool, lines
from pipeline_tools import Recorder, act, read, tool_of
from treadle import (
    Agent,
    Budget,
    ConfigurationError,
    NotDone,
    ToolContext,
    ask,
    open_session,
)
from treadle.errors import MissingCredential
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.resolve import resolve_model
from treadle.testing import Gate, MockProvider, ScriptedModel, call, text
from treadle.tools import JsonObject


@pytest.mark.row("Q01", "Q03", "M01")
async def test_a_session_opened_again_sends_the_very_conversation_that_was_stored(tmp_path):
    async with MockProvider([["I look", call("echo", id="call_xyz", arguments='{"a":  1}')], "one", "two"]) as mock:
        agent = Agent(chat(mock), tools=[echo_tool()])
        async with open_session(tmp_path / "a.db", id="s") as session:
            await agent.run("first", session=session)
            before = session.messages
        async with open_session(tmp_path / "a.db", id="s") as session:
            assert session.messages == before
            await agent.run("second", session=session)

    sent = mock.requests[2].body["messages"]
    assert sent[: len(mock.requests[1].body["messages"])] == mock.requests[1].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == '{"a":  1}'
    assert mock.refusals == []


@pytest.mark.row("P05", "P06")
async def test_a_call_that_needs_consent_pauses_the_run_and_any_process_may_answer(tmp_path):
    rec = counter_tool(tmp_path / "rec", name="pay", effect="unsafe")
    model = ScriptedModel([[call("echo", x=1), call("pay", amount=5), call("echo", x=2)], text("paid")])
    agent = Agent(model, tools=[rec, echo_tool()])
    async with open_session(tmp_path / "a.db", id="s") as session:
        paused = await agent.run("pay", session=session)

    report = paused.report()
    assert (report["status"], report["reason"], report["completed"]) == ("paused", "approval_required", False)
    [waiting] = report["approvals"]
    assert (waiting["tool"], waiting["arguments"]) == ("pay", {"amount": 5})
    assert "pay" in paused.message
    assert waiting["id"] in paused.message
    assert lines(tmp_path / "rec") == 0

    answer = (
        "import asyncio, sys; from treadle import open_session\n"
        "async def main():\n"
        "    async with open_session(sys.argv[1], id='s') as session:\n"
        "        await session.answer(session.approvals()[0].id, 'allow', reason='fine')\n"
        "asyncio.run(main())"
    )
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", answer, str(tmp_path / "a.db"))
    assert await other.wait() == 0

    async with open_session(tmp_path / "a.db", id="s") as session:
        done = await agent.resume(session)
        decided = [e for e in await session.events() if e.type == "call.decided" and e.tool == "pay"]
    assert (done.reason, done.text, lines(tmp_path / "rec")) == ("completed", "paid", 1)
    assert [len(message.results) for message in done.messages] == [0, 0, 3, 0]
    assert [part.content for part in done.messages[2].results][::2] == ['{"x":1}', '{"x":2}']
    assert [event.decision for event in decided] == ["ask", "allow"]
    assert done.report()["approvals"] == []


@pytest.mark.row("P05", "P03")
async def test_a_denied_consent_reaches_the_model_with_its_reason():
    recorder = Recorder()
    agent = Agent(ScriptedModel([call("act", x=1), text("I may not.")]), tools=[tool_of(recorder)])
    paused = await agent.run("go")
    await paused.session.answer(paused.approvals[0].id, "deny", reason="Too much.")

    done = await agent.resume(paused.session)

    assert (done.text, recorder.runs) == ("I may not.", 0)
    told = msgspec.json.decode(done.messages[2].results[0].content)
    assert (told["type"], "Too much." in told["message"]) == ("denied", True)
    assert [(denial.tool, denial.reason) for denial in done.denials] == [("act", "Too much.")]


async def test_a_new_task_on_a_paused_session_answers_the_open_call_first():
    async with MockProvider([call("echo"), "new"]) as mock:
        agent = Agent(chat(mock), tools=[echo_tool()], policy=ask("echo"))
        paused = await agent.run("first")
        done = await agent.run("something else", session=paused.session)

    assert (done.text, mock.refusals) == ("new", [])
    assert [message.role for message in done.messages] == ["user", "assistant", "tool", "user", "assistant"]


@pytest.mark.row("L28")
async def test_a_message_given_during_a_step_follows_its_results():
    entered, leave = Gate(), Gate()

    async def slow(arguments: JsonObject, ctx: ToolContext) -> str:
        entered.open()
        await leave.wait()
        return "slow"

    async with MockProvider([call("look"), "done"]) as mock:
        agent = Agent(chat(mock), tools=[read(slow)])
        async with agent.stream("go") as run:
            await entered.wait()
            await run.steer("and be quick")
            leave.open()

    sent = mock.requests[1].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user"]
    assert (sent[-1]["content"], mock.refusals) == ("and be quick", [])


async def test_a_missing_key_is_told_before_any_request():
    code = "from treadle import Agent; Agent('openai-chat:gpt-5-mini').run_sync('hi')"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OPENAI")}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env=clean, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    _, told = await child.communicate()
    assert b"MissingCredential: OPENAI_API_KEY is not set." in told
    with pytest.raises(ConfigurationError, match="base URL"):
        resolve_model("openai-chat:m", base_url="127.0.0.1:8080")
    assert issubclass(MissingCredential, ConfigurationError)


@pytest.mark.parametrize(
    ("task", "words"), [*((task, "empty") for task in ("", "  \n")), *((task, "string or a Message") for task in (3, None, b"go", ["go"]))]
)  # fmt: skip
async def test_a_task_that_is_empty_or_no_text_is_told(task, words):
    with pytest.raises(ConfigurationError, match=words):
        await Agent(ScriptedModel([text("x")])).run(task)


# --- sessions
async def test_a_word_that_the_runtime_adds_at_a_resume_is_marked_as_its_own():
    async with open_session(MemoryJournal(), id="s") as session:
        first = ScriptedModel([call("look"), text("Half.")])
        await Agent(first, tools=[read(Recorder())], budget=Budget(max_model_turns=1)).run("go", session=session)
        await Agent(ScriptedModel([text("Done.")]), tools=[read(Recorder())]).resume(session, budget=Budget())
        added = [event for event in await session.events() if event.type == "message.added"]

    assert [(event.source, event.message.text) for event in added] == [("task", "go"), ("runtime", "Please continue.")]


# --- the list of sessions
@pytest.mark.row("Q08")
async def test_a_session_is_listed_as_running_while_its_tool_runs():
    journal, states = MemoryJournal(), []

    async def look(arguments: Any, ctx: Any) -> str:
        states.extend([one.run_status for one in await journal.sessions()])
        return "seen"

    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([call("look"), text("x")]), tools=[read(look)]).run("go", session=session)

    assert states == ["running"]
    assert [one.run_status for one in await journal.sessions()] == ["completed"]


@pytest.mark.row("ST04", "HF2")
async def test_a_run_that_another_process_has_begun_meanwhile_can_be_cancelled():
    journal = MemoryJournal()
    async with open_session(journal, id="s") as seen, open_session(journal, id="s") as session:
        paused = await Agent(ScriptedModel([call("act")]), tools=[act(Recorder(), permission="ask")]).run(
            "go", session=session
        )
        is_cancelled = await seen.cancel()
        again = await Agent(ScriptedModel([text("x")]), tools=[act(Recorder())]).resume(session)

    assert (paused.reason, is_cancelled, again.reason) == ("approval_required", True, "cancelled")


@pytest.mark.row("E09", "Q02")
async def test_a_run_that_is_resumed_from_a_stale_view_keeps_its_id():
    journal = MemoryJournal()
    async with open_session(journal, id="s") as stale, open_session(journal, id="s") as session:
        await Agent(ScriptedModel([call("act")]), tools=[act(Recorder(), permission="ask")]).run("go", session=session)
        await Agent(ScriptedModel([text("x")]), tools=[act(Recorder(), permission="ask")]).resume(stale)
        run_ids = {event.run_id for event in await stale.events()}

    assert len(run_ids) == 1


@pytest.mark.row("SF15", "ST10")
@pytest.mark.parametrize(("word", "words"), [("by", {"by": 3}), ("reason", {"reason": "\ud800"})])
async def test_what_is_said_of_a_doubt_must_be_text_that_can_be_stored(word, words):
    async with open_session("memory:") as session:
        with pytest.raises(ConfigurationError, match=f"^{word} (must be a string|cannot be stored)"):
            await session.resolve("p", NotDone, **{"by": "ada", "reason": "seen", **words})


# --- who hears of a run
@pytest.mark.row("E02")
async def test_who_follows_a_run_hears_nothing_of_its_session_once_the_run_has_ended():
    heard: list[AnyEvent] = []
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([text("Done.")]), tools=[read(Recorder())], subscribers=[heard.append]).run(
            "go", session=session
        )
        await session.mark("here")
        await session.change(metadata={"tier": "gold"})

    assert heard[-1].type == "run.finished"
