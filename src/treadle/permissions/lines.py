"""Lines of shell before the rules: what each simple command of a call would start and touch. Holds no rule and decides nothing."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import structs

from treadle.canonical import copied
from treadle.errors import ConfigurationError
from treadle.events import RulesGranted
from treadle.ports import SessionView
from treadle.shell.judging import analyse, changes_nothing, plain_words
from treadle.shell.reading import Doubt, Extent, Invocation, Line, Touched
from treadle.shell.rules import CommandPattern
from treadle.tools import CheckedCall, FileNames, JsonObject, Place, ShellLine, Subject, Tool
from treadle.tools.protected import lies_in

__all__ = [
    "FILE_TOOLS",
    "JudgedLine",
    "Reached",
    "facts_in",
    "granted_in",
    "has_other_names",
    "judged",
    "pattern_of",
    "placed",
    "resolved",
    "subjects_of",
]


# --- Views: what permissions ask of a session on every call. A view says it at once; of any other session, its state is asked.


def subjects_of(call: CheckedCall) -> Mapping[str, Subject] | None:
    """Return what the arguments of a call name: as it was checked, or of a call that was made by hand, as its tool says now.

    None where its tool does not say, or cannot. A value that is not a Subject says nothing.
    """
    return resolved(call.tool, call.arguments) if call.subjects is None else call.subjects


def resolved(tool: Tool, arguments: JsonObject) -> Mapping[str, Subject] | None:
    """Return what the arguments of a call name now; None where its tool does not say, or cannot."""
    if tool.subjects is None:
        return None
    try:
        return dict(tool.subjects(copied(arguments)))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the author's function: one that raises, SystemExit too, has resolved nothing
        return None


def facts_in(session: SessionView) -> JsonObject:
    """Return what tools have remembered in the session. A view's state would be copied whole for it."""
    known: JsonObject | None = getattr(session, "facts", None)
    return session.state.facts.values if known is None else known


def granted_in(session: SessionView) -> tuple[RulesGranted, ...]:
    """Return what a person has allowed for more than one call."""
    known: tuple[RulesGranted, ...] | None = getattr(session, "granted", None)
    return session.state.granted if known is None else known


# --- Lines.

_ACCESS = {"read": ("read", "grep", "glob", "list"), "write": ("write", "edit", "read", "grep", "glob", "list")}
"""The tools whose rules on `path` speak of a path that a command reads or writes. A program that may write a file may read it too."""

FILE_TOOLS = frozenset(name for names in _ACCESS.values() for name in names)
"""The tools whose rules on `path` hold for commands, too."""


_WILD = re.compile(r"[*?\[]")
_MAX_NAMES = 1000
"""Names that the patterns of a line may stand for."""


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A path that a command may read or write, as rules on paths see it."""

    subject: Subject
    access: Literal["read", "write"]
    is_outside: bool
    """Whether it lies outside the root folder, links resolved."""
    way: str = ""
    """The path as the line has it, where a link is on the way; empty for any other."""
    unknown: str = ""
    """Why it is unknown where it leads, in one sentence: a rule on paths that does not find it has proven nothing. Empty for any other."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the file tools that do the same."""
        return _ACCESS[self.access]


class JudgedLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of a command tool would do, as far as it can be said."""

    line: Line
    reached: tuple[Reached, ...]
    folder: str = "."
    """Where it starts, relative to the root folder, or absolute where it is outside."""
    redirects: bool
    """Whether the line itself writes a file, by a redirection."""
    among: FileNames | None = None
    """The folder of files in which it runs."""
    at_root: frozenset[str] = frozenset()
    """Which of the folders in which its commands may start are the root folder; `.` is the one in which the line starts."""
    brought: tuple[tuple[Invocation, str], ...] = ()
    """Commands that only read, but would start what the project brings, each with the reason. A person is asked, or a rule allows it."""
    is_elsewhere: bool = False
    """Whether git is given a folder as the other repository: its hooks and settings would run."""

    @property
    def is_certain(self) -> bool:
        """Whether rules may allow it: it is understood, stays in the root folder, and no redirection of it writes a file."""
        if self.redirects or self.is_elsewhere or any(one.is_outside for one in self.reached):
            return False
        return self.line.is_understood

    @property
    def is_decided(self) -> bool:
        """Whether it starts and touches nothing but what was found: a rule that forbids and finds nothing has nothing to forbid."""
        return self.line.is_decided

    @property
    def undecided(self) -> str:
        """Why it cannot be decided, for the person who is asked."""
        return " ".join(one.shown for one in (*self.line.doubts, *self.line.hidden)[:1])

    def allowed_by(self, patterns: Sequence[CommandPattern], *, may_read: bool) -> bool:
        """Whether these patterns together cover each simple command of the line.

        Args:
            may_read: Whether commands that only read need no rule.
        """
        outer = [one for one in self.line.invocations if not one.via]
        if not self.is_certain or not outer:
            return False
        left = [one for one in outer if not any(self._allows(rule, one) for rule in patterns)]
        brought = [one for one, _ in self.brought]
        return len(left) < len(outer) and all(may_read and changes_nothing(one) and one not in brought for one in left)

    def is_allowed_in_part(self, pattern: CommandPattern) -> bool:
        """Whether a pattern allows one of its commands."""
        return any(self._allows(pattern, one) for one in self.line.invocations if not one.via)

    def is_exactly(self, pattern: CommandPattern) -> bool:
        """Whether a pattern means this very line, in the root folder."""
        return bool(pattern.line) and "." in self.at_root and pattern.line == self.line.source.strip()

    def _allows(self, pattern: CommandPattern, one: Invocation) -> bool:
        """Whether a pattern vouches for a command. What a wildcard matches names another file where a link is on the way."""
        if pattern.has_wildcards and any(path.way for path in self.reached):
            return False
        return pattern.allows(one, is_away=not self.at_root.issuperset(one.folders))

    def found_by(self, pattern: CommandPattern) -> bool:
        """Whether a pattern that forbids or asks finds a command of the line, also behind a wrapper or in a text."""
        if pattern.line:
            return pattern.line == self.line.source.strip()
        return any(pattern.forbids(one) for one in self.line.invocations)


def placed(call: CheckedCall, facts: JsonObject) -> CheckedCall:
    """Return a call that says where its line starts, and where the paths of it lead: compared with the same once it starts.

    Args:
        facts: What tools have remembered in the session.
    """
    line = judged(call, facts)
    if line is None:
        return call
    files = ((one.subject.names[0], one.way, one.access, has_other_names(one.subject)) for one in line.reached)
    return structs.replace(call, folder=line.folder, files=tuple(files))


def has_other_names(subject: Subject) -> bool:
    """Whether it is a file with several names (hard links)."""
    return subject.among is not None and subject.among.has_other_names(subject.names[-1])


def judged(call: CheckedCall, facts: JsonObject) -> JudgedLine | None:
    """Return what the line of a call would do; None for a call of a tool that runs no line.

    Args:
        facts: What tools have remembered in the session: the folder in which the line starts.
    """
    if call.tool.line is None:
        return None
    try:
        return _judged(call.tool.line(copied(call.arguments), copied(facts)))
    except Exception as error:  # noqa: BLE001 - the author's functions; what they cannot say is in doubt
        doubt = Doubt(reason=f"The tool failed to say which line it would run: {type(error).__name__}.", text=call.name)
        return JudgedLine(line=Line(source="", doubts=(doubt,)), reached=(), redirects=False)


def _judged(given: ShellLine) -> JudgedLine:
    line = analyse(given.text)
    start = given.look(".")
    named, doubts = _expanded(line, given)
    reached = tuple(place for one in named for place in _reached(one, given, start.path))
    doubts += [Doubt(reason=one.unknown, text=one.subject.names[0]) for one in reached if one.unknown][:1]
    return JudgedLine(
        line=structs.replace(line, doubts=(*line.doubts, *doubts)),
        reached=reached,
        folder=start.path if start.relative is None else start.relative,
        redirects=any(one.writes for one in line.redirections),
        at_root=frozenset(
            at
            for at in {".", *(at for one in line.invocations for at in one.folders)}
            if given.look(at).relative == "."
        ),
        is_elsewhere=any(_is_repository(one, given) for one in line.invocations),
        among=given.files,
        brought=tuple(_brought(line, given)),
    )


def _expanded(line: Line, given: ShellLine) -> tuple[list[Touched], list[Doubt]]:
    """Return the paths that a line touches, with names in place of patterns, and why some of those cannot be said."""
    named: list[Touched] = []
    doubts: list[Doubt] = []
    for one in line.touched:
        if not one.is_pattern:
            named.append(one)
            continue
        found = None if given.expand is None else given.expand(one.path)
        if found is None or len(named) + len(found) > _MAX_NAMES:
            doubts.append(Doubt(reason="The files that this pattern matches are too many to look at.", text=one.path))
            continue
        if any(part.startswith("-") for name in found for part in name.split("/")):
            doubts.append(Doubt(reason="This pattern matches a name that begins like an option.", text=one.path))
        named += [structs.replace(one, path=name, is_pattern=False) for name in found]
    return named, doubts


def _brought(line: Line, given: ShellLine) -> Iterator[tuple[Invocation, str]]:
    """Yield the commands that only read, but would start what the project brings."""
    if (why_of := given.brought) is None:
        return
    for one in filter(changes_nothing, line.invocations):
        reasons = (why_of(program, at) for program in (one.program, *one.before) for at in one.folders)
        if why := next(filter(None, reasons), ""):
            yield one, why


def _is_repository(one: Invocation, given: ShellLine) -> bool:
    words = plain_words(one.words)
    if words[0] != "git" or words[1:2] not in (("push",), ("fetch",), ("pull",)):
        return False
    named = next((word for word in words[2:] if not word.startswith("-")), None)
    return named is not None and any(given.look(posixpath.join(at, named)).is_folder for at in one.folders)


def pattern_of(text: str) -> CommandPattern | None:
    """Return a pattern on commands; None for a text that is invalid."""
    try:
        return _parsed(text)
    except ConfigurationError:
        return None


@lru_cache(maxsize=16_384)
def _parsed(text: str) -> CommandPattern:
    return CommandPattern.parse(text)


def _reached(touched: Touched, given: ShellLine, start: str) -> list[Reached]:
    """Return what a path stands for. Where links below it lead is not looked at: a program of the table that follows them is in doubt.

    Args:
        start: The folder in which the line starts, from `/`, links resolved.
    """
    place = given.look_from_root(touched.path) if touched.from_root else given.look(touched.path)
    found = [_placed(place, touched.access, touched.extent, given, may_be_outside=touched.is_program)]
    if not touched.from_root:
        plain = posixpath.normpath(posixpath.join(start, touched.path))
        found = [structs.replace(found[0], way=touched.path if place.path != plain else "")]
    if touched.extent == "file" and place.is_folder:
        return [structs.replace(found[0], unknown="What the program does with a folder is unknown.")]
    if touched.extent == "tree" and place.relative is None:
        root = given.look_from_root(".")  # a rule names what lies below it: `grep -r x ..` reads that, too
        found += [_placed(root, touched.access, touched.extent, given)] if lies_in([root.path], [place.path]) else []
    return found


def _placed(
    place: Place, access: Literal["read", "write"], extent: Extent, given: ShellLine, *, may_be_outside: bool = False
) -> Reached:
    """Say what rules on paths see.

    Args:
        may_be_outside: Whether it is a program that a rule names.
    """
    subject = Subject(
        names=_names(place),
        extent="itself" if not place.is_folder else "tree" if extent == "file" else extent,
        resolve=lambda other: _names(given.look_from_root(other)),
        among=given.files,
    )
    return Reached(
        subject=subject,
        access=access,
        is_outside=place.relative is None and not may_be_outside,
        unknown="This path means a different file for each program." if place.is_unknown else "",
    )


def _names(place: Place) -> tuple[str, ...]:
    return (place.path,) if place.relative is None else (place.relative, place.path)
