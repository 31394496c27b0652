"""`treadle conformance`: a tool loop against the suite, a line a scenario, and the evidence in a file."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.cli.exits import UsageError
from treadle.cli.input.commands import ConformanceOptions
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import one_line
from treadle.conformance import (
    DIALECTS,
    GROUPS,
    AdapterSubject,
    CommandSubject,
    Report,
    Scenario,
    Subject,
    Verdict,
    run_suite,
    scenarios_of,
)

__all__ = ["conformance"]

_OWN = "treadle.conformance.own:adapter"
_SIGNS = {"holds": "+", "fails": "x", "not offered": "-"}


async def conformance(options: ConformanceOptions, terminal: Terminal) -> int:
    """List the scenarios, or run them. The exit code is 1 if one fails."""
    scenarios = scenarios_of(options.names)
    if options.is_listed:
        _list(scenarios, terminal)
        return 0
    subject = _subject(options)
    file = None if options.file in (None, "-") else Path(str(options.file))
    if file is not None:
        _write(file, b"")  # what cannot be written is told before the suite runs
    report = await run_suite(
        subject, scenarios, dialects=options.dialects or DIALECTS, side_by_side=options.side_by_side
    )
    if options.file == "-":
        terminal.data(report)
    else:
        _show(report, scenarios, terminal)
    if file is not None:
        _write(file, msgspec.json.format(msgspec.json.encode(report)))
        terminal.say(f"The evidence is in {file}.")
    return 1 if report.count("fails") else 0


def _subject(options: ConformanceOptions) -> Subject:
    if options.subject is not None and options.program is not None:
        raise UsageError("A loop is an adapter or a program: give --subject or --command, not both.")
    offers = None if options.offers is None else frozenset(filter(None, options.offers.replace(",", " ").split()))
    if options.program is None:
        return AdapterSubject(options.subject or _OWN, python=options.python, offers=offers)
    if offers is None:
        raise UsageError("--command needs --offers, such as --offers chat,stream,max_steps.")
    return CommandSubject(options.program, offers=offers)


def _list(scenarios: Sequence[Scenario], terminal: Terminal) -> None:
    width = max(len(one.id) for one in scenarios)
    for one in scenarios:
        terminal.line(f"{one.id:<{width}}  {one.severity:<5}  {one.failure}")


def _show(report: Report, scenarios: Sequence[Scenario], terminal: Terminal) -> None:
    """Show a line a scenario, with a sign for each dialect, and below it what was wrong."""
    verdicts: dict[str, list[Verdict]] = {}
    for verdict in report.verdicts:
        verdicts.setdefault(verdict.scenario, []).append(verdict)
    group = ""
    for scenario in scenarios:
        if scenario.id not in verdicts:
            continue
        if scenario.group != group:
            group = scenario.group
            terminal.line(f"{group}: {GROUPS[group]}")
        marks = {one.dialect: _SIGNS[one.outcome] for one in verdicts[scenario.id]}
        signs = "".join(marks.get(dialect, " ") for dialect in DIALECTS)
        terminal.line(f"  {signs}  {scenario.id.partition('/')[2]:<24} {scenario.failure}")
        for verdict in verdicts[scenario.id]:
            for fault in verdict.faults:
                terminal.line(f"        {verdict.dialect}: {one_line(fault, 300)}")
    holds, fails, missing = (report.count(outcome) for outcome in ("holds", "fails", "not offered"))
    name = " ".join(filter(None, (report.subject.name, report.subject.version)))
    terminal.line(f"{name}: {holds} hold, {fails} fail, {missing} not offered (+ x -), in {', '.join(DIALECTS)}")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as exc:
        raise UsageError(f"{str(path)!r:.200} cannot be written: {exc.strerror}. Name another file.") from exc
