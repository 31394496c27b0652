"""What a survey of mutations showed that no test noticed: the words and codes of ends, and what is kept of a long result."""

import json
from typing import Any

import pytest

from pipeline_tools import Recorder, act, checked_call, run_calls, statuses, tool_of
from treadle import Agent, NoSuchPoint, ask, deny, file_tools, open_session
from treadle.engine.rules.bounds import bound_encoded
from treadle.engine.tool_calls import refusals
from treadle.messages import ToolCall
from treadle.permissions.modes import with_approval
from treadle.ports import Decision
from treadle.testing import ScriptedModel, call
from treadle.tools import CallStatus


async def test_a_run_that_its_own_condition_ends_says_so() -> None:
    result = await Agent(ScriptedModel([call("act")]), tools=[act(Recorder())], done_when=lambda session: True).run(
        "go"
    )

    assert (result.completed, result.message) == (True, "The condition of done_when holds.")


def test_a_call_whose_response_was_discarded_has_a_code_of_its_own() -> None:
    found = refusals.discarded(ToolCall(id="c", name="look", arguments="{}"))

    assert (found.call_id, found.name, found.status) == ("c", "look", CallStatus.CANCELLED)
    assert (found.code, found.message) == (
        "response_discarded",
        "The response that proposed this call was discarded.",
    )


@pytest.mark.parametrize(
    "fields", [{"a": "x" * 9000, "b": "y"}, {"b": "y", "a": "x" * 9000}, {"b": 7, "a": "x" * 9000, "c": None}]
)
@pytest.mark.parametrize("limit", [300, 1000])
def test_of_a_long_object_the_longest_text_is_shortened_wherever_it_stands(fields: dict[str, Any], limit: int) -> None:
    whole = json.dumps(fields)

    shown = bound_encoded(fields, [whole.encode()], limit, total_chars=len(whole))

    kept = json.loads(shown)
    assert len(shown) <= limit
    assert {name: value for name, value in kept.items() if name != "a"} == {
        name: value for name, value in fields.items() if name != "a"
    }
    assert "of 9000 characters" in kept["a"]


@pytest.mark.parametrize("required", [lambda call: 1 / 0, lambda call: True, lambda call: [1], True])
def test_a_tool_that_requires_approval_or_cannot_say_is_asked_about(required: Any) -> None:
    found = with_approval(Decision(kind="allow"), checked_call(tool_of(Recorder(), requires_approval=required)))

    assert (found.kind, found.rule, found.reason) == ("ask", "tool requires approval", "A person must allow this call.")


def test_a_person_s_interrupt_in_a_tool_s_function_is_not_swallowed() -> None:
    def stops(call: Any) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_approval(Decision(kind="allow"), checked_call(tool_of(Recorder(), requires_approval=stops)))


@pytest.mark.row("H20")
@pytest.mark.parametrize(("path", "status"), [("secret/key", "denied"), ("secret", "denied"), ("docs", "ok")])
async def test_what_may_not_be_read_may_not_be_searched(tmp_path: Any, path: str, status: str) -> None:
    for name in ("secret", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text("x")

    result = await run_calls(
        call("grep", pattern="x", path=path), tools=file_tools(tmp_path), policy=deny("read(path=secret/*)")
    )

    assert statuses(result) == [status]


async def test_the_nearest_whole_point_before_an_open_call_is_named() -> None:
    async with open_session("memory:") as session:
        agent = Agent(
            ScriptedModel([call("act"), call("act")]), tools=[act(Recorder(), permission=None)], policy=ask("act")
        )
        await agent.run("go", session=session)
        events = await session.events()
        asked = next(event.seq for event in events if event.type == "approval.requested")
        proposed = next(event.seq for event in events if event.type == "model.finished")
        before = max(event.seq for event in events if event.seq < proposed)
        with pytest.raises(NoSuchPoint) as refused:
            await session.fork(asked)

    assert f"The nearest such point is event {before}; or resume the run first." in str(refused.value)
