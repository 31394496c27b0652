"""Journals that workers share: a file and a database, each by its address."""

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty journal that several processes can share."""
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    url: str = request.getfixturevalue("postgres_url")
    return url
