"""Outputs: what a tool's functions return: a result with several parts, a call without a value, the answer of a check."""

from collections.abc import Awaitable
from typing import Any

import msgspec

from treadle.errors import ToolError
from treadle.fields import Documented
from treadle.messages import Media
from treadle.tools.contexts import JsonObject
from treadle.tools.effects import CallStatus

__all__ = ["Done", "NotDone", "ServiceLost", "ServiceSilent", "ToolOutput", "Unfinished", "Unknown", "answer_of_check"]


class Done(msgspec.Struct, Documented, frozen=True):
    """Answer of a tool's `check`: the call was done, with this result. `Done()` has no value.

    Example:
        async def was_paid(arguments, ctx):
            return Done({"receipt": 7})
    """

    value: Any = None
    """What the tool would have returned: checked against its output contract."""


class NotDone:
    """Answer of a tool's `check`: the call certainly did not happen."""


class Unknown:
    """Answer of a tool's `check`: it cannot be determined."""


def answer_of_check(value: object) -> "type[NotDone | Unknown] | Done | None":
    """Return the answer of a tool's `check`; None if its value is not an answer, such as None, False or an empty list.

    A plain value that is neither empty nor false means `Done(value)`.
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


class ServiceLost(ToolError, ConnectionError):
    """Raised by Treadle's own tools where a connection was lost: the call may have been carried out."""


class ServiceSilent(ToolError, TimeoutError):
    """Raised by Treadle's own tools where no answer has come: the call may have been carried out."""


class Unfinished(Exception):
    """Raised by a tool whose call ended without a value, and that knows what happened to it, such as an agent that is a tool.

    Args:
        message: One sentence for the model.
        body: Details: any JSON value.
        code: A more precise code than the status.
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
    """A result with several parts: a value for the model, media, a text for people, facts."""

    data: Any = None
    """The value: checked against the output contract and shown to the model as JSON."""
    media: tuple[Media, ...] = ()
    """Images and files for the model."""
    display: str | None = None
    """What a person sees instead of the data."""
    artifact: bytes | None = None
    """The whole, if the data is only a part of it, such as the complete output of a command. It is kept in the journal, and the
    result's `artifact` names it."""
    facts: JsonObject | None = None
    """Facts to store in the session, by name, such as {"read": {"a.py": "sha256..."}}: a JSON merge patch.

    Objects are merged into the existing facts, and None removes one. Tools read them as `ctx.facts`; the model does not see them."""
