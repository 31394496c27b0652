"""Maintenance: what people do to a session between its runs: mark, rewind, fork, change, delete, export. Runs no call and asks no model.

Each act but fork and export needs the session's lease; whoever calls holds it.
"""

import asyncio
import hashlib
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from treadle import canonical
from treadle.canonical import execution_id
from treadle.errors import (
    ConfigurationError,
    JournalError,
    NoRunYet,
    NoSuchPoint,
    RunCompleted,
    SessionConflict,
    SessionHeld,
    SessionMoved,
    SessionNotActive,
    UnknownSession,
    shown,
)
from treadle.events import (
    AnyEvent,
    ApprovalRequested,
    BudgetReached,
    ChildEnded,
    ChildStarted,
    DoubtBelow,
    MessageAdded,
    ModeChanged,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionForked,
    SessionMarked,
    SessionRewound,
    SessionStatus,
    TaskWithdrawn,
    ToolFinished,
    ToolInDoubt,
    ToolResolved,
    ToolStarted,
    decode_event,
    encode_event,
)
from treadle.events.codec import artifacts_of
from treadle.messages import ToolCall, user_message
from treadle.ports import InboxMessage, Journal, SessionFilter
from treadle.redaction import Redactor, redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.state import CallState, ChildState, Doubt, SessionState, add_up, inbox_message, mode_after
from treadle.stops import StopReason
from treadle.tools import DEFAULT_MODE, CallStatus, CheckedCall, Effect, JsonObject, Mode, ToolResult
from treadle.tools.results import failed_result, failure_class

__all__ = [
    "EffectRecord",
    "Parcel",
    "Rewind",
    "abandoned",
    "change",
    "check_active",
    "check_here",
    "check_no_task",
    "check_own",
    "check_resumable",
    "check_text",
    "check_there",
    "delete",
    "effects_after",
    "effects_of",
    "end_children",
    "ended",
    "find_point",
    "fold",
    "fork",
    "forked",
    "in_doubt",
    "mark",
    "may_have_acted",
    "move",
    "pack",
    "pack_redacted",
    "parcel_of",
    "pass_on",
    "renamed",
    "rewind",
    "settle",
    "suspended_result",
    "take_in",
    "unknown_outcome",
    "unpack",
    "unstarted",
    "withdraw",
]


# --- History: the points of a session that one can go back to or fork from, and what lies behind them. Reads events;
# records none.

_EVENTS_A_TURN = 200

_UNTOUCHED = frozenset({CallStatus.REJECTED, CallStatus.CANCELLED, CallStatus.SKIPPED})
"""What happened to a call that surely changed nothing."""


class EffectRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A call that may have changed the world."""

    call_id: str
    tool: str
    effect: Effect
    status: str
    """Of its result; `outcome_unknown` where there is none."""


class Rewind(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a rewind. It hides messages from the model, and undoes nothing."""

    session_id: str
    to: int
    """The last event whose messages the model still sees."""
    mark: str | None
    messages: int
    """Messages that the model still sees."""
    dropped: int
    """Messages that it no longer sees; the journal keeps them."""
    effects: tuple[EffectRecord, ...]
    """Calls after that point that may have changed the world: none of them is undone."""

    @property
    def message(self) -> str:
        """One sentence for a person."""
        gone = f"Rewound to event {self.to}: {self.dropped} messages are hidden from the model and stay in the journal."
        if not self.effects:
            return f"{gone} Nothing that a call changed after that point is left."
        calls = ", ".join(f"{one.tool} ({one.call_id}, {one.status})" for one in self.effects)
        return f"{gone} Effects are not undone: {calls}."


def fold(session_id: str, events: Iterable[AnyEvent]) -> SessionState:
    """Add up a session's events. Raises JournalError: they contradict each other."""
    return add_up(SessionState(session_id), events)


async def take_in(state: SessionState, events: Sequence[AnyEvent]) -> SessionState:
    """Add events to a state, with turns for others between them: a session may have a hundred thousand."""
    for start in range(0, len(events), _EVENTS_A_TURN):
        if start:
            await asyncio.sleep(0)
        part = events[start : start + _EVENTS_A_TURN]
        add_up(state, (event for event in part if event.seq > state.head))  # others may have taken some in meanwhile
    return state


def find_point(
    session_id: str,
    events: Sequence[AnyEvent],
    at: int | str | None = None,
    *,
    step: int | None = None,
    message: int | None = None,
) -> int:
    """Return the number of the last event of a point: given by its event or mark, or after a step or a message; else the end.

    Raises:
        NoSuchPoint: There is no such point, or a call is open at it.
    """
    if sum(given is not None for given in (at, step, message)) > 1:
        raise NoSuchPoint("Name one point: an event or mark, a step, or a message.")
    _check_kinds(at, step=step, message=message)
    state, points = SessionState(session_id), []
    for event in events:
        add_up(state, (event,))
        points.append(_Point(event, state))
    match at, step, message:
        case (str(name), _, _):
            seq = _marked(state, name)
        case (int(number), _, _):
            seq = _numbered(points, number)
        case (_, int(), _) | (_, _, int()):
            seq = _first(points, state, step=step, message=message)
        case _:
            seq = len(points)
    if seq and not points[seq - 1].is_whole:
        raise _open_call(session_id, seq, points)
    return seq


def _check_kinds(at: object, *, step: object, message: object) -> None:
    """Refuse what names no point: taken for nothing, it would mean the end."""
    if at is not None and (isinstance(at, bool) or not isinstance(at, int | str)):
        raise NoSuchPoint(f"A point is a mark or the number of an event; got {shown(at)}.")
    for word, value in (("step", step), ("message", message)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise NoSuchPoint(f"{word} is a whole number; got {shown(value)}.")


class _Point:
    """How things stood after one event."""

    __slots__ = ("event", "is_whole", "messages", "step")

    def __init__(self, event: AnyEvent, state: SessionState) -> None:
        self.event = event
        # The task's message enters in the same commit as `run.started`: between the two there is no point.
        self.is_whole = state.is_whole and not isinstance(event, RunStarted)
        self.messages = len(state.messages)
        self.step = state.step


def _marked(state: SessionState, name: str) -> int:
    if name not in state.marks:
        known = ", ".join(sorted(state.marks)) or "none"
        raise NoSuchPoint(f"Session {state.id!r} has no mark {shown(name)}. Marks: {known}.")
    return state.marks[name]


def _numbered(points: Sequence[_Point], number: int) -> int:
    if isinstance(number, bool) or not 0 <= number <= len(points):
        raise NoSuchPoint(
            f"There is no event {shown(number)}: the session's events have the numbers 1 to {len(points)}."
        )
    return number


def _first(points: Sequence[_Point], state: SessionState, *, step: int | None, message: int | None) -> int:
    """Return the first whole point after a step or a message, the end of its run included where that follows at once."""
    for seq, point in enumerate(points, start=1):
        is_there = point.step == step if message is None else point.messages == message
        if is_there and point.is_whole and state.is_visible(seq):
            while seq < len(points) and isinstance(points[seq].event, RunFinished | RunPaused | BudgetReached):
                seq += 1  # noqa: PLW2901 - the search ends here
            return seq
    what = f"whole step {shown(step)}" if message is None else f"point after message {shown(message)}"
    raise NoSuchPoint(f"Session {state.id!r} has no {what}.")


def _open_call(session_id: str, seq: int, points: Sequence[_Point]) -> NoSuchPoint:
    before = next((number for number in range(seq - 1, 0, -1) if points[number - 1].is_whole), 0)
    if isinstance(points[seq - 1].event, RunStarted):
        return NoSuchPoint(
            f"Event {seq} of session {session_id!r} begins a task, which enters the conversation with the next event. Name event {before} or {seq + 1}."
        )
    return NoSuchPoint(
        f"At event {seq} of session {session_id!r} a call has no result yet. A point must have the results of all calls before it. "
        f"The nearest such point is event {before}; or resume the run first."
    )


def effects_after(events: Iterable[AnyEvent], seq: int) -> tuple[EffectRecord, ...]:
    """Return the calls that started after this event and may have changed the world. What a person has found out counts."""
    started: dict[str, ToolStarted] = {}
    results: dict[str, ToolResult] = {}
    found_out: dict[str, str] = {}
    for event in events:
        if event.seq <= seq:
            continue
        match event:
            case ToolStarted(call_id=str(call_id)) if not event.effect.is_read:
                started[call_id] = event
                found_out.pop(call_id, None)  # it runs again: what was said was of the start before
            case ToolFinished(call_id=str(call_id)):
                results[call_id] = event.result
            case ToolResolved(call_id=str(call_id), outcome="done" | "not_done"):
                found_out[call_id] = event.outcome
            case _:
                pass
    return tuple(
        _effect(call_id, event, results.get(call_id), is_done=found_out.get(call_id) == "done")
        for call_id, event in started.items()
        if _may_have_acted(results.get(call_id)) and found_out.get(call_id) != "not_done"
    )


def _may_have_acted(result: ToolResult | None) -> bool:
    if result is None or result.may_have_acted:
        return True
    return result.attempts > 0 and result.status not in _UNTOUCHED


def _effect(call_id: str, started: ToolStarted, result: ToolResult | None, *, is_done: bool) -> EffectRecord:
    status = CallStatus.OK if is_done else CallStatus.OUTCOME_UNKNOWN if result is None else result.status
    return EffectRecord(call_id=call_id, tool=started.tool, effect=started.effect, status=status.value)


def renamed(events: Iterable[AnyEvent], session_id: str) -> list[AnyEvent]:
    """Return the events as another session's."""
    return [msgspec.structs.replace(event, session_id=session_id) for event in events]


def forked(events: Sequence[AnyEvent], session_id: str, *, parent_id: str, at: float) -> list[AnyEvent]:
    """Return copies of the events for a new session, with the link to the one they come from."""
    seq = len(events)
    link = SessionForked(session_id=session_id, seq=seq + 1, at=at, parent_id=parent_id, parent_seq=seq)
    return [*renamed(events, session_id), link]


# --- Transfer: a session as lines of JSON and back, whole. Opens no file and no journal.

FORMAT = 1
"""Version of the form of an export. Events have versions of their own."""


_END_OF_TIME = 253_402_300_800.0
"""The year 10000: no calendar of ours shows a later time."""


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one session that another journal needs."""

    session_id: str
    events: tuple[AnyEvent, ...]
    inbox: tuple[InboxMessage, ...] = ()
    """Messages that nobody has consumed yet."""
    blobs: Mapping[str, bytes] = {}
    """Stored bytes that the events name, by their digest."""
    is_move: bool = False
    """Whether the session continues where these lines arrive, because its source was closed for that."""

    def state(self) -> SessionState:
        return fold(self.session_id, self.events)

    def named(self, session_id: str) -> "Parcel":
        """Return it as another session's. Its idempotency keys will be others, so no call may be open. Raises NoSuchPoint: A call is open."""
        if not self.state().is_whole:
            raise NoSuchPoint(
                f"Session {self.session_id!r} has a call without a result: under another id it could be done twice. "
                "Import it under its own id, or resume its run first."
            )
        return msgspec.structs.replace(self, session_id=session_id, events=tuple(renamed(self.events, session_id)))


class _Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="export.session"):
    format: int
    session_id: str
    events: int
    inbox: int = 0
    blobs: int = 0
    moved: bool = False
    redacted: bool = False
    """Whether secrets were taken out: then it can be read and imported, but no open call of it may run."""


class _Blob(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="export.blob"):
    sha256: str
    base64: bytes


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="export.message"):
    id: str
    kind: str
    body: JsonObject


_Line: TypeAlias = _Header | _Blob | _Message

_lines = msgspec.json.Decoder(_Line)


class _Kind(msgspec.Struct):
    type: str


_kinds = msgspec.json.Decoder(_Kind)


def _header(parcel: Parcel) -> _Header:
    return _Header(
        format=FORMAT,
        session_id=parcel.session_id,
        events=len(parcel.events),
        inbox=len(parcel.inbox),
        blobs=len(parcel.blobs),
        moved=parcel.is_move,
    )


def pack(parcel: Parcel) -> Iterator[bytes]:
    """Return the lines of an export, without line feeds. They are exact, secrets included."""
    yield msgspec.json.encode(_header(parcel))
    yield from _encoded_parcel(parcel)
    yield from _encoded_blobs(parcel.blobs)


def pack_redacted(parcel: Parcel, redactor: Redactor) -> Iterator[bytes]:
    """Return the lines of an export without secrets. Where there are none, they are those of `pack`."""
    blobs, renamed_blobs = _redacted_blobs(parcel, redactor)
    exact = list(_encoded_parcel(parcel))
    lines = [_redacted(line, redactor, renamed_blobs) for line in exact]
    is_changed = lines != exact or bool(renamed_blobs)
    yield msgspec.json.encode(msgspec.structs.replace(_header(parcel), redacted=is_changed, blobs=len(blobs)))
    yield from lines
    yield from _encoded_blobs(blobs)


def _redacted(line: bytes, redactor: Redactor, renamed_blobs: Mapping[str, str]) -> bytes:
    plain = msgspec.json.decode(line)
    hidden = redactor.value(plain)
    line = line if hidden == plain else msgspec.json.encode(hidden)
    for old, new in renamed_blobs.items():
        line = line.replace(old.encode(), new.encode())
    return line


def _redacted_blobs(parcel: Parcel, redactor: Redactor) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the stored texts without secrets, and the new digests of those that changed."""
    blobs: dict[str, bytes] = {}
    changed: dict[str, str] = {}
    for digest, content in parcel.blobs.items():
        text = content.decode("utf-8", "surrogateescape")
        hidden = b"".join([piece.encode("utf-8", "surrogateescape") for piece in redactor.pieces(text)])
        name = digest if hidden == content else hashlib.sha256(hidden).hexdigest()
        blobs[name] = hidden
        if name != digest:
            changed[digest] = name
    return blobs, changed


def _encoded_parcel(parcel: Parcel) -> Iterator[bytes]:
    for event in parcel.events:
        yield encode_event(event)
    for message in parcel.inbox:
        yield msgspec.json.encode(_Message(id=message.id, kind=message.kind, body=message.body))


def _encoded_blobs(blobs: Mapping[str, bytes]) -> Iterator[bytes]:
    for digest, content in blobs.items():
        yield msgspec.json.encode(_Blob(sha256=digest, base64=content))


def unpack(lines: Iterable[bytes | str]) -> Parcel:
    """Read an export back, and see that it is whole.

    Raises:
        JournalError: It is not an export, was cut off or changed, or a newer Treadle wrote it. The message names the line.
    """
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    number, first = next(numbered, (1, b""))
    header = _read(number, first)
    if not isinstance(header, _Header):
        raise _wrong(number, "it does not start like an exported session")
    if header.format > FORMAT:
        raise _wrong(number, f"a newer Treadle wrote it (form {header.format}; this one knows {FORMAT})")
    parcel = _collect(header, numbered)
    _check_whole(header, parcel)
    if header.redacted and (parcel.state().has_open_calls or parcel.state().early):
        raise JournalError(
            "The export is redacted and has a call without a result, which would run with other arguments. "
            "Export it again with --exact, or with export() in Python."
        )
    return parcel


def _collect(header: _Header, numbered: Iterable[tuple[int, bytes | str]]) -> Parcel:
    events: list[AnyEvent] = []
    inbox: dict[str, InboxMessage] = {}
    blobs: dict[str, bytes] = {}
    for number, line in numbered:
        match _read(number, line):
            case _Header():
                raise _wrong(number, "a second session starts; give each session its own file")
            case _Blob() as blob:
                if hashlib.sha256(blob.base64).hexdigest() != blob.sha256:
                    raise _wrong(number, f"the bytes are not those of {blob.sha256:.80}")
                blobs[blob.sha256] = blob.base64
            case _Message() as message:
                inbox[message.id] = inbox_message(message.id, message.kind, message.body)
            case event:
                _check_event(number, event, header.session_id, len(events) + 1)
                events.append(event)
    return Parcel(
        session_id=header.session_id,
        events=tuple(events),
        inbox=tuple(inbox.values()),
        blobs=blobs,
        is_move=header.moved,
    )


def _read(number: int, line: bytes | str) -> _Line | AnyEvent:
    try:
        kind = _kinds.decode(line).type
        return _lines.decode(line) if kind.startswith("export.") else decode_event(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, JournalError) as exc:
        raise _wrong(number, str(exc)) from exc


def _check_event(number: int, event: AnyEvent, session_id: str, seq: int) -> None:
    if event.is_live or event.seq != seq:
        raise _wrong(number, f"event {seq} is missing")
    if event.session_id not in ("", session_id):
        raise _wrong(number, f"the event belongs to session {shown(event.session_id)}")
    times = [event.at, event.expires_at] if isinstance(event, ApprovalRequested) else [event.at]
    for at in times:
        if not 0 <= at < _END_OF_TIME:
            raise _wrong(number, f"{at!r} is not a time in seconds since 1970")


def _check_whole(header: _Header, parcel: Parcel) -> None:
    for name, expected, found in (
        ("events", header.events, parcel.events),
        ("messages", header.inbox, parcel.inbox),
        ("stored results", header.blobs, parcel.blobs),
    ):
        count = len(found)
        if count != expected:
            raise JournalError(f"The export was cut off or changed: it has {count} of its {expected} {name}.")
    parcel.state()  # raises where its events contradict each other


def _wrong(number: int, what: str) -> JournalError:
    return JournalError(f"Line {number} of the export cannot be read: {what}. Nothing was imported.")


# --- Settling: end what a run has left open: calls that nobody will run any more, and the sessions that carried them
# out.

logger = redacted_logger(__name__)


async def settle(ledger: Ledger, left: Sequence[CallState]) -> None:
    """Answer calls that nobody will run any more, so that the history stays whole, and end what carried them out."""
    waiting = [state for state in left if state.result is None]
    doubts = [in_doubt(state) for state in waiting if state.suspended is None and may_have_acted(state)]
    if waiting:
        await ledger.record(*doubts, *(_finished(ledger, abandoned(state)) for state in waiting))
    await end_children(ledger)


def _finished(ledger: Ledger, result: ToolResult) -> ToolFinished:
    step = ledger.state.step
    result = msgspec.structs.replace(result, execution_id=execution_id(ledger.run_id, step, result.call_id))
    return ToolFinished(step=step, call_id=result.call_id, result=result, failure_class=failure_class(result))


async def end_children(ledger: Ledger, *, even_open: bool = False) -> None:
    """End the sessions that carry out calls of the run which have a result by now. Nothing of a child outlives its call.

    Args:
        even_open: Also those whose call has no result yet.
    """
    state = ledger.state
    for child in [] if state.run is None else list(state.run.children.values()):
        if not child.is_over and (even_open or not _is_open(state, child.call_id)):
            await _end(ledger, child)


def _is_open(state: SessionState, call_id: str) -> bool:
    call = state.open.get(call_id) or state.early.get(call_id)
    return call is not None and call.result is None


async def _end(ledger: Ledger, child: ChildState) -> None:
    try:
        lease = await ledger.journal.acquire(child.session_id, on_lost=pass_on, on_message=pass_on)
    except UnknownSession:  # this journal has only the parent: it was moved alone
        await ledger.record(_gone(child))
        return
    except SessionHeld:
        logger.warning("Session %s, which carries out a call of %s, is held", child.session_id, ledger.state.id)
        return
    try:
        state = fold(child.session_id, await ledger.journal.read(child.session_id))
        if state.caller is None or state.caller.parent_id != ledger.state.id:
            return  # the child of another session: this one is a copy
        if state.status != "deleted":
            await _end_run(ledger, state)
    finally:
        await lease.release()
    await ledger.record(_gone(child) if state.status == "deleted" else ended(child.call_id, state))


def _gone(child: ChildState) -> ChildEnded:
    """Return the end of a child that a person has deleted, or that this journal does not have."""
    return ChildEnded(call_id=child.call_id, child_id=child.session_id, status="gone", spent=child.spent)


async def _end_run(ledger: Ledger, state: SessionState) -> None:
    run = state.run
    if run is None or run.status not in ("running", "paused"):
        return
    own = Ledger(
        state=state, journal=ledger.journal, clock=ledger.clock, randomness=ledger.randomness, parent=ledger.run_id
    )
    await own.record(RunResumed())
    await settle(own, [*state.early.values(), *state.salvaged, *state.unanswered])
    reason = StopReason.CANCELLED
    finished = RunFinished(
        reason=reason.value,
        status=reason.status.value,
        completed=False,
        message="The call that this run carries out has ended.",
        text=run.text,
        profile=run.profile,
        wall_seconds=run.spent.wall_seconds,
    )
    await own.record(finished, durable=True)


def ended(call_id: str | None, child: SessionState) -> ChildEnded:
    """Return what the parent records of a child that has ended, or waits."""
    run = child.run
    if run is None:
        return ChildEnded(call_id=call_id, child_id=child.id, status="stopped", reason=StopReason.CANCELLED.value)
    return ChildEnded(
        call_id=call_id,
        child_id=child.id,
        status=run.status,
        reason=run.reason,
        spent=run.spent,
        in_doubt=tuple(map(_below, child.doubtful())),
    )


def _below(doubt: Doubt | DoubtBelow) -> DoubtBelow:
    return DoubtBelow(
        session_id=doubt.session_id,
        call_id=doubt.call_id,
        tool=doubt.tool,
        digest=doubt.digest,
        business_key=doubt.business_key,
    )


async def effects_of(journal: Journal, events: Sequence[AnyEvent]) -> list[EffectRecord]:
    """Return the calls among the events that may have changed the world, and those of the sessions that carried them out."""
    found = list(effects_after(events, 0))
    for child_id in dict.fromkeys(event.child_id for event in events if isinstance(event, ChildStarted)):
        found += await effects_of(journal, await journal.read(child_id))
    return found


def pass_on() -> None:
    """Notice a lost lease or a message, and continue: an append without the lease is refused, and messages wait."""


# --- what happens to a call that goes no further


def unknown_outcome(call: ToolCall | CheckedCall) -> ToolResult:
    """Return the result of a call that may have acted, and nobody knows."""
    message = f"{call.name} had started when the run was interrupted. Its outcome is unknown: it may have taken effect. Check before you repeat it."
    extra = {"outcome": "unknown"}
    result = failed_result(call, CallStatus.OUTCOME_UNKNOWN, message, extra=extra, may_have_acted=True)
    return msgspec.structs.replace(result, attempts=1)


def abandoned(state: CallState) -> ToolResult:
    """Return the result of a call that was left open: unknown where it may have acted, cancelled where it did not."""
    message = "Not executed: the run continued without this call."
    return unstarted(state, CallStatus.CANCELLED, message, "superseded")


def unstarted(
    state: CallState, status: CallStatus, message: str, code: str, *, details: Sequence[JsonObject] = ()
) -> ToolResult:
    """Return the result of a call that will not start (again)."""
    if state.suspended is not None:
        return suspended_result(state)
    if may_have_acted(state):
        return unknown_outcome(state.call)
    return failed_result(state.call, status, message, code=code, details=details)


def suspended_result(state: CallState) -> ToolResult:
    """Return the result of a call that waited for something when its run ended: it goes no further."""
    assert state.suspended is not None
    waited = state.suspended.waits_for or "something outside"
    message = f"{state.call.name} had begun and waited for {waited}; it was stopped there. What it had done by then is not undone."
    return failed_result(
        state.call, CallStatus.CANCELLED, message, code="suspended_call_ended", may_have_acted=may_have_acted(state)
    )


def may_have_acted(state: CallState) -> bool:
    """Whether a call has started, and is more than a read."""
    return state.started is not None and not state.started.effect.is_read


def in_doubt(state: CallState, *, asked: str | None = None, answer: str | None = None) -> ToolInDoubt:
    """Return the event of a call that had started and of which nobody knows how it ended."""
    key = state.started.key if state.started is not None else ""
    return ToolInDoubt(call_id=state.call.id, tool=state.call.name, key=key, asked=asked, answer=answer)


# --- Maintenance: what people do to a session between its runs: mark, rewind, fork, change, delete, export. Runs no
# call and asks no model.

_LONGEST_MARK = 100


def check_there(state: SessionState) -> None:
    """Raise SessionNotActive where the session has been deleted."""
    if state.status == "deleted":
        raise SessionNotActive(f"Session {state.id!r} has been deleted. Use another id: an id is never used again.")


def check_resumable(state: SessionState, journal: Journal) -> None:
    """Raise NoRunYet or RunCompleted unless a run was paused, stopped or broke off."""
    if state.run is None:
        raise NoRunYet(f"Session {state.id!r} has no run yet. To begin one: {_new_task(state, journal)}.")
    if state.run.status == "completed":
        raise RunCompleted(
            f"The last run of session {state.id!r} is completed. To give it a new task: {_new_task(state, journal)}."
        )


def _new_task(state: SessionState, journal: Journal) -> str:
    """Return the two ways to begin a run in the session, of which the command works from any folder."""
    command = f"treadle run --session {shlex.quote(state.id)} --journal {shlex.quote(journal.location)} TASK"
    return f"`{command}`, or agent.run(task, session=session)"


def check_no_task(state: SessionState, journal: Journal) -> None:
    """Raise SessionNotActive where a submitted task waits for a worker."""
    if state.submitted is not None:
        raise SessionNotActive(
            f"A submitted task waits for a worker in session {state.id!r}. Run a worker, `treadle worker`, or cancel the task first: "
            f"`treadle cancel {shlex.quote(state.id)} --journal {shlex.quote(journal.location)}`, or session.cancel()."
        )


def check_active(state: SessionState, journal: Journal) -> None:
    """Raise SessionNotActive unless a run may begin: people may have suspended, closed or deleted the session."""
    check_here(state, journal)
    if state.own_status != "active":
        activate = f" To activate it: {_activation(state, journal)}, or session.change(status='active')."
        hint = "" if state.status == "deleted" else activate
        raise SessionNotActive(f"Session {state.id!r} is {state.status}: no run may begin in it.{hint}")


def check_own(state: SessionState) -> None:
    """Raise SessionNotActive where the session carries out a call of another: it continues with that one, under its rules."""
    if state.caller is not None:
        raise SessionNotActive(
            f"Session {state.id!r} carries out a call of session {state.caller.parent_id!r}. "
            f"Resume session {state.root_id!r} instead, or fork this one."
        )


def _activation(state: SessionState, journal: Journal) -> str:
    """Return the command that takes a session up, as it works from any folder."""
    return f"`treadle sessions activate {shlex.quote(state.id)} --journal {shlex.quote(journal.location)}`"


def check_here(state: SessionState, journal: Journal) -> None:
    """Raise SessionMoved where the session continues elsewhere: what is left here would reach nobody."""
    if state.moved_to:
        raise SessionMoved(
            f"Session {state.id!r} was moved to {state.moved_to} and continues there. If it has not continued there, take it back: "
            f"{_activation(state, journal)}, or session.change(status='active', take_back=True)."
        )


async def move(ledger: Ledger, to: str, *, by: str, reason: str) -> Parcel:
    """Close the session permanently here, durably, and return everything of it for the place where it continues.

    A session that was moved there already is only packed again: whatever broke off in between can be repeated.
    """
    state = ledger.state
    check_there(state)
    if state.moved_to != to:
        check_here(state, ledger.journal)
    below = [] if state.run is None else [child for child in state.run.children.values() if not child.is_over]
    if below:
        raise NoSuchPoint(
            f"Session {state.id!r} has a call that session {below[0].session_id!r} is carrying out, and a move does not carry that session. "
            "End the call first: resume the run to its end, or cancel it and resume it once. Then move the session."
        )
    if not state.moved_to:
        await ledger.record(SessionChanged(status="suspended", moved_to=to, by=by, reason=reason), durable=True)
    return msgspec.structs.replace(await parcel_of(ledger), is_move=True)


def check_text(option: str, value: object) -> None:
    """Refuse what cannot be stored as a text. Raises ConfigurationError: it is not text, or holds half a surrogate pair."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{option} must be a string; got {shown(value)}.")
    if (fault := canonical.find_unencodable(value)) is not None:
        raise ConfigurationError(f"{option} cannot be stored: {fault}.")


async def mark(ledger: Ledger, name: str) -> int:
    """Give the session's end a name; return the number of its last event."""
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_MARK or not name.isprintable():
        raise ConfigurationError(
            f"The name of a mark must be 1 to {_LONGEST_MARK} printable characters; got {shown(name, 120)}."
        )
    state = ledger.state
    check_there(state)
    check_here(state, ledger.journal)
    if not state.is_whole:
        raise NoSuchPoint(
            f"Session {state.id!r} has a call without a result. Resume its run to the end (agent.resume(session), or `treadle resume {shlex.quote(state.id)}`), then mark it."
        )
    await ledger.record(SessionMarked(name=name), durable=True)
    return state.marks[name]


async def rewind(ledger: Ledger, to: int | str, *, tell_model: bool, undone: Collection[str]) -> Rewind:
    """Hide the messages after a point from the model."""
    state = ledger.state
    check_there(state)
    check_here(state, ledger.journal)
    check_no_task(state, ledger.journal)
    if to is None:
        raise NoSuchPoint("A point is a mark or the number of an event; got None.")
    events = await ledger.journal.read(state.id)
    seq = find_point(state.id, events, to)
    if not state.is_visible(seq):
        raise NoSuchPoint(
            f"Event {seq} of session {state.id!r} is on a branch that a rewind has discarded. Fork from it instead."
        )
    await settle(ledger, [*state.early.values(), *state.salvaged, *state.unanswered])
    later = effects_after(await ledger.journal.read(state.id, after=seq), seq)
    effects = tuple(one for one in later if one.call_id not in undone)
    before = len(state.messages)
    name = to if isinstance(to, str) else None
    rewound = SessionRewound(to=seq, mark=name, effects=tuple(f"{one.tool} ({one.call_id})" for one in effects))
    # One commit: the model must never continue without the message that says what stays done.
    notices = [_rewind_message(rewound)] if effects and tell_model else []
    await ledger.record(rewound, *notices, durable=True)
    kept = len(state.messages) - len(notices)
    return Rewind(session_id=state.id, to=seq, mark=name, messages=kept, dropped=before - kept, effects=effects)


def _rewind_message(rewound: SessionRewound) -> AnyEvent:
    message = (
        "The conversation was taken back to this point. These calls had been made since and were not undone: "
        f"{', '.join(rewound.effects)}. Do not repeat them without checking."
    )
    return MessageAdded(message=user_message(message), source="runtime")


async def fork(
    ledger: Ledger, session_id: str, *, at: int | str | None, step: int | None, message: int | None
) -> SessionState:
    """Make a session that shares the events up to a point, and return its state."""
    parent = ledger.state.id
    check_there(ledger.state)
    events = await ledger.journal.read(parent)
    seq = find_point(parent, events, at, step=step, message=message)
    copies = forked(events[:seq], session_id, parent_id=parent, at=ledger.clock.now())
    state = fold(session_id, copies)
    mode = await _mode_of(ledger, events)
    if mode != state.mode:  # the mode that a person has set since the fork's point holds for the fork too
        link = copies[-1]
        copies.append(
            ModeChanged(session_id=session_id, seq=link.seq + 1, at=link.at, mode=mode, before=state.mode, by="fork")
        )
        state = fold(session_id, copies)
    await ledger.journal.adopt(session_id, copies, state=state.run_status)
    return state


async def _mode_of(ledger: Ledger, events: Sequence[AnyEvent]) -> Mode:
    """Return the mode that a person has set last, even if no run has taken it in yet."""
    recorded = next((one.mode for one in reversed(events) if isinstance(one, ModeChanged)), DEFAULT_MODE)
    return mode_after(await ledger.journal.inbox(ledger.state.id), recorded)


async def change(
    ledger: Ledger,
    *,
    status: SessionStatus | None,
    metadata: JsonObject | None,
    reason: str,
    by: str,
    if_head: int | None,
    take_back: bool = False,
) -> None:
    """Change status or metadata, where the session is still where the caller saw it."""
    state = ledger.state
    check_there(state)
    if status not in (None, "deleted") and not take_back:
        check_here(state, ledger.journal)
    if if_head is not None and state.head != if_head:
        raise SessionConflict(
            f"Session {state.id!r} is at event {state.head}, not {shown(if_head)}: it has changed meanwhile. "
            "Nothing was written. Read the session again, then repeat the change."
        )
    check_text("reason", reason)
    check_text("by", by)
    if metadata is not None and (fault := canonical.find_unencodable(metadata)) is not None:
        raise ConfigurationError(f"The metadata cannot be stored: {fault}.")
    event = SessionChanged(status=status, metadata=metadata, reason=reason, by=by)
    await ledger.record(event, durable=True)


async def delete(ledger: Ledger, *, purge: bool) -> None:
    """Record that the session is deleted, and those that carried out its calls; with `purge`, remove all else of them."""
    await end_children(ledger, even_open=True)
    await _mark_deleted(ledger)
    await _delete_children(ledger, purge=purge)
    if purge:  # last: a crash before the parent's end leaves who names them
        ledger.state = await purged(ledger)


async def _mark_deleted(ledger: Ledger) -> None:
    if ledger.state.status != "deleted":
        await change(ledger, status="deleted", metadata=None, reason="", by="person", if_head=None)


async def _delete_children(ledger: Ledger, *, purge: bool) -> None:
    """Delete the sessions that carried out calls of this one, and theirs. Forks are sessions of their own."""
    for info in await ledger.journal.sessions(SessionFilter(parent_id=ledger.state.id)):
        if info.status == "deleted" and (info.head <= 1 or not purge):
            continue
        lease = await ledger.journal.acquire(info.id, on_lost=pass_on, on_message=pass_on)
        try:
            state = fold(info.id, await ledger.journal.read(info.id))
            if state.caller is not None and state.caller.parent_id == ledger.state.id:
                child = Ledger(state=state, journal=ledger.journal, clock=ledger.clock, randomness=ledger.randomness)
                await _mark_deleted(child)
                await _delete_children(child, purge=purge)
                if purge:
                    await purged(child)
        finally:
            await lease.release()


async def purged(ledger: Ledger) -> SessionState:
    """Remove everything that the journal keeps of a deleted session but the fact; return what is left."""
    state = ledger.state
    events = await ledger.journal.read(state.id)
    tombstone = SessionChanged(
        session_id=state.id, seq=1, at=ledger.clock.now(), status="deleted", reason="Its events were removed."
    )
    await ledger.journal.purge(state.id, tombstone, blobs=artifacts_of(events))
    return fold(state.id, [tombstone])


async def parcel_of(ledger: Ledger) -> Parcel:
    """Return everything that another journal needs of the session, as it is stored now."""
    journal, session_id = ledger.journal, ledger.state.id
    inbox = tuple(await journal.inbox(session_id))  # first: what is consumed meanwhile is then in the events too
    events = tuple(await journal.read(session_id))
    stored = [(digest, await journal.blob(digest)) for digest in artifacts_of(events)]
    blobs = {digest: content for digest, content in stored if content is not None}
    return Parcel(session_id=session_id, events=events, inbox=inbox, blobs=blobs)


async def withdraw(ledger: Ledger) -> bool:
    """Withdraw the task that waits for a worker. Return whether there was one."""
    if ledger.state.submitted is None:
        return False
    await ledger.record(TaskWithdrawn(), durable=True)
    return True
