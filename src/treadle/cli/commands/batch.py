"""`treadle batch`: run a file of tasks, each in a session of its own, with a line of progress, a table and a report."""

import asyncio
import inspect
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from treadle import Agent, Budget
from treadle.batch import (
    BatchProgress,
    BatchSummary,
    BatchTask,
    compare,
    contains,
    exact,
    read_rows,
    read_tasks,
    report_page,
    run_batch,
    sample_tasks,
    write_table,
)
from treadle.cli.exits import UsageError
from treadle.cli.input.commands import BatchOptions
from treadle.cli.input.keys import use_stored_keys
from treadle.cli.input.places import shown_journal
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import counted
from treadle.cli.running import kept_open, make_agent
from treadle.cli.signals import stopping
from treadle.cli.tool_sources import load_agent, load_function
from treadle.resolve import open_journal
from treadle.workers import Limit, list_workers

__all__ = ["batch"]

_LINE_SECONDS, _SCREEN_SECONDS = 10.0, 0.2
"""How often progress is reported, in a log and at a terminal."""
_MOST_OF_A_VENDOR = 1_000
"""Tasks at once whose requests go into a vendor's batches: so many are one batch."""


def batch(options: BatchOptions, terminal: Terminal) -> int:
    """Run the tasks of a file until each has a row."""
    terminal.hides_logs = True
    if options.is_comparison:
        return _compared(options, terminal)
    settings = settings_of(options)
    results, table = _places(options)
    for note in settings.notes:
        terminal.progress(f"note: {note}")
    with tempfile.TemporaryDirectory() as folder:
        tasks = _Tasks(options, Path(folder))
        score = _score(options, settings)
        agent = options.agent if options.has_workers else _agent(options, settings)
        return asyncio.run(_run(agent, tasks, score, results, table, options, settings, terminal))


def _compared(options: BatchOptions, terminal: Terminal) -> int:
    if len(options.files) != 2:
        raise UsageError("Name two results: treadle batch --compare before.jsonl after.jsonl")
    found = compare(*map(read_rows, options.files))
    if options.as_json:
        terminal.data(found)
    else:
        for line in str(found).splitlines():
            terminal.line(line)
    return 0


class _Tasks:
    """The tasks that were chosen: read each time, so that they need not fit into memory."""

    def __init__(self, options: BatchOptions, folder: Path) -> None:
        if len(options.files) != 1:
            raise UsageError("Name one file of tasks: treadle batch tasks.jsonl -o results.jsonl")
        self._path = Path(options.files[0])
        if options.files[0] == "-":
            self._path = folder / "standard input"
            self._path.write_bytes(sys.stdin.buffer.read())
        self._limit = options.limit
        self._sample = (
            None
            if options.sample is None
            else sample_tasks(islice(read_tasks(self._path), self._limit), options.sample)
        )
        self._count = sum(1 for _ in self)
        if not self._count:
            raise UsageError(f"There is no task in {options.files[0]}.")

    def __iter__(self) -> Iterator[BatchTask]:
        return islice(read_tasks(self._path), self._limit) if self._sample is None else iter(self._sample)

    def __len__(self) -> int:
        return self._count


def _places(options: BatchOptions) -> tuple[Path, Path | None]:
    """Return where the rows go, and the table that is made of them; None for none."""
    if options.results is None:
        raise UsageError("Name a file for the results: -o results.jsonl (or .csv, .parquet).")
    path = Path(options.results)
    if path.suffix in (".csv", ".parquet"):
        if path.suffix == ".parquet" and find_spec("pyarrow") is None:
            raise UsageError("Parquet needs pyarrow: pip install pyarrow. Or name a file that ends with .csv.")
        return path.with_suffix(".jsonl"), path
    if path.suffix != ".jsonl":
        raise UsageError(f"-o {options.results}: results end with .jsonl, .csv or .parquet.")
    return path, None


def _score(options: BatchOptions, settings: Settings) -> Callable[..., Any]:
    known = {"exact": exact, "contains": contains}
    source = options.score or "exact"
    return known.get(source) or load_function(source, "--score", settings.root)


def _agent(options: BatchOptions, settings: Settings) -> Any:  # Any: an agent, or a function that makes one
    if options.agent is None:
        return make_agent(settings, settings.model, options=options)
    use_stored_keys()
    return load_agent(options.agent, settings.root)


async def _run(
    agent: Any,  # Any: as `_agent` returns it, or the name of one that workers have
    tasks: _Tasks,
    score: Callable[..., Any],
    results: Path,
    table: Path | None,
    options: BatchOptions,
    settings: Settings,
    terminal: Terminal,
) -> int:
    name = options.name or results.stem
    journal = settings.journal if options.has_workers else options.journal or str(results.with_suffix(".db"))
    stop, progress = asyncio.Event(), _ProgressLine(terminal)
    terminal.progress(
        f"treadle: {counted(len(tasks) * options.repeat, 'task')}, journal {shown_journal(journal)}. Ctrl-C stops; the same command continues."
    )
    then = "no further task begins, and those under way end. A second signal stops them."
    async with _made(agent, options, journal, terminal) as made, progress:
        with stopping(stop.set, terminal.say, then):
            summary = await run_batch(
                made,
                tasks,
                journal=journal,
                results=results,
                name=name,
                concurrency=options.concurrency or (_MOST_OF_A_VENDOR if options.is_vendor_batch else 8),
                vendor_batch=options.is_vendor_batch,
                repeat=options.repeat,
                budget=Budget(**options.limits) if options.limits else None,
                total_budget=options.total_cost,
                score=score,
                on_error="stop" if options.stops_at_error else "continue",
                only_failed=options.only_failed,
                limits=_limits(options, name),
                stop=stop,
                on_progress=progress.note,
            )
    return _concluded(summary, results, table, options, journal, terminal)


@asynccontextmanager
async def _made(
    agent: Any, options: BatchOptions, journal: str, terminal: Terminal
) -> AsyncIterator[Any]:  # Any: as above
    """Open what the agent keeps open for the whole batch; with workers, say if none would take the tasks."""
    if options.has_workers:
        name = agent or "default"
        async with open_journal(journal) as store:
            if not any(name in one.agents for one in await list_workers(store)):
                terminal.say(f"No running worker has the agent {name!r}: the tasks wait until one starts.")
        yield name
        return
    if not isinstance(agent, Agent):
        agent = agent()
        agent = await agent if inspect.isawaitable(agent) else agent
    if not isinstance(agent, Agent):
        raise UsageError(f"--agent {options.agent}: it made {type(agent).__name__}, not an Agent.")
    async with kept_open(agent) as opened:
        yield opened


def _limits(options: BatchOptions, name: str) -> list[Limit]:
    if options.tokens_per_minute is None and options.requests_per_minute is None:
        return []
    return [
        Limit(
            name=f"batch {name}"[:100],
            tokens_per_minute=options.tokens_per_minute,
            requests_per_minute=options.requests_per_minute,
        )
    ]


class _ProgressLine:
    """One line that is replaced at a terminal; in a log, a line now and then."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._last: BatchProgress | None = None
        self._shown: BatchProgress | None = None
        self._showing: asyncio.Task[None] | None = None

    def note(self, progress: BatchProgress) -> None:
        self._last = progress

    async def __aenter__(self) -> None:
        self._showing = asyncio.create_task(self._show_on())

    async def __aexit__(self, *error: object) -> None:
        assert self._showing is not None
        self._showing.cancel()
        with suppress(asyncio.CancelledError):
            await self._showing
        self._show()

    async def _show_on(self) -> None:
        while True:
            await asyncio.sleep(_SCREEN_SECONDS if self._terminal.is_watched else _LINE_SECONDS)
            self._show()

    def _show(self) -> None:
        if self._last is not None and self._last is not self._shown:
            self._shown = self._last
            self._terminal.status(str(self._last))


def _concluded(
    summary: BatchSummary, results: Path, table: Path | None, options: BatchOptions, journal: str, terminal: Terminal
) -> int:
    """Write the table and the report, and say what the batch came to. Return 1 if a task has no row yet."""
    report = results.with_suffix(".html")
    report.write_text(report_page(read_rows(results), title=f"Batch {options.name or results.stem}"), encoding="utf-8")
    if table is not None:
        write_table(results, table)
    if options.as_json:
        terminal.data(summary)
    else:
        for line in str(summary).splitlines():
            terminal.line(line)
    terminal.progress(
        f"Rows: {results}{'' if table is None else f', {table}'}. Report: {report}. Journal: {shown_journal(journal)}"
    )
    if summary.paused:
        terminal.say(
            f"{summary.paused:,} {'waits' if summary.paused == 1 else 'wait'} for a person: treadle approvals --journal {shown_journal(journal)}; then the same command continues."
        )
    if summary.unfinished:
        terminal.say(
            f"treadle: {_WHY[summary.ended_by]} Left: {counted(summary.unfinished, 'task')}. The same command continues."
        )
    return 1 if summary.unfinished else 0


_WHY = {
    "stop": "stopped.",
    "total_budget": "--total-cost is used up; a larger one continues.",
    "error": "a run has failed, and --stop-on-error ends the batch.",
    "": "",
}
