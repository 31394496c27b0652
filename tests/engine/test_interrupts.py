"""An interrupt reaches everything that waits for it, in the order in which it began to wait, and its results say what it was."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from treadle import Agent, Budget, Run, Session, Tool, ToolContext, allow, open_session
from treadle.engine.interrupts import Interrupt
from treadle.journals.sqlite import SqliteJournal
from treadle.sessions.explain import events_of_all
from treadle.stops import Stop, StopReason
from treadle.testing import FakeClock, Gate, ScriptedModel, call, text
from treadle.tools import JsonObject, ToolResult


@pytest.mark.row("H22")
def test_an_interrupt_calls_back_in_the_order_of_registration() -> None:
    interrupt, heard = Interrupt(FakeClock()), list[int]()
    for number in range(100):
        interrupt.on_trip(partial(heard.append, number))

    interrupt.trip(Stop(reason=StopReason.CANCELLED, message="Cancelled."))

    assert heard == [*range(100)]


def waiting(entered: Gate, effect: str) -> Tool:
    async def run(arguments: JsonObject, ctx: ToolContext) -> None:
        entered.open()
        await asyncio.Event().wait()

    options = {"effect": effect, "permission": "allow", "timeout": 60, "retries": 0}
    return Tool(name="pay", description="Pay.", parameters={}, run=run, **options)


async def by_handle(run: Run, session: Session, clock: FakeClock) -> None:
    run.cancel(by="bo")


async def by_nobody(run: Run, session: Session, clock: FakeClock) -> None:
    run.cancel()


async def by_reason(run: Run, session: Session, clock: FakeClock) -> None:
    run.stop(StopReason.TASK_DENIED, "The office is closed.")


async def by_another_handle(run: Run, session: Session, clock: FakeClock) -> None:
    async with open_session(session.journal, id=session.id) as other:
        await other.cancel(by="ada")


async def by_run_limit(run: Run, session: Session, clock: FakeClock) -> None:
    clock.advance(30)


async def by_call_limit(run: Run, session: Session, clock: FakeClock) -> None:
    clock.advance(60)


UNKNOWN = " Its outcome is unknown: it may have taken effect. Check before you repeat it."
ENDS = {
    by_handle: ("was interrupted after 0 s (The run was cancelled by bo).", "cancelled"),
    by_nobody: ("was interrupted after 0 s (The run was cancelled).", "cancelled"),
    by_reason: ("was interrupted after 0 s (The office is closed).", "cancelled"),
    by_another_handle: ("was interrupted after 0 s (The run was cancelled by ada).", "cancelled"),
    by_run_limit: ("was interrupted after 30 s (The budget max_wall_time_seconds is used up: 30 of 30).", "timeout"),
    by_call_limit: ("did not answer within 60 s.", "timeout"),
}
Interrupting = Callable[[Run, Session, FakeClock], Awaitable[None]]


@pytest.mark.row("L27", "FAULTS-13")
@pytest.mark.parametrize("depth", [0, 1], ids=["own call", "call of a child"])
@pytest.mark.parametrize("effect", ["unsafe", "read"])
@pytest.mark.parametrize("interrupting", ENDS, ids=lambda one: one.__name__)
async def test_a_call_that_is_interrupted_says_by_what_and_names_a_limit_only_if_one_ended_it(
    tmp_path: Path, interrupting: Interrupting, effect: str, depth: int
) -> None:
    entered, clock = Gate(), FakeClock()
    agent = Agent(ScriptedModel([call("pay"), text("done")]), tools=[waiting(entered, effect)])
    limit = Budget(max_wall_time_seconds=30 if interrupting is by_run_limit else None)
    if depth:
        lead = ScriptedModel([call("help", task="Pay."), text("done")])
        agent = Agent(lead, tools=[agent.as_tool("help", "Help.", effect=effect)], policy=allow("help"))
    async with open_session(SqliteJournal(tmp_path / "j.db"), clock=clock) as session:
        async with agent.stream("go", session=session, budget=limit) as run:
            await entered.wait()
            await interrupting(run, session, clock)
        events = await events_of_all(session.journal, session.id)
    (result,) = (event.result for event in events if event.type == "tool.finished" and event.result.name == "pay")
    words, status = ENDS[interrupting]

    assert isinstance(result, ToolResult)
    if effect == "unsafe":
        assert (result.status, result.message) == ("outcome_unknown", f"pay {words}{UNKNOWN}")
    else:
        assert result.status == ("cancelled" if depth and interrupting is by_run_limit else status)
