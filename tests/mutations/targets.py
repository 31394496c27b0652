"""Targets: the files that are mutated and the tests that judge them. A list; does nothing."""

from pathlib import Path

__all__ = ["FILES", "PROJECT", "TESTS"]

PROJECT = Path(__file__).resolve().parent.parent.parent
_PACKAGE = PROJECT / "src" / "treadle"

_FOLDERS = "engine/**/ sessions/ permissions/ validation/"

FILES = (
    *(path for folder in _FOLDERS.split() for path in sorted(_PACKAGE.glob(f"{folder}[a-z]*.py"))),
    _PACKAGE / "agents" / "run.py",
    *sorted((_PACKAGE / "state").glob("[a-z]*.py")),
)
"""The engine, sessions, permissions and validation."""

_JUDGES = """
validation tooling test_state.py test_budgets.py engine agents permissions sessions drivers context
durability/test_recovery.py durability/test_cancelling.py durability/test_cancelling_anywhere.py
durability/test_changed_records.py durability/test_durable_commits.py providers/test_endings.py providers/test_repetitions.py
providers/test_known.py testing
hooks otel journals/test_degrading.py workers/test_workers.py workers/test_worker_limits.py face/test_wrong_values.py shell/test_command_rules.py
toolsets/test_toolsets.py toolsets/test_todos.py toolsets/test_operations.py toolsets/test_reshaped.py
"""

TESTS = tuple(_JUDGES.split())
"""Tests that run in one process: a mutation lives in memory, and a test that starts another process sees none of it."""
