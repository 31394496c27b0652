"""Rules: which calls a decision applies to, as people write it: `tool`, `tool(key=glob)`, `shell(git log:*)`. Decides nothing."""

import fnmatch
import posixpath
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any

import msgspec

from treadle.errors import ConfigurationError
from treadle.permissions.lines import FILE_TOOLS, JudgedLine, pattern_of, subjects_of
from treadle.shell.rules import CommandPattern
from treadle.tools import CheckedCall, Subject
from treadle.tools.foreign import FOREIGN_NAMES, own_path, own_tool, same_tool
from treadle.tools.needs import Need
from treadle.tools.protected import canonical_host_glob

__all__ = [
    "NETWORK",
    "Rule",
    "Subjects",
    "Unresolved",
    "as_text",
    "beginnings",
    "cleaned",
    "covering_globs",
    "fits",
    "folded",
    "folders_of",
    "forms_of",
    "heads_of",
    "lexical",
    "reaches",
    "resolved_globs",
    "same_on_paths",
    "spellings",
]


# --- Globs: when the glob of a rule means a name, as text alone. Knows no call and no file.


@lru_cache(maxsize=16_384)
def _compiled(glob: str) -> "re.Pattern[str]":
    return re.compile(fnmatch.translate(glob))


def fits(name: str, glob: str) -> bool:
    """Whether a name fits a glob. `fnmatch` remembers 256 globs only, and compiling one takes longer than a decision may."""
    return _compiled(glob).match(name) is not None


@lru_cache(maxsize=16_384)
def covering_globs(glob: str) -> frozenset[str]:
    """Return a rule's glob in all the forms that a rule that forbids has, folded."""
    forms = {glob, *(one for start in (glob, glob.removeprefix("**/")) for one in _covering(start))}
    return frozenset(folded(one) for form in forms for one in _shortened(form))


def _shortened(glob: str) -> list[str]:
    """Return a glob, and what it is where each `/**/` may stand for a single slash: `a/**/b` means `a/b`, too."""
    first, *rest = _ANY_FOLDERS.sub("/**/", glob).split("/**/")
    found = [first]
    for at, part in enumerate(rest):
        between = ("/**/", "/") if at < _MOST_SHORTENED else ("*",)
        found = [f"{one}{sign}{part}" for one in found for sign in between]
    return found


_ANY_FOLDERS = re.compile(r"/(?:\*\*/)+")
_MOST_SHORTENED = 4
"""Places in one glob. What comes behind them is taken for more than it says."""


def lexical(text: str) -> str:
    """Return a path without `.`, `..`, doubled and trailing slashes, as far as the text alone can tell."""
    plain = posixpath.normpath(text) if text else ""
    return plain[1:] if plain.startswith("//") else plain


@lru_cache(maxsize=16_384)
def cleaned(glob: str) -> str:
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
    whole = lexical(cleaned(plain))
    if not plain.strip("/"):
        return (whole,)
    return (f"{whole}/*",) if plain.endswith("/") else (whole, f"{whole}/*")


@lru_cache(maxsize=16_384)
def heads_of(glob: str) -> tuple[str, ...]:
    """Return the names of a glob up to its first wildcard, in each of its spellings. One of them may be a link."""
    found = (_LITERAL_HEAD.match(start) for start in _starts(glob))
    return tuple(dict.fromkeys(head[0] for head in found if head is not None))


def resolved_globs(glob: str, resolve: Callable[[str], Sequence[str]]) -> set[str]:
    """Return a glob with the names up to its first wildcard resolved: a rule may name a link, and the call what it points to."""
    real = (one for start in _starts(glob) for one in _resolved(start, resolve))
    return {folded(one) for start in real for form in _covering(start) for one in _shortened(form)}


def _starts(glob: str) -> tuple[str, str]:
    """Return a glob as written and in its plain spelling. A slash at its end stays: it means what is below a folder, not the folder."""
    plain = glob.strip()
    return plain, cleaned(plain) + ("/" if plain.endswith("/") else "")


def _resolved(glob: str, resolve: Callable[[str], Sequence[str]]) -> list[str]:
    head = _LITERAL_HEAD.match(glob)
    if head is None:
        return []
    wild = glob[head.end() :]
    try:
        names = resolve(head[0])
    except Exception:  # noqa: BLE001 - the author's function; a rule that cannot be resolved stands as it is written
        return []
    escaped = [_WILDCARD.sub(r"[\g<0>]", name) for name in names]
    return [f"{name}/{wild}" if wild else name for name in escaped]


_LITERAL_HEAD = re.compile(r"[^*?\[]+?(?=/[^/]*[*?\[]|/*$)")
"""The names of a path glob before the first one that has a wildcard."""
_WILDCARD = re.compile(r"[*?\[]")


def folded(text: str) -> str:
    """Return a name so that spellings which some file systems take for one are one: case, and composed characters."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


@lru_cache(maxsize=16_384)
def reaches(glob: str, folder: str, *, is_deep: bool) -> bool:
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
        ahead = {at + 1 for at in places if at < len(parts) and parts[at] != "*" and fits(char, parts[at])}
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


def forms_of(subject: Subject | None, written: str) -> frozenset[str]:
    """Return the names that rules that forbid are compared with, folded: the canonical ones, and the argument as it is written.

    Args:
        subject: What it is; None where its tool does not say.
    """
    names = (written,) if subject is None else subject.names
    return frozenset(folded(one) for one in (lexical(written), *names))


def folders_of(subject: Subject) -> frozenset[str]:
    """Return the names of the folder below which a call may reach something, folded."""
    return frozenset(folded(posixpath.normpath(posixpath.join(name, subject.below))) for name in subject.names)


# --- Rules: which calls a decision applies to, as people write it: `tool`, `tool(key=glob)`, `shell(git log:*)`.
# Decides nothing.

NETWORK = "network"
"""What rules on the hosts that commands may reach in a sandbox name in place of a tool: `network(api.example.com)`."""
_KEYS = {"fetch": "host", NETWORK: "host", "skill": "name", "spawn_agent": "agent"}
"""What a pattern without a key means for tools that have no path: `fetch(example.com)`."""
_PATTERNED = frozenset({*FILE_TOOLS, "shell", *_KEYS})
"""Tools whose rules may leave out the key: `shell(git log:*)`, `write(src/*)`."""
_OF_FILES = frozenset({"edit", "read", "write"})
"""Tools that take one path. A rule on all their paths (`edit(*)`) is one on paths, which others have too."""
_SAME_ON_PATHS = {"grep": ("read",), "edit": ("write",), "write": ("edit",)}
_BRACES = re.compile(r"(?<!\[)\{[^{}]*,[^{}]*\}")
_SEVERAL_PATHS = re.compile(r"(?<!\[),(?!\])(?:\s|.*[*/])")
_NO_HOST = re.compile(r"[\s/@]|^[^:]+:[0-9]+$")

_RULE = re.compile(r"^(?P<tool>[^()]+?)(?:\((?P<pattern>.*)\))?$", re.DOTALL)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls a decision applies to: `tool`, a glob such as `fs_*`, `tool(key=glob)` on what one argument names, `shell(git log:*)` on
    commands, or `write(src/*)` on paths."""

    text: str
    tool: str
    key: str | None = None
    glob: str | None = None
    pattern: str | None = None
    """What is in `tool(pattern)` without a key: commands for a tool that runs lines of shell, else the glob of its `path`."""

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
        if pattern is not None and ")(" in pattern and not pattern.startswith("= "):
            raise ConfigurationError(
                f"Rule {text!r} is invalid: it has two patterns. Write one rule with one; `[)]` means a parenthesis."
            )
        own = FOREIGN_NAMES.get(tool, tool)
        if pattern is None or (pattern == "*" and own not in _OF_FILES):
            return Rule(text=text, tool=own_tool(tool))
        key, sign, glob = pattern.partition("=")
        is_setting = own == "shell" and key.isupper()  # `FOO=* make:*` is a command with a variable
        if sign and key.strip().isidentifier() and not pattern.startswith("= ") and not is_setting:
            return _keyed(text, tool, key.strip(), glob.strip() if key.endswith(" ") else glob)
        if not pattern.strip() or own not in _PATTERNED:
            raise ConfigurationError(_no_rule(text, tool, pattern.strip()))
        _check_colon(text, own, pattern.strip())
        if own in _KEYS:
            glob = pattern.strip().removeprefix("domain:") if own == "fetch" else pattern.strip()
            return _keyed(text, tool, _KEYS[own], glob)
        if own == "shell":
            CommandPattern.parse(pattern)
            return Rule(text=text, tool=tool, pattern=pattern.strip())
        _check_lists(text, pattern)
        return Rule(text=text, tool=tool, pattern=own_path(text, tool, pattern.strip()))

    @property
    def covers(self) -> str:
        """Which calls it applies to, in one sentence for a person."""
        own = FOREIGN_NAMES.get(self.tool, self.tool)
        if self.pattern is not None and own == "shell":
            return CommandPattern.parse(self.pattern).covers
        if self.pattern is not None:
            return f"calls of {own} on the path {self.pattern}"
        if own == NETWORK:
            return f"commands in the sandbox that reach {self.glob or 'any host'}, to which they may send any data of this project"
        if self.key is not None:
            return f"calls of {own} whose {self.key} is {self.glob}"
        return "every call of every tool" if own == "*" else f"every call of {own}"

    @property
    def never_allows(self) -> str:
        """Why it could allow no call, with the form that would; empty for one that can."""
        if self.pattern is None or FOREIGN_NAMES.get(self.tool, self.tool) != "shell":
            return ""
        return CommandPattern.parse(self.pattern).never_allows

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
        return fits(tool, self.tool) or FOREIGN_NAMES.get(self.tool) == tool

    def _means_as_well(self, call: CheckedCall) -> bool:
        """Whether a rule that forbids means this tool too, because it does the same: runs a line of shell, or reads or writes
        files."""
        if call.tool.line is not None:
            return FOREIGN_NAMES.get(self.tool, self.tool) == "shell"
        return (self.glob or self.pattern) is not None and any(map(self.names, same_on_paths(call.name)))

    def is_about_commands(self, call: CheckedCall) -> bool:
        """Whether the rule is a pattern on the commands of a call."""
        return self.pattern is not None and (self.names(call.name) or self._means_as_well(call))

    def is_about_lines(self, call: CheckedCall) -> bool:
        """Whether the rule may apply to a line of shell, for what it starts or touches."""
        if (self.names(call.name) or self._means_as_well(call)) and (self.pattern or self.glob) is not None:
            return True
        is_on_path = self.key == "path" or (
            self.pattern is not None and FOREIGN_NAMES.get(self.tool, self.tool) != "shell"
        )
        return is_on_path and any(map(self.names, FILE_TOOLS))

    def lifts(self, need: Need) -> bool:
        """Whether it names the host that a call needs to reach, at whatever port. `network(*)` names the whole network."""
        if need.kind != "network" or self.tool != NETWORK:
            return False
        return self.glob is None or fits(need.host, self.glob)

    def is_kept_by_sandbox(self, call: CheckedCall) -> bool:
        """Whether a sandbox confines what a rule that denies is there for: it covers the files, or a program that the line hides changes
        nothing outside of the folder, and reaches nobody."""
        is_on_files = self.key == "path" or (self.pattern is not None and not self.is_about_commands(call))
        return self.is_about_commands(call) or (is_on_files and self.names("read"))

    def finds(self, line: JudgedLine, call: CheckedCall, *, is_kept: bool = False) -> bool:
        """Whether a rule that forbids or asks applies to a line of shell: to a command of it, or to a path that it touches.

        Args:
            is_kept: Whether a sandbox keeps what a rule denies. It covers denied files in the folders that a command goes through, so that
                only a path that the line itself names counts.
        """
        if self.is_about_commands(call) and self.pattern is not None:
            pattern = pattern_of(self.pattern)
            return pattern is None or line.found_by(pattern)
        glob = self.glob if self.key == "path" else self.pattern
        is_covered = is_kept and self.is_kept_by_sandbox(call)
        return glob is not None and any(
            any(map(self.names, one.tools))
            and _is_covered(
                glob, None, msgspec.structs.replace(one.subject, extent="itself") if is_covered else one.subject
            )
            for one in line.reached
        )


def _keyed(text: str, tool: str, key: str, glob: str) -> Rule:
    """Return a rule on one argument. What no argument of our own tools can ever be is refused."""
    own = FOREIGN_NAMES.get(tool, tool)
    if own == NETWORK and key != "host":
        raise ConfigurationError(
            f"Rule {text!r} is invalid: a rule on `network` names a host. Write `network(example.com)`."
        )
    if own in ("fetch", NETWORK) and key == "host":
        return Rule(text=text, tool=tool, key=key, glob=_host(text, own, glob))
    if own in FILE_TOOLS and key == "path":
        if not glob.strip():
            raise ConfigurationError(f"Rule {text!r} is invalid: its path is empty. Write `{own}` for every path.")
        _check_lists(text, glob)
        own_path(text, "", glob.strip())
    return Rule(text=text, tool=own_tool(tool), key=key, glob=glob)


def _check_colon(text: str, own: str, pattern: str) -> None:
    """Refuse `path:secrets`: no path, host or command is called so, and a rule that matches nothing protects nothing."""
    key = "command" if own == "shell" else _KEYS.get(own, "path")
    if pattern.startswith(f"{key}:"):
        plain = pattern.removeprefix(f"{key}:").strip()
        raise ConfigurationError(f"Rule {text!r} is invalid: write `{own}({plain})` without `{key}:`.")


def _check_lists(text: str, glob: str) -> None:
    """Refuse a list of paths, which means nothing in a rule: a rule that names no file protects none."""
    found = _BRACES.search(glob)
    if found is not None:
        raise ConfigurationError(
            f"Rule {text!r} is invalid: {found[0]!r} is not a list in a rule. Write a rule for each of its names; `[{{]` means a brace."
        )
    if _SEVERAL_PATHS.search(glob) is not None:
        raise ConfigurationError(
            f"Rule {text!r} is invalid: it has several paths. Write one rule for each; `[,]` means a comma."
        )


def _host(text: str, own: str, glob: str) -> str:
    """Return the host of a rule as calls have it."""
    host = canonical_host_glob(glob)
    if not host:
        raise ConfigurationError(
            f"Rule {text!r} is invalid: its host is empty. Write `{own}(example.com)`, or `{own}` for every host."
        )
    if _NO_HOST.search(host):
        plain = host.rpartition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0].strip()
        raise ConfigurationError(
            f"Rule {text!r} is invalid: {glob.strip()!r} is more than a host. Write `{own}({plain or 'example.com'})`: a rule on `{own}` names a "
            "host, without scheme, port and path."
        )
    return host


def _no_rule(text: str, tool: str, pattern: str) -> str:
    """Say what to write instead of a pattern without a key."""
    if tool == "NotebookEdit" and pattern:
        return f"Rule {text!r} is invalid: notebooks are files here. Write `edit({pattern})`: in a rule that denies or asks, it holds for `write` too."
    same = same_tool(tool)
    if same is not None and same != tool and same in _PATTERNED and pattern:
        return (
            f"Rule {text!r} is invalid: write `{same}({pattern})`; or, for a tool of your own named {tool!r}, `{tool}(key=glob)`, such as "
            f"`{tool}(path=src/*)`."
        )
    name = FOREIGN_NAMES.get(tool, tool)
    return (
        f"Rule {text!r} is invalid: for {name!r}, write `{name}` or `{name}(key=glob)`, such as `{name}(path=src/*)`."
    )


@lru_cache(maxsize=256)
def same_on_paths(tool: str) -> tuple[str, ...]:
    """Return the tools whose rules on paths that forbid hold for this one too, since they show or write the same: `fs_read` for `fs_grep`."""
    return tuple(
        f"{tool.removesuffix(own)}{other}"
        for own, others in _SAME_ON_PATHS.items()
        if tool.endswith(own)
        for other in others
    )


class Unresolved:
    """A tool could not say what an argument names: nothing is allowed by it, and every rule on it applies."""


class Subjects:
    """What the arguments of one call name, found once for all rules that look at them."""

    def __init__(self, call: CheckedCall) -> None:
        self._call = call
        self._found: list[Mapping[str, Subject] | None] = []
        self._widened: dict[str, Subject] = {}
        self.moment: dict[str, Any] = {}
        """What watches of files have looked at for this decision, by its path."""

    def alike(self) -> "Subjects":
        """Return the same, for another policy: what was widened is not wide there."""
        other = Subjects(self._call)
        other._found, other.moment = self._found, self.moment
        return other

    def widen(self, key: str, subject: Subject) -> None:
        """Put a subject with more names in place of the one that an argument names."""
        self._widened[key] = subject

    def of(self, key: str) -> Subject | type[Unresolved] | None:
        """Return what an argument names; None where its tool does not say, and `Unresolved` where it cannot."""
        if key in self._widened:
            return self._widened[key]
        if self._call.tool.subjects is None:
            return None
        if not self._found:
            self._found.append(subjects_of(self._call))
        if self._found[0] is None:
            return Unresolved
        found = self._found[0].get(key)
        return found if found is None or isinstance(found, Subject) else Unresolved


def beginnings(glob: str) -> set[str]:
    """Return how the names begin that the glob of a rule that allows may fit; a name that begins with none of these is not one of them."""
    return {_PLAIN_BEGINNING.match(one)[0] for one in {glob, cleaned(glob)}}  # type: ignore[index]  # it matches any text


def spellings(call: CheckedCall, key: str, subjects: Subjects) -> set[str] | None:
    """Return the names that rules that allow are compared with; None where each rule must be looked at by itself."""
    subject, value = subjects.of(key), call.arguments.get(key)
    if isinstance(value, list) or (subject is None and key not in call.arguments):
        return None
    if subject is not None and not isinstance(subject, Subject):
        return None
    text = as_text(value)
    return {text, lexical(text)} if subject is None else set(subject.names)


_PLAIN_BEGINNING = re.compile(r"[^*?\[]*")


def _is_allowed(glob: str, value: Any, subject: Subject | type[Unresolved] | None) -> bool:
    """Whether a rule that allows names what the argument really names. Its spelling alone is not enough."""
    if subject is None:
        if isinstance(value, list) and value and all(_is_allowed(glob, item, None) for item in value):
            return True
        text = as_text(value)
        return all(fits(form, glob) for form in {text, lexical(text)})
    if not isinstance(subject, Subject):
        return False
    return any(fits(name, one) for name in subject.names for one in {glob, cleaned(glob)})


def _is_covered(glob: str, value: Any, subject: Subject | type[Unresolved] | None) -> bool:
    """Whether a rule that forbids applies: to the argument as written, as it resolves, or to what lies below it."""
    if subject is not None and not isinstance(subject, Subject):
        return True
    if isinstance(value, list) and any(_is_covered(glob, item, subject) for item in value):
        return True
    forms = forms_of(subject, as_text(value))
    if _means(covering_globs(glob), forms, subject):
        return True
    if subject is None or subject.resolve is None:
        return False
    return _means(resolved_globs(glob, subject.resolve), forms, subject)


def _means(globs: AbstractSet[str], forms: AbstractSet[str], subject: Subject | None) -> bool:
    """Whether a rule means one of these names, or something below it that the call may reach."""
    if any(fits(form, one) for form in forms for one in globs):
        return True
    if subject is None or subject.extent == "itself":
        return False
    is_deep = subject.extent == "tree"
    return any(reaches(one, folder, is_deep=is_deep) for folder in folders_of(subject) for one in globs)


def as_text(value: Any) -> str:
    """Return an argument as text; nothing for None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
