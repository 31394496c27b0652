"""Sessions: what lasts, what is restored, who may run one, and how a paused or stopped run continues."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from loop_tools import counter_tool, echo_tool, lines
from treadle import (
    Agent,
    ApprovalExpired,
    Budget,
    ConfigurationError,
    JournalError,
    NothingToResume,
    SessionHeld,
    Tool,
    ToolContext,
    UnknownApproval,
    ask,
    open_journal,
    open_session,
)
from treadle.errors import MissingCredential, UnknownModel
from treadle.journals.memory import MemoryJournal
from treadle.resolve import resolve_model
from treadle.sessions.session import fold
from treadle.testing import FakeClock, FaultyJournal, Gate, MockProvider, ScriptedModel, Turn, call, parse_script, text
from treadle.tools import JsonObject


def provider(*turns: object) -> MockProvider:
    return MockProvider(parse_script(msgspec.json.encode(list(turns)).decode(), where="test"))


@pytest.mark.row("Q01", "Q03", "M01")
async def test_a_session_opened_again_sends_the_very_conversation_that_was_stored(tmp_path: Path) -> None:
    async with provider(
        {"text": "I look", "calls": [{"id": "call_xyz", "name": "echo", "arguments": '{"a":  1}'}]},
        {"text": "one"},
        {"text": "two"},
    ) as mock:
        agent = Agent(resolve_model("openai-chat:m", base_url=mock.base_url), tools=[echo_tool()])
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


@pytest.mark.row("Q02", "E07")
async def test_call_and_result_are_events_of_their_own_and_the_transcript_is_a_view_over_them(tmp_path: Path) -> None:
    async with open_session(tmp_path / "a.db", id="s") as session:
        model = ScriptedModel([[call("echo", x=1), call("nobody")], text("done")])
        await Agent(model, tools=[echo_tool()]).run("go", session=session)
        events = await session.events()
        live = session.messages

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    finished = {event.call_id for event in events if event.type == "tool.finished"}
    assert finished == {part.call_id for message in live for part in message.results}
    assert fold("s", events).messages == list(live)


@pytest.mark.row("P05", "P06")
async def test_a_call_that_needs_consent_pauses_the_run_and_any_process_may_answer(tmp_path: Path) -> None:
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
async def test_a_denied_consent_reaches_the_model_with_its_reason(tmp_path: Path) -> None:
    rec = counter_tool(tmp_path / "rec", effect="unsafe")
    agent = Agent(ScriptedModel([call("rec", x=1), text("I may not.")]), tools=[rec])
    paused = await agent.run("go")
    await paused.session.answer(paused.approvals[0].id, "deny", reason="Too much.")

    done = await agent.resume(paused.session)

    assert (done.text, lines(tmp_path / "rec")) == ("I may not.", 0)
    told = msgspec.json.decode(done.messages[2].results[0].content)
    assert (told["type"], "Too much." in told["message"]) == ("denied", True)
    assert [(denial.tool, denial.reason) for denial in done.denials] == [("rec", "Too much.")]


@pytest.mark.row("P05")
async def test_the_first_answer_wins_and_an_unknown_one_is_told() -> None:
    agent = Agent(ScriptedModel([call("echo", x=1), text("done")]), tools=[echo_tool()], policy=ask("echo"))
    paused = await agent.run("go")
    approval = paused.approvals[0].id

    with pytest.raises(UnknownApproval, match="ap_nothing"):
        await paused.session.answer("ap_nothing", "allow")
    with pytest.raises(ConfigurationError, match="maybe"):
        await paused.session.answer(approval, "maybe")  # type: ignore[arg-type]
    await paused.session.answer(approval, "allow")
    with pytest.raises(UnknownApproval, match="first answer wins"):
        await paused.session.answer(approval, "deny")
    assert (await agent.resume(paused.session)).completed


async def test_resuming_before_an_answer_pauses_again_without_asking_twice() -> None:
    agent = Agent(ScriptedModel([call("echo", x=1), text("done")]), tools=[echo_tool()], policy=ask("echo"))
    first = await agent.run("go")
    second = await agent.resume(first.session)
    assert second.reason == "approval_required"
    assert [one.id for one in second.approvals] == [one.id for one in first.approvals]


async def test_an_answer_that_came_after_the_request_expired_asks_again(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = Agent(ScriptedModel([call("echo", x=1), text("done")]), tools=[echo_tool()], policy=ask("echo"))
    async with open_session("memory:", clock=clock) as session:
        first = await agent.run("go", session=session)
        clock.advance(first.approvals[0].expires_at - clock.now() + 1)
        with pytest.raises(ApprovalExpired, match=r"expired at 20\d\d-.*Resume the session"):
            await session.answer(first.approvals[0].id, "allow")
        second = await agent.resume(session)

    assert second.reason == "approval_required"
    assert second.approvals[0].id != first.approvals[0].id


async def test_edited_arguments_are_validated_and_run_while_the_transcript_keeps_the_models_own(tmp_path: Path) -> None:
    seen: list[JsonObject] = []

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        seen.append(arguments)
        return "ok"

    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "additionalProperties": False}
    tool = Tool(name="set", description="Set.", parameters=schema, run=run)
    agent = Agent(ScriptedModel([call("set", n=5), text("done")]), tools=[tool])
    paused = await agent.run("go")
    await paused.session.answer(paused.approvals[0].id, "allow", arguments={"n": 2})
    done = await agent.resume(paused.session)
    assert [one.status for one in done.tool_calls] == ["ok"]
    assert done.messages[1].calls[0].arguments == '{"n": 5}'
    assert seen == [{"n": 2}]


async def test_a_new_task_on_a_paused_session_answers_the_open_call_first() -> None:
    async with provider({"calls": [{"name": "echo", "arguments": {}}]}, {"text": "new"}) as mock:
        agent = Agent(resolve_model("openai-chat:m", base_url=mock.base_url), tools=[echo_tool()], policy=ask("echo"))
        paused = await agent.run("first")
        done = await agent.run("something else", session=paused.session)

    assert (done.text, mock.refusals) == ("new", [])
    assert [message.role for message in done.messages] == ["user", "assistant", "tool", "user", "assistant"]


async def test_two_runs_of_one_session_at_once_are_refused() -> None:
    gate = Gate()
    agent = Agent(ScriptedModel([Turn(text="slow", gate=gate)]))
    async with open_session("memory:", id="s") as session, agent.stream("go", session=session) as run:
        async for event in run:
            if event.type == "model.started":
                with pytest.raises(SessionHeld, match="'s'"):
                    await agent.run("again", session=session)
                gate.open()
    assert run.result.completed


async def test_there_is_nothing_to_resume_in_a_new_or_completed_session() -> None:
    agent = Agent(ScriptedModel([text("x")]))
    async with open_session("memory:") as session:
        with pytest.raises(NothingToResume, match="no run yet"):
            await agent.resume(session)
        await agent.run("go", session=session)
        with pytest.raises(NothingToResume, match="completed"):
            await agent.resume(session)


@pytest.mark.row("L28")
async def test_a_message_given_during_a_step_follows_its_results() -> None:
    entered, leave = Gate(), Gate()

    async def slow(arguments: JsonObject, ctx: ToolContext) -> str:
        entered.open()
        await leave.wait()
        return "slow"

    tool = Tool(name="slow", description="Slow.", parameters={"type": "object"}, effect="read", run=slow)
    async with provider({"calls": [{"name": "slow", "arguments": {}}]}, {"text": "done"}) as mock:
        agent = Agent(resolve_model("openai-chat:m", base_url=mock.base_url), tools=[tool])
        async with agent.stream("go") as run:
            await entered.wait()
            await run.steer("and be quick")
            leave.open()

    assert [m["role"] for m in mock.requests[1].body["messages"]] == ["user", "assistant", "tool", "user"]
    assert mock.requests[1].body["messages"][-1]["content"] == "and be quick"
    assert mock.refusals == []


@pytest.mark.row("CP13", "CP15", "CP10")
@pytest.mark.parametrize("effect", ["read", "unsafe"])
async def test_after_kill_9_in_mid_call_nothing_with_an_effect_is_done_twice(tmp_path: Path, effect: str) -> None:
    """The child dies inside its tool; the effect is counted by a file that no process's memory holds."""
    child = (
        "import asyncio, os, signal, sys\n"
        "from pathlib import Path\n"
        "from treadle import Agent, Tool, open_session\n"
        "from treadle.testing import ScriptedModel, call\n"
        "async def run(arguments, ctx):\n"
        "    with open(sys.argv[2], 'a') as file: file.write(ctx.idempotency_key + '\\n')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "tool = Tool(name='rec', description='d', parameters={}, effect=sys.argv[3], permission='allow', run=run)\n"
        "async def main():\n"
        "    async with open_session(sys.argv[1], id='s') as session:\n"
        "        await Agent(ScriptedModel([call('rec', x=1)]), tools=[tool]).run('go', session=session)\n"
        "asyncio.run(main())"
    )
    died = await asyncio.create_subprocess_exec(
        sys.executable, "-c", child, str(tmp_path / "a.db"), str(tmp_path / "rec"), effect
    )
    assert await died.wait() == -signal.SIGKILL
    assert lines(tmp_path / "rec") == 1

    rec = counter_tool(tmp_path / "rec", effect=effect, permission="allow")
    async with open_session(tmp_path / "a.db", id="s") as session:
        assert session.state.phase == "running"
        done = await Agent(ScriptedModel([text("done")]), tools=[rec]).resume(session)
        keys = (tmp_path / "rec").read_text().split()

    assert (done.completed, len(set(keys))) == (True, 1)
    assert len(keys) in ((1, 2) if effect == "read" else (1,))  # a read may run again, and may have started early
    if effect == "unsafe":
        told = done.messages[2].results[0]
        assert told.is_error
        assert "outcome_unknown" in told.content


async def test_every_failing_write_of_the_journal_is_told_and_loses_nothing_that_was_stored() -> None:
    """Fail at the n-th operation, for n = 1, 2, ... until a run has no fault left; then continue from what is stored."""
    for n in range(1, 60):
        store = MemoryJournal()
        journal = FaultyJournal(store, fail_at=n)
        agent = Agent(ScriptedModel([call("echo", x=1), text("done")]), tools=[echo_tool()])
        try:
            async with open_session(journal, id="s") as session:
                await agent.run("go", session=session)
        except JournalError:
            assert journal.has_failed
        else:
            assert not journal.has_failed
            return
        events = await store.read("s")
        if not events:
            continue
        state = fold("s", events)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        if state.phase == "running":
            async with open_session(store, id="s") as session:
                done = await Agent(ScriptedModel([text("after all")]), tools=[echo_tool()]).resume(session)
            assert done.completed
    pytest.fail("no run without a fault in 60 tries")


# --- bad input at the face


@pytest.mark.parametrize("name", ["", "nope", "nope:x", "openai-chat", "openai-chat:", ":", "script:"])
def test_an_unknown_model_is_told_with_what_there_is(name: str) -> None:
    with pytest.raises(UnknownModel, match="openai-chat:NAME"):
        Agent(name)


async def test_a_missing_key_is_told_before_any_request() -> None:
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


@pytest.mark.parametrize("task", ["", "  \n"])
async def test_an_empty_task_is_told(task: str) -> None:
    with pytest.raises(ConfigurationError, match="empty"):
        await Agent(ScriptedModel([text("x")])).run(task)


@pytest.mark.parametrize("task", [3, None, b"go", ["go"]])
async def test_a_task_that_is_no_text_is_told(task: object) -> None:
    with pytest.raises(ConfigurationError, match="string or a Message"):
        await Agent(ScriptedModel([text("x")])).run(task)  # type: ignore[arg-type]


async def _heard(event: object) -> None: ...


@pytest.mark.parametrize(
    "words",
    [
        {"on_limit": "never"}, {"tool_choice": "grep"}, {"tools": [print]}, {"history": "some"}, {"tools": None},
        {"budget": {"max_tool_calls": 3}}, {"guards": 3}, {"instructions": b"x"}, {"profile": 3}, {"policy": "deny"},
        {"driver": "native"}, {"compiler": len}, {"subscribers": [3]}, {"subscribers": [_heard]}, {"interceptors": [3]},
        {"model": None}, {"model": 3},
    ],
)  # fmt: skip
def test_a_wrong_word_in_the_description_is_told(words: JsonObject) -> None:
    with pytest.raises(ConfigurationError):
        Agent(**{"model": "demo", **words})


async def test_the_journal_lists_sessions_with_their_state_and_task(tmp_path: Path) -> None:
    async with open_session(tmp_path / "a.db", id="done") as session:
        await Agent(ScriptedModel([text("x")])).run("Count the stars", session=session)
    agent = Agent(
        ScriptedModel([call("echo")]), tools=[echo_tool()], budget=Budget(max_model_turns=1), on_limit="report"
    )
    async with open_session(tmp_path / "a.db", id="stopped") as session:
        await agent.run("Continue for ever", session=session)

    journal = await open_journal(tmp_path / "a.db")
    try:
        listed = {one.id: (one.phase, one.task) for one in await journal.sessions()}
    finally:
        await journal.close()
    assert listed == {"done": ("completed", "Count the stars"), "stopped": ("stopped", "Continue for ever")}
