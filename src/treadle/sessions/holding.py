"""Holding: a session that one run or one act holds at a time, kept up to date with its journal."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

from treadle.errors import JournalError, SessionHeld
from treadle.events import JournalDegraded
from treadle.fields import checked
from treadle.ports import Clock, Degradation, InboxMessage, Journal, Lease, Randomness
from treadle.sessions.answering import store_time
from treadle.sessions.checkpoints import take_in
from treadle.sessions.ledger import Ledger
from treadle.state import LeftMode, SessionState

__all__ = ["HeldSession"]


class HeldSession:
    """What a session is to whoever holds it: its ledger, its lease, and the sum of its events so far."""

    @checked
    def __init__(
        self,
        *,
        state: SessionState,
        journal: Journal,
        clock: Clock,
        randomness: Randomness,
        parent: str | None = None,
        degradation: Degradation | None = None,
    ) -> None:
        """Make the session from its events. People call `open_session`.

        Args:
            state: The sum of its events, as far as they have been read.
            journal: Where its events are stored.
            clock: What tells the time.
            randomness: Where new ids come from.
            parent: The run that its runs are children of; None for a session that a person runs.
            degradation: Reports that the store has failed; None where a failed store ends the run.
        """
        self.journal = journal
        self.is_degraded = False
        """Whether the store has failed since the last run began, and the run continued in memory."""
        self._degradation = degradation
        if degradation is not None:
            degradation.listen(state.id, self._on_degraded)
        self.clock = clock
        self.randomness = randomness
        self.ledger = Ledger(state=state, journal=journal, clock=clock, randomness=randomness, parent=parent)
        self.is_running = False
        self._lease: Lease | None = None
        self._left: tuple[InboxMessage, ...] = ()
        """What lay in the inbox when this object last looked, or left something."""
        # Calls that a run gave up and that continue in this process: what they hold stays held in the next run.
        self.abandoned: dict[Any, Any] = {}  # Any: futures and calls, known to late.py alone
        self.children: dict[str, Self] = {}
        """Sessions that carry out calls of this one, as far as this process has opened them, by id."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ignored = () if error is None else (JournalError,)  # what was raised says more than what follows from it
        with suppress(*ignored):
            await self.journal.flush()

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def state(self) -> SessionState:
        """The sum of its events, as far as this process has seen them."""
        return self.ledger.state

    @checked
    def beside(self, state: SessionState, *, parent: str | None = None) -> Self:
        """Return another session of the same journal.

        Args:
            state: The sum of that session's events.
            parent: The run that its runs are children of.
        """
        return type(self)(
            state=state,
            journal=self.journal,
            clock=self.clock,
            randomness=self.randomness,
            parent=parent,
            degradation=self._degradation,
        )

    async def refresh(self) -> None:
        """Take in what other processes have recorded since. Does nothing while a run is under way here."""
        if not self.is_running:
            await self._catch_up()

    async def _catch_up(self) -> None:
        await take_in(self.state, await self.journal.read(self.id, after=self.state.head))
        if self.state.run is not None:
            self.ledger.run_id = self.state.run.id

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the session for one act, as a run does."""
        await self.hold(on_lost=_pass, on_message=_pass)
        left = self._left
        try:
            yield
        finally:
            await self.release()
            # Only a run takes messages in: a change of the mode still lies in the inbox.
            self._left = tuple(message for message in left if isinstance(message, LeftMode))

    async def hold(self, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> bool:
        """Begin a run: take the lease, and take in what others have recorded since this session was opened.

        Args:
            on_lost: Called on this event loop soon after the lease has been lost.
            on_message: Called on this event loop soon after something has been left in the session's inbox.

        Returns:
            Whether messages may lie in its inbox.

        Raises:
            SessionHeld: Another run of this session is under way, here or in another process.
        """
        if self.is_running:
            raise SessionHeld(
                f"Session {self.id!r} is already running in this process. Wait for that run, or open another session."
            )
        self.is_running = True
        self.is_degraded = self.ledger.is_cut = False
        self.ledger.forget()
        try:
            self._lease = lease = await self.journal.acquire(self.id, on_lost=on_lost, on_message=on_message)
            if lease.head != self.state.head:
                await self._catch_up()
            if (now := await store_time(self.journal)) is not None:
                self.ledger.store_ahead_seconds = now - self.clock.now()
        except BaseException:
            await self.release()
            raise
        return lease.has_messages is not False

    def hand_over(self) -> None:
        """Record nothing more of the run that is under way, nor of those that carry out its calls: others resume it."""
        self.ledger.is_cut = True
        for child in self.children.values():
            child.hand_over()

    def _on_degraded(self, event: JournalDegraded) -> None:
        self.is_degraded = self.is_degraded or not event.is_over
        self.ledger.publish(event)

    @property
    def unstored(self) -> int:
        """How many events are in memory only, because the store has failed and is not back."""
        return 0 if self._degradation is None else self._degradation.waiting(self.id)

    @property
    def loss(self) -> str:
        """Why the run that is under way has lost its lease; empty where it holds, or where the journal does not say."""
        return str(getattr(self._lease, "loss", ""))

    async def release(self) -> None:
        """End a run: give the lease back."""
        lease, self._lease = self._lease, None
        self.is_running = False
        self._left = ()
        if lease is not None:
            await lease.release()


def _pass() -> None:
    """Notice a lost lease or a message, and continue: an act is one commit, which is refused where the lease is lost."""
