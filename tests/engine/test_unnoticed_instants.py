"""Behaviours that a wrong change once broke without any test noticing: which instant counts, and what ends with a run."""

import asyncio
from typing import Any

import pytest

from pipeline_tools import Recorder, act, on_fake_clock, raising, read, run_calls, statuses, types
from treadle import Agent, Budget, NotDone, Transient, open_session
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.testing import FakeClock, FixedRandomness, ScriptedModel, call, text

# --- when an attempt has surely ended


class Failing:
    """A service whose every request breaks off so long after it arrived, and that never carries one out."""

    def __init__(self, fails_after: float) -> None:
        self.clock = FakeClock(auto=True)
        self.begun: list[float] = []
        self.asked: list[float] = []
        self._fails_after = fails_after

    async def run(self, arguments: Any, ctx: Any) -> Any:
        self.begun.append(self.clock.monotonic())
        over = asyncio.get_running_loop().create_future()
        self.clock.call_later(self._fails_after, lambda: over.set_result(None))
        await over
        raise ConnectionResetError("reset")

    async def check(self, arguments: Any, ctx: Any) -> Any:
        self.asked.append(self.clock.monotonic() - self.begun[-1])
        return NotDone

    async def outcome(self, **words: Any) -> list[str]:
        async with open_session(MemoryJournal(), clock=self.clock, randomness=FixedRandomness([0.5])) as session:
            tools = [act(self.run, check=self.check, **words)]
            return statuses(await run_calls(call("act"), tools=tools, session=session))


@pytest.mark.row("ST02", "KF2")
async def test_the_time_limit_of_a_call_that_was_tried_twice_is_counted_from_its_last_attempt() -> None:
    service = Failing(12.0)

    assert await service.outcome(effect="idempotent", retries=1, timeout=30.0) == ["failed"]
    assert len(service.begun) == 2
    assert service.asked == pytest.approx([12.0, 42.0], abs=0.3)


# --- whether a retry is worth its wait


@pytest.mark.row("H12", "S17")
@pytest.mark.parametrize("words", [{"budget": Budget(max_wall_time_seconds=20)}, {"batch_seconds": 20}])
@pytest.mark.parametrize(("asked", "announced"), [(20.0, [None]), (19.0, [19.0, None])])
async def test_a_retry_that_could_begin_only_as_the_time_ends_is_not_announced(
    words: Any, asked: float, announced: list[float | None]
) -> None:
    tools = [read(raising(Transient("busy", retry_after_seconds=asked)), retries=1)]
    async with on_fake_clock() as session:
        result = await run_calls(call("look"), tools=tools, session=session, **words)
        failed = await types(result, "tool.attempt_failed")

    assert [one.retry_in_seconds for one in failed] == announced


# --- who hears of a run


@pytest.mark.row("E02")
async def test_who_follows_a_run_hears_nothing_of_its_session_once_the_run_has_ended() -> None:
    heard: list[AnyEvent] = []
    async with open_session("memory:") as session:
        await Agent(ScriptedModel([text("Done.")]), tools=[read(Recorder())], subscribers=[heard.append]).run(
            "go", session=session
        )
        await session.mark("here")
        await session.change(metadata={"tier": "gold"})

    assert heard[-1].type == "run.finished"
