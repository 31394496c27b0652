"""Lines of shell before the rules: what each simple command of a call would start and touch. Holds no rule and decides nothing."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from treadle.canonical import copied
from treadle.errors import ConfigurationError
from treadle.shell.judging import analyse
from treadle.shell.parsed import Doubt, Line, Touched
from treadle.shell.rules import CommandPattern
from treadle.tools import CheckedCall, JsonObject, Place, ShellLine, Subject

__all__ = ["FILE_TOOLS", "JudgedLine", "Reached", "judged", "pattern_of"]

_ACCESS = {"read": ("read", "grep", "glob", "list"), "write": ("write", "edit", "read", "grep", "glob", "list")}
"""The tools whose rules on `path` speak of a path that a command reads or writes. A program that may write a file may read it too."""


FILE_TOOLS = frozenset(name for names in _ACCESS.values() for name in names)
"""The tools whose rules on `path` hold for commands, too."""


_WORDS = re.compile(r"[^\s;|&<>()=,:]+")
_QUOTES = str.maketrans("", "", "'\"\\")
_MAX_WORDS = 100


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A path that a command may read or write, as rules on paths see it."""

    subject: Subject
    access: Literal["read", "write"]
    is_outside: bool
    """Whether it lies outside the root folder, links resolved."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the file tools that do the same."""
        return _ACCESS[self.access]


class JudgedLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of a command tool would do, as far as it can be said."""

    line: Line
    reached: tuple[Reached, ...]
    redirects: bool
    """Whether the line itself writes a file, by a redirection."""
    mentioned: tuple[tuple[str, ...], ...] = ()
    """Of a line that cannot be decided: the canonical names of each of its words, as if it were a path."""

    @property
    def is_certain(self) -> bool:
        """Whether rules may allow it: it is understood, stays in the root folder, and no redirection of it writes a file."""
        return self.line.is_understood and not self.redirects and not any(one.is_outside for one in self.reached)

    @property
    def is_decided(self) -> bool:
        """Whether it starts and touches nothing but what was found: a rule that forbids and finds nothing has nothing to forbid."""
        return self.line.is_decided

    @property
    def undecided(self) -> str:
        """Why it cannot be decided, for the person who is asked."""
        return " ".join(f"{one.reason} {one.text}" for one in (*self.line.doubts, *self.line.hidden)[:1])

    def allowed_by(self, patterns: Sequence[CommandPattern]) -> bool:
        """Whether these patterns together cover each simple command of the line."""
        outer = [one for one in self.line.invocations if not one.via]
        return self.is_certain and bool(outer) and all(any(rule.allows(one) for rule in patterns) for one in outer)

    def found_by(self, pattern: CommandPattern) -> bool:
        """Whether a pattern that forbids or asks finds a command of the line, also behind a wrapper or in a text."""
        return any(pattern.forbids(one) for one in self.line.invocations)


def judged(call: CheckedCall, facts: JsonObject) -> JudgedLine | None:
    """Return what the line of a call would do; None for a call of a tool that runs no line.

    Args:
        facts: What tools have remembered in the session: the folder in which the line starts.
    """
    if call.tool.line is None:
        return None
    try:
        given = call.tool.line(copied(call.arguments), copied(facts))
    except Exception as error:  # noqa: BLE001 - the author's function; what it cannot say is in doubt
        doubt = Doubt(reason=f"The tool does not say which line it would run: {type(error).__name__}.", text=call.name)
        return JudgedLine(line=Line(source="", doubts=(doubt,)), reached=(), redirects=False)
    line = _analysed(given.text)
    reached = tuple(_reached(one, given) for one in line.touched)
    words = () if line.is_decided else tuple(dict.fromkeys(_WORDS.findall(given.text.translate(_QUOTES))))
    return JudgedLine(
        line=line,
        reached=reached,
        redirects=any(one.writes for one in line.redirections),
        mentioned=tuple(_names(given.look(word)) for word in words[:_MAX_WORDS] if "\0" not in word),
    )


def pattern_of(text: str) -> CommandPattern | None:
    """Return a pattern on commands; None for a text that is invalid."""
    try:
        return _parsed(text)
    except ConfigurationError:
        return None


@lru_cache(maxsize=256)
def _analysed(text: str) -> Line:
    return analyse(text)


@lru_cache(maxsize=16_384)
def _parsed(text: str) -> CommandPattern:
    return CommandPattern.parse(text)


def _reached(touched: Touched, given: ShellLine) -> Reached:
    place = given.look(touched.path)
    subject = Subject(
        names=_names(place),
        extent=touched.extent if place.is_folder else "itself",
        resolve=lambda other: _names(given.look_from_root(other)),
        among=given.files,
    )
    return Reached(subject=subject, access=touched.access, is_outside=place.relative is None)


def _names(place: Place) -> tuple[str, ...]:
    return (place.path,) if place.relative is None else (place.relative, place.path)
