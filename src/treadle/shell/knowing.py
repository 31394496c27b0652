"""Knowing: what the tables of programs say of one command, with its subcommand and its options. Judges nothing."""

from treadle.shell.describing import Program, reader
from treadle.shell.git import BEFORE_SUBCOMMAND, LISTING
from treadle.shell.hiding import is_printing
from treadle.shell.parsed import Invocation
from treadle.shell.programs import (
    AMBIGUOUS_OPTIONS,
    PROGRAMS,
    RUNNING_OPTIONS,
    SELF_DESCRIBING,
    SUBCOMMANDS,
)

__all__ = ["UNKNOWN", "has_option", "is_risky", "known", "operands", "options", "plain_words", "without_subcommand"]

UNKNOWN = Program()
_TEXTS = reader(operands="text")
_PRINTING = reader(operands="first_text", flags="-n -r -E -u -z -s")


def known(one: Invocation) -> tuple[str, Program]:
    """Return a command's name with its subcommand, and what is known of it. A program named by its path is not known."""
    if (plain := _as_reader(one)) is not None:
        return one.program, plain
    if one.program not in SUBCOMMANDS:
        return one.program, PROGRAMS.get(one.program, UNKNOWN)
    table, (subcommand, *rest) = SUBCOMMANDS[one.program], (*_behind(one), "")
    command = f"{one.program} {subcommand}".strip()
    if subcommand in LISTING and LISTING[subcommand].issuperset(rest[:-1]):
        return command, _TEXTS
    return command, table.get(f"{subcommand} {rest[0]}" if rest else "", table.get(subcommand, UNKNOWN))


def _as_reader(one: Invocation) -> Program | None:
    """Return what is known of one that starts or changes something with other words than these: `python --version`, `sed -n 1,9p f`."""
    if one.words in SELF_DESCRIBING or (one.program == "command" and one.words[1:2] in (("-v",), ("-V",))):
        return _TEXTS
    return _PRINTING if one.program in ("sed", "gsed") and is_printing(one.arguments) else None


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


def options(one: Invocation) -> list[str]:
    """Return the arguments that may be options. Those behind `--` are not, but some programs take them so: only GNU's rule counts."""
    risky = known(one)[1].risky
    found: list[str] = []
    for argument in one.arguments:
        if argument == "--":
            break
        if (argument.startswith(("-", "@", "+")) and argument != "-") or argument in risky:
            found.append(argument)
    return found


def is_risky(argument: str, program: Program) -> bool:
    """Whether an option writes a file, starts a program or reads settings."""
    name = argument.partition("=")[0]
    usually_runs = name in RUNNING_OPTIONS and name not in AMBIGUOUS_OPTIONS and program.operands != "text"
    if usually_runs or program is UNKNOWN:
        return usually_runs
    if argument.startswith(("@", "+")):
        return argument[0] in program.risky
    if program.style == "words":
        plain = name.lstrip("-")
        return name in program.risky or not program.risky.isdisjoint({f"-{plain}", f"-{plain.removeprefix('test.')}"})
    if program.style == "letters" and any(_letters(risky) == _letters(name) for risky in program.risky):
        return True
    if name.startswith("--"):
        return program.style == "gnu" and any(one.startswith(name) for one in program.risky if one.startswith("--"))
    letters = {risky[1] for risky in program.risky if len(risky) == len("-x")}
    return name in program.risky or bool(letters & set(argument[1:]))


def _letters(option: str) -> str:
    return option.partition(".")[0].replace("-", "").casefold()


def has_option(argument: str, wanted: frozenset[str]) -> bool:
    """Whether an argument is one of some options: a short one also among others, a long one also cut short."""
    name = argument.partition("=")[0]
    if name.startswith("--"):
        return any(one.startswith(name) for one in wanted)
    return argument in wanted or (
        argument.startswith("-") and any(len(one) == len("-x") and one[1] in argument[1:] for one in wanted)
    )


def operands(one: Invocation, program: Program) -> list[str]:
    """Return the arguments that are neither options nor surely their values."""
    before = ("", *one.arguments)
    found: list[str] = []
    for last, word in zip(before, one.arguments, strict=False):
        is_behind = bool(found) and program.max_operands is not None  # `xxd x -o` writes a file `-o`
        if is_behind or ((word == "-" or not word.startswith("-")) and last not in program.texts):
            found.append(word)
    return found
