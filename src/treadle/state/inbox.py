"""Inbox messages: what people and other processes leave for a session. A tagged union of values; stored by a journal."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from treadle.budgets import epoch_seconds
from treadle.events import ToolSuspended
from treadle.fields import Documented, checked, explained
from treadle.state.calls import Approval, request_of
from treadle.state.session import SessionState
from treadle.tools import MODES, JsonObject, Mode

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
    "Suspended",
    "answer_id",
    "applies_to",
    "inbox_message",
    "input_id",
    "instant",
    "is_cancelled",
    "mode_after",
    "unreadable",
    "waiting_approvals",
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


# --- Waiting: what of a session waits for a person, by its events and by what lies in its inbox. Reads no store.


@explained
def answer_id(approval: Approval) -> str:
    """Return the id of the inbox message that answers a request: the first message of this id wins."""
    return f"answer:{approval.id}"


@explained
def waiting_approvals(state: SessionState, inbox: Iterable[InboxMessage]) -> tuple[Approval, ...]:
    """Return the requests for consent that nobody has answered. A session that was closed or cancelled has none."""
    messages = tuple(inbox)
    if state.status == "deleted" or state.moved_to or is_cancelled(state, messages):
        return ()
    answered = {message.id for message in messages if isinstance(message, LeftAnswer)}
    return tuple(one for one in state.pending_approvals() if answer_id(one) not in answered)


@explained
def is_cancelled(state: SessionState, inbox: Iterable[InboxMessage]) -> bool:
    """Whether the run that is under way or paused was cancelled, and has not ended yet."""
    run = state.run
    if run is None or run.status not in ("running", "paused"):
        return False
    return any(applies_to(message, run.id) for message in inbox)


@explained
def applies_to(message: InboxMessage, run_id: str) -> bool:
    """Whether a message cancels this run. One that names no run cancels whichever is under way."""
    return isinstance(message, LeftCancellation) and message.run_id in ("", run_id)


@explained
def mode_after(inbox: Iterable[InboxMessage], mode: Mode) -> Mode:
    """Return a session's mode once these messages are taken in. A mode that only a newer Treadle knows changes nothing."""
    known: dict[str, Mode] = {one: one for one in MODES}
    for message in inbox:
        if isinstance(message, LeftMode):
            mode = known.get(message.mode, mode)
    return mode


@explained
def instant(at: float) -> str:
    """Return a time, in seconds since 1970, as people read it: `2026-11-30 18:00:00 UTC`, or the number if no calendar has it."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"second {at!r}"


@explained
def unreadable(session_id: str, error: Exception) -> str:
    """Return one line on a session that a list had to leave out."""
    return f"Session {session_id!r} cannot be read and is left out: {error}"


# --- Suspension: how a started call says that it waits, and what its session records of that. Waits for nothing itself.


class Suspended(Exception):
    """Raised by a tool whose call waits for something outside. Its run pauses, and `resume` starts the call again.

    The call keeps its idempotency key. It was not lost with its process, so nobody has to ask what happened to it.

    Args:
        waits_for: What it waits for, in words for people.
        approvals: Requests for consent that it waits for, each of the session that asks.
        due_at: When it is worth starting the call again, in seconds since 1970, for whoever resumes what is due
            (`journal.due`); None where somebody has to do something first.
        form: JSON Schema of the input that it waits for, so that a page can show a form; None where any value may be given.
    """

    @checked
    def __init__(
        self,
        waits_for: str,
        *,
        approvals: Sequence[Approval] = (),
        due_at: float | None = None,
        form: JsonObject | None = None,
    ) -> None:
        super().__init__(waits_for)
        self.waits_for = waits_for
        self.approvals = tuple(approvals)
        self.due_at = due_at
        self.form = form

    def event(self, *, call_id: str, tool: str) -> ToolSuspended:
        """Return what the session of the call records."""
        return ToolSuspended(
            call_id=call_id,
            tool=tool,
            reason="approval_required" if self.approvals else "input_required",
            waits_for=self.waits_for,
            asks=tuple(map(request_of, self.approvals)),
            due_at=None if self.due_at is None else epoch_seconds(self.due_at),
            form=self.form,
        )
