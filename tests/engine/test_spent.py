"""Spent is spent: attempts that broke off are counted, limits hold over them, and what nobody knows is null."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from invariants import check_session
from loop_tools import Unpriced, echo_tool
from pipeline_tools import on_fake_clock
from treadle import Agent, Budget, Session, Tool, ToolContext, resolve_model
from treadle.drivers.native import NativeDriver
from treadle.drivers.react import ReActDriver
from treadle.errors import IncompleteStream, ModelRejected, ModelUnavailable, Transient
from treadle.events import ModelFailed
from treadle.messages import ToolCall, Usage
from treadle.ports import CallReady, Executor, Model, ModelRequest, ResponseSetAside, TextDelta
from treadle.testing import MockProvider, ScriptedModel, Turn, call, text
from treadle.tools import JsonObject

COUNTED = Usage(input_tokens=1000, output_tokens=100)


async def failures(session: Session) -> list[ModelFailed]:
    return [event for event in await session.events() if isinstance(event, ModelFailed)]


@pytest.mark.row("N08")
async def test_an_attempt_that_broke_off_uncounted_counts_a_marked_estimate():
    model = ScriptedModel([Turn(text="word " * 100, cut="before-terminal"), Turn(text="Done.", usage=COUNTED)])
    async with on_fake_clock() as session:
        result = await Agent(model).run("go", session=session)
        [failed] = await failures(session)

    assert failed.usage is not None
    assert failed.usage.estimated
    assert failed.usage.output_tokens >= 120
    assert (result.usage.estimated, result.usage.output_tokens) == (True, 100 + failed.usage.output_tokens)


@pytest.mark.row("N08")
async def test_an_attempt_without_an_answer_counts_nothing_and_its_cost_is_unknown():
    model = Unpriced([ModelUnavailable("503", status=503), Turn(text="Done.", usage=COUNTED)])
    async with on_fake_clock() as session:
        result = await Agent(model).run("go", session=session)
        [failed] = await failures(session)

    assert (failed.usage, failed.cost) == (None, None)
    assert result.usage == COUNTED
    assert result.report()["cost"] is None


@pytest.mark.row("N08")
async def test_a_cost_that_nobody_knows_stays_null_when_every_attempt_broke_off():
    model = Unpriced([Turn(text="I", cut="before-terminal")])
    async with on_fake_clock() as session:
        result = await Agent(model, budget=Budget(max_retries_per_model_call=1)).run("go", session=session)

    assert result.reason == "incomplete_stream"
    assert result.usage.output_tokens > 0
    assert result.report()["cost"] is None


@pytest.mark.row("N08")
@pytest.mark.parametrize(("limit", "budget"), [({"max_input_tokens": 1500}, "max_input_tokens"), ({"max_output_tokens": 5}, "max_output_tokens")])  # fmt: skip
async def test_limits_hold_over_attempts_that_broke_off(limit, budget):
    broken = Turn(text="word " * 20, usage=COUNTED, cut="before-terminal")
    async with MockProvider([broken] * 5) as mock, on_fake_clock() as session:
        model = resolve_model("anthropic:m", base_url=mock.base_url, api_key="k")
        result = await Agent(model, budget=Budget(**limit)).run("go", session=session)
        announced = [failed.retry_in_seconds for failed in await failures(session)]
        await check_session(session)

    assert (result.reason, result.report()["budget"]) == ("budget_exceeded", budget)
    assert len(mock.requests) == (2 if budget == "max_input_tokens" else 1)
    assert announced[-1] is None


@pytest.mark.row("N08", "B12")
async def test_retries_that_led_to_an_answer_are_in_the_report():
    turns = iter([Transient("busy"), Transient("busy")])

    async def flaky(arguments: JsonObject, ctx: ToolContext) -> str:
        if (error := next(turns, None)) is not None:
            raise error
        return "done"

    tool = Tool(name="flaky", description="Flaky.", parameters={}, effect="read", run=flaky)
    busy = ModelUnavailable("503", status=503)
    async with on_fake_clock() as session:
        result = await Agent(ScriptedModel([busy, call("flaky"), busy, busy, text("Done.")]), tools=[tool]).run(
            "go", session=session
        )

    assert result.completed
    assert result.report()["retries"] == {"model": 3, "tool": 2}


@pytest.mark.row("N08")
@pytest.mark.parametrize(
    ("budget", "reason"), [("max_model_turns", "step_limit_reached"), ("max_tool_calls", "budget_exceeded")]
)
@pytest.mark.parametrize("failure", [ModelRejected("400", status=400), ModelUnavailable("503", status=503)])
async def test_a_failed_closing_request_still_reports_the_budget(budget, reason, failure):
    model = ScriptedModel([call("echo", x=1), failure])
    async with on_fake_clock() as session:
        result = await Agent(model, tools=[echo_tool()], budget=Budget(**{budget: 1})).run("go", session=session)
        kinds = [event.type for event in await session.events()]

    report = result.report()
    assert (result.reason, report["budget"], report["used"], report["limit"]) == (reason, budget, 1, 1)
    assert "closing request failed" in result.message
    assert kinds[-2:] == ["budget.reached", "run.finished"]


@pytest.mark.row("H12")
async def test_a_model_s_retry_that_the_rest_of_the_running_time_does_not_allow_is_not_announced():
    slow = ModelUnavailable("slow down", retry_after_seconds=6)
    async with on_fake_clock() as session:
        agent = Agent(ScriptedModel([slow, slow, text("never")]), budget=Budget(max_wall_time_seconds=10))
        result = await agent.run("go", session=session)
        waits = [failed.retry_in_seconds for failed in await failures(session)]

    assert waits == [6, None]
    assert result.reason == "model_error"


@pytest.mark.row("H21", "D11")
async def test_a_final_inference_that_fails_leaves_the_draft_as_the_answer():
    draft = text('{"thought": "I know.", "type": "final_answer", "answer": "draft"}')
    model = ScriptedModel([draft, ModelRejected("400", status=400)])
    result = await Agent(model, driver=ReActDriver(final_via_inference=True)).run("go")

    assert (result.reason, result.text) == ("completed", "draft")


class RewordsTwice(NativeDriver):
    """A driver that sets two responses aside, and whose third request breaks off before it says anything."""

    def bind(self, model: Model, tools: object, executor: Executor) -> "RewordsTwice":
        return self

    async def propose(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        for input_tokens in (100, 30):
            yield TextDelta("word " * 100)
            yield CallReady(ToolCall(id="a", name="look", arguments='{"why": "' + "word " * 100 + '"}'))
            yield ResponseSetAside(reason="reworded", usage=Usage(input_tokens=input_tokens, output_tokens=1))
        raise IncompleteStream("It broke off.")


@pytest.mark.row("N08")
async def test_what_a_response_had_said_that_was_set_aside_counts_once():
    agent = Agent(ScriptedModel([text("x")]), driver=RewordsTwice(), budget=Budget(max_retries_per_model_call=0))
    async with on_fake_clock() as session:
        result = await agent.run("go", session=session)
        [failed] = await failures(session)

    assert result.reason == "incomplete_stream"
    assert failed.usage is not None
    assert failed.usage.input_tokens > 130
    assert failed.usage.output_tokens == 3  # one of each that was set aside, and one for what broke off, as we estimate
