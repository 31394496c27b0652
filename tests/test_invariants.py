"""The checker of journals: it accepts what agents record, and finds each way in which a journal can be broken."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from invariants import check_events, find_violations
from treadle import Agent, Tool, open_session
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    CallDecided,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolAttemptFailed,
    ToolFinished,
    ToolLate,
    ToolStarted,
)
from treadle.messages import Message, ToolCall
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Effect, ToolResult
from watching import Watcher

CALLED = Message(role="assistant", parts=(ToolCall(id="c", name="pay", arguments="{}"),))


def started(**changes: Any) -> ToolStarted:
    return ToolStarted(**{"call_id": "c", "tool": "pay", "key": "k", **changes})


def finished(status: Any = "ok", *, call_id: str = "c", attempts: int = 1, **changes: Any) -> ToolFinished:
    result = ToolResult(call_id=call_id, name="pay", status=status, content="", attempts=attempts)
    failure = None if status == "ok" else status
    return ToolFinished(call_id=call_id, result=result, failure_class=failure, **changes)


BEGUN: list[AnyEvent] = [RunStarted(task="go"), ModelStarted()]
PROPOSED: list[AnyEvent] = [*BEGUN, ModelFinished(message=CALLED)]
ALLOWED: list[AnyEvent] = [*PROPOSED, CallDecided(call_id="c", tool="pay", decision="allow", rule="r")]
DONE: list[AnyEvent] = [*ALLOWED, started(), finished()]
COMPLETED = RunFinished(reason="completed", status="completed", completed=True)
FAILED = RunFinished(reason="model_error", status="failed", completed=False)


def numbered(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    return [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events, 1)]


@pytest.mark.row("N01")
@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([*DONE, finished()], "finished already"),
        ([*DONE, started()], "after its result"),
        ([*ALLOWED, finished()], "never started"),
        ([*PROPOSED, started()], "decided as None"),
        ([*PROPOSED, finished("skipped")], "no decision"),
        ([*DONE, finished(call_id="other")], "a result of no call"),
        ([*ALLOWED, started(), started()], "started twice"),
        ([*ALLOWED, started(), RunResumed(), started()], "unsafe and started twice"),
        ([*ALLOWED, started(effect=Effect.KEYED), RunResumed(), started(effect=Effect.KEYED, key="x")], "another key"),
        ([*BEGUN, CallDecided(call_id="c", tool="pay", decision="allow", rule="r"), started(early=True)], "unsafe"),
        ([*DONE, COMPLETED, finished(call_id="other")], "belongs to a run"),
        ([*DONE, COMPLETED, ModelStarted()], "belongs to a run"),
        ([*DONE, COMPLETED, COMPLETED], "belongs to a run"),
        ([*DONE, COMPLETED, RunResumed()], "nothing to resume"),
        ([*ALLOWED, COMPLETED], "without a result"),
        ([*ALLOWED, RunPaused(reason="approval_required")], "nobody is asked"),
        ([*DONE, RunPaused(reason="approval_required")], "no call waits"),
        ([*ALLOWED, RunStarted(task="next")], "without a result"),
        ([*ALLOWED, ModelStarted()], "have no result"),
        ([*BEGUN, ModelStarted()], "has no end"),
        ([*PROPOSED, ModelStarted(), ModelFinished(message=CALLED)], "a second time"),
        ([*BEGUN, ModelFailed(error="e", message="m", retry_in_seconds=1.0), FAILED], "never came"),
        (
            [
                *ALLOWED,
                started(),
                ToolAttemptFailed(call_id="c", attempt=1, failure_class="f", message="m", retry_in_seconds=1.0),
                finished("failed"),
                FAILED,
            ],
            "never came",
        ),
        ([*PROPOSED, ApprovalAnswered(call_id="c", approval_id="ap", answer="allow")], "nobody asked"),
        ([*ALLOWED, started(), finished(reused_from="e")], "no result that could answer"),
    ],
)
def test_what_breaks_a_journal_is_found(events: list[AnyEvent], words: str) -> None:
    assert words in "\n".join(find_violations(numbered(events)))


def test_a_gap_in_the_numbers_is_found() -> None:
    assert "follows number 1" in find_violations([numbered(BEGUN)[0], numbered(DONE)[2]])[0]


@pytest.mark.parametrize(
    "events",
    [
        DONE,
        [*DONE, COMPLETED],
        [*ALLOWED, started()],  # broken off
        [*ALLOWED, started(effect=Effect.READ), RunResumed(), started(effect=Effect.READ), finished(), COMPLETED],
        [*DONE, COMPLETED, ToolLate(call_id="c", tool="pay", outcome="returned")],
        [*BEGUN, ModelFailed(error="e", message="m", retry_in_seconds=1.0), ModelStarted(attempt=2)],
    ],
)
def test_a_whole_journal_and_one_that_breaks_off_are_accepted(events: list[AnyEvent]) -> None:
    check_events(numbered(events))


@pytest.mark.row("N01")
@pytest.mark.unchecked("it records an event after the end of a run")
async def test_every_session_that_a_test_records_is_watched() -> None:
    watcher = Watcher()
    watcher.begin()

    async def run(arguments: Any, ctx: Any) -> str:
        return "done"

    look = Tool(name="look", description="Look.", parameters={}, effect="read", run=run)
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([call("look"), text("Done.")]), tools=[look]).run("go", session=session)
        await session.ledger.record(ModelStarted())

    violations = await asyncio.to_thread(lambda: list(watcher.violations()))  # a loop of its own looks into the journal
    assert len(violations) == 1
    assert "model.started: belongs to a run, and the run is completed" in violations[0]
