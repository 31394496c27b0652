"""The journals under test, and other processes that use them."""

import io
import os
import runpy
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import program
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.journals.stores import Backend, StoreJournal
from treadle.ports import Journal

if TYPE_CHECKING:
    from journal_places import Place

    from postgres_server import PostgresServer

SAMPLE = Path(__file__).parents[2] / "docs_src" / "stores.py"
CHILD = Path(__file__).parent / "journal_child.py"
RUN_CHILD = f"""
import runpy, sys
sys.path.insert(0, {str(CHILD.parent)!r})
sys.stdout.reconfigure(line_buffering=True)
runpy.run_path({str(CHILD)!r}, run_name="__main__")
"""


@pytest.fixture(scope="session")
def server(postgres: "PostgresServer") -> "PostgresServer":
    """Tests may crash it, if they start it again."""
    return postgres


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


def sample_backend() -> Backend:
    """Return the store of docs/know/stores.md, which implements the primitives alone."""
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


class Child:
    """A process that does one act of `journal_child.py`, with texts as streams. It is forked from one that has loaded Treadle."""

    def __init__(self, act: str, *arguments: object) -> None:
        words = [program.CODE, RUN_CHILD, act, *map(str, arguments)]
        self._process = program.Forked(words, folder=CHILD.parent, environment=os.environ)
        self.pid, self.send_signal = self._process.pid, self._process.send_signal
        self.kill, self.wait = self._process.kill, self._process.wait
        streams: Any = self._process
        self.stdin = io.TextIOWrapper(streams.stdin, write_through=True)
        self.stdout, self.stderr = io.TextIOWrapper(streams.stdout), io.TextIOWrapper(streams.stderr)

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def communicate(self, given: str = "", timeout: float = 60) -> tuple[str, str]:
        """Give it the rest of its input, and return what is left to read of its output, once it has ended."""
        with suppress(BrokenPipeError, ValueError):  # it has ended, or was given all
            self.stdin.write(given)
            self.stdin.close()
        said = [stream.read() if not stream.closed else "" for stream in (self.stdout, self.stderr)]
        self.stdout.close()
        self.stderr.close()
        self.wait(timeout)
        return said[0], said[1]


@pytest.fixture
def start_child() -> Iterator[Callable[..., Child]]:
    """Start a process that does one act of `journal_child.py`. It is ended with the test."""
    started: list[Child] = []

    def start(act: str, *arguments: object) -> Child:
        started.append(Child(act, *arguments))
        return started[-1]

    yield start
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def run_child(start_child: Callable[..., Child]) -> Callable[..., list[str]]:
    """Do one act in another process and return the lines that it said."""

    def run(act: str, *arguments: object) -> list[str]:
        child = start_child(act, *arguments)
        said, complaints = child.communicate()
        assert child.returncode == 0, complaints
        return said.splitlines()

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stores are tested with events made by hand; two files run agents over them."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here and item.path.name not in ("test_degrading.py", "test_stores.py"):
            item.add_marker(pytest.mark.unchecked("its events are made by hand and tell no whole story"))
