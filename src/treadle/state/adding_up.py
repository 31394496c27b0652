"""Adding up: the sum of a session's events, or one clear error where they contradict each other. Reads no store."""

from collections.abc import Iterable

from treadle.errors import ConfigurationError, JournalError, check_kind
from treadle.events import AnyEvent, Event
from treadle.fields import checked_but
from treadle.state.session import SessionState

__all__ = ["add_up"]

_CONTRADICTIONS = (
    AssertionError,
    ArithmeticError,
    AttributeError,
    ConfigurationError,
    LookupError,
    TypeError,
    ValueError,
)
"""What a sum raises for events that no run has recorded in this order."""


@checked_but("events")
def add_up(state: SessionState, events: Iterable[AnyEvent]) -> SessionState:
    """Add events to a state, and return it.

    Raises:
        JournalError: They contradict each other, so the session is damaged.
    """
    check_kind("events", events, Iterable, "a list of events")  # not each of them: there may be a million
    event: AnyEvent | None = None
    try:
        for event in events:
            state.apply(event)
    except _CONTRADICTIONS as exc:
        where = "" if not isinstance(event, Event) else f" at event {event.seq} ({event.type})"
        raise JournalError(
            f"The events of session {state.id!r} contradict each other{where}: {type(exc).__name__} {exc}. Restore the journal "
            "from a backup; nothing was changed."
        ) from exc
    return state
