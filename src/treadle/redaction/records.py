"""Records: events as they are recorded and published, without the secrets that this process uses."""

from typing import Any

import msgspec

from treadle.events import (
    AnyEvent,
    ContextCompacted,
    ContractViolated,
    DecisionRejected,
    ModelDelta,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    RunFinished,
    ToolAttemptFailed,
    ToolFinished,
    ToolLate,
    ToolProgress,
)
from treadle.redaction.known_values import KNOWN

__all__ = ["scrubbed"]

_encoder = msgspec.json.Encoder()


_ECHOING = frozenset(
    {
        ContextCompacted,
        ModelDelta,
        ModelFinished,
        ModelFailed,
        ModelDiscarded,
        DecisionRejected,
        RunFinished,
        ToolAttemptFailed,
        ToolFinished,
        ToolLate,
        ToolProgress,
        ContractViolated,
    }
)


def scrubbed(event: AnyEvent) -> AnyEvent:
    """Return an event as it is recorded and published: without the secrets that this process uses.

    A server may echo the key that it was sent, and a tool may print its environment. Arguments stay exact, because they are
    executed; so does thinking with a signature, because its server checks it.
    """
    if not KNOWN.needles or type(event) not in _ECHOING:
        return event
    if type(event) is ModelDelta and event.call is None:
        is_clean = not KNOWN.is_in(event.text or event.thinking) and not (event.text and KNOWN.is_in(event.thinking))
    else:
        is_clean = not KNOWN.is_encoded_in(_encoder.encode(event))
    if is_clean:
        return event
    return msgspec.convert(_without(msgspec.to_builtins(event)), type(event))


def _without(value: Any) -> Any:  # Any: JSON
    match value:
        case str():
            return KNOWN.hide(value)
        case {"arguments": str()} | {"signature": str()}:
            return value
        case dict():
            return {key: _without(item) for key, item in value.items()}
        case list() | tuple():
            return [_without(item) for item in value]
        case _:
            return value
