"""Index: which of many rules may apply to a call. Leaves out only rules that surely do not, and decides nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from treadle.permissions.lines import FILE_TOOLS, JudgedLine, pattern_of
from treadle.permissions.names import Linked, NameIndex
from treadle.permissions.rules import Rule, Subjects, as_text, beginnings, same_on_paths, spellings
from treadle.shell.parsed import Invocation
from treadle.shell.programs import program_name
from treadle.shell.rules import CommandPattern
from treadle.tools import CheckedCall, Subject
from treadle.tools.foreign import FOREIGN_NAMES

__all__ = ["RuleIndex", "Seen"]

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
        self._about_lines: dict[str, Rule | None] = {}

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
        rules = (self._rules[at] for at in sorted(commands.on_programs(line.line.invocations)))
        named = [rule for rule in rules if rule.pattern is not None and rule.names(call.name)]
        return [(rule.text, found) for rule in named if (found := pattern_of(rule.pattern or "")) is not None]

    def possible(self, call: CheckedCall, line: JudgedLine) -> tuple[Rule, str] | None:
        """Return a rule that means what a program which is not known may start, and why; None where none does."""
        for at in sorted(self._of_commands().on_programs(line.line.possible)):
            rule = self._rules[at]
            pattern = pattern_of(rule.pattern or "") if rule.is_about_commands(call) else None
            found = None if pattern is None else line.possible_for(pattern)
            if found is not None:
                return rule, f"`{found.via[-1]}` is unknown, and may run `{found.program}`."
        return None

    def unsearched(self, seen: "Seen") -> Rule | None:
        """Return a rule of which nobody can say whether it applies to a file with several names; None where all were found."""
        return None if seen.unsearched is None else self._rules[seen.unsearched]

    def about_lines(self, call: CheckedCall) -> Rule | None:
        """Return the first rule that may apply to a line of shell; None where none may."""
        if call.name not in self._about_lines:
            self._about_lines[call.name] = next((one for one in self._rules if one.is_about_lines(call)), None)
        return self._about_lines[call.name]

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
        self.unsearched: int | None = None
        """The place of a rule of which nobody can say whether it applies: the file has more names than can be searched for."""


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
            if isinstance(subject, Subject):
                twins = names.twins(subject)
                if twins is None:
                    seen.unsearched = next(iter(self._by_key[key]))
                elif twins:
                    seen.subjects.widen(key, _widened(subject, twins))

    def _allowing(self, call: CheckedCall, key: str, seen: Seen) -> Iterable[int] | None:
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
        self._others: list[int] = []
        paths: dict[int, str] = {}
        for at, rule in enumerate(rules):
            is_on_files = FOREIGN_NAMES.get(rule.tool, rule.tool) in FILE_TOOLS
            pattern = None if rule.pattern is None or is_on_files else pattern_of(rule.pattern)
            if pattern is not None and pattern.words and not set(pattern.words[0]) & _WILD:
                self._by_program.setdefault(pattern.words[0], []).append(at)
            elif rule.key == "path" and rule.glob is not None:
                paths[at] = rule.glob
            elif rule.pattern is not None and is_on_files:
                paths[at] = rule.pattern
            elif rule.pattern is not None:
                self._others.append(at)
        self._paths = paths
        self._names = NameIndex(paths)

    def on_programs(self, invocations: Sequence[Invocation]) -> list[int]:
        names: set[str] = set()
        for one in invocations:
            names |= {one.program, program_name(one.program), one.program.rpartition("/")[2]}
        return [*(at for name in names for at in self._by_program.get(name, ())), *self._others]

    def about(self, line: JudgedLine, seen: Seen) -> set[int]:
        found = set(self.on_programs(line.line.invocations))
        if self._paths:
            for one in line.reached:
                places = self._names.meaning(one.subject, "", seen.linked)
                found.update(self._paths if places is None else places)
        return found

    def widen(self, seen: Seen) -> None:
        assert seen.line is not None
        reached = list(seen.line.reached)
        for at, one in enumerate(reached if self._paths else ()):
            twins = self._names.twins(one.subject)
            if twins is None:
                seen.unsearched = next(iter(self._paths))
            elif twins:
                reached[at] = msgspec.structs.replace(one, subject=_widened(one.subject, twins))
                seen.line = msgspec.structs.replace(seen.line, reached=tuple(reached))


def _widened(subject: Subject, twins: Iterable[str]) -> Subject:
    return msgspec.structs.replace(subject, names=tuple(dict.fromkeys((*subject.names, *twins))))


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
