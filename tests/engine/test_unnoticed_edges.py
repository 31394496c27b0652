"""What mutations by hand showed that no test noticed: the last attempt that a limit allows, and waits that are no spans of time."""

from typing import Any

import pytest

from pipeline_tools import act, content, on_fake_clock, raising, read, results, statuses
from treadle import Agent, Budget, ClearResults, ToolContext, Transient
from treadle.errors import ContextOverflow, ModelUnavailable
from treadle.messages import user_message
from treadle.ports import CheckView
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
