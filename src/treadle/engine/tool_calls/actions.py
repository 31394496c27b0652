"""Actions: decide on what a tool is about to do by itself, by the rules that hold for calls, and record the decision.

Carries nothing out, and asks no person: `ask` is an answer that the tool takes for a no.
"""

import msgspec

from treadle.canonical import find_unencodable
from treadle.engine.tool_calls.checking import Checker, Decided, Refused
from treadle.errors import ConfigurationError, IntentNotStored, shown
from treadle.events import ActionDecided
from treadle.messages import ToolCall
from treadle.permissions import consent
from treadle.ports import Decision, DecisionKind
from treadle.sessions.ledger import Ledger
from treadle.tools import CheckedCall, Effect, JsonObject, Tool

__all__ = ["Actions"]


class Actions:
    """Decides on the actions of one run's tools."""

    def __init__(self, *, ledger: Ledger, checker: Checker) -> None:
        self._ledger = ledger
        self._checker = checker

    async def decide(self, within: CheckedCall, action: str, arguments: JsonObject, effect: Effect) -> Decision:
        """Return the decision on an action of a call that is under way. It is recorded first, and stored if the action acts.

        Raises:
            ConfigurationError: The action has no name, or its arguments are not a JSON object.
        """
        _check(action, arguments)
        while self._is_open(within):
            if (decision := await self._decided(within, action, arguments, effect)) is not None:
                return decision
        return _ENDED

    async def _decided(
        self, within: CheckedCall, action: str, arguments: JsonObject, effect: Effect
    ) -> Decision | None:
        """Return a decision that is recorded; None where the call has ended meanwhile, or a person has changed the mode."""
        proposed = ToolCall(id=within.id, name=action, arguments=msgspec.json.encode(arguments).decode())
        step = self._ledger.state.step + (within.id in self._ledger.state.early)
        unknown = Tool(name=action, description="", parameters=_ANY, effect=effect, run=_never)
        checked = await self._checker.check(proposed, position=within.position, step=step, otherwise=unknown)
        event = _event(within, checked, action, arguments, step)
        try:
            is_recorded = await self._ledger.record(
                event,
                durable=event.effect is not Effect.READ,
                holds=lambda: self._is_open(within) and event.mode in ("", self._checker.mode),
            )
        except IntentNotStored:
            return _NOT_STORED
        return consent.decision_of(event) if is_recorded else None

    def _is_open(self, call: CheckedCall) -> bool:
        """Whether the call has no result yet: nothing is decided for one that has ended, or that the run has left behind."""
        state = self._ledger.state
        known = state.open.get(call.id) or state.early.get(call.id)
        return known is not None and known.result is None


def _event(
    within: CheckedCall, checked: Decided | Refused, action: str, arguments: JsonObject, step: int
) -> ActionDecided:
    if isinstance(checked, Refused):
        decision, digest, effect = _refusal(checked), "", Effect.UNSAFE
    elif checked.is_rewritten:  # the tool would not carry out what was decided on
        decision, digest, effect = _REWRITTEN, checked.call.digest, checked.call.effect
    else:
        decision, digest, effect = checked.decision, checked.call.digest, checked.call.effect
    return ActionDecided(
        call_id=within.id,
        step=step,
        tool=within.name,
        action=action,
        arguments=arguments,
        decision=str(decision.kind),
        rule=decision.rule,
        reason=decision.reason,
        effect=effect,
        digest=digest,
        scope=decision.scope,
        by=decision.by,
        mode=decision.mode,
    )


def _refusal(refused: Refused) -> Decision:
    reason = refused.result.message or ""
    return Decision(kind=DecisionKind.DENY, rule=refused.rule, reason=reason, scope="runtime", by="runtime")


def _check(action: object, arguments: object) -> None:
    if not isinstance(action, str) or not action.isprintable() or not 0 < len(action) <= 256:
        raise ConfigurationError(f"The name of an action must be 1 to 256 printable characters; got {shown(action)}.")
    if not isinstance(arguments, dict):
        raise ConfigurationError(f"The arguments of {action} must be a JSON object; got {shown(arguments)}.")
    if (problem := find_unencodable(arguments)) is not None:
        raise ConfigurationError(f"The arguments of {action} are not JSON: {problem}.")


def _never(arguments: object, ctx: object) -> None:
    raise AssertionError("an action is decided here, and carried out by the tool that asked")


_ANY: JsonObject = {"type": "object"}


def _no(rule: str, reason: str) -> Decision:
    return Decision(kind=DecisionKind.DENY, rule=rule, reason=reason, scope="runtime", by="runtime")


_ENDED = _no("call has ended", "The call that asks has ended.")
_NOT_STORED = _no("journal unavailable", "The journal cannot be written, and nothing is changed without a record.")
_REWRITTEN = _no(
    "arguments changed",
    "A policy or an interceptor changed the arguments of this action. Change the action itself, then ask again.",
)
