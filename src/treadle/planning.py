"""Planning: what becomes of each call of a batch: refused, denied, asked about, adopted, or ready to run.

Reads answers that persons gave and counts repeats; starts nothing.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.checking import Checked, Checker, Decided, Refused
from treadle.early import EarlyCalls
from treadle.events import AnyEvent, ApprovalRequested, CallDecided, ModelFinished, RepeatNoticed
from treadle.guards import Guards
from treadle.ledger import Ledger
from treadle.messages import ToolCall
from treadle.outcomes import Outcomes
from treadle.ports import Decision, DecisionFailure, DecisionKind
from treadle.runtime.interrupts import Interrupt
from treadle.runtime.observations import failed_result
from treadle.runtime.permission import APPROVAL_LIFETIME_SECONDS, action_digest
from treadle.state import BUDGET_EXCEEDED, CallState, streak_key
from treadle.stops import Stop, StopReason
from treadle.tools import CallStatus, CheckedCall, JsonObject, ToolResult

__all__ = ["Batch", "Plan", "Planner", "abandoned", "unknown_outcome"]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one step that have no result yet."""

    calls: Sequence[CallState]
    step: int
    finished: ModelFinished | None = None
    """The response that proposed them, where it is not recorded yet: it enters the same commit as the decisions."""
    allowance: int | None = None
    """How many of the calls the budget still covers; None for all."""
    exhausted: str | None = None
    """The budget that the response itself has used up, so that none of its calls may start; None when there is none."""
    notice: dict[str, Any] | None = None
    """Fields that the last result gains because a limit is reached."""
    refusal: str | None = None
    """Why no call of this response may start (it was cut off, or calling was not allowed); None when they may."""
    cut_calls: frozenset[str] = frozenset()
    """Ids of calls whose end may be missing: what came of their arguments may be another action."""
    failure: DecisionFailure | None = None
    """Why the response holds no usable decision; its one call stands for that."""
    stop: Stop | None = None
    """Why the run ends after this batch, none of whose calls may start; None when that depends on the calls."""


class Plan(msgspec.Struct, kw_only=True):
    """What becomes of each call of the batch, in call order."""

    outcomes: Outcomes
    events: list[AnyEvent] = msgspec.field(default_factory=list)
    ready: list[CheckedCall] = msgspec.field(default_factory=list)
    adopted: list[tuple[ToolCall, CheckedCall]] = msgspec.field(default_factory=list)
    stop: Stop | None = None


class Planner:
    """Plans the batches of one run."""

    def __init__(
        self, *, ledger: Ledger, checker: Checker, early: EarlyCalls, interrupt: Interrupt, guards: Guards
    ) -> None:
        self._ledger = ledger
        self._checker = checker
        self._early = early
        self._interrupt = interrupt
        self._guards = guards

    async def plan(self, batch: Batch, outcomes: Outcomes) -> Plan:
        """Return one decision a call, in call order. Nothing has run yet."""
        plan = Plan(outcomes=outcomes, stop=batch.stop)
        run = self._ledger.state.run
        repeats = _Repeats() if run is None else _Repeats(key=run.streaks.repeated, count=run.streaks.repeats)
        for index, state in enumerate(batch.calls):
            call = state.call
            if (failure := batch.failure) is not None:
                result = failed_result(
                    call, CallStatus.FAILED, failure.message, code=failure.code, details=failure.details
                )
                self._refuse(plan, result, state.position, rule=failure.code)
                continue
            if (early := self._early.find(call)) is not None:
                repeats.add(streak_key(call, early.digest))
                plan.adopted.append((call, early))
                self._notice_repeat(plan, call, early.digest, repeats.count)
                continue
            reason = self._skip_reason(batch, index, call, plan)
            checked = None if reason is not None else await self._check(state, batch)
            if checked is None:
                code, message = reason or _STOPPED
                self._refuse(plan, _unstarted(state, CallStatus.SKIPPED, message, code), state.position)
                continue
            repeats.add(streak_key(call, checked.call.digest if isinstance(checked, Decided) else ""))
            self._route(plan, state, checked, repeats.count)
        return plan

    def _skip_reason(self, batch: Batch, index: int, call: ToolCall, plan: Plan) -> tuple[str, str] | None:
        if batch.refusal is not None:
            return "not_started", batch.refusal
        if call.id in batch.cut_calls:
            return "not_started", "Not executed: this call was cut off before its end. Issue it again."
        if batch.allowance is not None and index >= batch.allowance:
            return BUDGET_EXCEEDED, _used_up("max_tool_calls")
        if plan.stop is not None:
            return "run_stopped", "Not executed: the run stops here."
        if self._interrupt.stop is not None:
            return _STOPPED
        return None

    async def _check(self, state: CallState, batch: Batch) -> Checked | None:
        """Return the checked call with a person's word on it, where there is one; None when the run was stopped meanwhile."""
        checked = await self._checked(state, batch)
        answer = state.approval.answer if state.approval is not None else None
        if checked is None or answer is None or isinstance(checked, Refused):
            return checked
        if answer.answer == "deny":
            return _ruled(checked, DecisionKind.DENY, state)
        if not self._covers(state, checked):
            return checked  # given too late, or for another action: it is asked about again
        if answer.arguments is None:
            return _ruled(checked, DecisionKind.ALLOW, state)
        edited = await self._checked(state, batch, edited=answer.arguments)
        if not isinstance(edited, Decided) or edited.call.call.arguments != _raw(answer.arguments):
            return edited  # invalid; or an interceptor made it another action than the one consented to
        return _ruled(edited, DecisionKind.ALLOW, state)

    async def _checked(self, state: CallState, batch: Batch, *, edited: JsonObject | None = None) -> Checked | None:
        """Check a call. A policy or an interceptor that hangs does not outlive an interrupt."""
        if batch.exhausted is not None:
            refused = await self._checker.refusal(state.call, position=state.position, step=batch.step)
            return refused or _unpaid(state, batch.exhausted)
        if edited is None and (known := self._early.checked(state.call)) is not None:
            return known
        checking = self._checker.check(state.call, position=state.position, step=batch.step, edited=edited)
        if not self._checker.may_wait:
            return await checking
        with self._interrupt.cutting():
            return await checking
        return None

    def _route(self, plan: Plan, state: CallState, checked: Checked, count: int) -> None:
        """Send a checked call where its decision says."""
        limit = self._guards.repeats
        is_invalid = isinstance(checked, Refused) and checked.result.status is not CallStatus.UNKNOWN_TOOL
        if limit is not None and not is_invalid:
            self._notice_repeat(plan, state.call, checked.call.digest if isinstance(checked, Decided) else "", count)
            if count >= limit:
                return self._stop_repeating(plan, state, checked, count)
        if isinstance(checked, Refused):
            return self._refuse(plan, checked.result, state.position, rule=checked.rule)
        match checked.decision.kind:
            case DecisionKind.ALLOW:
                plan.events.append(checked.event())
                if (kept := self._early.take(checked.call)) is not None:
                    plan.adopted.append((state.call, kept))
                else:
                    plan.ready.append(checked.call)
            case DecisionKind.ASK:
                plan.events.append(checked.event())
                self._request(plan, state, checked)
            case _:
                result = unknown_outcome(state.call) if _may_have_acted(state) else _denied(checked)
                plan.events.extend((checked.event(), plan.outcomes.finished(state.call, result)))
        return None

    def _notice_repeat(self, plan: Plan, call: ToolCall, digest: str, count: int) -> None:
        if count > 1:
            plan.events.append(RepeatNoticed(call_id=call.id, tool=call.name, digest=digest, count=count))

    def _stop_repeating(self, plan: Plan, state: CallState, checked: Checked, count: int) -> None:
        name = state.call.name
        message = f"{name} was called {count} times in a row with the same arguments; the last call was not run."
        digest = checked.call.digest if isinstance(checked, Decided) else ""
        details = {"tool": name, "arguments_digest": digest, "count": count}
        self._refuse(
            plan,
            failed_result(state.call, CallStatus.SKIPPED, message, code="repeated_tool_call", details=[details]),
            state.position,
            rule="guard repeats",
            digest=digest,
        )
        plan.stop = Stop(reason=StopReason.REPEATED_TOOL_CALL, message=message, details=details)

    def _refuse(self, plan: Plan, result: ToolResult, position: int, *, rule: str = "", digest: str = "") -> None:
        decided = CallDecided(
            call_id=result.call_id,
            tool=result.name,
            decision="none",
            rule=rule or result.code or result.status.value,
            position=position,
            digest=digest,
        )
        call = ToolCall(id=result.call_id, name=result.name, arguments="")
        plan.events.extend((decided, plan.outcomes.finished(call, result)))

    # --- consent

    def _covers(self, state: CallState, checked: Decided) -> bool:
        """Whether the consent was given in time and for this very action."""
        approval = state.approval
        if approval is None or approval.answer is None or approval.answer.at > approval.expires_at:
            return False
        return action_digest(self._ledger.state.id, checked.call) == approval.digest

    def _request(self, plan: Plan, state: CallState, decided: Decided) -> None:
        """Ask for consent, unless the very same question is open already."""
        now = self._ledger.clock.now()
        digest = action_digest(self._ledger.state.id, decided.call)
        pending = state.approval
        if pending is not None and pending.answer is None and pending.digest == digest and now < pending.expires_at:
            return
        plan.events.append(
            ApprovalRequested(
                call_id=state.call.id,
                approval_id="ap_" + self._ledger.randomness.token(),
                tool=decided.call.name,
                arguments=decided.call.arguments,
                digest=digest,
                effect=decided.call.effect,
                expires_at=now + APPROVAL_LIFETIME_SECONDS,
                rule=decided.decision.rule,
                reason=decided.decision.reason,
            )
        )


def _used_up(budget: str) -> str:
    return f"Not executed: the budget {budget} is used up."


def _unpaid(state: CallState, budget: str) -> Refused:
    result = _unstarted(state, CallStatus.SKIPPED, _used_up(budget), BUDGET_EXCEEDED)
    return Refused(result=result, position=state.position, rule=BUDGET_EXCEEDED)


_STOPPED = ("run_stopped", "Not executed: the run was stopped.")


class _Repeats(msgspec.Struct):
    """How often the last call was proposed in a row."""

    key: str = ""
    count: int = 0

    def add(self, key: str) -> None:
        self.count = self.count + 1 if key == self.key else 1
        self.key = key


def unknown_outcome(call: ToolCall) -> ToolResult:
    """Return the result of a call that may have acted, and nobody knows."""
    message = (
        f"{call.name} had started when the run broke off. Its outcome is unknown: it may have been carried out. "
        "Check before you repeat it."
    )
    extra = {"outcome": "unknown"}
    return failed_result(call, CallStatus.OUTCOME_UNKNOWN, message, extra=extra, may_have_acted=True)


def abandoned(state: CallState) -> ToolResult:
    """Return the result of a call that was left open: unknown where it may have acted, cancelled where it did not."""
    message = "Not executed: the run went on without this call."
    return _unstarted(state, CallStatus.CANCELLED, message, "superseded")


def _unstarted(state: CallState, status: CallStatus, message: str, code: str) -> ToolResult:
    """Return the result of a call that will not start (again)."""
    return (
        unknown_outcome(state.call) if _may_have_acted(state) else failed_result(state.call, status, message, code=code)
    )


def _may_have_acted(state: CallState) -> bool:
    return state.started is not None and not state.started.effect.is_read


def _ruled(checked: Decided, kind: DecisionKind, state: CallState) -> Decided:
    """Put a person's word in the place of the policy's. It cannot lift what the policy forbids."""
    approval = state.approval
    assert approval is not None
    assert approval.answer is not None
    if checked.decision.kind in (DecisionKind.DENY, DecisionKind.SANDBOX):
        return checked
    decision = Decision(kind=kind, rule=f"approval {approval.id}", reason=approval.answer.reason)
    return msgspec.structs.replace(checked, decision=decision)


def _raw(arguments: JsonObject) -> str:
    return msgspec.json.encode(arguments).decode()


def _denied(decided: Decided) -> ToolResult:
    decision, call = decided.decision, decided.call.call
    if decision.kind == DecisionKind.SANDBOX:
        message = f"{call.name} may run in a sandbox only, and none is available here."
        return failed_result(call, CallStatus.DENIED, message, code="sandbox_unavailable")
    reason = f": {decision.reason}" if decision.reason else "."
    return failed_result(
        call,
        CallStatus.DENIED,
        f"{call.name} was denied{reason}",
        code="permission_denied",
        extra={"reason": decision.reason, "rule": decision.rule},
    )
