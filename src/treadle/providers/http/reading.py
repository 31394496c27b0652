"""Reading: one HTTP answer to the parts of one response, streamed or whole. Knows no dialect: that is the response's."""

import re
import struct
import zlib
from asyncio import CancelledError
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from treadle.errors import IncompleteStream, ModelError, ModelResponseInvalid, ModelUnavailable, shown
from treadle.messages import Finish, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextCalls, tell_counted
from treadle.providers.http.answer import Answer
from treadle.providers.http.failures import ModelRefused, event_failure, not_the_protocol, speaks_of_a_break
from treadle.providers.payload import ObjectEnd, ThinkingTags, ThoughtText, repaired_end, to_json
from treadle.redaction import redacted_logger

__all__ = [
    "AnswerError",
    "EventStreamReader",
    "Response",
    "SseReader",
    "StreamException",
    "exception_error",
    "read_response",
    "without_ending",
]


# --- Server-sent events: bytes in, the data of events out, however the bytes were cut. Knows no dialect and does no
# I/O.

_MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Bytes of one event: more than any honest event holds, less than hurts."""

MAX_BARREN_BYTES = 4 * 1024 * 1024
"""Bytes of one stream that carry no data, such as comments: a day of honest ones, sent to keep the connection."""

_MAX_LINES = 20_000
"""Lines of one event. Servers write one, or a few."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseReader:
    """Collects bytes and gives out the data of whole events, as it came: bytes that ought to be UTF-8.

    Example:
        reader = SseReader()
        reader.feed(b"data: 1\\n\\ndata: 2")  # [b"1"]
        reader.finish()  # b"2"
    """

    def __init__(self, *, max_event_bytes: int = _MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending = bytearray()
        self._is_at_start = True
        self._ended_with_cr = False
        self._barren_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete.

        Raises:
            ModelResponseInvalid: One event is larger than the limit, or the stream carries hardly anything but comments.
        """
        if self._ended_with_cr or b"\r" in chunk:
            chunk = self._with_line_feeds(chunk)
        pending = self._pending
        searched = max(len(pending) - 1, 0)
        pending += chunk
        if self._is_at_start and not self._skip_byte_order_mark():
            return []
        if (end := pending.find(b"\n\n", searched)) < 0:
            self._check_size(len(pending) - 1)
            return []
        rest: bytes | bytearray
        if pending.rfind(b"\n\n") == end:  # one event, and it may be large
            with memoryview(pending) as whole:
                blocks = [bytes(whole[:end])]
            rest = pending[end + 2 :]
        else:
            *blocks, rest = bytes(pending).split(b"\n\n")
        # The rest is shorter than this chunk, so all copying stays linear in what was read.
        self._pending = bytearray(rest)
        self._check_size(max(len(rest) - 1, *map(len, blocks)))
        found = [data for block in blocks if (data := _data(block)) is not None]
        if len(found) < len(blocks) or b"" in found:
            self._count_barren(sum(len(block) + 2 for block in blocks) - sum(len(data) + 8 for data in found if data))
        return found

    def _count_barren(self, size: int) -> None:
        self._barren_bytes += size
        if self._barren_bytes > MAX_BARREN_BYTES:
            raise ModelResponseInvalid(f"The server sent {self._barren_bytes} bytes of a stream without data in them.")

    def finish(self) -> bytes | None:
        """Return the data of the event that the end of the stream cut from its blank line, or None.

        The standard drops it. Servers do end with `data: [DONE]` and nothing after, so it is handed out, for the caller to accept
        only where its data is whole by itself: a JSON object is, since half of one is not valid JSON.
        """
        block = bytes(self._pending).removesuffix(b"\n")
        self._pending = bytearray()
        self._check_size(len(block))
        return _data(block)

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        """Turn CRLF and CR into LF. A CRLF that was cut in two was one line end, not two."""
        if self._ended_with_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._ended_with_cr = False
        if chunk:
            self._ended_with_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _skip_byte_order_mark(self) -> bool:
        """Drop a mark at the very start. Return False while too few bytes have come to tell."""
        pending = self._pending
        if pending.startswith(_BYTE_ORDER_MARK):
            del pending[: len(_BYTE_ORDER_MARK)]
        elif _BYTE_ORDER_MARK.startswith(pending):
            return False
        self._is_at_start = False
        return True

    def _check_size(self, size: int) -> None:
        if size > self._max_event_bytes:
            raise ModelResponseInvalid(f"The server sent one event of more than {self._max_event_bytes} bytes.")


def _data(block: bytes) -> bytes | None:
    """Return the data of one event, which is what is between two blank lines; None where it has none."""
    if not block:
        return None
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    if block.count(b"\n") > _MAX_LINES:
        raise ModelResponseInvalid(f"The server sent one event of more than {_MAX_LINES} lines.")
    fields = [line.partition(b":") for line in block.split(b"\n")]
    values = [value.removeprefix(b" ") for name, _, value in fields if name == b"data"]
    return b"\n".join(values) if values else _error(fields)


def _error(fields: Iterable[tuple[bytes, bytes, bytes]]) -> bytes | None:
    """Return the JSON object of a field `error`, as llama.cpp has sent it, in the form of an error that is data; else None."""
    errors = (value.strip() for name, _, value in fields if name == b"error")
    return next((b'{"error":%b}' % value for value in errors if value.startswith(b"{")), None)


# --- Reading: one HTTP answer to the parts of one response, streamed or whole. Knows no dialect: that is the
# response's.

logger = redacted_logger(__name__)

_LAST_WORDS_SECONDS = 5.0
"""How long to wait, after the terminal, where nothing but the end may follow: some servers send nothing and keep the connection."""

_MAX_WHOLE_BYTES = 8 * 1024 * 1024
"""Bytes of an answer that is one JSON object: it is decoded in one go."""
_MAX_CHARS = 4 * 1024 * 1024
"""Characters that a model may say in one response, its thinking included: several times what any model writes."""
_MAX_BLANKS = 1024 * 1024
"""Blank bytes before an answer: some servers send them to keep the connection."""

_MAX_NAME_CHARS = 100_000
"""Of the name and the id of one call: nobody writes such a name, and each record of the call repeats it."""
_MAX_ID_CHARS = 200
_MAX_CALLS = 1024
"""Calls that one response may propose."""

_STREAM_TYPES = frozenset({"text/event-stream", "application/vnd.amazon.eventstream"})
_BLANKS = b" \t\r\n"


class AnswerError(Exception):
    """The provider's own error, found inside an answer. Carries its JSON value."""

    def __init__(self, error: Any) -> None:
        super().__init__("the answer holds an error")
        self.error = error


class _Frames(Protocol):
    """How the events of a stream are distinguished in its bytes."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete. Raises `ModelResponseInvalid`."""
        ...

    def finish(self) -> bytes | None:
        """Return the data of an event that the end of the stream cut from its end, where that may be whole."""
        ...


class Response(Protocol):
    """What a dialect makes of one answer. It takes the data of each event, and gives the parts that it makes."""

    frames: Callable[[], _Frames] = SseReader
    """Makes what takes a stream apart."""
    terminal: str
    """What a whole stream has, for people: `a finish reason or [DONE]`."""
    is_whole: bool = False
    """Whether the terminal came, and no content after it."""
    may_go_on: bool = True
    """Whether content may follow the terminal: a server may report a finish in mid-stream, work for long and continue."""
    goes_on: bool = False
    """Whether content has followed the terminal: it may do so again, however late."""
    is_done: bool = False
    """Whether nothing follows any more."""
    is_cut_off: bool = False
    """Whether the server says that the response is not whole, whatever its word for the reason."""
    is_empty: bool = True
    """Whether nothing of this dialect came yet."""
    counted: Usage | None = None
    """What the server has counted so far; None where it has not."""
    thinking_tags: ThinkingTags = "both"
    """How reasoning that the server leaves in the text is told."""
    text_calls: TextCalls | None = None
    """What happens to calls that the server leaves in the text; None for the default."""
    id: str = ""
    """The provider's id of the response; empty until it is known."""
    model: str = ""
    """The model that answers, as the provider says; empty until it is known."""

    def add(self, data: bytes) -> list[ModelPart]:
        """Take one event of a stream.

        Raises:
            AnswerError: It is the provider's error.
            ModelResponseInvalid: It is not valid JSON, or of another shape.
        """
        ...

    def add_whole(self, body: bytes) -> list[ModelPart]:
        """Take an answer that is one JSON object. Raises as `add` does."""
        ...

    def end(self) -> ModelEnd:
        """Return the whole message."""
        ...


def without_ending(field: str) -> IncompleteStream:
    """Return the error for a whole answer in which nobody says anything, not even how it ended. One that says something has an end of
    its own: the body is complete JSON.

    Args:
        field: The field that would say it, as the dialect spells it.
    """
    return IncompleteStream(f"The answer is empty and has no {field}.")


async def read_response(  # noqa: C901 - one generator, because each one more would cost every part a pass through it
    ask: Callable[[], Awaitable[Answer]], response: Response
) -> AsyncGenerator[ModelPart]:
    """Ask once, and yield the parts of the one response, `ModelEnd` last. The answer is closed however it ends.

    What the vendor's policy forbids is a response too, of nothing but a refusal, whatever form the vendor gives that.

    Args:
        ask: Sends the request and returns the answer, which is a success.
        response: Takes the answer; used up afterwards.

    Raises:
        ModelError: What `ask` raises; or the answer is an error, breaks off, or belongs to another dialect.
    """
    try:
        answer = await ask()
    except ModelRefused as refused:
        yield refused.as_response()
        return
    thoughts = ThoughtText(response.thinking_tags)
    try:
        head = piece = await _beginning(answer)
        if _first_byte(head) in (b"{", b"[", b"<"):
            body = head + await answer.read_rest(max_bytes=_MAX_WHOLE_BYTES)
            await answer.give_turn(len(body))
            for part in thoughts.shown(_take_whole(body, answer, response)):
                _check_call(part, answer)
                yield part
        else:
            events, calls = response.frames(), 0
            while piece:
                found = events.feed(piece)
                await answer.give_turn(len(found[0]) if found else 0)  # the first may be longer than the piece
                for data in found:
                    said = response.add(data)  # most pieces of a call say nothing yet
                    for part in thoughts.shown(said) if said else ():
                        calls += _check_call(part, answer)
                        yield part
                _check_calls(calls, answer)
                piece = await _next(answer, response)
            for part in thoughts.shown(_take_last(events, response)):
                yield part
            if not response.is_whole:
                raise _incomplete(head, answer, response)
        await answer.give_turn()
        for part in _ended(response, thoughts, answer):
            yield part
    except (AnswerError, ModelError, CancelledError) as exc:
        yield _refusal(exc, answer, response)
    finally:
        answer.close()


async def _beginning(answer: Answer) -> bytes:
    """Read up to the first byte, by which a stream is distinguished from one JSON object (or a page).

    Not by the content type: servers answer either request in either form, and label it freely.
    """
    head = await answer.read()
    blanks = 0
    while not _first_byte(head) and (piece := await answer.read()):
        kept = head if _BYTE_ORDER_MARK.startswith(head) else b""
        blanks += len(head) - len(kept)
        head = kept + piece
        if blanks > _MAX_BLANKS:
            raise ModelResponseInvalid(f"{answer.endpoint.shown} answered with more than {_MAX_BLANKS} blank bytes.")
    return head


def _first_byte(head: bytes) -> bytes:
    """Return the first byte that is not a blank; nothing where it has not come yet."""
    if _BYTE_ORDER_MARK.startswith(head):
        return b""
    return head.removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANKS)[:1]


def _take_whole(body: bytes, answer: Answer, response: Response) -> list[ModelPart]:
    try:
        return response.add_whole(body.removeprefix(_BYTE_ORDER_MARK))
    except ModelResponseInvalid as exc:
        raise not_the_protocol(body, answer) from exc


def _ended(response: Response, thoughts: ThoughtText, answer: Answer) -> list[ModelPart]:
    """Return what ends a response: text that was held back, and the whole message."""
    end = response.end()
    _check_size(end, answer)
    end = msgspec.structs.replace(
        thoughts.ended(repaired_end(end)),
        text_calls=response.text_calls,
        response_id=response.id[:_MAX_ID_CHARS],
        response_model=response.model[:_MAX_ID_CHARS],
    )
    has_ended = response.is_done or (response.is_whole and not response.may_go_on)
    return [*thoughts.rest(), _ended_in_any_word(end, answer, is_certain=has_ended and not response.is_cut_off)]


def _check_size(end: ModelEnd, answer: Answer) -> None:
    calls = chars = 0
    for part in end.parts:
        if isinstance(part, ToolCall):
            calls += 1
            _check_name(part, answer)
        elif isinstance(part, Text | Thinking):
            chars += len(part.text)
    if end.has_strays and not calls:
        raise ModelResponseInvalid(f"{answer.endpoint.shown} sent a piece of a call that it did not begin.")
    _check_calls(calls, answer)
    if chars > _MAX_CHARS:
        raise ModelResponseInvalid(f"{answer.endpoint.shown} sent a response of more than {_MAX_CHARS} characters.")


def _check_calls(calls: int, answer: Answer) -> None:
    if calls > _MAX_CALLS:
        raise ModelResponseInvalid(
            f"{answer.endpoint.shown} sent a response of more than {_MAX_CALLS} calls. None of them was executed."
        )


def _check_call(part: ModelPart, answer: Answer) -> bool:
    """Return whether a part is a call."""
    if type(part) is not CallReady:
        return False
    _check_name(part.call, answer)
    return True


def _check_name(call: ToolCall, answer: Answer) -> None:
    if len(call.name) + len(call.id) > _MAX_NAME_CHARS:
        raise ModelResponseInvalid(
            f"{answer.endpoint.shown} sent a call whose name and id have more than {_MAX_NAME_CHARS} characters. "
            "It was not executed."
        )


def _ended_in_any_word(end: ModelEnd, answer: Answer, *, is_certain: bool) -> ModelEnd:
    """Take a response that has certainly ended, in a word that nobody knows, for what it is: an answer, or calls that are all whole."""
    if not (is_certain and end.is_broken_off) or end.cut_calls or speaks_of_a_break(end.finish_reason or ""):
        return end
    calls = [part for part in end.parts if isinstance(part, ToolCall)]
    says_anything = any(isinstance(part, Text) and part.text.strip() for part in end.parts)
    if not (calls or says_anything) or not all(ObjectEnd().feed(call.arguments) for call in calls):
        return end
    logger.warning(
        "%s: the response ended with the finish reason %s, which Treadle does not know. It is whole and is taken.",
        answer.endpoint.shown,
        shown(end.finish_reason),
    )
    return msgspec.structs.replace(end, finish=Finish.CALLS if calls else Finish.STOP)


async def _next(answer: Answer, response: Response) -> bytes:
    """Read on. A silence or a break after the terminal breaks nothing: only the usage may be missing."""
    if response.is_done:
        await answer.drain()
        return b""
    if not response.may_go_on:
        answer.hasten(_LAST_WORDS_SECONDS)
    is_ending = response.is_whole and not response.goes_on
    try:
        return await answer.read(pause_seconds=answer.endpoint.timeouts.after_finish_seconds if is_ending else None)
    except (IncompleteStream, ModelUnavailable):
        if response.is_whole:
            return b""
        raise


def _take_last(events: _Frames, response: Response) -> list[ModelPart]:
    """Take an event without its blank line, where it is whole by itself: half a JSON object is not an event."""
    data = events.finish()
    if data is None:
        return []
    try:
        return response.add(data)
    except ModelResponseInvalid:
        return []


def _refusal(exc: AnswerError | ModelError | CancelledError, answer: Answer, response: Response) -> ModelEnd:
    """Return the end of a response that a policy broke off; raise what any other error is, with what had been counted."""
    if isinstance(exc, CancelledError):
        tell_counted(exc, response.counted)
        raise exc
    if isinstance(exc, ModelError):
        exc.usage = response.counted
        raise exc
    failure = event_failure(exc.error, answer.endpoint)
    if isinstance(failure, ModelRefused):
        return failure.as_response()
    failure.usage = response.counted
    raise failure from None  # the provider's words are in the new error, redacted


def _incomplete(head: bytes, answer: Answer, response: Response) -> ModelError:
    if response.is_empty and answer.content_type not in _STREAM_TYPES:
        return not_the_protocol(head, answer)
    return IncompleteStream(
        f"The stream of {answer.endpoint.shown} ended without {response.terminal}: the response is incomplete."
    )


# --- AWS event streams: bytes in, whole messages out, however the bytes were cut; both checksums checked. Knows no
# dialect and does no I/O.

_PRELUDE = struct.Struct(">III")
_SUM = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
_FRAME_BYTES = _PRELUDE.size + _SUM.size
_MAX_HEADER_BYTES = 128 * 1024

_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type, for the types of one size: booleans, numbers, times, UUIDs."""
_SIZED = frozenset({6, 7})
"""Types whose value has its length before it: bytes and text."""
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,127}")

_STATUSES = {
    "accessdenied": 403,
    "internalserver": 500,
    "modelerror": 424,
    "modelnotready": 429,
    "modelstreamerror": 424,
    "modeltimeout": 408,
    "resourcenotfound": 404,
    "serviceunavailable": 503,
    "throttling": 429,
    "validation": 400,
}
"""The HTTP status of each exception, as the vendor documents it: inside a stream none is sent."""


class StreamException(msgspec.Struct):
    """An error inside a stream. `Any` is the wire's."""

    type: Any = None
    payload: Any = None


class EventStreamReader:
    """Collects bytes and gives out whole messages as JSON.

    Example:
        reader = EventStreamReader()
        reader.feed(received)  # [b'{"messageStart":{"role":"assistant"}}']
    """

    def __init__(self, *, max_event_bytes: int = _MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._pending = bytearray()
        self._expected = 0
        """Bytes of the message that has begun, once its prelude is there; else 0."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the messages that these bytes complete.

        Raises:
            ModelResponseInvalid: A checksum does not match, or the bytes are not an event stream.
        """
        self._pending += chunk
        found = []
        at = 0
        while size := self._size_at(at):
            if len(self._pending) - at < size:
                break
            found.append(_message(bytes(self._pending[at : at + size])))
            at += size
            self._expected = 0
        del self._pending[:at]
        return found

    def finish(self) -> bytes | None:
        """Return None: a message without its end is not a message."""
        self._pending.clear()
        return None

    def _size_at(self, at: int) -> int:
        """Return the size of the message at this place; 0 while its prelude has not come. Each prelude is checked once."""
        if not self._expected and len(self._pending) - at >= _PRELUDE.size:
            size, header_bytes, checksum = _PRELUDE.unpack_from(self._pending, at)
            if zlib.crc32(self._pending[at : at + 8]) != checksum:
                raise ModelResponseInvalid(
                    "The server sent an event whose prelude is damaged: its checksum does not match."
                )
            if size > self._max_event_bytes:
                raise ModelResponseInvalid(f"The server sent one event of more than {self._max_event_bytes} bytes.")
            if header_bytes > min(_MAX_HEADER_BYTES, size - _FRAME_BYTES):
                raise ModelResponseInvalid("The server sent an event whose lengths are invalid.")
            self._expected = size
        return self._expected


def exception_error(exception: StreamException) -> dict[str, Any]:
    """Return an exception of a stream as the JSON value of a provider's error, with the status that belongs to its class."""
    payload = exception.payload if isinstance(exception.payload, dict) else {}
    code = str(exception.type)
    status = _STATUSES.get(re.sub("exception$", "", code.casefold()))
    said = (payload.get(name) for name in ("originalMessage", "message", "Message"))
    message = next((text for text in said if isinstance(text, str) and text.strip()), "")
    return {"code": code, "message": message, **({} if status is None else {"status_code": status})}


def _message(frame: bytes) -> bytes:
    size, header_bytes, _ = _PRELUDE.unpack_from(frame)
    (checksum,) = _SUM.unpack_from(frame, size - _SUM.size)
    if zlib.crc32(frame[: -_SUM.size]) != checksum:
        raise ModelResponseInvalid("The server sent a damaged event: its checksum does not match.")
    headers = dict(_headers(frame[_PRELUDE.size : _PRELUDE.size + header_bytes]))
    payload = frame[_PRELUDE.size + header_bytes : -_SUM.size].strip()
    match headers.get(":message-type", "event"):
        case "event":
            return b'{"%b":%b}' % (_type(headers.get(":event-type")), payload or b"null")
        case "exception":
            kind = _type(headers.get(":exception-type"))
            # What is not a JSON object is the server's words.
            said = payload if payload.startswith(b"{") else to_json({"message": payload.decode("utf-8", "replace")})
            return b'{"exception":{"type":"%b","payload":%b}}' % (kind, said)
        case "error":
            said = to_json({"message": headers.get(":error-message", "")})
            return b'{"exception":{"type":%b,"payload":%b}}' % (to_json(headers.get(":error-code", "")), said)
        case other:
            raise ModelResponseInvalid(f"The server sent an event of the unknown message type {other!r:.60}.")


def _type(name: str | None) -> bytes:
    if name is None or not _TYPE.fullmatch(name):
        raise ModelResponseInvalid("The server sent an event without a valid type.")
    return name.encode()


def _headers(block: bytes) -> Iterator[tuple[str, str]]:
    """Yield names and values; of a value that is not text, nothing but its place is read."""
    at = 0
    try:
        while at < len(block):
            name_ends = at + 1 + block[at]
            name, kind = block[at + 1 : name_ends].decode("utf-8", "replace"), block[name_ends]
            at = name_ends + 1
            size = _FIXED.get(kind)
            if size is None:
                if kind not in _SIZED:
                    raise ModelResponseInvalid(f"The server sent an event with a header of the unknown type {kind}.")
                size = _LENGTH.unpack_from(block, at)[0]
                at += _LENGTH.size
            if at + size > len(block):
                raise ModelResponseInvalid("The server sent an event whose headers are cut off.")
            if kind == 7:
                yield name, block[at : at + size].decode("utf-8", "replace")
            at += size
    except (IndexError, struct.error) as exc:
        raise ModelResponseInvalid("The server sent an event whose headers are cut off.") from exc
