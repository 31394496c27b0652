"""The reading side of a PostgreSQL journal. Runs on the reader's thread only; changes nothing."""

from collections.abc import Sequence
from typing import Any

from treadle.errors import JournalError, SessionError
from treadle.journals.postgres.faults import STORE_FAULTS, describe
from treadle.journals.postgres.link import Link
from treadle.journals.store.worker import Job

__all__ = ["PostgresReader"]


class PostgresReader:
    """Serves jobs that read; again where the connection was lost meanwhile."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def serve(self, jobs: Sequence[Job[Any]]) -> None:  # Any: jobs of all outcomes share one queue
        for job in jobs:
            if job.act is None:
                continue
            try:
                job.outcome = self._link.run(job.act)
            except STORE_FAULTS as exc:
                job.error = describe(self._link.address, exc)
            except (JournalError, SessionError) as exc:
                job.error = exc

    def finish(self) -> None:
        self._link.drop()
