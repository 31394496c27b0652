"""The tool that changes the code: what it changes, what it leaves alone, and that a change takes effect."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from mutations.equivalents import equivalents
from mutations.judging import within
from mutations.mutants import Unfit, apply, mutants_of
from mutations.targets import FILES, PROJECT

CODE = '''
def is_enough(count, least=3):
    """Tell whether it is enough."""
    assert count >= 0
    if count >= least:
        return True
    return False


class Purse:
    def __init__(self):
        self.amount = 40

    def pay(self, amount):
        def left():
            return self.amount - amount

        self.amount = left()
        return dict(left=self.amount)
'''


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "purse.py"
    path.write_text(CODE)
    spec = importlib.util.spec_from_file_location("purse", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def changed(module: ModuleType, before: str, after: str) -> None:
    mutants = mutants_of(Path(str(module.__file__)))
    apply(next(one for one in mutants if (one.before, one.after) == (before, after)))


def test_comparisons_constants_returns_and_statements_are_changed_and_known_facts_are_not(module: ModuleType) -> None:
    found = {(one.before, one.after) for one in mutants_of(Path(str(module.__file__)))}

    assert found == {
        ("count >= least", "count > least"),
        ("return True", "return None"),
        ("True", "False"),
        ("False", "True"),
        ("self.amount = 40", "pass"),
        ("40", "41"),
        ("return self.amount - amount", "return None"),
        ("self.amount - amount", "self.amount + amount"),
        ("self.amount = left()", "pass"),
        ("return dict(left=self.amount)", "return None"),
        ("dict(..., left=self.amount)", "dict(...)"),
    }


@pytest.mark.parametrize(
    ("before", "after", "use", "value"),
    [
        ("count >= least", "count > least", lambda module: module.is_enough(3), False),
        ("self.amount - amount", "self.amount + amount", lambda module: module.Purse().pay(2), {"left": 42}),
    ],
)
def test_a_change_takes_effect_in_functions_that_others_hold_already(
    module: ModuleType, before: str, after: str, use: Callable[[ModuleType], object], value: object
) -> None:
    changed(module, before, after)

    assert use(module) == value


def test_a_change_of_code_that_nobody_holds_is_unfit(tmp_path: Path) -> None:
    path = tmp_path / "never_imported.py"
    path.write_text(CODE)

    with pytest.raises(Unfit, match="is_enough"):
        apply(mutants_of(path)[0])


def test_a_slow_test_does_not_keep_the_quick_ones_behind_it_from_judging() -> None:
    takes = {"quick": 1.0, "slow": 50.0, "other": 2.0, "third": 2.5}

    assert within(["quick", "slow", "other", "third"], 5.0, takes) == ["quick", "other"]
    assert within(["slow", "quick"], 5.0, takes) == ["quick"]
    assert within(["slow"], 5.0, takes) == ["slow"]
    assert within([], 5.0, takes) == []


def test_every_listed_equivalent_is_still_a_change_of_the_code_and_has_a_reason() -> None:
    """An entry whose code has changed excuses nothing: it is removed, or judged anew."""
    possible = {mutant.key for path in FILES for mutant in mutants_of(path)}

    assert [key for key, reason in equivalents().items() if key not in possible or len(reason) < 20] == []


def test_the_tool_finds_what_a_test_notices_and_what_none_does(tmp_path: Path) -> None:
    options = f"--only sessions/inbox.py --sample 3 --tests sessions/test_inbox.py --folder {tmp_path}"
    done = subprocess.run(
        [sys.executable, "-m", "mutations", *options.split()],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "tests")},
        capture_output=True,
        text=True,
    )

    assert "3 mutants" in done.stdout, done.stdout + done.stderr
    assert "killed" in done.stdout
