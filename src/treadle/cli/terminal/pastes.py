"""Pastes: long texts that a person pastes, each shown as a note in its place and sent whole. Draws nothing."""

import re

__all__ = ["Pastes"]

_LONG_CHARS = 2_000
_LONG_LINES = 30


class Pastes:
    """What was pasted in one conversation, by its note.

    Example:
        >>> pastes = Pastes()
        >>> pastes.note("x" * 5000)
        '[pasted 5,000 characters]'
        >>> pastes.whole("Look: [pasted 5,000 characters]") == "Look: " + "x" * 5000
        True
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def note(self, text: str) -> str:
        """Return what stands for a paste in the input line: a short one is shown as it is."""
        if len(text) <= _LONG_CHARS and text.count("\n") < _LONG_LINES:
            return text
        known = next((note for note, one in self._texts.items() if one == text), None)
        if known is not None:
            return known
        note = says = f"[pasted {len(text):,} characters]"
        number = 1
        while note in self._texts:
            number += 1
            note = f"{says[:-1]}, number {number}]"
        self._texts[note] = text
        return note

    def whole(self, text: str) -> str:
        """Return a text with each paste in place of its note."""
        return self._replaced(text, self._texts)

    def shown(self, text: str) -> str:
        """Return a text with the note of each paste in its place."""
        return self._replaced(text, {one: note for note, one in self._texts.items()})

    def note_before(self, text: str) -> str:
        """Return the note with which a text ends; nothing where it ends otherwise."""
        return next((note for note in self._texts if text.endswith(note)), "")

    def _replaced(self, text: str, by: dict[str, str]) -> str:
        if not by:
            return text
        longest_first = sorted(by, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: by[found[0]], text)
