"""How it is judged what workers did that were killed, stopped and cut off: `make soak` runs them, by `benchmarks/workers.py`."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.row("N19")
def test_what_a_scenario_counts_as_done_twice_lost_or_done_after_fencing() -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from fleet.member import Act
        from fleet.verdict import after_fencing, judge
    finally:
        sys.path.remove(str(BENCHMARKS))
    one, two = Act(1.0, "w1", "unsafe", "s"), Act(3.0, "w2", "unsafe", "s")
    assert judge([one, two], [])["duplicated"] == 1
    assert judge([Act(1.0, "w1", "keyed", "s", "a"), Act(2.0, "w2", "keyed", "s", "b")], [])["duplicated"] == 1
    assert judge([one], [])["completed"] == 0
    assert after_fencing([one, two], [2.0], {}) == []
    assert after_fencing([one, two], [], {}) == [two]
    zombie = Act(4.0, "w1", "keyed", "s", "k")
    assert after_fencing([one, two, zombie], [2.0], {}) == [zombie]
    assert after_fencing([one, two, zombie], [2.0, 3.5], {}) == []
    assert after_fencing([one, two, zombie], [2.0], {"k": 2.5}) == [zombie]
    assert after_fencing([one, two, zombie], [2.0], {"k": 1.5}) == []  # under way when its worker was suspended
