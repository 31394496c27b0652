"""Ledger: the one way by which facts enter a session. Numbers events, journals them, folds them, tells subscribers.

It decides nothing: what to record is the loop's and the pipeline's business.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle.canonical import copied
from treadle.errors import RunHandedOver
from treadle.events import (
    ActionDecided,
    AnyEvent,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ContextCompacted,
    ContractViolated,
    HistoryRepaired,
    ModelFinished,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionRewound,
    Subscriber,
    TaskSubmitted,
    TaskWithdrawn,
    ToolFinished,
    ToolInput,
    ToolResolved,
)
from treadle.ports import Clock, Journal, Randomness
from treadle.redaction import ECHOING, KNOWN, redacted_logger, scrubbed
from treadle.state import SessionState
from treadle.tools import JsonObject

__all__ = ["Ledger"]

logger = redacted_logger(__name__)

_TURNS = {RunStarted, RunResumed, RunPaused, RunFinished, SessionChanged, SessionRewound, TaskSubmitted, TaskWithdrawn}
"""Events that may change what the session's state is."""

_STATUSES = {RunStarted: "running", RunResumed: "running", RunPaused: "paused", TaskSubmitted: "queued"}


class Ledger:
    """One session's log, its folded state, and those who listen."""

    def __init__(
        self, *, state: SessionState, journal: Journal, clock: Clock, randomness: Randomness, parent: str | None = None
    ) -> None:
        self.state = state
        self.journal = journal
        self.clock = clock
        self.randomness = randomness
        self.parent = parent
        self.run_id = state.run.id if state.run else ""
        self.subscribers: list[Subscriber] = []
        self.live: Subscriber | None = None
        """Tells followers in other processes what is not stored; None where nobody can follow."""
        self.store_ahead_seconds = 0.0
        """How far the store's clock is ahead of ours, measured when the session was taken; 0 for a store without one."""
        # Invariant: numbers are given, stored and folded in one order, although calls finish side by side.
        self._order = asyncio.Lock()
        self._is_torn = False
        self._deferred: tuple[AnyEvent, ...] = ()
        self.above: Ledger | None = None
        """That of the session whose call this one carries out, in this process: what it has deferred is recorded first."""
        self.is_cut = False
        """Whether the session was handed over: nothing more is recorded of it here."""

    def store_time(self) -> float:
        """Return the time by the store's clock: consent is asked for and given on several machines."""
        return self.clock.now() + self.store_ahead_seconds

    @property
    def metadata(self) -> JsonObject:
        """The application's metadata: of the session that a person runs, also for the agents that are called below it."""
        return self.state.metadata if self.above is None else self.above.metadata

    @property
    def is_deferring(self) -> bool:
        """Whether the run that is resumed has recorded nothing yet."""
        return bool(self._deferred)

    def defer(self, *events: AnyEvent) -> None:
        """Record these before whatever is recorded next; nothing where nothing is."""
        self._deferred += events

    async def record_deferred(self) -> None:
        """Record what was deferred: a session below is about to record something. It fails as `record` does."""
        events, self._deferred = self._deferred, ()
        if events:
            await self.record(*events, durable=True)

    def forget(self, call_id: str | None = None) -> None:
        """Record nothing of what was deferred; of one call where one is named."""
        kept = [event for event in self._deferred if call_id is not None and event.call_id != call_id]
        self._deferred = tuple(kept)

    async def record(self, *events: AnyEvent, durable: bool = False, holds: Callable[[], bool] | None = None) -> bool:
        """Append events as one commit; all of them or none. With `durable` they survive a power cut.

        Args:
            holds: Asked when it is their turn: whether they may still be recorded, although others have been since.

        Returns:
            Whether they were recorded.

        Raises:
            JournalError: The store failed; nothing was folded and nobody was notified.
            SessionConflict: Another process has written to this session.
            RunHandedOver: This process has handed the session over.
        """
        if events and self._deferred and self.above is not None and self.above.is_deferring:
            await self.above.record_deferred()
        async with self._order:
            if self.is_cut:
                raise RunHandedOver(f"The run of session {self.state.id!r} was handed over: any process may resume it.")
            if self._is_torn:
                await self._mend()
            if holds is not None and not holds():
                return False
            if events and self._deferred:
                events, self._deferred = (*self._deferred, *events), ()
            stamped = self._stamp(events, after=self.state.head)
            try:
                await self.journal.append(
                    self.state.id, stamped, state=self._run_status_after(stamped), durable=durable
                )
            except asyncio.CancelledError:
                self._is_torn = True  # stored or not: whoever records next looks
                raise
            self._apply(stamped)
        if self.is_heard:
            for event in stamped:
                self._tell(event)
        return True

    def _apply(self, events: Sequence[AnyEvent]) -> None:
        """Fold stored events, and raise Python's auditing event `treadle.recorded` for whoever watches the process."""
        for event in events:
            self.state.apply(event)
        sys.audit("treadle.recorded", self.state.id, self.journal, events)

    async def _mend(self) -> None:
        """Take in what a cancelled append has stored after all: else our numbers would not continue from the journal's."""
        stored = await self.journal.read(self.state.id, after=self.state.head)
        self._apply(stored)
        self._is_torn = False
        for event in stored:
            self._tell(event)

    @property
    def is_heard(self) -> bool:
        """Whether anybody may hear what is live."""
        return bool(self.subscribers) or self.live is not None

    def publish(self, event: AnyEvent) -> None:
        """Tell subscribers of something live, which is not journaled."""
        if self.is_heard:
            (stamped,) = self._stamp((event,), after=-1)
            self._tell(stamped)

    def _stamp(self, events: Sequence[AnyEvent], *, after: int) -> list[AnyEvent]:
        """Return events with what all events have, numbered from the one after that number."""
        replace, state, at = msgspec.structs.replace, self.state, self.clock.now()
        step, stamped, caller = state.step, [], state.caller
        call = {} if caller is None else {"parent_step": caller.parent_step, "parent_call": caller.parent_call}
        has_secrets = bool(KNOWN.needles)
        for seq, event in enumerate(events, after + 1):
            if has_secrets and type(event) in ECHOING:
                event = scrubbed(event)  # noqa: PLW2901 - the same event without them
            step = event.step or step  # a commit may begin a step: what follows in it belongs to that step
            stamped.append(
                replace(
                    event,
                    session_id=state.id,
                    run_id=self.run_id,
                    step=step,
                    seq=seq,
                    at=at,
                    parent=self.parent,
                    **call,
                )
            )
        return stamped

    def _run_status_after(self, events: Sequence[AnyEvent]) -> str:
        """Say what the session's state is once these events are stored, for the journal's list of sessions."""
        for event in reversed(events):
            if type(event) in _TURNS and (status := self._run_status_of(event)):
                return status
        state = self.state
        # Most commits; said here in full it costs every one of them two calls less.
        return (
            state.run_status
            if state.run is None or state.own_status == "deleted" or state.submitted
            else state.run.status
        )

    def _run_status_of(self, event: AnyEvent) -> str | None:
        match event:
            case RunStarted() | RunResumed() | RunPaused() | TaskSubmitted():
                return _STATUSES[type(event)]
            case RunFinished():
                return event.status
            case SessionRewound():
                return self.state.run_status_at(event.to)
            case TaskWithdrawn():
                return "active" if self.state.run is None else self.state.run.status
            case _:
                return "deleted" if isinstance(event, SessionChanged) and event.status == "deleted" else None

    def _tell(self, event: AnyEvent) -> None:
        if self.live is not None:
            self.live(event)
        if self.subscribers and type(event) in _OPEN:
            event = _own(event)
        for subscriber in tuple(self.subscribers):
            try:
                subscriber(event)
            except KeyboardInterrupt:
                raise
            except BaseException:
                # A listener cannot change the run (E02), be it by sys.exit(): its failure is the operator's to see.
                logger.exception("A subscriber raised at %s; the run continues", event.type)


_OPEN = frozenset(
    {
        ActionDecided,
        ApprovalAnswered,
        ApprovalRequested,
        CallDecided,
        ContextCompacted,
        ContractViolated,
        HistoryRepaired,
        ModelFinished,
        RunFinished,
        RunResumed,
        RunStarted,
        SessionChanged,
        ToolFinished,
        ToolInput,
        ToolResolved,
    }
)
"""Events that hold lists or objects, which the session's state holds too."""


def _own(value: Any) -> Any:
    """Return a value that shares no list and no object with this one: what a subscriber changes in it changes nothing else."""
    if isinstance(value, dict | list):
        return copied(value)
    if isinstance(value, tuple):
        made = tuple([_own(one) for one in value])
        return made if any(new is not old for new, old in zip(made, value, strict=True)) else value
    if not isinstance(value, msgspec.Struct):
        return value
    changed: dict[str, Any] = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        if isinstance(old, _HOLDING) and (new := _own(old)) is not old:
            changed[name] = new
    return msgspec.structs.replace(value, **changed) if changed else value


_HOLDING = (dict, list, tuple, msgspec.Struct)
