"""Suspension: how a started call says that it waits, and what its session records of that. Waits for nothing itself."""

from collections.abc import Sequence

from treadle.budgets import epoch_seconds
from treadle.events import ApprovalRequested, ToolSuspended
from treadle.fields import checked
from treadle.state.calls import Approval

__all__ = ["Suspended"]


class Suspended(Exception):
    """Raised by a tool whose call waits for something outside. Its run pauses, and `resume` starts the call again.

    The call keeps its idempotency key. It was not lost with its process, so nobody has to ask what happened to it.

    Args:
        waits_for: What it waits for, in words for people.
        approvals: Requests for consent that it waits for, each of the session that asks.
        due_at: When it is worth starting the call again, in seconds since 1970, for whoever resumes what is due
            (`journal.due`); None where somebody has to do something first.
    """

    @checked
    def __init__(self, waits_for: str, *, approvals: Sequence[Approval] = (), due_at: float | None = None) -> None:
        super().__init__(waits_for)
        self.waits_for = waits_for
        self.approvals = tuple(approvals)
        self.due_at = due_at

    def event(self, *, call_id: str, tool: str) -> ToolSuspended:
        """Return what the session of the call records."""
        return ToolSuspended(
            call_id=call_id,
            tool=tool,
            reason="approval_required" if self.approvals else "input_required",
            waits_for=self.waits_for,
            asks=tuple(map(_asked, self.approvals)),
            due_at=None if self.due_at is None else epoch_seconds(self.due_at),
        )


def _asked(approval: Approval) -> ApprovalRequested:
    return ApprovalRequested(
        session_id=approval.session_id,
        call_id=approval.call_id,
        at=approval.requested_at,
        approval_id=approval.id,
        tool=approval.tool,
        arguments=approval.arguments,
        digest=approval.digest,
        effect=approval.effect,
        expires_at=approval.expires_at,
        rule=approval.rule,
        reason=approval.reason,
        replaces=approval.replaces,
        approval_type=approval.approval_type,
        action=approval.action,
        target=approval.target,
        risk=approval.risk,
        preview=approval.preview,
        expected_result=approval.expected_result,
        rollback=approval.rollback,
        scope=approval.scope,
        rules=approval.rules,
        path=approval.path,
        edited=approval.edited,
    )
