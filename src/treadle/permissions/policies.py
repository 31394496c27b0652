"""Permission: turn a valid call into a decision. Policies, rules and defaults; asks nobody and runs nothing."""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from treadle.canonical import copied, find_unencodable
from treadle.errors import ConfigurationError, shown
from treadle.fields import checked
from treadle.permissions.index import RuleIndex
from treadle.permissions.lines import JudgedLine, judged
from treadle.permissions.rules import Rule, Subjects
from treadle.permissions.views import facts_in, granted_in
from treadle.ports import Decision, DecisionKind, Policy, SessionView
from treadle.tools import CheckedCall, Effect, Risk

__all__ = [
    "APPROVAL_LIFETIME_SECONDS",
    "UNDECIDED",
    "NamedPolicy",
    "Rule",
    "allow",
    "ask",
    "decide",
    "default_decision",
    "default_for",
    "deny",
    "draft",
    "failed_policy",
    "first_of",
    "held_to_port",
    "opinion",
    "stricter",
]

APPROVAL_LIFETIME_SECONDS = 7 * 24 * 3600.0
"""After so long a request for approval is void, and the call is asked about again."""

UNDECIDED = "cannot decide:"
"""How the rule of a decision begins that asks because a rule on lines of shell cannot say whether it applies."""
_SEVERAL_NAMES = "A file has several names (hard links), and there are too many files to find them all."
_STRICTNESS = {kind: place for place, kind in enumerate(("allow", "sandbox", "ask", "draft", "deny"))}
"""A draft commits nothing: it overrides a question, and consent to the question does not lift it."""


class NamedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One word for every call that one of the rules matches, and no opinion on the others."""

    kind: DecisionKind
    rules: tuple[Rule, ...]
    reason: str = ""
    scope: str = "agent"
    origin: str = ""
    """Where the rules are written, for those who read of one; empty where nobody said."""
    index: RuleIndex | None = None
    """The rules by what they name. Made of them."""

    def __post_init__(self) -> None:
        loosens = self.kind == DecisionKind.ALLOW
        msgspec.structs.force_setattr(self, "index", RuleIndex(self.rules, loosens=loosens))

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        line = None if call.tool.line is None else judged(call, facts_in(session))
        return self.judge(call, Subjects(call), line)

    def judge(self, call: CheckedCall, subjects: Subjects, line: JudgedLine | None) -> Decision | None:
        """Decide on a call.

        Args:
            subjects: What its arguments name.
            line: What it would do, where it runs a line of shell.
        """
        loosens = self.kind == DecisionKind.ALLOW
        assert self.index is not None
        if line is not None and loosens:
            patterns = self.index.patterns(call, line)
            may_read = call.tool.permission in (None, "allow") and not call.tool.requires_approval
            if line.allowed_by([pattern for _, pattern in patterns], may_read=may_read):
                return self._says(", ".join(text for text, _ in patterns))
        seen = self.index.looked_at(call, subjects, line)
        for rule in self.index.on(call, seen):
            found = seen.line is not None and not loosens and rule.finds(seen.line, call)
            if found or rule.matches(call, loosens=loosens, subjects=seen.subjects):
                return self._says(rule.text)
        if (rule_in_doubt := self.index.unsearched(seen)) is not None:
            return self._cannot_say(rule_in_doubt, _SEVERAL_NAMES)
        return None if line is None or loosens else self._in_doubt(call, line)

    def _in_doubt(self, call: CheckedCall, line: JudgedLine) -> Decision | None:
        """Ask about a line that may start what the rules forbid, where nobody can say whether it does."""
        assert self.index is not None
        if (possible := self.index.possible(call, line)) is not None:
            return self._cannot_say(*possible)
        about = None if line.is_decided else self.index.about_lines(call)
        return None if about is None else self._cannot_say(about, line.undecided)

    def _says(self, rules: str) -> Decision:
        return Decision(kind=self.kind, rule=f"{self.kind} {rules}", reason=self.reason, scope=self.scope)

    def _cannot_say(self, rule: Rule, why: str) -> Decision:
        """Ask about a call of which nobody can say whether it does what the rule forbids. No mode lifts that of a rule that denies."""
        return Decision(
            kind=DecisionKind.ASK,
            rule=f"{UNDECIDED} {self.kind} {rule.text}",
            reason=f"It cannot be determined whether the rule `{rule.text}` applies. {why}",
            scope="runtime" if self.kind == DecisionKind.DENY else self.scope,
        )


class FirstOf(msgspec.Struct, frozen=True, kw_only=True):
    """The first policy with an opinion speaks. Where a rule that denies cannot say whether it applies, the later ones can only tighten that."""

    policies: tuple[Policy, ...]

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        undecided: Decision | None = None
        for policy in self.policies:
            answer = policy.decide(call, session)
            decision = await answer if inspect.isawaitable(answer) else answer
            if decision is None:
                continue
            if not isinstance(decision, Decision) or (undecided is None and not _is_undecided(decision)):
                return decision
            undecided = decision if undecided is None else stricter(undecided, decision)
            if not _is_undecided(decision):
                return undecided
        return undecided


def _is_undecided(decision: Decision) -> bool:
    return decision.kind == DecisionKind.ASK and decision.rule.startswith(UNDECIDED)


@checked
def allow(*names: str, scope: str = "agent") -> NamedPolicy:
    """Allow the named tools (rules: `tool`, `fs_*`, `tool(key=glob)`).

    Example:
        Agent(model, tools=[pay], policy=allow("pay"))

    Args:
        scope: Where the rules come from, for the record, such as `project`.
    """
    return _named(DecisionKind.ALLOW, names, scope)


@checked
def deny(*names: str, reason: str = "", scope: str = "agent") -> NamedPolicy:
    """Deny the named tools; the reason reaches the model.

    Example:
        Agent(model, tools=[rm], policy=deny("rm", reason="This session is read only."))

    Args:
        scope: As in `allow`.
    """
    return _named(DecisionKind.DENY, names, scope, reason)


@checked
def ask(*names: str, scope: str = "agent") -> NamedPolicy:
    """Ask a person before each call of the named tools.

    Example:
        Agent(model, tools=[fetch], policy=ask("fetch"))

    Args:
        scope: As in `allow`.
    """
    return _named(DecisionKind.ASK, names, scope)


@checked
def draft(*names: str, scope: str = "agent") -> NamedPolicy:
    """Have the named tools prepare what they would commit: the tool that each names as its `draft` runs in its place.

    Example:
        Agent(model, tools=[draft_email, send_email], policy=draft("send_email"))

    Args:
        scope: As in `allow`.
    """
    return _named(DecisionKind.DRAFT, names, scope)


@checked
def first_of(*policies: Policy) -> FirstOf:
    """Let the first policy with an opinion decide.

    Example:
        Agent(model, policy=first_of(deny("rm"), allow("fs_*")))

    Raises:
        ConfigurationError: One of them is not a policy.
    """
    return FirstOf(policies=policies)


def _named(kind: DecisionKind, names: Sequence[str], scope: str, reason: str = "") -> NamedPolicy:
    if not names:
        raise ConfigurationError(f"{kind}() needs at least one tool's name, or '*' for every tool.")
    return NamedPolicy(kind=kind, rules=tuple(Rule.parse(name) for name in names), reason=reason, scope=scope)


def default_for(risk: Risk, effect: Effect) -> DecisionKind:
    """Return what is decided on a call of a risk class where neither a policy nor the tool's author says more."""
    if risk in _DENIED_BY_DEFAULT:
        return DecisionKind.DENY
    if risk == Risk.DRAFT_ONLY or (risk in _HARMLESS and effect.is_read):
        return DecisionKind.ALLOW
    return DecisionKind.ASK


_HARMLESS = frozenset({Risk.READ_ONLY, Risk.SEARCH_ONLY, Risk.COMPUTE_ONLY})
_DENIED_BY_DEFAULT = frozenset({Risk.DESTRUCTIVE, Risk.PRIVILEGED_ADMIN})
_WHY = {DecisionKind.DENY: "Calls of this risk class run only if a rule allows them."}


async def decide(policy: Policy | None, call: CheckedCall, session: SessionView) -> Decision:
    """Decide on a call: the policy's word, else the tool author's, else the effect's default."""
    if policy is not None and (decision := await opinion(policy, call, session)) is not None:
        return decision
    return default_decision(call, session)


def default_decision(call: CheckedCall, session: SessionView | None = None) -> Decision:
    """Return what is decided on a call where no policy has an opinion: the tool author's word, else the effect's default.

    Args:
        session: The session, whose facts say in which folder a line of shell starts.
    """
    decision = _ungranted(call, session)
    if decision.kind != DecisionKind.ASK or session is None or call.tool.requires_approval:
        return decision
    return _granted(call, session) or decision


def _ungranted(call: CheckedCall, session: SessionView | None) -> Decision:
    try:
        permission = call.tool.permission
    except AttributeError:
        raise ConfigurationError(f"call must be a CheckedCall; got {shown(call)}.") from None
    if permission is not None:
        rule = f"tool {call.name} permission"
        return Decision(kind=DecisionKind(permission), rule=rule, scope="tool", by="tool")
    if call.tool.risk is not None:
        kind, risk = default_for(call.risk, call.effect), call.risk
        if kind != DecisionKind.ALLOW or not call.effect.is_read:
            return Decision(
                kind=kind, rule=f"default for {risk}", reason=_WHY.get(kind, ""), scope="default", by="default"
            )
    elif not call.effect.is_read:
        return Decision(kind=DecisionKind.ASK, rule=f"default for {call.effect}", scope="default", by="default")
    if call.tool.line is None:
        return _READ_DEFAULT
    line = judged(call, {} if session is None else facts_in(session))
    if line is not None and line.is_certain and line.brought:
        return msgspec.structs.replace(_BROUGHT_DEFAULT, reason=line.brought[0][1])
    return _READ_DEFAULT if line is None or line.is_certain else _OUTSIDE_DEFAULT


def _granted(call: CheckedCall, session: SessionView) -> Decision | None:
    """Return the permission that a person has given for more than one call, where it covers this one."""
    granted = granted_in(session)
    if not granted or all(not one.rules for one in granted):
        return None
    names = dict.fromkeys(rule for one in granted for rule in one.rules)
    found = allow(*names, scope="session").decide(call, session)
    return None if found is None else msgspec.structs.replace(found, by=granted[-1].by)


async def opinion(policy: Policy, call: CheckedCall, session: SessionView) -> Decision | None:
    """Return what a policy says; None where it has no opinion."""
    try:
        answer = policy.decide(call, session)
        decision = await answer if inspect.isawaitable(answer) else answer
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise
    except BaseException as error:  # noqa: BLE001 - a policy that raises, SystemExit too, has not allowed anything
        return failed_policy(error)
    return None if decision is None else held_to_port(decision, "policy")


def failed_policy(error: BaseException) -> Decision:
    """Return the decision where a policy raised."""
    reason = f"The policy failed ({type(error).__name__}). Nothing runs without its decision."
    return Decision(kind=DecisionKind.DENY, rule="policy raised", reason=reason, scope="runtime", by="runtime")


def held_to_port(decision: Any, who: str, *, scope: str = "agent") -> Decision:  # Any: whatever was answered
    """Return a decision that can be recorded: what is not a decision allows nothing, and words become text.

    Args:
        who: Who answered, such as `policy`.
        scope: What holds where the decision names no scope.
    """
    kind = decision.kind if isinstance(decision, Decision) else None
    if not isinstance(kind, str) or kind not in set(DecisionKind):
        return _broken(who, f"The {who} returned a {type(decision).__name__}, which is not a valid Decision.")
    arguments = decision.arguments
    if arguments is not None and (not isinstance(arguments, dict) or find_unencodable(arguments) is not None):
        return _broken(who, f"The {who} changed the arguments to something other than a JSON object.")
    if not isinstance(decision.interrupt, bool) or decision.consent not in ("allow", "sandbox"):
        return _broken(who, f"The {who} returned a Decision whose interrupt or consent is invalid.")
    return Decision(
        kind=DecisionKind.DENY if decision.interrupt else DecisionKind(kind),
        rule=_words(decision.rule) or who,
        reason=_words(decision.reason),
        scope=_words(decision.scope) or scope,
        by=_words(decision.by) or who,
        arguments=copied(arguments),
        message=_words(decision.message),
        interrupt=decision.interrupt,
        consent=decision.consent,
    )


def _broken(who: str, reason: str) -> Decision:
    return Decision(
        kind=DecisionKind.DENY, rule=f"{who} broke its contract", reason=reason, scope="runtime", by="runtime"
    )


def _words(value: Any) -> str:
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


_OUTSIDE_DEFAULT = Decision(
    kind=DecisionKind.ASK, rule="default for a path outside the root folder", scope="default", by="default"
)
_BROUGHT_DEFAULT = Decision(
    kind=DecisionKind.ASK, rule="default for a program of the project", scope="default", by="default"
)
_READ_DEFAULT = Decision(kind=DecisionKind.ALLOW, rule="default for read", scope="default", by="default")


def stricter(one: Decision, other: Decision) -> Decision:
    """Return the stricter of two decisions, the first of equals. Consent to an `ask` never lifts the sandbox of the other one."""
    first, second = one, other
    if _STRICTNESS[str(other.kind)] > _STRICTNESS[str(one.kind)]:
        first, second = other, one
    if first.kind == DecisionKind.DENY:
        return first if first.interrupt or not second.interrupt else second
    is_boxed = second.kind == DecisionKind.SANDBOX or "sandbox" in (first.consent, second.consent)
    consent: Literal["allow", "sandbox"] = "sandbox" if is_boxed else "allow"
    message = first.message or second.message
    if (consent, message) == (first.consent, first.message):
        return first
    return msgspec.structs.replace(first, consent=consent, message=message)
