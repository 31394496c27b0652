"""The short form of `make soak`: some fifteen kills, over all scenes, at every crash point and at random times."""

import asyncio
import os
import random
from pathlib import Path

import pytest
from crashing import Children, Scene, World, world
from soaking import RANDOM, SCENES, WHERES, Life, Tally

SEED = 20261121
SOAK = os.environ.get("TREADLE_SOAK") == "1"
TYPICAL_SECONDS = 0.15


@pytest.mark.row("Q04", "R04", "R05", "CP1", "CP5", "CP9", "CP13", "CP15", "CP16")
async def test_fifteen_kills_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, mothers: tuple[Children, Children]
) -> None:
    chance = random.Random(SEED)
    plan = [(scene, where) for scene in SCENES for where in WHERES if where != RANDOM]
    chance.shuffle(plan)
    plan = plan[:8] + [(scene, RANDOM) for scene in SCENES]
    tally = Tally()
    async with world() as outside:

        async def live(mother: Children, lives: list[tuple[int, tuple[str, str]]]) -> None:
            for number, (scene, where) in lives:
                life = Life(mother, outside, tmp_path, f"life{number}", scene, where, chance=chance)
                await life.run(tally, TYPICAL_SECONDS)

        numbered = list(enumerate(plan))
        await asyncio.gather(live(mothers[0], numbered[::2]), live(mothers[1], numbered[1::2]))

    assert tally.faults == []
    assert tally.kills >= 10


@pytest.mark.row("CP16")
async def test_killed_at_every_statement_that_makes_the_tables_the_file_is_empty_or_whole(
    tmp_path: Path, mother: Children, outside: World
) -> None:
    for n in range(1, 40, 1 if SOAK else 5):
        name = f"life{n}"
        scene = Scene(mother, outside, str(tmp_path / f"{name}.db"), tmp_path)
        died = await scene.run(session=name, act="build", point=f"CP16:{n}")
        if not died.was_killed:
            assert n > 10
            return
        ended = await scene.run(session=name)
        assert ended.is_completed, (n, ended)
        assert outside.requests(name) == {1: 1, 2: 1}
    pytest.fail("the tables were never made in 40 tries")
