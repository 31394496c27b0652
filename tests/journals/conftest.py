"""The journals under test, and other processes that use them."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal

try:
    from postgres_server import PostgresServer, find_binaries
except ImportError as error:  # the tests of the other stores need no driver
    _missing: str | None = f"a journal in PostgreSQL needs the extra `postgres`: {error}"
else:
    _missing = None if find_binaries() else "a journal in PostgreSQL needs its server: apt-get install postgresql"

CHILD = Path(__file__).parent / "journal_child.py"


@pytest.fixture(scope="session")
def server() -> "Iterator[PostgresServer]":
    """A PostgreSQL server of these tests alone. Tests may crash it, if they start it again."""
    if _missing is not None:
        pytest.skip(_missing)
    binaries = find_binaries()
    assert binaries is not None
    server = PostgresServer(binaries)
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.fixture
def url(server: "PostgresServer") -> str:
    """The address of an empty schema."""
    return server.new_url()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    opened = _journal(request, tmp_path)
    yield opened
    await opened.close()


def _journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    match request.param:
        case "memory":
            return MemoryJournal()
        case "sqlite":
            return SqliteJournal(tmp_path / "journal.db")
        case _:
            url = request.getfixturevalue("url")
            from treadle.journals.postgres import PostgresJournal

            return PostgresJournal(url)


@pytest.fixture
def start_child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process that does one act of `journal_child.py`. It is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(act: str, *arguments: object) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, str(CHILD), act, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def run_child(start_child: Callable[..., subprocess.Popen[str]]) -> Callable[..., list[str]]:
    """Do one act in another process and return the lines that it said."""

    def run(act: str, *arguments: object) -> list[str]:
        child = start_child(act, *arguments)
        said, complaints = child.communicate(timeout=60)
        assert child.returncode == 0, complaints
        return said.splitlines()

    return run
