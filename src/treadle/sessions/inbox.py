"""Inbox: what other processes left for a session, turned into facts. Reads the inbox; writes only through the ledger."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    CompactionAsked,
    MessageAdded,
    ModeChanged,
    RulesGranted,
    ToolInput,
)
from treadle.messages import Message, user_message
from treadle.sessions.ledger import Ledger
from treadle.state import (
    Approval,
    CallState,
    InboxMessage,
    LeftAnswer,
    LeftCancellation,
    LeftCompaction,
    LeftInput,
    LeftMessage,
    LeftMode,
    LeftUnknown,
    answer_id,
    applies_to,
    resolution_message,
)
from treadle.tools import DEFAULT_MODE, MODES, Decision, Mode

__all__ = ["Inbox", "answer_events", "plan_ended"]

Prompt: TypeAlias = Callable[[Message, str], Awaitable[tuple[Decision | None, list[AnyEvent]]]]


class Inbox:
    """One session's inbox, seen from the process that runs it.

    Args:
        is_empty: Whether nothing lay in it a moment ago.
        every_seconds: How often a busy loop asks the store.
        prompt: Asked before a person's words are added; returns what keeps them out, or None, and what is recorded with them.
    """

    def __init__(
        self, ledger: Ledger, *, is_empty: bool = False, every_seconds: float = 0.25, prompt: Prompt | None = None
    ) -> None:
        self._ledger = ledger
        self._prompt = prompt
        self._every = every_seconds
        self._next = ledger.clock.monotonic() + every_seconds if is_empty else 0.0
        self._later: tuple[AnyEvent, ...] = ()
        self._superseded: frozenset[str] = frozenset()
        self._taking = asyncio.Lock()  # a change of mode is taken in once, by whoever looks first

    def nudge(self) -> None:
        """Look at once next time: something has just been left."""
        self._next = 0.0

    def add_later(self, events: Sequence[AnyEvent]) -> None:
        """Record these once no call is open: nothing comes between calls and their results."""
        self._later = (*self._later, *events)

    async def read(self, *, at_once: bool = False) -> LeftCancellation | None:
        """Take in what has arrived. Return the wish of somebody to cancel this run; None for none.

        A busy loop asks the store only now and then; `at_once` asks in any case.
        """
        state = self._ledger.state
        if state.resolutions and not state.has_open_calls and (untold := state.untold_resolutions()):
            await self._ledger.record(*map(resolution_message, untold), durable=True)
        if self._later and not state.has_open_calls:
            later, self._later = self._later, ()
            await self._ledger.record(*later)
        now = self._ledger.clock.monotonic()
        if not at_once and now < self._next:
            return None
        self._next = now + self._every
        left = await self._ledger.journal.inbox(self._ledger.state.id)
        await self._take_modes(left)
        waiting = [message for message in left if not isinstance(message, LeftMode | LeftUnknown)]
        if self._ledger.state.has_open_calls and any(isinstance(message, LeftMessage) for message in waiting):
            # Invariant: nothing comes between calls and their results, so a message waits for those of the open step.
            waiting = [message for message in waiting if not isinstance(message, LeftMessage)]
            self.nudge()
        if not waiting:
            return None
        cancels = {message.id: message for message in waiting if self._cancels(message)}
        facts = [fact for message in waiting for fact in await self._facts(message)]
        # Also where there are no facts: a run whose session was taken over is refused here, and must consume nothing. What it
        # takes for an answer to no question may answer one that it has not seen.
        await self._ledger.record(*facts, durable=True)
        await self._consume(message.id for message in waiting if message.id not in cancels)
        return _first_cancel(cancels.values())

    async def look(self) -> LeftCancellation | None:
        """Take in a change of mode, in the middle of whatever is under way. Return the wish of somebody to cancel this run.

        All else stays for the next `read`, which asks the store itself.
        """
        waiting = await self._ledger.journal.inbox(self._ledger.state.id)
        await self._take_modes(waiting)
        cancels = [message for message in waiting if self._cancels(message)]
        if any(not isinstance(message, LeftMode) and message not in cancels for message in waiting):
            self.nudge()
        return _first_cancel(cancels)

    async def _take_modes(self, left: Sequence[InboxMessage]) -> None:
        """Record changes of mode, in the order in which they were left: the last one holds."""
        known = [message for message in left if isinstance(message, LeftMode) and message.mode in MODES]
        if not known:
            return
        async with self._taking:
            state, events = self._ledger.state, list[AnyEvent]()
            before = state.mode
            for message in known:
                if message.id not in state.message_ids:
                    mode = next(mode for mode in MODES if mode == message.mode)
                    events.append(ModeChanged(mode=mode, before=before, by=message.by, message_id=message.id))
                    before = mode
            await self._ledger.record(*events, durable=True)
        await self._consume(message.id for message in known)

    async def drop_cancels(self, *, but_of: str | None = None, continues: bool = False) -> None:
        """Consume the cancellations whose runs have ended. A cancellation holds until then, over crashes and pauses.

        Args:
            but_of: A run that has not ended: what cancels it stays.
            continues: Whether that run continues now. Else a new one follows it: its cancellations mean nothing to the new one, and
                `drop_superseded` consumes them.
        """
        waiting = await self._ledger.journal.inbox(self._ledger.state.id)
        cancels = [message for message in waiting if isinstance(message, LeftCancellation)]
        if continues:
            kept = {message.id for message in cancels if but_of is not None and applies_to(message, but_of)}
        else:
            kept = {message.id for message in cancels if message.run_id == but_of}
            self._superseded = frozenset(kept)
        await self._consume(message.id for message in cancels if message.id not in kept)

    async def drop_superseded(self) -> None:
        """Consume the cancellations of the run that the new one has ended, which is durable now."""
        superseded, self._superseded = self._superseded, frozenset()
        await self._consume(superseded)

    def _cancels(self, message: InboxMessage) -> bool:
        return applies_to(message, self._ledger.run_id) and message.id not in self._superseded

    async def _consume(self, message_ids: Iterable[str]) -> None:
        ids = list(message_ids)
        if ids:
            await self._ledger.journal.consume(self._ledger.state.id, ids, self._ledger.state.head)

    async def _facts(self, message: InboxMessage) -> list[AnyEvent]:
        facts = self._known(message)
        if not facts or not isinstance(facts[0], MessageAdded) or self._prompt is None:
            return facts
        denied, beside = await self._prompt(facts[0].message, "steer")
        return beside if denied is not None else [*facts, *beside]

    def _known(self, message: InboxMessage) -> list[AnyEvent]:
        state = self._ledger.state
        match message:
            case LeftMessage() if message.id not in state.message_ids:
                return [MessageAdded(message=user_message(message.text), source="steer", message_id=message.id)]
            case LeftCompaction() if message.id not in state.message_ids:
                return [CompactionAsked(by=message.by, message_id=message.id)]
            case LeftInput() if (given := _given(message, state.open.get(message.call_id))) is not None:
                return [given]
            case LeftAnswer():
                return answer_events(message, state.pending_approvals(), mode=state.mode)
            case _:
                return []


def _first_cancel(cancels: Iterable[InboxMessage]) -> LeftCancellation | None:
    return next((message for message in cancels if isinstance(message, LeftCancellation)), None)


def answer_events(message: LeftAnswer, waiting: Sequence[Approval], *, mode: Mode | None = None) -> list[AnyEvent]:
    """Return the answer, and what follows from it. That of a call of another session is for that session to record.

    Args:
        mode: The session's mode, where a person answers: allowing a plan ends the mode `plan`.
    """
    approval = next((one for one in waiting if answer_id(one) == message.id), None)
    if approval is None:
        return []
    scope = message.scope if message.answer == "allow" and message.arguments is None and approval.rules else "call"
    answered = ApprovalAnswered(
        call_id=approval.call_id,
        approval_id=approval.id,
        answer=message.answer,
        reason=message.reason,
        approved_by=message.approved_by,
        arguments=message.arguments,
        given_at=message.at,
        interrupt=message.interrupt,
        scope=scope,
        expires_at=approval.expires_at if message.answer == "allow" and scope == "call" else None,
    )
    if approval.approval_type == "plan" and message.answer == "allow" and message.arguments is None and mode == "plan":
        return [answered, *plan_ended(message.approved_by, message.id)]
    if scope == "call":
        return [answered]
    granted = RulesGranted(
        call_id=approval.call_id,
        rules=approval.rules,
        scope=scope,
        by=message.approved_by,
        approval_id=approval.id,
    )
    return [answered, granted]


def plan_ended(by: str, answer: str) -> list[AnyEvent]:
    """Return the change of mode that a person's consent to a plan makes. None for a program's.

    An edited plan is allowed once its arguments have been found valid: until then the request may have to wait again.

    Args:
        by: Who has allowed it.
        answer: The id of the answer.
    """
    if by.startswith(("approver:", "policy:")):
        return []
    return [ModeChanged(mode=DEFAULT_MODE, before="plan", by=by, message_id=f"{answer}_mode")]


def _given(message: LeftInput, call: CallState | None) -> ToolInput | None:
    """Return what a call that waits was given; None where it does not wait any more, or has been given just this."""
    if call is None or call.suspended is None or any(one.message_id == message.id for one in call.inputs):
        return None
    return ToolInput(
        call_id=message.call_id,
        tool=call.call.name,
        value=message.value,
        by=message.by,
        message_id=message.id,
        given_at=message.at,
    )
