"""Inbox: what other processes left for a session, turned into facts. Reads the inbox; writes only through the ledger."""

from collections.abc import Sequence

from treadle.events import AnyEvent, ApprovalAnswered, MessageAdded
from treadle.ledger import Ledger
from treadle.messages import user_message
from treadle.ports import InboxMessage
from treadle.state import Approval

__all__ = ["Inbox"]


class Inbox:
    """One session's inbox, seen from the process that runs it.

    Args:
        is_empty: Whether nothing lay in it a moment ago.
        every_seconds: How often a busy loop asks the store.
    """

    def __init__(self, ledger: Ledger, *, is_empty: bool = False, every_seconds: float = 0.25) -> None:
        self._ledger = ledger
        self._every = every_seconds
        self._next = ledger.clock.monotonic() + every_seconds if is_empty else 0.0

    def nudge(self) -> None:
        """Look at once next time: something has just been left."""
        self._next = 0.0

    async def read(self, *, at_once: bool = False) -> bool:
        """Take in what has arrived. Return whether somebody asked to cancel.

        A busy loop asks the store only now and then; `at_once` asks in any case.
        """
        now = self._ledger.clock.monotonic()
        if not at_once and now < self._next:
            return False
        self._next = now + self._every
        waiting = await self._ledger.journal.inbox(self._ledger.state.id)
        if not waiting:
            return False
        facts = [fact for message in waiting if (fact := self._fact(message)) is not None]
        if facts:
            await self._ledger.record(*facts, durable=True)
        await self._ledger.journal.consume(
            self._ledger.state.id, [message.id for message in waiting], self._ledger.state.head
        )
        return any(message.kind == "cancel" for message in waiting)

    async def take_cancel(self) -> bool:
        """Return whether somebody asked to cancel, in the middle of whatever is under way. Leaves all other messages."""
        journal, session_id = self._ledger.journal, self._ledger.state.id
        self._next = self._ledger.clock.monotonic() + self._every  # what comes after this look nudges us
        waiting = await journal.inbox(session_id)
        cancels = [message.id for message in waiting if message.kind == "cancel"]
        if len(waiting) > len(cancels):
            self.nudge()
        if cancels:
            await journal.consume(session_id, cancels, self._ledger.state.head)
        return bool(cancels)

    def _fact(self, message: InboxMessage) -> AnyEvent | None:
        state = self._ledger.state
        match message.kind:
            case "message" if message.id not in state.message_ids:
                text = str(message.body.get("text", ""))
                return MessageAdded(message=user_message(text), source="steer", message_id=message.id)
            case "answer":
                return _answered(message, state.pending_approvals())
            case _:
                return None


def _answered(message: InboxMessage, waiting: Sequence[Approval]) -> ApprovalAnswered | None:
    body = message.body
    approval = next((one for one in waiting if one.id == body.get("approval_id")), None)
    arguments = body.get("arguments")
    if approval is None:
        return None
    return ApprovalAnswered(
        call_id=approval.call_id,
        approval_id=approval.id,
        answer="allow" if body.get("answer") == "allow" else "deny",
        reason=str(body.get("reason", "")),
        approved_by=str(body.get("approved_by", "person")),
        arguments=arguments if isinstance(arguments, dict) else None,
    )
