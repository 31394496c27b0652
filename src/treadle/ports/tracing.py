"""The ports to what traces runs and calls: subscribers that also know where a run belongs, and in which context a call runs."""

from collections.abc import Mapping
from contextvars import Context
from typing import Protocol, runtime_checkable

from treadle.events import AnyEvent
from treadle.ports.models import Model, ModelRequest

__all__ = ["CallTracer", "RequestTracer", "RunTracer"]


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


@runtime_checkable
class RunTracer(Protocol):
    """A subscriber that ties a run to the trace of the process that worked on it before.

    Example:
        class Tracer:
            def __call__(self, event: AnyEvent) -> None: ...

            def headers(self) -> Mapping[str, str]:
                return {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

            def link(self, run_id: str, headers: Mapping[str, str]) -> None: ...
    """

    def __call__(self, event: AnyEvent) -> None:
        """Take in one event, as every subscriber does."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Return what is current where a run begins, as W3C headers; empty where nothing is. It is recorded with the run. It must not raise."""
        ...

    def link(self, run_id: str, headers: Mapping[str, str]) -> None:
        """Take in, before a run continues, what `headers` returned when it began or continued before. It must not raise.

        Args:
            run_id: Id of the run.
            headers: `traceparent`, and perhaps `tracestate`.
        """
        ...


@runtime_checkable
class RequestTracer(Protocol):
    """A subscriber that is shown each request to a model, whole. Events have only its size.

    Example:
        class Tracer:
            def __call__(self, event: AnyEvent) -> None: ...

            def model_request(self, session_id: str, act: str | None, request: ModelRequest, model: Model) -> None:
                print(len(request.messages))
    """

    def __call__(self, event: AnyEvent) -> None:
        """Take in one event, as every subscriber does."""
        ...

    def model_request(self, session_id: str, act: str | None, request: ModelRequest, model: Model) -> None:
        """Take in a request that is about to be sent, after its `model.started`. It must not raise.

        Args:
            session_id: Id of the session.
            act: What the request is for, as in the event; None for a step of the run.
            request: The request.
            model: The model that is asked.
        """
        ...
