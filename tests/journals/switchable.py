"""A store that can be switched off, as a disk that is full or a server that is away."""

from collections.abc import Sequence

from treadle.errors import JournalError
from treadle.events import AnyEvent
from treadle.journals.memory import MemoryJournal
from treadle.ports import InboxMessage


class Switchable(MemoryJournal):
    """A journal in memory that can be switched off."""

    is_off = False

    def _look(self) -> None:
        if self.is_off:
            raise JournalError("The disk is full.")

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        self._look()
        await super().append(session_id, events, state=state, durable=durable)

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        self._look()
        return await super().read(session_id, after=after)

    async def create(self, session_id: str) -> bool:
        self._look()
        return await super().create(session_id)

    async def flush(self) -> None:
        self._look()
        await super().flush()

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        self._look()
        return await super().inbox(session_id)

    async def put_blob(self, content: bytes) -> str:
        self._look()
        return await super().put_blob(content)
