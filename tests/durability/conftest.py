"""A scene for the crash tests: a world, a journal, and children that run or resume one session in it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from crashing import Children, Scene, World, world


@pytest.fixture(scope="session")
def mothers() -> Iterator[tuple[Children, Children]]:
    """Two that start children: what they start runs side by side."""
    with Children() as one, Children() as other:
        yield one, other


@pytest.fixture
def mother(mothers: tuple[Children, Children]) -> Children:
    return mothers[0]


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
