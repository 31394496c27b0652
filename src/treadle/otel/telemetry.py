"""Telemetry: a subscriber that makes spans and metrics of what happens. It decides nothing, and its failures end with it."""

import contextvars
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from treadle import ConfigurationError
from treadle.events import (
    AnyEvent,
    MessageAdded,
    ModelDiscarded,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolFinished,
    ToolStarted,
    ToolSuspended,
)
from treadle.ports import Model, ModelRequest
from treadle.redaction import Redactor

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


__all__ = ["Telemetry"]

logger = logging.getLogger("treadle.otel")


class Telemetry:
    """Makes OpenTelemetry spans and metrics of an agent's runs, by the conventions for generative AI.

    A run is a span `invoke_agent`, below whatever span is current where it is started; each request to the model is a span `chat`
    below it, and each call that starts is a span `execute_tool`, which is current in the tool: so spans of its own, programs that it
    starts (`TRACEPARENT`) and agents that it asks are below it. One instance serves any number of agents at the same time.

    What was said, and what tools got and returned, is left out unless `content` is set. A failure in here, or in an exporter, is
    logged once and changes nothing of a run.

    Args:
        tracer_provider: Where spans go; None for the one that the process has set.
        meter_provider: Where metrics go; None for the one that the process has set.
        content: Whether spans hold instructions, messages, arguments and results, each up to 16,000 characters, without known secrets.
            None: as the variable `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says; without it they do not.

    Raises:
        ConfigurationError: The package opentelemetry-api is not installed, or what was given as a provider has not its method.

    Example:
        telemetry = Telemetry()
        agent = Agent("openai-chat:gpt-5-mini", tools=[look], subscribers=[telemetry])
    """

    def __init__(
        self,
        *,
        tracer_provider: "TracerProvider | None" = None,
        meter_provider: "MeterProvider | None" = None,
        content: bool | None = None,
    ) -> None:
        if not isinstance(content, bool | None):
            raise ConfigurationError(f"Telemetry(content=...) must be True, False or None; got {content!r:.60}.")
        wants = _wants_content(os.environ) if content is None else content
        for name, given, method in (
            ("tracer_provider", tracer_provider, "get_tracer"),
            ("meter_provider", meter_provider, "get_meter"),
        ):
            if given is not None and not callable(getattr(given, method, None)):
                raise ConfigurationError(f"Telemetry({name}=...) needs the method {method}; got {given!r:.60}.")
        try:
            from treadle.otel.meters import Meters  # noqa: PLC0415 - the package is an extra
            from treadle.otel.spans import Spans  # noqa: PLC0415 - as above
        except ModuleNotFoundError as exc:
            raise ConfigurationError(
                "Telemetry needs the package opentelemetry-api. Install it: pip install '.[otel]' in the project's folder"
            ) from exc
        self._meters: Meters = Meters(meter_provider)
        self._spans: Spans = Spans(tracer_provider, redactor=Redactor.for_environment(os.environ) if wants else None)
        self._has_failed = False

    def __call__(self, event: AnyEvent) -> None:
        """Take in one event."""
        act = self._act_of(event)
        if act is None:
            return
        try:
            act()
        except Exception as exc:  # noqa: BLE001 - a measurement must never cost what it measures
            self._failed(exc)

    def call_context(self, session_id: str, call_id: str) -> contextvars.Context | None:
        """Return the context in which a call that has started is to run: its span is the current one."""
        try:
            return self._spans.context_of(session_id, call_id)
        except Exception as exc:  # noqa: BLE001 - as above
            self._failed(exc)
            return None

    def model_request(self, session_id: str, act: str | None, request: ModelRequest, model: Model) -> None:
        """Take in a request to a model, after its `model.started`: its parameters, its server and, where it is wanted, its content."""
        try:
            self._spans.show_request(session_id, act, request, model)
        except Exception as exc:  # noqa: BLE001 - as above
            self._failed(exc)

    def headers(self) -> dict[str, str]:
        """Return the span that is current, as W3C headers. Runs record it, so that one that continues in another process can link to it."""
        try:
            return self._spans.headers()
        except Exception as exc:  # noqa: BLE001 - as above
            self._failed(exc)
            return {}

    def link(self, run_id: str, headers: Mapping[str, str]) -> None:
        """Have the next span of a run link to an earlier one of another process, named by its W3C headers. Invalid ones are passed over.

        A run that continues is linked by itself, by what it has recorded. This is for traces of your own.

        Example:
            telemetry.link(session.state.run.id, {"traceparent": stored})

        Args:
            run_id: The run that is resumed.
            headers: `traceparent`, and perhaps `tracestate`.
        """
        try:
            self._spans.link_earlier(run_id, headers)
        except Exception as exc:  # noqa: BLE001 - as above
            self._failed(exc)

    def _failed(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            words = Redactor().text(f"{type(error).__name__}: {error}")
            logger.warning("A span or metric could not be made; runs are not affected. %s", words)

    def _act_of(self, event: AnyEvent) -> Callable[[], Any] | None:  # noqa: C901, PLR0911 - one line for each event
        spans, meters = self._spans, self._meters
        match event:
            case RunStarted() | RunResumed():
                return lambda: spans.begin_run(event)
            case RunFinished():
                return lambda: meters.run(event, spans.end_run(event))
            case RunPaused():
                return lambda: spans.end_run(event)
            case MessageAdded():
                return lambda: spans.note_task(event)
            case ModelStarted():
                return lambda: spans.begin_model(event)
            case ModelFinished():
                return lambda: meters.model(event, spans.end_model(event))
            case ModelFailed() | ModelDiscarded():
                return lambda: meters.model(event, spans.end_model(event))
            case ToolStarted():
                return lambda: spans.begin_call(event)
            case ToolFinished():
                return lambda: meters.call(event, spans.end_call(event))
            case ToolSuspended():
                return lambda: spans.suspend_call(event)
            case _:
                return None


_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURES = {
    "true": True,
    "span_only": True,
    "span_and_event": True,
    "false": False,
    "no_content": False,
    "event_only": False,
}
"""What OpenTelemetry's instrumentations take, in small letters. We make no events of messages."""


def _wants_content(environment: Mapping[str, str]) -> bool:
    given = environment.get(_CAPTURE, "").strip().lower() or "false"
    if given not in _CAPTURES:
        logger.warning("%s is %r: set it to true or false. No content is captured.", _CAPTURE, given[:40])
    return _CAPTURES.get(given, False)
