"""The journals under test, and other processes that use them."""

import os
import runpy
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.journals.stores import Backend, StoreJournal
from treadle.ports import Journal

if TYPE_CHECKING:
    from journal_places import Place

    from postgres_server import PostgresServer

SAMPLE = Path(__file__).parents[2] / "docs_src" / "stores.py"
CHILD = Path(__file__).parent / "journal_child.py"


@pytest.fixture(scope="session")
def server(postgres: "PostgresServer") -> "PostgresServer":
    """Tests may crash it, if they start it again."""
    return postgres


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


def sample_backend() -> Backend:
    """Return the store of docs/stores.md, which implements the primitives alone."""
    sample = runpy.run_path(str(SAMPLE))
    backend: Backend = sample["DictBackend"]()
    return backend


@pytest.fixture(params=["memory", "sqlite", "postgres", "sample"])
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
        case "sample":
            return StoreJournal(sample_backend())
        case _:
            url = request.getfixturevalue("url")
            from treadle.journals.postgres import PostgresJournal

            return PostgresJournal(url)


@pytest.fixture(params=["sqlite", "postgres"])
def durable_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of a journal that several processes can use."""
    return str(tmp_path / "journal.db") if request.param == "sqlite" else str(request.getfixturevalue("url"))


@pytest.fixture
def durable_place(durable_address: str) -> "Place[Any]":
    """Return the place of a journal that several processes can use, for those who reach into it as another program would."""
    from journal_places import FilePlace, SchemaPlace

    return SchemaPlace(durable_address) if durable_address.startswith("postgresql:") else FilePlace(durable_address)


@pytest.fixture
def sample_store() -> Backend:
    return sample_backend()


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stores are tested with events made by hand; two files run agents over them."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.path.name not in ("test_degrading.py", "test_stores.py"):
            item.add_marker(pytest.mark.unchecked("its events are made by hand and tell no whole story"))
