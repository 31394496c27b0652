"""All events together: as one type, as JSON and back."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from treadle.errors import ConfigurationError, JournalError, shown
from treadle.events.base import Event, PublicEvent
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
    "encode_event",
    "encode_sse",
    "event_object",
    "on",
]


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


def encode_event(event: Event | PublicEvent) -> bytes:
    """Return an event as one JSON object in UTF-8, on one line, for a journal or a log.

    The form is stable. `type` names the event, such as `tool.finished`; every other key is a field of its class. A field
    that has its default is left out. Times are seconds since 1970, spans are seconds, money is a decimal in a string.
    New versions add types and fields; they rename and remove none. `decode_event` reads it back, but for public events.

    Raises:
        ConfigurationError: It is not an event.
    """
    if not isinstance(event, Event | PublicEvent):
        raise ConfigurationError(f"event must be an Event of treadle.events; got {shown(event)}.")
    return _encoder.encode(event)


def encode_sse(event: Event | PublicEvent) -> bytes:
    """Return an event as a server-sent event: its number as `id`, and the JSON of `encode_event` as `data`.

    A piece of live text has no number, so a browser that connects again asks from the last event that has one.

    Example:
        async for event in public_events(run):
            await response.write(encode_sse(event))

    Raises:
        ConfigurationError: It is not an event.
    """
    data = b"data: %s\n\n" % encode_event(event)
    return b"id: %d\n%s" % (event.seq, data) if event.seq else data


def event_object(event: Event | PublicEvent) -> JsonObject:
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
        event = _decoder.decode(body)
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
