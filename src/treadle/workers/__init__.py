"""Workers: sessions that were submitted anywhere are run by whichever process has a worker for their agent."""

from treadle.workers.carrying import AgentMaker
from treadle.workers.finding import JournalDispatcher
from treadle.workers.limits import Limit
from treadle.workers.logs import SessionLogFilter
from treadle.workers.presence import WorkerInfo, list_workers
from treadle.workers.queued import PgQueuerDispatcher
from treadle.workers.submitting import TaskResult, follow, result, submit
from treadle.workers.worker import Worker

__all__ = [
    "AgentMaker",
    "JournalDispatcher",
    "Limit",
    "PgQueuerDispatcher",
    "SessionLogFilter",
    "TaskResult",
    "Worker",
    "WorkerInfo",
    "follow",
    "list_workers",
    "result",
    "submit",
]
