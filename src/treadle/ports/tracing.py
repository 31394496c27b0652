"""The port to what traces calls: a subscriber that also gives each call the context in which it runs."""

from contextvars import Context
from typing import Protocol, runtime_checkable

from treadle.events import AnyEvent

__all__ = ["CallTracer"]


@runtime_checkable
class CallTracer(Protocol):
    """A subscriber that gives each call a context of its own: what the call starts belongs to it.

    Example:
        class Tracer:
            def __call__(self, event: AnyEvent) -> None: ...

            def call_context(self, session_id: str, call_id: str) -> Context | None:
                return contextvars.copy_context()
    """

    def __call__(self, event: AnyEvent) -> None:
        """Take in one event, as every subscriber does."""
        ...

    def call_context(self, session_id: str, call_id: str) -> Context | None:
        """Return the context in which a call that has started is to run; None to leave it where it is. It must not raise.

        Args:
            session_id: Id of the session.
            call_id: Id of the call.
        """
        ...
