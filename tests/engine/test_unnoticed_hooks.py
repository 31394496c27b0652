"""What a survey of mutations showed that no test noticed: a hook that fails, or says nothing, keeps no other hook from being asked."""

from typing import Any

import pytest

from pipeline_tools import Recorder, act, on_fake_clock, raising
from treadle import Agent, Decision, Hook
from treadle.ports import HookContext, Moment
from treadle.testing import ScriptedModel, call, text


async def broken(context: HookContext) -> Any:
    raise RuntimeError("broken")


async def silent(context: HookContext) -> None:
    return None


async def denies(context: HookContext) -> Decision:
    return Decision(kind="deny", reason="No.")


@pytest.mark.row("R-HOOKS")
@pytest.mark.parametrize("first", [broken, silent])
@pytest.mark.parametrize("at", [*Moment])
async def test_every_hook_of_a_moment_is_asked_where_one_before_it_fails_open(at: Moment, first: Any) -> None:
    asked: list[str] = []

    async def second(context: HookContext) -> None:
        asked.append(str(context.at))

    hooks = [Hook(at=at, run=first, fails="open"), Hook(at=at, run=second, fails="open")]
    async with on_fake_clock() as session:
        model = ScriptedModel([call("act"), text("Done.")])
        result = await Agent(
            model, tools=[act(raising(ValueError()) if at is Moment.ERROR else Recorder())], hooks=hooks
        ).run("go", session=session)

    assert result.completed
    assert set(asked) == {at.value}


@pytest.mark.row("R-HOOKS")
async def test_a_hook_denies_a_call_after_one_that_fails_open() -> None:
    ran = Recorder()
    hooks = [
        Hook(at="before_tool", run=broken, fails="open"),
        Hook(at="before_tool", run=denies),
    ]
    async with on_fake_clock() as session:
        model = ScriptedModel([call("act"), text("Done.")])
        result = await Agent(model, tools=[act(ran)], hooks=hooks).run("go", session=session)

    assert ([one.status for one in result.tool_calls], ran.runs) == (["denied"], 0)
