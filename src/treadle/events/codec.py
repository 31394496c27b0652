"""All events together: as one type, as JSON and back."""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from treadle.events.base import Event
from treadle.events.calls import (
    ActionDecided,
    ApprovalAnswered,
    ApprovalRequested,
    CallDecided,
    ChildEnded,
    ChildStarted,
    ContractViolated,
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
    ContextCompacted,
    HistoryRepaired,
    MessageAdded,
    RepeatNoticed,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
)
from treadle.events.sessions import (
    JournalDegraded,
    SessionChanged,
    SessionForked,
    SessionMarked,
    SessionRewound,
    SessionSpawned,
)

__all__ = ["AnyEvent", "Subscriber", "decode_event", "encode_event", "on"]

AnyEvent: TypeAlias = (
    RunStarted
    | RunPaused
    | RunResumed
    | RunFinished
    | MessageAdded
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
    | ContextCompacted
    | DecisionRejected
    | SessionChanged
    | SessionForked
    | SessionSpawned
    | SessionMarked
    | SessionRewound
    | JournalDegraded
)


Subscriber: TypeAlias = Callable[[AnyEvent], None]


_encoder = msgspec.json.Encoder()


_decoder = msgspec.json.Decoder(AnyEvent)


def encode_event(event: Event) -> bytes:
    """Return an event as one JSON object."""
    return _encoder.encode(event)


def decode_event(body: bytes | str) -> AnyEvent:
    """Read an event back.

    Raises:
        msgspec.DecodeError: It is no event that this version knows.
    """
    event: AnyEvent = _decoder.decode(body)
    return event


def on(*types: str, call: Subscriber) -> Subscriber:
    """Make a subscriber that hears only the named events.

    Example:
        Agent(model, subscribers=[on("tool.started", "tool.finished", call=print)])
    """
    wanted = frozenset(types)

    def on_event(event: AnyEvent) -> None:
        if event.type in wanted:
            call(event)

    return on_event
