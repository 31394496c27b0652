"""A request is made for each attempt: a refusal as too long is answered by a shorter one, recorded, charged, and stable from then on."""

import asyncio
import json
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from test_recovered_calls import killed

from compaction_tools import DIALECTS, TOO_LONG, compactions, look, looks
from invariants import check_session
from pipeline_tools import on_fake_clock, read
from treadle import Agent, Budget, Price, ToolContext, open_journal, open_session, resolve_model
from treadle.context import ClearResults, Summarize, Tiers, WholeHistory, Window
from treadle.errors import ModelRejected, ModelUnavailable
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
from treadle.resolve import with_fallback
from treadle.resolve.archives import import_session
from treadle.sessions.session import fold
from treadle.state import SessionState
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject

PRICE = Price(input=1, output=2)


def words(message: Message) -> str:
    return message.text or " ".join(
        [*(one.content for one in message.results), *(one.arguments for one in message.calls)]
    )


class By:
    """A compactor that is due where it is said, and gives, raises or does what it is told."""

    def __init__(self, does: Any = None, *, due: Any = lambda need: False) -> None:
        self.does, self.due = does, due
        self.begun = asyncio.Event()

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        return self.due(need)

    async def compact(self, context: Compactable) -> Any:
        self.begun.set()
        if isinstance(self.does, BaseException):
            raise self.does
        return await self.does(context) if callable(self.does) else self.does


class Due(Summarize):
    """A summary of all but one turn, due before this step."""

    def __init__(self, step: int) -> None:
        super().__init__(keep=1)
        self._step = step

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        return need.step == self._step


async def made_shorter(*turns: Any, compactor: Any = None, price: Any = None, window: Any = None, **given: Any) -> Any:
    """Run these turns; return the result, the requests, the events and the compactions."""
    model = ScriptedModel(turns, **{"price": price, "window": window} if price or window else {})
    result = await Agent(model, tools=[look()], compactor=compactor, **given).run("Go")
    events = await result.session.events()
    await check_session(result.session)
    return result, model.requests, events, compactions(events)


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
    turns = [*looks(6), TOO_LONG, TOO_LONG, text("A summary."), TOO_LONG, text("Shorter."), TOO_LONG]
    result, _, events, made = await made_shorter(*turns, compactor=Tiers(ClearResults(keep=2), Summarize(keep=1)))

    assert (result.reason, [one.tier for one in made]) == ("context_overflow", ["results", "summary"])
    failed = [event for event in events if isinstance(event, ModelFailed)]
    assert [one.retry_in_seconds for one in failed] == [None] * len(failed)
    assert len(failed) <= 4


@pytest.mark.row("R-ATTEMPT")
async def test_without_anything_shorter_the_run_ends_after_one_request():
    turns = call("look", n=1), TOO_LONG, text("never")
    result, requests, events, _ = await made_shorter(*turns, compactor=ClearResults())

    assert (result.reason, len(requests)) == ("context_overflow", 2)
    assert skipped(events) == []  # nobody has asked


@pytest.mark.row("R-ATTEMPT")
@pytest.mark.parametrize(("retries", "reason"), [(0, "context_overflow"), (1, "completed")])
async def test_a_shorter_request_is_a_retry_that_the_budget_allows(retries, reason):
    limit = Budget(max_retries_per_model_call=retries)
    result, *_ = await made_shorter(*looks(5), TOO_LONG, text("Done."), compactor=ClearResults(keep=1), budget=limit)

    assert result.reason == reason


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
@pytest.mark.row("R-ATTEMPT", "R-STABLE")
@pytest.mark.parametrize(("count", "window"), [(12, 1_000), (30, 2_000)])
async def test_near_the_window_messages_are_made_shorter_first_and_between_two_times_only_grow_at_the_end(
    count, window
):
    turns = *looks(count), text("done")
    result, requests, events, made = await made_shorter(*turns, compactor=ClearResults(keep=2), window=window)

    assert (result.completed, {one.reason for one in made}) == (True, {"window"})
    assert not [event for event in events if isinstance(event, ModelFailed)]
    shown = [request.messages for request in requests]
    assert 0 < sum(later[: len(before)] != before for before, later in pairwise(shown)) <= len(made)


# --- a summary
@pytest.mark.row("R-STABLE", "R-PURSE")
async def test_a_summary_is_asked_for_under_its_compaction_and_charged():
    summary = Turn(text="All is found.", usage=Usage(input_tokens=1000, output_tokens=50))
    turns = *looks(4), TOO_LONG, summary, text("done")
    result, requests, events, (event,) = await made_shorter(*turns, compactor=Summarize(keep=1), price=PRICE)

    assert result.completed
    beside = [(one.type, one.step) for one in events if one.act == event.act]
    assert beside == [("model.started", 5), ("model.finished", 5), ("context.compacted", 5)]
    assert (event.usage.input_tokens, event.usage.output_tokens, event.cost) == (1000, 50, "0.0011")
    assert event.summary == "All is found."
    assert [words(one) for one in requests[-1].messages[:2]] == [
        "Go", "Summary of the work so far, in place of its messages:\n\nAll is found."
    ]  # fmt: skip
    own = [one for one in events if isinstance(one, ModelFinished) and one.act is None]
    run, about = result.session.state.run, await result.session.explain()
    assert run.spent.cost == sum((Decimal(one.cost or 0) for one in own), Decimal("0.0011"))
    assert (run.spent.model_turns, run.text) == (5, "done")
    assert [(one.act, one.tier, one.requests, one.cost) for one in about.acts] == [(event.act, "summary", 1, "0.0011")]
    assert (about.runs[0].compactions, about.runs[0].steps) == (1, 5)


@pytest.mark.row("R-PURSE")
async def test_a_summary_for_which_the_budget_has_no_room_is_not_asked_for():
    spent = Turn(text="", calls=(call("look", n=4),), usage=Usage(input_tokens=5000, output_tokens=1))
    compactor, budget = Summarize(keep=1, share=0.01), Budget(max_input_tokens=100)
    turns = *looks(3), spent, text("never")
    result, requests, *_ = await made_shorter(*turns, compactor=compactor, window=900, budget=budget)

    assert result.reason == "budget_exceeded"
    assert len(requests) <= 3


@pytest.mark.row("R-PURSE")
async def test_what_a_compactor_used_by_itself_is_charged_once():
    async def own(context: Compactable) -> Compaction:
        asked, usage = await context.ask([user_message("Sum up")]), Usage(input_tokens=7, output_tokens=3)
        said = (user_message(asked),)
        return Compaction(tier="own", begin=1, end=len(context.messages), messages=said, usage=usage, cost="0.5")

    summary = Turn(text="S", usage=Usage(input_tokens=100, output_tokens=10))
    turns = call("look", n=1), TOO_LONG, summary, text("done")
    result, _, events, (event,) = await made_shorter(*turns, compactor=By(own), price=PRICE)

    assert (event.usage.input_tokens, event.usage.output_tokens, event.cost) == (107, 13, "0.50012")
    finished = [one for one in events if isinstance(one, ModelFinished)]
    spent = result.session.state.run.spent
    assert spent.usage.input_tokens == sum(one.usage.input_tokens for one in finished) + 7
    assert spent.cost == sum((Decimal(one.cost or 0) for one in finished), Decimal("0.5"))


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
    turns = *looks(4), ModelRejected("no summary today", status=400), text("done")
    result, _, _, made = await made_shorter(*turns, compactor=Due(5))

    assert (result.completed, made) == (True, [])


async def test_a_summary_is_not_asked_for_again_once_the_run_is_stopped():
    """The run is cancelled when the first attempt has failed: nothing waits for the second, and nothing is asked."""

    def hear(event: AnyEvent) -> None:
        if event.type == "model.failed" and event.act is not None:
            run.cancel()

    model = ScriptedModel([*looks(2), ModelUnavailable("later", status=503), text("A summary."), text("done")])
    async with open_session("memory:") as session:
        run = Agent(model, tools=[look()], compactor=Due(3), subscribers=[hear]).stream("Go", session=session)
        result = await run.finish()
        beside = [one.type for one in await session.events() if one.act is not None]
        await check_session(session)

    assert (result.reason, beside) == ("cancelled", ["model.started", "model.failed"])
    assert len(model.requests) == 3


# --- compactions that are wrong
@pytest.mark.row("R-ATTEMPT")
@pytest.mark.parametrize(
    "made",
    [
        *(Compaction(tier="t", begin=begin, end=end, messages=()) for begin, end in ((1, 2), (2, 3), (0, 99), (3, 1))),
        Compaction(tier="t", begin=1, end=3, messages=(user_message("y" * 9999),)),
        Compaction(tier="t", begin=1, end=3, messages=(Message(role="tool", parts=()),)),
        Compaction(tier="t", begin=1, end=3, results={"unknown": "x"}),
        "nonsense",
        RuntimeError("broken"),
        SystemExit(3),
    ],
    ids=str,
)  # fmt: skip
async def test_a_compaction_that_splits_a_pair_or_helps_nothing_is_not_used(made):
    result, _, _, used = await made_shorter(*looks(3), TOO_LONG, text("never"), compactor=By(made))

    assert (result.reason, used) == ("context_overflow", [])


# --- several models
@pytest.mark.row("R-ATTEMPT")
async def test_with_fallback_each_attempt_is_made_for_the_model_that_is_asked():
    large = ScriptedModel([*looks(6), *[ModelUnavailable("down")] * 9], name="large", window=100_000)
    small = ScriptedModel([text("done")], name="small", window=700)
    needs: list[tuple[str, int | None]] = []

    class Noting(ClearResults):
        def is_due(self, need: RequestNeed, tokens: int) -> bool:
            needs.append((need.model, need.window))
            return super().is_due(need, tokens)

    agent = Agent(with_fallback(large, small, failures=1), tools=[look()], compactor=Noting(keep=1))
    result = await agent.run("Go")

    assert (result.completed, needs[0], needs[-1]) == (True, ("large", 100_000), ("small", 700))
    events = await result.session.events()
    assert [one.model for one in compactions(events)] == ["small"]
    assert [one.model for one in events if isinstance(one, ModelStarted)][-2:] == ["large", "small"]
    (request,) = small.requests
    shown = "".join(map(words, request.messages))
    assert (request.model, "found 1 x" in shown, "found 6 x" in shown) == ("small", False, True)


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
        events = await session.events()
        first, _, second = compactions(events)
        before = next(event.seq for event in events if event.seq > first.seq and event.type == "tool.finished")
        await session.rewind(before)
        assert session.state.compactions.made == (first,)
        assert session.state.shown[0].text == "Go"
        assert len(session.state.shown) == len(session.state.messages)
        await session.rewind(2)
        assert not session.state.compactions.made
        assert [one.text for one in session.state.shown] == ["Go"]
    assert second.tier == "summary"


@pytest.mark.row("R-STABLE", "R-PURSE")
@pytest.mark.parametrize(("point", "before"), [("summary", "context.compacted"), ("compacted", "run.finished")])
async def test_a_process_that_dies_in_a_compaction_loses_nothing_of_it(point, before):
    summary = Turn(text="A summary.", usage=Usage(input_tokens=900, output_tokens=9))
    turns = [*looks(5), TOO_LONG, summary, text("done")]
    journal = await killed(turns, [look()], before, compactor=Summarize(keep=1))

    another = [TOO_LONG, Turn(text="Another.", usage=Usage(input_tokens=800, output_tokens=8))]
    model = ScriptedModel([*(another if point == "summary" else []), text("done")])
    async with open_session(journal, id="s", must_exist=True) as session:
        assert session.state.run.spent.usage.input_tokens > 900
        shown = session.state.shown
        result = await Agent(model, tools=[look()], compactor=Summarize(keep=1)).resume(session)
        events = await session.events()
        await check_session(session)
    (made,) = compactions(events)
    assert (result.completed, made.usage.input_tokens) == (True, 800 if point == "summary" else 900)
    if point == "compacted":
        assert model.requests[0].messages == shown
    charged = sum(one.usage.input_tokens for one in events if isinstance(one, ModelFinished))
    assert result.session.state.run.spent.usage.input_tokens == charged


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
    assert [event.by for event in events if isinstance(event, CompactionAsked)] == ["ann"]
    contents = [one.content for message in model.requests[-1].messages for one in message.results]
    assert sum(one.startswith("[Old result of look cleared") for one in contents) == len(event.results) > 0


@pytest.mark.row("R-COMPACT-BY-HAND")
async def test_a_run_that_is_under_way_is_made_shorter_before_its_next_request():
    async def ask(arguments: JsonObject, ctx: ToolContext) -> str:
        await session.compact()
        return "asked"

    model = ScriptedModel([*looks(5), call("ask"), text("done")])
    async with open_session("memory:") as session:
        agent = Agent(model, tools=[look(), read(ask, "ask")], compactor=ClearResults(keep=2))
        result = await agent.run("Go", session=session)
        (event,) = compactions(await session.events())

    assert (result.completed, event.reason) == (True, "asked")
    assert ["found 1" in str(request.messages) for request in model.requests[-2:]] == [True, False]


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
    async with open_session("memory:") as session:
        await session.compact()
        agent = Agent(ScriptedModel([text("done")]), compactor=By(ValueError("no idea")))
        result = await agent.run("Go", session=session)
        (why,) = skipped(await session.events())

    assert (result.completed, "no idea" in why) == (True, True)


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


async def waits(context: Compactable) -> None:
    await asyncio.Event().wait()


async def fails_at_the_end(context: Compactable) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise RuntimeError("broken off") from None


@pytest.mark.parametrize("does", [waits, fails_at_the_end])
async def test_a_run_that_is_cancelled_while_it_is_made_shorter_ends_as_cancelled_and_goes_on_later(does, caplog):
    compactor = By(does, due=lambda need: need.step == 2)
    async with open_session("memory:") as session:
        run = Agent(ScriptedModel(looks(1)), tools=[look()], compactor=compactor).stream("Go", session=session)
        ending = asyncio.create_task(run.finish())
        await compactor.begun.wait()
        run.cancel()
        result = await ending
        assert (result.reason, compactions(await session.events())) == ("cancelled", [])
        done = await Agent(ScriptedModel([text("done")]), tools=[look()]).resume(session)
        await check_session(session)

    assert done.text == "done"
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


async def test_a_compactor_that_fails_three_times_is_not_asked_again_in_this_run():
    asked: list[int] = []
    compactor = By(ValueError("no idea"), due=lambda need: asked.append(need.step) or True)
    result, *_ = await made_shorter(*looks(6), text("Done."), compactor=compactor)

    assert (result.completed, asked) == (True, [1, 2, 3])


async def test_a_compactor_that_cannot_say_whether_it_is_due_shortens_nothing():
    compactor = By(Compaction(tier="t", begin=1, end=3, messages=()), due=lambda need: 1 // 0)
    result, _, _, made = await made_shorter(*looks(3), text("done"), compactor=compactor, window=100_000)

    assert (result.completed, made) == (True, [])
