"""Sessions: opening journals and finding what is in them, for the commands. Prints nothing."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from treadle import Approval, JournalError, Session, open_journal, open_session
from treadle.cli.exits import UsageError
from treadle.cli.places import journal_file
from treadle.events import RunStarted
from treadle.ports import InboxMessage, Journal, SessionInfo

__all__ = ["Waiting", "find_session", "is_there", "last_model", "opened", "opened_session", "waiting_approvals"]


@asynccontextmanager
async def opened(path: str, *, must_exist: bool = False) -> AsyncIterator[Journal]:
    """Open the journal.

    Raises:
        UsageError: It cannot be opened, or it is not there although it must be.
    """
    if must_exist and not is_there(path):
        raise UsageError(f"There is no journal {path} yet: `treadle run` makes it. Name another with --journal.")
    try:
        journal = await open_journal(path)
    except JournalError as exc:
        raise UsageError(str(exc)) from exc
    try:
        yield journal
    finally:
        await journal.close()


def is_there(path: str) -> bool:
    """Whether there is a journal, or something in its place. Of a database only opening it can tell."""
    file = journal_file(path)
    try:
        return file is None or file.exists()
    except (OSError, ValueError):  # opening it will say why
        return True


@asynccontextmanager
async def opened_session(journal: Journal, session_id: str) -> AsyncIterator[Session]:
    """Open a session that exists.

    Raises:
        UsageError: There is none by that id.
    """
    await find_session(journal, session_id)
    async with open_session(journal, id=session_id, on_store_failure="degrade") as session:
        yield session


async def find_session(journal: Journal, session_id: str | None) -> SessionInfo:
    """Return a session's entry; for None that of the session that changed last.

    Raises:
        UsageError: There is none.
    """
    found = await journal.sessions()
    if session_id is None:
        there = [info for info in found if info.status != "deleted"]
        if not there:
            raise UsageError(f"The journal {journal.location} holds no session yet. Start one with `treadle run`.")
        return there[0]
    for info in found:
        if info.id == session_id:
            return info
    raise UsageError(
        f"There is no session {session_id!r:.80} in the journal {journal.location}. `treadle sessions` lists all."
    )


async def last_model(session: Session) -> str | None:
    """Return the name of the model that the session's last task was given to."""
    events = [event for event in await session.events() if isinstance(event, RunStarted)]
    return events[-1].model or None if events else None


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A request for consent, and whether somebody has answered it since."""

    approval: Approval
    answer: str | None = None
    """What was answered and not yet taken up by `resume`."""

    @property
    def to_resume(self) -> str:
        """The session that goes on with the answer: the one that asked, or the one at the top of those that called it."""
        return self.approval.root_id or self.approval.session_id

    @property
    def is_expired(self) -> bool:
        return time.time() > self.approval.expires_at


async def waiting_approvals(journal: Journal) -> list[Waiting]:
    """Return the requests for consent of all sessions, answered ones that nobody has taken up included."""
    found: list[Waiting] = []
    for info in await journal.sessions():
        if info.state not in ("paused", "running"):
            continue
        async with open_session(journal, id=info.id) as session:
            answers = _answers(await journal.inbox(info.id))
            own = [one for one in session.approvals() if one.session_id == info.id]  # a child's are told with the child
            found += [Waiting(approval=one, answer=answers.get(one.id)) for one in own]
    return found


def _answers(inbox: Sequence[InboxMessage]) -> dict[str, str]:
    return {
        str(message.body.get("approval_id")): str(message.body.get("answer"))
        for message in inbox
        if message.kind == "answer"
    }
