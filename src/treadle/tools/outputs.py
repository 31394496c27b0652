"""Outputs: what a tool's own functions hand back: a value with more than one face, a call without one, what its check answers."""

from collections.abc import Awaitable
from typing import Any

import msgspec

from treadle.fields import Documented
from treadle.messages import Media
from treadle.tools.contexts import JsonObject
from treadle.tools.effects import CallStatus

__all__ = ["Done", "NotDone", "ToolOutput", "Unfinished", "Unknown", "answer_of_check"]


class Done(msgspec.Struct, Documented, frozen=True):
    """Answer of a tool's `check`: the call was done, with this result. `Done()` says it of a result of nothing.

    Example:
        async def was_paid(arguments, ctx):
            return Done({"receipt": 7})
    """

    value: Any = None
    """What the tool would have returned: checked against its output contract."""


class NotDone:
    """Answer of a tool's `check`: the call surely did not happen."""


class Unknown:
    """Answer of a tool's `check`: nobody can tell."""


def answer_of_check(value: object) -> "type[NotDone | Unknown] | Done | None":
    """Return what a tool's `check` says; None where its value is not an answer, such as None, False or an empty list.

    A plain value that is neither empty nor false stands for `Done(value)`.
    """
    try:
        return _answer(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - looking at a stranger's object may raise anything
        return None


def _answer(value: object) -> "type[NotDone | Unknown] | Done | None":
    if value is NotDone or isinstance(value, NotDone):
        return NotDone
    if value is Unknown or isinstance(value, Unknown):
        return Unknown
    if isinstance(value, Done):
        return value
    if value is Done:
        return Done()
    return None if _says_nothing(value) else Done(value)


def _says_nothing(value: object) -> bool:
    """Whether a value of `check` reads like a search that found nothing, or a `return` or `await` that was forgotten."""
    found = value.data if isinstance(value, ToolOutput) else value
    return not found or isinstance(found, Awaitable)


class Unfinished(Exception):
    """Raised by a tool whose call ended without a value and that knows what happened to it, as a run of its own does.

    Args:
        message: One sentence for the model.
        body: What it has to say of it: any JSON value.
        code: A finer word than the status.
        may_have_acted: Whether the world may have changed.
    """

    def __init__(
        self, status: CallStatus, message: str, *, body: Any = None, code: str | None = None, may_have_acted: bool
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.body = body
        self.code = code
        self.may_have_acted = may_have_acted


class ToolOutput(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A result with more than one face. Return it from a tool to set them apart."""

    data: Any = None
    """The value: checked against the output contract and shown to the model as JSON."""
    media: tuple[Media, ...] = ()
    """Images and files for the model."""
    display: str | None = None
    """What a person sees instead of the data."""
    artifact: bytes | None = None
    """The whole, where the data is only a part of it, such as all that a command has written. It is kept in the journal, and the
    result's `artifact` names it."""
    facts: JsonObject | None = None
    """What the session is to remember, by name, such as {"read": {"a.py": "sha256..."}}: a JSON merge patch.

    Objects are merged into the facts that there are, None removes one. `ctx.facts` reads them; the model does not see them."""
