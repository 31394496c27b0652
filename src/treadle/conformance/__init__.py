"""Conformance: a suite that any tool loop can be held against, judged by the wire, by side effects and by exits alone."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.conformance.groups import GROUPS as GROUPS
    from treadle.conformance.groups import SCENARIOS as SCENARIOS
    from treadle.conformance.groups import scenarios_of as scenarios_of
    from treadle.conformance.scenario import DIALECTS as DIALECTS
    from treadle.conformance.scenario import Scenario as Scenario
    from treadle.conformance.subjects import About as About
    from treadle.conformance.subjects import AdapterSubject as AdapterSubject
    from treadle.conformance.subjects import CommandSubject as CommandSubject
    from treadle.conformance.subjects import Subject as Subject
    from treadle.conformance.suite import Report as Report
    from treadle.conformance.suite import Verdict as Verdict
    from treadle.conformance.suite import run_suite as run_suite

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "groups": "GROUPS SCENARIOS scenarios_of",
        "scenario": "DIALECTS Scenario",
        "subjects": "About AdapterSubject CommandSubject Subject",
        "suite": "Report Verdict run_suite",
    },
)
