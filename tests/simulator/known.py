"""Violations that are known and being mended: patterns, each with the reason. An empty list is the aim; a new one is a bug."""

import re

__all__ = ["is_known"]

_KNOWN: tuple[tuple[str, str], ...] = (
    (r"had not started early", "an early start that could not be stored is named as discarded"),
)
_patterns = [re.compile(pattern) for pattern, _ in _KNOWN]


def is_known(sentence: str) -> bool:
    """Whether a violation is one that somebody is mending."""
    return any(pattern.search(sentence) for pattern in _patterns)
