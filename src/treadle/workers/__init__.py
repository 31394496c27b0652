"""Workers: sessions that were submitted anywhere are run by whichever process has a worker for their agent."""

from typing import TYPE_CHECKING

from treadle.lazy import lazy_names

if TYPE_CHECKING:
    from treadle.workers.health import SessionLogFilter as SessionLogFilter
    from treadle.workers.limits import Limit as Limit
    from treadle.workers.presence import WorkerInfo as WorkerInfo
    from treadle.workers.presence import list_workers as list_workers
    from treadle.workers.queued import PgQueuerDispatcher as PgQueuerDispatcher
    from treadle.workers.remembering import shared_set as shared_set
    from treadle.workers.submitting import TaskResult as TaskResult
    from treadle.workers.submitting import follow as follow
    from treadle.workers.submitting import result as result
    from treadle.workers.submitting import retry as retry
    from treadle.workers.submitting import submit as submit
    from treadle.workers.worker import AgentMaker as AgentMaker
    from treadle.workers.worker import JournalDispatcher as JournalDispatcher
    from treadle.workers.worker import StrandedSession as StrandedSession
    from treadle.workers.worker import Worker as Worker
    from treadle.workers.worker import stranded_sessions as stranded_sessions

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "health": "SessionLogFilter",
        "limits": "Limit",
        "presence": "WorkerInfo list_workers",
        "queued": "PgQueuerDispatcher",
        "remembering": "shared_set",
        "submitting": "TaskResult follow result retry submit",
        "worker": "AgentMaker JournalDispatcher StrandedSession Worker stranded_sessions",
    },
)
