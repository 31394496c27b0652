"""Lines of shell before the rules: what each simple command of a call would start and touch. Holds no rule and decides nothing."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from glob import escape
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from treadle.canonical import copied
from treadle.errors import ConfigurationError
from treadle.events import RulesGranted
from treadle.ports import SessionView
from treadle.shell.judging import analyse, changes_nothing, plain_words, words_within
from treadle.shell.reading import Doubt, Invocation, Line, Touched
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
    "resolved",
    "start_folder",
    "subjects_of",
    "touched",
]


# --- Views: what permissions ask of a session on every call. A view says it at once; of any other session, its state is
# asked.


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


# --- Lines of shell before the rules: what each simple command of a call would start and touch. Holds no rule and
# decides nothing.

Extent: TypeAlias = Literal["itself", "children", "tree"]

_ACCESS = {"read": ("read", "grep", "glob", "list"), "write": ("write", "edit", "read", "grep", "glob", "list")}
"""The tools whose rules on `path` speak of a path that a command reads or writes. A program that may write a file may read it too."""


FILE_TOOLS = frozenset(name for names in _ACCESS.values() for name in names)
"""The tools whose rules on `path` hold for commands, too."""


_WILD = re.compile(r"[*?\[]")
_MAX_NAMES = 1000
"""Names that the patterns of a line may stand for."""
_MAX_TAKEN = 10_000


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A path that a command may read or write, as rules on paths see it."""

    subject: Subject
    access: Literal["read", "write"]
    is_outside: bool
    """Whether it lies outside the root folder, links resolved."""
    is_linked: bool = False
    """Whether a link is on the way to it."""
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
    redirects: bool
    """Whether the line itself writes a file, by a redirection."""
    taken: tuple[tuple[str, ...], ...] = ()
    """The canonical names of what lies in folders that a command removes, changes or copies as a whole, two levels deep."""
    unseen: str = ""
    """Such a folder with more in it than is looked at; empty where there is none."""
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
        if pattern.has_wildcards and any(path.is_linked for path in self.reached):
            return False
        return pattern.allows(one, is_away=not self.at_root.issuperset(one.folders))

    def found_by(self, pattern: CommandPattern) -> bool:
        """Whether a pattern that forbids or asks finds a command of the line, also behind a wrapper or in a text."""
        if pattern.line:
            return pattern.line == self.line.source.strip()
        return any(pattern.forbids(one) for one in self.line.invocations)

    def names_within(self) -> frozenset[str]:
        """Return the names that stand in the words of commands that may start any program."""
        return words_within(self.line)


def start_folder(tool: Tool, arguments: JsonObject, facts: JsonObject) -> str:
    """Return the folder in which the line of a call would start, relative to the root folder; `.` for a call that runs no line.

    Args:
        facts: What tools have remembered in the session.
    """
    if tool.line is None:
        return "."
    try:
        place = tool.line(copied(arguments), copied(facts)).look(".")
    except Exception:  # noqa: BLE001 - the author's function: `judged` says what it means that it raises
        return "."
    return place.path if place.relative is None else place.relative


def touched(call: CheckedCall, facts: JsonObject) -> object:
    """Return which files a call touches, as its paths lead now: to be compared with the same at another time.

    The path of a tool that opens files itself leads where it led when the call was decided on, or the tool refuses it: of such a call only
    whether its file has other names (hard links) can change.

    Args:
        facts: What tools have remembered in the session.
    """
    line = judged(call, facts)
    if line is None:
        return [has_other_names(one) for one in (subjects_of(call) or {}).values() if isinstance(one, Subject)]
    reached = [(one.subject.names, one.access, has_other_names(one.subject)) for one in line.reached]
    return reached, line.taken


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
        given = call.tool.line(copied(call.arguments), copied(facts))
    except Exception as error:  # noqa: BLE001 - the author's function; what it cannot say is in doubt
        doubt = Doubt(reason=f"The tool failed to say which line it would run: {type(error).__name__}.", text=call.name)
        return JudgedLine(line=Line(source="", doubts=(doubt,)), reached=(), redirects=False)
    line = analyse(given.text)
    links, start = _Links(given), given.look(".")
    named, doubts = _expanded(line, given)
    reached = tuple(place for one in named if not one.taken for place in _reached(one, given, links, start.path))
    taken, unseen = _taken(named, given)
    doubts += [Doubt(reason=one.unknown, text=one.subject.names[0]) for one in reached if one.unknown][:1]
    if doubts:
        line = structs.replace(line, doubts=(*line.doubts, *doubts))
    return JudgedLine(
        line=line,
        reached=reached,
        redirects=any(one.writes for one in line.redirections),
        taken=taken,
        unseen=unseen,
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


def _taken(named: Sequence[Touched], given: ShellLine) -> tuple[tuple[tuple[str, ...], ...], str]:
    """Return the names of what lies two levels deep in the folders that a line removes, changes or copies, and one with too much in it."""
    found: list[str] = []
    for one in named if given.expand is not None else ():
        if not one.taken or "\0" in one.path or not given.look(one.path).is_folder:
            continue
        for below in ("*", ".*", "*/*", "*/.*"):
            names = given.expand(posixpath.join(escape(one.path), below))  # type: ignore[misc]  # it is not None, as above
            if names is None or len(found) > _MAX_TAKEN:
                return (), one.path
            found += [
                name for name in names if "*" not in name and (one.taken == "all" or ".git" not in name.split("/"))
            ]
    return tuple(_names(given.look(name)) for name in dict.fromkeys(found)), ""


def _brought(line: Line, given: ShellLine) -> Iterator[tuple[Invocation, str]]:
    """Yield the commands that only read, but would start what the project brings."""
    why_of = given.brought
    for one in line.invocations if why_of is not None else ():
        reasons = [why_of(one.program, at) for at in one.folders] if why_of is not None and changes_nothing(one) else []
        if any(reasons):
            yield one, next(filter(None, reasons))


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


def _reached(touched: Touched, given: ShellLine, links_of: "_Links", start: str) -> list[Reached]:
    """Return what a path stands for, and what the links below it stand for where they are followed.

    Args:
        start: The folder in which the line starts, from `/`, links resolved.
    """
    place = given.look_from_root(touched.path) if touched.from_root else given.look(touched.path)
    found = [_placed(place, touched.access, touched.extent, given, may_be_outside=touched.is_program)]
    if not touched.from_root:
        plain = posixpath.normpath(posixpath.join(start, touched.path))
        found = [structs.replace(found[0], is_linked=place.path != plain)]
    if touched.extent == "tree" and place.relative is None:
        root = given.look_from_root(".")  # a rule names what lies below it: `grep -r x ..` reads that, too
        found += [_placed(root, touched.access, touched.extent, given)] if lies_in([root.path], [place.path]) else []
    if not touched.follows or not place.is_folder:
        return found
    links = links_of.found(place.path, is_deep=touched.extent == "tree")
    if links is None:
        why = "This folder has too many files to check where its links lead."
        return [structs.replace(found[0], unknown=why, is_outside=found[0].is_outside or touched.access == "read")]
    return [
        *found,
        *(_placed(one, "read", touched.extent, given, may_be_outside=touched.access == "write") for one in links),
    ]


_MAX_FOLDERS = 6


class _Links:
    """What the links in the folders of one line stand for. Each folder is looked through once, and few of them."""

    def __init__(self, given: ShellLine) -> None:
        self._given = given
        self._known: dict[tuple[str, bool], Sequence[Place] | None] = {}

    def found(self, folder: str, *, is_deep: bool) -> Sequence[Place] | None:
        """Return what they stand for; None where there is too much to look at."""
        if self._given.links is None:
            return ()
        key = (folder, is_deep)
        if key not in self._known:
            self._known[key] = None if len(self._known) >= _MAX_FOLDERS else self._given.links(folder, is_deep)
        return self._known[key]


def _placed(
    place: Place, access: Literal["read", "write"], extent: Extent, given: ShellLine, *, may_be_outside: bool = False
) -> Reached:
    """Say what rules on paths see.

    Args:
        may_be_outside: Whether it is a program that a rule names; or a link led there that a program which does more than read may follow.
            Many folders hold one that leads outside.
    """
    subject = Subject(
        names=_names(place),
        extent=extent if place.is_folder else "itself",
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
