"""Workers: sessions that were submitted anywhere are run by whichever process has a worker for their agent.

Each name loads on first use: a command that only reads limits needs no engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle.workers.health import SessionLogFilter as SessionLogFilter
    from treadle.workers.limits import Limit as Limit
    from treadle.workers.presence import WorkerInfo as WorkerInfo
    from treadle.workers.presence import list_workers as list_workers
    from treadle.workers.queued import PgQueuerDispatcher as PgQueuerDispatcher
    from treadle.workers.submitting import TaskResult as TaskResult
    from treadle.workers.submitting import follow as follow
    from treadle.workers.submitting import result as result
    from treadle.workers.submitting import submit as submit
    from treadle.workers.worker import AgentMaker as AgentMaker
    from treadle.workers.worker import JournalDispatcher as JournalDispatcher
    from treadle.workers.worker import StrandedSession as StrandedSession
    from treadle.workers.worker import Worker as Worker
    from treadle.workers.worker import stranded_sessions as stranded_sessions

_HOMES = {
    "AgentMaker": "worker",
    "JournalDispatcher": "worker",
    "Limit": "limits",
    "PgQueuerDispatcher": "queued",
    "SessionLogFilter": "health",
    "StrandedSession": "worker",
    "TaskResult": "submitting",
    "Worker": "worker",
    "WorkerInfo": "presence",
    "follow": "submitting",
    "list_workers": "presence",
    "result": "submitting",
    "stranded_sessions": "worker",
    "submit": "submitting",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names, not two


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'treadle.workers' has no attribute {name!r}")
    return getattr(import_module(f"treadle.workers.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
