"""For pytest: `pytest --treadle-conformance my_loop:adapter` runs the suite against a loop, a test a scenario and dialect.

pytest loads this file whenever Treadle is installed, so nothing heavy is imported before the option is given.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from treadle.conformance import Scenario, Verdict

__all__ = ["ConformanceItem", "pytest_addoption", "pytest_collection_modifyitems"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    group = parser.getgroup("treadle-conformance", "Treadle's conformance suite")
    group.addoption("--treadle-conformance", metavar="MODULE:ADAPTER", help="hold this loop against the suite")
    group.addoption(
        "--treadle-conformance-only",
        metavar="GROUP",
        action="append",
        default=[],
        help="only this group or scenario; repeatable",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each scenario and dialect, if a loop was named."""
    adapter = config.getoption("--treadle-conformance")
    if adapter is None:
        return
    from treadle.conformance import scenarios_of  # noqa: PLC0415 - only if it is asked for
    from treadle.errors import ConfigurationError  # noqa: PLC0415 - as above

    try:
        scenarios = scenarios_of(config.getoption("--treadle-conformance-only"))
    except ConfigurationError as exc:
        raise pytest.UsageError(str(exc)) from exc
    verdicts = _Verdicts(adapter)
    for scenario in scenarios:
        for dialect in scenario.dialects:
            name = f"conformance[{scenario.id}-{dialect}]"
            item = ConformanceItem.from_parent(
                session, name=name, scenario=scenario, dialect=dialect, verdicts=verdicts
            )
            items.append(item)


class _Verdicts:
    """The verdicts of one loop. A group runs when the first of its tests is reached, its scenarios side by side."""

    def __init__(self, adapter: str) -> None:
        self._adapter = adapter
        self._found: dict[tuple[str, str], Verdict] = {}

    def of(self, scenario: "Scenario", dialect: str) -> "Verdict":
        if (scenario.id, dialect) not in self._found:
            from treadle.conformance import AdapterSubject, run_suite, scenarios_of  # noqa: PLC0415 - as above

            report = asyncio.run(run_suite(AdapterSubject(self._adapter), scenarios_of([scenario.group])))
            self._found |= {(one.scenario, one.dialect): one for one in report.verdicts}
        return self._found[scenario.id, dialect]


class _Failed(Exception):
    """The loop failed a scenario."""


class ConformanceItem(pytest.Item):
    """One scenario in one dialect."""

    def __init__(self, *, scenario: "Scenario", dialect: str, verdicts: _Verdicts, **about: Any) -> None:
        super().__init__(**about)
        self._scenario = scenario
        self._dialect = dialect
        self._verdicts = verdicts

    def runtest(self) -> None:
        verdict = self._verdicts.of(self._scenario, self._dialect)
        if verdict.outcome == "not offered":
            pytest.skip(f"not offered: {', '.join(verdict.missing)}")
        if verdict.outcome == "fails":
            raise _Failed("\n".join(verdict.faults))

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if not isinstance(excinfo.value, _Failed):
            return super().repr_failure(excinfo, style)
        about = self._scenario
        return f"{about.failure}\nA right loop: {about.promise}\nThis loop: {excinfo.value}\nSource: {about.source}"

    def reportinfo(self) -> tuple[str, None, str]:
        return self.path, None, self.name  # type: ignore[return-value]  # pytest takes a path or a text
