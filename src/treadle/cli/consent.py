"""Consent: the policy that the person's rules make, and what becomes of a question that nobody is there to answer."""

import inspect
from typing import Literal

from treadle import CheckedCall, Decision, Effect, allow, deny, first_of
from treadle.cli.settings import Settings
from treadle.ports import Policy, SessionView

__all__ = ["REFUSAL", "policy_of"]

REFUSAL = "It needs a person's consent, and nobody can be asked here."


def policy_of(settings: Settings) -> Policy | None:
    """Return the policy of the rules: a denial wins over a permission; None where there are no rules."""
    rules: list[Policy] = []
    if settings.deny:
        rules.append(deny(*settings.deny, reason="A rule of this session denies it."))
    if settings.allow:
        rules.append(allow(*settings.allow))
    policy = first_of(*rules) if rules else None
    return Unattended(policy) if settings.on_approval == "deny" else policy


class Unattended:
    """Turns every question into a denial, whoever asks it: the policy, the tool's author, or the effect's default."""

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        answer = self._policy.decide(call, session) if self._policy else None
        decision = await answer if inspect.isawaitable(answer) else answer
        kind = _default(call) if decision is None else decision.kind
        if kind != "ask":
            return decision
        return Decision(kind="deny", rule="--on-approval deny", reason=REFUSAL)


def _default(call: CheckedCall) -> Literal["allow", "ask", "deny"]:
    """Return what would be decided without a policy."""
    if call.tool.permission is not None:
        return call.tool.permission
    return "allow" if call.effect is Effect.READ else "ask"
