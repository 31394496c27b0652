"""Answers: what a dialect makes of a turn, and the refusal it makes of a bad request. Values only; sends nothing."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from treadle.mock.turns import Turn
from treadle.tools import JsonObject

__all__ = ["Answer", "Dialect", "HasHead", "Piece", "PieceKind", "Refusal"]

PieceKind: TypeAlias = Literal["start", "thinking", "text", "call", "error", "finish", "done", "whole"]


class Refusal(Exception):
    """The provider refuses a request as it is.

    Example:
        >>> Refusal("you must provide a model parameter", param="model").status
        400

    Args:
        message: The vendor's words.
        param: The place in the body.
        code: The vendor's code.
        status: The HTTP status.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer's body that is written at once: one event of a stream, or a body whole."""

    kind: PieceKind
    content: bytes
    call: int | None = None
    """Position of the call that it belongs to."""
    is_last: bool = False
    """Whether it is the last one of its call."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One response before any fault."""

    pieces: tuple[Piece, ...]
    content_type: str = "application/json"
    is_stream: bool = False


class Dialect(Protocol):
    """One vendor's wire format."""

    @property
    def path(self) -> str:
        """How the path of its requests ends."""
        ...

    def check(self, body: Any) -> JsonObject:
        """Return the body of a request that the vendor takes.

        Raises:
            Refusal: The vendor refuses it.
        """
        ...

    def answer(self, turn: Turn, body: JsonObject, *, number: int, ids: Iterator[str]) -> Answer:
        """Return the answer that says what the turn says. `ids` names calls without an id of their own."""
        ...

    def error(
        self, status: int, error: str | JsonObject, *, param: str | None = None, code: str | None = None
    ) -> bytes:
        """Return an error body: the message, or the object as it stands, in the vendor's envelope."""
        ...


@runtime_checkable
class HasHead(Protocol):
    """A dialect that says something outside of its bodies: the model in the path, its version in a header."""

    def with_head(self, path: str, headers: Mapping[str, str]) -> Dialect:
        """Return the dialect as it reads the body of a request with this head. Names of headers are in lower case.

        Raises:
            Refusal: The vendor refuses the head.
        """
        ...
