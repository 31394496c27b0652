"""Session: a durable conversation, rebuilt from its journal; marked, rewound, forked, exported, moved and deleted here.

It runs nothing: an Agent does, and only one run at a time.
"""

from collections.abc import Sequence

from treadle.concurrency.collecting import full_collections_put_off
from treadle.errors import ConfigurationError, shown
from treadle.events import SessionStatus
from treadle.fields import checked, checked_but
from treadle.messages import Message
from treadle.redaction import Redactor
from treadle.sessions import maintenance
from treadle.sessions.checkpoints import Rewind, fold
from treadle.sessions.explanation import Explanation
from treadle.sessions.reading import explained, exported
from treadle.sessions.steering import SteeredSession
from treadle.sessions.transfer import pack
from treadle.tools import JsonObject

__all__ = ["Session", "fold"]


class Session(SteeredSession):
    """One conversation in one journal.

    Example:
        async with open_session("agent.db", id="invoice-7") as session:
            result = await agent.run("Pay the invoice", session=session)
    """

    def __repr__(self) -> str:
        """Return its id and how much it holds."""
        return f"<Session {self.id}, {len(self.messages)} messages, {self.state.head} events>"

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.state.transcript

    # --- between runs

    async def mark(self, name: str) -> int:
        """Name this point, to rewind to it or fork from it. A name that is used again means the later point.

        Raises:
            NoSuchPoint: A call has no result yet.
            SessionHeld: A run is under way.
        """
        async with self.held():
            return await maintenance.mark(self.ledger, name)

    @checked_but("to")
    async def rewind(self, to: int | str, *, tell_model: bool = True) -> Rewind:
        """Go back to an earlier point, given by its mark or the number of its last event. Effects are not undone.

        The model no longer sees later messages; the journal keeps them. Calls without a result are answered first.

        Args:
            to: The name of a mark, or the number of the last event that stays.
            tell_model: Tell the model about later calls that may have changed the world, if there are any.

        Raises:
            NoSuchPoint: There is no such point, or a call is open at it.
            SessionHeld: A run is under way.
        """
        async with self.held():
            return await maintenance.rewind(self.ledger, to, tell_model=tell_model)

    @checked_but("at", "step", "message")
    async def fork(
        self,
        at: int | str | None = None,
        *,
        step: int | None = None,
        message: int | None = None,
        id: str | None = None,  # noqa: A002 - the face's word (design section 6)
    ) -> "Session":
        """Create a session in the same journal that shares the past of this one; both continue independently.

        Args:
            at: A mark, or the number of the last event to share (default: the end).
            step: Instead, share everything up to the results of this step.
            message: Instead, share this number of messages.
            id: The new session's id (default: generated).

        Raises:
            NoSuchPoint: There is no such point, or a call is open at it: it could be carried out twice.
            SessionExists: There is a session with that id.
        """
        name = "s_" + self.randomness.token() if id is None else id
        state = await maintenance.fork(self.ledger, name, at=at, step=step, message=message)
        return self.beside(state)

    @checked
    async def change(
        self,
        *,
        status: SessionStatus | None = None,
        metadata: JsonObject | None = None,
        reason: str = "",
        by: str = "person",
        if_head: int | None = None,
        take_back: bool = False,
    ) -> None:
        """Change the session's own status, or keys of its metadata; the next run has them. It does not change how runs ended.

        Args:
            status: A run can begin only in an `active` session; `deleted` is permanent.
            metadata: Keys with new values, None to remove a key; other keys stay.
            if_head: Change the session only if it is still at this event (`session.state.head`).
            take_back: Take back a session that was moved. Only if it has not continued there and will not: else its calls act twice.

        Raises:
            SessionMoved: The session continues elsewhere, and `take_back` is not given.
            SessionConflict: The session is not at `if_head` any more; nothing was written.
            SessionHeld: A run is under way.
            ConfigurationError: The status is unknown, or the metadata cannot be stored.
        """
        async with self.held():
            await maintenance.change(
                self.ledger,
                status=status,
                metadata=metadata,
                reason=reason,
                by=by,
                if_head=if_head,
                take_back=take_back,
            )
        if status == "active":
            await self._wake()

    @checked
    async def delete(self, *, purge: bool = False) -> None:
        """Delete the session: it is listed as deleted, and no run can begin in it. Its id is never used again.

        Args:
            purge: Also remove its events, messages and stored results; only a record of the deletion stays.

        Raises:
            SessionHeld: A run is under way.
        """
        async with self.held():
            await maintenance.delete(self.ledger, purge=purge)

    async def export(self, *, redactor: Redactor | None = None) -> Sequence[bytes]:
        """Return the whole session as lines of JSON, for `import_session`.

        The lines are exact, so that the session can continue elsewhere: keep them as private as the journal.

        Args:
            redactor: Removes secrets, for lines that other people read. A session with an open call can then not be imported.

        Raises:
            ConfigurationError: The redactor is not a Redactor.
        """
        if redactor is not None and not isinstance(redactor, Redactor):
            raise ConfigurationError(f"redactor is a Redactor, or None for exact lines; got {shown(redactor)}.")
        with full_collections_put_off():
            return await exported(await maintenance.parcel_of(self.ledger), redactor)

    @checked
    async def move(self, to: str, *, by: str = "person", reason: str = "") -> Sequence[bytes]:
        """Close the session here, durably, and return it as lines of JSON for `import_session` at its new place.

        From then on no run begins here, and nothing is answered or cancelled: `SessionMoved` names the place. Waiting approvals,
        answers and cancellations are moved too. `change(status="active", take_back=True)` takes the session back if it has not
        continued there. Import the lines at one place only: each import would continue.

        Args:
            to: The new place, for people to read: no secrets. Called again with the same place, it returns the lines again.

        Raises:
            SessionHeld: A run is under way.
            SessionMoved: It was moved elsewhere already.
            NoSuchPoint: Another session carries out one of its calls, and a move does not include that session. Resume or cancel it first.
            ConfigurationError: The destination is empty, or an option cannot be stored.
        """
        for option, text in (("to", to), ("by", by), ("reason", reason)):
            maintenance.check_text(option, text)
        if not to.strip():
            raise ConfigurationError("Name the destination: move('the other journal').")
        async with self.held():
            return tuple(pack(await maintenance.move(self.ledger, to, by=by, reason=reason)))

    async def explain(self) -> Explanation:
        """Say what was tried, on what, what it changed, who approved, what failed, why it stopped, and what a rerun does."""
        return await explained(self.journal, self.id)

    # --- for runs

    def check_resumable(self) -> None:
        """Raise NoRunYet or RunCompleted unless a run was paused, stopped or broke off."""
        maintenance.check_resumable(self.state, self.journal)

    def check_active(self) -> None:
        """Raise SessionNotActive unless a run may begin: people may have suspended, closed or deleted the session."""
        maintenance.check_active(self.state, self.journal)

    def check_no_task(self) -> None:
        """Raise SessionNotActive where a submitted task waits for a worker."""
        maintenance.check_no_task(self.state)

    def check_own(self) -> None:
        """Raise SessionNotActive where the session carries out a call of another: it continues with that one, under its rules."""
        maintenance.check_own(self.state)
