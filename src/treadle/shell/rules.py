"""Rules on commands: `git log:*` by prefix, `git status` exactly. Says whether one covers a command; decides nothing."""

import fnmatch
import re
import shlex
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from treadle.errors import ConfigurationError
from treadle.shell.judging import changes_nothing, hosts_of, known, losing_words, plain_words, runs_input, turning_words
from treadle.shell.programs import (
    INTERPRETERS,
    LOSING,
    MODULE_RUNNERS,
    RUNNERS,
    SUBCOMMANDS,
    TARGETS,
    WRAPPERS,
    program_name,
)
from treadle.shell.reading import Invocation, Line, one_command, read, unreadable, without_starters

__all__ = ["CommandPattern", "exact", "finds", "kind_of", "suggested"]


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
_BUILDERS = TARGETS | frozenset("ant gradle gradlew mvn scons waf mage fab sbt lein".split())
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


def finds(wanted: tuple[str, ...], one: Invocation, *, is_prefix: bool) -> bool:
    """Whether a command has these arguments: the options anywhere, the operands in their order.

    Between the operands there may be options and words that may be the values of options. So it finds too much rather than too little:
    the second word of `-n delete` may be a subcommand.

    Args:
        wanted: Arguments of a rule. `*` within a word is any text of that word, and `*` by itself any number of words.
        one: The command.
        is_prefix: Whether further operands may follow.
    """
    options, words = _parted(program_name(one.program), one.arguments)
    wanted_options, wanted_words = _parted("", wanted)
    if not all(any(_is_same(option, other) for other in options) for option in wanted_options):
        return False
    operands = [word.texts[0] for word in wanted_words if word.is_operand and not _is_value_in(words, word)]
    return _are_in(operands, words, is_prefix=is_prefix)


def _is_value_in(words: Sequence[_Word], wanted: _Word) -> bool:
    """Whether a command has an option of a rule with this value, in whichever place."""
    return bool(wanted.option) and any(
        any(_is_same(option, other) for option in _names(wanted.option) for other in _names(word.option))
        and _has_text(word, wanted.texts[0])
        for word in words
        if word.option
    )


def _are_in(wanted: Sequence[str], words: Sequence[_Word], *, is_prefix: bool) -> bool:
    """Whether words follow each other in a command, with nothing between them that may not be skipped."""

    def behind_stars(places: set[int]) -> set[int]:
        more = {at + 1 for at in places if wanted[at : at + 1] == ["*"]}
        return places if more <= places else behind_stars(places | more)

    reached = behind_stars({0})
    for word in words:
        if is_prefix and len(wanted) in reached:
            return True
        stays = {at for at in reached if word.may_be_skipped or wanted[at : at + 1] == ["*"]}
        moves = {at + 1 for at in reached if at < len(wanted) and _has_text(word, wanted[at])}
        reached = behind_stars(stays | moves)
    return len(wanted) in reached


def _has_text(word: _Word, wanted: str) -> bool:
    return any(fnmatch.fnmatchcase(text, wanted) for text in word.texts)


@lru_cache(maxsize=4096)
def _parted(program: str, arguments: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[_Word, ...]]:
    """Take arguments apart into options, without values, and words. In a command, a `--` may be the value of an option, so what looks like an option behind it may be one.

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
            # Git may take it for a refspec: the branch that it writes is meant, too.
            branch = word.removeprefix("+").rpartition(":")[2].removeprefix("refs/heads/") if program == "git" else word
            texts = tuple(dict.fromkeys((word, branch)))
            words.append(_Word(texts=texts, option=last, is_operand=True, may_be_skipped=is_skipped))
            last = ""
        else:
            options += _names(word)
            value = word.partition("=")[2] if word.startswith("--") else word[2:]
            texts = (*((value,) if value else ()), *((word,) if is_over else ()))
            words.append(_Word(texts=texts, option=word, may_be_skipped=True))
            last = "" if "=" in word or word == "--no-pager" else word
    return tuple(options + (_of_git(options, words) if program == "git" else [])), tuple(words)


def _names(option: str) -> list[str]:
    """Return the options that one word holds, without a value."""
    if option.startswith("--"):
        return [option.partition("=")[0]]
    return [f"-{letter}" for letter in option[1:]]


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
_SET = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_UP = re.compile(r"(?<![^/=:,@])\.\.(?![^/=:,@])")


class CommandPattern(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern on commands, word by word, or a whole line as it is written."""

    text: str
    """As the person wrote it."""
    words: tuple[str, ...]
    """The words that a command must begin with. `*` within a word stands for any text of that word, but in a rule that allows for no `..`."""
    is_prefix: bool
    """Whether further words may follow."""
    line: str = ""
    """The whole line that it means, and no other; empty for a pattern on commands."""
    settings: tuple[str, ...] = ()
    """The variables that may be set for the command: `CC=gcc`, or with any value `CC=*`."""

    @staticmethod
    def parse(text: str) -> "CommandPattern":
        """Read a pattern: `git status`, `git log:*`, `git log *`, `*`; or `= LINE` for one whole line.

        Raises:
            ConfigurationError: The pattern is empty, or is more than one simple command.
        """
        body = text.strip()
        if body.startswith("= "):
            return CommandPattern(text=text, words=(), is_prefix=False, line=body.removeprefix("= ").strip())
        if body == ":*":
            raise ConfigurationError("The command pattern ':*' names no program. Write `shell` for every line.")
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
        count = next((at for at, word in enumerate(words) if not _SET.match(word)), 0)
        if not words:
            return CommandPattern(text=text, words=(), is_prefix=is_prefix)
        one = without_starters(Invocation(words=words[count:], text=text, before=words[:count]))
        return CommandPattern(text=text, words=one.words, is_prefix=is_prefix, settings=one.settings)

    @property
    def never_allows(self) -> str:
        """Why a rule that allows can match no command, and the form that would; empty for one that can."""
        if self.line or not self.words:
            return ""
        name = program_name(self.words[0])
        if not self.is_prefix and runs_input(Invocation(words=self.words, text="")):
            return f"`{self.words[0]}` runs what it reads from its input. Name the file that it runs, as in `shell({self.words[0]} calc.py)`."
        is_wide = self.has_wildcards or (self.is_prefix and not (name == "xargs" and len(self.words) > 1))
        if name in WRAPPERS and is_wide:
            sign = ":*" if self.is_prefix else "*"
            return f"`{name}` may start any program: only a rule with all of its words allows it. Write the whole command, without `{sign}`."
        if not self.is_prefix:
            return "" if self.has_wildcards else _unmatched(self)
        needed = _needed(self.words)
        if needed:
            return f"it does not say what `{shlex.join(self.words)}` runs. Write {needed}"
        return "" if self.has_wildcards else _unmatched(self)

    @property
    def covers(self) -> str:  # noqa: PLR0911 - one answer for each kind of rule
        """Which commands it vouches for, in one sentence for a person."""
        if self.line:
            return f"only the line `{self.line}` in the root folder"
        words = shlex.join(self.words)
        where = " in the root folder" if self._is_bound(Invocation(words=self.words or ("*",), text="")) else ""
        if not self.is_prefix and self.has_wildcards:
            return f"the command `{words}`{where}, where `*`, `?` and `[` match any text within a word, but no `..`"
        if not self.is_prefix:
            return f"only the command `{words}`{where}"
        if not words:
            return "every command whose program and options are known to change files of this project at most"
        found = known(Invocation(words=self.words, text=""))
        name = program_name(self.words[0])
        if name == "curl":
            hosts = " ".join(word for word in self.words[1:] if not word.startswith("-"))
            more = turning_words(self.words)
            where = ", and to each host to which that redirects it" if "-L" in more else ""
            where += ", and writes files of this project" if "-o" in more else ""
            return f"`{name}` to {hosts}{where}: it may send any data of this project there"
        if name in INTERPRETERS | TARGETS or name in _FIRST_OF_RUNNERS:
            return f"`{words}`{where} with any arguments: it runs any code in this project"
        if name != "git" and (found.program is None or found.does == "acts"):
            return f"`{words}`{where} with any arguments, whatever it does with them, but no redirection to a file"
        options = "no option that writes elsewhere or starts a program"
        if name == "git" and (len(self.words) < 2 or self.words[1] in LOSING):
            options += ", or makes git delete or overwrite something"
        return f"`{words}` with any arguments, but {options}, and no redirection to a file"

    @property
    def has_wildcards(self) -> bool:
        """Whether one of its words stands for several."""
        return any(map(_WILD.search, self.words))

    def allows(self, one: Invocation, *, is_away: bool = False) -> bool:
        """Whether the pattern vouches for a command.

        One that names the whole command, or a program by its relative path, means the root folder: elsewhere the same words may run another
        program, or another project's script. One by prefix vouches for options that the table of programs knows, and of a program that runs
        code for the file, module, target or script that it names.

        Args:
            one: The command.
            is_away: Whether it may start in another folder than the root folder.
        """
        is_set = all(word in self.settings or _any_value(word) in self.settings for word in one.settings)
        return not self.line and is_set and self._names(one) and not (is_away and self._is_bound(one))

    def _names(self, one: Invocation) -> bool:
        words, wanted = plain_words(one.words), plain_words(self.words)
        if wanted and words[:1] != wanted[:1] and not _WILD.search(wanted[0]):
            return False
        if not self.is_prefix:
            is_plain = len(words) == len(wanted) and not runs_input(one) and not one.via
            return is_plain and (
                words == wanted
                or (not known(one).problem and _begins(words, wanted) and not _is_losing(one.words, wanted))
            )
        kind = kind_of(one)
        if one.via or kind is None or one.expanded:
            return False
        name = program_name(one.program)
        if name in TARGETS:
            return _begins(words[:1], wanted[:1]) and (len(wanted) == 1 or set(kind[1:]) <= set(wanted[1:]))
        if name == "curl":
            return wanted[:1] == (one.program,) and set(kind[1:]) <= set(wanted[1:])
        named = (
            (*kind, *words[_end_of(one, kind) :])
            if name in INTERPRETERS or name in _FIRST_OF_RUNNERS or name == "xargs"
            else words
        )
        is_bare = len(wanted) == 1 and name in INTERPRETERS | {"xargs"}
        is_same = turning_words(one.words) in ((), turning_words(self.words))
        return not is_bare and is_same and _begins(named, wanted) and not _is_losing(one.words, wanted)

    def _is_bound(self, one: Invocation) -> bool:
        """Whether the pattern means its command in the root folder only. A command that only reads is meant in every folder."""
        if self.is_prefix:
            return "/" in one.program and not one.program.startswith("/")
        return not changes_nothing(one)

    def forbids(self, one: Invocation) -> bool:
        """Whether the pattern finds a command, in any order and spelling of its options, and by any path of its program."""
        if not self.words:
            return not self.line
        if any(fnmatch.fnmatchcase(name, self.words[0]) for name in one.before):
            return True
        names = {one.program, program_name(one.program), one.program.rpartition("/")[2]}
        if not any(fnmatch.fnmatchcase(name, self.words[0]) for name in names):
            return False
        is_prefix = self.is_prefix or self.words[-1].endswith("*")
        return finds(self.words[1:], one, is_prefix=is_prefix)


# --- Kinds: the words that say what a command is, without what it is given this time. A rule on them silences its kind.

_FIRST_OF_RUNNERS = frozenset(name.partition(" ")[0] for name in RUNNERS)
_BEFORE_CODE = frozenset(
    "-u -B -O -OO -I -E -s -S -q -b -d -i -P -v -y --yes --no-install -W -X --silent --if-present -T -w".split()
)
"""Options before what an interpreter or a runner runs, which change nothing in what that is."""
_WITH_VALUE = frozenset("-W -X".split())
_FLAGS_OF_TARGETS = re.compile(
    r"-[skBinwj]+[0-9]*|-j|--(?:silent|keep-going|always-make|dry-run|jobs(?:=\d+)?|no-print-directory)|[0-9]+"
)
_SUBCOMMAND = re.compile(r"[a-z][a-z-]+")
"""What the first argument of an unknown program looks like, where it is a subcommand."""
_TAKES_NAMES = frozenset(
    "cat head tail wc grep egrep fgrep ls stat md5sum sha1sum sha256sum du basename dirname echo cut nl".split()
)
"""Programs that write nothing, whatever words `xargs` adds to theirs."""
_NOT_OFFERED = frozenset(
    {
        *"ssh scp sftp ftp lftp rsync http https xh xhs redis-cli mongosh mongo cqlsh clickhouse-client ansible ansible-playbook vault consul nomad twine dropdb mysqladmin".split(),
        *"nc ncat netcat nmap crontab at batch vagrant".split(),
        *(f"kubectl {one}" for one in "apply delete".split()),
        *(f"gh {one}" for one in "api auth secret".split()),
        *(f"{one} publish" for one in "npm cargo uv poetry".split()),
        *(f"terraform {one}" for one in "apply destroy".split()),
        "docker build",
        *(f"docker compose {one}" for one in "up build create".split()),
    }
)
"""Kinds whose next command may do anything to another machine, or to all of this one: only the exact words are offered."""


@lru_cache(maxsize=512)  # each rule asks about the same command
def kind_of(one: Invocation) -> tuple[str, ...] | None:  # noqa: PLR0911 - one answer for each kind of program
    """Return the words that name what kind of command one is, such as `git fetch` or `python -m pytest`; None where only its exact words do.

    Args:
        one: A command that the line itself starts.
    """
    words, found, name = plain_words(one.words), known(one), program_name(one.program)
    if one.patterns & frozenset(range(2)) and name in INTERPRETERS | TARGETS | _FIRST_OF_RUNNERS:
        return None
    if name == "xargs":
        return _of_xargs(one)
    if (
        found.problem or name in WRAPPERS or name == "wget"
    ):  # which writes a file, and goes wherever its host redirects it
        return None
    if name in TARGETS:
        return _of_targets(one)
    if name == "curl":
        return (one.program, *sorted(hosts_of(one)), *turning_words(one.words))
    if name in INTERPRETERS:
        return _of_code(one, 1)
    if name in _FIRST_OF_RUNNERS:
        runner = next((key for key in (f"{name} {' '.join(words[1:2])}", name) if key in RUNNERS), None)
        if runner is not None:
            return _of_code(one, len(runner.split()))
    depth = SUBCOMMANDS.get(name, 1 if found.program is None and _SUBCOMMAND.fullmatch(" ".join(words[1:2])) else 0)
    if any(word.startswith("-") for word in words[1 : 1 + depth]):
        return None
    return words[: 1 + depth]


def _of_code(one: Invocation, first: int) -> tuple[str, ...] | None:
    """Return the program, and the module, file, script or package that it runs; None where its words do not say."""
    at, words = first, one.words
    while at < len(words) and words[at] in _BEFORE_CODE:
        at += 1 + (words[at] in _WITH_VALUE)
    if at >= len(words) or at in one.patterns:
        return None
    named = words[at]
    if named == "-m" and program_name(one.program) in MODULE_RUNNERS and at + 1 < len(words):
        return (*words[:first], "-m", words[at + 1])
    if named.startswith("-"):
        return (*words[:first], named) if named == "--test" and words[0] in ("node", "nodejs") else None
    inner = program_name(named)
    if first > 1 or words[0] in RUNNERS:  # `uv run python -m pytest`
        started = Invocation(words=words[at:], text=one.text)
        if inner in WRAPPERS:
            return None
        if inner in INTERPRETERS | TARGETS | _FIRST_OF_RUNNERS:
            kind = kind_of(started)
            return None if kind is None else (*words[:first], *kind)
    return (*words[:first], named)


def _of_targets(one: Invocation) -> tuple[str, ...] | None:
    """Return a program with the targets that it carries out; None where an option or a setting may change what those are."""
    targets = [word for word in one.arguments if not _FLAGS_OF_TARGETS.fullmatch(word)]
    is_plain = not any(word.startswith("-") or "=" in word or "/" in word for word in targets)
    return (one.program, *targets) if is_plain else None


def _of_xargs(one: Invocation) -> tuple[str, ...] | None:
    """Return `xargs` with the program that it starts, where that only reads whatever it is given."""
    at = next((at for at, word in enumerate(one.words) if at and word not in ("-0", "-r", "-n1", "-t")), 0)
    started = Invocation(words=one.words[at:], text=one.text)
    is_reader = at > 0 and started.program in _TAKES_NAMES and changes_nothing(started)
    return (one.program, started.program) if is_reader else None


def _end_of(one: Invocation, kind: tuple[str, ...]) -> int:
    """Return where the words behind those of its kind begin."""
    if len(kind) == 1:
        return 1
    return next((at + 1 for at in range(1, len(one.words)) if one.words[at] == kind[-1]), len(one.words))


_EXAMPLES = {
    **dict.fromkeys(("sh", "bash", "zsh"), "scripts/x"), **dict.fromkeys(("deno", "bun"), "test"), **dict.fromkeys(("npx", "uvx", "bunx", "pnpx"), "tsc"),
    **dict.fromkeys(MODULE_RUNNERS, "-m pytest"), "curl": "example.com", **dict.fromkeys("uv poetry pipenv pdm hatch rye bundle".split(), "pytest"),
}  # fmt: skip


def _needed(words: tuple[str, ...]) -> str:
    """Return the form of a rule that would match, for words that do not say what a program runs; nothing where they do."""
    name, kept = program_name(words[0]), words[:1]
    is_open = len(words) == 1 and name in _EXAMPLES
    if name == "wget":
        return "the whole command, without `:*`: it follows redirections, and writes a file."
    if f"{name} {' '.join(words[1:2])}" in RUNNERS:
        is_open, kept = len(words) == len(("uv", "run")) and name in _EXAMPLES, words
    elif name in ("uv", "poetry", "pipenv", "pdm", "hatch", "rye", "bundle"):
        return ""
    elif name == "curl":
        is_open = len(words) == 1 or words[1].startswith("-")
    elif name in INTERPRETERS and name not in ("deno", "bun"):
        is_open = _of_code(Invocation(words=words, text=""), 1) is None
    example = f"`shell({shlex.join(kept)} {_EXAMPLES.get(name, 'calc.py')}:*)`"
    whole = "; or the whole command, without `:*`" if name in INTERPRETERS else ""
    return f"what it runs or reaches: {example}{whole}." if is_open else ""


def _unmatched(rule: CommandPattern) -> str:
    """Return why a rule on commands without wildcards allows none, and the form that would; nothing where it allows one."""
    body = re.sub(r"=\*(?=\s)", "=x", rule.text.strip().removesuffix(":*").removesuffix(" *"))
    more = ("", " x", " status", " --list") if rule.is_prefix else ("",)
    lines = [(read(body + end), read(shlex.join(rule.words) + end)) for end in more]
    if all(written.doubts for written, _ in lines):
        return f"{lines[0][0].doubts[0].shown}. Write the whole line: `shell(= {body})`."
    probes = [line.invocations[-1] for written, line in lines if not written.doubts]
    if any(rule.allows(one) for one in probes):
        return ""
    one, kind = probes[0], kind_of(probes[0])
    if rule.is_prefix and kind is not None:
        return f"its kind has other words. Write `shell({shlex.join(kind)}:*)`."
    if len(one.words) < len(plain_words(rule.words)):
        return f"`git -C` is `cd` and `git`. Write `shell({shlex.join(one.words)})`."
    why = next((found for found in (known(one).problem for one in probes) if found), "its words do not say what runs.")
    return f"{why} Write the whole command, without `:*`."


def _is_losing(words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return not set(losing_words(words)).issubset(wanted)


def _begins(words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    given = words[: len(wanted)]
    return len(given) == len(wanted) and all(map(_fits, given, wanted))


def _fits(word: str, wanted: str) -> bool:
    """Whether a word of a command is one that a rule allows: `build/*` is what lies in that folder, and not `build/../src`."""
    return fnmatch.fnmatchcase(word, wanted) and len(_UP.findall(word)) <= len(_UP.findall(wanted))


def _problem(body: str) -> str | None:
    """Say what is wrong with the text of a pattern; None for a simple command. Signs of the shell in quotes are text."""
    if body and (why := unreadable(body)) is not None:
        return f"cannot be read. {why}"
    words = one_command(body)
    if words is None:
        return "is more than one simple command. Write one rule for each: the commands of a line are checked one by one. Put signs such as `>` in quotes if they are text."
    is_early = any(":*" in one for one in words)
    return "has `:*` before its end. It means any arguments, and must come last: `git log:*`." if is_early else None


def _mistake(text: str, words: tuple[str, ...]) -> str | None:
    """Say what is wrong with a pattern that no command matches; None for any other."""
    if words and all(map(_SET.match, words)):
        return "names no program: it sets a variable. Write the command too, as in `CC=gcc make:*`."
    if words and " " in words[0] and "/" not in words[0] and not _SET.match(words[0]):
        return f"names a program with a space. Write its words without quotes: `{words[0]}`."
    if text.endswith(": *") and words[-1] != ":":
        return f"has a space within `:*`. Write `{text.removesuffix(' *')}*`."
    return None


def suggested(line: Line) -> tuple[str, ...]:
    """Return the patterns that silence the kind of a line: one for each command that does more than read, else the line itself.

    Each is proven to match what it is made from. None is wider than what a person can read in it.
    """
    all_of_it = [one for one in line.invocations if not one.via]
    outer = [one for one in all_of_it if not changes_nothing(one)] or all_of_it
    is_fed = any(
        one.program == "xargs" and kind_of(one) is None for one in outer
    )  # its words do not say on which files
    if line.is_understood and outer and not is_fed and not any(one.writes for one in line.redirections):
        patterns = tuple(dict.fromkeys(map(_pattern, outer)))
        try:
            proven = [CommandPattern.parse(pattern) for pattern in patterns]
        except ConfigurationError:
            return exact(line)
        is_plain = not any(one.has_wildcards for one in proven)
        if is_plain and all(any(one.allows(command) and not one.never_allows for one in proven) for command in outer):
            return patterns
    return exact(line)


def exact(line: Line) -> tuple[str, ...]:
    """Return the pattern that means this very line; none for one that no rule can hold."""
    plain = line.source.strip()
    return (f"= {plain}",) if unreadable(plain) is None and len(plain) <= _MAX_EXACT else ()


_MAX_EXACT = 500
"""Characters of a line that is offered as a rule of its own."""


def _pattern(one: Invocation) -> str:
    """Return the pattern for one command: its kind, or its exact words where those alone say what it does."""
    kind = kind_of(one)
    is_wide = kind is not None and not {" ".join(kind[:count]) for count in (1, 2, 3)} & _NOT_OFFERED
    if (
        kind is None
        or not is_wide
        or losing_words(one.words)
        or turning_words(one.words) not in ((), kind[-1:])
        or (program_name(one.program) in TARGETS and len(kind) == 1)
    ):
        return shlex.join((*one.settings, *one.words))
    return f"{' '.join((*(_any_value(word) for word in one.settings), shlex.join(kind)))}:*"


def _any_value(setting: str) -> str:
    return f"{setting.partition('=')[0]}=*"
