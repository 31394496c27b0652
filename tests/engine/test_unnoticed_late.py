"""What a survey of mutations showed that no test noticed: what is recorded of a call that ended after it had been given up."""

import asyncio
from typing import Any

import pytest

from pipeline_tools import on_fake_clock, read, run_calls, statuses, types
from treadle import ToolContext
from treadle.events import ToolLate
from treadle.testing import call
from treadle.tools import JsonObject


class Hostile:
    """A value that refuses to be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.row("TF11")
@pytest.mark.parametrize(
    ("ends", "outcome", "content"),
    [
        ("too late", "returned", "'too late'"),
        (None, "returned", "None"),
        ("x" * 3000, "returned", "'" + "x" * 1999),
        (Hostile(), "returned", "Hostile"),
        (ValueError("broken off"), "raised", "ValueError: broken off"),
    ],
)
async def test_a_late_end_is_recorded_as_returned_or_raised_with_what_it_was(
    ends: Any, outcome: str, content: str
) -> None:
    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if isinstance(ends, ValueError):
                raise ends from None
            return ends

    async with on_fake_clock() as session:
        result = await run_calls(call("look"), tools=[read(run, timeout=5, retries=0)], session=session)
        late = [event for event in await types(result, "tool.late") if isinstance(event, ToolLate)]

    assert statuses(result) == ["timeout"]
    assert [(event.tool, event.outcome, event.content) for event in late] == [("look", outcome, content)]
