"""What is asked of a store that keeps tables, by a thread that reads. SQLite and PostgreSQL share it. Holds no SQL."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from treadle.journals.store.backend import Backend, StoredEvents
from treadle.journals.store.due import DueRow
from treadle.journals.store.rows import SessionRow
from treadle.journals.store.sums import MessageRow, SumRow
from treadle.ports import SessionFilter, SessionInfo

__all__ = ["Questions", "TableBackend"]

_T = TypeVar("_T")
_Connection = TypeVar("_Connection")
_Asked_contra = TypeVar("_Asked_contra", contravariant=True)


class Questions(Protocol[_Asked_contra]):
    """A module of functions that ask the tables over a connection."""

    def select_row(self, connection: _Asked_contra, session_id: str) -> SessionRow: ...
    def select_sum(self, connection: _Asked_contra, session_id: str, seq: int) -> bytes | None: ...
    def select_events(self, connection: _Asked_contra, session_id: str, after: int) -> list[SumRow]: ...
    def select_sessions(self, connection: _Asked_contra, where: SessionFilter) -> Sequence[SessionInfo]: ...
    def select_with_messages(self, connection: _Asked_contra) -> frozenset[str]: ...
    def select_with_unknown_outcomes(self, connection: _Asked_contra) -> frozenset[str]: ...
    def select_due(self, connection: _Asked_contra, before: float | None) -> list[DueRow] | None: ...
    def select_inbox(self, connection: _Asked_contra, session_id: str) -> list[MessageRow]: ...
    def select_blob(self, connection: _Asked_contra, digest: str) -> bytes | None: ...


class TableBackend(Backend, Generic[_Connection]):
    """The reading half of a store with tables.

    Args:
        questions: What the tables can be asked.
    """

    def __init__(self, questions: Questions[_Connection]) -> None:
        self._questions = questions

    @abstractmethod
    async def ask(self, question: Callable[[_Connection], _T]) -> _T:
        """Return what a question comes to, asked on the thread that reads.

        Raises:
            JournalError: The store failed.
        """

    async def events(self, session_id: str, after: int, decode: Callable[[StoredEvents], _T]) -> _T:
        def read(connection: _Connection) -> _T:
            row = self._questions.select_row(connection, session_id)  # first: what it names is stored a moment later
            before = self._questions.select_sum(connection, session_id, after) if after else None
            return decode(StoredEvents(row, before, self._questions.select_events(connection, session_id, after)))

        return await self.ask(read)

    async def sessions(self, where: SessionFilter) -> Sequence[SessionInfo]:
        return await self.ask(partial(self._questions.select_sessions, where=where))

    async def with_messages(self) -> Collection[str]:
        """Return the ids of the paused sessions in whose inbox a message waits that their run would take in."""
        await self.settle()
        return await self.ask(self._questions.select_with_messages)

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the ids of the sessions in which a result says so; one look over all results."""
        await self.settle()
        return await self.ask(self._questions.select_with_unknown_outcomes)

    async def due(self, before: float | None = None) -> Sequence[DueRow] | None:
        return await self.ask(partial(self._questions.select_due, before=before))

    async def inbox(self, session_id: str, decode: Callable[[Sequence[MessageRow]], _T]) -> _T:
        return await self.ask(lambda connection: decode(self._questions.select_inbox(connection, session_id)))

    async def blob(self, digest: str) -> bytes | None:
        return await self.ask(partial(self._questions.select_blob, digest=digest))
