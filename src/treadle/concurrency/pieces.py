"""Pieces: a text that arrives in very many pieces. Knows no stream."""

__all__ = ["Pieces"]

_MANY = 16_384
"""Pieces that are kept apart: to join and to free a million at once holds up all threads."""


class Pieces(list[str]):
    """The pieces of one text, in order. Join them as those of any list."""

    __slots__ = ()

    def add(self, piece: str) -> None:
        """Add a piece."""
        self.append(piece)
        if len(self) > _MANY:
            self[:] = ["".join(self)]
