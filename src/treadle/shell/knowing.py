"""Knowing: what the tables of programs say of one command, with its subcommand and its options. Judges nothing."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from treadle.shell.describing import Program, cuts_short, reader
from treadle.shell.git import ABOUT_LISTS, ASKING_FOR_LISTS, BEFORE_SUBCOMMAND, LISTING
from treadle.shell.hiding import is_printing, is_selecting
from treadle.shell.parsed import Invocation
from treadle.shell.programs import (
    AMBIGUOUS_OPTIONS,
    PROGRAMS,
    RUNNING_OPTIONS,
    SELF_DESCRIBING,
    SUBCOMMANDS,
    TEXT_PROGRAMS,
)

__all__ = ["UNKNOWN", "Part", "is_risky", "known", "operands", "options", "parted", "plain_words", "without_subcommand"]

Kind = Literal["option", "doubtful", "value", "end", "operand", "open", "either"]
"""`option`: surely one. `doubtful`: an option, or the value of the one before. `value`: surely the value of the one before. `end`: a `--`.
`operand`: surely one. `open`: an operand, or the value of the option before. `either`: an option, or an operand."""
UNKNOWN = Program()
_RUNNING = RUNNING_OPTIONS - AMBIGUOUS_OPTIONS
_TEXTS = reader(operands="text")
_SELECTING = reader(operands="first_text", plain="-F")
_PRINTING = reader(operands="first_text", texts="-e", plain="-e", flags="-n -r -E -u -z -s")


class Part(NamedTuple):
    """One argument of a command."""

    word: str
    kind: Kind
    option: str = ""
    """The option whose value it surely is."""


def known(one: Invocation) -> tuple[str, Program]:
    """Return a command's name with its subcommand, and what is known of it. A program named by its path is not known."""
    if (plain := _as_reader(one)) is not None:
        return one.program, plain
    if one.program not in SUBCOMMANDS:
        return one.program, PROGRAMS.get(one.program, UNKNOWN)
    table, (subcommand, *rest) = SUBCOMMANDS[one.program], (*_behind(one), "")
    command = f"{one.program} {subcommand}".strip()
    if subcommand in LISTING and _lists(subcommand, rest[:-1]):
        return command, _TEXTS
    return command, table.get(f"{subcommand} {rest[0]}" if rest else "", table.get(subcommand, UNKNOWN))


def _lists(subcommand: str, words: Sequence[str]) -> bool:
    """Whether a subcommand that may change something only lists with these arguments."""
    asking = ASKING_FOR_LISTS.get(subcommand, frozenset())
    known = LISTING[subcommand] | asking
    may_name = not asking.isdisjoint(words)
    return all(
        word in known or (word.startswith(ABOUT_LISTS) and bool(asking)) or (may_name and word[:1] != "-")
        for word in words
    )


def _as_reader(one: Invocation) -> Program | None:
    """Return what is known of one that starts or changes something with other words than these: `python --version`, `sed -n 1,9p f`."""
    if one.words in SELF_DESCRIBING or (one.program == "command" and one.words[1:2] in (("-v",), ("-V",))):
        return _TEXTS
    if one.program in ("sed", "gsed"):
        return _PRINTING if is_printing(one.arguments) else None
    return _SELECTING if one.program in TEXT_PROGRAMS and is_selecting(one.arguments) else None


def _behind(one: Invocation) -> tuple[str, ...]:
    """Return the words of one with a subcommand from there on."""
    at = next((at for at, word in enumerate(one.arguments) if not word.startswith("-")), len(one.arguments))
    return one.arguments[at:]


def plain_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command without what changes nothing before a subcommand: `git --no-pager log` is `git log`."""
    if words[:1] == () or words[0] not in SUBCOMMANDS:
        return words
    at = next((at for at, word in enumerate(words) if at and word not in BEFORE_SUBCOMMAND), len(words))
    return (words[0], *words[at:])


def without_subcommand(one: Invocation) -> tuple[str, ...]:
    """Return the arguments of a command, without its subcommand and what may stand before that."""
    return plain_words(one.words)[2 if one.program in SUBCOMMANDS else 1 :]


@lru_cache(maxsize=256)  # its risks, its paths and what it reads are each asked about
def parted(arguments: tuple[str, ...], program: Program) -> tuple[Part, ...]:
    """Say of each argument what it may be to its program, which alone knows which of its options take the next word as their value.

    Only the tables make something sure. A `--` that may be such a value ends nothing, nor does one of a program whose options without a value
    are not known: `git stash list -- --output=x` writes a file.
    """
    can_end = program.reads_only and program.style == "gnu" and bool(program.flags)
    is_over = is_behind = False
    last, takes = "", ""
    found: list[Part] = []
    for word in arguments:
        if is_over:
            found.append(Part(word, "operand"))
        elif takes == "surely":
            takes = ""
            found.append(Part(word, "value", last))
        elif word == "--":
            is_over, is_behind, takes = can_end, True, ""
            found.append(Part(word, "end"))
        elif word.startswith("-") and word != "-":
            is_doubtful, last = takes == "perhaps", word
            takes = _takes_next(word, program)
            takes = "perhaps" if takes and (is_doubtful or is_behind) else takes
            can_end = can_end and takes != "perhaps"
            found.append(Part(word, "either" if is_behind else "doubtful" if is_doubtful else "option"))
        else:
            found.append(Part(word, "open" if takes else "operand"))
            takes = ""
    return tuple(found)


def _takes_next(option: str, program: Program) -> str:
    """Say whether an option takes the next word as its value: `surely`, `perhaps`, or not at all."""
    takes = option in program.texts or option in program.plain
    if option in program.flags or (option.startswith("--") and "=" in option):
        return ""
    if option.startswith("--") or program.style == "words" or len(option) == len("-x"):
        return "surely" if takes else "perhaps"
    first, is_joined = option[:2], program.max_operands is None or option[2].isdigit()  # `xxd -cols 8`
    if is_joined and (first in program.texts or first in program.plain):
        return ""  # its value is joined to it
    return "" if all(f"-{letter}" in program.flags for letter in option[1:]) else "perhaps"


def options(one: Invocation) -> list[str]:
    """Return the arguments that may be options: also those behind a `--`, unless they surely are operands there."""
    program = known(one)[1]
    found = [word for word in one.arguments if word.startswith(("-", "@", "+")) or word in program.risky]
    if "--" in found:
        parts = parted(one.arguments, program)
        found = [word for word, kind, _ in parts if word in found and (kind != "operand" or not word.startswith("-"))]
    return [word for word in found if word not in ("-", "--")]


def is_risky(argument: str, program: Program) -> bool:
    """Whether an option writes a file, starts a program or reads settings."""
    name = argument.partition("=")[0]
    usually_runs = name in _RUNNING and program.operands != "text"
    if usually_runs or program is UNKNOWN:
        return usually_runs or cuts_short(name, _RUNNING, but=AMBIGUOUS_OPTIONS)
    if argument.startswith(("@", "+")):
        return argument[0] in program.risky
    if program.style == "words":
        return _is_risky_word(name, program.risky)
    if program.style == "letters" and any(_letters(risky) == _letters(name) for risky in program.risky):
        return True
    if name.startswith("--"):
        return program.style == "gnu" and any(one.startswith(name) for one in program.risky if one.startswith("--"))
    letters = {risky[1] for risky in program.risky if len(risky) == len("-x")}
    return name in program.risky or bool(letters & set(argument[1:]))


def _is_risky_word(name: str, risky: frozenset[str]) -> bool:
    """Whether one of the options that count as whole words is risky. One with two dashes may be cut short."""
    plain = name.lstrip("-")
    if len(name) > len("--x") and any(one.startswith(name) for one in risky if one.startswith("--")):
        return True
    return name in risky or not risky.isdisjoint({f"-{plain}", f"-{plain.removeprefix('test.')}"})


def _letters(option: str) -> str:
    return option.partition(".")[0].replace("-", "").casefold()


def operands(one: Invocation, program: Program) -> list[str]:
    """Return the arguments that may be operands: all but options and what surely is the value of one."""
    found: list[str] = []
    for word, kind, _ in parted(one.arguments, program):
        is_behind = bool(found) and program.max_operands is not None  # `xxd x -o` writes a file `-o`
        if is_behind or kind in ("operand", "open", "either"):
            found.append(word)
    return found
