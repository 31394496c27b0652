"""What policies, tools and compilers are shown is theirs alone; and what a run reports lists every call that ran."""

import copy
import operator
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from treadle.messages import Message, Opaque, Thinking, ToolCall, user_message
from treadle.sessions.views import ReadOnlyMessages, ReadOnlyView
from treadle.state import CallState, ChildState, RunState, SessionState
from treadle.tools import CallStatus, ToolResult


@pytest.mark.row("H21")
def test_a_view_shares_nothing_that_can_be_changed():
    result = ToolResult(call_id="2", name="look", status=CallStatus.OK, content="{}", data={"found": [1]})
    state = SessionState("s")
    state.metadata = {"tags": ["a"], "owner": {"name": "Ada"}}
    state.run = RunState(id="r", task="go", budget={"max_tool_calls": 1})
    state.run.children["c"] = ChildState(session_id="c", call_id="1", tool="ask")
    state.salvaged.append(CallState(call=ToolCall(id="1", name="look", arguments="{}"), position=0))
    state.answered = (CallState(call=ToolCall(id="2", name="look", arguments="{}"), position=0, result=result),)

    class Live:
        id, messages = "s", ()

    Live.state = state
    shown = ReadOnlyView(Live()).state
    shown.metadata["tags"].append("b")
    shown.metadata["owner"]["name"] = "Bob"
    assert shown.run is not None
    shown.run.children["c"].status = "completed"
    shown.run.budget["max_tool_calls"] = 99
    shown.salvaged[0].position = 7
    assert shown.answered[0].result is not None
    shown.answered[0].result.data["found"].append(2)
    shown.answered[0].result = None

    assert state.metadata == {"tags": ["a"], "owner": {"name": "Ada"}}
    assert (state.run.children["c"].status, state.run.budget) == ("running", {"max_tool_calls": 1})
    assert state.salvaged[0].position == 0
    assert (state.answered[0].result, result.data) == (result, {"found": [1]})


ITEM = {"type": "reasoning", "summary": [{"text": "Pay."}]}


def spoken() -> Message:
    return Message(
        role="assistant",
        parts=(Thinking(text="", payload=copy.deepcopy(ITEM)), Opaque(provider="x", payload=copy.deepcopy(ITEM))),
    )


CHANGES: list[Callable[[Any], object]] = [
    lambda payload: payload.update(type="other"),
    lambda payload: payload.__setitem__("type", "other"),
    lambda payload: payload.pop("type"),
    lambda payload: payload.clear(),
    lambda payload: payload["summary"].append("more"),
    lambda payload: payload["summary"].clear(),
    lambda payload: payload["summary"][0].update(text="No."),
    lambda payload: operator.ior(payload, {"type": "other"}),
    lambda payload: operator.iadd(payload["summary"], ["more"]),
]


@pytest.mark.row("H21")
@pytest.mark.parametrize("change", CHANGES)
def test_the_values_of_providers_in_shown_messages_refuse_every_change(change):
    state = SessionState("s")
    state.messages = [user_message("go"), spoken()]

    class Live:
        id, messages = "s", tuple(state.messages)

    Live.state = state
    view = ReadOnlyView(Live())
    for message in (view.messages[1], view.state.messages[1]):
        for part in message.parts:
            with pytest.raises(TypeError, match="read-only"):
                change(part.payload)

    assert state.messages[1] == spoken() == view.messages[1]
    assert view.messages is view.messages
    assert msgspec.json.encode(view.messages[1]) == msgspec.json.encode(spoken())
    own = copy.deepcopy(view.messages[1].parts[0].payload)
    change(own)


@pytest.mark.row("H21")
def test_a_shown_transcript_follows_the_session_over_growth_and_rewinds():
    shown, first, second, other = ReadOnlyMessages(), user_message("a"), spoken(), user_message("b")
    for messages in [(), (first,), (first, second), (first, second, other), (first,), (other, second), ()]:
        assert shown.of(messages) == messages
        assert shown.of(messages) is shown.of(messages)
    plain = (first, other)
    assert shown.of(plain) is plain
    longer = (*plain, user_message("c"))
    assert shown.of(longer) is longer
