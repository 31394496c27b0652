"""Suspension: how a started call says that it waits, and what its session records of that. Waits for nothing itself."""

from collections.abc import Sequence

from treadle.events import ApprovalRequested, ToolSuspended
from treadle.state.calls import Approval

__all__ = ["Suspended"]


class Suspended(Exception):
    """Raised by a tool whose call waits for something outside. Its run pauses, and `resume` starts the call again.

    The call keeps its idempotency key. It was not lost with its process, so nobody has to ask what became of it.

    Args:
        waits_for: What it waits for, in words for people.
        approvals: Requests for consent that it waits for, each of the session that asks.
    """

    def __init__(self, waits_for: str, *, approvals: Sequence[Approval] = ()) -> None:
        super().__init__(waits_for)
        self.waits_for = waits_for
        self.approvals = tuple(approvals)

    def event(self, *, call_id: str, tool: str, step: int) -> ToolSuspended:
        """Return what the session of the call records."""
        return ToolSuspended(
            step=step,
            call_id=call_id,
            tool=tool,
            reason="approval_required" if self.approvals else "input_required",
            waits_for=self.waits_for,
            asks=tuple(map(_asked, self.approvals)),
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
    )
