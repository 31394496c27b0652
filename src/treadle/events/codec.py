"""All events together: as one type, as JSON and back."""

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, JournalError, shown
from treadle.events.base import Event
from treadle.events.calls import (
    ActionDecided,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ChildEnded,
    ChildStarted,
    ContractViolated,
    RulesGranted,
    ToolAttemptFailed,
    ToolFinished,
    ToolInDoubt,
    ToolInput,
    ToolLate,
    ToolProgress,
    ToolResolved,
    ToolResumed,
    ToolStarted,
    ToolSuspended,
)
from treadle.events.models import DecisionRejected, ModelDelta, ModelDiscarded, ModelFailed, ModelFinished, ModelStarted
from treadle.events.runs import (
    BudgetReached,
    BudgetWarned,
    CompactionSkipped,
    ContextCompacted,
    GoalChecked,
    GoalSet,
    HistoryRepaired,
    HookActed,
    MessageAdded,
    RepeatNoticed,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolsetFailed,
    ToolsetListed,
)
from treadle.events.sessions import (
    CompactionAsked,
    JournalDegraded,
    ModeChanged,
    SessionChanged,
    SessionForked,
    SessionMarked,
    SessionRewound,
    SessionSpawned,
    TaskSubmitted,
    TaskWithdrawn,
)
from treadle.fields import checked
from treadle.tools import JsonObject, ToolResult

__all__ = [
    "AnyEvent",
    "Subscriber",
    "artifacts_of",
    "decode_event",
    "decode_slowly",
    "encode_event",
    "event_object",
    "on",
]


# --- Long texts: decode a JSON text that holds texts of megabytes, in slices. Knows no event.

_LONG = 256 * 1024
"""Characters of a text from which on it is decoded by itself, and of one slice."""
_MOST_TEXTS = 20_000
"""Texts that are looked at one by one: of many short ones, none is long enough to matter."""
_MARK = "\ufdd0long text "

_INSIDE = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_HIGH = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_ESCAPE = 6
"""Characters of an escape such as those of half a surrogate pair."""

_texts = msgspec.json.Decoder(str)


def decode_slowly(body: str) -> Any:  # Any: JSON
    """Return the value of a JSON text: new dicts, lists and scalars.

    Raises:
        msgspec.DecodeError: It is not JSON.
    """
    try:
        short, texts = _without_long_texts(body)
        if texts and short.count(_MARK) == len(texts):
            return _with_long_texts(msgspec.json.decode(short), texts)
    except msgspec.DecodeError:
        pass  # of a part: the whole says where
    return msgspec.json.decode(body)


def _without_long_texts(body: str) -> tuple[str, list[str]]:
    """Put short texts in the places of the long ones."""
    pieces: list[str] = []
    texts: list[str] = []
    taken, start = 0, body.find('"')
    for _ in range(_MOST_TEXTS):
        if start < 0:
            break
        cuts = _cuts(body, start + 1)
        if len(cuts) > 2:
            pieces += (body[taken:start], f'"{_MARK}{len(texts)}"')
            texts.append("".join([_decoded(body[begin:end]) for begin, end in pairwise(cuts)]))
            taken = cuts[-1] + 1
        start = body.find('"', cuts[-1] + 1)
    return "".join([*pieces, body[taken:]]), texts


def _cuts(body: str, start: int) -> list[int]:
    """Return where the slices of a text begin, and where it ends."""
    cuts = [start]
    while True:
        found = _INSIDE.match(body, cuts[-1], cuts[-1] + _LONG)
        end = cuts[-1] if found is None else found.end()
        if end == len(body) or body[end] == '"' or end - cuts[-1] < _LONG // 2:
            return [*cuts, end]
        cuts.append(_before_half_an_escape(body, cuts[-1], end))


def _before_half_an_escape(body: str, start: int, end: int) -> int:
    """Return a place at or before `end` that divides no escape, and no two that are one character together."""
    last = body.rfind("\\u", max(start, end - _ESCAPE), end)
    if last < 0 or _is_escaped(body, start, last):
        return end
    if last + _ESCAPE == end and not _HIGH.match(body, last):
        return end
    return last - _ESCAPE if _HIGH.match(body, last - _ESCAPE) else last


def _is_escaped(body: str, start: int, place: int) -> bool:
    """Whether the backslash at a place is the second of a pair."""
    before = place
    while before > start and body[before - 1] == "\\":
        before -= 1
    return (place - before) % 2 == 1


def _decoded(inside: str) -> str:
    return _texts.decode(f'"{inside}"')


def _with_long_texts(value: Any, texts: list[str]) -> Any:
    match value:
        case str() if value.startswith(_MARK):
            return texts[int(value.removeprefix(_MARK))]
        case dict():
            return {_with_long_texts(name, texts): _with_long_texts(item, texts) for name, item in value.items()}
        case list():
            return [_with_long_texts(item, texts) for item in value]
        case _:
            return value


# --- All events together: as one type, as JSON and back.

AnyEvent: TypeAlias = (
    RunStarted
    | RunPaused
    | RunResumed
    | RunFinished
    | MessageAdded
    | ModeChanged
    | CompactionAsked
    | CompactionSkipped
    | ModelStarted
    | ModelDelta
    | ModelFinished
    | ModelFailed
    | ModelDiscarded
    | CallDecided
    | ActionDecided
    | ApprovalRequested
    | ApprovalAnswered
    | ToolStarted
    | ToolInput
    | ToolSuspended
    | ToolResumed
    | RulesGranted
    | ChildStarted
    | ChildEnded
    | ToolProgress
    | ToolAttemptFailed
    | ToolFinished
    | ToolLate
    | ToolInDoubt
    | ToolResolved
    | RepeatNoticed
    | BudgetWarned
    | BudgetReached
    | ContractViolated
    | HistoryRepaired
    | HookActed
    | GoalSet
    | GoalChecked
    | ContextCompacted
    | DecisionRejected
    | ToolsetListed
    | ToolsetFailed
    | SessionChanged
    | SessionForked
    | SessionSpawned
    | TaskSubmitted
    | TaskWithdrawn
    | SessionMarked
    | SessionRewound
    | JournalDegraded
)
"""Every event that this version knows."""


Subscriber: TypeAlias = Callable[[AnyEvent], None]
"""A function that is called with each event. What it raises is logged and changes nothing."""


_encoder = msgspec.json.Encoder()


_decoder = msgspec.json.Decoder(AnyEvent)
_LARGE = 1024 * 1024
"""Characters from which on an event is decoded in slices."""


def encode_event(event: Event) -> bytes:
    """Return an event as one JSON object in UTF-8, on one line: for a journal, a log, or a server-sent event.

    The form is stable. `type` names the event, such as `tool.finished`; every other key is a field of its class. A field
    that has its default is left out. Times are seconds since 1970, spans are seconds, money is a decimal in a string.
    New versions add types and fields; they rename and remove none. `decode_event` reads it back.

    Example:
        async for event in run:
            yield b"id: %d\ndata: %s\n\n" % (event.seq, encode_event(event))

    Raises:
        ConfigurationError: It is not an Event.
    """
    if not isinstance(event, Event):
        raise ConfigurationError(f"event must be an Event of treadle.events; got {shown(event)}.")
    return _encoder.encode(event)


def event_object(event: Event) -> JsonObject:
    """Return the object that `encode_event` writes, as plain Python values.

    Example:
        >>> from treadle.events import RunPaused, event_object
        >>> event_object(RunPaused(reason="approval_required", seq=4))
        {'type': 'run.paused', 'reason': 'approval_required', 'seq': 4}
    """
    made: JsonObject = msgspec.json.decode(encode_event(event))
    return made


def decode_event(body: bytes | str) -> AnyEvent:
    """Read an event back.

    Raises:
        JournalError: It is not an event that this version knows.
        ConfigurationError: It is neither bytes nor a string.
    """
    event: AnyEvent
    try:
        if len(body) < _LARGE:
            event = _decoder.decode(body)
        else:
            value = decode_slowly(body if isinstance(body, str) else body.decode())
            event = msgspec.convert(value, AnyEvent)
    except TypeError:
        raise ConfigurationError(f"body must be bytes or a string; got {shown(body)}.") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise JournalError(f"That is not an event of this version: {exc}.") from exc
    return event


@checked
def on(*types: str, call: Subscriber) -> Subscriber:
    """Make a subscriber that receives only the named events.

    Example:
        Agent(model, subscribers=[on("tool.started", "tool.finished", call=print)])
    """
    wanted = frozenset(types)

    def on_event(event: AnyEvent) -> None:
        if event.type in wanted:
            call(event)

    return on_event


# --- Artifacts: which stored bytes events name. Reads none of them.

_NAMING = frozenset({ToolFinished, ContractViolated, ContextCompacted})


def artifacts_of(events: Iterable[AnyEvent]) -> tuple[str, ...]:
    """Return the digests of the stored bytes that the events name, each once."""
    found: dict[str, None] = {}
    for event in events:
        if type(event) not in _NAMING:  # nearly all of them, and there may be very many
            continue
        match event:
            case ToolFinished(result=ToolResult(artifact=str(digest))) | ContractViolated(artifact=str(digest)):
                found[digest] = None
            case ContextCompacted(artifacts=digests):
                found |= dict.fromkeys(digests)
            case _:
                pass
    return tuple(found)
