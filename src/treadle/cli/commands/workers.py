"""`treadle submit`, `retry`, `worker` and `workers`: queue a task, or queue it again, run submitted tasks until a signal stops it, and list who runs them."""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from treadle import Budget, Session, StopReason, Worker, open_journal
from treadle import submit as submit_task
from treadle.cli.bulk import Chosen, chosen_sessions, done_to_all
from treadle.cli.exits import UsageError, exit_code
from treadle.cli.guidance import check_given, read_task
from treadle.cli.input.commands import RetryOptions, SubmitOptions, WorkerOptions, WorkersOptions, has_conditions
from treadle.cli.input.config import COUNTS, LIMIT_WORDS
from treadle.cli.input.keys import use_stored_keys
from treadle.cli.input.places import same_journal, shown_journal
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.output.screens import write_answer
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.text import for_terminal, one_line, one_record, printable
from treadle.cli.running import kept_open, make_agent
from treadle.cli.sessions import find_session, named, opened, person, stranded_in, stranded_line
from treadle.cli.signals import stopping
from treadle.cli.tool_sources import load_agents
from treadle.events import TaskSubmitted
from treadle.ports import Journal
from treadle.workers import AgentMaker, Limit, PgQueuerDispatcher, SessionLogFilter, WorkerInfo, list_workers, result
from treadle.workers import retry as retry_task

__all__ = ["retry", "submit", "worker", "workers"]

logger = logging.getLogger("treadle.workers.command")

_DEFAULT = "default"
"""The agent of a worker to which none was named."""


def _check_shared(settings: Settings) -> None:
    """Refuse a journal that nobody else can see."""
    if settings.journal == "memory:":
        raise UsageError(
            "Workers share a journal, and `memory:` cannot be shared. Name a file or a database: --journal agent.db"
        )


# --- A worker.


def worker(options: WorkerOptions, terminal: Terminal) -> int:
    """Work until a signal ends it."""
    settings = settings_of(options)
    _check_shared(settings)
    tenants = options.tenants or None
    open_servers = AsyncExitStack()
    if options.health_host is not None and options.health_port is None:
        raise UsageError("--health-host is the address of --health PORT: give that too.")
    made = Worker(
        settings.journal,
        _agents(options, settings, open_servers),
        concurrency=options.concurrency,
        tenants=tenants,
        name=options.name,
        limits=_limits(options, settings),
        drain_seconds=options.drain_seconds,
        health_port=options.health_port,
        health_host=options.health_host or "127.0.0.1",
        accepts_change=options.accepts_change,
        dispatcher=PgQueuerDispatcher(settings.journal, tenants=tenants) if options.queue == "pgqueuer" else None,
    )
    is_json = options.log_format == "json"
    _log_to(terminal.say, as_json=is_json, worker=made.name)
    for note in settings.notes:
        (logger.warning if is_json else terminal.say)(f"note: {note}")
    return asyncio.run(_work(made, settings, logger.info if is_json else terminal.say, open_servers))


async def _work(worker: Worker, settings: Settings, say: Callable[[str], None], open_servers: AsyncExitStack) -> int:
    """Work until a signal ends it, and say what happens to the worker."""
    then = "the worker takes no new tasks. A second signal stops it at once."
    with stopping(worker.stop, say, then):
        place = shown_journal(settings.journal)
        say(f"treadle: worker {worker.name} on {place}: {', '.join(worker.agents)}. Ctrl-C stops it.")
        async with open_servers:
            await worker.run()
    done = 0 if worker.info is None else worker.info.done
    say(f"treadle: worker {worker.name} has ended; {done} runs ended or paused.")
    return 0


def _agents(options: WorkerOptions, settings: Settings, open_servers: AsyncExitStack) -> dict[str, AgentMaker]:
    """Return what makes each agent. The MCP servers of the configuration are open as long as the worker."""
    if options.agents:
        use_stored_keys()
        return load_agents(options.agents, Path(settings.root))
    agent = make_agent(settings, settings.model)
    return {_DEFAULT: lambda: open_servers.enter_async_context(kept_open(agent))}


def _limits(options: WorkerOptions, settings: Settings) -> list[Limit]:
    """Return the limits of flags, and those of files that no flag names."""
    given = [_limit(text) for text in options.worker_limits]
    named = {limit.name for limit in given}
    return [*(limit for limit in settings.worker_limits if limit.name not in named), *given]


def _limit(text: str) -> Limit:
    """Read a limit over all workers: its name, then words such as sessions=20. The worker checks what they mean."""
    name, *words = text.split() or [""]
    said: dict[str, Any] = {}
    for word in words:
        key, _, value = word.partition("=")
        field = LIMIT_WORDS.get(key)
        if field is None or not value or field in said:
            known = ", ".join(f"{one}=" for one in LIMIT_WORDS)
            raise UsageError(
                f"--limit {text!r}: {word!r} is invalid. After its name a limit has some of {known}, each once."
            )
        if field in COUNTS and not re.fullmatch(r"[1-9]\d{0,14}", value, re.ASCII):
            raise UsageError(f"--limit {text!r}: {key}= is a whole number above 0; got {value!r}.")
        said[field] = int(value) if field in COUNTS else value if field == "each" else value.split(",")
    return Limit(name=name, **said)


# --- The logs of a worker on standard error: a line for a person, or a JSON object a line for a collector.

_PLACES = ("session_id", "run_id", "tenant", "agent")
_FAMILIES = ("treadle", "asyncio", "psycopg")


def _log_to(write: Callable[[str], None], *, as_json: bool, worker: str) -> None:
    """Write what this process logs, from the level INFO for workers and WARNING for all else.

    Args:
        write: Writes one line to standard error.
        worker: Its name, in each JSON object.
    """
    handler = _Handler(write)
    handler.addFilter(SessionLogFilter())
    handler.setFormatter(_JsonLines(worker) if as_json else _Lines())
    for name in _FAMILIES:
        family = logging.getLogger(name)
        family.addHandler(handler)
        family.propagate = False
        family.setLevel(logging.WARNING)
    logging.getLogger("treadle.workers").setLevel(logging.INFO)
    root = logging.getLogger()
    for other in tuple(root.handlers):  # the program's own, for commands without a log
        root.removeHandler(other)
    root.addHandler(handler)  # what tools log


class _Handler(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            for line in self.format(record).split("\n"):
                self._write(line)
        except Exception:  # noqa: BLE001 - a log that cannot be written must not end the work
            self.handleError(record)


class _Lines(logging.Formatter):
    """`2026-11-23T05:30:00Z warning s_1a2b  The message.`"""

    def format(self, record: logging.LogRecord) -> str:
        session_id = getattr(record, "session_id", "")
        where = f" {session_id}" if session_id else ""
        line = one_record(f"{_time(record)} {record.levelname.lower()}{where}  {record.getMessage()}")
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        return line + "".join(f"\n    {printable(row)}" for row in trace.splitlines())


class _JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message, worker, and the session that the line is about."""

    def __init__(self, worker: str) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "worker": self._worker,
        }
        row |= {name: value for name in (*_PLACES, "run") if (value := getattr(record, name, ""))}
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        if trace:
            row["error"] = trace
        return json.dumps(row)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


# --- Who works.


async def workers(options: WorkersOptions, terminal: Terminal) -> int:
    """List the workers of a journal."""
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        found = await list_workers(journal, all=options.has_ended)
        stranded = await stranded_in(journal, options)
    if options.as_json:
        terminal.data({"workers": found, "stranded": stranded})
        return 0
    for each in found:
        terminal.line(_line(each))
    if not found:
        terminal.say(f"No worker is running. To start one: treadle worker{same_journal(options)}")
    for one in stranded:
        terminal.line(stranded_line(one))
    return 0


def _line(worker: WorkerInfo) -> str:
    state = "ended" if not worker.is_alive else "ends" if worker.is_draining else "works"
    since = datetime.fromtimestamp(worker.since, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    load = f"{len(worker.sessions)}/{worker.concurrency} sessions, {worker.done} done"
    waits = "".join(f"  {count} waiting: {reason}" for reason, count in sorted(worker.waiting.items()))
    return one_line(
        f"{worker.name}  {state} since {since}  {load}  {', '.join(worker.agents)}  {worker.host}:{worker.pid}{waits}",
        400,
    )


# --- Submitting.


def submit(options: SubmitOptions, terminal: Terminal) -> int:
    """Submit one task."""
    check_given(options.task)
    settings = settings_of(options)
    _check_shared(settings)
    if options.agent == "":
        raise UsageError("--agent must be the name of an agent that a worker has; omit it for `default`.")
    task = read_task(options.task, terminal)
    return asyncio.run(_submit(options, settings, task, terminal))


async def _submit(options: SubmitOptions, settings: Settings, task: str, terminal: Terminal) -> int:
    async with open_journal(settings.journal) as journal:
        session_id = await submit_task(
            journal,
            options.agent or _DEFAULT,
            task,
            tenant=options.tenant or "",
            priority=options.priority,
            at=options.begins_at,
            key=options.key,
            budget=Budget(**options.limits) if options.limits else None,
            deadline=options.deadline,
            metadata=options.metadata,
            by=person(options),
        )
        await _note_missing(journal, options, terminal)
        if options.key is not None:
            await _note_first(journal, session_id, options, task, terminal)
        if not options.is_waiting:
            if options.as_json:
                terminal.data({"id": session_id})
            else:
                terminal.line(session_id)
                terminal.say(f"Submitted. To follow it: treadle sessions watch {session_id}{same_journal(options)}")
            return 0
        terminal.progress(f"session: {session_id}")
        end = await result(journal, session_id)
    if options.as_json:
        terminal.data(end)
    else:
        write_answer(end.text, terminal)
        if not end.completed:
            terminal.say(f"treadle: {end.status} ({end.reason}): {for_terminal(end.message)}")
    return exit_code(StopReason(end.reason))


async def _note_missing(journal: Journal, options: SubmitOptions, terminal: Terminal) -> None:
    """Report that the task waits for a worker: none of those at work has its agent, or nobody is at work and its end is waited for."""
    agent = options.agent or _DEFAULT
    working = await list_workers(journal)
    if not working and options.is_waiting:
        terminal.say(
            f"No worker is running on the journal {shown_journal(journal.location)}: the task waits until one starts. To start one: treadle worker{'' if agent == _DEFAULT else ' --agents FILE.py'}{same_journal(options)}"
        )
    if working and not any(agent in one.agents for one in working):
        known = ", ".join(sorted({name for one in working for name in one.agents}))
        terminal.say(f"No running worker has the agent {agent!r} (known: {known}): the task waits for one that has it.")


async def _note_first(journal: Journal, session_id: str, options: SubmitOptions, task: str, terminal: Terminal) -> None:
    """Report that the key had named another task before: that one counts."""
    submitted = [event for event in await journal.read(session_id) if isinstance(event, TaskSubmitted)]
    if submitted and (submitted[0].message.text, submitted[0].agent) != (task, options.agent or _DEFAULT):
        first = one_line(submitted[0].message.text, 80)
        terminal.say(
            f"The key {options.key!r} was already used for another task, which stands: {first!r} for the agent {submitted[0].agent!r}. Use a new key for this one."
        )


# --- Submitting again.


async def retry(options: RetryOptions, terminal: Terminal) -> int:
    """Submit a task again, or all that fulfil the conditions."""
    _check_shared(settings_of(options))
    if has_conditions(options) and options.key is not None:
        raise UsageError("--key is for one task: give its session.")
    async with opened(settings_of(options).journal, must_exist=True) as journal:
        if has_conditions(options):
            chosen = await chosen_sessions(journal, options, run_statuses=("failed", "stopped"), fits=_may_retry)

            async def act(one: Chosen) -> None:
                await retry_task(journal, one.id, deadline=options.deadline, by=person(options))

            return await done_to_all(chosen, act, "Submit again", "submitted again", options, terminal, noun="task")
        info = await find_session(journal, named(options))
        session_id = await retry_task(
            journal,
            info.id,
            key=options.key,
            may_repeat=options.may_repeat,
            deadline=options.deadline,
            by=person(options),
        )
    if options.as_json:
        terminal.data({"id": session_id, "retry_of": info.id})
        return 0
    terminal.line(session_id)
    how = (
        "in the same session: the model reads what was done there"
        if session_id == info.id
        else f"from nothing, under the key {options.key!r}: nothing is known there of what {info.id} has done"
    )
    terminal.say(f"Submitted again, {how}. To follow it: treadle sessions watch {session_id}{same_journal(options)}")
    return 0


async def _may_retry(session: Session) -> bool:
    is_active = session.state.own_status == "active" and not session.state.moved_to
    return is_active and any(isinstance(event, TaskSubmitted) for event in await session.events())
