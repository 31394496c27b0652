"""Losing: which words of a git command make it delete or overwrite what git keeps, or pass over checks. Judges no other program."""

import re

from treadle.shell.describing import has_option
from treadle.shell.git import LOSING
from treadle.shell.knowing import plain_words

__all__ = ["losing_words"]

_WITH_REFSPECS = frozenset({"fetch", "pull", "push"})
_WHOLE = frozenset({"clean", "restore", "update-ref"})
"""Subcommands that overwrite or delete with whatever words: a rule on all of git does not cover them."""
_WITH_VALUES = {"commit": "mFCct", "tag": "mFu", "stash": "m", "notes": "mFCc", "merge": "mF"}
"""Short options by subcommand whose value may follow in the same word: the letters after `-m` in `-mnew` are its value."""
_PATH = re.compile(r"[.:]|.*\.")
"""How a word begins, or what is in it, that may name files to `git checkout`: `./`, `:(top)`, `notes.txt`."""
_BRANCHING = ("-b", "-B", "--orphan", "--track", "-t", "--detach", "-d")


def losing_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command with which it takes something away: `--prune`, `--amend`, `+main`.

    Args:
        words: Those of a command, or of a rule on commands.
    """
    program, subcommand, *rest = (*plain_words(words), "", "")
    if program != "git" or subcommand not in LOSING:
        return ()
    behind = zip(
        ["", *rest], rest, strict=False
    )  # a `--` may be the value of the option before it, and ends nothing then
    end = next(
        (at for at, (before, word) in enumerate(behind) if word == "--" and not before.startswith("-")), len(rest)
    )
    letters = _WITH_VALUES.get(subcommand, "")
    found = [word for word in rest[:end] if word and has_option(_without_value(word, letters), LOSING[subcommand])]
    found += [word for word in rest[end : end + 1] if word in LOSING[subcommand]]
    if subcommand in _WITH_REFSPECS:
        found += [word for word in rest if word.startswith("+") or (word.startswith(":") and subcommand == "push")]
    if subcommand in _WHOLE:
        found += [subcommand, *(word for word in rest if set(word) == {"0"})]
    if subcommand == "checkout":
        found += _paths_in(rest[:end])
    return tuple(dict.fromkeys(found))


def _without_value(word: str, letters: str) -> str:
    """Return joined short options without the value of the last one."""
    if not word.startswith("-") or word.startswith("--"):
        return word
    return next((word[: at + 1] for at, letter in enumerate(word) if at and letter in letters), word)


def _paths_in(rest: list[str]) -> list[str]:
    """Return the words of `git checkout` that may name files, whose changes it overwrites."""
    operands = [word for word in rest if word and not word.startswith("-")]
    if len(operands) > 1 and not any(has_option(word, _BRANCHING) for word in rest):
        return operands[1:]
    return [word for word in operands[:1] if _PATH.match(word)]
