"""What a survey of mutations showed that no test noticed: all that a tool may know of a plain call, on the loop and in a thread."""

from typing import Any

import pytest

from pipeline_tools import act, on_fake_clock, read
from treadle import Agent, Budget, ToolContext, allow, open_session
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


def known(ctx: ToolContext) -> dict[str, Any]:
    """Return everything that a context says."""
    return {
        "call": (ctx.call.id, ctx.call.name, ctx.call.arguments),
        "decision": (ctx.decision.kind, ctx.decision.rule, ctx.decision.scope, ctx.decision.mode),
        "subjects": dict(ctx.subjects),
        "runner": ctx.runner,
        "has_key": len(ctx.idempotency_key) > 20,
        "attempt": ctx.attempt,
        "cancelled": ctx.cancelled,
        "deps": ctx.deps,
        "inputs": ctx.inputs,
        "facts": ctx.facts,
        "result_chars": ctx.result_chars,
        "session": (ctx.session.id, ctx.session.step, [message.role for message in ctx.session.messages]),
        "trace": dict(ctx.trace),
    }


EXPECTED = {
    "call": ("a", "act", '{"n": 1}'),
    "decision": ("allow", "allow act", "agent", "ask"),
    "subjects": {},
    "runner": None,
    "has_key": True,
    "attempt": 1,
    "cancelled": False,
    "deps": "the shop",
    "inputs": (),
    "facts": {},
    "result_chars": 500,
    "session": ("s", 1, ["user", "assistant"]),
    "trace": {},
}


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_tool_knows_its_call_its_session_and_that_nobody_has_stopped_it(in_thread: bool) -> None:
    seen: list[dict[str, Any]] = []

    def blocking(arguments: JsonObject, ctx: ToolContext) -> str:
        seen.append(known(ctx))
        return "done"

    async def waiting(arguments: JsonObject, ctx: ToolContext) -> str:
        seen.append(known(ctx))
        return "done"

    tool = act(blocking if in_thread else waiting, permission=None)
    model = ScriptedModel([call("act", id="a", n=1), text("Done.")])
    agent = Agent(model, tools=[tool], policy=allow("act"), budget=Budget(max_tool_result_chars=500))
    async with open_session("memory:", id="s") as session:
        await agent.run("go", session=session, deps="the shop")

    assert seen == [EXPECTED]


async def test_each_attempt_of_a_call_has_its_number_and_the_same_key() -> None:
    seen: list[tuple[int, str, bool]] = []

    async def fails_twice(arguments: JsonObject, ctx: ToolContext) -> str:
        seen.append((ctx.attempt, ctx.idempotency_key, ctx.cancelled))
        if ctx.attempt < 3:
            raise ConnectionError
        return "done"

    async with on_fake_clock() as session:
        model = ScriptedModel([call("look"), text("Done.")])
        await Agent(model, tools=[read(fails_twice, retries=2)]).run("go", session=session)

    assert [(attempt, cancelled) for attempt, _, cancelled in seen] == [(1, False), (2, False), (3, False)]
    assert len({key for _, key, _ in seen}) == 1
