"""Scopes: the rules of a session, a project, a user and an organisation as one policy. Deny beats ask beats allow, whatever the order."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions
from treadle.permissions.lines import judged
from treadle.permissions.policies import NamedPolicy, allow, ask, deny, stricter
from treadle.permissions.rules import Subjects
from treadle.permissions.views import facts_in
from treadle.ports import Decision, SessionView
from treadle.tools import CheckedCall, DecisionKind

__all__ = ["RuleSet", "Scoped", "scoped"]

_ORDER = ("managed", "user", "project", "session")
"""Who is named first where several scopes say the same."""


class RuleSet(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """The rules of one scope.

    Example:
        RuleSet(scope="project", allow=("shell(make test)",), ask=("shell(git push:*)",), deny=("read(path=.env)",))
    """

    scope: Literal["managed", "user", "project", "session"]
    """Where they come from. A project's rules count once its folder is trusted: leave them out before."""
    allow: tuple[str, ...] = ()
    """What runs without a question."""
    ask: tuple[str, ...] = ()
    """What a person is asked about, though another rule allows it."""
    deny: tuple[str, ...] = ()
    """What does not run, whatever another rule says."""
    reason: str = ""
    """Why it is denied; the model reads it."""
    origin: str = ""
    """Where they are written, such as a file, for messages about one of them."""

    def __post_init__(self) -> None:
        if self.scope not in _ORDER:
            raise ConfigurationError(f"RuleSet: scope must be one of {', '.join(_ORDER)}; got {shown(self.scope)}.")
        for name in ("allow", "ask", "deny"):
            rules = getattr(self, name)
            if isinstance(rules, str) or not isinstance(rules, Sequence):
                raise ConfigurationError(f"RuleSet: {name} must be a list of rules; got {shown(rules)}.")


class Scoped(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of several scopes."""

    denies: tuple[NamedPolicy, ...]
    asks: tuple[NamedPolicy, ...]
    allows: tuple[NamedPolicy, ...]
    together: tuple[NamedPolicy, ...]
    """All that is allowed as one: the commands of a line may be allowed by rules of different scopes."""

    @property
    def policies(self) -> tuple[NamedPolicy, ...]:
        """What it is made of."""
        return (*self.denies, *self.asks, *self.allows)

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        """Return what the rules say together: what any scope denies is denied, and what any asks is asked about."""
        line = None if call.tool.line is None else judged(call, facts_in(session))
        subjects = Subjects(call)
        strictest: Decision | None = None
        for policy in (*self.denies, *self.asks):
            found = policy.judge(call, subjects.alike(), line)
            if found is not None and found.kind == DecisionKind.DENY:
                return found
            if found is not None:
                strictest = found if strictest is None else _asked(strictest, found)
        if strictest is not None:
            return strictest
        answers = (policy.judge(call, subjects.alike(), line) for policy in (*self.allows, *self.together))
        return next((one for one in answers if one is not None), None)


def scoped(*sets: RuleSet) -> Scoped:
    """Return the rules of several scopes as one policy.

    Example:
        policy = scoped(RuleSet(scope="user", allow=("shell(git log:*)",)), RuleSet(scope="managed", deny=("fetch",)))

    Raises:
        ConfigurationError: A rule is invalid.
    """
    if wrong := [one for one in sets if not isinstance(one, RuleSet)]:
        raise ConfigurationError(f"scoped() takes RuleSet(scope=...); got {shown(wrong[0])}.")
    ordered = sorted(sets, key=lambda one: _ORDER.index(one.scope))
    allowing = [one for one in ordered if one.allow]
    together = [rule for one in allowing for rule in one.allow]
    named = "+".join(dict.fromkeys(one.scope for one in allowing))
    return Scoped(
        denies=tuple(_from(one, deny(*one.deny, reason=one.reason, scope=one.scope)) for one in ordered if one.deny),
        asks=tuple(_from(one, ask(*one.ask, scope=one.scope)) for one in ordered if one.ask),
        allows=tuple(_from(one, allow(*one.allow, scope=one.scope)) for one in allowing),
        together=(allow(*together, scope=named),) if len(allowing) > 1 else (),
    )


def _from(rules: RuleSet, policy: NamedPolicy) -> NamedPolicy:
    return msgspec.structs.replace(policy, origin=rules.origin) if rules.origin else policy


def _asked(one: Decision, other: Decision) -> Decision:
    """Return the question of two that no mode lifts, if one of them is such."""
    return other if other.scope == "runtime" and one.scope != "runtime" else stricter(one, other)
