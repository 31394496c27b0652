"""What is told of a session that was moved, of time that ran before it, and of what a compaction has left."""

import hashlib
from typing import Any

import msgspec
import pytest

from pipeline_tools import Recorder, tool_of
from treadle import Agent, Budget, NoSuchPoint, open_session
from treadle.events import AnyEvent, BudgetWarned, ContextCompacted, MessageAdded, RunStarted
from treadle.journals.memory import MemoryJournal
from treadle.messages import ToolCall, user_message
from treadle.permissions.protection import with_protection
from treadle.ports import Decision
from treadle.redaction import Redactor
from treadle.sessions.transfer import Parcel, pack, pack_redacted
from treadle.sessions.views import CompiledView, ReadOnlyView
from treadle.state import SessionState
from treadle.testing import FakeClock, ScriptedModel, call, text
from treadle.tools import CheckedCall


async def test_a_session_that_was_moved_is_not_said_to_be_safe_to_run_again() -> None:
    async with open_session(MemoryJournal(), id="s") as session:
        await Agent(ScriptedModel([text("x")])).run("go", session=session)
        before = (await session.explain()).rerun
        await session.move("elsewhere")
        after = (await session.explain()).rerun

    assert (before.can_resume, before.is_safe) == (False, True)
    assert (after.can_resume, after.is_safe) == (False, False)
    assert after.why == "The session continues in elsewhere: what is done there is unknown here."


@pytest.mark.row("B18")
@pytest.mark.parametrize(("seconds", "warned"), [(79.0, []), (81.0, ["max_wall_time_seconds"])])
async def test_the_time_that_a_run_may_take_is_counted_from_its_own_beginning(
    seconds: float, warned: list[str]
) -> None:
    clock = FakeClock()
    clock.advance(1000.0)

    async def look(arguments: Any, ctx: Any) -> str:
        clock.advance(seconds)
        return "seen"

    async with open_session(MemoryJournal(), id="s", clock=clock) as session:
        agent = Agent(
            ScriptedModel([call("look"), text("x")]), tools=[tool_of(look, "look", effect="read")], budget=Budget(max_wall_time_seconds=100.0)
        )  # fmt: skip
        await agent.run("go", session=session)
        found = [event.budget for event in await session.events() if isinstance(event, BudgetWarned)]

    assert found == warned


@pytest.mark.parametrize(
    ("kind", "boxed", "effect", "found"),
    [
        ("allow", "allow", "unsafe", ("ask", "allow")),
        ("sandbox", "allow", "unsafe", ("ask", "sandbox")),
        ("ask", "sandbox", "unsafe", ("ask", "sandbox")),
        ("ask", "allow", "unsafe", ("ask", "allow")),
        ("deny", "allow", "unsafe", ("deny", "allow")),
        ("allow", "allow", "read", ("allow", "allow")),
    ],
)
def test_a_question_about_a_protected_file_lifts_no_sandbox(kind: Any, boxed: Any, effect: str, found: Any) -> None:
    tool = tool_of(Recorder(), "save", effect=effect)
    save = CheckedCall(
        call=ToolCall(id="c", name="save", arguments="{}"), tool=tool, arguments={"path": ".env"}, values={},
        effect=tool.effect_of({}), position=0, digest="", key="",
    )  # fmt: skip
    decision = Decision(kind=kind, rule="r", scope="user", by="eve", consent=boxed)
    after = with_protection(decision, save, {})

    assert (after.kind, after.consent) == found
    if found[0] == "ask":
        assert (after.rule, after.scope, after.by) == ("protected file", "runtime", "runtime")
        assert after.reason.startswith(".env is protected: it controls what runs later")
    else:
        assert after == decision
    other = msgspec.structs.replace(save, arguments={"path": "notes.txt"})
    assert with_protection(decision, other, {}) == decision


class Live:
    """A session as a view sees it."""

    def __init__(self, state: SessionState) -> None:
        self.state, self.id = state, state.id

    def __getattr__(self, name: str) -> Any:
        return getattr(self.state, name)


def test_a_view_for_requests_shows_what_compactions_have_left_and_keeps_its_copy_until_there_is_more() -> None:
    state = SessionState("s")

    def record(*events: AnyEvent) -> None:
        for event in events:
            state.apply(msgspec.structs.replace(event, seq=state.head + 1))

    def added(words: str) -> MessageAdded:
        return MessageAdded(message=user_message(words))

    view = CompiledView(state, ReadOnlyView(Live(state)))  # type: ignore[arg-type]
    record(added("one"), added("two"), RunStarted(task="three"), added("three"))
    plain = view.state
    record(ContextCompacted(tier="t", reason="size", first=1, last=2, messages=(user_message("short"),)))
    shown = view.state

    assert [message.text for message in plain.messages] == ["one", "two", "three"]
    assert (
        [message.text for message in shown.messages]
        == [message.text for message in view.messages]
        == ["short", "three"]
    )
    assert shown.message_seqs == [2, 4]
    assert shown.run is not None
    assert shown.run.first_message == 1
    assert view.state is shown
    record(added("four"))
    assert [message.text for message in view.state.messages] == ["short", "three", "four"]
    assert [message.text for message in state.messages] == ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    ("point", "words"),
    [
        ({"step": 9}, "has no whole step 9"),
        ({"message": 9}, "has no point after message 9"),
        ({"at": "there"}, "has no mark 'there'. Marks: here, start."),
        ({"at": 99}, "There is no event 99: the session's events have the numbers 1 to"),
    ],
    ids=["step", "message", "mark", "event"],
)
async def test_a_point_that_is_not_there_is_named(point: Any, words: str) -> None:
    async with open_session(MemoryJournal(), id="s") as session:
        await Agent(ScriptedModel([text("x")])).run("go", session=session)
        await session.mark("start")
        await session.mark("here")
        with pytest.raises(NoSuchPoint) as caught:
            await session.fork(**point)

    assert words in str(caught.value)


@pytest.mark.parametrize(("task", "is_changed"), [("Pay invoice 7", False), ("The password=hunter2hunter2", True)])
def test_an_export_without_secrets_begins_with_a_header_that_says_whether_any_were_hidden(
    task: str, is_changed: bool
) -> None:
    event = MessageAdded(message=user_message(task), session_id="s", seq=1)
    parcel = Parcel(session_id="s", events=(event,), blobs={hashlib.sha256(b"all of it").hexdigest(): b"all of it"})
    lines = list(pack_redacted(parcel, Redactor()))
    assert msgspec.json.decode(lines[-1]) == msgspec.json.decode(list(pack(parcel))[-1])
    header = msgspec.json.decode(lines[0])

    assert (header["session_id"], header["events"], header.get("redacted", False)) == ("s", 1, is_changed)
    assert (lines == list(pack(parcel))) is not is_changed
    assert any(b"hunter2" in line for line in lines) is False
