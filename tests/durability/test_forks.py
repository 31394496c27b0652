"""A fork of a process that has run agents runs agents too, beside its parent. With real forks."""

import subprocess
import sys
from pathlib import Path

import pytest

FORKING = Path(__file__).parent / "forking.py"


@pytest.mark.row("N12")
@pytest.mark.parametrize("place", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True)
def test_forks_of_a_process_that_has_run_agents_run_agents(place: str):
    said = subprocess.run(
        [sys.executable, str(FORKING), place], capture_output=True, text=True, timeout=100, check=False
    )

    assert said.stderr == ""
    assert said.stdout.splitlines() == ["children [0, 0, 0] 0", "sessions 6"]


@pytest.mark.parametrize("place", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True)
def test_a_fork_uses_a_session_that_its_parent_has_opened_and_is_refused_while_the_parent_runs_it(place: str):
    script = FORKING.with_name("forked_session.py")
    said = subprocess.run(
        [sys.executable, str(script), place], capture_output=True, text=True, timeout=100, check=False
    )

    assert said.stderr == ""
    assert said.stdout.splitlines() == ["Hi. Hi. Hi. 6", "held running", "completed Paid."]
