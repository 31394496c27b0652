"""Consent: when a person is asked about a call, and what the answer covers. Values only: asks nobody, records nothing."""

from typing import Literal

import msgspec

from treadle.canonical import copied, digest, encoded
from treadle.events import ActionDecided, ApprovalAnswered, ApprovalRequested, CallDecided, DoubtBelow
from treadle.fields import explained
from treadle.permissions.protection import PROTECTED
from treadle.permissions.reviews import offered_rules, review_of, start_of
from treadle.permissions.views import facts_in
from treadle.ports import Decision, DecisionKind, SessionView
from treadle.state import IN_DOUBT, Approval, CallState, Doubt
from treadle.tools import ApprovalType, CheckedCall, JsonObject, Tool

__all__ = [
    "action_digest",
    "answer_in_doubt",
    "answer_of",
    "asked_besides",
    "asked_instead",
    "changed_edit",
    "covers",
    "dangerous_edit",
    "edit_of",
    "equals_doubt",
    "has_started_before",
    "is_allowed",
    "is_answered",
    "is_asked_about",
    "is_denied",
    "is_new_danger",
    "may_be_repeated",
    "recorded_decision",
    "request",
    "ruled",
    "still_boxed",
    "unfit_edit",
    "was_reported_twice",
]

_EQUALS_DOUBT = "equals a call in doubt"
_REPORTED_TWICE = "possible repetition of a call"
_UNFIT_EDIT = "edited arguments"

_KINDS: dict[str, ApprovalType] = {
    IN_DOUBT: "in_doubt",
    _EQUALS_DOUBT: "in_doubt",
    _REPORTED_TWICE: "possible_repetition",
    _UNFIT_EDIT: "unfit_edit",
}
"""What is asked, by the rule that asks."""

# --- what a consent is bound to


def action_digest(session_id: str, call: CheckedCall) -> str:
    """Return what a consent is bound to: session, call, tool, arguments, effect, the tool's schema, and what a path leads to.

    A draft runs under the name of the call that commits; its own digest tells the two apart.
    """
    parts = [session_id, call.id, call.name, call.arguments, call.effect.value, _schema_digest(call.tool)]
    is_draft = call.digest != digest([call.name, encoded(call.arguments)])
    # The first name is relative to the root, which may lie elsewhere on another machine.
    named = {key: names[0] for key, names in call.named.items() if call.arguments.get(key) not in names}
    if named or call.folder != ".":
        parts += [named, call.folder]
    return digest([*parts, call.digest] if is_draft else parts)


def _schema_digest(tool: Tool) -> str:
    return digest([tool.parameters, tool.output_schema])


# --- the answer


def answer_of(state: CallState) -> ApprovalAnswered | None:
    """Return what a person has answered about a call; None where nobody has."""
    return None if state.approval is None else state.approval.answer


def edit_of(state: CallState) -> JsonObject | None:
    """Return the arguments that a person has put in place of the model's, in the last answer or in one before; None where nobody has."""
    answer = answer_of(state)
    if answer is not None and answer.arguments is not None:
        return answer.arguments
    return None if state.approval is None else state.approval.edited


def is_allowed(state: CallState) -> bool:
    """Whether a person has allowed a call."""
    answer = answer_of(state)
    return answer is not None and answer.answer == "allow"


def is_denied(state: CallState) -> bool:
    """Whether a person has denied a call."""
    answer = answer_of(state)
    return answer is not None and answer.answer == "deny"


@explained
def is_answered(call: CheckedCall, session: SessionView) -> bool:
    """Whether a person has answered the question about a call already, before its run was resumed."""
    state = session.state.open.get(call.id)
    return state is not None and answer_of(state) is not None


def covers(state: CallState, call: CheckedCall, session_id: str) -> bool:
    """Whether the answer was given in time and for this very action."""
    approval = state.approval
    return approval is not None and approval.is_answered_in_time and approval.digest == action_digest(session_id, call)


def is_new_danger(state: CallState, decision: Decision) -> bool:
    """Whether a call reaches a protected file of which the person who allowed it was not told."""
    if decision.rule != PROTECTED:
        return False
    told = {PROTECTED: decision.reason, _UNFIT_EDIT: dangerous_edit(decision.reason).reason}
    asked = state.approval
    return asked is None or asked.rule not in told or not asked.reason.startswith(told[asked.rule])


def answer_in_doubt(state: CallState, call: CheckedCall, session_id: str) -> Literal["allow", "deny"] | None:
    """Return the answer to the question whether to run the call again, given in time and since it last started."""
    answer, started = answer_of(state), state.started
    if answer is None or started is None or not _is_about_doubt(state.approval) or answer.seq < started.seq:
        return None
    return answer.answer if covers(state, call, session_id) else None


def ruled(decision: Decision, approval: Approval) -> Decision:
    """Return a person's decision in place of the policy's. It cannot lift what the policy forbids, nor its sandbox."""
    answer = approval.answer
    assert answer is not None
    is_lower = decision.kind in (DecisionKind.SANDBOX, DecisionKind.DRAFT)
    if decision.kind == DecisionKind.DENY or (is_lower and answer.answer == "allow"):
        return decision
    allowed = DecisionKind.SANDBOX if decision.consent == "sandbox" else DecisionKind.ALLOW
    return msgspec.structs.replace(
        decision,
        kind=allowed if answer.answer == "allow" else DecisionKind.DENY,
        rule=f"approval {approval.id}",
        reason=answer.reason,
        scope="call",
        by=answer.approved_by,
        interrupt=answer.interrupt,
    )


# --- what was decided before


def recorded_decision(state: CallState) -> Decision | None:
    """Return the decision on a call that its session has recorded, before a pause or a crash; None where there is none."""
    decided = state.decision
    if decided is None or decided.decision not in set(DecisionKind):
        return None
    return msgspec.structs.replace(
        decision_of(decided),
        arguments=copied(decided.arguments),
        message=decided.message,
        interrupt=decided.interrupt,
    )


def decision_of(event: ActionDecided | CallDecided) -> Decision:
    """Return the decision that an event tells: what, by which rule and whom, in which mode."""
    return Decision(
        kind=DecisionKind(event.decision),
        rule=event.rule,
        reason=event.reason,
        scope=event.scope,
        by=event.by,
        mode=event.mode,
    )


def still_boxed(decision: Decision, state: CallState) -> Decision:
    """Keep a call in the sandbox that has started there: what is decided anew after a crash can only be stricter."""
    started = state.started
    if started is None or started.decision != DecisionKind.SANDBOX:
        return decision
    if decision.kind == DecisionKind.ALLOW:
        box = {"kind": DecisionKind.SANDBOX, "rule": started.rule, "scope": started.scope, "by": started.by}
        return msgspec.structs.replace(decision, **box)
    return msgspec.structs.replace(decision, consent="sandbox")


# --- the question


def is_asked_about(
    state: CallState, call: CheckedCall, session_id: str, *, now: float, is_in_doubt: bool = False
) -> bool:
    """Whether the very same question is open already.

    Args:
        now: The store's time in seconds since 1970.
        is_in_doubt: Whether the question is to run the call again.
    """
    approval = state.approval
    if approval is None or approval.answer is not None or (is_in_doubt and not _is_about_doubt(approval)):
        return False
    return now < approval.expires_at and approval.digest == action_digest(session_id, call)


def request(
    state: CallState,
    call: CheckedCall,
    decision: Decision,
    *,
    session: SessionView,
    token: str,
    expires_at: float,
    edited: JsonObject | None = None,
) -> ApprovalRequested:
    """Return the request for a person's consent to exactly this call.

    Args:
        decision: Why a person is asked.
        session: The session that asks.
        token: Makes the request's id unique.
        expires_at: When the request is void, in seconds since 1970.
        edited: Arguments of a person from which the call follows.
    """
    replaced = state.approval if decision.rule == _UNFIT_EDIT else None
    shown = review_of(call, facts_in(session))
    return ApprovalRequested(
        call_id=state.call.id,
        approval_id="ap_" + token,
        tool=call.name,
        arguments=copied(call.arguments),  # who learns of the event shares nothing with the call
        digest=action_digest(session.id, call),
        effect=call.effect,
        expires_at=expires_at,
        rule=decision.rule,
        reason=f"{decision.reason} {start_of(call)}".strip(),
        replaces="" if replaced is None else replaced.replaces or replaced.id,
        approval_type=_KINDS.get(decision.rule, "plan" if call.tool.ends_plan else "tool_call"),
        action=shown.action,
        target=shown.target,
        risk=call.risk,
        preview=shown.preview,
        expected_result=shown.expected_result,
        rollback=shown.rollback,
        rules=offered_rules(call, decision, session),
        edited=copied(edited),
    )


def _is_about_doubt(approval: Approval | None) -> bool:
    return approval is not None and approval.rule == IN_DOUBT


# --- why a person is asked about what a policy allows


def asked_instead(decision: Decision, question: Decision) -> Decision:
    """Return the question in place of a decision that lets the call run. Consent to it lifts nothing else of the decision."""
    is_boxed = decision.kind == DecisionKind.SANDBOX or decision.consent == "sandbox"
    return msgspec.structs.replace(
        question,
        scope="runtime",
        by="runtime",
        mode=decision.mode,
        arguments=decision.arguments,
        message=decision.message,
        consent="sandbox" if is_boxed else "allow",
    )


def asked_besides(decision: Decision, question: Decision) -> Decision:
    """Return one question for two, where a person is asked anyway: who answers is told of both."""
    if decision.rule == PROTECTED:  # consent to that is given by its rule
        return msgspec.structs.replace(decision, reason=f"{decision.reason} {question.reason}")
    both = msgspec.structs.replace(question, reason=f"{question.reason} {decision.reason}".strip())
    return asked_instead(decision, both)


def has_started_before() -> Decision:
    """The call had started when its process died, and nobody knows how it ended."""
    reason = "It had started when the run was interrupted, and its outcome is unknown. Allowing it runs it again."
    return Decision(kind=DecisionKind.ASK, rule=IN_DOUBT, reason=reason)


def equals_doubt(doubt: Doubt | DoubtBelow) -> Decision:
    """The call equals another one, whose outcome is unknown: run under a new key, it could act a second time."""
    what = f"its key {doubt.business_key}" if doubt.business_key else "its arguments"
    reason = f"It equals call {doubt.call_id} of {doubt.tool} in {what}, whose outcome is unknown. If you allow it, it may act a second time: first find out how that call ended."
    return Decision(kind=DecisionKind.ASK, rule=_EQUALS_DOUBT, reason=reason)


def may_be_repeated() -> Decision:
    """The call may be the repetition of another one in its response."""
    reason = (
        "The model's server may have reported one call twice: another call of this response has the same id or action."
    )
    return Decision(kind=DecisionKind.ASK, rule=_REPORTED_TWICE, reason=reason)


def was_reported_twice(state: CallState) -> bool:
    """Whether a person has been asked about the call because it may be a repetition."""
    return state.approval is not None and state.approval.rule == _REPORTED_TWICE


def unfit_edit(message: str) -> Decision:
    """The arguments that a person had put in place of the model's do not fit.

    Args:
        message: Why not.
    """
    reason = f"The edited arguments are invalid, and nothing has run. {message} Answer again."
    return Decision(kind=DecisionKind.ASK, rule=_UNFIT_EDIT, reason=reason)


def changed_edit(decision: Decision) -> Decision:
    """Return the decision on a call whose edited arguments were changed again, with the reason for a second question."""
    why = "The edited arguments were changed by a hook, an interceptor or a policy, so they need a second answer."
    return msgspec.structs.replace(decision, reason=f"{why} {decision.reason}".strip())


def dangerous_edit(reason: str) -> Decision:
    """The arguments that a person had put in place of the model's reach a protected file.

    Args:
        reason: Which, and why it is protected.
    """
    told = f"Nothing has run, because the edited arguments need a second answer. {reason} Answer again, with the same arguments or with others."
    return Decision(kind=DecisionKind.ASK, rule=_UNFIT_EDIT, reason=told)
