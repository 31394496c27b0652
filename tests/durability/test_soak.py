"""The short form of `make soak`: some forty kills, over all scenes, at every crash point and at random times."""

import asyncio
import random
from pathlib import Path

import pytest
from crash_child import Job
from crashing import children, world
from soaking import RANDOM, SCENES, WHERES, Life, Tally

SEED = 20261121
TYPICAL_SECONDS = 0.15


@pytest.mark.row("Q04", "R04", "R05", "CP1", "CP5", "CP9", "CP13", "CP15", "CP16")
async def test_forty_kills_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    plan = [(scene, where) for scene in SCENES for where in WHERES if where != RANDOM]
    chance.shuffle(plan)
    plan = plan[:24] + [(scene, RANDOM) for scene in SCENES for _ in range(2)]
    tally = Tally()
    async with world(tmp_path / "acts") as outside, children() as one, children() as other:

        async def live(mother: object, lives: list[tuple[int, tuple[str, str]]]) -> None:
            for number, (scene, where) in lives:
                life = Life(mother, outside, tmp_path, f"life{number}", scene, where, chance=chance)  # type: ignore[arg-type]
                await life.run(tally, TYPICAL_SECONDS)

        numbered = list(enumerate(plan))
        await asyncio.gather(live(one, numbered[::2]), live(other, numbered[1::2]))

    assert tally.faults == []
    assert tally.kills >= 24


@pytest.mark.row("CP16")
async def test_killed_at_every_statement_that_makes_the_tables_the_file_is_empty_or_whole(tmp_path: Path) -> None:
    async with world(tmp_path / "acts") as outside, children() as mother:
        for n in range(1, 40):
            name = f"life{n}"
            job = Job(
                journal=str(tmp_path / f"{name}.db"),
                port=outside.port,
                out=str(tmp_path / f"{name}.out"),
                session=name,
                act="build",
                point=f"CP16:{n}",
            )
            died = await mother.run(job)
            if not died.was_killed:
                assert n > 10
                return
            ended = await mother.run(Job(journal=job.journal, port=job.port, out=job.out, session=name))
            assert ended.report["reason"] == "completed", (n, ended)
            assert outside.requests(name) == {1: 1, 2: 1}
    pytest.fail("the tables were never made in 40 tries")
