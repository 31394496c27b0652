"""Arguments: tell when the JSON object of a call's arguments closes, while it still arrives in pieces. Parses no values."""

import re
from collections.abc import Hashable, Iterable

__all__ = ["ObjectEnd", "may_have_lost"]

_FLAT = re.compile(r'\s*\{[^"{}\\]*+(?:"[^"\\]*+"[^"{}\\]*+)*+\}\s*')
"""An object in one piece, with no object and no escape in it, as most arguments are: it is recognised at once."""
_OUTSIDE_TEXT = re.compile(r'["{}]')
_INSIDE_TEXT = re.compile(r'["\\]')


class ObjectEnd:
    """Follows braces and strings through the pieces of one JSON object. Each character is looked at once.

    Example:
        end = ObjectEnd()
        end.feed('{"a": "}')  # False: that brace is text
        end.feed('"}')  # True
    """

    __slots__ = ("_depth", "_is_escaped", "_is_in_text", "_is_started", "has_tail", "is_closed")

    def __init__(self) -> None:
        self.is_closed = False
        """Whether the first object is complete."""
        self.has_tail = False
        """Whether something other than blanks came after it: then it was not one object after all."""
        self._depth = 0
        self._is_in_text = False
        self._is_escaped = False
        self._is_started = False

    def feed(self, piece: str) -> bool:
        """Take the next piece. Return whether the object is complete and nothing follows it."""
        if not self._is_started:
            if _FLAT.fullmatch(piece):
                self._is_started = self.is_closed = True
                return True
            piece = piece.lstrip()
            if not piece:
                return False
            self._is_started = True
            # Whatever does not begin as an object never ends as one.
            self.has_tail = not piece.startswith("{")
        if not self.is_closed and not self.has_tail:
            piece = piece[self._scan(piece) :]
        if self.is_closed and piece and not piece.isspace():
            self.has_tail = True
        return self.is_closed and not self.has_tail

    def _scan(self, piece: str) -> int:
        """Follow the piece to where the object closes, or to the end; return that place."""
        at = 0
        if self._is_escaped:
            at, self._is_escaped = 1, False
        while found := (_INSIDE_TEXT if self._is_in_text else _OUTSIDE_TEXT).search(piece, at):
            at = found.end()
            match found[0]:
                case '"':
                    self._is_in_text = not self._is_in_text
                case "\\":
                    self._is_escaped = at == len(piece)
                    at += 1
                case "{":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth == 0:
                        self.is_closed = True
                        return at
        return len(piece)


def may_have_lost(calls: Iterable[tuple[Hashable, str, bool]]) -> bool:
    """Whether a call without arguments may have lost them to a later one, which has the same name and shares its identity.

    Args:
        calls: Of each call its identity, its name, and whether arguments came for it.
    """
    bare: set[tuple[Hashable, str]] = set()
    for identity, name, has_arguments in calls:
        if not has_arguments:
            bare.add((identity, name))
        elif (identity, name) in bare:
            return True
    return False
