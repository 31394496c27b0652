"""Read one line of shell in closed form: plain words, quotes, wildcards, pipes, `&&`, `||`, `;`, and redirections to files.

Whatever else bash knows is a doubt, and a line with a doubt is asked about. What a line with a doubt names is read on as well as it can be,
so that a rule that denies finds it. Judges no program, and opens nothing.
"""

import posixpath
import re
import unicodedata
from collections.abc import Sequence
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
    "leads_up",
    "read",
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
    problem = _unreadable(source)
    if problem is not None:
        doubts = (Doubt(reason=problem, text=_short(source)),)
        return Line(source=source, doubts=doubts)
    reader = _Reader(source)
    reader.read()
    return Line(
        source=source,
        invocations=tuple(reader.invocations),
        redirections=tuple(reader.redirections),
        doubts=tuple(reader.doubts[:MAX_COMMANDS]),
    )


def _unreadable(source: str) -> str | None:
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


_PLAIN_SET = re.compile(r"\[!?[A-Za-z0-9_]+\]")
"""A set of characters that matches the same in every locale, and to everybody who reads it: no range, and no class."""
_EXPANDS = "The shell expands this word, and the result is unknown."
_WILD = frozenset("*?[")
_OPENS_EXPANSION = frozenset("{([@*#?$!-'\"_")
"""What follows a `$` that expands to something, beside letters and digits."""
_BEFORE_COMMANDS = frozenset(("!", "if", "then", "else", "elif", "while", "until", "do", "{", "time", "coproc"))
"""Reserved words that a command may follow."""
_BEFORE_WORDS = frozenset(("for", "select", "case", "function", "[[", "((", "]]", "fi", "done", "esac", "}"))
"""Reserved words that no command follows."""
_CHANGING = frozenset(
    """
    . source trap alias unalias shopt set unset export declare typeset local readonly read mapfile readarray enable hash
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
_CHANGES_FOLDER = re.compile(r"-\w*C|--c")
"""Options of `env` with which it starts a program in another folder."""
_STATUS = re.compile(r"\?|\{PIPESTATUS\[[0-9@]\]\}")
_REDIRECTIONS = ("&>>", "&>", "<<<", "<<", "<>", "<&", ">>", ">&", ">|", "<", ">")
_ASSIGNED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


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
        self._words: list[str] = []
        self._starts: list[int] = []
        self._patterns: set[int] = set()
        self._expanded: set[int] = set()

    def read(self) -> None:
        while self._at < len(self._text):
            one = self._text[self._at]
            if one in " \t" or self._text.startswith("\\\n", self._at):
                self._at += 1 if one in " \t" else 2
            elif one == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif (sign := self._redirection()) is not None:
                self._redirect(sign)
            elif one in ";|&()\n":
                self._separate()
            else:
                self._word()
        self._finish()

    def _separate(self) -> None:
        """Read what ends a command. What is not one of `;`, `|`, `&&`, `||` and a new line is a doubt."""
        start = self._at
        pair = self._text[start : start + 2]
        sign = pair if pair in ("&&", "||", "|&", ";;", ";&") else pair[0]
        self._at += len(sign)
        is_empty = not self._words
        self._finish(sign)
        if not is_empty or sign != "\n":
            self._before = sign
            if sign not in ("&&", "|", "|&"):
                self._folders, self._left = tuple(sorted({*self._folders, *self._left})), ()
        if sign in ("&", "(", ")", ";;", ";&"):
            what = {"&": "A command in the background can keep running after the call ends."}
            self._doubt(what.get(sign, f"The operator {sign!r} is not analysed."), self._text)
        elif is_empty and sign != "\n" and not self.invocations:
            self._doubt("A command is missing.", self._text)
        if sign in ("&&", "||", "|", "|&") and not self._text[self._at :].strip():
            self._doubt("A command is missing.", self._text)

    def _redirection(self) -> str | None:
        """Return the sign of a redirection that begins here, with the number before it."""
        end = self._at
        while end < len(self._text) and self._text[end].isdigit() and self._text[end].isascii():
            end += 1
        number = self._text[self._at : end]
        sign = next((one for one in _REDIRECTIONS if self._text.startswith(one, end)), None)
        if sign is None or (number and sign.startswith("&")) or self._text[end : end + 2] in ("<(", ">("):
            return None
        return number + sign

    def _redirect(self, sign: str) -> None:
        start, operator = self._at, sign.lstrip("0123456789")
        self._at += len(sign)
        while self._at < len(self._text) and self._text[self._at] in " \t":
            self._at += 1
        if operator in ("<<", "<<<", "<>") or len(sign) - len(operator) > 1:
            self._doubt("This redirection is not analysed.", self._text[start:])
            if operator == "<<":
                self._skip_document()
                return
        target, is_pattern, is_expanded = self._one_word()
        if operator in (">&", "<&") and (target.isdigit() or target == "-"):
            return
        if not target or is_pattern or "$" in target or operator in (">&", "<&"):
            self._doubt("This redirection is not analysed.", self._text[start : self._at])
        if is_expanded or is_pattern:
            return
        if target.startswith(("/dev/tcp/", "/dev/udp/")):
            self._doubt("This redirection opens a connection of the network.", target)
        elif target and target not in ("/dev/null", "/dev/stdout", "/dev/stderr") and operator not in ("<<<", "<<"):
            self.redirections.append(Redirection(operator=operator, target=target, folders=self._folders))

    def _skip_document(self) -> None:
        """Leave out the lines of a here-document, which are the input of a command. A shell that carries them out is in doubt anyway."""
        self._at += self._text.startswith("-", self._at)
        delimiter, _, _ = self._one_word()
        begins = self._text.find("\n", self._at)
        lines = self._text[begins + 1 :].split("\n") if begins >= 0 else []
        stripped = [line.strip("\t") for line in lines]
        if delimiter not in stripped:
            return
        body = "\n".join(lines[: stripped.index(delimiter) + 1])
        self._text = self._text[: begins + 1] + self._text[begins + 1 + len(body) :]

    def _word(self) -> None:
        start = self._at
        word, is_pattern, is_expanded = self._one_word()
        words = _braced(self._text[start : self._at]) if is_expanded else [word]
        for one in words or [word]:
            if is_pattern:
                self._patterns.add(len(self._words))
            if is_expanded and not words:
                self._expanded.add(len(self._words))
            self._starts.append(start)
            self._words.append(one)

    def _one_word(self) -> tuple[str, bool, bool]:  # noqa: C901, PLR0912 - one case for each sign of the shell
        """Read one word, and say whether it is a pattern of names, and whether the shell expands it."""
        found: list[str] = []
        start, is_pattern, is_expanded = self._at, False, False
        while self._at < len(self._text) and (one := self._text[self._at]) not in " \t\n;|&()<>":
            self._at += 1
            match one:
                case "'":
                    end = self._text.find("'", self._at)
                    if end < 0:
                        self._doubt("A quote is not closed.", self._text[start:])
                        end = len(self._text)
                    found.append(self._text[self._at : end])
                    self._at = end + 1
                case '"':
                    text, is_open = self._double_quoted()
                    found.append(text)
                    is_expanded = is_expanded or is_open
                case "\\":
                    after = self._text[self._at : self._at + 1]
                    if after in ("", "\n"):
                        self._doubt("The command continues a word on the next line.", self._text[start:])
                    found.append(after)
                    self._at += 1
                case "$" if status := self._status():
                    found.append(one + status)
                    self._at += len(status)
                case "$" if self._expands():
                    is_expanded = True
                    found.append(one + self._substitution())
                case "`":
                    is_expanded = True
                    self._doubt("The shell carries out what stands between backticks.", self._text[start:])
                    found.append(one)
                case "{" | "~" if self._is_special(one, found):
                    is_expanded = True
                    found.append(one)
                case _:
                    is_pattern = is_pattern or one in _WILD
                    found.append(one)
        if self._text[self._at : self._at + 2] in ("<(", ">(") or self._text[self._at : self._at + 1] == "(":
            is_expanded = True
            self._at += self._text[self._at] in "<>"
        word = "".join(found)
        if is_expanded:
            self._doubt(_EXPANDS, self._text[start : self._at])
        if is_pattern and (
            "[" in _PLAIN_SET.sub("", word) or any(one in word for one in _quoted_wild(self._text[start : self._at]))
        ):
            is_expanded = True
            self._doubt(_EXPANDS, self._text[start : self._at])
        return word, is_pattern, is_expanded

    def _double_quoted(self) -> tuple[str, bool]:
        """Read up to the quote that closes, and say whether something within is expanded."""
        found: list[str] = []
        is_expanded = False
        start = self._at
        while self._at < len(self._text):
            one = self._text[self._at]
            self._at += 1
            if one == '"':
                return "".join(found), is_expanded
            if one == "\\" and self._text[self._at : self._at + 1] in ("$", "`", '"', "\\"):
                one = self._text[self._at]
                self._at += 1
            elif one == "\\" and self._text.startswith("\n", self._at):
                self._doubt("The command continues a word on the next line.", self._text[start - 1 :])
                is_expanded = True
            elif one == "`":
                is_expanded = True
            elif one == "$" and not self._status() and self._expands(is_quoted=True):
                is_expanded = True
                one += self._substitution()
            found.append(one)
        self._doubt("A quote is not closed.", self._text[start - 1 :])
        return "".join(found), is_expanded

    def _substitution(self) -> str:
        """Read the line within a `$(...)` that begins here, and return it as written; nothing where none does. What it starts is noted."""
        if not self._text.startswith("(", self._at) or self._text.startswith("((", self._at):
            return ""
        start, depth, quote = self._at, 0, ""
        while self._at < len(self._text):
            one = self._text[self._at]
            self._at += 1 + (one == "\\" and quote != "'")
            if quote or one in "'\"":
                quote = "" if one == quote else quote or one
                continue
            depth += (one == "(") - (one == ")")
            if depth == 0:
                break
        whole = self._text[start : self._at]
        inner = read(whole[1:-1]) if len(whole) < len(self._text) else Line(source=whole)
        room = MAX_COMMANDS - len(self.invocations)
        self.invocations += [
            structs.replace(one, via=("$", *one.via), folders=self._folders) for one in inner.invocations[:room]
        ]
        self.redirections += inner.redirections
        return whole

    def _status(self) -> str:
        """Return the rest of a `$?` that `echo` shows: a number, which changes nothing. Empty for anything else."""
        found = _STATUS.match(self._text, self._at) if self._words[:1] == ["echo"] else None
        return found[0] if found else ""

    def _expands(self, *, is_quoted: bool = False) -> bool:
        """Whether the `$` before the place where the reader is expands to something."""
        after = self._text[self._at : self._at + 1]
        return (after.isalnum() or after in _OPENS_EXPANSION) and after != "" and not (is_quoted and after in "'\"")

    def _is_special(self, one: str, found: list[str]) -> bool:
        """Whether a `{` or `~` may be more than itself. `{}` is itself, and so is a `~` behind a letter: `HEAD~1`."""
        if one == "~":
            return not found or "".join(found)[-1:] in (":", "=", "")
        return not self._text.startswith("}", self._at)

    def _finish(self, sign: str = "") -> None:
        """End the command that was read last.

        Args:
            sign: What ends it.
        """
        words, starts, patterns, expanded = self._words, self._starts, self._patterns, self._expanded
        self._words, self._starts, self._patterns, self._expanded = [], [], set(), set()
        before, skipped = self._read_before(words, starts, patterns)
        rest = words[skipped:]
        if not rest:
            return
        text = self._text[starts[skipped] : self._at].strip().rstrip(";|&\n() ")
        if rest[0] in _BEFORE_WORDS:
            self._doubt(f"{rest[0]!r} is not analysed.", text)
            return
        if not rest[0] or skipped in expanded or skipped in patterns:
            self._doubt("The program of this command is unknown.", text)
        if rest[0] in _CHANGING:
            self._doubt(f"`{rest[0]}` can change what later commands do.", text)
        if len(self.invocations) == MAX_COMMANDS:
            self._doubt(f"The line has more than {MAX_COMMANDS} commands.", text)
            return
        one = Invocation(
            words=tuple(rest),
            text=text,
            folders=self._folders,
            patterns=frozenset(at - skipped for at in patterns),
            expanded=frozenset(at - skipped for at in expanded),
            before=tuple(before),
        )
        started = without_starters(one)
        if started.program == "env" and any(map(_CHANGES_FOLDER.match, started.arguments)):
            self._doubt("The folder that this command changes to is unknown.", text)
        self.invocations += _in_their_folder(started)
        if rest[0] == "cd":
            has_succeeded = sign == "&&" and not skipped and self._before not in ("||", "|", "|&")
            self._change_folder(one, has_succeeded=has_succeeded)

    def _read_before(self, words: list[str], starts: list[int], patterns: set[int]) -> tuple[list[str], int]:
        """Return what stands before a program and is kept with it, and where the program is."""
        found: list[str] = []
        at = 0
        while at < len(words) and self._comes_before(words[at], starts[at]):
            word, after = words[at], "".join(words[at + 1 : at + 2])
            is_timed = word == "time" and after != "" and not after.startswith("-")
            if is_timed or (at + 1 < len(words) and at not in patterns and _is_setting(word)):
                found.append(word)
            elif word != "!" and not _HARMLESS.fullmatch(word):
                self._doubt(_about(word), word)
            at += 1
        return found, at

    def _comes_before(self, word: str, start: int) -> bool:
        """Whether a word comes before a command: it sets a variable, or is reserved. In quotes it is a word like any other."""
        is_bare = self._text[start : start + len(word) + 1].strip(" \t\n;") == word
        return self._is_assigned(word, start) or (is_bare and word in _BEFORE_COMMANDS)

    def _is_assigned(self, word: str, start: int) -> bool:
        """Whether a word before a command sets a variable."""
        name = word.partition("=")[0].removesuffix("+")
        is_name = bool(name) and set(name) <= _ASSIGNED and not name[0].isdigit()
        return "=" in word and is_name and self._text.startswith(name, start)

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
        found = _below(self._folders, arguments[0])
        left = {*self._left, *self._folders}
        if len(found | left) > _MAX_FOLDERS:
            self._doubt("The line changes folders too often to analyse.", one.text)
            return
        self._folders = tuple(sorted(found if has_succeeded else found | left))
        self._left = tuple(sorted(left))

    def _doubt(self, reason: str, text: str) -> None:
        if len(self.doubts) <= MAX_COMMANDS:
            self.doubts.append(Doubt(reason=reason, text=_short(text.strip())))


def _below(folders: Sequence[str], name: str) -> set[str]:
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
            folders=tuple(sorted(_below(one.folders, words[2]))),
        ),
    )


_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAX_BRACED = 64


def _braced(raw: str) -> list[str]:
    """Return the words that one word with braces becomes (`src/{a,b}`); nothing where it is more than that."""
    found = [raw]
    while any("{" in one for one in found):
        matches = [_BRACES.search(one) for one in found]
        if not all(matches) or len(found) > _MAX_BRACED:
            return []
        found = [
            one[: at.start()] + part + one[at.end() :]
            for one, at in zip(found, matches, strict=True)
            if at
            for part in at[1].split(",")
        ]
    return found if not set(raw) & set("$`'\"\\~") and found != [raw] else []


def _about(word: str) -> str:
    return "Setting a variable can change what later commands do." if "=" in word else f"{word!r} is not analysed."


def _quoted_wild(raw: str) -> list[str]:
    """Return the wildcards that are text, of a word that has others: no pattern can say both in a way that everybody reads alike."""
    return [one for one in "*?[" if f"\\{one}" in raw or any(one in part for part in _quoted(raw))]


def _quoted(raw: str) -> list[str]:
    return [*raw.split("'")[1::2], *raw.split('"')[1::2]]
