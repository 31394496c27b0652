"""The logs of a worker on standard error: a line for a person, or a JSON object a line for a collector."""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from treadle import SessionLogFilter
from treadle.cli.output.text import one_record, printable

__all__ = ["log_to"]

_PLACES = ("session_id", "run_id", "tenant", "agent")
_FAMILIES = ("treadle", "asyncio", "psycopg")


def log_to(write: Callable[[str], None], *, as_json: bool, worker: str) -> None:
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
        row |= {name: value for name in _PLACES if (value := getattr(record, name, ""))}
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        if trace:
            row["error"] = trace
        return json.dumps(row)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
