"""Behaviours that `make mutate` once broke without any test noticing: journals, validation, and who watches."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import Recorder, act, read, results, run_calls, statuses
from treadle import Agent, ConfigurationError, JournalError, NotDone, open_session
from treadle.errors import ToolDefinitionError
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, ScriptedModel, Turn, call, text
from treadle.validation import Schema

# --- the journal


class Noting(MemoryJournal):
    """A journal that notes what must survive a power cut, and how often its inbox is looked into."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: set[str] = set()
        self.looks = 0

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if durable:
            self.durable |= {event.type for event in events}
        await super().append(session_id, events, state=state, durable=durable)

    async def inbox(self, session_id: str) -> Any:
        self.looks += 1
        return await super().inbox(session_id)


@pytest.mark.row("SF7", "N14")
async def test_what_people_do_to_a_session_survives_a_power_cut() -> None:
    journal = Noting()
    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([text("x")])).run("go", session=session)
        await session.mark("here")
        journal.durable.clear()
        await session.mark("there")
        await session.rewind("here")
        await session.change(metadata={"tier": "gold"})
        assert journal.durable == {"session.marked", "session.rewound", "session.changed"}
        journal.durable.clear()
        await session.move("elsewhere")

    assert journal.durable == {"session.changed"}


@pytest.mark.row("Q05", "E02")
async def test_a_busy_loop_asks_its_inbox_only_now_and_then() -> None:
    journal = Noting()
    async with open_session(journal, id="s", clock=FakeClock()) as session:
        turns = [*(call("look", n=n) for n in range(40)), text("x")]
        await Agent(ScriptedModel(turns), tools=[read(Recorder())]).run("go", session=session)

    assert journal.looks <= 5


# --- the list of sessions


@pytest.mark.row("Q08")
async def test_a_session_is_listed_as_running_while_its_tool_runs() -> None:
    journal, states = MemoryJournal(), []

    async def look(arguments: Any, ctx: Any) -> str:
        states.extend([one.phase for one in await journal.sessions()])
        return "seen"

    async with open_session(journal, id="s") as session:
        await Agent(ScriptedModel([call("look"), text("x")]), tools=[read(look)]).run("go", session=session)

    assert states == ["running"]
    assert [one.phase for one in await journal.sessions()] == ["completed"]


@pytest.mark.row("ST04", "HF2")
async def test_a_run_that_another_process_has_begun_meanwhile_can_be_cancelled() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as seen, open_session(journal, id="s") as session:
        paused = await Agent(ScriptedModel([call("act")]), tools=[act(Recorder(), permission="ask")]).run(
            "go", session=session
        )
        is_cancelled = await seen.cancel()
        again = await Agent(ScriptedModel([text("x")]), tools=[act(Recorder())]).resume(session)

    assert (paused.reason, is_cancelled, again.reason) == ("approval_required", True, "cancelled")


@pytest.mark.row("E09", "Q02")
async def test_a_run_that_is_resumed_from_a_stale_view_keeps_its_id() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as stale, open_session(journal, id="s") as session:
        await Agent(ScriptedModel([call("act")]), tools=[act(Recorder(), permission="ask")]).run("go", session=session)
        await Agent(ScriptedModel([text("x")]), tools=[act(Recorder(), permission="ask")]).resume(stale)
        run_ids = {event.run_id for event in await stale.events()}

    assert len(run_ids) == 1


class Childless(MemoryJournal):
    """A journal that stores nothing of a child's run, as when the process is killed right after its session was made."""

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        if session_id != "s" and any(event.type == "run.started" for event in events):
            raise JournalError("killed")
        await super().append(session_id, events, state=state, durable=durable)


@pytest.mark.row("N07", "N01")
async def test_a_child_that_never_began_its_run_is_ended_with_its_call() -> None:
    journal = Childless()
    child = Agent(ScriptedModel([text("x")])).as_tool("research", "Find out.", effect="read")
    async with open_session(journal, id="s") as session:
        turns = [call("research", task="look"), text("I could not.")]
        await Agent(ScriptedModel(turns), tools=[child]).run("go", session=session)
        (ended,) = [event for event in await session.events() if event.type == "child.ended"]
        await check_session(session)

    assert (ended.status, ended.reason) == ("stopped", "cancelled")


# --- validation


@pytest.mark.row("V05", "F12")
async def test_a_tool_that_cannot_check_its_arguments_fails_as_an_error_of_its_own() -> None:
    def broken(arguments: Any) -> None:
        raise ZeroDivisionError("no")

    recorder = Recorder()
    result = await run_calls(call("look"), tools=[read(recorder, validate=broken)])

    assert (statuses(result), recorder.runs) == (["failed"], 0)
    assert results(result)[0]["code"] == "internal_error"


@pytest.mark.row("V04")
def test_a_property_whose_name_is_no_identifier_is_told_in_brackets() -> None:
    schema = Schema(
        {"type": "object", "properties": {"a b": {"type": "integer"}, "c-d": {"type": "integer"}}}, where="x"
    )

    assert [row["field"] for row in schema.violations({"a b": "x", "c-d": "y"})] == ['["a b"]', "c-d"]


@pytest.mark.row("V11", "V03")
@pytest.mark.parametrize("value", [3.0, 2.0**51, 2.0**53, 1e20, -1e20, 1e300])
def test_a_whole_float_in_a_result_is_no_integer_however_large_it_is(value: float) -> None:
    assert len(Schema({"type": "integer"}, where="x").check_result(value)) == 1
    assert Schema({"type": "number"}, where="x").check_result(value) == []


@pytest.mark.row("V03")
def test_a_text_that_is_no_date_is_no_date() -> None:
    schema = Schema({"type": "string", "format": "date"}, where="x")

    assert (len(schema.violations("tomorrow")), schema.violations("2026-11-22")) == (1, [])


class Words(str):
    """A text of a class of its own."""

    __slots__ = ()


@pytest.mark.row("H21", "T02")
@pytest.mark.parametrize("word", [{"maximum": 10**5000}, {"title": Words("n")}, {"default": float("nan")}])
def test_a_schema_that_cannot_be_written_as_json_is_refused_where_it_is_given(word: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="parameters of 'x' cannot be used"):
        Schema({"type": "integer", **word}, where="parameters of 'x'")


@pytest.mark.row("TF4", "MF7")
@pytest.mark.parametrize("place", [0, 299_999, 600_000, 899_999])
async def test_half_a_surrogate_pair_anywhere_in_a_long_result_is_found(place: int) -> None:
    words = "x" * place + "\ud800" + "x" * (899_999 - place)

    result = await run_calls(call("look"), tools=[read(Recorder(words))])

    assert statuses(result) == ["unexpected_result_shape"]


# --- what cannot be stored


@pytest.mark.row("SF15")
@pytest.mark.parametrize("origin", [["folder"], {"folder": "\ud800"}, {"at": float("nan")}, {1: 2}])
def test_what_a_run_is_to_remember_must_be_an_object_that_can_be_stored(origin: Any) -> None:
    run = Agent(ScriptedModel([text("x")])).stream("go")

    with pytest.raises(ConfigurationError, match="must be a JSON object"):
        run.remember(origin)


@pytest.mark.row("N13")
async def test_what_a_run_is_to_remember_is_on_record() -> None:
    run = Agent(ScriptedModel([text("x")])).stream("go")
    run.remember({"folder": "/srv"})
    async with run:
        pass

    state = run.result.session.state.run
    assert state is not None
    assert state.origin == {"folder": "/srv"}


@pytest.mark.row("SF15", "ST10")
@pytest.mark.parametrize(("word", "words"), [("by", {"by": 3}), ("reason", {"reason": "\ud800"})])
async def test_what_is_said_of_a_doubt_must_be_text_that_can_be_stored(word: str, words: Any) -> None:
    async with open_session("memory:") as session:
        with pytest.raises(ConfigurationError, match=f"^{word} (must be a string|cannot be stored)"):
            await session.resolve("p", NotDone, **{"by": "ada", "reason": "seen", **words})


# --- who watches


@pytest.mark.row("S10", "E01")
async def test_what_is_seen_of_a_response_that_streams_belongs_to_its_step() -> None:
    heard: list[AnyEvent] = []
    turns = [Turn(text="I look.", thinking="Hm.", calls=(call("look"),)), text("Done.")]

    await Agent(ScriptedModel(turns), tools=[read(Recorder())], subscribers=[heard.append]).run("go")

    deltas = [event for event in heard if event.type == "model.delta"]
    assert {(bool(one.text), bool(one.thinking), one.call is not None, one.step) for one in deltas} == {
        (True, False, False, 1), (False, True, False, 1), (False, False, True, 1), (True, False, False, 2),
    }  # fmt: skip


class Watching:
    """A policy that notes how often others had a turn of the event loop."""

    def __init__(self) -> None:
        self.turns, self.seen = 0, set[int]()

    def decide(self, call: Any, session: Any) -> None:
        self.seen.add(self.turns)

    async def tick(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


@pytest.mark.row("N10", "MF5")
async def test_others_have_turns_while_a_batch_of_many_calls_is_looked_at() -> None:
    policy = Watching()
    ticking = asyncio.create_task(policy.tick())
    batch = [call("act", n=n) for n in range(200)]

    await run_calls(*batch, tools=[act(Recorder())], policy=policy)
    ticking.cancel()

    assert len(policy.seen) >= 3


_heard: list[Any] = []
sys.addaudithook(lambda name, details: _heard.append(details) if name == "treadle.recorded" else None)


@pytest.mark.row("E02", "E07")
async def test_who_watches_the_process_hears_of_every_commit_with_its_session() -> None:
    _heard.clear()
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([call("look"), text("x")]), tools=[read(Recorder())]).run("go", session=session)
        events = await session.events()

    assert [event for name, _, commit in _heard if name == session.id for event in commit] == list(events)
