"""Real processes whose clocks are apart, or jump in mid-run: `libfaketime` moves them. Nothing is done twice."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from crash_child import Job
from crashing import World, children, stored, world

MINUTE, HOUR, YEAR = 60, 3600, 31_557_600
LIBRARIES = sorted(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"))

pytestmark = pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed: apt-get install faketime")


@pytest.fixture
async def outside(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path / "acts") as found:
        yield found


PATIENT = 40.0
"""The lease of a process that shall keep it, however busy the machine is, in seconds; less than each jump."""
CLOCKS = (MINUTE, HOUR, YEAR, -MINUTE, -HOUR, -YEAR)
OF_POSTGRES = CLOCKS if os.environ.get("TREADLE_SOAK") == "1" else (HOUR, -HOUR)
"""The server's clock stamps what matters there, and each case takes 4 seconds: `make soak` runs them all."""
PLACES_AND_CLOCKS = [("sqlite", clock) for clock in CLOCKS] + [("postgres", clock) for clock in OF_POSTGRES]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the session is. The server's own clock is right: it is a machine of its own."""
    return str(tmp_path / "a.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def faked(**variables: str) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        **variables,
    }


@pytest.mark.row("KF1", "ST02")
@pytest.mark.parametrize(("place", "apart"), PLACES_AND_CLOCKS, indirect=["place"])
@pytest.mark.parametrize("point", ["CP9", "CP11"])
async def test_an_heir_with_another_clock_acts_no_second_time(
    tmp_path: Path, outside: World, place: str, apart: int, point: str
) -> None:
    job = Job(
        journal=place,
        port=outside.port,
        out=str(tmp_path / "out"),
        check="service",
        timeout=0.5,
        lease_seconds=2.0,
        point=point,
    )
    async with children() as here:
        assert (await here.run(job)).was_killed
    async with children(**faked(FAKETIME=f"{apart:+d}")) as there:
        ended = await there.run(Job(**{**fields(job), "point": "", "lease_seconds": PATIENT}))
    assert ended.report.get("reason") == "completed", ended
    assert outside.duplicates() == []
    assert outside.requests() == {1: 1, 2: 1}
    events, _ = await stored(place)
    assert (events[-1].at - events[0].at) / apart > 0.5  # the clocks were apart


@pytest.mark.row("KF2")
@pytest.mark.parametrize(("place", "jump"), PLACES_AND_CLOCKS, indirect=["place"])
@pytest.mark.parametrize("dies", [False, True])
async def test_a_clock_that_jumps_inside_an_act_causes_no_second_one(
    tmp_path: Path, outside: World, place: str, jump: int, dies: bool
) -> None:
    pipe, clock, pids = tmp_path / "pipe", tmp_path / "clock", list[int]()
    os.mkfifo(pipe)
    clock.write_text("+0")
    job = Job(
        journal=place, port=outside.port, out=str(tmp_path / "out"),
        check="service", timeout=2.0, lease_seconds=6.0 if dies else PATIENT, gate=str(pipe),
    )  # fmt: skip
    async with children(**faked(FAKETIME_TIMESTAMP_FILE=str(clock), FAKETIME_NO_CACHE="1")) as mother:
        running = asyncio.create_task(mother.run(job, on_start=pids.append))
        inside = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
        clock.with_suffix(".new").write_text(f"{jump:+d}")
        clock.with_suffix(".new").replace(clock)
        if dies:
            os.kill(pids[0], signal.SIGKILL)
        os.close(inside)
        ended = await running
        assert ended.was_killed is dies, ended
        if dies:
            ended = await mother.run(Job(**{**fields(job), "gate": "", "lease_seconds": PATIENT}))
    assert ended.report.get("reason") == "completed", ended
    assert outside.duplicates() == []
    assert outside.requests() == {1: 1, 2: 1}
    events, _ = await stored(place)
    assert (events[-1].at - events[0].at) / jump > 0.5  # the clock has jumped


def fields(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__struct_fields__}
