"""Required: what a decision becomes where the tool itself requires that a person allows the call. Asks nobody."""

import msgspec

from treadle.canonical import copied
from treadle.tools import CheckedCall, Decision, DecisionKind

__all__ = ["with_approval"]


def with_approval(decision: Decision, call: CheckedCall) -> Decision:
    """Return a decision that lets the call run only once a person has allowed it, where its tool requires that."""
    if decision.kind not in (DecisionKind.ALLOW, DecisionKind.SANDBOX) or not _is_required(call):
        return decision
    consent = "sandbox" if decision.kind == DecisionKind.SANDBOX else decision.consent
    return msgspec.structs.replace(
        decision,
        kind=DecisionKind.ASK,
        rule="tool requires approval",
        reason="A person must allow this call.",
        scope="tool",
        by="tool",
        consent=consent,
    )


def _is_required(call: CheckedCall) -> bool:
    required = call.tool.requires_approval
    if not callable(required):
        return required
    arguments = copied(call.arguments)
    try:
        return bool(required(msgspec.structs.replace(call, arguments=arguments, values=arguments)))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a stranger's function, SystemExit too: one that cannot say asks
        return True
