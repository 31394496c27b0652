"""Behaviours that a wrong change once broke without any test noticing: the request after a limit, and the commits of a step."""

from collections.abc import Sequence
from typing import Any

import pytest

from loop_tools import echo_tool
from pipeline_tools import Recorder, read, results
from treadle import Agent, Budget, Guards, open_session
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, Turn, call, text

ONE = Budget(max_model_turns=1)


@pytest.mark.row("L10")
async def test_no_summary_is_asked_for_where_nothing_was_done() -> None:
    model = ScriptedModel([text("never")])
    result = await Agent(model, tools=[echo_tool()], budget=Budget(max_model_turns=0)).run("go")

    assert (result.reason, len(model.requests)) == ("step_limit_reached", 0)


@pytest.mark.row("L10")
async def test_the_notice_of_a_limit_stands_with_the_last_result_before_it_and_with_no_other() -> None:
    model = ScriptedModel([[call("echo", x=1), call("echo", x=2)], call("echo", x=3), text("never")])
    result = await Agent(model, tools=[echo_tool()], budget=ONE).run("go")

    told = [isinstance(one, dict) and "limit_reached" in one for one in results(result)]
    assert told == [False, True, False]


@pytest.mark.row("L10", "N08")
async def test_the_limit_stays_the_reason_where_the_answer_to_its_closing_request_is_refused() -> None:
    model = ScriptedModel([call("echo", x=1), Turn(text="I will not.", finish="recitation")])
    result = await Agent(model, tools=[echo_tool()], budget=ONE, guards=Guards(finish_reasons=("recitation",))).run(
        "go"
    )

    assert result.reason == "step_limit_reached"


class Commits(MemoryJournal):
    """A journal that notes the types of events in each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[list[str]] = []

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        self.all.append([event.type for event in events])
        await super().append(session_id, events, state=state, durable=durable)


async def test_an_answer_is_stored_with_what_the_model_is_told_that_it_lacks_or_with_the_end_of_its_run() -> None:
    journal = Commits()
    schema: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with open_session(journal, id="s") as session:
        result = await Agent(ScriptedModel([text("three"), text('{"n": 3}')]), output=schema).run("go", session=session)

    assert result.completed
    assert [kinds for kinds in journal.all if "model.finished" in kinds] == [
        ["model.finished", "message.added"],
        ["model.finished", "run.finished"],
    ]


@pytest.mark.row("L10")
async def test_a_closing_request_that_is_answered_with_more_of_the_same_is_no_reason_for_another() -> None:
    calls = [call("look", q=q) for q in ("errors", "Errors", "ERRORS", "errors ", " errors")]
    result = await Agent(ScriptedModel(calls), tools=[read(Recorder())], guards=Guards(no_progress=2)).run("go")

    assert (result.reason, result.steps) == ("repeated_failures", 4)
    assert result.stop.details == {
        "guard": "no_progress",
        "count": 2,
        "limit": 2,
        "tool": "look",
        "closing_request": {
            "reason": "repeated_failures",
            "guard": "no_progress",
            "count": 3,
            "limit": 2,
            "tool": "look",
        },
    }
