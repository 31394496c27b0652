"""What mutations by hand showed that no test noticed: the last attempt that a limit allows, and waits that are no spans of time."""

import asyncio
from typing import Any

import pytest

from pipeline_tools import act, content, on_fake_clock, raising, read, results, statuses
from treadle import Agent, Budget, ClearResults, Decision, Done, Hook, ToolContext, Transient
from treadle.errors import ContextOverflow, ModelUnavailable
from treadle.messages import user_message
from treadle.ports import CheckView, HookContext
from treadle.testing import ScriptedModel, call, text

TOO_LONG = ContextOverflow("The request is longer than the model's context.", status=400)


@pytest.mark.row("R-ATTEMPT")
async def test_the_one_retry_that_a_budget_allows_may_be_a_shorter_request() -> None:
    look = read(lambda arguments, ctx: "x" * 4_000)
    model = ScriptedModel([*[call("look", n=n) for n in range(4)], TOO_LONG, text("Done.")])
    agent = Agent(model, tools=[look], compactor=ClearResults(keep=1), budget=Budget(max_retries_per_model_call=1))
    assert (await agent.run("go")).completed


async def test_what_a_check_asks_the_model_is_tried_again_as_often_as_the_budget_allows() -> None:
    said: list[str] = []

    async def is_done(view: CheckView) -> bool:
        said.append(await view.ask([user_message("Is it done?")]))
        return True

    model = ScriptedModel([call("act"), ModelUnavailable("down"), text("Yes.")])
    agent = Agent(model, tools=[act(lambda arguments, ctx: "ok")], done_when=is_done)
    async with on_fake_clock() as session:
        run = await agent.run("go", session=session, budget=Budget(max_retries_per_model_call=1))

    assert said == ["Yes."]
    assert run.reason == "done_condition_satisfied"


@pytest.mark.row("F04")
@pytest.mark.parametrize(
    ("asked", "told"), [(0, 0.0), (2.5, 2.5), (-1, None), (float("inf"), None), (float("nan"), None)]
)
async def test_a_wait_that_is_no_span_of_time_is_not_told(asked: float, told: float | None) -> None:
    tools = [act(raising(Transient("busy", retry_after_seconds=asked)))]
    run = await Agent(ScriptedModel([call("act"), text("Done.")]), tools=tools).run("go")
    assert (content(run).get("retry_after_seconds"), statuses(run)) == (told, ["failed"])


@pytest.mark.row("T04")
@pytest.mark.parametrize(("length", "fails"), [(256, False), (257, True)])
async def test_the_name_of_an_action_has_at_most_256_characters(length: int, fails: bool) -> None:
    async def run(arguments: Any, ctx: ToolContext) -> str:
        return str((await ctx.decide("a" * length, {}, effect="read")).kind)

    result = await Agent(ScriptedModel([call("act"), text("Done.")]), tools=[act(run)]).run("go")
    assert statuses(result) == (["failed"] if fails else ["ok"])
    assert fails or results(result)


@pytest.mark.parametrize("first", ["deny", "ask"])
async def test_of_two_hooks_on_a_call_the_stricter_counts_in_either_order(first: str) -> None:
    def says(kind: Any, n: int) -> Hook:
        async def run(context: HookContext) -> Decision:
            return Decision(kind=kind, arguments={"n": n})

        return Hook(at="before_tool", run=run)

    hooks = [says("deny", 1), says("ask", 2)]
    tools = [act(lambda arguments, ctx: "ok")]
    model = ScriptedModel([call("act", n=0), text("Done.")])
    run = await Agent(model, tools=tools, hooks=hooks if first == "deny" else hooks[::-1]).run("go")
    assert statuses(run) == ["denied"]


async def test_of_two_hooks_that_ask_and_change_arguments_the_person_is_asked_about_the_last_ones() -> None:
    def asks(n: int) -> Hook:
        async def run(context: HookContext) -> Decision:
            return Decision(kind="ask", arguments={"n": n})

        return Hook(at="before_tool", run=run)

    tools = [act(lambda arguments, ctx: "ok")]
    run = await Agent(ScriptedModel([call("act", n=0)]), tools=tools, hooks=[asks(1), asks(2)]).run("go")
    assert [one.arguments for one in run.approvals] == [{"n": 2}]


@pytest.mark.parametrize("answer", [True, Done, Done()])
async def test_each_way_to_say_that_it_is_done_ends_the_run(answer: Any) -> None:
    model = ScriptedModel([call("act"), text("Done.")])
    run = await Agent(model, tools=[act(lambda arguments, ctx: "ok")], done_when=lambda view: answer).run("go")
    assert run.reason == "done_condition_satisfied"


@pytest.mark.parametrize(("effect", "status", "attempts"), [("idempotent", "ok", 2), ("unsafe", "outcome_unknown", 1)])
async def test_a_call_that_our_time_limit_has_cut_runs_again_where_its_effect_allows_that(
    effect: str, status: str, attempts: int
) -> None:
    async def run(arguments: Any, ctx: ToolContext) -> str:
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return "ok"

    async with on_fake_clock() as session:
        model = ScriptedModel([call("act"), text("Done.")])
        result = await Agent(model, tools=[act(run, effect=effect, timeout=5)]).run("go", session=session)

    assert [(one.status, one.attempts) for one in result.tool_calls] == [(status, attempts)]
