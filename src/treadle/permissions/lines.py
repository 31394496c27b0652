"""Lines of shell before the rules: what each simple command of a call would start and touch. Holds no rule and decides nothing."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from glob import escape
from itertools import islice, product
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from treadle.canonical import copied
from treadle.errors import ConfigurationError
from treadle.events import RulesGranted
from treadle.ports import SessionView
from treadle.shell.judging import analyse, changes_nothing
from treadle.shell.knowing import plain_words
from treadle.shell.reaching import checked_out, folders, swept
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


_WORDS = re.compile(r"[^\s;|&<>()=,:]+")
_WILD = re.compile(r"[*?\[]")
_QUOTES = str.maketrans("", "", "'\"\\")
_MAX_WORDS = 500
_MAX_LOOKED_AT = 2000
_MAX_FOLDERS = 6
_MAX_SWEPT = 10_000
_MOVES = ("cd", "pushd", "popd", "-C", "--chdir", "--cwd", "--directory", "--wd", "-D", "chroot")
"""How words begin that may change the folder that the others are relative to."""


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A path that a command may read or write, as rules on paths see it."""

    subject: Subject
    access: Literal["read", "write"]
    is_outside: bool
    """Whether it lies outside the root folder, links resolved."""
    unknown: str = ""
    """Why nobody can say where it leads, in one sentence: a rule on paths that does not find it has proven nothing. Empty for any other."""

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
    unknown: tuple[Doubt, ...] = ()
    """Words that may name anything that a command writes."""
    swept: tuple[tuple[str, ...], ...] = ()
    """The canonical names of what lies in folders that a command takes away or changes as a whole, two levels deep."""
    among: FileNames | None = None
    """The folder of files in which it runs."""
    away: tuple[Invocation, ...] = ()
    """Commands that may start in another folder than the root folder."""
    brought: tuple[tuple[Invocation, str], ...] = ()
    """Commands that only read, but would start what the project brings, each with the reason. A person is asked, or a rule allows it."""
    is_elsewhere: bool = False
    """Whether git is given a folder as the other repository: its hooks and settings would run."""
    unseen: str = ""
    """Such a folder, or a pattern that names some, with more in it than is looked at; empty where there is none."""

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
        left = [one for one in outer if not any(rule.allows(one, is_away=one in self.away) for rule in patterns)]
        brought = [one for one, _ in self.brought]
        return len(left) < len(outer) and all(may_read and changes_nothing(one) and one not in brought for one in left)

    def found_by(self, pattern: CommandPattern) -> bool:
        """Whether a pattern that forbids or asks finds a command of the line, also behind a wrapper or in a text."""
        return any(pattern.forbids(one) for one in self.line.invocations)

    def possible_for(self, pattern: CommandPattern) -> Invocation | None:
        """Return what a program that is not known may start, where a pattern finds it."""
        return next((one for one in self.line.possible if pattern.forbids(one)), None)


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
    the other names of its files (hard links) can change.

    Args:
        facts: What tools have remembered in the session.
    """
    line = judged(call, facts)
    if line is None:
        return [_other_names(one) for one in (subjects_of(call) or {}).values() if isinstance(one, Subject)]
    reached = [(one.subject.names, one.access, _other_names(one.subject)) for one in line.reached]
    return reached, line.mentioned, line.swept


def _other_names(subject: Subject) -> list[str] | None:
    """Return the names of the files with several that a call may reach; None where there are too many files to search."""
    path = next((name for name in subject.names if name.startswith("/")), None)
    found = () if subject.among is None or path is None else subject.among.all_names(path, subject.extent)
    return None if found is None else sorted(found)


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
    links = _Links(given)
    reached = tuple(place for one in line.touched for place in _reached(one, given, links))
    if (strange := next((one for one in reached if one.unknown), None)) is not None:
        line = structs.replace(
            line, hidden=(*line.hidden, Doubt(reason=strange.unknown, text=strange.subject.names[0]))
        )
    mentioned, unknown = _mentioned(line, given)
    below, unseen = _swept(line, given)
    return JudgedLine(
        line=line,
        reached=reached,
        redirects=any(one.writes for one in line.redirections),
        mentioned=mentioned,
        unknown=unknown,
        swept=below,
        unseen=unseen,
        is_elsewhere=any(_is_repository(one, given) for one in line.invocations),
        among=given.files,
        away=_away(line, given),
        brought=tuple(_brought(line, given)),
    )


def _brought(line: Line, given: ShellLine) -> Iterator[tuple[Invocation, str]]:
    """Yield the commands that only read, but would start what the project brings."""
    why_of = given.brought
    for one in line.invocations if why_of is not None else ():
        reasons = [why_of(one.program, at) for at in one.folders] if why_of is not None and changes_nothing(one) else []
        if any(reasons):
            yield one, next(filter(None, reasons))


def _away(line: Line, given: ShellLine) -> tuple[Invocation, ...]:
    """Return the commands that may start elsewhere than in the root folder. What an option such as `-C` names is part of the command."""
    outer = [one for one in line.invocations if not one.via]
    if given.look(".").relative != ".":
        return tuple(outer)
    return tuple(one for one in outer if one.folders != (".",) and not _is_at_root(one, given))


def _is_at_root(one: Invocation, given: ShellLine) -> bool:
    named = folders(structs.replace(one, folders=(".",)))
    return {given.look(at).path for at in one.folders} <= {given.look(at).path for at in named}


def _is_repository(one: Invocation, given: ShellLine) -> bool:
    words = plain_words(one.words)
    if words[0] != "git" or words[1:2] not in (("push",), ("fetch",), ("pull",)):
        return False
    named = next((word for word in words[2:] if not word.startswith("-")), None)
    return named is not None and any(given.look(posixpath.join(at, named)).is_folder for at in one.folders)


def _swept(line: Line, given: ShellLine) -> tuple[tuple[tuple[str, ...], ...], str]:
    """Return the names below the folders that a line takes away or changes, and one that holds too much to look at each."""
    if given.expand is None:
        return (), ""
    found, unseen = _below([(one, word) for one in line.invocations for word in swept(one)], given)
    written, unseen_too = _below([(one, word) for one in line.invocations for word in checked_out(one)], given)
    found += [name for name in written if ".git" not in name.split("/")]  # git manages these itself
    names = tuple(dict.fromkeys(_names(given.look(name)) for name in found))
    return names, unseen or unseen_too


def _below(named: Sequence[tuple[Invocation, str]], given: ShellLine) -> tuple[list[str], str]:
    """Return what lies two levels deep in the folders that commands name, and one that holds too much to look at each."""
    if not named:
        return [], ""
    assert given.expand is not None
    words = [posixpath.join(at, word) for one, word in named for at in one.folders]
    matched, unseen = _expanded([word for word in words if _WILD.search(word)], given.expand)
    folders = [one for one in dict.fromkeys([*words, *matched]) if "\0" not in one and given.look(one).is_folder]
    patterns = [posixpath.join(escape(one), below) for one in folders for below in ("*", ".*", "*/*", "*/.*")]
    found, too_large = _expanded(patterns, given.expand)
    more = found[_MAX_SWEPT] if len(found) > _MAX_SWEPT else ""
    return [name for name in found[:_MAX_SWEPT] if "*" not in name], unseen or too_large or more


def _expanded(patterns: Sequence[str], expand: Callable[[str], Sequence[str] | None]) -> tuple[list[str], str]:
    """Return what patterns match together, and the first that matches too much to say; looks at a bounded number of both."""
    found: list[str] = []
    for pattern in patterns:
        matched = None if len(found) > _MAX_SWEPT else expand(pattern)
        if matched is None:
            return found, pattern
        found += matched
    return found, ""


def _mentioned(line: Line, given: ShellLine) -> tuple[tuple[tuple[str, ...], ...], tuple[Doubt, ...]]:
    """Return the canonical names of what an undecided line names, and the words that may name anything."""
    if line.is_decided:
        return (), ()
    words = [word for word in dict.fromkeys(_WORDS.findall(given.text.translate(_QUOTES))) if "\0" not in word]
    places = [given.look(word) for word in words[:_MAX_WORDS]]
    moved = _named_folders(words, places)
    names = [posixpath.join(*pair) for pair in islice(product(moved, words), _MAX_LOOKED_AT)]
    unknown = list(line.unknown)
    for folder, pattern in islice(product(["", *moved], line.patterns), _MAX_WORDS):
        found = None if given.expand is None else given.expand(posixpath.join(escape(folder), pattern))
        names += found or ()
        if found is None:
            unknown.append(Doubt(reason="The files that this pattern matches are unknown.", text=pattern))
    if max(len(words), len(line.patterns) * (1 + len(moved))) > _MAX_WORDS or len(names) > _MAX_LOOKED_AT:
        unknown.append(Doubt(reason="The line names too many files to check each one.", text=line.source[:80]))
    places += [given.look(name) for name in names[:_MAX_LOOKED_AT]]
    return tuple(dict.fromkeys(map(_names, places))), tuple(unknown)


def _named_folders(words: Sequence[str], places: Sequence[Place]) -> list[str]:
    """Return the folders that a line may be in after it has changed its own."""
    if not any(word.startswith(_MOVES) for word in words):
        return []
    named = [word for word, place in zip(words, places, strict=False) if place.is_folder and word not in (".", "/")]
    found = [""]
    for folder in named[:_MAX_FOLDERS]:
        found += [posixpath.join(one, folder) for one in found]
    return found[1:]


def pattern_of(text: str) -> CommandPattern | None:
    """Return a pattern on commands; None for a text that is invalid."""
    try:
        return _parsed(text)
    except ConfigurationError:
        return None


@lru_cache(maxsize=16_384)
def _parsed(text: str) -> CommandPattern:
    return CommandPattern.parse(text)


def _reached(touched: Touched, given: ShellLine, links_of: "_Links") -> list[Reached]:
    """Return what a path stands for, and what the links below it stand for where they are followed."""
    place = given.look_from_root(touched.path) if touched.from_root else given.look(touched.path)
    found = [_placed(place, touched.access, touched.extent, given, may_be_outside=touched.is_program)]
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
