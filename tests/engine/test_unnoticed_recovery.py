"""What the model is told of calls that had started when a process died, where the resumed run ends before they go on."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from invariants import check_session
from treadle import Agent, Budget, JournalError, Tool, ToolContext, allow, open_session
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


class DiesBefore(MemoryJournal):
    """A journal whose process dies before the result of the call `p` is stored."""

    is_mortal = True
    is_dead = False

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        ends = any(event.type == "tool.finished" and event.call_id == "p" for event in events)
        self.is_dead = self.is_mortal and (self.is_dead or ends)
        if self.is_dead:
            raise JournalError("It has died.")
        await super().append(session_id, events, state=state, durable=durable)


@pytest.mark.parametrize(
    ("effect", "status"), [("keyed", "outcome_unknown"), ("idempotent", "outcome_unknown"), ("read", "skipped")]
)
async def test_a_started_call_that_the_end_of_the_run_overtakes_is_in_doubt_where_it_acts(
    effect: str, status: str
) -> None:
    """`finish` ends the run, and its result is stored; `pay`, which ran beside it, was not told when the process died."""
    finished, ran = asyncio.Event(), []

    async def pay(arguments: JsonObject, ctx: ToolContext) -> str:
        ran.append(ctx.call.id)
        await finished.wait()
        return "paid"

    async def finish(arguments: JsonObject, ctx: ToolContext) -> str:
        return "over"

    def hear(event: AnyEvent) -> None:
        if event.type == "tool.finished" and event.call_id == "f":
            finished.set()

    def tool(name: str, run: Any, effect: str, **options: Any) -> Tool:
        return Tool(name=name, description="Act.", parameters={"type": "object"}, effect=effect, run=run,
                    resources=lambda arguments: {name: "write"}, **options)  # fmt: skip

    tools = [tool("pay", pay, effect, key=lambda arguments: "k"), tool("finish", finish, "idempotent", ends_run=True)]
    journal = DiesBefore()
    async with open_session(journal, id="s") as session:
        model = ScriptedModel([[call("pay", id="p"), call("finish", id="f")]])
        with pytest.raises(JournalError):
            await Agent(model, tools=tools, policy=allow("*"), subscribers=[hear]).run("go", session=session)
    journal.is_mortal = False
    async with open_session(journal, id="s") as session:
        result = await Agent(ScriptedModel([text("x")]), tools=tools, policy=allow("*")).resume(session)
        await check_session(session)

    assert [(one.id, one.status) for one in result.tool_calls] == [("p", status), ("f", "ok")]
    assert ran == ["p"]


async def test_a_call_that_had_started_takes_no_place_of_those_that_a_smaller_budget_still_covers() -> None:
    ran = []

    async def pay(arguments: JsonObject, ctx: ToolContext) -> str:
        ran.append(ctx.call.id)
        return "paid"

    tools = [Tool(name="pay", description="Pay.", parameters={"type": "object"}, effect="keyed", run=pay)]
    journal = DiesBefore()
    async with open_session(journal, id="s") as session:
        model = ScriptedModel([[call("pay", id="p"), call("pay", id="q", n=1), call("pay", id="r", n=2)]])
        with pytest.raises(JournalError):
            await Agent(model, tools=tools, policy=allow("*")).run("go", session=session)
    journal.is_mortal = False
    async with open_session(journal, id="s") as session:
        agent = Agent(ScriptedModel([text("x")]), tools=tools, policy=allow("*"))
        await agent.resume(session, budget=Budget(max_tool_calls=2))
        await check_session(session)

    assert ran == ["p", "p", "q"]
