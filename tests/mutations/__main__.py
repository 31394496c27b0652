"""`python -m mutations`: draws mutants by a seed, has the tests judge them, and tells which survive.

Exit code 1 when more than one in ten of those that are not equivalents survives.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from mutations.equivalents import equivalents
from mutations.judging import Judge, Verdict
from mutations.mutants import Mutant, mutants_of
from mutations.reach import Reach, measure
from mutations.targets import FILES, PROJECT, TESTS

_LEAST_OF_A_FILE = 3
_TESTS_AT_ONCE = 100
_LARGEST_RATE = 0.1


class _Session:
    """A pytest plugin: instead of the plain loop over the tests, mutants are tried."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.code = 2

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        from hypothesis import Phase, settings  # pytest wants to be the first to import it

        # The same examples each time, and none made small: only whether a test fails counts.
        profile = settings.get_profile("treadle")
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutations", parent=profile, database=None, derandomize=True, phases=phases)
        settings.load_profile("mutations")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        reach = _reach(items, self._options.folder)
        self.code = _try_all(Judge(items, reach, budget_seconds=self._options.budget), self._options)
        return True


def _reach(items: dict[str, pytest.Item], folder: Path) -> Reach:
    """Return which tests execute what; measured where the files, or the tests there are, have changed since."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in FILES)).hexdigest()[:16]
    place = folder / f"reach-{digest}.json"
    known = Reach.read(place) if place.exists() else Reach({}, {})
    new = [item for name, item in items.items() if name not in known.judged]
    if new:
        print(f"Measuring what {len(new)} tests execute", flush=True)
    for begin in range(0, len(new), _TESTS_AT_ONCE):  # so that one that hangs does not lose what the others have shown
        child = os.fork()
        if not child:
            try:
                known = Reach.read(place) if place.exists() else known
                measure(new[begin : begin + _TESTS_AT_ONCE], FILES, place, known)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    return Reach.read(place)


def _try_all(judge: Judge, options: argparse.Namespace) -> int:
    equivalent = equivalents()
    counts: Counter[str] = Counter()
    survivors: list[Mutant] = []
    with contextlib.suppress(KeyboardInterrupt):  # what was tried until then is a sample too: the order is random
        for mutant in _drawn(options):
            if mutant.key in equivalent:
                counts["equivalent"] += 1
                continue
            verdict, tests = judge.judge(mutant)
            counts[verdict.value] += 1
            if verdict is Verdict.SURVIVED:
                survivors.append(mutant)
                print(f"{len(survivors)} of {_tried(counts)}: {tests} pass: {mutant}", flush=True)
    return _tell(counts, survivors, options)


def _tell(counts: Counter[str], survivors: Sequence[Mutant], options: argparse.Namespace) -> int:
    tried = _tried(counts)
    (options.folder / "survivors.json").write_text(json.dumps([mutant.key for mutant in survivors]))
    rate = len(survivors) / tried if tried else 0.0
    summed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    print(f"seed {options.seed}: {tried} mutants, {len(survivors)} survive ({rate:.1%}): {summed}")
    return int(rate > _LARGEST_RATE)


def _tried(counts: Counter[str]) -> int:
    return sum(counts[one.value] for one in (Verdict.KILLED, Verdict.HUNG, Verdict.SURVIVED))


def _drawn(options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants to try, in random order: each file has its share, and a chance of a few in any case."""
    chance = random.Random(options.seed)
    by_file = [mutants_of(file) for file in FILES if options.only in str(file)]
    if options.again:
        keys = {tuple(key) for key in json.loads((options.folder / "survivors.json").read_text())}
        return [mutant for mutants in by_file for mutant in mutants if mutant.key in keys]
    total = sum(map(len, by_file))
    drawn: list[Mutant] = []
    for mutants in by_file:
        share = max(_LEAST_OF_A_FILE, round(options.sample * len(mutants) / total))
        drawn += chance.sample(mutants, min(len(mutants), share))
    return chance.sample(drawn, min(len(drawn), options.sample))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="mutations", description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=300, help="how many mutants (300)")
    parser.add_argument("--seed", type=int, default=1, help="what draws them (1)")
    parser.add_argument("--only", default="", help="a part of a file's path: mutants of these files alone")
    parser.add_argument("--again", action="store_true", help="the survivors of the last time, instead of a sample")
    parser.add_argument(
        "--budget", type=float, default=5.0, help="seconds of tests for one mutant, without its changes (5)"
    )
    parser.add_argument(
        "--tests", nargs="*", default=TESTS, help="paths below tests/ that judge (those that see the engine)"
    )
    parser.add_argument("--folder", type=Path, default=PROJECT / "build" / "mutations", help="where notes are kept")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    plugin = _Session(options)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell runs this in the background
    tests = [str(PROJECT / "tests" / test) for test in options.tests]
    with tempfile.TemporaryDirectory() as folder:
        words = ["-o", "addopts=--strict-markers", "-p", "no:cacheprovider", "-p", "no:terminal"]
        words += ["-W", "ignore:Module already imported", "--basetemp"]  # Treadle, which has a plugin for pytest
        pytest.main([*tests, *words, f"{folder}/tests"], plugins=[plugin])
    return plugin.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
