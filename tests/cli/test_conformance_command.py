"""`treadle conformance`: a loop against the suite, from the shell."""

import json
import sys
from pathlib import Path

from treadle.conformance import SCENARIOS

LOOPS = Path(__file__).parent.parent / "conformance"


def test_the_list_has_a_scenario_a_line(treadle):
    listed = treadle("conformance", "--list")

    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [one.id for one in SCENARIOS]


def test_a_loop_that_fails_a_scenario_is_told_why_and_the_exit_code_says_so(treadle, tmp_path):
    program = f"{sys.executable} {LOOPS / 'program.py'}"
    names = ("arguments/cut-off", "parallel/three")

    ran = treadle(
        "conformance", *names, "--command", program, "--offers", "chat", "--json", str(tmp_path / "found.json")
    )

    assert ran.returncode == 1
    assert "x---  cut-off" in ran.stdout.replace("x--   ", "x---  ")
    assert "chat: The call call_1 got 0 results; it needs one." in ran.stdout
    found = json.loads((tmp_path / "found.json").read_bytes())
    assert [one["outcome"] for one in found["verdicts"] if one["dialect"] == "chat"] == ["fails", "holds"]
    assert found["verdicts"][0]["evidence"]["requests"]


def test_what_cannot_be_run_is_refused_with_what_to_do(treadle):
    for options, words in (
        (["nonsense"], "There is no group or scenario 'nonsense'"),
        (["--command", "loop"], "--command needs --offers"),
        (["--command", "loop", "--subject", "loop:adapter"], "give --subject or --command, not both"),
        (["--json", "/no/such/folder/found.json"], "cannot be written"),
    ):
        refused = treadle("conformance", *options)

        assert refused.returncode == 2
        assert words in refused.stderr
