"""Chat Completions, inward: `reasoning_details`, in which gateways carry the signed reasoning of the models behind them."""

from typing import Any

from treadle.concurrency.pieces import Pieces
from treadle.tools import JsonObject

__all__ = ["ReasoningDetails"]

_WORDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""The kinds that a stream cuts into pieces, and the field that is cut. Sealed ones come whole."""


class ReasoningDetails:
    """The details of one response, those of a stream joined again: a signature fits the whole text only."""

    def __init__(self) -> None:
        self._details: list[JsonObject] = []
        self._pieces = Pieces()

    def add(self, pieces: Any, *, is_whole: bool) -> None:
        """Take the details of one delta, or of a whole message. Anything else is ignored."""
        for piece in pieces if isinstance(pieces, list) else ():
            if not isinstance(piece, dict):
                continue
            if is_whole or not self._goes_on_with(piece):
                self._close()
                self._details.append(dict(piece))
            else:
                self._details[-1] |= {name: value for name, value in piece.items() if value is not None}
            if isinstance(said := piece.get(_WORDS.get(str(piece.get("type")), "")), str):
                self._pieces.add(said)

    def whole(self) -> list[JsonObject]:
        self._close()
        return self._details

    def _goes_on_with(self, piece: JsonObject) -> bool:
        """Whether the piece is of the last detail. A signed one is complete.

        The index alone does not tell: there are servers that stream every detail with 0.
        """
        last = self._details[-1] if self._details else {}
        is_alike = all(last.get(name) == piece.get(name) for name in ("type", "index"))
        return is_alike and piece.get("type") in _WORDS and not last.get("signature")

    def _close(self) -> None:
        """Give the last detail its whole text."""
        if self._pieces:
            last = self._details[-1]
            last[_WORDS[last["type"]]] = "".join(self._pieces)
            self._pieces.clear()
