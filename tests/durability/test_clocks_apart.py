"""Real processes whose clocks are apart, or jump in mid-run: `libfaketime` moves them. Nothing is done twice."""

import asyncio
import os
import signal
from itertools import product
from pathlib import Path

import pytest
from crashing import Children, Scene, World, often, stored

MINUTE, HOUR, YEAR = 60, 3600, 31_557_600
LIBRARIES = sorted(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"))

pytestmark = pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed: apt-get install faketime")


PATIENT = 40.0
"""The lease of a process that shall keep it, however busy the machine is, in seconds; less than each jump."""
ALL = (MINUTE, HOUR, YEAR, -MINUTE, -HOUR, -YEAR)
PLACES = ("sqlite", "postgres")
"""The server's own clock is right."""
APART = often(product(PLACES, ALL, ("CP9", "CP11")), ("postgres", HOUR, "CP11"))
JUMPS = often(product(PLACES, ALL, (False, True)), ("sqlite", -YEAR, True))


def faked(**variables: str) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        **variables,
    }


@pytest.mark.row("KF1", "ST02")
@pytest.mark.parametrize(("place", "apart", "point"), APART, indirect=["place"])
async def test_an_heir_with_another_clock_acts_no_second_time(
    scene: Scene, outside: World, place: str, apart: int, point: str
) -> None:
    words = {"check": "service", "timeout": 0.5}
    await scene.kill(point, lease_seconds=2.0, **words)
    with Children(**faked(FAKETIME=f"{apart:+d}")) as there:
        ended = await there.run(scene.job(lease_seconds=PATIENT, **words))
    assert ended.report.get("reason") == "completed", ended
    assert outside.duplicates() == []
    assert outside.requests() == {1: 1, 2: 1}
    events, _ = await stored(place)
    assert (events[-1].at - events[0].at) / apart > 0.5  # the clocks were apart


@pytest.mark.row("KF2")
@pytest.mark.parametrize(("place", "jump", "dies"), JUMPS, indirect=["place"])
async def test_a_clock_that_jumps_inside_an_act_causes_no_second_one(
    tmp_path: Path, scene: Scene, outside: World, place: str, jump: int, dies: bool
) -> None:
    pipe, clock, pids = tmp_path / "pipe", tmp_path / "clock", list[int]()
    os.mkfifo(pipe)
    clock.write_text("+0")
    words = {"check": "service", "timeout": 2.0}
    job = scene.job(lease_seconds=6.0 if dies else PATIENT, gate=str(pipe), **words)
    with Children(**faked(FAKETIME_TIMESTAMP_FILE=str(clock), FAKETIME_NO_CACHE="1")) as mother:
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
            ended = await mother.run(scene.job(lease_seconds=PATIENT, **words))
    assert ended.report.get("reason") == "completed", ended
    assert outside.duplicates() == []
    assert outside.requests() == {1: 1, 2: 1}
    events, _ = await stored(place)
    assert (events[-1].at - events[0].at) / jump > 0.5  # the clock has jumped
