"""Doubts: what is known of a call that may have acted and whose end nobody knows. Resolves none."""

import msgspec

from treadle.events import DoubtBelow, MessageAdded, ToolResolved, ToolStarted
from treadle.fields import Documented, explained
from treadle.messages import ToolCall, user_message
from treadle.tools import CheckedCall, Effect, JsonObject, business_key

__all__ = ["IN_DOUBT", "Doubt", "doubt_of", "is_equal", "resolution_id", "resolution_message"]

IN_DOUBT = "in doubt"
"""Rule of a request for consent to run a call again whose outcome is unknown."""

_SHOWN_CHARS = 50_000


class Doubt(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A call that has started, may have changed the world, and of which nobody knows how it ended."""

    call_id: str
    """Id of the call."""
    session_id: str
    """The session of the call."""
    tool: str
    """Name of the tool."""
    arguments: JsonObject
    """The arguments, as a JSON object."""
    effect: Effect
    """What the call does to the world."""
    key: str
    """The idempotency key that the tool was given: what its service may know the call by."""
    business_key: str = ""
    """What the tool's own `key` says that the call is about, as JSON."""
    digest: str = ""
    """Of tool and canonical arguments."""
    since: float = 0.0
    """When the call started, in seconds since 1970, by the clock of the machine that ran it."""
    is_told: bool = False
    """Whether the model has been told that the outcome is unknown."""
    resolution: str = ""
    """`unknown` where a person has said that nobody will find out: the doubt is listed no longer, and no call may repeat it unasked."""


def doubt_of(
    session_id: str, call: ToolCall, started: ToolStarted, *, decided: JsonObject | None, is_told: bool
) -> Doubt:
    """Return the doubt about a call that has started.

    Args:
        decided: The arguments that were decided on, where they differ from the model's.
        is_told: Whether the model has been told that the outcome is unknown.
    """
    return Doubt(
        call_id=call.id,
        session_id=session_id,
        tool=started.tool,
        arguments=_arguments_of(call) if decided is None else decided,
        effect=started.effect,
        key=started.key,
        business_key=started.business_key,
        digest=started.digest,
        since=started.at,
        is_told=is_told,
    )


@explained
def is_equal(doubt: Doubt | DoubtBelow, call: CheckedCall) -> bool:
    """Whether a call means what a call in doubt meant: the same tool and key, or the same arguments."""
    if doubt.tool != call.name:
        return False
    key = business_key(call.tool, call.arguments)
    return key is None or doubt.digest == call.digest or (key != "" and key == doubt.business_key)


def resolution_id(resolved: ToolResolved) -> str:
    """Return the id of the message that reports a resolution to the model: it is sent once."""
    return f"resolved:{resolved.call_id}:{resolved.seq}"


@explained
def resolution_message(resolved: ToolResolved) -> MessageAdded:
    """Return what the model reads about a call whose outcome was reported to it as unknown."""
    call = f"Call {resolved.call_id} of {resolved.tool}, whose outcome was unknown,"
    value = msgspec.json.encode(resolved.value).decode()
    shown = value if len(value) <= _SHOWN_CHARS else f"{value[:_SHOWN_CHARS]}..."
    texts = {
        "done": f"{call} was carried out: a person has checked it. Its result: {shown} Do not issue it again.",
        "not_done": f"{call} was not carried out: a person has checked it. Issue it again if it is still needed.",
        "unknown": f"{call} was looked into by a person and stays unknown. Do not issue it again unless you are asked to.",
    }
    return MessageAdded(
        message=user_message(texts[resolved.outcome]), source="runtime", message_id=resolution_id(resolved)
    )


def _arguments_of(call: ToolCall) -> JsonObject:
    try:
        found = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}
