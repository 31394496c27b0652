"""Reports: what a run came to, as a value and as the one JSON object that people and programs read. Decides nothing."""

from typing import Any, Generic

import msgspec
from typing_extensions import TypeVar

from treadle.budgets import Spent, plain
from treadle.errors import shown
from treadle.fields import Documented
from treadle.messages import Message, Usage
from treadle.sessions.session import Session
from treadle.state import Approval, CallRecord, ChildState, Denial, Doubt, SessionState
from treadle.stops import Status, Stop, StopReason

__all__ = ["RunResult", "conclude"]


Output = TypeVar("Output", default=Any)
"""The type of an agent's answer."""


class RunResult(msgspec.Struct, Documented, Generic[Output], frozen=True, kw_only=True):
    """The end of one run, with everything that was done until then. An abnormal stop is a value, not an exception.

    Example:
        result = await agent.run("Read the invoice")    # RunResult[Invoice], for Agent(..., output=Invoice)
        if result.output is not None:
            print(result.output.total)
    """

    session_id: str
    """Id of the session."""
    session: Session
    """The session of the run, so that a paused or stopped run can be resumed: `agent.resume(result.session)`."""
    stop: Stop
    """Why the run ended."""
    text: str
    """The answer, or the last text before an abnormal stop."""
    output: Output | None = None
    """The structured answer, in the agent's output type, or the payload of a tool that ended the run; None without one."""
    profile: str | None = None
    """The agent's profile, such as `research`; None without one."""
    spent: Spent = Spent()
    """What the run has used: turns, calls, tokens, cost and time."""
    steps: int = 0
    """Steps of the run: model responses, each with the results of its calls."""
    model_retries: int = 0
    """Model calls that were tried again, those that led to an answer included."""
    tool_calls: tuple[CallRecord, ...] = ()
    """Every call of the run, in order, with its status."""
    tool_seconds: float = 0.0
    """How long the calls of the run took, added up."""
    tool_wall_seconds: float = 0.0
    """How long any of them was under way: their critical path. What parallel calls have gained is the difference."""
    children: tuple[ChildState, ...] = ()
    """Agents that carried out calls of the run, in the order in which they began."""
    approvals: tuple[Approval, ...] = ()
    """Requests for consent that wait for an answer."""
    denials: tuple[Denial, ...] = ()
    """Calls that a policy or a person denied."""
    in_doubt: tuple[Doubt, ...] = ()
    """Calls of the session that may have acted, whose outcome nobody knows, and that no person has resolved."""
    running_on: tuple[str, ...] = ()
    """Ids of calls that were given up and still ran when the run ended: a thread can be asked to stop, not stopped."""
    messages: tuple[Message, ...] = ()
    """The whole transcript of the session."""
    degraded: bool = False
    """Whether the journal failed during the run, which continued in memory where that was safe."""
    unstored: int = 0
    """Events that the journal lacks, because it was not back when the run ended. They are lost with this process."""

    def __repr__(self) -> str:
        """Return how it ended, and the beginning of the answer."""
        said = shown(self.text) if self.output is None else shown(self.output)
        return (
            f"<RunResult {self.reason} of {self.session_id}, {self.steps} steps, {len(self.tool_calls)} calls: {said}>"
        )

    @property
    def reason(self) -> StopReason:
        return self.stop.reason

    @property
    def status(self) -> Status:
        return self.stop.reason.status

    @property
    def completed(self) -> bool:
        return self.stop.reason.is_completed

    @property
    def message(self) -> str:
        """One sentence on how the run ended, for a person."""
        return self.stop.message

    @property
    def next_safe_action(self) -> str:
        """What a program that acts for a user may safely do next."""
        action = self.reason.next_safe_action
        if self.reason is StopReason.INPUT_REQUIRED:
            action = f"{action} {self.message}"
        if self._has_met_deadline:
            action = "Continue with a later deadline, once the person who gave the task agrees."
        return self._after_doubts(action)

    @property
    def next_step(self) -> str:
        """What the person who reads it may do next."""
        step = "Give a later deadline to continue." if self._has_met_deadline else self.reason.next_step
        return self._after_doubts(step)

    @property
    def _has_met_deadline(self) -> bool:
        """Whether a deadline ended the run: a larger limit would not help it."""
        return self.reason is StopReason.BUDGET_EXCEEDED and "deadline" in (self.stop.details or {})

    def _after_doubts(self, action: str) -> str:
        if not self.in_doubt:
            return action
        calls = ", ".join(f"{doubt.tool} ({doubt.call_id})" for doubt in self.in_doubt)
        first = f"Find out how {calls} ended, and record it: `treadle resolve` or session.resolve()."
        return first if self.completed else f"{first} {action}"

    @property
    def usage(self) -> Usage:
        return self.spent.usage

    def report(self) -> dict[str, Any]:
        """Return the report as plain JSON values: the object of the command line's `--json`."""
        reached, cost = self.stop.reached, self.spent.cost
        return {
            "status": self.status.value,
            "reason": self.reason.value,
            "completed": self.completed,
            "next_safe_action": self.next_safe_action,
            "message": self.message,
            "signals": [msgspec.to_builtins(one) for one in self.stop.signals],
            "details": self.stop.details,
            "phase": self.stop.phase,
            "budget": reached.budget if reached else None,
            "used": reached.used if reached else None,
            "limit": reached.limit if reached else None,
            "profile": self.profile,
            "text": self.text,
            "output": self.stop.output,
            "session_id": self.session_id,
            "degraded": self.degraded,
            "unstored": self.unstored,
            "usage": _usage(self.usage),
            "cached_share": _cached_share(self.usage),
            "cost": None if cost is None else str(plain(cost)),
            "wall_seconds": round(self.spent.wall_seconds, 3),
            "steps": self.steps,
            "retries": {
                "model": self.model_retries,
                "tool": sum(max(call.attempts - 1, 0) for call in self.tool_calls),
            },
            "tool_calls": [msgspec.structs.asdict(call) for call in self.tool_calls],
            "failed_tool_calls": sum(call.status != "ok" for call in self.tool_calls),
            "tool_seconds": {
                "sum": round(self.tool_seconds, 3),
                "critical_path": round(self.tool_wall_seconds, 3),
                "gained": round(self.tool_seconds - self.tool_wall_seconds, 3),
            },
            "children": [_child(child) for child in self.children],
            "approvals": [_approval(approval) for approval in self.approvals],
            "in_doubt": [msgspec.to_builtins(doubt) for doubt in self.in_doubt],
            "running_on": list(self.running_on),
            "denials": [msgspec.structs.asdict(denial) for denial in self.denials],
        }


def _cached_share(usage: Usage) -> float | None:
    """Return which part of the input came from the provider's cache; None where nothing was sent."""
    return round(usage.cached_input_tokens / usage.input_tokens, 3) if usage.input_tokens else None


def _usage(usage: Usage) -> dict[str, Any]:
    """Return the counts that every report has, and tokens written to a cache where there are any."""
    counts = msgspec.structs.asdict(usage)
    if not usage.cache_written_tokens:
        del counts["cache_written_tokens"]
    return counts


def _approval(approval: Approval) -> dict[str, Any]:
    return {
        "id": approval.id,
        "call_id": approval.call_id,
        "tool": approval.tool,
        "arguments": approval.arguments,
        "digest": approval.digest,
        "expires_at": approval.expires_at,
        "path": list(approval.path),
    }


def _child(child: ChildState) -> dict[str, Any]:
    cost = child.spent.cost
    return {
        "agent": child.agent,
        "call_id": child.call_id,
        "session_id": child.session_id,
        "status": child.status,
        "reason": child.reason,
        "usage": _usage(child.spent.usage),
        "cost": None if cost is None else str(plain(cost)),
        "steps": child.spent.model_turns,
        "tool_calls": child.spent.tool_calls,
    }


def conclude(state: SessionState, stop: Stop, session: Session, *, has_price: bool) -> RunResult:
    """Make the result of the run that has just ended."""
    run = state.run
    assert run is not None
    spent = run.spent if has_price else msgspec.structs.replace(run.spent, cost=None)
    return RunResult(
        session_id=state.id,
        session=session,
        stop=stop,
        text=run.text,
        output=stop.output,
        profile=run.profile,
        spent=spent,
        steps=run.steps,
        model_retries=run.model_retries,
        tool_calls=state.call_records(),
        tool_seconds=run.tool_seconds,
        tool_wall_seconds=run.tool_wall_seconds,
        children=tuple([msgspec.structs.replace(child) for child in run.children.values()]) if run.children else (),
        approvals=state.pending_approvals(),
        denials=tuple(run.denials),
        in_doubt=state.open_doubts(),
        running_on=tuple(call.id for future, call in session.abandoned.items() if not future.done()),
        messages=tuple(state.messages),
        degraded=session.is_degraded,
        unstored=session.unstored,
    )
