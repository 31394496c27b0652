"""What is asked of a long session costs in proportion to its length: no line runs with the square of it. Counts lines, not time."""

import asyncio
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from session_tools import long_tool

from pipeline_tools import Recorder, act, read
from treadle import Agent, Budget, open_journal, open_session
from treadle.events import AnyEvent, SessionChanged
from treadle.events.codec import artifacts_of
from treadle.journals.backend import append_of
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import Writer
from treadle.ports import Journal
from treadle.redaction import Redactor
from treadle.sessions.explain import explain
from treadle.sessions.maintenance import Parcel, effects_after, find_point, fold, pack, pack_redacted
from treadle.testing import ScriptedModel, call, text

FEW, TIMES = 6, 4
SLACK = 200
"""So many more runs of a line are allowed: what is done once, or now and then, shows no growth."""

Lines = Counter[tuple[CodeType, int]]


@contextmanager
def counted() -> Iterator[Lines]:
    """Count how often each line of Treadle runs in this thread."""
    lines: Lines = Counter()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if "treadle" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines[frame.f_code, frame.f_lineno] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def grown(few: Lines, many: Lines) -> dict[str, tuple[int, int]]:
    """Return the lines that ran more often than in proportion."""
    return {
        f"{code.co_filename}:{line}": (few[code, line], count)
        for (code, line), count in many.items()
        if count > 1.02 * TIMES * few[code, line] + SLACK  # ids are random, and so is what is looked for in them
    }


async def long_session(journal: Journal, turns: int) -> None:
    turn = [[call("act"), call("look")], text("Done.")]
    agent = Agent(ScriptedModel(turn * turns), tools=[act(Recorder()), read(Recorder())])
    async with open_session(journal, id="long") as session:
        for _ in range(turns):
            await agent.run("go", session=session)
            await session.mark("here")


def parcel(events: list[AnyEvent]) -> Parcel:
    return Parcel(session_id="long", events=tuple(events), inbox=(), blobs={})


QUESTIONS: dict[str, Callable[[list[AnyEvent]], object]] = {
    "fold": lambda events: fold("long", events),
    "explain": lambda events: explain("long", events),
    "point": lambda events: find_point("long", events, "here"),
    "effects": lambda events: effects_after(events, 0),
    "export": lambda events: list(pack(parcel(events))),
    "redacted export": lambda events: list(pack_redacted(parcel(events), Redactor())),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_question_about_a_session_costs_in_proportion_to_its_length(question: str) -> None:
    found = []
    for turns in (FEW, FEW * TIMES):
        journal = MemoryJournal()
        await long_session(journal, turns)
        events = list(await journal.read("long"))
        with counted() as lines:
            QUESTIONS[question](events)
        found.append(lines)

    assert grown(*found) == {}


async def keep(journal: Journal, name: str) -> None:
    """Make a session that has stored a long result, and one forked from it."""
    async with open_session(journal, id=name) as session:
        model, budget = ScriptedModel([call("long"), text("Done.")]), Budget(max_tool_result_chars=1_000)
        await Agent(model, tools=[long_tool(name)], budget=budget).run("go", session=session)
        assert session.state.artifacts
        await session.fork(id=f"fork-{name}")


async def test_a_purge_in_memory_costs_the_same_however_many_other_sessions_there_are() -> None:
    found = []
    for others in (2, 2, 20):  # the first one also compiles what checks the arguments
        journal = MemoryJournal()
        for number in range(others):
            await keep(journal, f"other-{number}")
        await keep(journal, "one")
        digests = artifacts_of(await journal.read("one"))
        async with open_session(journal, id="one"):
            tombstone = SessionChanged(session_id="one", seq=1, at=0.0, status="deleted")
            with counted() as lines:
                await journal.purge("one", tombstone, blobs=digests)
        found.append(sum(lines.values()))
        assert [await journal.blob(one) is None for one in digests] == [False]  # the fork names it
    assert found[1] == found[2]


def test_a_purge_in_a_file_takes_as_many_steps_of_the_database_however_many_other_sessions_there_are(
    tmp_path: Path,
) -> None:
    def steps(others: int) -> int:
        path = tmp_path / f"{others}.db"

        async def fill() -> tuple[str, ...]:
            async with open_journal(path) as journal:
                for number in range(others):
                    await keep(journal, f"other-{number}")
                await keep(journal, "zero")
                await keep(journal, "one")
                async with open_session(journal, id="zero") as session:
                    await session.delete(purge=True)  # the first purge makes the index
                return artifacts_of(await journal.read("one"))

        digests = asyncio.run(fill())
        taken = 0

        def step() -> int:
            nonlocal taken
            taken += 1
            return 0

        tombstone = SessionChanged(session_id="one", seq=1, at=0.0, status="deleted")
        with closing(sqlite3.connect(path)) as connection:
            connection.set_progress_handler(step, 1)
            Writer(path, 1.0).purge(connection, append_of("one", [tombstone], "deleted"), digests)
            connection.rollback()
        return taken

    few, many = steps(2), steps(20)
    assert many <= few + 20
