"""Rules on commands: `git log:*` by prefix, `git status` exactly. Says whether one covers a command; decides nothing."""

import fnmatch
import re
import shlex
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from treadle.errors import ConfigurationError
from treadle.shell.knowing import is_fed, known, losing_words, plain_words
from treadle.shell.programs import (
    ADDING,
    BEFORE_SUBCOMMAND,
    INTERPRETERS,
    LOSING,
    PROGRAMS,
    SUBCOMMANDS,
    WRAPPERS,
    program_name,
)
from treadle.shell.reading import Invocation, Line
from treadle.tools.foreign import FOREIGN_NAMES

__all__ = ["CommandPattern", "finds", "own_path", "own_tool", "same_tool", "suggested"]


# --- Finding: whether the words of a rule that forbids are in a command, in any order and spelling of its options.
# Knows no rule.

_LONG = {
    "a": ("all",), "d": ("delete",), "f": ("force", "file"), "m": ("message",), "n": ("dry-run", "no-verify", "namespace"),
    "o": ("push-option",), "p": ("prune",), "r": ("recursive",), "R": ("recursive", "repo"), "v": ("verbose", "volume"),
    "w": ("workspace",),
}  # fmt: skip
"""Long forms of short options. A rule that names one form finds the other too."""
_FORCED = {"-D": "--delete", "-M": "--move"}
"""Short options of `git branch` that mean a long one with `--force`."""
_BUILDERS = frozenset("make gmake just task ninja rake ant gradle gradlew mvn scons waf mage inv fab sbt lein".split())
"""Programs that carry out each of their operands: `make clean deploy` deploys."""
_SETTING = re.compile(r"\w+=|\+")
"""How a word begins that sets a variable, or chooses a toolchain: `CC=gcc`, `+nightly`."""


class _Word(msgspec.Struct, frozen=True, kw_only=True):
    """One word of a command, or the value within an option."""

    texts: tuple[str, ...]
    """What it may be, as an operand. Empty for an option without a value."""
    option: str = ""
    """The option whose value it may be; empty where there is none."""
    is_operand: bool = False
    may_be_skipped: bool = False
    """Whether it is an option, may be the value of one, or is one operand of several that the program carries out."""


class _Parted(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a command, or of a rule."""

    options: tuple[str, ...]
    """Joined short options are taken apart, and long ones have no value."""
    words: tuple[_Word, ...]


def finds(wanted: tuple[str, ...], one: Invocation, *, is_prefix: bool) -> bool:
    """Whether a command has these arguments: the options anywhere, the operands in their order.

    Between the operands there may be options and words that may be the values of options. So it finds too much rather than too little:
    the second word of `-n delete` may be a subcommand.

    Args:
        wanted: Arguments of a rule. `*` within a word is any text of that word, and `*` by itself any number of words.
        one: The command.
        is_prefix: Whether further operands may follow.
    """
    rule, given = _parted("", wanted), _parted(program_name(one.program), one.arguments)
    if not all(any(_is_same(option, other) for other in given.options) for option in rule.options):
        return False
    operands = [word.texts[0] for word in rule.words if word.is_operand and not _is_value_in(given, word)]
    return _are_in(operands, given.words, is_prefix=is_prefix)


def _is_value_in(given: _Parted, wanted: _Word) -> bool:
    """Whether a command has an option of a rule with this value, in whichever place."""
    return bool(wanted.option) and any(
        any(_is_same(option, other) for option in _names(wanted.option) for other in _names(word.option))
        and _word_fits(word, wanted.texts[0])
        for word in given.words
        if word.option
    )


def _are_in(wanted: Sequence[str], words: Sequence[_Word], *, is_prefix: bool) -> bool:
    """Whether words follow each other in a command, with nothing between them that may not be skipped."""
    reached = _behind_stars({0}, wanted)
    for word in words:
        if is_prefix and len(wanted) in reached:
            return True
        stays = {at for at in reached if word.may_be_skipped or wanted[at : at + 1] == ["*"]}
        moves = {at + 1 for at in reached if at < len(wanted) and _word_fits(word, wanted[at])}
        reached = _behind_stars(stays | moves, wanted)
    return len(wanted) in reached


def _behind_stars(reached: set[int], wanted: Sequence[str]) -> set[int]:
    found: set[int] = set()
    for start in reached:
        at = start
        while at not in found:
            found.add(at)
            at += wanted[at : at + 1] == ["*"]
    return found


def _word_fits(word: _Word, wanted: str) -> bool:
    return any(fnmatch.fnmatchcase(text, wanted) for text in word.texts)


@lru_cache(maxsize=4096)
def _parted(program: str, arguments: tuple[str, ...]) -> _Parted:
    """Take arguments apart. In a command, a `--` may be the value of an option, so what looks like an option behind it may be one.

    Args:
        program: Empty for the arguments of a rule.
    """
    options: list[str] = []
    words: list[_Word] = []
    last, is_over = "", False
    for word in arguments:
        if word == "--" and not is_over:
            last, is_over = "", True
        elif not word.startswith("-") or word == "-" or (is_over and not program):
            is_skipped = bool(last) or program in _BUILDERS or _SETTING.match(word) is not None
            texts = (word, *_readings(word)) if program == "git" else (word,)
            words.append(_Word(texts=texts, option=last, is_operand=True, may_be_skipped=is_skipped))
            last = ""
        else:
            options += _names(word)
            value = word.partition("=")[2] if word.startswith("--") else word[2:]
            texts = (*((value,) if value else ()), *((word,) if is_over else ()))
            words.append(_Word(texts=texts, option=word, may_be_skipped=True))
            last = "" if "=" in word or word in BEFORE_SUBCOMMAND else word
    return _Parted(options=tuple(options + (_of_git(options, words) if program == "git" else [])), words=tuple(words))


def _names(option: str) -> list[str]:
    """Return the options that one word holds, without a value."""
    if option.startswith("--"):
        return [option.partition("=")[0]]
    return [f"-{letter}" for letter in option[1:]]


def _readings(word: str) -> list[str]:
    """Return what git takes an operand for, beside its text: the branch that a refspec writes."""
    plain = word.removeprefix("+").rpartition(":")[2].removeprefix("refs/heads/")
    return [] if plain == word else [plain]


def _of_git(options: Sequence[str], words: Sequence[_Word]) -> list[str]:
    """Return options that others of git stand for: `-D` is `--delete --force`, and `+main` forces."""
    found: list[str] = []
    operands = [word.texts[0] for word in words if word.is_operand]
    found += ["--force"] if any(word.startswith("+") for word in operands) else []
    found += ["--delete"] if any(word.startswith(":") for word in operands) else []
    for short, long in _FORCED.items():
        if short in options:
            found += [long, "--force"]
        elif all(any(_is_same(one, other) for other in options) for one in (long, "--force")):
            found.append(short)
    return found


def _is_same(wanted: str, given: str) -> bool:
    if fnmatch.fnmatchcase(given, wanted):
        return True
    return any(one.startswith(other) for one in _longs(wanted) for other in _longs(given))


def _longs(option: str) -> tuple[str, ...]:
    return (option[2:],) if option.startswith("--") else _LONG.get(option[1:], ())


# --- Rules on commands: `git log:*` by prefix, `git status` exactly. Says whether one covers a command; decides
# nothing.

_WILD = re.compile(r"[*?\[]")
_UP = re.compile(r"(?<![^/=:,@])\.\.(?![^/=:,@])")
_SEVERAL = "contains more than one command. Write one rule for each: the commands of a line are checked one by one."
_SERVER = re.compile(r"mcp__(?:(?!__)[^*?\[])+")


class CommandPattern(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern on commands, word by word."""

    text: str
    """As the person wrote it."""
    words: tuple[str, ...]
    """The words that a command must begin with. `*` within a word stands for any text of that word, but in a rule that allows for no `..`."""
    is_prefix: bool
    """Whether further words may follow."""

    @staticmethod
    def parse(text: str) -> "CommandPattern":
        """Read a pattern: `git status`, `git log:*`, `git log *`, `*`.

        Raises:
            ConfigurationError: The pattern is empty, or is more than one simple command.
        """
        body = text.strip()
        is_prefix = body == "*" or body.endswith((":*", " *"))
        body = "" if body == "*" else body.removesuffix(":*").removesuffix(" *").strip()
        try:
            words = tuple(shlex.split(body))
        except ValueError as exc:
            raise ConfigurationError(f"The command pattern {text!r} is invalid: {exc}.") from exc
        if not words and not is_prefix:
            raise ConfigurationError("A command pattern is empty. Write the command, as in `shell(git log:*)`.")
        problem = _problem(body) or _mistake(text.strip(), words)
        if problem is not None:
            raise ConfigurationError(f"The command pattern {text!r} {problem}")
        return CommandPattern(text=text, words=words, is_prefix=is_prefix)

    @property
    def covers(self) -> str:
        """Which commands it vouches for, in one sentence for a person."""
        words = shlex.join(self.words)
        where = " in the root folder" if self._is_bound(Invocation(words=self.words or ("*",), text="")) else ""
        if not self.is_prefix and any(map(_WILD.search, self.words)):
            return f"the command `{words}`{where}, where `*`, `?` and `[` match any text within a word, but no `..`"
        if not self.is_prefix and is_fed(Invocation(words=self.words, text=""), program_name(self.words[0])):
            return f"nothing: `{words}` runs what it reads from its input, so a person is asked each time"
        if not self.is_prefix:
            return f"only the command `{words}`{where}"
        name = program_name(self.words[0]) if self.words else ""
        if name in WRAPPERS or name in INTERPRETERS:
            return f"nothing: `{name}` runs what its arguments say, so a rule must name the whole command"
        if name and name not in PROGRAMS and name not in SUBCOMMANDS:
            return f"`{words}`{where} with any arguments, whatever its options do, but no redirection to a file"
        what = f"`{words}` with any arguments" if words else "every command"
        options = "no option that writes a file or starts a program"
        if name in ("git", "") and (len(self.words) < 2 or self.words[1] in LOSING):
            options = "no option that writes a file, starts a program, or makes git delete or overwrite something"
        return f"{what}, but {options}, and no redirection to a file"

    def allows(self, one: Invocation, *, is_away: bool = False) -> bool:
        """Whether the pattern vouches for a command.

        One that names the whole command, or a program by its relative path, means the root folder: elsewhere the same words may run another
        program, or another project's script.
        A command with risks (a wrapper, an interpreter, an option that writes) needs a pattern that names all its words, and one that makes
        git delete or overwrite something (`--force`) a pattern with that word.

        Args:
            one: The command.
            is_away: Whether it may start in another folder than the root folder.
        """
        return self._names(one) and not (is_away and self._is_bound(one))

    def _names(self, one: Invocation) -> bool:
        if one.risks or one.via:
            return not self.is_prefix and self.words == one.words and not is_fed(one, program_name(one.program))
        words, wanted = plain_words(one.words), plain_words(self.words)
        if not self.is_prefix and len(words) != len(wanted):
            return False
        given = words[: len(wanted)]
        if len(given) != len(wanted) or not all(map(_fits, given, wanted)):
            return False
        return set(losing_words(one.words)).issubset(wanted)

    def _is_bound(self, one: Invocation) -> bool:
        """Whether the pattern means its command in the root folder only. A command that only reads is meant in every folder."""
        if self.is_prefix:
            return "/" in one.program and not one.program.startswith("/")
        return bool(one.risks) or not known(one)[1].reads_only

    def forbids(self, one: Invocation) -> bool:
        """Whether the pattern finds a command, in any order and spelling of its options, and by any path of its program."""
        if not self.words:
            return True
        names = {one.program, program_name(one.program), one.program.rpartition("/")[2]}
        if not any(fnmatch.fnmatchcase(name, self.words[0]) for name in names):
            return False
        is_prefix = self.is_prefix or self.words[-1].endswith("*")
        return finds(self.words[1:], one, is_prefix=is_prefix)


def _fits(word: str, wanted: str) -> bool:
    """Whether a word of a command is one that a rule allows: `build/*` is what lies in that folder, and not `build/../src`."""
    return fnmatch.fnmatchcase(word, wanted) and len(_UP.findall(word)) <= len(_UP.findall(wanted))


def _problem(body: str) -> str | None:
    """Say what is wrong with the text of a pattern; None for a simple command. Signs of the shell in quotes are text."""
    if any(unicodedata.category(one)[0] in "CZ" and one not in " \t\n" for one in body):
        return "contains an invisible character, which no analysed command can have."
    bare, in_double = _unquoted(body)
    if "`" in bare + in_double or "$(" in bare or "$(" in in_double:
        return _SEVERAL
    if set(bare) & set(";|&\n"):
        return _SEVERAL
    if set(bare) & set("<>()"):
        return "contains a shell operator such as `>` or `)`. Put it in quotes if it is text."
    return "has `:*` before its end. It means any arguments, and must come last: `git log:*`." if ":*" in bare else None


def _mistake(text: str, words: tuple[str, ...]) -> str | None:
    """Say what is wrong with a pattern that no command matches; None for any other."""
    if words and " " in words[0] and "/" not in words[0]:
        return f"names a program with a space. Write its words without quotes: `{words[0]}`."
    if text.endswith(": *") and words[-1] != ":":
        return f"has a space within `:*`. Write `{text.removesuffix(' *')}*`."
    return None


def _unquoted(body: str) -> tuple[str, str]:
    """Return what stands outside of quotes, and in double ones, where the shell expands it still. Escaped signs are in neither."""
    found = {"": "", '"': "", "'": ""}
    quote, is_escaped = "", False
    for one in body:
        if is_escaped:
            is_escaped = False
        elif one == "\\" and quote != "'":
            is_escaped = True
        elif one == quote or (one in "'\"" and not quote):
            quote = "" if quote else one
            found[""] += " "
        else:
            found[quote] += one
    return found[""], found['"']


def suggested(line: Line) -> tuple[str, ...]:
    """Return the narrow patterns that would cover a line the next time; none where a rule cannot vouch for it.

    Never one for a shell, an interpreter or a wrapper, nor for a line with a doubt. Each is proven to match the command it is made from.
    """
    if not line.is_understood or any(one.risks or one.via or _carries_out(one) for one in line.invocations):
        return ()
    patterns = tuple(dict.fromkeys(_pattern(one) for one in line.invocations))
    try:
        proven = [CommandPattern.parse(pattern) for pattern in patterns]
    except ConfigurationError:
        return ()
    if any(_WILD.search(word) for one in proven for word in one.words):
        return ()
    is_covered = all(any(one.allows(invocation) for one in proven) for invocation in line.invocations)
    return patterns if is_covered else ()


def _carries_out(one: Invocation) -> bool:
    return program_name(one.program) in WRAPPERS | INTERPRETERS


def own_tool(tool: str) -> str:
    """Return the tools that a rule means: `mcp__server` is every tool of that server."""
    return f"{tool}__*" if _SERVER.fullmatch(tool) else tool


def same_tool(tool: str) -> str | None:
    """Return our tool that a name means in another case: `bash` and `BASH` are `shell`. None for any other name."""
    known = {name.casefold(): own for name, own in FOREIGN_NAMES.items()} | {own: own for own in FOREIGN_NAMES.values()}
    return known.get(tool.casefold())


def own_path(text: str, tool: str, glob: str) -> str:
    """Return the path of a rule as ours say it. One that is read in two ways is refused, with what to write.

    Args:
        tool: The tool as the rule names it. Claude Code reads `/x` as a path below the folder of its settings, and `//x` as one from `/`.
    """
    if glob.startswith("~"):
        raise ConfigurationError(f"Rule {text!r} is invalid: `~` is not expanded. Write the path from `/`.")
    if tool not in FOREIGN_NAMES or not glob.startswith("/"):
        return glob
    if glob.startswith("//"):
        return f"/{glob.lstrip('/')}"
    own, plain = FOREIGN_NAMES[tool], glob.lstrip("/")
    raise ConfigurationError(
        f"Rule {text!r} is invalid: to Claude Code it names a path below the folder of its settings. "
        f"Write `{own}({plain})` for that, or `{own}({glob})` for the path from `/`."
    )


def _pattern(one: Invocation) -> str:
    """Return a pattern for one command: a subcommand that only reads or adds, with any options, else just this command."""
    words, table = plain_words(one.words), SUBCOMMANDS.get(one.program)
    known = table.get(words[1]) if table is not None and len(words) > 1 else None
    if known is not None and (known.reads_only or words[1] in ADDING) and not losing_words(words):
        return f"{shlex.join(words[:2])}:*"
    return shlex.join(one.words)
