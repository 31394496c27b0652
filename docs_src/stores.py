"""A custom store: a dictionary. It implements the primitives; the journal over them is the same for all stores."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from treadle import Agent, open_session
from treadle.journals.stores import (
    Append,
    Backend,
    LocalLease,
    LocalLeases,
    MessageRow,
    SessionRow,
    StoredEvents,
    StoreJournal,
    SumRow,
    exists,
    followed,
    listed,
    unknown,
)
from treadle.ports import SessionFilter, SessionInfo
from treadle.testing import ScriptedModel, text

T = TypeVar("T")


class DictBackend(Backend):
    def __init__(self) -> None:
        self._infos: dict[str, SessionInfo] = {}
        self._events: dict[str, list[SumRow]] = {}
        self._inboxes: dict[str, dict[str, MessageRow]] = {}
        self._consumed: dict[tuple[str, str], int] = {}
        self._blobs: dict[str, bytes] = {}
        self._leases = LocalLeases()

    @property
    def location(self) -> str:
        return "a dictionary"

    async def create(self, session_id: str) -> bool:
        if session_id in self._infos:
            return False
        self._infos[session_id] = SessionInfo(id=session_id, run_status="active", head=0, updated_at=time.time())
        self._events[session_id] = []
        self._inboxes[session_id] = {}
        return True

    async def acquire(
        self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]
    ) -> LocalLease:
        self._info(session_id)
        return self._leases.acquire(session_id, on_message)

    async def append(self, append: Append, *, durable: bool) -> None:
        info = followed(self._info(append.session_id), append)
        events = self._events[append.session_id]
        events += append.chained(events[-1][2] if events else None)
        self._infos[append.session_id] = info

    async def adopt(self, append: Append, parent: tuple[str, int] | None, inbox: Sequence[MessageRow]) -> None:
        if append.session_id in self._infos:
            raise exists(append.session_id)
        parent_id, parent_seq = parent or (None, None)
        await self.create(append.session_id)
        self._infos[append.session_id] = SessionInfo(
            id=append.session_id,
            run_status="active",
            head=0,
            updated_at=time.time(),
            parent_id=parent_id,
            parent_seq=parent_seq,
        )
        await self.append(append, durable=True)
        for message in inbox:
            await self.put(append.session_id, message)

    async def purge(self, append: Append, blobs: Sequence[str]) -> None:
        info = self._info(append.session_id)
        self._infos[info.id] = SessionInfo(
            id=info.id,
            run_status="deleted",
            head=0,
            updated_at=0.0,
            parent_id=info.parent_id,
            parent_seq=info.parent_seq,
        )
        self._events[info.id].clear()
        self._inboxes[info.id].clear()
        await self.append(append, durable=True)
        for digest in blobs:
            if not any(digest in body for events in self._events.values() for _, body, _ in events):
                self._blobs.pop(digest, None)

    async def events(self, session_id: str, after: int, decode: Callable[[StoredEvents], T]) -> T:
        events = self._events.get(session_id, [])
        before = events[after - 1][2] if 0 < after <= len(events) else None
        info = self._infos.get(session_id)
        row = SessionRow() if info is None else SessionRow(info.head, info.task, info.own_status, info.updated_at)
        return decode(StoredEvents(row, before, events[after:]))

    async def sessions(self, where: SessionFilter) -> Sequence[SessionInfo]:
        return listed(self._infos.values(), where)

    async def put(self, session_id: str, message: MessageRow) -> bool:
        self._info(session_id)
        if message[0] in self._inboxes[session_id]:
            return False
        self._inboxes[session_id][message[0]] = message
        self._leases.tell(session_id)
        return True

    async def inbox(self, session_id: str, decode: Callable[[Sequence[MessageRow]], T]) -> T:
        waiting = self._inboxes.get(session_id, {}).values()
        return decode([row for row in waiting if (session_id, row[0]) not in self._consumed])

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        self._info(session_id)
        for message_id in message_ids:
            self._consumed.setdefault((session_id, message_id), seq)

    async def put_blob(self, digest: str, content: bytes) -> None:
        self._blobs.setdefault(digest, content)

    async def blob(self, digest: str) -> bytes | None:
        return self._blobs.get(digest)

    def _info(self, session_id: str) -> SessionInfo:
        if (info := self._infos.get(session_id)) is None:
            raise unknown(session_id)
        return info


async def main() -> None:
    journal = StoreJournal(DictBackend())
    agent = Agent(ScriptedModel([text("Hello.")]))

    async with open_session(journal, id="greeting") as session:
        result = await agent.run("Say hello", session=session)

    assert result.text == "Hello."
    assert [info.status for info in await journal.sessions()] == ["completed"]


if __name__ == "__main__":
    asyncio.run(main())
