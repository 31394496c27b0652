"""What a session is listed as, whichever event came last, and what becomes of a task that waits for a worker."""

from typing import Any

import pytest

from treadle import Agent, open_session
from treadle.canonical import digest
from treadle.events import (
    AnyEvent,
    MessageAdded,
    ModeChanged,
    ModelFinished,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionRewound,
    TaskSubmitted,
    TaskWithdrawn,
)
from treadle.journals.memory import MemoryJournal
from treadle.messages import Message, Text, user_message
from treadle.testing import ScriptedModel, text

STARTED = RunStarted(task="t", run_id="r1", at=10.0)
STOPPED = RunFinished(reason="cancelled", status="stopped", completed=False, message="", wall_seconds=1.0)
TASK = TaskSubmitted(message=user_message("go"), agent="clerk")


def said(words: str) -> ModelFinished:
    return ModelFinished(message=Message(role="assistant", parts=(Text(words),)))


# --- phases, as they are folded and as the journal lists them

PHASES: dict[str, tuple[list[AnyEvent], str]] = {
    "nothing": ([], "active"),
    "a task": ([TASK], "queued"),
    "a task withdrawn": ([TASK, TaskWithdrawn()], "active"),
    "a task begun": ([TASK, STARTED], "running"),
    "a task behind a run": ([STARTED, STOPPED, TASK], "queued"),
    "one withdrawn behind a run": ([STARTED, STOPPED, TASK, TaskWithdrawn()], "stopped"),
    "paused": ([STARTED, RunPaused(reason="approval_required", wall_seconds=1.0)], "paused"),
    "resumed": ([STARTED, STOPPED, RunResumed()], "running"),
    "ended": ([STARTED, STOPPED], "stopped"),
    "closed": ([STARTED, STOPPED, SessionChanged(status="closed")], "stopped"),
    "deleted": ([STARTED, STOPPED, SessionChanged(status="deleted")], "deleted"),
    "rewound behind its task": ([MessageAdded(message=user_message("a")), STARTED, said("x"), STOPPED, SessionRewound(to=3)], "stopped"),
    "rewound before its task": ([MessageAdded(message=user_message("a")), STARTED, said("x"), STOPPED, SessionRewound(to=1)], "active"),
    "rewound without a run": ([MessageAdded(message=user_message("a")), SessionRewound(to=1)], "active"),
}  # fmt: skip


@pytest.mark.parametrize(("events", "phase"), PHASES.values(), ids=PHASES)
@pytest.mark.unchecked("events are written by hand, without a run")
async def test_the_phase_of_a_session_is_the_one_that_its_journal_lists(events: list[AnyEvent], phase: str) -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session, session.held():
        for event in events:
            await session.ledger.record(event)
        assert session.state.phase == phase
        listed = [one.phase for one in await journal.sessions()]
        await session.ledger.record(ModeChanged(mode="ask"))  # an event that changes no phase
        listed += [one.phase for one in await journal.sessions()]

    assert listed == [phase, phase]


@pytest.mark.row("N19")
@pytest.mark.unchecked("events are written by hand, without a run")
async def test_a_waiting_task_is_withdrawn_once_and_by_nobody_who_comes_late() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as session:
        async with session.held():
            await session.ledger.record(TASK)
        assert await session.cancel() is True
        assert await session.cancel() is False
        assert session.state.submitted is None
        assert [one.type for one in await session.events()] == ["task.submitted", "task.withdrawn"]
        assert [message async for message in _inbox(journal)] == []


async def _inbox(journal: MemoryJournal) -> Any:
    for message in await journal.inbox("s"):
        yield message


@pytest.mark.row("N19")
@pytest.mark.unchecked("events are written by hand, without a run")
async def test_a_task_whose_run_a_worker_has_begun_is_cancelled_as_a_run() -> None:
    journal = MemoryJournal()
    async with open_session(journal, id="s") as worker, open_session(journal, id="s") as session:
        async with worker.held():
            await worker.ledger.record(TASK)
            await session.refresh()
            await worker.ledger.record(STARTED)
            assert await session.cancel() is True

        assert session.state.run is not None
        assert session.state.run.phase == "running"
        assert [one.kind for one in await journal.inbox("s")] == ["cancel"]


# --- an agent's fingerprint


@pytest.mark.parametrize(
    ("instructions", "told"),
    [(None, ""), ("", digest("")), ("Be kind.", digest("Be kind.")), ("half \ud800", digest("half ?"))],
    ids=range(4),
)
async def test_instructions_are_recorded_by_a_digest_that_any_text_has(instructions: str | None, told: str) -> None:
    run = await Agent(ScriptedModel([text("x")]), instructions=instructions).run("go")

    (begun,) = [event for event in await run.session.events() if isinstance(event, RunStarted)]
    assert begun.instructions == told
