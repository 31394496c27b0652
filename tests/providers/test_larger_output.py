"""A response that the output limit cut: what the next requests of the run ask for, and what never runs."""

from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Tool, tool
from treadle.messages import user_message
from treadle.ports import ModelRequest
from treadle.providers.anthropic import Anthropic
from treadle.providers.recorded import RecordingModel, ReplayModel
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text

MODEL = "claude-sonnet-4-5"
CUT = text("more ", finish="length")


def claude(mock: MockProvider, model: str = MODEL, **words: Any) -> Anthropic:
    return Anthropic(model, base_url=mock.base_url, api_key=None, **words)


def limits(mock: MockProvider) -> list[int]:
    return [request.body["max_tokens"] for request in mock.requests]


def rec(ran: list[int]) -> Tool:
    @tool(effect="unsafe", permission="allow")
    def rec(x: int) -> str:
        """Count."""
        ran.append(x)
        return "counted"

    return rec


@pytest.mark.row("L26")
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_was_cut_is_continued_under_the_larger_limit(stream: bool) -> None:
    async with MockProvider([text("One ", finish="length"), text("two.")]) as mock:
        agent = Agent(claude(mock, stream=stream))
        result = await agent.run("count")
        again = await agent.run("count")

    assert (result.text, result.completed, again.text) == ("One two.", True, "two.")
    assert limits(mock) == [16_384, 64_000, 16_384]


@pytest.mark.row("L26", "PF14")
async def test_calls_that_were_cut_are_asked_for_again_under_the_larger_limit_which_stays() -> None:
    ran: list[int] = []
    cut = Turn(calls=(call("rec", x=1), call("rec", arguments='{"x": ')), finish="length")
    async with MockProvider([cut, call("rec", x=2), call("rec", x=3), text("end")]) as mock:
        result = await Agent(claude(mock), tools=[rec(ran)]).run("go")

    assert (result.text, ran) == ("end", [2, 3])
    assert limits(mock) == [16_384, 64_000, 64_000, 64_000]


@pytest.mark.row("L26")
async def test_a_limit_that_the_user_set_is_not_raised() -> None:
    async with MockProvider([CUT, text("end")]) as mock:
        await Agent(claude(mock, options={"max_tokens": 500})).run("count")

    assert limits(mock) == [500, 500]


@pytest.mark.row("L26")
async def test_an_answer_that_stays_cut_is_raised_once_and_ends_after_three_continuations() -> None:
    async with MockProvider([CUT, CUT, CUT, CUT]) as mock:
        result = await Agent(claude(mock)).run("count")

    assert (result.reason, result.completed, result.text) == ("output_truncated", False, "more " * 4)
    assert limits(mock) == [16_384, 64_000, 64_000, 64_000]


@pytest.mark.row("L26")
async def test_a_run_whose_first_message_is_the_users_asks_for_nothing_larger() -> None:
    model = ScriptedModel([call("rec", x=1), text("end")])

    await Agent(model, tools=[rec([])]).run("Your answer was cut off, was it not?")

    assert [request.raise_output_limit for request in model.requests] == [False, False]


@pytest.mark.row("L26")
@pytest.mark.parametrize(
    ("model", "usual", "larger"),
    [
        ("claude-sonnet-4-20250514", 16_384, 64_000),
        ("claude-3-7-sonnet-latest", 16_384, 64_000),
        ("eu.anthropic.claude-haiku-4-5-20251001-v1:0", 16_384, 64_000),
        ("claude-opus-4-5", 16_384, 64_000),
        ("claude-opus-4-1-20250805", 16_384, 16_384),
        ("claude-opus-4-20250514", 16_384, 16_384),
        ("claude-3-5-haiku-latest", 8_192, 8_192),
        ("claude-3-haiku-20240307", 4_096, 4_096),
        ("claude-of-tomorrow", 16_384, 16_384),
        ("qwen3", 16_384, 16_384),
    ],
)
async def test_a_model_is_never_asked_for_more_than_it_is_known_to_write(model: str, usual: int, larger: int) -> None:
    async with MockProvider([CUT, text("end")]) as mock:
        await Agent(claude(mock, model)).run("count")

    assert limits(mock) == [usual, larger]


@pytest.mark.row("L26")
@pytest.mark.parametrize(("budget", "usual", "larger"), [(2_048, 18_432, 64_000), (50_000, 66_384, 66_384)])
async def test_the_larger_limit_holds_what_the_model_thinks_and_is_never_smaller(
    budget: int, usual: int, larger: int
) -> None:
    async with MockProvider([CUT, text("end")]) as mock:
        options = {"thinking": {"type": "enabled", "budget_tokens": budget}}
        await Agent(claude(mock, options=options)).run("count")

    assert limits(mock) == [usual, larger]


@pytest.mark.row("L26")
async def test_a_recorded_request_is_found_by_what_it_says_and_not_by_its_limit(tmp_path: Path) -> None:
    request = ModelRequest(messages=(user_message("hi"),))
    recording = RecordingModel(ScriptedModel([text("hello")]), tmp_path / "trip.jsonl")
    recorded = [part async for part in recording.stream(request)]

    cut = ModelRequest(messages=request.messages, raise_output_limit=True)

    assert [part async for part in ReplayModel(tmp_path / "trip.jsonl").stream(cut)] == recorded
