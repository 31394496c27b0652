"""Asking: the question whether a call may run, and the answers that a person can give to it. Draws nothing and records nothing."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import msgspec

from treadle import Approval
from treadle.cli.output.text import shown_name

__all__ = ["CHOICES", "Answer", "Choice", "Question", "asker_of"]

Scope: TypeAlias = Literal["once", "session", "always"]
Purpose: TypeAlias = Literal["message", "rule", "arguments", "reason"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has answered."""

    answer: Literal["allow", "deny"]
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """In place of the model's."""
    rules: tuple[str, ...] = ()
    """The rules that allow such calls from now on; empty for this one call."""
    scope: Scope = "once"


class Question(msgspec.Struct, kw_only=True):
    """A call that waits for a person."""

    approval: Approval
    rules: tuple[str, ...]
    """The rules that are suggested; empty where none fits."""
    destroys: bool = True
    """Whether it may destroy something: then the answer to a bare Enter is no."""
    number: int = 1
    total: int = 1
    covers: Callable[[tuple[str, ...]], Awaitable[str]]
    """Say what rules would cover. Raises ConfigurationError for one that is invalid."""


class Choice(msgspec.Struct, frozen=True):
    """One key of the question."""

    key: str
    says: str


CHOICES = (
    Choice("y", "yes, once"),
    Choice("a", "yes, and do not ask again in this session for {rules}"),
    Choice("p", "yes, and save a rule for this folder"),
    Choice("e", "edit the arguments first"),
    Choice("n", "no"),
    Choice("r", "no, with a reason"),
    Choice("v", "show the whole call"),
)
"""The keys, in the order in which they are shown."""


def asker_of(approval: Approval) -> str:
    """Return which agent below the run has made the call, such as ` of clerk`; empty for the run's own."""
    return f" of {' > '.join(map(shown_name, approval.path))}" if approval.path else ""
