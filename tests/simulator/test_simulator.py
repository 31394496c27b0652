"""The simulator in the suite: a thousand lives (`make soak` has a million), exact replays, and bugs that it must find."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from simulator.bugs import BUGS, TREADLE, Bug, hunt
from simulator.plan import PAIRS

LIVES = 500
MORE = 100
"""Lives that are about a pair which none of the others has met."""
FOUND = (
    6004994,
    6017032,
    6027127,
    6039039,
    6550043,
    6556865,
    10220033,
    10227185,
    10091012,
    10167428,
    10686029,
    20511921,
    30059804,
    30151697,
    40008214,
    40046758,
    50000969,
    50503289,
    60005838,
    60515485,
    60528448,
    70008773,
    80518847,
    95005774,
    95009897,
    95010574,
    105018959,
    115160734,
    140040880,
    155078187,
    170077558,
    175026883,
    170369076,
    175409309,
    97082930,
)
"""Seeds beyond those of every run that broke a promise, or that were judged wrongly, at some time."""
TESTS = Path(__file__).resolve().parent.parent


def simulate(*options: str, **environment: str) -> Any:
    """Run the simulator as people do, without what measures coverage: it would make lives three times as long."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-m", "simulator", "--json", *options],
        env={**plain, "PYTHONPATH": str(TESTS), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def some_soak(values: Iterable[Any], *, every: int) -> list[Any]:
    """Mark all but every nth value: `make soak` tries them all."""
    return [pytest.param(value, marks=[] if nth % every == 0 else pytest.mark.soak) for nth, value in enumerate(values)]


@pytest.mark.row("Z06", "H22")
@pytest.mark.parametrize("number", some_soak(range(8), every=4))
def test_thousands_of_lives_break_no_promise(number: int):
    lived = simulate("--first", str(number * LIVES), "--lives", str(LIVES))

    assert lived["lives"] == LIVES
    assert [f"seed {seed}: {sentence}" for seed, sentence in lived["violations"]] == []


@pytest.mark.row("H22")
def test_lives_that_once_broke_a_promise_break_none():
    lived = simulate("--seeds", ",".join(map(str, FOUND)))

    assert (lived["lives"], lived["violations"]) == (len(FOUND), [])


@pytest.mark.soak
def test_every_fault_meets_every_feature_in_some_life():
    first = 10 * len(PAIRS)
    missing = not_met(range(len(PAIRS)), simulate("--lives", str(first)))
    if missing:  # then in others that are about this very pair
        seeds = [first + nth * len(PAIRS) + place for place in missing for nth in range(MORE)]
        missing = not_met(missing, simulate("--seeds", ",".join(map(str, seeds))))

    assert [PAIRS[place] for place in missing] == []


def not_met(places: Iterable[int], lived: Any) -> list[int]:
    """Return the places of the pairs that these lives did not meet."""
    return [place for place in places if not lived["pairs"].get(" x ".join(PAIRS[place]))]


@pytest.mark.row("H22")
def test_a_seed_replays_exactly_in_another_process_and_after_other_lives():
    whole = simulate("--lives", "60", PYTHONHASHSEED="1")
    part = simulate("--first", "40", "--lives", "20", PYTHONHASHSEED="2")

    assert len(part["digests"]) == 20
    assert {seed: whole["digests"][seed] for seed in part["digests"]} == part["digests"]


@pytest.mark.row("H22")
@pytest.mark.parametrize("number", some_soak(range(4), every=4))
def test_a_life_on_a_real_file_ends_as_it_does_in_memory(number: int):
    compared = simulate("--disk", "--first", str(number), "--step", "97", "--lives", "20")

    assert compared["lives"] >= 10  # without those with a power cut, which no file of a running machine can show
    assert compared["differences"] == []


@pytest.mark.row("H22")
@pytest.mark.parametrize("bug", some_soak(BUGS, every=4), ids=[bug.name.replace(" ", "_") for bug in BUGS])
def test_a_bug_put_in_by_hand_is_found(bug: Bug, tmp_path: Path):
    assert hunt(bug, lives=10_000, folder=tmp_path) is not None


def test_the_line_that_each_bug_changes_is_in_the_code():
    assert [bug.name for bug in BUGS if bug.good not in (TREADLE / bug.file).read_text()] == []
