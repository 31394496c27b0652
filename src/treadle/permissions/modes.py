"""Modes: what a session's mode makes of a decision. Values only: a mode is changed by a person, through the session's inbox."""

import msgspec

from treadle.tools import CheckedCall, Decision, DecisionKind, Mode, Risk

__all__ = ["in_mode", "may_start_again"]


def in_mode(mode: Mode, decision: Decision, call: CheckedCall) -> Decision:
    """Return the decision as it is in a mode. What is denied stays denied in every mode.

    `plan` lets calls run that only read. `deny-unlisted` denies what a person would be asked about. `bypass` asks no person, but where the
    runtime itself asks (about a call that may act a second time, a protected file, a line of which a rule that denies cannot say whether it
    applies) or a hook. `accept-edits` lets calls run that change files of the working folder, where only a default asks. `ask` changes nothing.
    """
    if decision.kind == DecisionKind.DENY:
        return decision
    match mode:
        case "accept-edits" if decision.kind == DecisionKind.ASK and _is_edit(decision, call):
            return _lifted(decision, mode)
        case "plan" if not call.effect.is_read:
            return _denied(decision, mode, "Plan mode allows no changes. Describe what you would do instead.")
        case "deny-unlisted" if decision.kind == DecisionKind.ASK:
            return _denied(decision, mode, "This mode asks nobody: only calls that a rule allows may run.")
        case "bypass" if decision.kind == DecisionKind.ASK and decision.scope not in ("runtime", "hook"):
            return _lifted(decision, mode)
        case _:
            return decision


def may_start_again(mode: Mode, call: CheckedCall) -> bool:
    """Whether a call that has started may be tried again, where a person has changed the mode since it was decided on."""
    decision = call.decision
    if decision is None or call.effect.is_read or decision.mode == mode:
        return True
    if decision.rule == f"mode {decision.mode}":
        return False  # only that mode has let it start
    return in_mode(mode, decision, call).kind != DecisionKind.DENY


def _is_edit(decision: Decision, call: CheckedCall) -> bool:
    """Whether only a default asks, and the call changes files of the working folder and nothing else."""
    return decision.scope in ("default", "tool") and call.risk == Risk.WRITE_LOCAL and not call.tool.requires_approval


def _lifted(decision: Decision, mode: Mode) -> Decision:
    kind = DecisionKind.SANDBOX if decision.consent == "sandbox" else DecisionKind.ALLOW
    return msgspec.structs.replace(decision, kind=kind, rule=f"mode {mode}", scope="session", by="person")


def _denied(decision: Decision, mode: Mode, reason: str) -> Decision:
    return msgspec.structs.replace(
        decision, kind=DecisionKind.DENY, rule=f"mode {mode}", reason=reason, scope="session", by="person", message=""
    )
