"""Reading: one HTTP answer to the parts of one response, streamed or whole. Knows no dialect: that is the response's."""

from asyncio import CancelledError
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol

import msgspec

from treadle.errors import IncompleteStream, ModelError, ModelResponseInvalid, ModelUnavailable, shown
from treadle.messages import Finish, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextCalls, tell_counted
from treadle.providers.http.answer import Answer
from treadle.providers.http.failures import ModelRefused, event_failure, not_the_protocol
from treadle.providers.http.sse import SseReader
from treadle.providers.http.wordings import is_known
from treadle.providers.payload.arguments import ObjectEnd
from treadle.providers.payload.lenient import repaired_end
from treadle.providers.payload.thoughts import ThinkingTags, ThoughtText
from treadle.redaction import redacted_logger

__all__ = ["AnswerError", "Frames", "Response", "read_response", "without_ending"]

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
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class AnswerError(Exception):
    """The provider's own error, found inside an answer. Carries its JSON value."""

    def __init__(self, error: Any) -> None:
        super().__init__("the answer holds an error")
        self.error = error


class Frames(Protocol):
    """How the events of a stream are distinguished in its bytes."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that these bytes complete. Raises `ModelResponseInvalid`."""
        ...

    def finish(self) -> bytes | None:
        """Return the data of an event that the end of the stream cut from its end, where that may be whole."""
        ...


class Response(Protocol):
    """What a dialect makes of one answer. It takes the data of each event, and gives the parts that it makes."""

    frames: Callable[[], Frames] = SseReader
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
    is_empty: bool = True
    """Whether nothing of this dialect came yet."""
    counted: Usage | None = None
    """What the server has counted so far; None where it has not."""
    thinking_tags: ThinkingTags = "both"
    """How reasoning that the server leaves in the text is told."""
    text_calls: TextCalls = "tell"
    """What happens to calls that the server leaves in the text."""
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
                    for part in thoughts.shown(response.add(data)):
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
    return [*thoughts.rest(), _ended_by_its_calls(end, answer, is_certain=response.is_done)]


def _check_size(end: ModelEnd, answer: Answer) -> None:
    calls = [part for part in end.parts if isinstance(part, ToolCall)]
    if end.has_strays and not calls:
        raise ModelResponseInvalid(f"{answer.endpoint.shown} sent a piece of a call that it did not begin.")
    _check_calls(len(calls), answer)
    for call in calls:
        _check_name(call, answer)
    if sum(len(part.text) for part in end.parts if isinstance(part, Text | Thinking)) > _MAX_CHARS:
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


def _ended_by_its_calls(end: ModelEnd, answer: Answer, *, is_certain: bool) -> ModelEnd:
    """Take a response that has certainly ended, in a word that nobody knows, as one that ends with its calls, if all of them are whole."""
    calls = [part for part in end.parts if isinstance(part, ToolCall)]
    is_whole = calls and not end.cut_calls and all(ObjectEnd().feed(call.arguments) for call in calls)
    if not (is_certain and end.is_broken_off and is_whole) or is_known(end.finish_reason or ""):
        return end
    logger.warning(
        "%s: the response ended with the finish reason %s, which Treadle does not know. Its calls are whole and are taken.",
        answer.endpoint.shown,
        shown(end.finish_reason),
    )
    return msgspec.structs.replace(end, finish=Finish.CALLS)


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


def _take_last(events: Frames, response: Response) -> list[ModelPart]:
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
