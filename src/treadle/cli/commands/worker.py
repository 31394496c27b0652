"""`treadle worker`: run the tasks submitted to a journal, until a signal stops it."""

import asyncio
import logging
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treadle import Agent, AgentMaker, Limit, PgQueuerDispatcher, Worker
from treadle.cli.exits import UsageError
from treadle.cli.input.options import Options
from treadle.cli.input.places import shown_journal
from treadle.cli.input.settings import Settings, settings_of
from treadle.cli.input.worker_limits import COUNTS, LIMIT_WORDS
from treadle.cli.output.terminal import Terminal
from treadle.cli.output.worker_logs import log_to
from treadle.cli.running import make_agent
from treadle.cli.tool_sources import load_agents

__all__ = ["check_shared", "command"]

logger = logging.getLogger("treadle.workers.command")

DEFAULT = "default"
"""The agent of a worker to which none was named."""


def command(options: Options, terminal: Terminal) -> int:
    """Work until a signal ends it."""
    settings = settings_of(options)
    check_shared(settings)
    tenants = options.tenants or None
    worker = Worker(
        settings.journal,
        _agents(options, settings),
        concurrency=options.concurrency,
        tenants=tenants,
        name=options.name,
        limits=_limits(options, settings),
        drain_seconds=options.drain_seconds,
        health_port=options.health_port,
        accepts_change=options.accepts_change,
        dispatcher=PgQueuerDispatcher(settings.journal, tenants=tenants) if options.queue == "pgqueuer" else None,
    )
    is_json = options.log_format == "json"
    log_to(terminal.say, as_json=is_json, worker=worker.name)
    for note in settings.notes:
        (logger.warning if is_json else terminal.say)(f"note: {note}")
    return asyncio.run(_work(worker, settings, logger.info if is_json else terminal.say))


async def _work(worker: Worker, settings: Settings, say: Callable[[str], None]) -> int:
    """Work until a signal ends it, and say what happens to the worker."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        say(
            f"treadle: {signal.Signals(number).name} received: the worker takes no new tasks. A second signal stops it at once."
        )
        for known in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(known)
        worker.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    say(
        f"treadle: worker {worker.name} on {shown_journal(settings.journal)}: {', '.join(worker.agents)}. Ctrl-C stops it."
    )
    await worker.run()
    done = 0 if worker.info is None else worker.info.done
    say(f"treadle: worker {worker.name} has ended; {done} runs ended or paused.")
    return 0


def _agents(options: Options, settings: Settings) -> dict[str, AgentMaker]:
    if options.agents:
        return load_agents(options.agents, Path(settings.root))
    agent = make_agent(settings, settings.model)

    def make() -> Agent:
        return agent

    return {DEFAULT: make}


def _limits(options: Options, settings: Settings) -> list[Limit]:
    """Return the limits of flags, and those of files that no flag names."""
    given = [_limit(text) for text in options.worker_limits]
    named = {limit.name for limit in given}
    return [*(limit for limit in settings.worker_limits if limit.name not in named), *given]


def _limit(text: str) -> Limit:
    """Read a limit over all workers: its name, then words such as sessions=20. The worker checks what they mean.

    Raises:
        UsageError: A word is unknown, occurs twice or has no value, or a count is not a whole number above 0.
    """
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


def check_shared(settings: Settings) -> None:
    """Refuse a journal that nobody else can see.

    Raises:
        UsageError: It is in memory.
    """
    if settings.journal == "memory:":
        raise UsageError(
            "Workers share a journal, and `memory:` cannot be shared. Name a file or a database: --journal agent.db"
        )
