"""Finding: whether the words of a rule that forbids are in a command, in any order and spelling of its options. Knows no rule."""

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from treadle.shell.git import BEFORE_SUBCOMMAND
from treadle.shell.parsed import Invocation
from treadle.shell.programs import program_name

__all__ = ["finds"]

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
        and _fits(word, wanted.texts[0])
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
        moves = {at + 1 for at in reached if at < len(wanted) and _fits(word, wanted[at])}
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


def _fits(word: _Word, wanted: str) -> bool:
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
