"""Describing: the form in which the tables of programs say what is known of one. Knows no program."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

__all__ = ["GREP_FLAGS", "Program", "cuts_short", "has_option", "program", "reader", "searcher"]

GREP_FLAGS = """
    -i -n -l -c -w -v -s -F -E -G -P -x -o -r -R -H -h -z -a -q -L -U -b -I --recursive --dereference-recursive --ignore-case
    --line-number --files-with-matches --count --word-regexp --invert-match --fixed-strings --extended-regexp --perl-regexp
    --only-matching --with-filename --no-filename --text --quiet --no-messages
"""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """One program, or one subcommand of it."""

    reads_only: bool = False
    """Whether it changes nothing as long as none of its `risky` options is given."""
    risky: frozenset[str] = frozenset()
    """Options that write a file, start a program or read settings from one: `--output`, `-o`. A long one also counts by its beginnings.
    `@`: it takes more options from a file `@FILE`. One without a sign is a word that does so: `run`."""
    style: str = "gnu"
    """`gnu`: short options may be joined (`-xo`), long ones cut short. `words`: an option is one whole word (`-exec`). `letters`: as `gnu`, and
    of a long one only the letters count, up to a dot (`--outputFile.json` is `--output-file`)."""
    max_operands: int | None = None
    """Further operands are files that it writes (`uniq IN OUT`), and so is what looks like an option behind an operand; None for no such rule."""
    operands: str = "paths"
    """`paths`: each operand may be a path. `first_text`: the first is a pattern or script. `text`: none is a path."""
    texts: frozenset[str] = frozenset()
    """Options whose value is text and no path or operand: `-n`, `--format`."""
    plain: frozenset[str] = frozenset()
    """Options whose value is never a path, whatever stands in it: `cut -d /`. One with `=` takes it behind this sign only: `--format=`."""
    recursive: frozenset[str] | None = frozenset()
    """Options with which it goes through whole folders, and where no path is given through the one it is in; None if it always does."""
    revisions: bool = False
    """Whether an operand may be a revision, so that only what follows `--` or a colon surely is a path: `git diff main`."""
    flags: frozenset[str] = frozenset()
    """Of one that may go through folders: its options without a value. What follows another option may be its value, and no path."""
    folder: Literal["itself", "children", "tree"] = "tree"
    """What it reaches of a folder that it is given, where it does not go through all of it."""
    follows: frozenset[str] | None = None
    """Options with which it follows the links in folders that it goes through; None if it may always do so."""


# Any: the fields of a Program; `convert` checks them.
def program(risky: str = "", *, texts: str = "", flags: str = "", plain: str = "", **settings: Any) -> Program:
    """Describe a program that may change something."""
    words = {"risky": risky.split(), "texts": texts.split(), "flags": flags.split(), "plain": plain.split()}
    return msgspec.convert({**words, **settings}, Program)


def reader(risky: str = "", *, texts: str = "", **settings: Any) -> Program:
    """Describe a program that reads the files it is given, and of a folder nothing."""
    return program(risky, texts=texts, reads_only=True, **{"folder": "itself", **settings})


def searcher(risky: str = "", *, texts: str = "", follows: str = "", **settings: Any) -> Program:
    """Describe a program that goes through whole folders."""
    reached = {"recursive": None, "follows": follows.split(), **settings}
    return program(risky, texts=texts, reads_only=True, **reached)


def has_option(argument: str, wanted: Iterable[str]) -> bool:
    """Whether an argument is one of some options: a short one also among others, a long one also cut short."""
    name = argument.partition("=")[0]
    if name.startswith("--"):
        return name != "--" and any(one.startswith(name) for one in wanted)
    return argument in wanted or (
        argument.startswith("-") and any(len(one) == len("-x") and one[1] in argument[1:] for one in wanted)
    )


def cuts_short(name: str, options: Iterable[str], *, but: frozenset[str] = frozenset()) -> bool:
    """Whether a name is one of some options, cut short so that it is hardly another option: `--files0-fr`, `--exe`."""
    if len(name) <= len("--x") or not name.startswith("-") or name in but:
        return False
    return any(option.startswith(name) and ("-" in name[2:]) >= ("-" in option[2:]) for option in options)
