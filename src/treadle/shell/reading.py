"""Read one line of shell in closed form: plain words, quotes, wildcards, pipes, `&&`, `||`, `;`, and redirections to files.

Whatever else bash knows is a doubt, and a line with a doubt is asked about. What a line with a doubt names is read on as well as it can be,
so that a rule that denies finds it. Judges no program, and opens nothing.
"""

import posixpath
import re
import unicodedata
from collections.abc import Sequence
from itertools import islice
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

__all__ = [
    "MAX_CHARACTERS",
    "MAX_COMMANDS",
    "Access",
    "Doubt",
    "Extent",
    "Invocation",
    "Line",
    "Redirection",
    "Touched",
    "below",
    "leads_up",
    "one_command",
    "read",
    "unreadable",
    "without_starters",
]

Access: TypeAlias = Literal["read", "write"]
Extent: TypeAlias = Literal["itself", "children", "tree", "file"]

MAX_CHARACTERS = 10_000
MAX_COMMANDS = 50
_MAX_FOLDERS = 16
_MAX_SHOWN = 120


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command line cannot be analysed. A line with a doubt is asked about, whatever a rule allows."""

    reason: str
    """One sentence, for the person who is asked."""
    text: str
    """The part of the line that it is about, as written."""

    @property
    def shown(self) -> str:
        """The reason, and the part of the line."""
        return f"{self.reason.removesuffix('.')}: {self.text}" if self.text else self.reason


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command: a program with its arguments, quotes and escapes removed."""

    words: tuple[str, ...]
    """The program and its arguments. Never empty."""
    text: str
    """The part of the line that says so, as written."""
    via: tuple[str, ...] = ()
    """The programs that start this one, outermost first: `("sudo", "env")`. Empty for one that the line starts itself."""
    folders: tuple[str, ...] = (".",)
    """Where it may be started, relative to where the line is: more than one after a `cd` that may have failed."""
    patterns: frozenset[int] = frozenset()
    """Which words are patterns of names: their places."""
    expanded: frozenset[int] = frozenset()
    """Which words the shell makes into something that the line does not show: `$X`."""
    before: tuple[str, ...] = ()
    """What stands before the program and changes only how it is started: `PYTHONPATH=src`, `timeout 60`."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The variables that are set for it."""
        return tuple(one for one in self.before if "=" in one and not one.startswith("-"))

    @property
    def program(self) -> str:
        """The first word, as written: `git`, `./tool`, `/bin/rm`."""
        return self.words[0]

    @property
    def arguments(self) -> tuple[str, ...]:
        """All words but the first."""
        return self.words[1:]


class Redirection(msgspec.Struct, frozen=True, kw_only=True):
    """One redirection to or from a file. One between descriptors (`2>&1`) is not listed."""

    operator: str
    """As written: `>`, `>>`, `<`, `&>`."""
    target: str
    """The file, quotes removed."""
    folders: tuple[str, ...] = (".",)
    """The folders that the target may be relative to."""

    @property
    def writes(self) -> bool:
        """Whether it creates or changes the file."""
        return ">" in self.operator


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """A path that a command line names and may read or write."""

    path: str
    """The path, relative to where the line is started, or absolute. Not resolved: links are for whoever opens it."""
    access: Access
    """`write` also where nobody knows better: a program that is not known may write whatever it is given."""
    extent: Extent = "tree"
    """How much below it is reached, where it is a folder."""
    from_root: bool = False
    """Whether the path is relative to the root folder, wherever the line starts."""
    is_pattern: bool = False
    """Whether it is a pattern of names, which the shell puts in its place."""
    is_program: bool = False
    """Whether it is the program that is started, which a rule on commands names: it may lie outside of the root folder."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What one command line says: every simple command, redirection and path in it, and every doubt."""

    source: str
    """The line as it was given."""
    invocations: tuple[Invocation, ...] = ()
    """Every simple command, in the order of the line; one that another starts (`sudo rm`) follows it, with `via`."""
    redirections: tuple[Redirection, ...] = ()
    """Every redirection to or from a file."""
    touched: tuple[Touched, ...] = ()
    """Every path that an argument or a redirection may name."""
    doubts: tuple[Doubt, ...] = ()
    """What is not of the closed form. Empty: the line starts what `invocations` lists, and what those start."""
    hidden: tuple[Doubt, ...] = ()
    """Code within the line that is not shell, or is given to a program that is not known: it may do what a rule denies."""

    @property
    def is_understood(self) -> bool:
        """Whether rules may judge the line: nothing in it is in doubt."""
        return not self.doubts

    @property
    def is_decided(self) -> bool:
        """Whether `invocations` lists all that the line starts: a rule that forbids and finds nothing there has nothing to forbid."""
        return not self.doubts and not self.hidden


def leads_up(path: str) -> bool:
    """Whether a `..` comes after a name, which may be a link: only the file system can say then what the path names."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ".." in parts[next((at for at, part in enumerate(parts) if part != ".."), len(parts)) :]


def read(source: str) -> Line:
    """Read a line into its simple commands and redirections. Never raises for the text; work is bounded by its length."""
    problem = unreadable(source)
    if problem is not None:
        doubts = (Doubt(reason=problem, text=_short(source)),)
        return Line(source=source, doubts=doubts)
    reader = _Reader(source)
    reader.read()
    # What a `$(` within quotes starts is found from there on: the rest is read as a line of its own.
    for found in islice(re.finditer(r"\$\(", source) if reader.doubts else (), _MAX_FOLDERS):
        inner = _Reader(source[found.end() :])
        inner.read()
        known = {one.words for one in reader.invocations}
        more = [structs.replace(one, via=("$",)) for one in inner.invocations if one.words not in known]
        reader.invocations += more[: MAX_COMMANDS - len(reader.invocations)]
    return Line(
        source=source,
        invocations=tuple(reader.invocations),
        redirections=tuple(reader.redirections),
        doubts=tuple(reader.doubts[:MAX_COMMANDS]),
    )


def unreadable(source: str) -> str | None:
    """Say why a text is not read at all."""
    if not source.strip():
        return "The command is empty."
    if len(source) > MAX_CHARACTERS:
        return f"The command has {len(source):,} characters; at most {MAX_CHARACTERS:,} are analysed."
    for character in source:
        if character not in "\n\t " and unicodedata.category(character)[0] in "CZ":
            return f"The command has the invisible character U+{ord(character):04X}, which the shell and a person read differently."
    return None


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


_EXPANDS = "The shell expands this word, and the result is unknown."
_BEFORE_COMMANDS = frozenset(("!", "if", "then", "else", "elif", "while", "until", "do", "{", "time", "coproc"))
"""Reserved words that a command may follow."""
_BEFORE_WORDS = frozenset(("for", "select", "case", "function", "[[", "((", "]]", "fi", "done", "esac", "}"))
"""Reserved words that no command follows."""
_CHANGING = frozenset(
    """
    . source eval builtin trap alias unalias shopt set unset export declare typeset local readonly read mapfile readarray enable hash
    let getopts pushd popd dirs history fc bind complete compgen compopt ulimit umask wait jobs disown suspend return exit break continue shift
    """.split()
)
"""Builtins that change how the shell reads or carries out what follows, or which variables it has."""
_HARMLESS = re.compile(
    r"(?:CI|DEBUG|VERBOSE|NODE_ENV|RAILS_ENV|RACK_ENV|APP_ENV|FLASK_ENV|LOG_LEVEL|RUST_LOG|RUST_BACKTRACE|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
    r"|FORCE_COLOR|NO_COLOR|CLICOLOR|COLUMNS|TERM|GOOS|GOARCH|CGO_ENABLED|TESTING|COVERAGE|TZ)=[\w.+-]*|(?:LC_[A-Z]+|LANG)=(?:C|POSIX|C\.UTF-8|en_US\.UTF-8)",
    re.ASCII,
)
"""Settings of a variable that change neither what a program runs nor which files it reads."""
_STRICT = re.compile(
    r"PATH|CDPATH|LOCPATH|ENV|IFS|GLOBIGNORE|POSIXLY_CORRECT|PS\d|OPTIND|OPTARG|OPTERR|UID|EUID|PPID|TMOUT|EXECIGNORE|FIGNORE|FUNCNEST|INPUTRC|UNZIP|ZIPINFO|COMPREPLY"
    r"|(LD|DYLD|BASH|GIT|SSH|GCONV|XDG|COMP|HIST|SHELL|LESS|READLINE)(_\w*)?|(HIST|SHELL|LESS)\w*"
    r"|\w*(HOME|OPT|OPTS|OPTIONS|FLAGS|PROXY)|\w*(PRELOAD|COMMAND|WRAPPER|EDITOR|VISUAL|PAGER|BROWSER|ASKPASS|CONFIG|STARTUP)\w*",
    re.IGNORECASE,
)
"""Names of variables that change which program runs, how the shell reads, or which options a program has: nothing vouches for a command with one."""
_STARTERS = {
    **dict.fromkeys(("timeout", "gtimeout"), re.compile(r"(?:--foreground\0|-[ks]\0\w+\0)*[0-9.]+[smhd]?\0")),
    "nice": re.compile(r"(?:-n\0[0-9]+\0|-n?[0-9]+\0)?"),
    "stdbuf": re.compile(r"(?:-[ioe][L0]\0)+"),
    "env": re.compile(r"(?:\w+=[^\0]*\0)*", re.ASCII),
}
"""Programs that start another one as it is, and their arguments before it: `timeout 60 make` is `make`."""

_TOKEN = re.compile(
    r"""
      (?P<blank> [ \t]+ | \\\n | \#[^\n]* )
    | (?P<redirection> (?: [0-9]* (?: <<< | << | <> | <& | >> | >& | >\| | < | > ) | &>> | &> ) (?!\() ) [ \t]*
    | (?P<sign> && | \|\| | \|& | ;; | ;& | [;|&()<>\n] )
    | (?P<word> (?: [^ \t\n;|&()<>'"\\] | \\(?:.|\Z) | '[^']*(?:'|\Z) | "(?:[^"\\]|\\.)*(?:"|\\?\Z) )+ )
    """,
    re.VERBOSE | re.DOTALL,
)
"""What a line is made of. An open quote ends with the line."""
_PART = re.compile(
    r"""'(?P<single>[^']*)'?|"(?P<double>(?:[^"\\]|\\.)*)(?:"|\\?\Z)|\\(?P<escaped>.?)|[^'"\\]+""", re.DOTALL
)
_CLOSED = re.compile(r"""(?:[^'"\\]|\\(?:.|\Z)|'[^']*'|"(?:[^"\\]|\\.)*")*""", re.DOTALL)
_ESCAPE = re.compile(r"\\([$`\"\\])")
_EXPANDED = re.compile(r"""\$[\w{(\[@*#?$!'"-]|`|(?:^|[:=])~|\{(?!\})|\\\n""")
"""What the shell makes into something else; `{}` and the `~` of `HEAD~1` are themselves."""
_STATUS = re.compile(r"\$(?:\?|\{PIPESTATUS\[[0-9@]\]\})")
"""What `echo` may show: a number, which changes nothing."""
_IN_DOUBLE = re.compile(r"(\\\n|\$[\w{(\[@*#?$!-]|`)|\\.", re.DOTALL)
_IN_SHOWN = re.compile(rf"{_STATUS.pattern}|{_IN_DOUBLE.pattern}", re.DOTALL)
"""The same between double quotes, where a character behind a backslash stays; and there behind `echo`."""
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr")
_WILD = frozenset("*?[")
_DOCUMENT = re.compile(r"-?[ \t]*(['\"]?)\\?([\w.-]+)\1(?P<rest>[^\n]*)\n(?:[^\n]*\n)*?\t*\2(?:\n|\Z)")


class _Word(msgspec.Struct, frozen=True, kw_only=True):
    """One word of a line, without its quotes and escapes."""

    text: str = ""
    raw: str = ""
    start: int = 0
    is_pattern: bool = False
    is_expanded: bool = False


class _Reader:
    """Reads one text from its first character to its last, and notes what it starts, where it redirects, and what is in doubt."""

    def __init__(self, source: str) -> None:
        self.invocations: list[Invocation] = []
        self.redirections: list[Redirection] = []
        self.doubts: list[Doubt] = []
        self._text = source
        self._at = 0
        self._folders: tuple[str, ...] = (".",)
        self._left: tuple[str, ...] = ()
        """The folders that a `cd` of this chain of `&&` has left: what comes after the chain may start there."""
        self._before = ""
        """The sign before this command."""
        self._words: list[_Word] = []

    def read(self) -> None:
        while found := _TOKEN.match(self._text, self._at):
            self._at = found.end()
            match found.lastgroup:
                case "redirection":
                    self._redirect(found["redirection"], found.start())
                case "sign":
                    self._separate(found[0])
                case "word":
                    self._words.append(self._word(found))
        self._finish()

    def _separate(self, sign: str) -> None:
        """Read what ends a command. What is not one of `;`, `|`, `&&`, `||` and a new line is a doubt."""
        is_empty = not self._words
        self._finish(sign)
        if not is_empty or sign != "\n":
            self._before = sign
            if sign not in ("&&", "|", "|&"):
                self._folders, self._left = tuple(sorted({*self._folders, *self._left})), ()
        if sign == "&":
            self._doubt("A command in the background can keep running after the call ends.", self._text)
        elif sign not in ("&&", "||", "|", "|&", ";", "\n"):
            self._doubt(f"The operator {sign!r} is not analysed.", self._text)
        is_last = sign in ("&&", "||", "|", "|&") and not self._text[self._at :].strip()
        if is_last or (is_empty and sign != "\n" and not self.invocations):
            self._doubt("A command is missing.", self._text)

    def _redirect(self, sign: str, start: int) -> None:
        operator = sign.lstrip("0123456789")
        if operator == "<<" and (document := _DOCUMENT.match(self._text, self._at)):
            # Its lines are the input of a command: a shell that carries them out is in doubt anyway.
            self._text = f"{self._text[: self._at]}E{document['rest']}\n{self._text[document.end() :]}"
        found, word = _TOKEN.match(self._text, self._at), _Word()
        if found is not None and found.lastgroup == "word":
            self._at, word = found.end(), self._word(found)
        target, is_unknown = word.text, word.is_pattern or word.is_expanded
        is_text, is_copy = operator in ("<<", "<<<"), operator in (">&", "<&")
        is_number = is_copy and (target.isdigit() or target == "-")
        is_plain = operator != "<>" and not (is_copy or is_text or is_unknown) and target != "" and "$" not in target
        if not (is_plain or is_number) or len(sign) - len(operator) > 1:
            self._doubt("This redirection is not analysed.", self._text[start : self._at])
        if target.startswith(("/dev/tcp/", "/dev/udp/")):
            self._doubt("This redirection opens a connection of the network.", target)
        elif target and not (is_number or is_unknown or is_text) and target not in _NOWHERE:
            self.redirections.append(Redirection(operator=operator, target=target, folders=self._folders))

    def _word(self, found: "re.Match[str]") -> _Word:
        """Read one word, and say whether it is a pattern of names, and whether the shell expands it."""
        raw, is_shown = found[0], [one.text for one in self._words[:1]] == ["echo"]
        text, bare, quoted = _parted(raw, is_shown=is_shown)
        if not _CLOSED.fullmatch(raw):
            self._doubt("A quote is not closed.", self._text[found.start() :])
        is_pattern = not _WILD.isdisjoint(bare)
        # No pattern can say in a way that everybody reads alike what a set of characters is, or that a wildcard is text.
        is_unclear = is_pattern and ("[" in bare or not {"\\", *_WILD}.isdisjoint(quoted))
        is_expanded = is_unclear or _EXPANDED.search(bare) is not None or self._text.startswith("(", found.end())
        if is_expanded:
            self._doubt(_EXPANDS, raw)
        return _Word(text=text, raw=raw, start=found.start(), is_pattern=is_pattern, is_expanded=is_expanded)

    def _finish(self, sign: str = "") -> None:
        """End the command that was read last.

        Args:
            sign: What ends it.
        """
        words, self._words = self._words, []
        before, skipped = self._read_before(words)
        rest = words[skipped:]
        if not rest:
            return
        program, text = rest[0], self._text[rest[0].start : self._at].strip().rstrip(";|&\n() ")
        if program.text in _BEFORE_WORDS:
            self._doubt(f"{program.text!r} is not analysed.", text)
            return
        if not program.text or program.is_expanded or program.is_pattern:
            self._doubt("The program of this command is unknown.", text)
        is_behind = program.text == "command" and not {"cd", *_CHANGING}.isdisjoint(word.text for word in rest)
        if program.text in _CHANGING or is_behind:
            self._doubt(f"`{program.text}` can change what later commands do.", text)
        if len(self.invocations) == MAX_COMMANDS:
            self._doubt(f"The line has more than {MAX_COMMANDS} commands.", text)
            return
        one = Invocation(
            words=tuple(word.text for word in rest),
            text=text,
            folders=self._folders,
            patterns=frozenset(at for at, word in enumerate(rest) if word.is_pattern),
            expanded=frozenset(at for at, word in enumerate(rest) if word.is_expanded),
            before=tuple(before),
        )
        self.invocations += _in_their_folder(without_starters(one))
        if program.text == "cd":
            has_succeeded = sign == "&&" and not skipped and self._before not in ("||", "|", "|&")
            self._change_folder(one, has_succeeded=has_succeeded)

    def _read_before(self, words: Sequence[_Word]) -> tuple[list[str], int]:
        """Return what stands before a program and is kept with it, and where the program is. In quotes a word is one like any other."""
        found: list[str] = []
        for at, word in enumerate(words):
            if not (_ASSIGNED.match(word.raw) or (word.raw == word.text and word.text in _BEFORE_COMMANDS)):
                return found, at
            after = "".join(one.text for one in words[at + 1 : at + 2])
            is_timed = word.text == "time" and after != "" and not after.startswith("-")
            if is_timed or (at + 1 < len(words) and not word.is_pattern and _is_setting(word.text)):
                found.append(word.text)
            elif word.text != "!" and not _HARMLESS.fullmatch(word.text):
                is_set = "=" in word.text
                self._doubt(
                    "Setting a variable can change what later commands do."
                    if is_set
                    else f"{word.text!r} is not analysed.",
                    word.text,
                )
        return found, len(words)

    def _change_folder(self, one: Invocation, *, has_succeeded: bool) -> None:
        """Go to the folder of a `cd`: as its text says, and as its links lead. The old ones stay where it may have failed, or not been run.

        Args:
            has_succeeded: Whether what follows runs only if the `cd` has succeeded: `cd src && ls`.
        """
        arguments = one.arguments
        if (
            len(arguments) != 1
            or not arguments[0]
            or arguments[0].startswith(("-", "+"))
            or one.expanded
            or one.patterns
        ):
            self._doubt("The folder that this command changes to is unknown.", one.text)
            return
        found = below(self._folders, arguments[0])
        left = {*self._left, *self._folders}
        if len(found | left) > _MAX_FOLDERS:
            self._doubt("The line changes folders too often to analyse.", one.text)
            return
        self._folders = tuple(sorted(found if has_succeeded else found | left))
        self._left = tuple(sorted(left))

    def _doubt(self, reason: str, text: str) -> None:
        if len(self.doubts) <= MAX_COMMANDS:
            self.doubts.append(Doubt(reason=reason, text=_short(text.strip())))


def _parted(raw: str, *, is_shown: bool = False) -> tuple[str, str, str]:
    """Return the text of a word, what of it the shell looks at, where `''` stands for what is in quotes, and what is in quotes."""
    text, bare, quoted = "", "", ""
    for part in _PART.finditer(raw):
        single, double, escaped = part["single"], part["double"], part["escaped"]
        plain = part[0] if part.lastgroup is None else ""
        text += single or _ESCAPE.sub(r"\1", double or "") or escaped or plain
        quoted += single or double or escaped or ""
        bare += (_STATUS.sub("", plain) if is_shown else plain) or "''"
        bare += "".join((_IN_SHOWN if is_shown else _IN_DOUBLE).findall(double or ""))
        bare += "\\\n" if escaped in ("", "\n") else ""
    return text, bare, quoted


def one_command(text: str) -> tuple[str, ...] | None:
    """Return the words of a text as the shell looks at them, without what is in quotes; None where it is more than one simple command."""
    tokens = [one for one in _TOKEN.finditer(text) if one.lastgroup != "blank"]
    words = tuple(_parted(one[0])[1] for one in tokens)
    is_one = _CLOSED.fullmatch(text) is not None and all(one.lastgroup == "word" for one in tokens)
    return words if is_one and not any("`" in one or "$(" in one for one in words) else None


def below(folders: Sequence[str], name: str) -> set[str]:
    """Return where a folder lies: as its text says, and as its links lead."""
    joined = [posixpath.join(folder, name) for folder in folders]
    return {*map(posixpath.normpath, joined), *filter(leads_up, joined)}


def _is_setting(word: str) -> bool:
    """Whether a word before a program sets a variable that a rule can name."""
    name, sign, _ = word.partition("=")
    return (
        bool(sign)
        and name.isascii()
        and name.isidentifier()
        and not (_STRICT.fullmatch(name) or _HARMLESS.fullmatch(word))
    )


def without_starters(one: Invocation) -> Invocation:
    """Return a command without the programs that only start it: `timeout 60 make` is `make`, and `env A=b make` is it with a variable."""
    while (form := _STARTERS.get(one.program)) is not None:
        found = form.match("".join(f"{word}\0" for word in one.arguments))
        count = 1 + (found[0].count("\0") if found else 0)
        before = [word for word in one.words[:count] if not _HARMLESS.fullmatch(word)]
        started = one.words[count : count + 1]
        is_known = found is not None and (one.patterns | one.expanded).isdisjoint(range(count + 1))
        if (
            not is_known
            or not started
            or started[0].startswith("-")
            or not all(_is_setting(word) for word in before if "=" in word)
        ):
            break
        one = _shifted(one, count, before=(*one.before, *before))
    return one


def _shifted(one: Invocation, count: int, *, before: tuple[str, ...]) -> Invocation:
    """Return a command without its first words, of which some are kept before it."""
    return structs.replace(
        one,
        words=one.words[count:],
        patterns=frozenset(at - count for at in one.patterns if at >= count),
        expanded=frozenset(at - count for at in one.expanded if at >= count),
        before=before,
    )


def _in_their_folder(one: Invocation) -> tuple[Invocation, ...]:
    """Return a command as it is carried out: `git -C src log` is `cd src` and `git log` there."""
    words, unknown = one.words, one.patterns | one.expanded
    is_plain = len(words) > len("git -C x".split()) and words[3] != "-C" and unknown.isdisjoint((1, 2))
    if words[:2] != ("git", "-C") or not is_plain or not words[2] or words[2].startswith(("-", "+")):
        return (one,)
    return (
        structs.replace(one, words=("cd", words[2]), patterns=frozenset(), expanded=frozenset(), before=()),
        structs.replace(
            _shifted(one, 2, before=one.before),
            words=("git", *words[3:]),
            folders=tuple(sorted(below(one.folders, words[2]))),
        ),
    )
