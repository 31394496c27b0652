"""`treadle acp` as a real process, driven by the client side of the official package."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

HANGING = """
import asyncio
from treadle import tool

@tool(effect="read")
async def hang() -> str:
    '''Wait for ever.'''
    print("this is not for the wire")
    await asyncio.Event().wait()
    return ""
"""
EDIT = [
    {"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]},
    {"calls": [{"name": "edit", "arguments": {"path": "a.txt", "old_text": "one error", "new_text": "no error"}}]},
    {"text": "Mended."},
]


class Editor(acp.Client):
    """An editor whose person answers each question with the next of `answers`."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, list[Any]]] = []
        self.updates: list[Any] = []
        self.seen = asyncio.Condition()

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        self.asked.append((tool_call, options))
        async with self.seen:
            self.seen.notify_all()
        answer = self.answers.pop(0)
        if answer == "wait":
            await asyncio.Event().wait()
        if answer == "dismiss":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=answer))

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        async with self.seen:
            self.seen.notify_all()

    async def until(self, holds: Any) -> None:
        async with self.seen:
            await self.seen.wait_for(holds)

    @property
    def text(self) -> str:
        return "".join(one.content.text for one in self.updates if one.session_update == "agent_message_chunk")

    def calls(self) -> list[Any]:
        return [one for one in self.updates if one.session_update == "tool_call"]

    def statuses(self, call_id: str) -> list[str]:
        changes = [one for one in self.updates if one.session_update == "tool_call_update"]
        return [one.status for one in changes if one.tool_call_id == call_id]


@asynccontextmanager
async def connected(treadle: Any, editor: Editor, *arguments: str) -> AsyncIterator[Any]:
    process = treadle.start("acp", *arguments, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=2**26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
    connection = acp.connect_to_agent(editor, asyncio.StreamWriter(transport, protocol, reader, loop), reader)
    connection.process, connection.leave = process, transport.close
    try:
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        yield connection
    finally:
        await connection.close()
        transport.close()
        await asyncio.to_thread(process.wait, 60)


def said(text: str) -> list[Any]:
    return [acp.text_block(text)]


def ends(treadle: Any) -> list[str]:
    lines = treadle("sessions", "export", "--last", code=0).stdout.splitlines()
    return [str(one["reason"]) for one in map(json.loads, lines) if one.get("type") == "run.finished"]


async def test_a_server_is_started_once_for_the_prompts_of_a_session(treadle: Any):
    raw = Path(__file__).parents[1] / "toolsets" / "mcp_raw_server.py"
    treadle("mcp", "add", "raw", "--", sys.executable, "-S", "-E", str(raw), str(treadle.folder), code=0)
    model = treadle.script("two.json", [{"text": "One."}, {"text": "Two."}])
    async with connected(treadle, Editor("allow_once"), "-m", model) as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        for _ in range(2):
            done = await agent.prompt(session_id=session.session_id, prompt=said("Go on."))
            assert done.stop_reason == "end_turn"

    lines = (treadle.folder / "log").read_text().splitlines()
    assert sum(line.startswith("started") for line in lines) == 1


@pytest.mark.row("E-ACP")
async def test_an_editor_runs_a_whole_session_with_an_approval_and_a_diff(treadle: Any):
    model = treadle.script("edit.json", EDIT)
    editor = Editor("allow_once")
    async with connected(treadle, editor, "-m", model) as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        done = await agent.prompt(session_id=session.session_id, prompt=said("Mend a.txt."))

    read, edit = editor.calls()
    assert session.modes.current_mode_id == "ask"
    assert {mode.id for mode in session.modes.available_modes} == {"ask", "accept-edits", "auto", "plan"}
    assert done.stop_reason == "end_turn"
    assert editor.text.endswith("Mended.")
    assert (read.kind, read.title, read.locations[0].path) == ("read", "read: a.txt", str(treadle.folder / "a.txt"))
    assert editor.statuses(read.tool_call_id) == ["in_progress", "completed"]
    assert edit.kind == "edit"
    assert editor.statuses(edit.tool_call_id) == ["in_progress", "completed"]
    ((question, options),) = editor.asked
    diff = question.content[0]
    assert question.tool_call_id == edit.tool_call_id
    assert (diff.type, diff.path) == ("diff", str(treadle.folder / "a.txt"))
    assert (diff.old_text, diff.new_text) == ("one error", "no error")
    assert {one.kind for one in options} >= {"allow_once", "reject_once"}
    assert (treadle.folder / "a.txt").read_text() == "no error\n"


@pytest.mark.row("E-ACP")
@pytest.mark.parametrize("answer", ["reject_once", "no such option"])
async def test_a_rejected_call_does_not_run(treadle: Any, answer: str):
    editor = Editor(answer)
    async with connected(treadle, editor, "-m", treadle.script("edit.json", EDIT)) as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        done = await agent.prompt(session_id=session.session_id, prompt=said("Mend a.txt."))

    assert done.stop_reason == "end_turn"
    assert editor.statuses(editor.calls()[1].tool_call_id) == ["failed"]
    assert (treadle.folder / "a.txt").read_text() == "one error\n"


@pytest.mark.row("E-ACP")
async def test_a_dismissed_question_waits_over_a_restart_and_a_loaded_session_continues(treadle: Any):
    model = treadle.script("edit.json", EDIT)
    editor = Editor("dismiss")
    async with connected(treadle, editor, "-m", model) as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=said("Mend a.txt."))
    assert "treadle approve" in editor.text

    later = Editor("allow_once")
    async with connected(treadle, later, "-m", treadle.script("rest.json", EDIT[2:])) as agent:
        await agent.load_session(cwd=str(treadle.folder), session_id=session.session_id, mcp_servers=[])
        replayed = [one.session_update for one in later.updates]
        done = await agent.prompt(session_id=session.session_id, prompt=said("/resume"))

    assert replayed[:3] == ["user_message_chunk", "tool_call", "tool_call_update"]
    assert "available_commands_update" in replayed
    assert done.stop_reason == "end_turn"
    assert (treadle.folder / "a.txt").read_text() == "no error\n"


@pytest.mark.row("E-ACP")
async def test_a_mode_of_the_session_holds_for_its_next_calls(treadle: Any):
    editor = Editor()
    async with connected(treadle, editor, "-m", treadle.script("edit.json", EDIT)) as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        await agent.set_session_mode(session_id=session.session_id, mode_id="plan")
        with pytest.raises(acp.RequestError):
            await agent.set_session_mode(session_id=session.session_id, mode_id="bypass")
        await agent.prompt(session_id=session.session_id, prompt=said("Mend a.txt."))

    assert [one.current_mode_id for one in editor.updates if one.session_update == "current_mode_update"] == ["plan"]
    assert not editor.asked
    assert (treadle.folder / "a.txt").read_text() == "one error\n"


@pytest.mark.row("E-ACP")
@pytest.mark.parametrize("where", ["tool", "question"])
async def test_a_cancelled_prompt_ends_its_run(treadle: Any, where: str):
    (treadle.folder / "hanging.py").write_text(HANGING)
    treadle.script("hang.json", [{"calls": [{"name": "hang", "arguments": {}}]}, {"text": "Never."}])
    treadle.script("edit.json", EDIT)
    given = ["-m", "script:hang.json", "--tools", "hanging.py"] if where == "tool" else ["-m", "script:edit.json"]
    editor = Editor("wait")
    async with connected(treadle, editor, *given) as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        prompting = asyncio.create_task(agent.prompt(session_id=session.session_id, prompt=said("Go.")))
        if where == "tool":
            await editor.until(
                lambda: any("in_progress" in editor.statuses(one.tool_call_id) for one in editor.calls())
            )
        else:
            await editor.until(lambda: editor.asked)
        await agent.cancel(session_id=session.session_id)
        done = await prompting

    assert done.stop_reason == "cancelled"
    assert ends(treadle) == ["cancelled"]
    assert (treadle.folder / "a.txt").read_text() == "one error\n"


@pytest.mark.row("E-ACP")
@pytest.mark.parametrize("how", ["closes", "signal"])
async def test_an_editor_that_goes_away_leaves_a_recorded_end(treadle: Any, how: str):
    (treadle.folder / "hanging.py").write_text(HANGING)
    treadle.script("hang.json", [{"calls": [{"name": "hang", "arguments": {}}]}, {"text": "Never."}])
    editor = Editor()
    async with connected(treadle, editor, "-m", "script:hang.json", "--tools", "hanging.py") as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        prompting = asyncio.create_task(agent.prompt(session_id=session.session_id, prompt=said("Go.")))
        await editor.until(lambda: any("in_progress" in editor.statuses(one.tool_call_id) for one in editor.calls()))
        if how == "closes":
            agent.leave()
        else:
            agent.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(agent.process.wait, 60) == 0
        prompting.cancel()

    assert ends(treadle) == ["cancelled"]


@pytest.mark.row("E-ACP")
def test_hostile_frames_are_answered_and_cost_nothing_else(treadle: Any):
    treadle.script("x.json", [{"text": "Done."}])
    process = treadle.start("acp", "-m", "script:x.json", stdin=subprocess.PIPE)
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    frames: list[Any] = [
        b"{", b"[]", b"7", b"\xff", b"[" * 50_000, {"jsonrpc": "2.0", "id": 2, "method": "no/such"},
        {"jsonrpc": "2.0", "id": 3, "method": "session/new", "params": {"cwd": "relative", "mcpServers": []}},
        {"jsonrpc": "2.0", "id": 4, "method": "session/new", "params": 7},
        {"jsonrpc": "2.0", "id": 5, "method": "session/prompt", "params": {"sessionId": "s_no", "prompt": []}},
        {"jsonrpc": "2.0", "id": 6, "method": "session/load", "params": {"sessionId": "s_no", "cwd": "/", "mcpServers": []}},
        {"jsonrpc": "2.0", "id": 7, "method": "session/set_mode", "params": {"sessionId": "s_no", "modeId": "plan"}},
        {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s_no"}}, {"jsonrpc": "2.0", "id": 99, "result": 1},
    ]  # fmt: skip
    lines = [frame if isinstance(frame, bytes) else json.dumps(frame).encode() for frame in [*frames, first]]
    process.stdin.write(b"\n".join(lines) + b"\n")
    process.stdin.flush()
    got: list[dict[str, Any]] = []
    while not {1, 2, 3, 4, 5, 6, 7} <= {one.get("id") for one in got}:
        line = process.stdout.readline()
        assert line, process.stderr.read().decode()
        got.append(json.loads(line))
    process.stdin.close()
    process.stdin = None
    process.communicate(timeout=60)

    assert process.returncode == 0
    by_id = {one.get("id"): one for one in got}
    assert by_id[1]["result"]["protocolVersion"] == 1
    assert all("error" in by_id[number] for number in range(2, 8))
    assert sum(one.get("id") is None for one in got) == 5
    assert treadle.json("sessions", "--json") == []


async def test_the_sessions_of_a_folder_are_listed_and_can_be_loaded(treadle: Any):
    model = treadle.script("s.json", [{"text": "Hello."}])
    for number in (49, 50):
        treadle("run", "-q", "-m", model, "--session", f"s{number}", f"Task {number}", code=0)
    other = treadle.folder / "elsewhere"
    other.mkdir()
    treadle("run", "-q", "-m", model, "-C", str(other), "--session", "far", "Far", code=0)
    async with connected(treadle, Editor(), "-m", model) as connection:
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        every = await connection.list_sessions()
        own = await connection.list_sessions(cwd=str(treadle.folder))
        loaded = await connection.load_session(cwd=str(treadle.folder), session_id=own.sessions[0].session_id)

    assert [one.session_id for one in every.sessions] == ["far", "s50", "s49"]
    assert [(one.session_id, one.cwd, one.title) for one in own.sessions] == [
        ("s50", str(treadle.folder), "Task 50"), ("s49", str(treadle.folder), "Task 49"),
    ]  # fmt: skip
    assert every.next_cursor is None
    assert loaded.modes is not None


@pytest.mark.row("E-ACP")
async def test_a_session_is_resumed_without_its_history_closed_and_deleted(treadle: Any):
    model = treadle.script("s.json", [{"text": "Hello."}])
    treadle("run", "-q", "-m", model, "--session", "s1", "Task", code=0)
    editor = Editor()
    async with connected(treadle, editor, "-m", model) as agent:
        about = (await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)).agent_capabilities
        resumed = await agent.resume_session(cwd=str(treadle.folder), session_id="s1")
        shown = [one for one in editor.updates if one.session_update.endswith("_chunk")]
        done = await agent.prompt(session_id="s1", prompt=said("Again."))
        await agent.close_session(session_id="s1")
        with pytest.raises(acp.RequestError):
            await agent.prompt(session_id="s1", prompt=said("It is closed."))
        with pytest.raises(acp.RequestError):
            await agent.resume_session(cwd=str(treadle.folder), session_id="never")
        deleted = [
            await agent._conn.send_request("session/delete", {"sessionId": one}) for one in ("s1", "s1", "never")
        ]
        left = (await agent.list_sessions()).sessions
        with pytest.raises(acp.RequestError):
            await agent.resume_session(cwd=str(treadle.folder), session_id="s1")
        with pytest.raises(acp.RequestError):
            await agent.ext_method("session/other", {})

    capabilities = about.session_capabilities.model_dump(exclude_none=True)
    assert capabilities == {"list": {}, "resume": {}, "close": {}, "delete": {}}
    assert (resumed.modes.current_mode_id, shown) == ("ask", [])
    assert done.stop_reason == "end_turn"
    assert deleted == [{}, {}, {}]
    assert left == []


@pytest.mark.row("E-ACP")
@pytest.mark.parametrize("method", ["session/close", "session/delete"])
async def test_a_session_with_a_run_under_way_is_cancelled_before_it_is_closed_or_deleted(treadle: Any, method: str):
    (treadle.folder / "hanging.py").write_text(HANGING)
    model = treadle.script("hang.json", [{"calls": [{"name": "hang", "arguments": {}}]}, {"text": "Never."}])
    editor = Editor()
    async with connected(treadle, editor, "-m", model, "--tools", "hanging.py") as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        prompting = asyncio.create_task(agent.prompt(session_id=session.session_id, prompt=said("Hang.")))
        await editor.until(lambda: any(getattr(one, "status", "") == "in_progress" for one in editor.updates))
        await agent._conn.send_request(method, {"sessionId": session.session_id})
        done = await prompting
        left = (await agent.list_sessions()).sessions

    assert done.stop_reason == "cancelled"
    assert len(left) == (method == "session/close")


@pytest.mark.row("E-ACP")
async def test_the_mode_is_an_option_of_the_session_too_and_both_say_the_same(treadle: Any):
    editor = Editor()
    async with connected(treadle, editor, "-m", treadle.script("edit.json", EDIT)) as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        of = {"session_id": session.session_id}
        answer = await agent.set_config_option(config_id="mode", value="plan", **of)
        await agent.set_session_mode(mode_id="accept-edits", **of)
        for config, value in (("mode", "bypass"), ("mode", True), ("model", "m")):
            with pytest.raises(acp.RequestError):
                await agent.set_config_option(config_id=config, value=value, **of)
        loaded = await agent.load_session(cwd=str(treadle.folder), **of)

    (option,) = session.config_options
    assert (option.id, option.category, option.type, option.current_value) == ("mode", "mode", "select", "ask")
    assert [one.value for one in option.options] == ["ask", "accept-edits", "auto", "plan"]
    assert [one.current_value for one in answer.config_options] == ["plan"]
    assert [one.current_value for one in loaded.config_options] == ["accept-edits"]
    modes = [one.current_mode_id for one in editor.updates if one.session_update == "current_mode_update"]
    assert modes == ["plan", "accept-edits"]
    options = [one.config_options for one in editor.updates if one.session_update == "config_option_update"]
    assert [one.current_value for (one,) in options] == ["accept-edits"]


async def test_the_list_of_what_is_to_be_done_is_the_plan_of_the_editor(treadle: Any):
    def todo(*items: tuple[str, str]) -> Any:
        rows = [{"text": text, "state": state} for text, state in items]
        return {"calls": [{"name": "todo", "arguments": {"items": rows}}]}

    turns = [
        todo(("Read", "in_progress"), ("Mend", "pending")),
        todo(("Read", "done"), ("Mend", "in_progress")),
        {"text": "Ok."},
    ]
    model = treadle.script("s.json", turns)
    editor, later = Editor(), Editor()
    async with connected(treadle, editor, "-m", model, "--tools", "todo") as connection:
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await connection.new_session(cwd=str(treadle.folder), mcp_servers=[])
        await connection.prompt(session_id=session.session_id, prompt=said("Mend it"))
    async with connected(treadle, later, "-m", model, "--tools", "todo") as connection:
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        await connection.load_session(cwd=str(treadle.folder), session_id=session.session_id, mcp_servers=[])

    assert plans(editor) == [
        [("Read", "in_progress"), ("Mend", "pending")], [("Read", "completed"), ("Mend", "in_progress")],
    ]  # fmt: skip
    assert plans(later) == plans(editor)[-1:]


def plans(editor: Editor) -> list[Any]:
    """Return the entries of each plan that the editor was given."""
    found = [one for one in editor.updates if one.session_update == "plan"]
    return [[(entry.content, entry.status) for entry in one.entries] for one in found]


async def test_the_next_prompt_answers_a_question_of_the_model(treadle: Any):
    ask = {"calls": [{"name": "ask_user", "arguments": {"question": "Which branch?"}}]}
    editor = Editor("dismiss")
    model = treadle.script("ask.json", [ask, {"text": "It is main."}])
    async with connected(treadle, editor, "-m", model, "--tools", "ask_user") as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=said("Go"))
        assert editor.text.endswith("ask_user waits for Which branch? Send the answer.")
        await agent.prompt(session_id=session.session_id, prompt=said("main"))

    assert editor.statuses(editor.calls()[0].tool_call_id)[-1] == "completed"
    assert editor.text.endswith("It is main.")


async def test_an_answer_from_elsewhere_counts_and_the_next_prompt_follows_it(treadle: Any):
    ask = {"calls": [{"name": "ask_user", "arguments": {"question": "Which branch?"}}]}
    editor = Editor("dismiss")
    model = treadle.script("ask.json", [ask, {"text": "It is main."}])
    async with connected(treadle, editor, "-m", model, "--tools", "ask_user") as agent:
        session = await agent.new_session(cwd=str(treadle.folder), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=said("Go"))
        await asyncio.to_thread(treadle, "answer", session.session_id, "main", code=0)
        await agent.prompt(session_id=session.session_id, prompt=said("next"))

    assert editor.statuses(editor.calls()[0].tool_call_id)[-1] == "completed"
    shown = treadle("sessions", "show", session.session_id, code=0).stdout
    assert '{"answer":"main"}' in shown
    assert shown.index('{"answer":"main"}') < shown.index("[user] next") < shown.index("It is main.")
