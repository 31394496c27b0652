"""Losing: which words of a git command make it delete or overwrite what git keeps, or pass over checks. Judges no other program."""

from treadle.shell.describing import has_option
from treadle.shell.git import LOSING
from treadle.shell.knowing import plain_words

__all__ = ["losing_words"]

_WITH_REFSPECS = frozenset({"fetch", "pull", "push"})


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
    found = [word for word in rest[:end] if word and has_option(word, LOSING[subcommand])]
    found += [word for word in rest[end : end + 1] if word in LOSING[subcommand]]
    if subcommand in _WITH_REFSPECS:
        found += [word for word in rest if word.startswith("+") or (word.startswith(":") and subcommand == "push")]
    return tuple(found)
