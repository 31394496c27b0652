"""The public face as users write it. Only type-checked, never run: what must not type-check says so."""

from decimal import Decimal
from typing import Any, assert_type

from treadle import (
    Agent,
    Budget,
    Guards,
    Price,
    Rejected,
    RunResult,
    Session,
    Tool,
    ToolContext,
    allow,
    ask,
    deny,
    first_of,
    open_session,
    resolve_model,
    tool,
)
from treadle.ports import Model
from treadle.stops import StopReason
from treadle.testing import ScriptedModel, call, text


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(effect="keyed", timeout=10, retries=1, permission="ask", result_limit=1000, ends_run=True)
async def pay(amount: Decimal, ctx: ToolContext) -> str:
    """Pay."""
    if ctx.attempt > 1:
        raise Rejected({"error": "TOO_LATE"})
    return ctx.idempotency_key


tool(effect="harmless")  # type: ignore[call-overload]  # no such effect
tool(tries=3)  # type: ignore[call-overload]  # no such option

assert_type(double(4), int)
tools: list[Tool] = [double, pay]

agent = Agent(
    "openai-chat:gpt-5-mini",
    tools=[double, pay],
    instructions="Be brief.",
    policy=first_of(allow("double"), ask("pay"), deny("rm", reason="read only")),
    budget=Budget(max_model_turns=20),
    guards=Guards(repeats=2),
    on_limit="report",
)
Agent("demo", on_limit="explode")  # type: ignore[arg-type]  # no such way
Agent("demo", max_turns=3)  # type: ignore[call-arg]  # a budget's name, and a misspelt one

model: Model = resolve_model("openai-chat:local", base_url="http://127.0.0.1:8080/v1", price=Price(input=1, output=2))
scripted: Model = ScriptedModel([[text("I look."), call("double", number=2)], text("4")])


async def runs(session: Session) -> None:
    result = await agent.run("Double 2", deps={"any": "thing"})
    assert_type(result, RunResult[Any])
    assert_type(result.reason, StopReason)
    assert_type(result.completed, bool)
    async with agent.stream("Double 2") as run:
        async for event in run:
            assert_type(event.seq, int)
        assert_type(run.result, RunResult[Any])
    async with open_session("agent.db", id="invoice-7") as opened:
        assert_type(opened, Session)
        await opened.answer(result.approvals[0].id, "allow", reason="seen")
        await opened.answer(result.approvals[0].id, "perhaps")  # type: ignore[arg-type]  # allow or deny
        assert_type(await agent.resume(opened, budget=Budget(max_model_turns=40)), RunResult[Any])


assert_type(agent.run_sync("Double 2"), RunResult[Any])
