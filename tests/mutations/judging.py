"""Judging: runs the tests that reach a mutant in a fork of this warm process. Chooses no mutant."""

import contextlib
import logging
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import NoReturn

import pytest

from mutations.mutants import Mutant, Unfit, apply
from mutations.reach import Reach, run_test
from simulator.life import live

__all__ = ["Judge", "Verdict", "within"]

_PASSED, _FAILED, _UNFIT = 10, 11, 12
_NO_TEST = 2**31
_TOLD = struct.Struct("<BI")
_LIVES = 60
"""Simulated lives that a mutant must pass after the tests."""
_MORE = 6
"""How many budgets of further tests one that has passed the first tests must pass."""


class Verdict(StrEnum):
    KILLED = "killed"
    """A test failed."""
    HUNG = "hung"
    """The tests took many times as long as without the mutation: the tool for hangs would have ended them."""
    SURVIVED = "survived"
    UNFIT = "unfit"
    """It cannot be tried; another mutant takes its place."""
    UNSURE = "unsure"
    """The tests fail, or take as long, without it too: the machine is busy, and nothing is known of it."""


class Judge:
    """Tries mutants one at a time.

    Args:
        budget_seconds: Tests of one mutant, in seconds that they take without it. Quick ones come first. One that passes them
            is tried by more.
    """

    def __init__(self, items: Mapping[str, pytest.Item], reach: Reach, *, budget_seconds: float) -> None:
        self._items = items
        self._reach = reach
        self._budget = budget_seconds

    def judge(self, mutant: Mutant) -> tuple[Verdict, str]:
        """Return what became of a mutant, and which tests say so."""
        known = [test for test in self._reach.tests_of(mutant.path, mutant.lines) if test in self._items]
        first = within(known, self._budget, self._reach.seconds)
        others = [test for test in known if test not in set(first)]
        more = within(others, self._budget * _MORE, self._reach.seconds)
        for tests in (first, more) if more else (first,):
            verdict = self._tried(mutant, [self._items[test] for test in tests], self._limit(tests))
            if verdict is not Verdict.SURVIVED:
                return verdict, ""
        return Verdict.SURVIVED, f"{len(first) + len(more)} of {len(known)} tests"  # none: no test executes the code

    def _limit(self, tests: Sequence[str]) -> float:
        return 30 + 8 * sum(self._reach.seconds[test] for test in tests)

    def _tried(self, mutant: Mutant, tests: Sequence[pytest.Item], limit: float) -> Verdict:
        """Return what a mutant's tests say; what they say without it too is not about the mutant."""
        match _in_a_fork(partial(_try, mutant, tests), limit):
            case None:
                began = time.monotonic()
                is_quick = _in_a_fork(partial(_run, tests), limit / 2) is not None
                return Verdict.HUNG if is_quick and time.monotonic() - began < limit / 2 else Verdict.UNSURE
            case (code, _) if code == _UNFIT:
                return Verdict.UNFIT
            case (code, _) if code == _PASSED:
                return Verdict.SURVIVED
            case (_, number) if number < len(tests):
                passes = _in_a_fork(partial(_run, tests[number : number + 1]), limit)
                return Verdict.KILLED if passes is not None and passes[0] == _PASSED else Verdict.UNSURE
            case _:
                return Verdict.KILLED  # a simulated life, which the machine's load does not change, or the process died


def within(tests: Sequence[str], seconds: float, takes: Mapping[str, float]) -> list[str]:
    """Return the first tests that take so long together, and one in any case. A slow one keeps no quick one away."""
    chosen: list[str] = []
    for test in tests:
        if takes[test] <= seconds:
            chosen.append(test)
            seconds -= takes[test]
    return chosen or list(tests[:1])


def _try(mutant: Mutant, tests: Sequence[pytest.Item]) -> tuple[int, int]:
    try:
        apply(mutant)
    except Unfit:
        return _UNFIT, 0
    code, number = _run(tests)
    if code == _PASSED:
        logging.disable(logging.CRITICAL)
        code = _FAILED if any(live(seed).violations for seed in range(_LIVES)) else _PASSED
    return code, number


def _run(tests: Sequence[pytest.Item]) -> tuple[int, int]:
    """Run tests until one fails. Return whether they passed, and the number of the one that did not, or how many there are."""
    for number, test in enumerate(tests):
        if not run_test(test, tests[number + 1] if number + 1 < len(tests) else None):
            return _FAILED, number
    return _PASSED, len(tests)


def _in_a_fork(work: Callable[[], tuple[int, int]], limit_seconds: float) -> tuple[int, int] | None:
    """Return what `work` returned in a child process; None when it took too long. One that died has failed no test by name."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _work(work, writing)
    os.close(writing)
    readable, _, _ = select.select([reading], [], [], limit_seconds)
    told = os.read(reading, _TOLD.size) if readable else None
    os.close(reading)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # whatever its tests had started too
    os.waitpid(child, 0)
    if told is None:
        return None
    code, number = _TOLD.unpack(told) if told else (_FAILED, _NO_TEST)
    return code, number


def _work(work: Callable[[], tuple[int, int]], told: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        os.write(told, _TOLD.pack(*work()))
    finally:
        os._exit(0)
