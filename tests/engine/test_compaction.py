"""A request is made for each attempt: a refusal as too long is answered by a shorter one, recorded, charged, and stable from then on."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from invariants import check_session
from pipeline_tools import Recorder, on_fake_clock, read, types
from treadle import (
    Agent,
    Budget,
    ClearResults,
    Price,
    Summarize,
    Tiers,
    Tool,
    ToolContext,
    WholeHistory,
    Window,
    import_session,
    open_journal,
    open_session,
    resolve_model,
    with_fallback,
)
from treadle.errors import BudgetUsedUp, ContextOverflow, ModelRejected, ModelUnavailable
from treadle.events import (
    AnyEvent,
    CompactionAsked,
    CompactionSkipped,
    ContextCompacted,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    decode_event,
    encode_event,
)
from treadle.messages import Message, Usage, user_message
from treadle.ports import Compactable, Compaction, ModelRequest, RequestNeed, RequestView
from treadle.sessions.session import fold
from treadle.state import SessionState
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject

DIALECTS = {
    "openai-chat": Turn(status=400, error={"message": "too long", "code": "context_length_exceeded"}),
    "openai": Turn(text="He", error={"message": "too long", "code": "context_length_exceeded"}),
    "anthropic": Turn(status=413, error="Request exceeds the maximum size"),
    "bedrock": Turn(text="He", error={"type": "validationException", "message": "Input is too long for requested model."}),
    "bedrock-claude": Turn(status=400, error="The model returned the following errors: prompt is too long"),
    "cohere": Turn(status=400, error={"error_type": "TOO_MANY_TOKENS", "message": "too many tokens: size limit exceeded"}),
    "gemini": Turn(status=400, error="The input token count (9) exceeds the maximum number of tokens allowed (8)."),
}  # fmt: skip

TOO_LONG = ContextOverflow("The request is longer than the model's context.", status=400)

PRICE = Price(input=1, output=2)


def look(size: int = 400) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        return f"found {arguments['n']} " + "x" * size

    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return Tool(name="look", description="Look.", parameters=parameters, effect="read", run=run)


def looks(count: int, first: int = 1) -> list[Any]:
    return [call("look", n=n) for n in range(first, first + count)]


def compactions(events: Sequence[AnyEvent]) -> list[ContextCompacted]:
    return [event for event in events if isinstance(event, ContextCompacted)]


def words(message: Message) -> str:
    return (
        message.text or " ".join(one.content for one in message.results) or " ".join(c.arguments for c in message.calls)
    )


# --- an overflow
@pytest.mark.row("R-ATTEMPT")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_refusal_as_too_long_is_answered_by_a_shorter_request_over_every_dialect(dialect):
    turns = [*looks(5), DIALECTS[dialect], text("done")]
    async with MockProvider(turns) as mock:
        model = resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k")
        result = await Agent(model, tools=[look()], compactor=ClearResults(keep=2)).run("Go")
        refused, answered = mock.requests[-2], mock.requests[-1]

    assert result.completed, result.message
    (event,) = compactions(await result.session.events())
    assert (event.tier, event.reason, event.cost) == ("results", "overflow", "0")
    assert event.tokens_after < event.tokens_before
    assert set(event.results) == {one.id for one in result.tool_calls[:3]}
    assert len(json.dumps(answered.body)) < len(json.dumps(refused.body))
    assert "found 3 x" not in json.dumps(answered.body)
    assert "found 4 x" in json.dumps(answered.body)
    assert "found 1 x" in words(result.session.messages[2])  # the store is never changed


@pytest.mark.row("R-ATTEMPT")
async def test_each_refusal_takes_the_next_tier_and_they_are_bounded():
    model = ScriptedModel([*looks(6), TOO_LONG, TOO_LONG, text("A summary."), TOO_LONG, text("Shorter."), TOO_LONG])
    agent = Agent(model, tools=[look()], compactor=Tiers(ClearResults(keep=2), Summarize(keep=1)))

    result = await agent.run("Go")

    assert result.reason == "context_overflow"
    events = await result.session.events()
    assert [one.tier for one in compactions(events)] == ["results", "summary"]
    failed = [event for event in events if isinstance(event, ModelFailed)]
    assert [one.retry_in_seconds for one in failed] == [None] * len(failed)
    assert len(failed) <= 4


@pytest.mark.row("R-ATTEMPT")
async def test_without_anything_shorter_the_run_ends_after_one_request():
    model = ScriptedModel([call("look", n=1), TOO_LONG, text("never")])

    result = await Agent(model, tools=[look()], compactor=ClearResults()).run("Go")

    assert result.reason == "context_overflow"
    assert len(model.requests) == 2
    assert skipped(await result.session.events()) == []  # nobody has asked


@pytest.mark.row("R-ATTEMPT")
async def test_no_further_attempt_is_made_where_the_budget_allows_none():
    model = ScriptedModel([*looks(5), TOO_LONG, text("never")])
    agent = Agent(model, tools=[look()], compactor=ClearResults(), budget=Budget(max_retries_per_model_call=0))

    assert (await agent.run("Go")).reason == "context_overflow"


@pytest.mark.row("R-ATTEMPT")
async def test_a_compiler_alone_may_answer_a_refusal_and_is_told_why():
    needs: list[RequestNeed] = []

    class Later:
        """A compiler that has to wait for something."""

        async def compile(self, session: RequestView) -> Sequence[Message]:
            needs.append(session.need)
            await asyncio.sleep(0)
            return session.messages if not session.need.overflows else session.messages[:1]

    model = ScriptedModel([call("look", n=1), ModelUnavailable("busy"), TOO_LONG, text("done")], window=5_000)

    result = await Agent(model, tools=[look()], compiler=Later()).run("Go")

    assert result.completed
    assert [(one.step, one.attempt, one.reason, one.overflows) for one in needs] == [
        (1, 1, "step", 0), (2, 1, "step", 0), (2, 2, "retry", 0), (2, 3, "overflow", 1),
    ]  # fmt: skip
    assert {(one.model, one.window) for one in needs} == {("scripted", 5_000)}
    assert all(one.fixed_tokens > 0 for one in needs)
    assert len(model.requests[-1].messages) == 1


@pytest.mark.row("R-ATTEMPT")
async def test_a_window_takes_no_more_than_the_model_and_less_after_a_refusal():
    model = ScriptedModel([*looks(6), TOO_LONG, text("done")], window=400)

    result = await Agent(model, tools=[look()], compiler=Window(WholeHistory(), tokens=50_000)).run("Go")

    assert result.completed
    refused, answered = model.requests[-2:]
    assert len(refused.messages) < len(result.session.messages) - 1
    assert len(answered.messages) < len(refused.messages)


# --- before the request
@pytest.mark.row("R-ATTEMPT")
async def test_near_the_window_messages_are_made_shorter_before_the_request():
    model = ScriptedModel([*looks(12), text("done")], window=1_000)

    result = await Agent(model, tools=[look()], compactor=ClearResults(keep=2)).run("Go")

    assert result.completed
    made = compactions(await result.session.events())
    assert made
    assert {one.reason for one in made} == {"window"}
    assert not [event for event in await result.session.events() if isinstance(event, ModelFailed)]


@pytest.mark.row("R-STABLE")
async def test_what_is_shown_grows_at_its_end_only_between_compactions():
    model = ScriptedModel([*looks(30), text("done")], window=2_000)

    result = await Agent(model, tools=[look()], compactor=ClearResults(keep=3)).run("Go")

    made = len(compactions(await result.session.events()))
    shown = [request.messages for request in model.requests]
    breaks = sum(later[: len(before)] != before for before, later in pairwise(shown))
    assert 0 < breaks <= made


# --- a summary
@pytest.mark.row("R-STABLE", "R-PURSE")
async def test_a_summary_is_asked_for_under_its_compaction_and_charged():
    model = ScriptedModel(
        [
            *looks(4),
            TOO_LONG,
            Turn(text="All is found.", usage=Usage(input_tokens=1000, output_tokens=50)),
            text("done"),
        ],
        price=PRICE,
    )

    result = await Agent(model, tools=[look()], compactor=Summarize(keep=1)).run("Go")

    assert result.completed
    events = await result.session.events()
    (event,) = compactions(events)
    beside = [one for one in events if one.act == event.act]
    assert [one.type for one in beside] == ["model.started", "model.finished", "context.compacted"]
    assert {one.step for one in beside} == {5}
    assert (event.usage.input_tokens, event.usage.output_tokens, event.cost) == (1000, 50, "0.0011")
    assert event.summary == "All is found."
    assert [words(one) for one in model.requests[-1].messages[:2]] == [
        "Go", "Summary of the work so far, in place of its messages:\n\nAll is found."
    ]  # fmt: skip
    own = [one for one in events if isinstance(one, ModelFinished) and one.act is None]
    total = sum((Decimal(one.cost or 0) for one in own), Decimal("0.0011"))
    assert result.session.state.run is not None
    assert result.session.state.run.spent.cost == total
    assert result.session.state.run.spent.model_turns == 5
    assert result.session.state.run.text == "done"
    about = await result.session.explain()
    assert [(one.act, one.tier, one.requests, one.cost) for one in about.acts] == [(event.act, "summary", 1, "0.0011")]
    assert about.runs[0].compactions == 1
    assert about.runs[0].steps == 5
    await check_session(result.session)


@pytest.mark.row("R-PURSE")
async def test_a_summary_for_which_the_budget_has_no_room_is_not_asked_for():
    spent = Turn(text="", calls=(call("look", n=4),), usage=Usage(input_tokens=5000, output_tokens=1))
    model = ScriptedModel([*looks(3), spent, text("never")], window=900)
    asked: list[BaseException] = []

    class Asking(Summarize):
        async def compact(self, context: Compactable) -> Compaction | None:
            try:
                return await super().compact(context)
            except BudgetUsedUp as error:
                asked.append(error)
                raise

    agent = Agent(model, tools=[look()], compactor=Asking(keep=1, share=0.01), budget=Budget(max_input_tokens=100))

    result = await agent.run("Go")

    assert result.reason == "budget_exceeded"
    assert len(model.requests) <= 3


@pytest.mark.row("R-PURSE")
async def test_what_a_compactor_used_by_itself_is_charged_once():
    class Own:
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            return False

        async def compact(self, context: Compactable) -> Compaction | None:
            asked = await context.ask([user_message("Sum up")])
            usage = Usage(input_tokens=7, output_tokens=3)
            return Compaction(
                tier="own", begin=1, end=len(context.messages), messages=(user_message(asked),), usage=usage, cost="0.5"
            )

    model = ScriptedModel(
        [call("look", n=1), TOO_LONG, Turn(text="S", usage=Usage(input_tokens=100, output_tokens=10)), text("done")],
        price=PRICE,
    )

    result = await Agent(model, tools=[look()], compactor=Own()).run("Go")

    events = await result.session.events()
    (event,) = compactions(events)
    assert (event.usage.input_tokens, event.usage.output_tokens, event.cost) == (107, 13, "0.50012")
    finished = [one for one in events if isinstance(one, ModelFinished)]
    run = result.session.state.run
    assert run is not None
    assert run.spent.usage.input_tokens == sum(one.usage.input_tokens for one in finished) + 7
    assert run.spent.cost == sum((Decimal(one.cost or 0) for one in finished), Decimal("0.5"))


@pytest.mark.row("R-PURSE")
async def test_what_a_summary_that_broke_off_had_cost_is_charged_with_the_one_that_follows():
    broken = Turn(text="Half a", cut="before-terminal", usage=Usage(input_tokens=100, output_tokens=10))
    whole = Turn(text="S", usage=Usage(input_tokens=100, output_tokens=10))
    model = ScriptedModel([*looks(5), TOO_LONG, broken, whole, text("done")], price=PRICE)
    async with on_fake_clock() as session:
        result = await Agent(model, tools=[look()], compactor=Summarize(keep=1)).run("Go", session=session)
        events = await session.events()

    (event,) = compactions(events)
    [failed] = [one for one in events if isinstance(one, ModelFailed) and one.act == event.act]
    assert result.completed
    assert failed.usage is not None
    assert event.usage.input_tokens == 100 + failed.usage.input_tokens > 100
    assert Decimal(event.cost or 0) == Decimal("0.00012") + Decimal(failed.cost or 0) > Decimal("0.00012")


@pytest.mark.row("R-STABLE")
async def test_a_summary_whose_model_fails_ends_no_run_that_could_go_on():
    class AtFive(Summarize):
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            return need.step == 5

    model = ScriptedModel([*looks(4), ModelRejected("no summary today", status=400), text("done")])

    result = await Agent(model, tools=[look()], compactor=AtFive(keep=1)).run("Go")

    assert result.completed
    assert not compactions(await result.session.events())


async def test_a_summary_is_not_asked_for_again_once_the_run_is_stopped():
    """The run is cancelled when the first attempt has failed: nothing waits for the second, and nothing is asked."""

    class AtOnce(Summarize):
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            return need.step == 3

    def hear(event: AnyEvent) -> None:
        if event.type == "model.failed" and event.act is not None:
            run.cancel()

    model = ScriptedModel([*looks(2), ModelUnavailable("later", status=503), text("A summary."), text("done")])
    async with open_session("memory:") as session:
        agent = Agent(model, tools=[look()], compactor=AtOnce(keep=1), subscribers=[hear])
        run = agent.stream("Go", session=session)
        result = await run.finish()
        assert result.reason == "cancelled"
        beside = [one.type for one in await session.events() if one.act is not None]
        await check_session(session)

    assert beside == ["model.started", "model.failed"]
    assert len(model.requests) == 3


# --- compactions that are wrong
class Fixed:
    def __init__(self, made: Any) -> None:
        self.made = made

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        return False

    async def compact(self, context: Compactable) -> Any:
        if isinstance(self.made, BaseException):
            raise self.made
        return self.made


@pytest.mark.row("R-ATTEMPT")
@pytest.mark.parametrize(
    "made",
    [
        Compaction(tier="t", begin=1, end=2, messages=()),
        Compaction(tier="t", begin=2, end=3, messages=()),
        Compaction(tier="t", begin=0, end=99, messages=()),
        Compaction(tier="t", begin=3, end=1, messages=()),
        Compaction(tier="t", begin=1, end=3, messages=(user_message("y" * 9999),)),
        Compaction(tier="t", begin=1, end=3, messages=(Message(role="tool", parts=()),)),
        Compaction(tier="t", begin=1, end=3, results={"unknown": "x"}),
        "nonsense",
        RuntimeError("broken"),
        SystemExit(3),
    ],
    ids=str,
)
async def test_a_compaction_that_splits_a_pair_or_helps_nothing_is_not_used(made):
    model = ScriptedModel([*looks(3), TOO_LONG, text("never")])

    result = await Agent(model, tools=[look()], compactor=Fixed(made)).run("Go")

    assert result.reason == "context_overflow"
    assert not compactions(await result.session.events())
    await check_session(result.session)


# --- several models
@pytest.mark.row("R-ATTEMPT")
async def test_with_fallback_each_attempt_is_made_for_the_model_that_is_asked():
    large = ScriptedModel([*looks(6), *[ModelUnavailable("down")] * 9], name="large", window=100_000)
    small = ScriptedModel([text("done")], name="small", window=700)
    model = with_fallback(large, small, failures=1)
    needs: list[tuple[str, int | None]] = []

    class Noting(ClearResults):
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            needs.append((need.model, need.window))
            return super().is_due(need, tokens)

    result = await Agent(model, tools=[look()], compactor=Noting(keep=1)).run("Go")

    assert result.completed
    assert needs[0] == ("large", 100_000)
    assert needs[-1] == ("small", 700)
    events = await result.session.events()
    assert [one.model for one in compactions(events)] == ["small"]
    assert [one.model for one in events if isinstance(one, ModelStarted)][-2:] == ["large", "small"]
    assert len(small.requests) == 1
    assert small.requests[0].model == "small"
    check = "".join(map(words, small.requests[0].messages))
    assert "found 1 x" not in check
    assert "found 6 x" in check


# --- it lasts
async def compacted_session(journal: str | Path, session_id: str = "s") -> tuple[SessionState, ModelRequest]:
    """Make a session with two compactions; return its state and its last request."""
    model = ScriptedModel([*looks(6), TOO_LONG, *looks(2, 7), TOO_LONG, TOO_LONG, text("A summary."), text("done")])
    agent = Agent(model, tools=[look()], compactor=Tiers(ClearResults(keep=2), Summarize(keep=1)))
    async with open_session(journal, id=session_id) as session:
        result = await agent.run("Go", session=session)
        assert result.completed, result.message
        return session.state, model.requests[-1]


async def next_request(journal: str | Path, session_id: str) -> ModelRequest:
    """Ask once more in a session, and return what is asked."""
    model = ScriptedModel([text("yes")])
    async with open_session(journal, id=session_id, must_exist=True) as session:
        await Agent(model, tools=[look()]).run("And now?", session=session)
    return model.requests[-1]


@pytest.mark.row("R-STABLE")
async def test_what_is_shown_is_the_same_after_a_restart_a_fork_an_export_and_without_the_compactor(tmp_path):
    path = tmp_path / "j.db"
    state, last = await compacted_session(path)
    async with open_session(path, id="s", must_exist=True) as session:
        await session.fork(id="copy")
        archive = await session.export()
        again = fold("s", [decode_event(encode_event(event)) for event in await session.events()])
    assert again.shown == state.shown
    assert len(state.shown) < len(state.messages)
    async with open_journal(tmp_path / "other.db") as other:
        await import_session(other, archive)

    for journal, session_id in ((path, "copy"), (tmp_path / "other.db", "s"), (path, "s")):
        request = await next_request(journal, session_id)
        assert request.messages[: len(last.messages)] == last.messages
        assert [words(one) for one in request.messages[len(last.messages) :]] == ["done", "And now?"]


@pytest.mark.row("R-STABLE")
async def test_a_rewind_behind_a_compaction_brings_back_what_was_shown_there(tmp_path):
    path = tmp_path / "j.db"
    await compacted_session(path)
    async with open_session(path, id="s", must_exist=True) as session:
        first, _, second = compactions(await session.events())
        before = next(
            event.seq for event in await session.events() if event.seq > first.seq and event.type == "tool.finished"
        )
        await session.rewind(before)
        assert session.state.compactions.made == (first,)
        assert session.state.shown[0].text == "Go"
        assert len(session.state.shown) == len(session.state.messages)
        await session.rewind(2)
        assert not session.state.compactions.made
        assert [one.text for one in session.state.shown] == ["Go"]
    assert second.tier == "summary"


CHILD = """
import asyncio, os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_compaction import *

async def main(journal, point):
    def die(event):
        seen.append(event)
        if point == "summary" and event.act and event.type == "model.finished":
            os.kill(os.getpid(), signal.SIGKILL)
        if point == "compacted" and event.type == "context.compacted":
            os.kill(os.getpid(), signal.SIGKILL)
    seen = []
    model = ScriptedModel(
        [*looks(5), TOO_LONG, Turn(text="A summary.", usage=Usage(input_tokens=900, output_tokens=9)), text("done")]
    )
    agent = Agent(model, tools=[look()], compactor=Summarize(keep=1), subscribers=[die])
    async with open_session(journal, id="s") as session:
        await agent.run("Go", session=session)

asyncio.run(main(sys.argv[2], sys.argv[3]))
"""


@pytest.mark.row("R-STABLE", "R-PURSE")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("point", ["summary", "compacted"])
async def test_a_process_that_dies_in_a_compaction_loses_nothing_of_it(point, store, tmp_path, request):
    address = str(tmp_path / "j.db") if store == "sqlite" else request.getfixturevalue("postgres_url")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, str(Path(__file__).parent), address, point,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    assert await child.wait() == -signal.SIGKILL

    model = ScriptedModel(
        [TOO_LONG, Turn(text="Another.", usage=Usage(input_tokens=800, output_tokens=8)), text("done")]
    )
    if point == "compacted":
        model = ScriptedModel([text("done")])
    async with open_session(address, id="s", must_exist=True) as session:
        stored = session.state
        assert stored.run is not None
        assert stored.run.spent.usage.input_tokens > 900
        shown = stored.shown
        result = await Agent(model, tools=[look()], compactor=Summarize(keep=1)).resume(session)
        assert result.completed
        made = compactions(await session.events())
        await check_session(session)
    assert len(made) == 1
    assert made[0].usage.input_tokens == (800 if point == "summary" else 900)
    if point == "compacted":
        assert model.requests[0].messages == shown
    charged = sum(one.usage.input_tokens for one in await all_finished(address))
    assert result.session.state.run is not None
    assert result.session.state.run.spent.usage.input_tokens == charged


async def all_finished(address: str) -> list[ModelFinished]:
    async with open_session(address, id="s", must_exist=True) as session:
        return [one for one in await session.events() if isinstance(one, ModelFinished)]


# --- old journals
def test_an_event_of_an_older_version_changes_nothing_that_is_shown():
    event = decode_event(b'{"type": "context.compacted", "seq": 3, "summary": "old"}')
    assert isinstance(event, ContextCompacted)
    state = SessionState("s")
    state.apply(event)
    assert state.shown == ()
    assert (event.act, event.parent_call, event.parent_step) == (None, None, 0)


# --- by hand
def skipped(events: Sequence[AnyEvent]) -> list[str]:
    return [event.message for event in events if isinstance(event, CompactionSkipped)]


@pytest.mark.row("R-COMPACT-BY-HAND")
async def test_a_person_has_a_session_made_shorter_before_its_next_request(tmp_path):
    model = ScriptedModel([*looks(6), text("done"), text("still done"), text("again")])
    agent = Agent(model, tools=[look()])
    async with open_session(tmp_path / "j.db", id="s") as session:
        await agent.run("Go", session=session)
    async with open_session(tmp_path / "j.db", id="s") as session:  # another process would do the same
        await session.compact(by="ann")
    async with open_session(tmp_path / "j.db", id="s") as session:
        await agent.run("And now?", session=session)
        await agent.run("And then?", session=session)
        events = await session.events()

    (event,) = compactions(events)
    assert (event.reason, event.tier) == ("asked", "results")
    (asked,) = [event for event in events if isinstance(event, CompactionAsked)]
    assert asked.by == "ann"
    contents = [one.content for message in model.requests[-1].messages for one in message.results]
    assert (
        [content.startswith("[Old result of look cleared") for content in contents].count(True)
        == len(event.results)
        > 0
    )


@pytest.mark.row("R-COMPACT-BY-HAND")
async def test_a_run_that_is_under_way_is_made_shorter_before_its_next_request():
    asked = asyncio.Event()

    async def ask(arguments: JsonObject, ctx: ToolContext) -> str:
        await session.compact()
        asked.set()
        return "asked"

    model = ScriptedModel([*looks(5), call("ask"), text("done")])
    tools = [look(), Tool(name="ask", description="Ask.", parameters={}, effect="read", run=ask)]
    async with open_session("memory:") as session:
        result = await Agent(model, tools=tools, compactor=ClearResults(keep=2)).run("Go", session=session)
        events = await session.events()

    assert result.completed, result.message
    assert asked.is_set()
    (event,) = compactions(events)
    assert event.reason == "asked"
    assert "found 1" in str(model.requests[-2].messages)
    assert "found 1" not in str(model.requests[-1].messages)


@pytest.mark.row("R-COMPACT-BY-HAND")
async def test_whoever_asks_where_nothing_can_be_shorter_is_told_so_once():
    model = ScriptedModel([call("look", n=1), text("done"), text("still done")])
    agent = Agent(model, tools=[look(3)])
    async with open_session("memory:") as session:
        await session.compact()
        await session.compact()
        await agent.run("Go", session=session)
        await agent.run("And now?", session=session)
        events = await session.events()

    assert compactions(events) == []
    assert skipped(events) == ["The compactor found nothing to shorten."]


@pytest.mark.row("R-COMPACT-BY-HAND")
async def test_a_compactor_that_raises_by_hand_ends_no_run_and_the_person_is_told():
    class Broken:
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            return False

        async def compact(self, context: Compactable) -> Compaction | None:
            raise ValueError("no idea")

    async with open_session("memory:") as session:
        await session.compact()
        result = await Agent(ScriptedModel([text("done")]), compactor=Broken()).run("Go", session=session)
        events = await session.events()

    assert result.completed
    (why,) = skipped(events)
    assert "no idea" in why


@pytest.mark.row("R-COMPACT-BY-HAND")
async def test_a_wish_that_is_rewound_is_gone():
    model = ScriptedModel([*looks(6), text("done"), text("still done")])
    async with open_session("memory:") as session:
        await Agent(model, tools=[look()]).run("Go", session=session)
        before = session.state.head
        await session.ledger.record(CompactionAsked())
        assert session.state.compactions.asked == before + 1
        await session.rewind(before + 1)
        assert session.state.compactions.asked == before + 1
        await session.rewind(before)
        assert session.state.compactions.asked == 0
        await Agent(model, tools=[look()]).run("And now?", session=session)

        assert compactions(await session.events()) == []


async def test_a_run_that_is_cancelled_while_it_is_made_shorter_ends_as_cancelled_and_goes_on_later():
    begun = asyncio.Event()

    class Slow(ClearResults):
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            return need.step == 2

        async def compact(self, context: Compactable) -> Compaction | None:
            begun.set()
            await asyncio.Event().wait()
            return None

    async with open_session("memory:") as session:
        run = Agent(ScriptedModel([*looks(1)]), tools=[look()], compactor=Slow()).stream("Go", session=session)
        ending = asyncio.create_task(run.finish())
        await asyncio.wait_for(begun.wait(), 30)
        run.cancel()
        result = await asyncio.wait_for(ending, 30)
        assert (result.reason, compactions(await session.events())) == ("cancelled", [])
        done = await Agent(ScriptedModel([text("done")]), tools=[look()]).resume(session)
        await check_session(session)

    assert done.text == "done"


async def test_a_compactor_that_fails_three_times_is_not_asked_again_in_this_run():
    asked: list[int] = []

    class Fails(ClearResults):
        def is_due(self, need: Any, tokens: int) -> bool:
            asked.append(need.step)
            return True

        async def compact(self, context: Any) -> Any:
            raise ValueError("no idea")

    model = ScriptedModel([*([call("look", n=n)] for n in range(6)), text("Done.")])
    result = await Agent(model, tools=[read(Recorder())], compactor=Fails()).run("go")

    assert (result.completed, asked) == (True, [1, 2, 3])


async def test_a_compactor_that_cannot_say_whether_it_is_due_shortens_nothing():
    class Broken:
        def is_due(self, need: Any, tokens: int) -> bool:
            raise ValueError("no idea")

        async def compact(self, context: Any) -> Any:
            raise AssertionError("not due")

    model = ScriptedModel([call("look", n=1), text("done")], window=100_000)
    result = await Agent(model, tools=[read(Recorder())], compactor=Broken()).run("Go")

    assert result.completed
    assert await types(result, "context.compacted") == []


@pytest.mark.row("R-ATTEMPT")
async def test_the_one_retry_that_a_budget_allows_may_be_a_shorter_request():
    look = read(lambda arguments, ctx: "x" * 4_000)
    model = ScriptedModel([*[call("look", n=n) for n in range(4)], TOO_LONG, text("Done.")])
    agent = Agent(model, tools=[look], compactor=ClearResults(keep=1), budget=Budget(max_retries_per_model_call=1))
    assert (await agent.run("go")).completed


class RaisesAtTheEnd:
    """A compactor that waits until it is cancelled, and fails then."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        return True

    async def compact(self, context: Compactable) -> Compaction | None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("broken off") from None
        return None


async def test_a_run_that_is_cancelled_while_its_compactor_works_ends_as_cancelled_and_logs_no_error(caplog):
    compactor, model = RaisesAtTheEnd(), ScriptedModel([text("never")])
    run = Agent(model, compactor=compactor).stream("go")
    ending = asyncio.create_task(run.finish())
    await compactor.begun.wait()
    run.cancel()
    result = await ending

    assert (result.reason, model.requests) == ("cancelled", [])
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []
