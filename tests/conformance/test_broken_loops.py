"""The suite is tested by loops: a bare one that is right, and copies of it with one bug each."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from broken_loops import BUGS

from treadle.conformance import SCENARIOS, AdapterSubject, Scenario, run_suite, scenarios_of

HERE = Path(__file__).parent
NAMES = sorted(BUGS)


async def faults(adapter: str, scenarios: tuple[Scenario, ...]) -> dict[str, tuple[str, ...]]:
    report = await run_suite(AdapterSubject(adapter, folder=HERE), scenarios, dialects=["chat"])
    return {one.scenario: one.faults or one.missing for one in report.verdicts if one.outcome != "holds"}


async def failed(chosen: Callable[[str, Scenario], bool]) -> dict[str, set[str]]:
    """Return the scenarios that each loop with a bug fails, of those that were chosen for it. One host runs all loops."""
    pairs = [(name, one) for name in NAMES for one in SCENARIOS if "chat" in one.dialects and chosen(name, one)]
    named = [msgspec.structs.replace(one, options={**one.options, "model": name}) for name, one in pairs]
    report = await run_suite(AdapterSubject("broken_loops:adapter", folder=HERE), named, dialects=["chat"])
    found: dict[str, set[str]] = {name: set() for name in NAMES}
    for (name, scenario), verdict in zip(pairs, report.verdicts, strict=True):
        if verdict.outcome == "fails":
            found[name].add(scenario.id)
    return found


@pytest.mark.soak
async def test_a_bare_loop_that_is_right_passes_all_that_it_offers():
    elsewhere = ("handover", "responses")

    assert await faults("bare_loop:right", SCENARIOS) == {
        "histories/other-vendor": elsewhere,
        "histories/reasoning-elsewhere": elsewhere,
    }


async def test_a_loop_that_gives_calls_ids_of_its_own_is_right_too():
    assert await faults("bare_loop:renaming", scenarios_of(["parallel", "identity"])) == {}


def test_more_than_twenty_bugs_are_known():
    assert len(BUGS) > 20
    assert set().union(*BUGS.values()) <= {one.id for one in SCENARIOS}


async def test_a_loop_with_a_bug_fails_scenarios_of_its_bug_and_no_others():
    """Each plays two of its bug and two others; `make soak` plays all."""
    of_its_bug = {name: set(sorted(BUGS[name])[:2]) for name in NAMES}

    def is_chosen(name: str, scenario: Scenario) -> bool:
        is_other = SCENARIOS.index(scenario) // 2 == NAMES.index(name) and scenario.id not in BUGS[name]
        return is_other or scenario.id in of_its_bug[name]

    assert await failed(is_chosen) == of_its_bug


@pytest.mark.soak
async def test_a_loop_with_a_bug_fails_no_other_scenario_of_all():
    assert await failed(lambda name, scenario: True) == BUGS
