"""What rules say to a sandbox: the files that they deny reading, which it covers, and the hosts that they let commands reach. Decides nothing."""

from collections.abc import Iterable, Iterator

from msgspec import structs

from treadle.permissions.modes import is_boxed
from treadle.permissions.policies import NamedPolicy, granted_policy
from treadle.permissions.rules import Rule, fits
from treadle.ports import SessionView
from treadle.tools import CheckedCall, Decision, DecisionKind
from treadle.tools.foreign import FOREIGN_NAMES
from treadle.tools.needs import Need

__all__ = ["denied_files", "with_reachable"]


def denied_files(policies: Iterable[object]) -> tuple[str, ...]:
    """Return the globs of files that no call may read, by the rules of some policies and of those that they are made of."""
    found = dict.fromkeys(
        glob for policy in policies for one in _rules(policy, DecisionKind.DENY) if (glob := _glob(one))
    )
    return tuple(found)


def with_reachable(decision: Decision, call: CheckedCall, policies: Iterable[object], session: SessionView) -> Decision:
    """Return the decision on a confined call that lifts the hosts, too, which `network(HOST)` rules let commands reach.

    Args:
        policies: Each of them must say so, or a person in this session.
    """
    needs = call.needs if is_boxed(decision) else ()
    if not any(one.kind == "network" for one in needs):
        return decision
    granted = granted_policy(session)
    asked = [policy for policy in policies if policy is not None] or [None]
    found = [one.text for one in needs if all(_lifts(one, (policy, granted)) for policy in asked)]
    return structs.replace(decision, lifted=tuple(dict.fromkeys((*decision.lifted, *found))))


def _lifts(need: Need, policies: Iterable[object]) -> bool:
    return any(rule.lifts(need) for policy in policies for rule in _rules(policy, DecisionKind.ALLOW))


def _rules(policy: object, kind: DecisionKind) -> Iterator[Rule]:
    if isinstance(policy, NamedPolicy):
        yield from policy.rules if policy.kind == kind else ()
    for inner in getattr(policy, "policies", ()):
        yield from _rules(inner, kind)


def _glob(rule: Rule) -> str:
    """Return the glob of a rule on the files that are read; empty for another rule."""
    if not fits("read", FOREIGN_NAMES.get(rule.tool, rule.tool)):
        return ""
    return (rule.glob if rule.key == "path" else rule.pattern if rule.key is None else None) or ""
