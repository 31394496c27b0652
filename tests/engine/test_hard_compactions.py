"""Compactions where the summary itself goes wrong: refused, cut off, empty, too long, or about a task that must not be lost."""

import base64
from typing import Any

import pytest
from test_compaction import words

from compaction_tools import DIALECTS, TOO_LONG, compactions, look, looks
from invariants import check_session
from treadle import Agent, open_session, resolve_model
from treadle.budgets import Guards
from treadle.context import ClearResults, Handoff, Summarize, Tiers
from treadle.events import ModelFailed
from treadle.messages import Media, Message, Text
from treadle.ports import ModelRequest
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text


def is_summary(request: ModelRequest) -> bool:
    return not request.tools


@pytest.mark.parametrize("compactor", [Summarize(keep=1), Handoff(keep=1)], ids=["summary", "handoff"])
async def test_a_summary_that_is_refused_as_too_long_is_asked_for_with_half_of_the_words(compactor):
    model = ScriptedModel([*looks(6), TOO_LONG, TOO_LONG, TOO_LONG, text("The shelves are counted."), text("done")])

    result = await Agent(model, tools=[look(4_000)], compactor=compactor).run("Go")

    assert result.completed, result.message
    asked = [len(one.messages[0].text) for one in model.requests if is_summary(one)]
    assert len(asked) == 3
    assert asked[1] < asked[0] * 0.6
    assert asked[2] < asked[1] * 0.6
    failed = [event for event in await result.session.events() if isinstance(event, ModelFailed) and event.act]
    assert len(failed) == 2
    await check_session(result.session)


async def test_a_summary_that_is_always_too_long_is_asked_for_four_times_and_the_run_ends_with_the_overflow():
    model = ScriptedModel([*looks(6), TOO_LONG])

    result = await Agent(model, tools=[look()], compactor=Summarize(keep=1)).run("Go")

    assert result.reason == "context_overflow"
    assert len([one for one in model.requests if is_summary(one)]) == 4


async def test_a_handoff_that_the_model_cannot_write_after_an_overflow_keeps_what_is_recorded():
    turns = [*looks(6), TOO_LONG, text(""), text("done")]
    for turn in (text(""), call("look", n=99), Turn(text="I cannot help with that.", finish="content_filter")):
        turns[7] = turn
        model = ScriptedModel(turns)

        result = await Agent(model, tools=[look()], compactor=Handoff(keep=1)).run("Count the shelves")

        assert result.completed, result.message
        (event,) = compactions(await result.session.events())
        assert "Count the shelves" in event.summary
        assert "The model wrote no handoff." in event.summary
        assert "found 2" in event.summary
        await check_session(result.session)


async def test_a_refusal_to_sum_up_is_no_summary():
    model = ScriptedModel([*looks(6), TOO_LONG, Turn(text="I cannot help with that.", finish="content_filter")])

    result = await Agent(model, tools=[look()], compactor=Summarize(keep=1)).run("Go")

    assert result.reason == "context_overflow"
    assert not compactions(await result.session.events())


async def test_a_summary_that_is_cut_off_is_asked_for_once_more_and_marked_when_it_is_cut_again():
    half = Turn(text="Half of a summ", finish="length")
    model = ScriptedModel([*looks(6), TOO_LONG, half, text("A whole summary."), text("done")])
    result = await Agent(model, tools=[look()], compactor=Summarize(keep=1)).run("Go")
    (event,) = compactions(await result.session.events())
    assert event.summary == "A whole summary."
    assert [one.raise_output_limit for one in model.requests if is_summary(one)] == [False, True]

    model = ScriptedModel([*looks(6), TOO_LONG, half, half, text("done")])
    result = await Agent(model, tools=[look()], compactor=Summarize(keep=1)).run("Go")
    (event,) = compactions(await result.session.events())
    assert event.summary == "Half of a summ\n[The answer was cut off here: it reached the output limit.]"


@pytest.mark.parametrize("compactor", [Summarize(keep=1), Handoff(keep=1)], ids=["summary", "handoff"])
async def test_the_task_of_a_later_run_is_still_shown_word_for_word_after_two_compactions(compactor):
    model = ScriptedModel(
        [text("one"), *looks(6), TOO_LONG, text("S1."), *looks(5, 7), TOO_LONG, text("S2."), text("two"), text("three")]
    )
    agent = Agent(model, tools=[look()], compactor=compactor)
    async with open_session("memory:") as session:
        await agent.run("The first task", session=session)
        result = await agent.run("The second task", session=session)
        assert result.completed, result.message
        assert len(compactions(await session.events())) == 2
        seen = model.requests[-1].messages
        assert sum("The second task" in one.text for one in seen) == 1

        await agent.run("The third task", session=session)
        assert [one.text for one in model.requests[-1].messages][-1] == "The third task"
        await check_session(session)


@pytest.mark.parametrize("compactor", [Summarize(keep=1), Handoff(keep=1)], ids=["summary", "handoff"])
async def test_a_picture_in_the_task_stays_and_one_in_an_old_message_is_named(compactor):
    picture = Media(media_type="image/png", base64=base64.b64encode(b"pixels" * 100).decode(), name="shelf.png")

    def task(said: str) -> Message:
        return Message(role="user", parts=(Text(said), picture))

    model = ScriptedModel([text("zero"), text("one"), *looks(6), TOO_LONG, text("S."), text("two")])
    agent = Agent(model, tools=[look()], compactor=compactor)
    async with open_session("memory:") as session:
        await agent.run("Begin", session=session)
        await agent.run(task("What is on it?"), session=session)
        result = await agent.run(task("And here?"), session=session)

    assert result.completed, result.message
    (asked,) = [one for one in model.requests if is_summary(one)]
    assert "What is on it?\n[image/png shelf.png]" in asked.messages[0].text
    assert sum(picture in one.parts for one in model.requests[-1].messages) == 1


async def test_a_request_longer_than_the_window_is_made_shorter_until_it_fits_and_not_sent_before():
    def answer(request: ModelRequest) -> Any:
        size = sum(len(words(one)) for one in request.messages) // 4
        assert size < 4_000
        if is_summary(request):
            return text("All pages but the last are read.")
        return text("done") if len(turns) > 30 else turns.append(1) or call("look", n=len(turns))

    turns: list[int] = []
    model = ScriptedModel([answer], window=4_000)
    agent = Agent(
        model, tools=[look(3_000)], compactor=Tiers(ClearResults(), Handoff()), guards=Guards(budget_warning=None)
    )

    result = await agent.run("Read " + "all the pages of the book " * 60)

    assert result.completed, result.message
    await check_session(result.session)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_summary_that_calls_a_tool_is_no_message_over_any_dialect(dialect):
    turns = [*looks(5), DIALECTS[dialect], call("look", n=9), text("done")]
    async with MockProvider(turns) as mock:
        model = resolve_model(f"{dialect}:m", base_url=mock.base_url, api_key="k")
        result = await Agent(model, tools=[look()], compactor=Handoff(keep=1)).run("Go")

    assert result.completed, result.message
    assert len(result.tool_calls) == 5
    assert [one.tier for one in compactions(await result.session.events())] == ["handoff"]
    await check_session(result.session)
