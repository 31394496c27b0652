"""Faces: what a conversation needs of the place where a person sees it and types. Knows no library of terminals."""

from typing import Protocol, TypeAlias

import msgspec

from treadle.cli.terminal.asking import Answer, Question
from treadle.cli.terminal.board import Board, CallView, Item
from treadle.cli.terminal.standing import Standing

__all__ = ["Cleared", "Ended", "Entry", "Face", "Interrupted", "ModeCycled", "Typed", "Unfolded"]


class Typed(msgspec.Struct, frozen=True):
    """A person has entered a text."""

    text: str


class Interrupted(msgspec.Struct, frozen=True):
    """A person wants what is under way to stop."""

    is_insistent: bool = False
    """Whether it was Ctrl+C, which ends the program when it is pressed twice."""


class Cleared(msgspec.Struct, frozen=True):
    """A person has cleared the line with Ctrl+C: another one soon after it ends the program."""


class ModeCycled(msgspec.Struct, frozen=True):
    """A person wants the next mode."""


class Unfolded(msgspec.Struct, frozen=True):
    """A person wants to see all of the last results."""


class Ended(msgspec.Struct, frozen=True):
    """A person wants to leave, or the terminal is gone."""

    code: int = 0


Entry: TypeAlias = Typed | Interrupted | Cleared | ModeCycled | Unfolded | Ended


class Face(Protocol):
    """Where a person sees a conversation."""

    standing: Standing
    """What the status line tells."""

    async def entry(self) -> Entry:
        """Wait for what the person does next."""
        ...

    def enter(self, entry: Entry) -> None:
        """Have something done as if the person had done it."""
        ...

    async def ask(self, question: Question) -> Answer | None:
        """Ask about a call; None where the person interrupts instead of answering."""
        ...

    def watch(self, board: Board | None) -> None:
        """Show what still changes on a board, until another one or None is given."""
        ...

    def show(self, item: Item) -> None:
        """Show what is whole."""
        ...

    def said(self, text: str) -> None:
        """Show what the person has said, once it counts."""
        ...

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        """Show lines of the program."""
        ...

    def quote(self, text: str) -> None:
        """Show a text of strangers: of a long one the beginning and the end."""
        ...

    def diff(self, text: str) -> None:
        """Show changes of files."""
        ...

    def unfold(self, calls: tuple[CallView, ...]) -> None:
        """Show the whole results of calls."""
        ...

    def prefill(self, text: str) -> None:
        """Put a text where the person types, before what stands there."""
        ...

    def rest(self) -> None:
        """Wait for what the person enters next: nothing is under way."""
        ...

    def refresh(self) -> None:
        """Show again what may have changed."""
        ...
