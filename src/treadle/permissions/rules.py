"""Rules: which calls a decision applies to, as people write it: `tool`, `tool(key=glob)`, `shell(git log:*)`. Decides nothing."""

import fnmatch
import posixpath
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from treadle.canonical import copied
from treadle.errors import ConfigurationError
from treadle.permissions.lines import FILE_TOOLS, JudgedLine, pattern_of
from treadle.shell.rules import FOREIGN_NAMES, CommandPattern
from treadle.tools import CheckedCall, Subject

__all__ = ["Rule", "Subjects", "beginnings", "spellings"]

_PATTERNED = frozenset({*FOREIGN_NAMES, *FOREIGN_NAMES.values()})
"""Tools whose rules may leave out the key: `shell(git log:*)`, `write(src/*)`."""

_RULE = re.compile(r"^(?P<tool>[^()]+?)(?:\((?P<pattern>.*)\))?$", re.DOTALL)


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
        own = FOREIGN_NAMES.get(tool, tool)
        if own == "fetch":
            return Rule(text=text, tool=tool, key="host", glob=pattern.strip().removeprefix("domain:").lower())
        if own == "shell":
            CommandPattern.parse(pattern)
        return Rule(text=text, tool=tool, pattern=pattern.strip())

    def matches(self, call: CheckedCall, *, loosens: bool = False, subjects: "Subjects | None" = None) -> bool:
        """Whether the rule applies to a call.

        Args:
            loosens: Whether it allows something. Such a rule needs certainty: it must fit what the argument really names. One that
                forbids or asks applies to every spelling, and to a call that may reach what it names.
            subjects: What the arguments of this call name, where more than one rule looks at them.
        """
        if not self.names(call.name) and not (not loosens and self._means_as_well(call)):
            return False
        key, glob = (self.key, self.glob) if self.pattern is None else ("path", self.pattern)
        if key is None or glob is None:
            return True
        if loosens and call.tool.line is not None:
            return False  # a line is never allowed by its text: `JudgedLine.allowed_by` says which one is
        subject = (subjects or Subjects(call)).of(key)
        if key not in call.arguments and subject is None:
            # A pattern that this tool has no use for allows nothing, and forbids everything: nobody is to rely on it in vain.
            return self.pattern is not None and not loosens and call.tool.line is None
        if loosens:
            return _is_allowed(glob, call.arguments.get(key), subject)
        return _is_covered(glob, call.arguments.get(key), subject)

    def names(self, tool: str) -> bool:
        """Whether the rule speaks of a tool of this name. Names that another program has for such tools stand for ours, too."""
        return _fits(tool, self.tool) or FOREIGN_NAMES.get(self.tool) == tool

    def _means_as_well(self, call: CheckedCall) -> bool:
        """Whether a rule that forbids means this tool too, because it does the same: runs a line of shell, or reads what files hold."""
        own = FOREIGN_NAMES.get(self.tool, self.tool)
        if call.tool.line is not None:
            return own == "shell"
        return own == "read" and call.name == "grep" and (self.glob or self.pattern) is not None

    def is_about_lines(self, call: CheckedCall) -> bool:
        """Whether the rule may apply to a line of shell, for what it starts or touches."""
        if (self.names(call.name) or self._means_as_well(call)) and (self.pattern or self.glob) is not None:
            return True
        is_on_path = self.key == "path" or (
            self.pattern is not None and FOREIGN_NAMES.get(self.tool, self.tool) != "shell"
        )
        return is_on_path and any(map(self.names, FILE_TOOLS))

    def finds(self, line: JudgedLine, call: CheckedCall) -> bool:
        """Whether a rule that forbids or asks applies to a line of shell: to a command of it, or to a path that it touches."""
        if (self.names(call.name) or self._means_as_well(call)) and self.pattern is not None:
            pattern = pattern_of(self.pattern)
            return pattern is None or line.found_by(pattern)
        glob = self.glob if self.key == "path" else self.pattern
        return glob is not None and any(
            any(map(self.names, one.tools)) and _is_covered(glob, None, one.subject) for one in line.reached
        )


class _Unresolved:
    """A tool could not say what an argument names: nothing is allowed by it, and every rule on it applies."""


@lru_cache(maxsize=16_384)
def _compiled(glob: str) -> "re.Pattern[str]":
    return re.compile(fnmatch.translate(glob))


def _fits(name: str, glob: str) -> bool:
    """Whether a name fits a glob. `fnmatch` remembers 256 globs only, and compiling one takes longer than a decision may."""
    return _compiled(glob).match(name) is not None


class Subjects:
    """What the arguments of one call name, found once for all rules that look at them."""

    def __init__(self, call: CheckedCall) -> None:
        self._call = call
        self._found: Mapping[str, Any] | type[_Unresolved] | None = None

    def of(self, key: str) -> Subject | type[_Unresolved] | None:
        """Return what an argument names; None where its tool does not say, and `_Unresolved` where it cannot."""
        function = self._call.tool.subjects
        if function is None:
            return None
        try:
            if self._found is None:
                self._found = function(copied(self._call.arguments))
            if self._found is _Unresolved:
                return _Unresolved
            found = self._found.get(key)  # type: ignore[union-attr]  # a stranger's value: what has no `get` raises here
        except Exception:  # noqa: BLE001 - the author's function; one that raises has resolved nothing
            self._found = _Unresolved
            return _Unresolved
        return found if found is None or isinstance(found, Subject) else _Unresolved


def beginnings(glob: str, *, loosens: bool) -> set[str]:
    """Return how the names begin that a rule's glob may fit; a name that begins with none of these is not one of them."""
    globs = {glob, _cleaned(glob)} if loosens else {_folded(one) for one in _globs(glob)}
    return {_PLAIN_BEGINNING.match(one)[0] for one in globs}  # type: ignore[index]  # it matches any text


def spellings(call: CheckedCall, key: str, subjects: Subjects, *, loosens: bool) -> set[str] | None:
    """Return the names that rules on an argument are compared with; None where each rule must be looked at by itself."""
    subject, value = subjects.of(key), call.arguments.get(key)
    if isinstance(value, list) or (subject is None and key not in call.arguments):
        return None
    if subject is not None and not isinstance(subject, Subject):
        return None
    if loosens:
        text = _as_text(value) if subject is None else ""
        return {text, _lexical(text)} if subject is None else set(subject.names)
    if subject is not None and (subject.extent != "itself" or subject.resolve is not None):
        return None
    written = _as_text(value) if value is not None else ""
    names = (written,) if subject is None else subject.names
    return {_folded(form) for form in (_lexical(written), *names)}


_PLAIN_BEGINNING = re.compile(r"[^*?\[]*")


def _is_allowed(glob: str, value: Any, subject: Subject | type[_Unresolved] | None) -> bool:
    """Whether a rule that allows names what the argument really names. Its spelling alone is not enough."""
    if subject is None:
        if isinstance(value, list) and value and all(_is_allowed(glob, item, None) for item in value):
            return True
        text = _as_text(value)
        return all(_fits(form, glob) for form in {text, _lexical(text)})
    if not isinstance(subject, Subject):
        return False
    return any(_fits(name, one) for name in subject.names for one in {glob, _cleaned(glob)})


def _is_covered(glob: str, value: Any, subject: Subject | type[_Unresolved] | None) -> bool:
    """Whether a rule that forbids applies: to the argument as written, as it resolves, or to what lies below it."""
    if subject is not None and not isinstance(subject, Subject):
        return True
    if isinstance(value, list) and any(_is_covered(glob, item, subject) for item in value):
        return True
    written = _as_text(value) if value is not None else ""
    forms = {_lexical(written), *((written,) if subject is None else subject.names)}
    globs = _globs(glob)
    if subject is not None and subject.resolve is not None:
        globs = globs | {
            one
            for start in (glob, _cleaned(glob))
            for real in _resolved(start, subject.resolve)
            for one in _covering(real)
        }
    folded_forms, folded_globs = {_folded(form) for form in forms}, {_folded_rule(one) for one in globs}
    if any(_fits(form, one) for form in folded_forms for one in folded_globs):
        return True
    if subject is None or subject.extent == "itself":
        return False
    folders = {_folded(posixpath.normpath(posixpath.join(name, subject.below))) for name in subject.names}
    is_deep = subject.extent == "tree"
    return any(_reaches(one, folder, is_deep=is_deep) for folder in folders for one in folded_globs)


@lru_cache(maxsize=16_384)
def _folded_rule(glob: str) -> str:
    return _folded(glob)


@lru_cache(maxsize=16_384)
def _globs(glob: str) -> frozenset[str]:
    """Return a rule's glob in all the forms that a rule that forbids has."""
    return frozenset({glob, *(one for start in (glob, glob.removeprefix("**/")) for one in _covering(start))})


def _lexical(text: str) -> str:
    """Return a path without `.`, `..`, doubled and trailing slashes, as far as the text alone can tell."""
    plain = posixpath.normpath(text) if text else ""
    return plain[1:] if plain.startswith("//") else plain


@lru_cache(maxsize=16_384)
def _cleaned(glob: str) -> str:
    """Return a rule's glob as canonical names are written: neither `./` nor `//`, and no slash at the end."""
    while glob.startswith("./"):
        glob = glob[2:]
    return re.sub("/{2,}", "/", glob).rstrip("/") or glob


@lru_cache(maxsize=16_384)
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
    """Whether some path below a folder fits the glob: whether the glob can continue once the folder's name is read.

    Args:
        is_deep: Whether the path may lie deeper than the folder's own children.
    """
    prefix = "" if folder in (".", "/", "") else f"{folder}/"
    if folder == "." and glob.startswith("/"):
        return False  # the folder's other name, from `/`, decides
    parts = _GLOB_PARTS.findall(glob)
    places = _past_stars(parts, {0})
    for char in prefix:
        ahead = {at + 1 for at in places if at < len(parts) and parts[at] != "*" and _fits(char, parts[at])}
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
