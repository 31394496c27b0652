"""What every test shares: the row mark, loud skips, checked journals, the recordings, and the guard against hanging. No doubles here."""

import faulthandler
import gc
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest
from hypothesis import HealthCheck, settings

from requirements import read_rows, report
from watching import Watcher, violations_in_files

if TYPE_CHECKING:
    from postgres_server import PostgresServer

PROJECT = Path(__file__).resolve().parent.parent
RECORDINGS = PROJECT.parent / "shared" / "recordings"

NO_SKIPS = os.environ.get("TREADLE_NO_SKIPS") == "1"
"""Whether a skipped test fails. Set where everything that a test may need is known to be installed."""

SOAK = os.environ.get("TREADLE_SOAK") == "1"
"""Whether the tests marked `soak` run too, as in `make soak`."""

HANG_SECONDS = float(os.environ.get("TREADLE_HANG_SECONDS", "120"))
"""A test that takes this long hangs: all stacks are printed and its process ends."""

# No test asserts on time, and a loaded machine draws slowly.
settings.register_profile("treadle", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("treadle")

_stderr = pytest.StashKey[TextIO]()

_watcher = Watcher()

gc.disable()  # until all tests are collected: what that makes stays to the end, and is never worth a look


def pytest_configure(config: pytest.Config) -> None:
    # pytest replaces descriptor 2 while a test runs; the stacks of a hanging one must reach the person all the same.
    config.stash[_stderr] = os.fdopen(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_stderr].close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [] if SOAK else [item for item in items if item.get_closest_marker("soak") is not None]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item.get_closest_marker("soak") is None]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _guard(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _guard(item)  # anew: what is made once for many tests does not count into the one that came first


def _guard(item: pytest.Item) -> None:
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=item.config.stash[_stderr])


@pytest.fixture(autouse=True)
def _every_journal_is_checked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check the journal of every session that a test has recorded, here or in a child process."""
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    _watcher.begin()
    yield
    violations = list(_watcher.violations())
    if request.node.get_closest_marker("unchecked") is not None:
        return
    violations += [] if folder is None else violations_in_files(folder)
    assert not violations, "A journal is broken:\n" + "\n".join(violations)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report_ = yield
    if NO_SKIPS and report_.skipped and not _is_expected_failure(report_):
        _fail(report_)
    return report_


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report_ = yield
    if NO_SKIPS and report_.skipped:
        _fail(report_)
    return report_


def _is_expected_failure(skipped: pytest.TestReport) -> bool:
    return "wasxfail" in vars(skipped)


def _fail(skipped: pytest.TestReport | pytest.CollectReport) -> None:
    skipped.outcome = "failed"
    skipped.longrepr = f"skipped where nothing may be skipped (TREADLE_NO_SKIPS=1): {_reason(skipped)}"


def _reason(skipped: pytest.TestReport | pytest.CollectReport) -> str:
    match skipped.longrepr:
        case (_, _, str(reason)):
            return reason.removeprefix("Skipped: ")
        case other:
            return str(other)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    _tell_skips(terminalreporter)
    _tell_rows(terminalreporter)


def _tell_skips(terminal: pytest.TerminalReporter) -> None:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for skipped in terminal.getreports("skipped"):
        by_reason[_reason(skipped)].append(skipped.nodeid)
    if not by_reason:
        return
    terminal.section(f"SKIPPED: {sum(map(len, by_reason.values()))} tests proved nothing", yellow=True, bold=True)
    for reason, tests in by_reason.items():
        terminal.line(f"{reason}")
        for test in tests:
            terminal.line(f"    {test}")


def _tell_rows(terminal: pytest.TerminalReporter) -> None:
    terminal.section("requirements")
    for line in report(read_rows()):
        terminal.line(line)


@pytest.fixture(scope="session")
def recordings() -> Path:
    """The folder of recorded provider traffic. It lies beside the project and is no part of it."""
    if not RECORDINGS.is_dir():
        pytest.skip("no recorded provider traffic: expected ../shared/recordings beside the project")
    return RECORDINGS


@pytest.fixture(scope="session")
def postgres() -> "Iterator[PostgresServer]":
    """A PostgreSQL server of these tests alone."""
    try:
        from postgres_server import running_server
    except ImportError as error:  # most tests need no driver
        pytest.skip(f"a journal in PostgreSQL needs the extra `postgres`: {error}")
    with running_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: "PostgresServer") -> str:
    """The address of an empty schema."""
    return postgres.new_url()
