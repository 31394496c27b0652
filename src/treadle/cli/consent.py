"""Consent: the policy that the person's rules make, and what happens to a question that nobody is there to answer.

It asks nobody: consent itself is given with `treadle approve`.
"""

import inspect

import msgspec

from treadle import (
    CheckedCall,
    Confinement,
    Decision,
    Run,
    Session,
    StopReason,
    default_decision,
    first_of,
    is_answered,
    scoped,
)
from treadle.cli.input.rules import rule_sets
from treadle.cli.input.settings import Settings
from treadle.events import AnyEvent, CallDecided
from treadle.ports import Policy, SessionView

__all__ = ["StopAtDenial", "confinement_of", "interactive_policy", "policy_of"]

_FAIL = "--on-approval fail"
_REFUSAL = "It needs a person's approval, and nobody can be asked in this run."


def policy_of(settings: Settings) -> Policy | None:
    """Return the policy of the rules: a denial overrides a permission; None where there are no rules."""
    ruled = scoped(*rule_sets(settings.rules, "allow", "ask", "deny")) if settings.rules else None
    policy = ruled if settings.sandbox == "off" else Confined(ruled)
    return policy if settings.on_approval == "pause" else Unattended(policy, f"--on-approval {settings.on_approval}")


def interactive_policy(settings: Settings, grants: Policy) -> Policy:
    """Return the policy of a conversation: what a person allows while it continues stands behind all denials and questions."""
    stricter, looser = rule_sets(settings.rules, "ask", "deny"), rule_sets(settings.rules, "allow")
    policy = first_of(scoped(*stricter), grants, scoped(*looser))
    return policy if settings.sandbox == "off" else Confined(policy)


def confinement_of(settings: Settings) -> Confinement:
    """Return what commands may reach in the sandbox: the folder, and what the person has opened to them: places to read, the network."""
    return Confinement(
        writable=(str(settings.root.resolve()),),
        readable=settings.sandbox_read,
        network=settings.sandbox == "network",
    )


class Confined:
    """Sends each call that can be confined into the sandbox, whoever allows it: a rule, a person, or the effect's default."""

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy
        self.policies = (policy,)

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        answer = self._policy.decide(call, session) if self._policy else None
        decision = await answer if inspect.isawaitable(answer) else answer
        if call.tool.sandbox is None:
            return decision
        made = decision or default_decision(call, session)
        if made.kind == "allow":
            return msgspec.structs.replace(made, kind="sandbox")
        return msgspec.structs.replace(made, consent="sandbox") if made.kind == "ask" else made


class Unattended:
    """Has a denial stand in for each question that is left when the mode has had its say, whoever asks it: also the runtime."""

    def __init__(self, policy: Policy | None, rule: str) -> None:
        self._policy = policy
        self.policies = (policy,)
        self.unattended = _Nobody(rule)

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        answer = self._policy.decide(call, session) if self._policy else None
        return await answer if inspect.isawaitable(answer) else answer


class _Nobody:
    """Denies what nobody can be asked about. An answer that a person has given before the run was resumed counts."""

    def __init__(self, rule: str) -> None:
        self._rule = rule

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        return None if is_answered(call, session) else Decision(kind="deny", rule=self._rule, reason=_REFUSAL)


class StopAtDenial:
    """`--on-approval fail`: ends a run once a call was denied that needs a person, and the calls beside it are done."""

    def __init__(self, run: Run, session: Session) -> None:
        self._run = run
        self._session = session
        self._denied: dict[str, None] = {}  # tools, each once, in their order

    def __call__(self, event: AnyEvent) -> None:
        if isinstance(event, CallDecided) and event.rule == _FAIL:
            self._denied[event.tool] = None
        if self._denied and not self._session.state.has_open_calls:
            names = list(self._denied)
            message = f"Denied by {_FAIL}: {', '.join(names)} needs a person's approval. Allow it beforehand with --allow {names[0]}."
            self._run.stop(StopReason.TASK_DENIED, message)
