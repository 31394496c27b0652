"""Modes: what a session's mode makes of a decision. Values only: a mode is changed by a person, through the session's inbox."""

import msgspec

from treadle.tools import CheckedCall, Decision, DecisionKind, Mode

__all__ = ["in_mode"]


def in_mode(mode: Mode, decision: Decision, call: CheckedCall) -> Decision:
    """Return the decision as it is in a mode. What is denied stays denied in every mode.

    `plan` lets calls run that only read. `deny-unlisted` denies what no rule speaks of. `bypass` asks no person, but where the
    runtime itself asks (about a call that may act a second time) or a hook. `ask` and `accept-edits` change nothing yet.
    """
    if decision.kind == DecisionKind.DENY or mode in ("ask", "accept-edits"):
        return decision
    match mode:
        case "plan" if not call.effect.is_read:
            return _denied(decision, mode, "In plan mode nothing is changed. Say what you would do.")
        case "deny-unlisted" if decision.kind == DecisionKind.ASK and decision.scope == "default":
            return _denied(
                decision, mode, "In this mode only calls are made that a rule allows, and none speaks of this one."
            )
        case "bypass" if decision.kind == DecisionKind.ASK and decision.scope not in ("runtime", "hook"):
            kind = DecisionKind.SANDBOX if decision.consent == "sandbox" else DecisionKind.ALLOW
            return msgspec.structs.replace(decision, kind=kind, rule=f"mode {mode}", scope="session", by="person")
        case _:
            return decision


def _denied(decision: Decision, mode: Mode, reason: str) -> Decision:
    return msgspec.structs.replace(
        decision, kind=DecisionKind.DENY, rule=f"mode {mode}", reason=reason, scope="session", by="person", message=""
    )
