"""Required: what a decision becomes where the tool itself requires that a person allows the call. Asks nobody."""

from collections.abc import Callable

import msgspec

from treadle.canonical import copied
from treadle.tools import CheckedCall, Decision, DecisionKind

__all__ = ["with_approval"]


def with_approval(decision: Decision, call: CheckedCall) -> Decision:
    """Return a decision that lets the call run only once a person has allowed it, where its tool requires that.

    A call that asks to leave the sandbox is asked about where it was decided to run in one: no mode and no rule answers for a person.
    """
    if _is_boxed(decision) and _is_true(call.tool.leaves_sandbox, call):
        return _asked(
            decision, "asks to leave the sandbox", "The call asks to run without the sandbox.", by="runtime", to="allow"
        )
    if decision.kind not in (DecisionKind.ALLOW, DecisionKind.SANDBOX) or not _is_required(call):
        return decision
    consent = "sandbox" if decision.kind == DecisionKind.SANDBOX else decision.consent
    return _asked(decision, "tool requires approval", "A person must allow this call.", by="tool", to=consent)


def _asked(decision: Decision, rule: str, reason: str, *, by: str, to: str) -> Decision:
    """Return the decision to ask a person, whose consent decides so."""
    return msgspec.structs.replace(
        decision, kind=DecisionKind.ASK, rule=rule, reason=reason, scope=by, by=by, consent=to
    )


def _is_boxed(decision: Decision) -> bool:
    return decision.kind == DecisionKind.SANDBOX or (
        decision.kind == DecisionKind.ASK and decision.consent == "sandbox"
    )


def _is_required(call: CheckedCall) -> bool:
    return _is_true(call.tool.requires_approval, call)


def _is_true(required: bool | Callable[[CheckedCall], bool], call: CheckedCall) -> bool:
    if not callable(required):
        return required
    arguments = copied(call.arguments)
    try:
        return bool(required(msgspec.structs.replace(call, arguments=arguments, values=arguments)))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a stranger's function, SystemExit too: one that cannot say asks
        return True
