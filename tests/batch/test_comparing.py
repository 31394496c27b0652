"""Two batches compared: rates with intervals, paired differences, pass^k and cost."""

from collections.abc import Sequence

import pytest

from treadle import ConfigurationError
from treadle.batch import BatchRow, compare


def _rows(passed: Sequence[Sequence[bool]], cost: str = "0.5") -> list[BatchRow]:
    return [
        BatchRow(id=f"q{n}", repeat=r, task="x", status="completed", passed=one, score=float(one), cost=cost, seconds=2)
        for n, repeats in enumerate(passed)
        for r, one in enumerate(repeats, 1)
    ]


def test_single_runs_are_compared_with_wilsons_interval_and_mcnemars_exact_test() -> None:
    before = _rows([[n < 50] for n in range(100)])
    after = _rows([[n < 60] for n in range(100)], cost="0.25")

    found = compare(before, after)

    assert (found.before.rate, found.after.rate, found.pairs) == (0.5, 0.6, 100)
    assert found.difference == pytest.approx(0.1)
    assert (found.before.low, found.before.high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))
    assert found.p == pytest.approx(2 * 0.5**10)
    assert 0 < found.low < 0.1 < found.high < 0.2
    assert (found.gained, found.lost) == (tuple(f"q{n}" for n in range(50, 60)), ())
    assert (found.before.cost, found.after.cost_a_task) == (50, 0.25)


def test_repeated_tasks_count_as_one_each_and_have_pass_hat_k() -> None:
    before = _rows([[True, True, False], [True, False, False], [False] * 3])
    after = _rows([[True] * 3, [True, True, False], [True, False, False]])

    found = compare(before, after)

    assert found.before.rate == pytest.approx(1 / 3)
    assert found.before.pass_hat == {1: pytest.approx(1 / 3), 2: pytest.approx(1 / 9), 3: 0.0}
    assert found.after.pass_hat[3] == pytest.approx(1 / 3)
    assert found.p == pytest.approx(0.25)
    assert compare(before, after) == found


def test_tasks_that_share_an_id_and_have_another_text_are_named() -> None:
    before = [BatchRow(id=name, task=f"Say {name}", status="completed") for name in "123"]
    after = [
        BatchRow(id=name, task=text, status="completed") for name, text in (("1", "Say 1"), ("2", "Sing"), ("4", ""))
    ]

    found = compare(before, after)

    assert found.reworded == ("2",)
    assert str(found).endswith("other text     1: 2")


def test_equal_batches_differ_by_nothing() -> None:
    rows = _rows([[True], [False]])

    found = compare(rows, rows)

    assert (found.difference, found.low, found.high, found.p, found.gained, found.lost) == (0, 0, 0, 1, (), ())


def test_without_scores_a_run_that_has_completed_has_passed() -> None:
    def rows(status: str) -> list[BatchRow]:
        return [BatchRow(id="q", task="x", status=status)]

    assert compare(rows("failed"), rows("completed")).difference == 1


def test_only_tasks_that_both_have_are_compared() -> None:
    with pytest.raises(ConfigurationError, match="have no task in common"):
        compare(_rows([[True]]), [])

    found = compare(_rows([[True], [True], [False]]), _rows([[True], [False]]))
    assert (found.pairs, found.difference, found.lost) == (2, -0.5, ("q1",))


def test_a_comparison_reads_as_a_table() -> None:
    found = compare(_rows([[True, False], [False, False]]), _rows([[True, True], [True, False]]))

    assert str(found).splitlines() == [
        "               before                     after",
        "tasks          2 (4 rows)                 2 (4 rows)",
        "passed         25.0% (0.0% to 50.0%)      75.0% (50.0% to 100.0%)",
        "pass^2         0.0%                       50.0%",
        "cost           $2.00                      $2.00",
        "cost a task    $0.5000                    $0.5000",
        "seconds a task 2.0                        2.0",
        "",
        "difference     +50.0 points (+50.0 to +50.0), p = 0.5, over 2 tasks that both have",
        "better         2: q0, q1",
        "worse          0",
    ]
