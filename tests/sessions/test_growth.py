"""What is asked of a long session costs in proportion to its length: no line runs with the square of it. Counts lines, not time."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

from treadle import Agent, Tool, allow, open_session
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.ports import Journal
from treadle.redaction import Redactor
from treadle.sessions.checkpoints import effects_after, find_point, fold
from treadle.sessions.explain import explain
from treadle.sessions.transfer import Parcel, pack, pack_redacted
from treadle.testing import ScriptedModel, call, text

FEW, TIMES = 30, 4
SLACK = 60
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
        if count > TIMES * few[code, line] + SLACK
    }


async def long_session(journal: Journal, turns: int) -> None:
    act = Tool(name="act", description="Act.", parameters={"type": "object"}, effect="unsafe", run=lambda: "done")
    look = Tool(name="look", description="Look.", parameters={"type": "object"}, effect="read", run=lambda: "x")
    turn = [[call("act"), call("look")], text("Done.")]
    agent = Agent(ScriptedModel(turn * turns), tools=[act, look], policy=allow("*"))
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
