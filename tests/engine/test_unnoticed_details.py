"""What a survey of mutations showed that no test noticed: names that were taken, long refusals, and doubts that a rewind leaves."""

from typing import Any

import msgspec
import pytest

from pipeline_tools import raising, read, run_calls, types
from treadle import Agent, Budget, Rejected, Tool, ToolCall, ToolContext, open_session
from treadle.engine.model_calls.response import CallNames, ResponseCalls
from treadle.errors import JournalError
from treadle.journals.memory import MemoryJournal
from treadle.testing import FaultyJournal, ScriptedModel, call
from treadle.tools import JsonObject

LONG = {"why": [*range(30_000)]}


# --- names


@pytest.mark.row("N02")
def test_a_call_without_an_id_is_named_by_its_place_and_by_a_number_where_that_is_taken() -> None:
    names = CallNames({"call_3_1", "call_3_2", "call_3_2_2"}, 3)

    assert [names.give(place, "") for place in (0, 0, 1, 1, 2)] == [
        "call_3_1_2", "call_3_1_3", "call_3_2_3", "call_3_2_4", "call_3_3",
    ]  # fmt: skip


@pytest.mark.row("N02")
def test_an_id_that_was_used_or_is_strange_is_replaced() -> None:
    names = CallNames(set(), 1)
    given = [names.give(0, raw) for raw in ("a", "a", "b c", "\n", "é", "")]

    assert given == ["a", "call_1_1", "call_1_1_2", "call_1_1_3", "call_1_1_4", "call_1_1_5"]


@pytest.mark.row("N02")
def test_calls_that_are_ready_early_are_named_by_their_place_among_them() -> None:
    calls = ResponseCalls(set(), 1)
    named = [calls.ready(ToolCall(id="", name="look", arguments=f'{{"n": {number}}}')) for number in range(3)]

    assert [one.id for one in named if one is not None] == ["call_1_1", "call_1_2", "call_1_3"]


# --- long refusals


@pytest.mark.row("F04", "B10")
async def test_a_long_refusal_is_told_whole_where_nothing_is_shortened() -> None:
    result = await run_calls(
        call("look"), tools=[read(raising(Rejected(LONG)))], budget=Budget(max_tool_result_chars=None)
    )

    (finished,) = await types(result, "tool.finished")
    assert msgspec.json.decode(finished.result.content)["details"] == [LONG]
    assert (finished.result.data, finished.result.artifact) == (LONG, None)


@pytest.mark.row("F04", "B10")
async def test_of_a_long_refusal_the_service_own_words_are_what_is_kept_whole() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        result = await run_calls(
            call("look"), tools=[read(raising(Rejected(LONG)), result_limit=2000)], session=session
        )
        (finished,) = await types(result, "tool.finished")
        kept = await journal.blob(finished.result.artifact)

    assert msgspec.json.decode(kept) == LONG
    assert len(finished.result.content) <= 2000


# --- what is settled without a run


class Dies(FaultyJournal):
    """A journal whose process dies before the result of call `p` is stored."""

    def __init__(self, journal: MemoryJournal) -> None:
        super().__init__(journal, fail_at=0)

    async def append(self, session_id: str, events: Any, *, state: str, durable: bool) -> None:
        if any(event.type == "tool.finished" and event.call_id == "p" for event in events):
            raise JournalError("gone")
        await super().append(session_id, events, state=state, durable=durable)


@pytest.mark.row("Q10", "ST10")
@pytest.mark.parametrize(("effect", "doubts"), [("unsafe", ["p"]), ("idempotent", ["p"]), ("read", [])])
async def test_a_rewind_records_the_doubt_about_a_call_that_had_started(effect: str, doubts: list[str]) -> None:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        return "paid"

    pay = Tool(
        name="pay", description="Pay.", parameters={"type": "object"}, effect=effect, permission="allow", run=run
    )
    journal = MemoryJournal()
    async with open_session(Dies(journal), id="s") as session:
        with pytest.raises(JournalError, match="gone"):
            await Agent(ScriptedModel([call("pay", id="p")]), tools=[pay]).run("go", session=session)
    async with open_session(journal, id="s") as session:
        await session.rewind(2)
        events = await session.events()

    assert [event.call_id for event in events if event.type == "tool.in_doubt"] == doubts
    (finished,) = [event for event in events if event.type == "tool.finished"]
    assert finished.result.status == ("outcome_unknown" if doubts else "cancelled")
