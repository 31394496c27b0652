"""Reach: which tests execute which line, and how long each test takes. Knows nothing of mutants."""

import functools
import itertools
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import coverage
import pytest

__all__ = ["Reach", "measure", "run_test"]


class Reach:
    """For each line of the mutated files, the tests that execute it; for each test that passes, its seconds of processor time."""

    def __init__(
        self, lines: dict[str, dict[str, list[str]]], seconds: dict[str, float], failing: Sequence[str] = ()
    ) -> None:
        self._lines = lines
        self.seconds = seconds
        self._failing = list(failing)
        self.judged = {*seconds, *failing}
        """Tests that were measured."""

    def joined(self, other: "Reach") -> "Reach":
        """Return this one with what another knows."""
        lines = {
            file: {
                line: [*self._lines.get(file, {}).get(line, ()), *of_file.get(line, ())]
                for line in {*self._lines.get(file, {}), *of_file}
            }
            for file, of_file in other._lines.items()
        }
        return Reach(self._lines | lines, self.seconds | other.seconds, [*self._failing, *other._failing])

    def tests_of(self, path: Path, lines: Sequence[int]) -> list[str]:
        """Return the tests that execute one of these lines, by turns the two kinds that are likely to notice a change.

        One kind executes little else: it is about these lines. The other is the quickest of each file, for files look at other
        things.
        """
        of_file = self._lines.get(_name(path), {})
        found = {test for line in lines for test in of_file.get(str(line), ()) if test in self.seconds}
        near = sorted(found, key=lambda one: (self._reached[one], self.seconds[one], one))
        by_file: dict[str, list[str]] = {}
        for test in sorted(found, key=lambda one: (self.seconds[one], one)):
            by_file.setdefault(test.partition("::")[0], []).append(test)
        rounds = itertools.zip_longest(*by_file.values())
        quick = [test for one in rounds for test in one if test is not None]
        return list(dict.fromkeys(itertools.chain.from_iterable(zip(near, quick, strict=True))))

    @functools.cached_property
    def _reached(self) -> Counter[str]:
        """How many lines each test executes."""
        by_line = (tests for of_file in self._lines.values() for tests in of_file.values())
        return Counter(itertools.chain.from_iterable(by_line))

    def write(self, path: Path) -> None:
        tests = sorted(self.judged)
        place = {test: number for number, test in enumerate(tests)}
        lines = {
            file: {line: sorted(place[test] for test in reached) for line, reached in of_file.items()}
            for file, of_file in self._lines.items()
        }
        path.write_text(json.dumps({"tests": tests, "lines": lines, "seconds": self.seconds, "failing": self._failing}))

    @classmethod
    def read(cls, path: Path) -> "Reach":
        stored = json.loads(path.read_text())
        tests = stored["tests"]
        lines = {
            file: {line: [tests[number] for number in reached] for line, reached in of_file.items()}
            for file, of_file in stored["lines"].items()
        }
        return cls(lines, stored["seconds"], stored["failing"])


def _name(path: Path) -> str:
    return path.name if path.parent.name == "treadle" else f"{path.parent.name}/{path.name}"


class Outcome:
    """A pytest plugin that notes whether a test failed in any of its phases."""

    def __init__(self) -> None:
        self.has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.has_failed = self.has_failed or report.failed


def run_test(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run one collected test and return whether it passed. `following` decides which fixtures stay."""
    outcome = Outcome()
    item.config.pluginmanager.register(outcome)
    try:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    finally:
        item.config.pluginmanager.unregister(outcome)
    return not outcome.has_failed


def measure(items: Sequence[pytest.Item], files: Sequence[Path], place: Path, known: Reach) -> None:
    """Run every test once under coverage and write what was reached to `place`. Tests that fail are left out."""
    watch = coverage.Coverage(data_file=None, config_file=False, include=[str(file) for file in files])
    seconds: dict[str, float] = {}
    failing = []
    watch.start()
    for number, item in enumerate(items):
        watch.switch_context(item.nodeid)
        began = _spent()
        if run_test(item, items[number + 1] if number + 1 < len(items) else None):
            seconds[item.nodeid] = round(_spent() - began, 4)
        else:
            failing.append(item.nodeid)
            print(f"fails without a mutation, so it judges none: {item.nodeid}", flush=True)
    watch.stop()
    reached = watch.get_data()
    lines = {
        _name(file): {
            str(line): [test for test in tests if test] for line, tests in reached.contexts_by_lineno(str(file)).items()
        }
        for file in files
    }
    known.joined(Reach(lines, seconds, failing)).write(place)


def _spent() -> float:
    """Return the processor time of this process and of those that it has waited for: on a busy machine it is the same."""
    return sum(os.times()[:4])
