"""What happened to appends that nobody waited for, so that it is reported once and nothing follows one that failed. Stores nothing."""

from typing import Any

from treadle.errors import JournalError, TreadleError
from treadle.journals.store.worker import Job

__all__ = ["Deferred", "again"]


class Deferred:
    """The failures of one journal. Its writer notes them on one thread; callers ask on any."""

    def __init__(self) -> None:
        self._refused: dict[str, TreadleError] = {}
        self._unreported: dict[str, TreadleError] = {}

    def check(self, session_id: str) -> None:
        """Tell the caller what happened to a deferred append of this session, if it failed."""
        if session_id in self._refused:
            self._unreported.pop(session_id, None)
            self.refuse(session_id)

    def refuse(self, session_id: str) -> None:
        """Let nothing in. Invariant: nothing follows an append that failed, until somebody opens the session anew."""
        if (error := self._refused.get(session_id)) is not None:
            raise again(error)

    def report(self) -> None:
        """Raise, once, that deferred appends have failed.

        Raises:
            JournalError: The first of them.
        """
        if self._unreported:
            error = next(iter(self._unreported.values()))
            self._unreported.clear()
            raise JournalError(f"An event could not be stored. {error}") from error

    def forget(self, session_id: str) -> None:
        """Let appends of a session in again: somebody has opened it anew."""
        self._refused.pop(session_id, None)

    def fail(self, job: Job[Any], error: TreadleError) -> None:
        """Note that a job failed; whoever waits for it is told, else the next caller of its session."""
        job.error = error
        if job.future is not None:
            self._unreported.pop(job.session_id, None)
        elif not job.is_aside and job.session_id not in self._refused:
            self._refused[job.session_id] = self._unreported[job.session_id] = error


def again(error: TreadleError) -> TreadleError:
    """Return the error anew: one object raised twice would gather the tracebacks of both."""
    return type(error)(str(error))
