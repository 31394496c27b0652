"""Denied: the files that rules deny reading, for a sandbox that covers them. Decides nothing."""

from collections.abc import Iterable, Iterator

from treadle.permissions.policies import NamedPolicy
from treadle.permissions.rules import Rule, fits
from treadle.tools import DecisionKind
from treadle.tools.foreign import FOREIGN_NAMES

__all__ = ["denied_files"]


def denied_files(policies: Iterable[object]) -> tuple[str, ...]:
    """Return the globs of files that no call may read, by the rules of some policies and of those that they are made of."""
    found = dict.fromkeys(glob for policy in policies for one in _rules(policy) if (glob := _glob(one)))
    return tuple(found)


def _rules(policy: object) -> Iterator[Rule]:
    if isinstance(policy, NamedPolicy):
        yield from policy.rules if policy.kind == DecisionKind.DENY else ()
    for inner in getattr(policy, "policies", ()):
        yield from _rules(inner)


def _glob(rule: Rule) -> str:
    """Return the glob of a rule on the files that are read; empty for another rule."""
    if not fits("read", FOREIGN_NAMES.get(rule.tool, rule.tool)):
        return ""
    return (rule.glob if rule.key == "path" else rule.pattern if rule.key is None else None) or ""
