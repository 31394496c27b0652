"""Violations that are known and being mended: patterns, each with the reason. An empty list is the aim; a new one is a bug."""

import re

__all__ = ["is_known"]

_KNOWN: tuple[tuple[str, str], ...] = (
    (r"the checker says of \S+ a call has no result", "a message steered into a paused session enters before the results"),
    (r"leaves calls of the run before without a result", "early calls of a crash are left by a new task"),
    (r"run\.finished: leaves calls without a result", "an early call of a discarded response outlives its run"),
    (r"a read of \S+ starts after", "the same"),
    (r"session\.forked: shares calls without a result", "a fork at a salvaged early call"),
    (r"announced and never came|announced retry of the model never came", "a retry that the wall time cuts; the checker after a crash"),
    (r"was done \d+ times; models meant it", "one call told twice under one id"),
    (r"is told rejected without may_have_acted", "rejected after an earlier attempt that acted"),
    (r"had not started early", "an early start that could not be stored is named as discarded"),
)  # fmt: skip
_patterns = [re.compile(pattern) for pattern, _ in _KNOWN]


def is_known(sentence: str) -> bool:
    """Whether a violation is one that somebody is mending."""
    return any(pattern.search(sentence) for pattern in _patterns)
