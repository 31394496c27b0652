"""Transfer: a session as lines of JSON and back, whole. Opens no file and no journal.

The first line says what follows and how much of it, so that a file which was cut off is never taken for a whole one.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from treadle.errors import JournalError, NoSuchPoint, shown
from treadle.events import AnyEvent, ApprovalRequested, decode_event, encode_event
from treadle.ports import InboxMessage
from treadle.redaction import Redactor
from treadle.sessions.checkpoints import fold, renamed
from treadle.state import SessionState, inbox_message
from treadle.tools import JsonObject

__all__ = ["FORMAT", "Parcel", "pack", "pack_redacted", "unpack"]

FORMAT = 1
"""Version of the form of an export. Events have versions of their own."""


_SLICE_BYTES = 768 * 1024
"""Of a stored result that are encoded at once; a multiple of 3, as base64 wants it."""
_SLICE_CHARS = _SLICE_BYTES // 3 * 4
"""Of base64 that are decoded at once."""
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
        """Return it as another session's. Its idempotency keys will be others, so no call may be open.

        Raises:
            NoSuchPoint: A call is open.
        """
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
    base64: str


class _Packed(NamedTuple):
    """A stored result as our own exports write it, whose line was not decoded: that takes long for megabytes."""

    sha256: str
    base64: memoryview


_PACKED = re.compile(rb'\{"type":"export\.blob","sha256":"([0-9a-f]{64})","base64":"')


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
    yield from map(_blob_line, parcel.blobs, parcel.blobs.values())


def pack_redacted(parcel: Parcel, redactor: Redactor) -> Iterator[bytes]:
    """Return the lines of an export without secrets. Where there are none, they are those of `pack`."""
    blobs, renamed_blobs = _redacted_blobs(parcel, redactor)
    exact = list(_encoded_parcel(parcel))
    lines = [_redacted(line, redactor, renamed_blobs) for line in exact]
    is_changed = lines != exact or bool(renamed_blobs)
    yield msgspec.json.encode(msgspec.structs.replace(_header(parcel), redacted=is_changed, blobs=len(blobs)))
    yield from lines
    yield from map(_blob_line, blobs, blobs.values())


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


def _blob_line(digest: str, content: bytes) -> bytes:
    """Return the line of a stored result. It is made in slices: a thread that encodes megabytes at once holds up all others."""
    line = msgspec.json.encode(_Blob(sha256=digest, base64=""))
    starts = range(0, len(content), _SLICE_BYTES)
    slices = [base64.b64encode(content[start : start + _SLICE_BYTES]) for start in starts]
    return b"".join([line[:-2], *slices, line[-2:]])


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
            case _Blob() | _Packed() as blob:
                blobs[blob.sha256] = _content(number, blob)
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


def _read(number: int, line: bytes | str) -> _Line | _Packed | AnyEvent:
    if isinstance(line, bytes) and len(line) > _SLICE_BYTES and (begun := _PACKED.match(line)) and line.endswith(b'"}'):
        return _Packed(begun[1].decode(), memoryview(line)[begun.end() : -2])
    try:
        kind = _kinds.decode(line).type
        return _lines.decode(line) if kind.startswith("export.") else decode_event(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, JournalError) as exc:
        raise _wrong(number, str(exc)) from exc


def _content(number: int, blob: _Blob | _Packed) -> bytes:
    starts = range(0, len(blob.base64), _SLICE_CHARS)
    try:
        content = b"".join(
            [base64.b64decode(blob.base64[start : start + _SLICE_CHARS], validate=True) for start in starts]
        )
    except (binascii.Error, ValueError) as exc:
        raise _wrong(number, str(exc)) from exc
    if hashlib.sha256(content).hexdigest() != blob.sha256:
        raise _wrong(number, f"the bytes are not those of {blob.sha256:.80}")
    return content


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
