"""A scene for the crash tests: a world, a journal, and children that run or resume one session in it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from crashing import Children, Scene, World, world


@pytest.fixture(scope="session")
def mother() -> Iterator[Children]:
    with Children() as found:
        yield found


@pytest.fixture
async def outside() -> AsyncIterator[World]:
    async with world() as found:
        yield found


@pytest.fixture(params=["sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of the journal."""
    return str(tmp_path / "a.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def scene(mother: Children, outside: World, place: str, tmp_path: Path) -> Scene:
    return Scene(mother, outside, place, tmp_path)
