"""Which session and run a line of a log belongs to, where a worker runs many side by side."""

import logging
import time
from contextvars import ContextVar

import msgspec

from treadle.fields import checked

__all__ = ["TRACES", "SessionLogFilter", "Traces", "tell_away", "tell_back"]

_AGAIN_SECONDS = 60.0
"""How often it is said again that a journal is away."""
_said: dict[str, float] = {}
"""When this process has last said it, by journal."""


def tell_away(logger: logging.Logger, journal: str, message: str, *values: object) -> None:
    """Log that a journal is away: at once, then once a minute for all who ask for it in this process; else for debugging only."""
    now = time.monotonic()
    is_due = now - _said.get(journal, float("-inf")) >= _AGAIN_SECONDS
    if is_due:
        _said[journal] = now
    logger.log(logging.WARNING if is_due else logging.DEBUG, message, *values)


def tell_back(journal: str) -> None:
    """Note that a journal answers: its next absence is said at once."""
    _said.pop(journal, None)


class Traces(msgspec.Struct):
    """What is being run, as far as it is known. One object for a session under way, filled in on the way."""

    session_id: str = ""
    run_id: str = ""
    tenant: str = ""
    agent: str = ""


TRACES: ContextVar[Traces | None] = ContextVar("treadle_worker_traces", default=None)


class SessionLogFilter(logging.Filter):
    """Gives each record `session_id`, `run_id`, `tenant` and `agent`: empty where a worker does not run a session there.

    The records of your own tools get them too. Add it to a handler, not to a logger:

    Example:
        handler = logging.StreamHandler()
        handler.addFilter(SessionLogFilter())
        handler.setFormatter(logging.Formatter("%(levelname)s %(session_id)s %(message)s"))
    """

    def __init__(self) -> None:
        super().__init__()

    @checked
    def filter(self, record: logging.LogRecord) -> bool:
        """Fill in the record. It is never discarded."""
        traces = TRACES.get() or Traces()
        for name in Traces.__struct_fields__:
            setattr(record, name, getattr(traces, name))
        return True
