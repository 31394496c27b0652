"""The suite: what it runs, what it says about a loop, and where it finds the loop."""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from house import PROJECT
from treadle import ConfigurationError
from treadle.conformance import (
    GROUPS,
    SCENARIOS,
    AdapterSubject,
    CommandSubject,
    run_suite,
    scenarios_of,
)

HERE = Path(__file__).parent
OWN = "treadle.conformance.own:adapter"
PROGRAM = f"{sys.executable} {HERE / 'program.py'}"


def subject(adapter: str) -> AdapterSubject:
    return AdapterSubject(adapter, folder=HERE)


def outcomes(report):
    return {(one.scenario, one.dialect): (one.outcome, one.faults) for one in report.verdicts}


def faults(report):
    return {(one.scenario, one.dialect): one.faults for one in report.verdicts if one.outcome != "holds"}


async def test_treadle_passes_every_scenario():
    """Each in one dialect here, in turn; `make soak` runs each in all."""
    turns = [
        msgspec.structs.replace(one, dialects=(one.dialects[number % len(one.dialects)],))
        for number, one in enumerate(SCENARIOS)
    ]

    report = await run_suite(AdapterSubject(OWN), turns)

    assert faults(report) == {}
    assert len(report.verdicts) == len(SCENARIOS)


@pytest.mark.soak
@pytest.mark.parametrize("time", range(10))
async def test_treadle_passes_every_scenario_in_all_dialects_each_time(time):
    assert faults(await run_suite(AdapterSubject(OWN), SCENARIOS)) == {}


async def test_repeated_runs_give_the_same_verdicts():
    scenarios = scenarios_of(["identity"])
    first = await run_suite(subject("odd_loops:by_arrival"), scenarios, dialects=["chat"])
    second = await run_suite(subject("odd_loops:by_arrival"), scenarios, dialects=["chat"], side_by_side=2)

    assert outcomes(first) == outcomes(second)
    assert first.count("fails") == 2


async def test_a_program_in_any_language_finds_its_job_in_a_file_and_the_tools_over_http():
    report = await run_suite(
        CommandSubject(PROGRAM, offers=frozenset({"chat"})), scenarios_of(["parallel/three", "arguments/cut-off"])
    )

    found = outcomes(report)
    assert found["parallel/three", "chat"] == ("holds", ())
    assert found["arguments/cut-off", "chat"][0] == "fails"
    assert found["parallel/three", "gemini"][0] == "not offered"


async def test_a_loop_that_tells_results_as_texts_is_judged_by_the_texts():
    scenarios = scenarios_of(["arguments", "schemas", "contents", "parallel", "timeouts"])
    right = await run_suite(subject("bare_loop:texting"), scenarios, dialects=["chat"])
    silent = await run_suite(subject("odd_loops:silent"), scenarios_of(["arguments/cut-off"]), dialects=["chat"])

    assert [one.scenario for one in right.verdicts if one.outcome == "fails"] == []
    assert right.count("holds") > 50
    assert "The call call_1 got 0 results; it needs one." in faults(silent)["arguments/cut-off", "chat"]


async def test_what_does_not_fit_the_form_of_a_loop_is_not_offered():
    scenarios = scenarios_of(["histories/after-cancel", "parallel/three"])
    report = await run_suite(subject("bare_loop:texting"), scenarios, dialects=["chat"])

    assert {(one.outcome, one.missing) for one in report.verdicts} == {
        ("not offered", ("histories",)),
        ("not offered", ("parallel/three",)),
    }


async def test_what_was_judged_can_be_opened():
    report = await run_suite(subject("bare_loop:right"), scenarios_of(["parallel/three"]), dialects=["chat"])

    evidence = report.verdicts[0].evidence
    assert [one["status"] for one in evidence["requests"]] == [200, 200]
    assert [(one["tool"], one["is_done"]) for one in evidence["executions"]] == [
        ("look", True),
        ("pay", True),
        ("look", True),
    ]
    assert evidence["exits"][0]["answer"] == "Done."
    json.dumps(evidence)


async def test_a_loop_that_never_ends_is_ended_and_fails():
    report = await run_suite(
        subject("odd_loops:hangs"), scenarios_of(["contents/answer-exact"]), dialects=["chat"], seconds=0.3
    )

    assert report.verdicts[0].faults[0] == "Process 1 of the subject did not end by itself."


async def test_a_loop_that_no_fork_survives_gets_a_new_process_for_each_job():
    report = await run_suite(subject("odd_loops:unforked"), scenarios_of(["parallel/three"]), dialects=["chat"])

    assert faults(report) == {}


@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        ("odd_loops:missing", "has no attribute 'missing'"),
        ("no_such_module:adapter", "No module named 'no_such_module'"),
        ("odd_loops", "module:function"),
    ],
)
async def test_an_adapter_that_cannot_be_loaded_is_named(adapter, words):
    with pytest.raises(ConfigurationError, match=words):
        await run_suite(subject(adapter), SCENARIOS[:1])


async def test_a_program_that_cannot_be_started_is_named():
    with pytest.raises(ConfigurationError, match="/no/such/program"):
        await run_suite(CommandSubject("/no/such/program", offers=frozenset({"chat"})), SCENARIOS[:1])


def test_a_group_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(
        ConfigurationError, match=r"There is no group or scenario 'stream'\. The groups are arguments, "
    ):
        scenarios_of(["stream"])


def test_each_scenario_says_what_fails_what_is_right_and_where_that_is_known_from():
    assert len({one.id for one in SCENARIOS}) == len(SCENARIOS) >= 80
    assert len(GROUPS) == 12
    for one in SCENARIOS:
        assert re.fullmatch("[a-z]+/[a-z0-9-]+", one.id)
        assert one.failure.endswith(".")
        assert one.promise.endswith(".")
        assert one.source
        assert one.right


def test_the_page_has_the_groups_and_how_many_scenarios_they_have():
    page = (PROJECT / "docs" / "know" / "conformance.md").read_text()

    told = {name: int(count) for name, count in re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE)}
    assert told == {name: len(scenarios_of([name])) for name in GROUPS}
    assert f"which of {len(SCENARIOS)} scenarios" in page


def test_pytest_runs_the_scenarios_as_tests(tmp_path):
    options = ["-p", "no:treadle_conformance", "-p", "treadle.conformance.pytest_plugin", "-p", "no:cacheprovider"]
    names = ["--treadle-conformance", "odd_loops:without_texts"]
    only = ["--treadle-conformance-only", "histories/text-with-call", "--treadle-conformance-only", "histories/grows"]

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "--rootdir", str(tmp_path), *options, *names, *only, str(tmp_path)],
        cwd=HERE,
        capture_output=True,
        text=True,
    )

    assert "1 failed, 1 passed, 6 skipped" in ran.stdout
    assert "The next request has the text, before the call." in ran.stdout
    assert "not offered: gemini" in ran.stdout
