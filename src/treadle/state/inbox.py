"""Inbox messages: what people and other processes leave for a session. A tagged union of values; stored by a journal."""

from typing import Any, Literal

import msgspec

from treadle.events import ToolSuspended
from treadle.fields import Documented, explained
from treadle.tools import JsonObject

__all__ = [
    "InboxMessage",
    "LeftAnswer",
    "LeftCancellation",
    "LeftCompaction",
    "LeftInput",
    "LeftMessage",
    "LeftMode",
    "LeftUnknown",
    "LeftWake",
    "inbox_message",
    "input_id",
]


class InboxMessage(msgspec.Struct, Documented, frozen=True, kw_only=True, tag_field="kind"):
    """Something that another process left for a session. Each kind is a class of its own."""

    id: str
    """Unique in the session: the first of two with one id wins."""

    @property
    def kind(self) -> str:
        """The word by which it is stored, such as `answer`."""
        return str(self.__struct_config__.tag)

    @property
    def body(self) -> JsonObject:
        """Its fields as they are stored, without `id` and without those that are None."""
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "id")
        return {name: value for name, value in fields if value is not None}


class LeftAnswer(InboxMessage, frozen=True, kw_only=True, tag="answer"):
    """A person's answer to a request for consent."""

    approval_id: str = ""
    """Id of the request for consent."""
    answer: Literal["allow", "deny"] = "deny"
    """`allow` or `deny`."""
    reason: str = ""
    """Why, in one sentence; empty without one."""
    approved_by: str = "person"
    """Who answered, such as a user's name."""
    at: float | None = None
    """When it was given, in seconds since 1970, by the store's clock where it has one."""
    arguments: JsonObject | None = None
    """Edited arguments; None for those that were asked about."""
    interrupt: bool = False
    """Whether the run is to stop, with a denial."""
    scope: Literal["call", "session", "rule"] = "call"
    """What an `allow` covers."""


class LeftMessage(InboxMessage, frozen=True, kw_only=True, tag="message"):
    """The message for the model."""

    text: str = ""
    """The text."""


class LeftCancellation(InboxMessage, frozen=True, kw_only=True, tag="cancel"):
    """The wish that a run ends."""

    run_id: str = ""
    """Empty for whichever run is under way."""
    by: str = ""
    """Who wants it; empty where that is not known."""


class LeftInput(InboxMessage, frozen=True, kw_only=True, tag="input"):
    """What a suspended call waits for. Its tool finds it in `ToolContext.inputs`."""

    call_id: str = ""
    """Id of the call that waits."""
    value: Any = None
    """Any JSON value."""
    by: str = "person"
    """Who did it, such as a user's name."""
    at: float | None = None
    """When it was given, in seconds since 1970, by the store's clock where it has one."""


class LeftMode(InboxMessage, frozen=True, kw_only=True, tag="mode"):
    """A change of the session's mode. A run that is under way takes it in at once, another one when it begins or continues."""

    mode: str = ""
    """One of `treadle.tools.MODES`. A message with another mode, of a newer Treadle, stays in the inbox."""
    by: str = "person"
    """Who did it, such as a user's name."""


class LeftCompaction(InboxMessage, frozen=True, kw_only=True, tag="compact"):
    """The wish that the model is shown something shorter. Done before its next request, in this run or the next one."""

    by: str = "person"
    """Who asks, such as a user's name."""


class LeftWake(InboxMessage, frozen=True, kw_only=True, tag="wake"):
    """Something has changed in the session: whoever resumes its paused run is to look at it again."""


class LeftUnknown(InboxMessage, frozen=True, kw_only=True, tag=""):
    """A message of a kind that a newer Treadle knows. It stays in the inbox."""

    stored_kind: str = ""
    """Its kind, as it is stored."""
    stored_body: JsonObject = {}
    """Its fields, as they are stored."""

    @property
    def kind(self) -> str:
        return self.stored_kind

    @property
    def body(self) -> JsonObject:
        return self.stored_body


_KINDS: dict[str, type[InboxMessage]] = {
    "answer": LeftAnswer,
    "message": LeftMessage,
    "cancel": LeftCancellation,
    "input": LeftInput,
    "mode": LeftMode,
    "compact": LeftCompaction,
    "wake": LeftWake,
}


@explained
def inbox_message(message_id: str, kind: str, body: JsonObject) -> InboxMessage:
    """Return a message as it was stored, by this or an older Treadle. A field that is missing or invalid has its default."""
    known = _KINDS.get(kind)
    if known is None:
        return LeftUnknown(id=message_id, stored_kind=kind, stored_body=body)
    try:
        return msgspec.convert({**body, "kind": kind, "id": message_id}, known)
    except msgspec.ValidationError:
        fields = [field for field in msgspec.structs.fields(known) if field.name != "id" and field.name in body]
        return known(id=message_id, **{one.name: body[one.name] for one in fields if _fits(body[one.name], one.type)})


@explained
def input_id(suspended: ToolSuspended) -> str:
    """Return the id of the inbox message that a suspension waits for: the first message of this id wins."""
    return f"input:{suspended.call_id}:{suspended.seq}"


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True
