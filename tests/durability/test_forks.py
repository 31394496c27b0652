"""A fork of a process that has run agents runs agents too, beside its parent. With real forks."""

import subprocess
import sys
from pathlib import Path

import pytest

FORKING = Path(__file__).parent / "forking.py"


@pytest.mark.row("N12")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_forks_of_a_process_that_has_run_agents_run_agents(request: pytest.FixtureRequest, tmp_path: Path, store: str):
    journal = str(tmp_path / "agent.db") if store == "sqlite" else request.getfixturevalue("postgres_url")

    said = subprocess.run(
        [sys.executable, str(FORKING), journal], capture_output=True, text=True, timeout=100, check=False
    )

    assert said.stderr == ""
    assert said.stdout.splitlines() == ["children [0, 0, 0] 0", "sessions 6"]
