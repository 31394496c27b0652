"""The suite: what it runs, and what it says about a loop."""

from treadle.conformance import SCENARIOS, AdapterSubject, run_suite


async def test_treadle_carries_out_what_it_offers():
    report = await run_suite(AdapterSubject("treadle.conformance.own:adapter"), SCENARIOS, dialects=["chat"])

    assert {one.scenario: one.faults for one in report.verdicts if one.outcome == "fails"} == {}
    assert report.count("not offered") <= 1
