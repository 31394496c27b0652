"""Permission: turn a valid call into a decision. Policies, rules and defaults; asks nobody and runs nothing."""

import asyncio
import fnmatch
import inspect
import posixpath
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from treadle.canonical import copied, find_unencodable
from treadle.errors import ConfigurationError, shown
from treadle.permissions.lines import JudgedLine, judged, pattern_of
from treadle.ports import Decision, DecisionKind, Policy, SessionView
from treadle.shell.rules import FOREIGN_NAMES, CommandPattern
from treadle.tools import CheckedCall, Subject

__all__ = [
    "APPROVAL_LIFETIME_SECONDS",
    "NamedPolicy",
    "Rule",
    "allow",
    "ask",
    "decide",
    "default_decision",
    "deny",
    "failed_policy",
    "first_of",
    "held_to_port",
    "opinion",
    "stricter",
]

APPROVAL_LIFETIME_SECONDS = 7 * 24 * 3600.0
"""After so long a request for approval is void, and the call is asked about again."""

_PATTERNED = frozenset({*FOREIGN_NAMES, *FOREIGN_NAMES.values()})
"""Tools whose rules may leave out the key: `shell(git log:*)`, `write(src/*)`."""

_RULE = re.compile(r"^(?P<tool>[^()]+?)(?:\((?P<pattern>.*)\))?$", re.DOTALL)
_STRICTNESS = {DecisionKind.ALLOW: 0, DecisionKind.SANDBOX: 1, DecisionKind.ASK: 2, DecisionKind.DENY: 3}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls a decision applies to: `tool`, a glob such as `fs_*`, `tool(key=glob)` on what one argument names, `shell(git log:*)` on
    commands, or `write(src/*)` on paths."""

    text: str
    tool: str
    key: str | None = None
    glob: str | None = None
    pattern: str | None = None
    """What stands in `tool(pattern)` without a key: commands for a tool that runs lines of shell, else the glob of its `path`."""

    @staticmethod
    def parse(text: str) -> "Rule":
        """Read a rule as people write it.

        Raises:
            ConfigurationError: It is not a rule. A rule that is not understood is never passed over.
        """
        match = _RULE.match(text.strip())
        if match is None or not match["tool"].strip():
            raise ConfigurationError(f"Rule {text!r} is invalid: write `tool`, or `tool(key=glob)`.")
        tool, pattern = match["tool"].strip(), match["pattern"]
        if pattern is None or pattern == "*":
            return Rule(text=text, tool=tool)
        key, sign, glob = pattern.partition("=")
        if sign and key.strip().isidentifier():
            return Rule(text=text, tool=tool, key=key.strip(), glob=glob)
        if not pattern.strip() or tool not in _PATTERNED:
            raise ConfigurationError(
                f"Rule {text!r} is invalid: for {tool!r}, write `{tool}` or `{tool}(key=glob)`, such as `{tool}(path=src/*)`."
            )
        if FOREIGN_NAMES.get(tool, tool) == "shell":
            CommandPattern.parse(pattern)
        return Rule(text=text, tool=tool, pattern=pattern.strip())

    def matches(self, call: CheckedCall, *, loosens: bool = False) -> bool:
        """Whether the rule applies to a call.

        Args:
            loosens: Whether it allows something. Such a rule needs certainty: it must fit what the argument really names. One that
                forbids or asks applies to every spelling, and to a call that may reach what it names.
        """
        if not self.names(call.name):
            return False
        key, glob = (self.key, self.glob) if self.pattern is None else ("path", self.pattern)
        if key is None or glob is None:
            return True
        if loosens and call.tool.line is not None:
            return False  # a line is never allowed by its text: `JudgedLine.allowed_by` says which one is
        subject = _subject(call, key)
        if key not in call.arguments and subject is None:
            # A pattern that this tool has no use for allows nothing, and forbids everything: nobody is to rely on it in vain.
            return self.pattern is not None and not loosens and call.tool.line is None
        if loosens:
            return _is_allowed(glob, call.arguments.get(key), subject)
        return _is_covered(glob, call.arguments.get(key), subject)

    def names(self, tool: str) -> bool:
        """Whether the rule speaks of a tool of this name. Names that another program has for such tools stand for ours, too."""
        return fnmatch.fnmatchcase(tool, self.tool) or FOREIGN_NAMES.get(self.tool) == tool

    def finds(self, line: JudgedLine, call: CheckedCall) -> bool:
        """Whether a rule that forbids or asks applies to a line of shell: to a command of it, or to a path that it touches."""
        if self.names(call.name) and self.pattern is not None:
            pattern = pattern_of(self.pattern)
            return pattern is None or line.found_by(pattern)
        glob = self.glob if self.key == "path" else self.pattern
        return glob is not None and any(
            any(map(self.names, one.tools)) and _is_covered(glob, None, one.subject) for one in line.reached
        )


class _Unresolved:
    """A tool could not say what an argument names: nothing is allowed by it, and every rule on it applies."""


def _subject(call: CheckedCall, key: str) -> Subject | type[_Unresolved] | None:
    if call.tool.subjects is None:
        return None
    try:
        found = call.tool.subjects(copied(call.arguments)).get(key)
    except Exception:  # noqa: BLE001 - the author's function; one that raises has resolved nothing
        return _Unresolved
    return found if found is None or isinstance(found, Subject) else _Unresolved


def _is_allowed(glob: str, value: Any, subject: Subject | type[_Unresolved] | None) -> bool:
    """Whether a rule that allows names what the argument really names. Its spelling alone is not enough."""
    if subject is None:
        if isinstance(value, list) and value and all(_is_allowed(glob, item, None) for item in value):
            return True
        text = _as_text(value)
        return all(fnmatch.fnmatchcase(form, glob) for form in {text, _lexical(text)})
    if not isinstance(subject, Subject):
        return False
    return any(fnmatch.fnmatchcase(name, one) for name in subject.names for one in {glob, _cleaned(glob)})


def _is_covered(glob: str, value: Any, subject: Subject | type[_Unresolved] | None) -> bool:
    """Whether a rule that forbids applies: to the argument as written, as it resolves, or to what lies below it."""
    if subject is not None and not isinstance(subject, Subject):
        return True
    if isinstance(value, list) and any(_is_covered(glob, item, subject) for item in value):
        return True
    written = _as_text(value) if value is not None else ""
    forms = {_lexical(written), *((written,) if subject is None else subject.names)}
    globs = {glob, *(one for start in (glob, glob.removeprefix("**/")) for one in _covering(start))}
    if subject is not None and subject.resolve is not None:
        globs |= {
            one
            for start in (glob, _cleaned(glob))
            for real in _resolved(start, subject.resolve)
            for one in _covering(real)
        }
    folded_forms, folded_globs = {_folded(form) for form in forms}, {_folded(one) for one in globs}
    if any(fnmatch.fnmatchcase(form, one) for form in folded_forms for one in folded_globs):
        return True
    if subject is None or subject.extent == "itself":
        return False
    folders = {_folded(posixpath.normpath(posixpath.join(name, subject.below))) for name in subject.names}
    is_deep = subject.extent == "tree"
    return any(_reaches(one, folder, is_deep=is_deep) for folder in folders for one in folded_globs)


def _lexical(text: str) -> str:
    """Return a path without `.`, `..`, doubled and trailing slashes, as far as the text alone can tell."""
    plain = posixpath.normpath(text) if text else ""
    return plain[1:] if plain.startswith("//") else plain


def _cleaned(glob: str) -> str:
    """Return a rule's glob as canonical names are written: neither `./` nor `//`, and no slash at the end."""
    while glob.startswith("./"):
        glob = glob[2:]
    return re.sub("/{2,}", "/", glob).rstrip("/") or glob


def _covering(glob: str) -> tuple[str, ...]:
    """Return the globs of a denial as canonical names are written: a folder's name means the folder and all below it.

    With a slash at its end it means what is below it alone.
    """
    plain = glob.strip()
    whole = _lexical(_cleaned(plain))
    if not plain.strip("/"):
        return (whole,)
    return (f"{whole}/*",) if plain.endswith("/") else (whole, f"{whole}/*")


def _resolved(glob: str, resolve: Callable[[str], Sequence[str]]) -> list[str]:
    """Return a glob with the names up to its first wildcard resolved: a rule may name a link, and the call what it points to."""
    head = _LITERAL_HEAD.match(glob.strip())
    if head is None:
        return []
    wild = glob.strip()[head.end() :]
    try:
        names = resolve(head[0])
    except Exception:  # noqa: BLE001 - the author's function; a rule that cannot be resolved stands as it is written
        return []
    escaped = [_WILDCARD.sub(r"[\g<0>]", name) for name in names]
    return [f"{name}/{wild}" if wild else name for name in escaped]


_LITERAL_HEAD = re.compile(r"[^*?\[]+?(?=/[^/]*[*?\[]|/*$)")
"""The names of a path glob before the first one that has a wildcard."""
_WILDCARD = re.compile(r"[*?\[]")


def _folded(text: str) -> str:
    """Return a name so that spellings which some file systems take for one are one: case, and composed characters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _reaches(glob: str, folder: str, *, is_deep: bool) -> bool:
    """Whether some path below a folder fits the glob: whether the glob can go on once the folder's name is read.

    Args:
        is_deep: Whether the path may lie deeper than the folder's own children.
    """
    prefix = "" if folder in (".", "/", "") else f"{folder}/"
    if folder == "." and glob.startswith("/"):
        return False  # the folder's other name, from `/`, decides
    parts = _GLOB_PARTS.findall(glob)
    places = _past_stars(parts, {0})
    for char in prefix:
        ahead = {
            at + 1 for at in places if at < len(parts) and parts[at] != "*" and fnmatch.fnmatchcase(char, parts[at])
        }
        places = _past_stars(parts, ahead | {at for at in places if at < len(parts) and parts[at] == "*"})
    return any(at < len(parts) and (is_deep or "/" not in parts[at:]) for at in places)


_GLOB_PARTS = re.compile(r"\[!?[^\]]+\]|.", re.DOTALL)


def _past_stars(parts: Sequence[str], places: set[int]) -> set[int]:
    """Add the places behind each star, which may stand for nothing."""
    reached = set(places)
    for place in sorted(places):
        while place < len(parts) and parts[place] == "*":
            place += 1  # noqa: PLW2901 - walks on from here
            reached.add(place)
    return reached


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class NamedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """One word for every call that one of the rules matches, and no opinion on the others."""

    kind: DecisionKind
    rules: tuple[Rule, ...]
    reason: str = ""
    scope: str = "agent"

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        line = None if call.tool.line is None else judged(call, session)
        loosens = self.kind == DecisionKind.ALLOW
        if line is not None and loosens and self._covers(line, call):
            return Decision(
                kind=self.kind, rule=f"{self.kind} {self._patterns(call)}", reason=self.reason, scope=self.scope
            )
        for rule in self.rules:
            if rule.matches(call, loosens=loosens) or (line is not None and not loosens and rule.finds(line, call)):
                return Decision(kind=self.kind, rule=f"{self.kind} {rule.text}", reason=self.reason, scope=self.scope)
        return None

    def _covers(self, line: JudgedLine, call: CheckedCall) -> bool:
        texts = (rule.pattern for rule in self.rules if rule.pattern is not None and rule.names(call.name))
        return line.allowed_by([pattern for text in texts if (pattern := pattern_of(text)) is not None])

    def _patterns(self, call: CheckedCall) -> str:
        return ", ".join(rule.text for rule in self.rules if rule.pattern is not None and rule.names(call.name))


class FirstOf(msgspec.Struct, frozen=True, kw_only=True):
    """The first policy with an opinion speaks."""

    policies: tuple[Policy, ...]

    async def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        for policy in self.policies:
            answer = policy.decide(call, session)
            decision = await answer if inspect.isawaitable(answer) else answer
            if decision is not None:
                return decision
        return None


def allow(*names: str, scope: str = "agent") -> NamedPolicy:
    """Allow the named tools (rules: `tool`, `fs_*`, `tool(key=glob)`).

    Example:
        Agent(model, tools=[pay], policy=allow("pay"))

    Args:
        scope: Where the rules come from, for the record, such as `project`.
    """
    return _named(DecisionKind.ALLOW, names, scope)


def deny(*names: str, reason: str = "", scope: str = "agent") -> NamedPolicy:
    """Deny the named tools; the reason reaches the model.

    Example:
        Agent(model, tools=[rm], policy=deny("rm", reason="This session is read only."))

    Args:
        scope: As in `allow`.
    """
    return _named(DecisionKind.DENY, names, scope, reason)


def ask(*names: str, scope: str = "agent") -> NamedPolicy:
    """Ask a person before each call of the named tools.

    Example:
        Agent(model, tools=[fetch], policy=ask("fetch"))

    Args:
        scope: As in `allow`.
    """
    return _named(DecisionKind.ASK, names, scope)


def first_of(*policies: Policy) -> FirstOf:
    """Let the first policy with an opinion decide.

    Example:
        Agent(model, policy=first_of(deny("rm"), allow("fs_*")))
    """
    for one in policies:
        if not callable(getattr(one, "decide", None)):  # a port is whatever has its methods
            raise ConfigurationError(f"first_of() takes policies such as allow('grep'); got {shown(one)}.")
    return FirstOf(policies=policies)


def _named(kind: DecisionKind, names: Sequence[str], scope: str, reason: str = "") -> NamedPolicy:
    if not names:
        raise ConfigurationError(f"{kind}() needs at least one tool's name, or '*' for every tool.")
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ConfigurationError(f"{kind}() takes the names of tools as text; got {shown(wrong[0])}.")
    return NamedPolicy(kind=kind, rules=tuple(Rule.parse(name) for name in names), reason=reason, scope=scope)


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
    if call.tool.permission is not None:
        rule = f"tool {call.name} permission"
        return Decision(kind=DecisionKind(call.tool.permission), rule=rule, scope="tool", by="tool")
    if not call.effect.is_read:
        return Decision(kind=DecisionKind.ASK, rule=f"default for {call.effect}", scope="default", by="default")
    line = None if call.tool.line is None else judged(call, session)
    return _READ_DEFAULT if line is None or line.is_certain else _OUTSIDE_DEFAULT


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
    reason = f"The policy failed ({type(error).__name__}); nothing is run without its decision."
    return Decision(kind=DecisionKind.DENY, rule="policy raised", reason=reason, scope="runtime", by="runtime")


def held_to_port(decision: Any, who: str, *, scope: str = "agent") -> Decision:  # Any: whatever was answered
    """Return a decision that can be recorded: what is not a decision allows nothing, and words become text.

    Args:
        who: Who answered, such as `policy`.
        scope: What holds where the decision names no scope.
    """
    kind = decision.kind if isinstance(decision, Decision) else None
    if not isinstance(kind, str) or kind not in set(DecisionKind):
        return _broken(who, f"The {who} answered with a {type(decision).__name__} that is not a Decision.")
    arguments = decision.arguments
    if arguments is not None and (not isinstance(arguments, dict) or find_unencodable(arguments) is not None):
        return _broken(who, f"The {who} changed the arguments to what is not a JSON object.")
    if not isinstance(decision.interrupt, bool) or decision.consent not in ("allow", "sandbox"):
        return _broken(who, f"The {who} answered with a Decision whose interrupt or consent is invalid.")
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
_READ_DEFAULT = Decision(kind=DecisionKind.ALLOW, rule="default for read", scope="default", by="default")


def stricter(one: Decision, other: Decision) -> Decision:
    """Return the stricter of two decisions, the first of equals. Consent to an `ask` never lifts the sandbox of the other one."""
    first, second = one, other
    if _STRICTNESS[DecisionKind(other.kind)] > _STRICTNESS[DecisionKind(one.kind)]:
        first, second = other, one
    if first.kind == DecisionKind.DENY:
        return first if first.interrupt or not second.interrupt else second
    is_boxed = second.kind == DecisionKind.SANDBOX or "sandbox" in (first.consent, second.consent)
    consent: Literal["allow", "sandbox"] = "sandbox" if is_boxed else "allow"
    message = first.message or second.message
    if (consent, message) == (first.consent, first.message):
        return first
    return msgspec.structs.replace(first, consent=consent, message=message)
