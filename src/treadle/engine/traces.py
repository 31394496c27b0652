"""Traces: what a run records of the trace that it belongs to, and the link back from a run that continues. Makes no span."""

from collections.abc import Sequence

from treadle.events import Subscriber
from treadle.ports import Model, ModelRequest, RequestTracer, RunTracer
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.state import RunState
from treadle.tools import JsonObject

__all__ = ["link_runs", "show_request", "traced_origin"]

logger = redacted_logger(__name__)

_TRACE = "trace"


def traced_origin(
    subscribers: Sequence[Subscriber], given: JsonObject | None, before: RunState | None
) -> JsonObject | None:
    """Return the origin that a run records: what was given for it, with the trace that is current. None where it stays.

    Args:
        subscribers: Of the run; the first that traces runs counts.
        given: What whoever started the run has given.
        before: The run that continues; None for one that begins.
    """
    for tracer in subscribers:
        if isinstance(tracer, RunTracer):
            try:
                headers = dict(tracer.headers())
            except Exception:  # a subscriber cannot change the run
                logger.exception("A subscriber raised at headers; the run records no trace of it")
                continue
            if headers:
                kept = given if given is not None or before is None else before.origin
                return {**(kept or {}), _TRACE: headers}
    return given


def link_runs(subscribers: Sequence[Subscriber], run: RunState | None) -> None:
    """Say, to each that traces runs, to which trace a run belonged that is about to continue."""
    recorded = None if run is None else (run.origin or {}).get(_TRACE)
    if run is None or not isinstance(recorded, dict):
        return
    headers = {name: value for name, value in recorded.items() if isinstance(value, str)}
    for tracer in subscribers:
        if isinstance(tracer, RunTracer):
            try:
                tracer.link(run.id, headers)
            except Exception:  # as above
                logger.exception("A subscriber raised at link; the run continues without its link")


def show_request(ledger: Ledger, act: str | None, request: ModelRequest, model: Model) -> None:
    """Show a request whose `model.started` is recorded to each subscriber that traces requests."""
    for tracer in ledger.subscribers:
        if isinstance(tracer, RequestTracer):
            try:
                tracer.model_request(ledger.state.id, act, request, model)
            except Exception:  # as above
                logger.exception("A subscriber raised at model_request; the request is sent without it")
