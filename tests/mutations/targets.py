"""Targets: the files that are mutated and the tests that judge them. A list; does nothing."""

from pathlib import Path

__all__ = ["FILES", "PROJECT", "TESTS"]

PROJECT = Path(__file__).resolve().parent.parent.parent
_PACKAGE = PROJECT / "src" / "treadle"

_ENGINE = (
    "execution planning checking attempts contract calling early proposal loop run recovery keeping settling session "
    "inbox state ledger history runtime/permission runtime/tries"
)

FILES = (
    *(_PACKAGE / f"{name}.py" for name in _ENGINE.split()),
    *sorted(_PACKAGE.glob("runtime/validation/[a-z]*.py")),
)
"""The engine, sessions, permissions and validation."""

_JUDGES = """
test_validation.py test_references.py test_schemas.py test_state.py test_budgets.py pipeline loop sessions drivers context
durability/test_recovery.py durability/test_cancelling.py durability/test_cancelling_anywhere.py
durability/test_changed_records.py durability/test_durable_commits.py providers/test_endings.py providers/test_repetitions.py
"""

TESTS = tuple(_JUDGES.split())
"""Tests that run in one process: a mutation lives in memory, and a test that starts another process sees none of it."""
