"""Index: which of many rules may apply to a call. Leaves out only rules that surely do not, and decides nothing."""

from collections.abc import Iterable, Sequence
from typing import Any

from treadle.permissions.lines import FILE_TOOLS, JudgedLine, pattern_of
from treadle.permissions.rules import Rule, Subjects, beginnings, spellings
from treadle.shell.judging import program_name
from treadle.shell.rules import FOREIGN_NAMES, CommandPattern
from treadle.tools import CheckedCall

__all__ = ["RuleIndex"]

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

    def on(self, call: CheckedCall, subjects: Subjects, line: JudgedLine | None) -> list[Rule]:
        """Return the rules that may apply to a call, in their order.

        Args:
            line: What the call would do, where it runs a line of shell.
        """
        found = set(self._of_tool(call).about(call, subjects))
        if line is not None and not self._loosens:
            found.update(self._of_commands().about(line))
        return [self._rules[at] for at in sorted(found)]

    def patterns(self, call: CheckedCall, line: JudgedLine) -> list[tuple[str, CommandPattern]]:
        """Return the patterns on commands that may allow a command of a line, each with the text of its rule."""
        commands = self._of_commands()
        rules = (self._rules[at] for at in sorted(commands.about(line)))
        named = [rule for rule in rules if rule.pattern is not None and rule.names(call.name)]
        return [(rule.text, found) for rule in named if (found := pattern_of(rule.pattern or "")) is not None]

    def about_lines(self, call: CheckedCall) -> Rule | None:
        """Return the first rule that may apply to a line of shell; None where none may."""
        if call.name not in self._about_lines:
            self._about_lines[call.name] = next((one for one in self._rules if one.is_about_lines(call)), None)
        return self._about_lines[call.name]

    def _of_tool(self, call: CheckedCall) -> "_Arguments":
        known = self._arguments.get(call.name)
        if known is None:
            same = ["shell"] if call.tool.line is not None else ["read"] if call.name == "grep" else []
            names = dict.fromkeys(key for name in (call.name, *same) for key in (name, *_FOREIGN.get(name, ())))
            found = {at for name in names for at in self._by_tool.get(name, ())}
            known = _Arguments({at: self._rules[at] for at in sorted({*found, *self._wild})}, loosens=self._loosens)
            self._arguments[call.name] = known
        return known

    def _of_commands(self) -> "_Commands":
        if self._commands is None:
            self._commands = _Commands(self._rules)
        return self._commands


class _Arguments:
    """The rules of one tool, by how what they name begins."""

    def __init__(self, rules: dict[int, Rule], *, loosens: bool) -> None:
        self._loosens = loosens
        self._plain: list[int] = []
        self._by_key: dict[str, dict[str, list[int]]] = {}
        for at, rule in rules.items():
            key, glob = (rule.key, rule.glob) if rule.pattern is None else ("path", rule.pattern)
            if key is None or glob is None:
                self._plain.append(at)
                continue
            begin = self._by_key.setdefault(key, {})
            for one in beginnings(glob, loosens=loosens):
                begin.setdefault(one, []).append(at)
        self._longest = {key: max(map(len, begin), default=0) for key, begin in self._by_key.items()}

    def about(self, call: CheckedCall, subjects: Subjects) -> list[int]:
        found = list(self._plain)
        for key, begin in self._by_key.items():
            texts = spellings(call, key, subjects, loosens=self._loosens)
            if texts is None:
                found += [at for places in begin.values() for at in places]
            else:
                found += _beginning(begin, texts, self._longest[key])
        return found


class _Commands:
    """Rules on commands by the program that they name, and all others that may speak of a line."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._by_program: dict[str, list[int]] = {}
        self._others: list[int] = []
        for at, rule in enumerate(rules):
            is_on_files = FOREIGN_NAMES.get(rule.tool, rule.tool) in FILE_TOOLS
            pattern = None if rule.pattern is None or is_on_files else pattern_of(rule.pattern)
            if pattern is not None and pattern.words and not set(pattern.words[0]) & _WILD:
                self._by_program.setdefault(pattern.words[0], []).append(at)
            elif rule.pattern is not None or rule.key == "path":
                self._others.append(at)

    def about(self, line: JudgedLine) -> list[int]:
        names: set[str] = set()
        for one in line.line.invocations:
            names |= {one.program, program_name(one.program), one.program.rpartition("/")[2]}
        return [*(at for name in names for at in self._by_program.get(name, ())), *self._others]


def _beginning(begin: dict[str, list[int]], texts: Iterable[str], longest: int) -> list[Any]:
    """Return what is noted of each beginning of one of the texts."""
    found: list[int] = []
    for text in texts:
        for end in range(min(len(text), longest) + 1):
            found += begin.get(text[:end], ())
    return found
