"""Journals that workers share: a file, and a database where the test asks for one; in `make soak` every test has both."""

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty journal that several processes can share."""
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    url: str = request.getfixturevalue("postgres_url")
    return url
