"""Permission: turn a valid call into a decision. Policies, rules and defaults; asks nobody and runs nothing."""

import asyncio
import difflib
import inspect
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from treadle.canonical import copied, find_unencodable
from treadle.errors import ConfigurationError, shown
from treadle.fields import checked
from treadle.permissions.lines import FILE_TOOLS, JudgedLine, facts_in, granted_in, judged, pattern_of
from treadle.permissions.rules import (
    NETWORK,
    Rule,
    Subjects,
    as_text,
    beginnings,
    covering_globs,
    fits,
    folders_of,
    forms_of,
    heads_of,
    reaches,
    same_on_paths,
    spellings,
)
from treadle.ports import Decision, DecisionKind, Policy, SessionView, UnmatchedRule
from treadle.shell.border import border_of, lifted_by_rules
from treadle.shell.judging import plain_words
from treadle.shell.programs import program_name
from treadle.shell.reading import Invocation, Line
from treadle.shell.rules import CommandPattern
from treadle.tools import CheckedCall, Effect, FileNames, NameWatch, Risk, Subject, Tool
from treadle.tools.foreign import FOREIGN_NAMES, same_tool
from treadle.tools.needs import Need

__all__ = [
    "APPROVAL_LIFETIME_SECONDS",
    "OUTSIDE",
    "OWN_TOOLS",
    "UNDECIDED",
    "Linked",
    "NameIndex",
    "NamedPolicy",
    "Rule",
    "RuleIndex",
    "Seen",
    "allow",
    "ask",
    "decide",
    "default_decision",
    "default_for",
    "deny",
    "draft",
    "failed_policy",
    "first_of",
    "granted_policy",
    "held_to_port",
    "opinion",
    "stricter",
    "unmatched",
]


# --- Names: which of many rules that forbid or ask mean a thing, by its names. Finds them without looking at each;
# decides nothing.

_LITERAL = re.compile(r"[^*?\[]*")
_REST = re.compile(r"\[.*", re.DOTALL)
_SIGNS = re.compile(r"[*?]")
_MAX_KEPT = 4096

_Folders: TypeAlias = tuple[frozenset[str], bool]


class Linked:
    """Which rules name links, found out once in each decision.

    Args:
        moment: What was looked at in this decision already.
    """

    def __init__(self, moment: dict[str, Any]) -> None:
        self._moment = moment
        self._found: dict[tuple[int, int], tuple[int, ...]] = {}

    def of(self, names: "NameIndex", among: FileNames) -> tuple[int, ...]:
        key = (id(names), id(among))
        if key not in self._found:
            self._found[key] = names.through_links(among, self._moment)
        return self._found[key]


class NameIndex:
    """The globs of rules that forbid or ask, by how they begin and by what is in them.

    Args:
        globs: Of each rule, by its place among the rules.
    """

    def __init__(self, globs: Mapping[int, str]) -> None:
        self._globs = {at: covering_globs(glob) for at, glob in globs.items()}
        begin: dict[str, set[int]] = {}
        loose: dict[str, set[int]] = {}
        for at, forms in self._globs.items():
            for form in forms:
                start = _LITERAL.match(form)[0]  # type: ignore[index]  # it matches any text
                begin.setdefault(start, set()).add(at)
                if not start:
                    part = max(_SIGNS.split(_REST.sub("", form)), key=len)
                    loose.setdefault(part, set()).add(at)
        self._loose = tuple((part, tuple(places)) for part, places in loose.items())
        self._begin = {start: tuple(places) for start, places in begin.items() if start}
        self._starts = sorted(self._begin)
        self._longest = max(map(len, self._starts), default=0)
        self._heads: dict[str, list[int]] = {}
        for at, glob in globs.items():
            for head in heads_of(glob):
                self._heads.setdefault(head, []).append(at)
        self._folders = _searched(globs.values())
        self._below: dict[_Folders, tuple[int, ...]] = {}
        self._watches: WeakKeyDictionary[FileNames, NameWatch] = WeakKeyDictionary()

    def meaning(self, subject: Subject | None, written: str, linked: "Linked") -> Collection[int] | None:
        """Return the places of the rules that may mean a thing; None where each rule must be looked at by itself.

        Args:
            subject: What it is; None where its tool does not say.
            written: The argument as the model wrote it.
            linked: What was found in this decision already.
        """
        found = self._named(forms_of(subject, written))
        if subject is None:
            return found
        if subject.extent != "itself":
            found.update(self._reached(folders_of(subject), is_deep=subject.extent == "tree"))
        if subject.resolve is not None:
            if subject.among is None:
                return None
            found.update(linked.of(self, subject.among))
        return found

    def linked_names(self, subject: Subject) -> Iterable[str]:
        """Return other names of the same file (hard links), as far as rules may mean them."""
        path = next((name for name in reversed(subject.names) if name.startswith("/")), None)
        if subject.among is None or path is None or not self._globs:
            return ()
        return self._watch(subject.among).linked_names(path)

    def through_links(self, among: FileNames, moment: dict[str, Any]) -> tuple[int, ...]:
        """Return the rules whose names lead through a link now."""
        return tuple(at for name in self._watch(among).linked(moment) for at in self._heads.get(name, ()))

    def _watch(self, among: FileNames) -> NameWatch:
        known = self._watches.get(among)
        if known is None:
            known = self._watches[among] = among.watch(tuple(self._heads), self._folders)
        return known

    def _named(self, forms: frozenset[str]) -> set[int]:
        found: set[int] = set()
        for form in forms:
            for end in range(1, min(len(form), self._longest) + 1):
                found.update(self._begin.get(form[:end], ()))
        text = "\n".join(forms)
        for part, places in self._loose:
            if part in text:
                found.update(places)
        return {at for at in found if any(fits(form, glob) for glob in self._globs[at] for form in forms)}

    def _reached(self, folders: frozenset[str], *, is_deep: bool) -> tuple[int, ...]:
        """Return the rules that mean something below a folder."""
        known = self._below.get((folders, is_deep))
        if known is None:
            places = {at for folder in folders for at in self._near(folder)}
            known = tuple(
                at
                for at in sorted(places)
                if any(reaches(glob, folder, is_deep=is_deep) for folder in folders for glob in self._globs[at])
            )
            if len(self._below) >= _MAX_KEPT:
                self._below.clear()
            self._below[folders, is_deep] = known
        return known

    def _near(self, folder: str) -> set[int]:
        if folder in (".", "/", ""):
            return set(self._globs)
        prefix = f"{folder}/"
        found = {at for _, places in self._loose for at in places}
        for end in range(1, min(len(prefix), self._longest) + 1):
            found.update(self._begin.get(prefix[:end], ()))
        for start in self._starts[bisect_left(self._starts, prefix) :]:
            if not start.startswith(prefix):
                break
            found.update(self._begin[start])
        return found


def _searched(globs: Iterable[str]) -> tuple[str, ...]:
    """Return the files and folders that rules name before a wildcard. A rule that begins with one means names, and no certain files."""
    found: set[str] = set()
    for glob in globs:
        wild = glob.strip().rstrip("/")
        plain = _LITERAL.match(wild)[0]  # type: ignore[index]  # as above
        found.add(plain.rpartition("/")[0] if plain != wild else wild)
    return tuple(sorted(found - {""}))


# --- Index: which of many rules may apply to a call. Leaves out only rules that surely do not, and decides nothing.

_WILD = frozenset("*?[")
_FOREIGN = {own: [one for one, ours in FOREIGN_NAMES.items() if ours == own] for own in FOREIGN_NAMES.values()}


class RuleIndex:
    """The rules of one policy by tool, by how the names in them begin, and by the program of a command. Their order is kept.

    Args:
        rules: Of one policy.
        loosens: Whether they allow something.
    """

    def __init__(self, rules: Sequence[Rule], *, loosens: bool) -> None:
        self._rules = tuple(rules)
        self._loosens = loosens
        self._by_tool: dict[str, list[int]] = {}
        self._wild: list[int] = []
        for at, rule in enumerate(self._rules):
            if set(rule.tool) & _WILD:
                self._wild.append(at)
            else:
                self._by_tool.setdefault(rule.tool, []).append(at)
        self._arguments: dict[str, _Arguments] = {}
        self._commands: _Commands | None = None
        self._on_network = [rule for rule in self._rules if rule.tool == NETWORK]
        self._about_lines: dict[tuple[str, bool], Rule | None] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleIndex) and (self._rules, self._loosens) == (other._rules, other._loosens)

    def __hash__(self) -> int:
        return hash((self._rules, self._loosens))

    def looked_at(self, call: CheckedCall, subjects: Subjects, line: JudgedLine | None) -> "Seen":
        """Return what a call names. A file that has other names, to which rules that forbid may apply, has those too."""
        seen = Seen(subjects, line)
        if self._loosens:
            return seen
        self._of_tool(call).widen(call, seen)
        if line is not None:
            self._of_commands().widen(seen)
        return seen

    def on(self, call: CheckedCall, seen: "Seen") -> Iterator[Rule]:
        """Return the rules that may apply to a call, in their order."""
        found = self._of_tool(call).about(call, seen)
        if seen.line is not None and not self._loosens:
            found += self._of_commands().about(seen.line, seen)
        return (self._rules[at] for at, _ in groupby(sorted(found)))

    def patterns(self, call: CheckedCall, line: JudgedLine) -> list[tuple[str, CommandPattern]]:
        """Return the patterns on commands that may allow a command of a line, each with the text of its rule."""
        commands = self._of_commands()
        rules = (self._rules[at] for at in commands.allowing(line.line))
        named = [rule for rule in rules if rule.pattern is not None and rule.names(call.name)]
        return [(rule.text, found) for rule in named if (found := pattern_of(rule.pattern or "")) is not None]

    def on_host(self, call: CheckedCall) -> tuple[Rule, bool] | None:
        """Return a rule on a host that a call needs to reach, and whether it surely does; None where none is."""
        needs = call.needs if self._on_network else ()
        found = [(rule, True) for rule in self._on_network if any(map(rule.lifts, needs))]
        found += [(rule, False) for rule in self._on_network if Need("network", "*") in needs]
        return next(iter(found), None)

    def about_lines(self, call: CheckedCall, *, is_kept: bool) -> Rule | None:
        """Return the first rule that may apply to a line of shell; None where none may.

        Args:
            is_kept: Whether to leave out rules that the sandbox keeps.
        """
        key = (call.name, is_kept)
        if key not in self._about_lines:
            found = (one for one in self._rules if one.is_about_lines(call))
            self._about_lines[key] = next(
                (one for one in found if not (is_kept and one.is_kept_by_sandbox(call))), None
            )
        return self._about_lines[key]

    def _of_tool(self, call: CheckedCall) -> "_Arguments":
        known = self._arguments.get(call.name)
        if known is None:
            same = ("shell",) if call.tool.line is not None else same_on_paths(call.name)
            tools = (call.name, *same)
            names = dict.fromkeys(key for name in tools for key in (name, *_FOREIGN.get(name, ())))
            found = {at for name in names for at in self._by_tool.get(name, ())}
            known = _Arguments({at: self._rules[at] for at in sorted({*found, *self._wild})}, loosens=self._loosens)
            self._arguments[call.name] = known
        return known

    def _of_commands(self) -> "_Commands":
        if self._commands is None:
            self._commands = _Commands(self._rules)
        return self._commands


class Seen:
    """What a call names, as the rules of one policy look at it."""

    def __init__(self, subjects: Subjects, line: JudgedLine | None) -> None:
        self.subjects = subjects
        self.line = line
        self.linked = Linked(subjects.moment)


class _Arguments:
    """The rules of one tool, by how what they name begins."""

    def __init__(self, rules: dict[int, Rule], *, loosens: bool) -> None:
        self._loosens = loosens
        self._plain: list[int] = []
        self._by_key: dict[str, dict[int, str]] = {}
        for at, rule in rules.items():
            key, glob = (rule.key, rule.glob) if rule.pattern is None else ("path", rule.pattern)
            if key is None or glob is None:
                self._plain.append(at)
            else:
                self._by_key.setdefault(key, {})[at] = glob
        self._patterned = frozenset(at for at, rule in rules.items() if rule.pattern is not None)
        if loosens:
            self._begin = {key: _begun(globs) for key, globs in self._by_key.items()}
        else:
            self._names = {key: NameIndex(globs) for key, globs in self._by_key.items()}

    def about(self, call: CheckedCall, seen: Seen) -> list[int]:
        found = list(self._plain)
        for key, globs in self._by_key.items():
            places = self._allowing(call, key, seen) if self._loosens else self._forbidding(call, key, seen)
            found += globs if places is None else places
        return found

    def widen(self, call: CheckedCall, seen: Seen) -> None:
        for key, names in self._names.items():
            subject = seen.subjects.of(key)
            if isinstance(subject, Subject) and (linked_names := names.linked_names(subject)):
                seen.subjects.widen(key, _widened(subject, linked_names))

    def _allowing(self, call: CheckedCall, key: str, seen: Seen) -> Iterable[int] | None:
        if call.tool.line is not None:
            return ()  # no line is allowed by its text
        texts = spellings(call, key, seen.subjects)
        return None if texts is None else _beginning(*self._begin[key], texts)

    def _forbidding(self, call: CheckedCall, key: str, seen: Seen) -> Iterable[int] | None:
        subject, value = seen.subjects.of(key), call.arguments.get(key)
        if subject is None and key not in call.arguments:
            # Only a pattern says something of a tool that has no such argument; a line is found by its commands and paths.
            return () if call.tool.line is not None else self._patterned & self._by_key[key].keys()
        if isinstance(value, list) or (subject is not None and not isinstance(subject, Subject)):
            return None
        return self._names[key].meaning(subject, as_text(value), seen.linked)


class _Commands:
    """Rules on commands by the program that they name, rules on paths by these, and all others that may speak of a line."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._by_program: dict[str, list[int]] = {}
        self._by_line: dict[str, list[int]] = {}
        self._second: dict[int, str] = {}
        self._others: list[int] = []
        paths: dict[int, str] = {}
        for at, rule in enumerate(rules):
            is_on_files = FOREIGN_NAMES.get(rule.tool, rule.tool) in FILE_TOOLS
            pattern = None if rule.pattern is None or is_on_files else pattern_of(rule.pattern)
            if pattern is not None and pattern.line:
                self._by_line.setdefault(pattern.line, []).append(at)
            elif pattern is not None and pattern.words and not set(pattern.words[0]) & _WILD:
                self._by_program.setdefault(pattern.words[0], []).append(at)
                second = plain_words(pattern.words)[1:2]
                if second and not set(second[0]) & _WILD and pattern.words[0] not in ("curl", "wget"):
                    self._second[at] = second[0]
            elif rule.key == "path" and rule.glob is not None:
                paths[at] = rule.glob
            elif rule.pattern is not None and is_on_files:
                paths[at] = rule.pattern
            elif rule.pattern is not None:
                self._others.append(at)
        self._paths = paths
        self._names = NameIndex(paths)

    def allowing(self, line: Line) -> list[int]:
        """Return the rules that may allow a command of a line: the second word of each is one of its words."""
        words = {word for one in line.invocations for word in one.words}
        return [at for at in sorted(self.on_line(line)) if at not in self._second or self._second[at] in words]

    def on_line(self, line: Line) -> list[int]:
        return [*self.on_programs(line.invocations), *self._by_line.get(line.source.strip(), ())]

    def on_programs(self, invocations: Sequence[Invocation]) -> list[int]:
        names: set[str] = set()
        for one in invocations:
            names |= {one.program, program_name(one.program), one.program.rpartition("/")[2], *one.before}
        return [*(at for name in names for at in self._by_program.get(name, ())), *self._others]

    def about(self, line: JudgedLine, seen: Seen) -> set[int]:
        found = set(self.on_line(line.line))
        if self._paths:
            for one in line.reached:
                places = self._names.meaning(one.subject, "", seen.linked)
                found.update(self._paths if places is None else places)
        return found

    def widen(self, seen: Seen) -> None:
        assert seen.line is not None
        reached = list(seen.line.reached)
        for at, one in enumerate(reached if self._paths else ()):
            if linked_names := self._names.linked_names(one.subject):
                reached[at] = msgspec.structs.replace(one, subject=_widened(one.subject, linked_names))
                seen.line = msgspec.structs.replace(seen.line, reached=tuple(reached))


def _widened(subject: Subject, linked_names: Iterable[str]) -> Subject:
    return msgspec.structs.replace(subject, names=tuple(dict.fromkeys((*subject.names, *linked_names))))


def _begun(globs: Mapping[int, str]) -> tuple[dict[str, list[int]], int]:
    """Return the rules by how the names in them begin, and how long the longest beginning is."""
    begin: dict[str, list[int]] = {}
    for at, glob in globs.items():
        for one in beginnings(glob):
            begin.setdefault(one, []).append(at)
    return begin, max(map(len, begin), default=0)


def _beginning(begin: dict[str, list[int]], longest: int, texts: Iterable[str]) -> list[int]:
    """Return what is noted of each beginning of one of the texts."""
    found: list[int] = []
    for text in texts:
        for end in range(min(len(text), longest) + 1):
            found += begin.get(text[:end], ())
    return found


# --- Permission: turn a valid call into a decision. Policies, rules and defaults; asks nobody and runs nothing.

APPROVAL_LIFETIME_SECONDS = 7 * 24 * 3600.0
"""After so long a request for approval is void, and the call is asked about again."""

UNDECIDED = "cannot decide:"
"""How the rule of a decision begins that asks because a rule on lines of shell cannot say whether it applies."""
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
            may_read = call.permission in (None, "allow")
            if (exact := next((text for text, pattern in patterns if line.is_exactly(pattern)), None)) is not None:
                return self._says(exact, lifted=border_of(line.line.source))
            used = [(text, pattern) for text, pattern in patterns if line.is_allowed_in_part(pattern)]
            if used and line.allowed_by([pattern for _, pattern in used], may_read=may_read):
                rules = ", ".join(text for text, _ in used)
                return self._says(rules, lifted=lifted_by_rules(line.line.source))
        if not loosens and (reached := self.index.on_host(call)) is not None:
            rule, is_certain = reached
            return self._says(rule.text) if is_certain else self._cannot_say(rule, "It may reach any host.")
        is_kept = call.is_confined and self.kind == DecisionKind.DENY
        seen = self.index.looked_at(call, subjects, line)
        for rule in self.index.on(call, seen):
            found = seen.line is not None and not loosens and rule.finds(seen.line, call, is_kept=is_kept)
            if found or rule.matches(call, loosens=loosens, subjects=seen.subjects):
                return self._says(rule.text)
        return None if line is None or loosens else self._in_doubt(call, line, is_kept=is_kept)

    def _in_doubt(self, call: CheckedCall, line: JudgedLine, *, is_kept: bool) -> Decision | None:
        """Ask about a line that may start what the rules forbid, where it is unknown whether it does."""
        assert self.index is not None
        about = None if line.is_decided else self.index.about_lines(call, is_kept=is_kept)
        return None if about is None else self._cannot_say(about, line.undecided)

    def _says(self, rules: str, *, lifted: Sequence[Need] = ()) -> Decision:
        """Return the decision of some rules. One that allows a command lifts what the program needs of a sandbox's border."""
        rule = f"{self.kind} {rules}"
        texts = tuple(need.text for need in lifted)
        return Decision(kind=self.kind, rule=rule, reason=self.reason, scope=self.scope, lifted=texts)

    def _cannot_say(self, rule: Rule, why: str) -> Decision:
        """Ask about a call of which it is unknown whether it does what the rule forbids. No mode lifts that of a rule that denies."""
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

    Raises:
        ConfigurationError: A rule is invalid, or can allow no call.
    """
    policy = _named(DecisionKind.ALLOW, names, scope)
    for rule in policy.rules:
        if why := rule.never_allows:
            raise ConfigurationError(f"The rule `allow {rule.text}` allows nothing: {why}")
    return policy


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
    if decision.kind != DecisionKind.ASK or session is None or call.permission == "always_ask":
        return decision
    return _granted(call, session) or decision


def _ungranted(call: CheckedCall, session: SessionView | None) -> Decision:
    try:
        permission = call.permission
    except AttributeError:
        raise ConfigurationError(f"call must be a CheckedCall; got {shown(call)}.") from None
    if permission is not None:
        rule = f"tool {call.name} permission"
        kind = DecisionKind.ASK if permission == "always_ask" else DecisionKind(permission)
        return Decision(kind=kind, rule=rule, scope="tool", by="tool")
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
    policy = granted_policy(session)
    found = None if policy is None else policy.decide(call, session)
    return None if found is None else msgspec.structs.replace(found, by=granted_in(session)[-1].by)


def granted_policy(session: SessionView) -> NamedPolicy | None:
    """Return the rules by which a person has allowed more than one call in a session; None where there are none."""
    names = dict.fromkeys(rule for one in granted_in(session) for rule in one.rules)
    return _named(DecisionKind.ALLOW, tuple(names), "session") if names else None


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
    if not isinstance(decision.lifted, tuple) or not all(isinstance(one, str) for one in decision.lifted):
        return _broken(who, f"The {who} returned a Decision whose `lifted` is not a tuple of strings.")
    words = (decision.rule, decision.reason, decision.scope, decision.by, decision.message)
    is_plain = type(decision) is Decision and set(map(type, words)) == {str} and "".join(words).isascii()
    if is_plain and arguments is None:  # nearly all
        held: Decision = msgspec.structs.replace(
            decision,
            kind=DecisionKind.DENY if decision.interrupt else DecisionKind(kind),
            rule=decision.rule or who,
            scope=decision.scope or scope,
            by=decision.by or who,
            mode="",
        )
        return held
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
        lifted=decision.lifted,
    )


def _broken(who: str, reason: str) -> Decision:
    return Decision(
        kind=DecisionKind.DENY, rule=f"{who} broke its contract", reason=reason, scope="runtime", by="runtime"
    )


def _words(value: Any) -> str:
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


OUTSIDE = "default for a path outside the root folder"
"""The rule by which a person is asked about a command that reads outside of the folder."""
_OUTSIDE_DEFAULT = Decision(kind=DecisionKind.ASK, rule=OUTSIDE, scope="default", by="default")
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
    is_bare = second.kind == DecisionKind.ALLOW  # it knows no border
    lifted = first.lifted if is_bare else tuple(one for one in first.lifted if one in second.lifted)
    if (consent, message, lifted) == (first.consent, first.message, first.lifted):
        return first
    return msgspec.structs.replace(first, consent=consent, message=message, lifted=lifted)


# --- Unmatched: the rules of a policy that match no call of the tools that there are, so that nobody relies on one in
# vain. Decides nothing.

OWN_TOOLS = frozenset(
    {*FOREIGN_NAMES.values(), "list_processes", "read_artifact", "read_note", "write_note", "write_process"}
)
"""The names of Treadle's own tools. A rule on one that is not offered here is not reported, unless it is offered behind a prefix."""
_ORDER = (DecisionKind.DENY, DecisionKind.ASK, DecisionKind.DRAFT, DecisionKind.ALLOW)
_SAYS = {"deny": "denies nothing", "ask": "asks about nothing", "draft": "drafts nothing", "allow": "allows nothing"}
_SEEN_BY_RULES = {"fetch": ("host",)}
"""What a tool's `subjects` name beside its arguments."""
_OPEN = {"patternProperties", "$ref", "anyOf", "oneOf", "allOf"}
"""Keywords by which a schema may have arguments that its `properties` do not name."""
_DEPTH = 12


def unmatched(
    policy: Policy | None, tools: Sequence[Tool], *, are_all: bool, servers: Sequence[str] = ()
) -> tuple[UnmatchedRule, ...]:
    """Return the rules that match no call of these tools, those that deny first.

    Args:
        are_all: Whether there are no other tools: none of toolsets that are not open, none of agents that are called. Otherwise a name
            that no tool has is reported only where it resembles one.
        servers: The names of toolsets that are not open.
    """
    near = _Near(tools, servers, are_all=are_all)
    found = [
        made
        for one in _named_tools(policy, 0)
        for rule in one.rules
        if (made := _judged(one, rule, tools, near)) is not None
    ]
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.kind)))


def _named_tools(policy: object, depth: int) -> Iterator[NamedPolicy]:
    """Yield the rules within a policy, and within those that it names as its `policies`."""
    if isinstance(policy, NamedPolicy):
        yield policy
        return
    inner = getattr(policy, "policies", None)
    for one in inner if isinstance(inner, tuple) and depth < _DEPTH else ():
        yield from _named_tools(one, depth + 1)


def _judged(policy: NamedPolicy, rule: Rule, tools: Sequence[Tool], names: "_Near") -> UnmatchedRule | None:
    meant = [tool for tool in tools if rule.names(tool.name)]
    found = _argument(policy, rule, meant) if meant else _name(rule, names)
    if found is None:
        return None
    reason, near = found
    place = f" of {policy.origin}" if policy.origin else ""
    hint = f" Did you mean `{near}`?" if near else ""
    return UnmatchedRule(
        kind=policy.kind,
        rule=rule.text,
        scope=policy.scope,
        origin=policy.origin,
        near=near,
        message=f"The rule `{policy.kind} {rule.text}`{place} {_SAYS.get(policy.kind, 'does nothing')}: {reason}{hint}",
    )


class _Near:
    """The names that a rule may mean."""

    def __init__(self, tools: Sequence[Tool], servers: Sequence[str], *, are_all: bool) -> None:
        self.are_all = are_all
        self._known = {name.casefold(): name for name in (*OWN_TOOLS, NETWORK, *(tool.name for tool in tools))}
        self._servers = tuple(servers)
        self._tools = tuple(tool.name for tool in tools)

    def renamed(self, tool: str) -> str:
        """Return the name that one of Treadle's own tools has behind a prefix; empty where none has."""
        return next((name for name in self._tools if name.endswith((f"_{tool}", f"-{tool}", f".{tool}"))), "")

    def of(self, tool: str) -> str:
        """Return the name that resembles one; empty for none."""
        if (same := same_tool(tool)) is not None:
            return same
        if self._servers and tool.startswith("mcp__"):  # which tools a server has is known once it is open
            server = tool.split("__")[1]
            close = difflib.get_close_matches(server, self._servers, n=1)
            return f"mcp__{close[0]}" if close and close[0] != server else ""
        close = difflib.get_close_matches(tool.casefold(), self._known, n=1)
        return self._known[close[0]] if close else ""


def _name(rule: Rule, names: _Near) -> tuple[str, str] | None:
    """Return why a rule on an unknown tool matches nothing, and the name that may be meant; None where it may match."""
    if rule.tool == NETWORK:
        return None
    if rule.tool in FOREIGN_NAMES or any(rule.names(name) for name in OWN_TOOLS):
        renamed = names.renamed(FOREIGN_NAMES.get(rule.tool, rule.tool))
        return (
            (f"a wrapper has renamed the tool `{rule.tool}`, and rules use the new name.", renamed) if renamed else None
        )
    if set(rule.tool.removesuffix("__*")) & _WILD:
        return (f"there is no tool with a name like `{rule.tool}`.", "") if names.are_all else None
    near = names.of(rule.tool)
    return (f"there is no tool `{rule.tool}`.", near) if names.are_all or near else None


def _argument(policy: NamedPolicy, rule: Rule, meant: Sequence[Tool]) -> tuple[str, str] | None:
    """Return why a rule on one argument matches nothing, and the argument that may be meant; None where it may match."""
    if rule.key is None:
        return None
    if policy.kind == DecisionKind.ALLOW and all(tool.line is not None for tool in meant):
        return "no line of shell is allowed by its text. Write the command, as in `shell(git log:*)`.", ""
    arguments = [_arguments(tool) for tool in meant]
    if any(names is None or rule.key in names for names in arguments):
        return None
    names = sorted({name for one in arguments for name in one or ()})
    close = difflib.get_close_matches(rule.key, names, n=1, cutoff=0.5)
    return f"`{meant[0].name}` has no argument `{rule.key}`.", close[0] if close else ""


def _arguments(tool: Tool) -> Iterable[str] | None:
    """Return the names of all that rules on a tool can speak of; None where its schema or its author does not say."""
    properties = tool.parameters.get("properties")
    is_open = tool.parameters.get("additionalProperties", False) is not False or bool(tool.parameters.keys() & _OPEN)
    if not isinstance(properties, dict) or is_open or (tool.subjects is not None and tool.name not in OWN_TOOLS):
        return None
    return {*properties, *_SEEN_BY_RULES.get(tool.name, ())}
