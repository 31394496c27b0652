"""Telemetry of the program: OpenTelemetry, where the standard `OTEL_*` variables name a collector. Loads nothing without them."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from treadle.otel import Telemetry

__all__ = ["telemetry", "traced"]

_CURRENT: "ContextVar[Telemetry | None]" = ContextVar("treadle_telemetry", default=None)
_COMMANDS = frozenset({"acp", "chat", "demo", "goal", "mcp", "resume", "run", "worker"})
_FLUSH_SECONDS = 5.0
"""How long the end of the program waits for a collector that does not answer."""


def telemetry() -> "list[Telemetry]":
    """Return the subscriber of every agent that the program makes; none where nothing is measured."""
    current = _CURRENT.get()
    return [] if current is None else [current]


@contextmanager
def traced(command: str, environment: Mapping[str, str], tell: Callable[[str], object]) -> Iterator[None]:
    """Measure a command where the variables ask for it, below the caller's trace (`TRACEPARENT`).

    Without a collector, programs that tools start are still handed the caller's trace.
    """
    handed = {name.lower(): environment[name] for name in ("TRACEPARENT", "TRACESTATE") if environment.get(name)}
    if command in _COMMANDS and handed:
        from treadle.ports import TRACE  # noqa: PLC0415 - help and version do without

        TRACE.set(handed)
    if command not in _COMMANDS or not _signals(environment):
        yield
    elif problem := _problem(environment):
        tell(f"note: {problem}")
        yield
    else:
        with _measured(command, environment, handed):
            yield


def _signals(environment: Mapping[str, str]) -> list[str]:
    """Return what is sent: traces, metrics or both."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    return [
        one
        for one in ("traces", "metrics")
        if environment.get(f"OTEL_{one.upper()}_EXPORTER", "otlp") == "otlp"
        and (
            environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
            or environment.get(f"OTEL_EXPORTER_OTLP_{one.upper()}_ENDPOINT")
        )
    ]


def _problem(environment: Mapping[str, str]) -> str | None:
    """Return why nothing can be sent although it is asked for."""
    protocol = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol != "http/protobuf":
        return (
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r:.40} is not supported: nothing is sent. Set it to http/protobuf."
        )
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        return "OTEL_EXPORTER_OTLP_ENDPOINT is set, and nothing is sent. Install the exporter: pip install '.[otel]' in the project's folder"
    return None


@contextmanager
def _measured(command: str, environment: Mapping[str, str], handed: Mapping[str, str]) -> Iterator[None]:
    from opentelemetry import context, propagate, trace  # noqa: PLC0415 - the package is an extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above

    from treadle.otel import Telemetry  # noqa: PLC0415 - as above

    is_named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if is_named else {"service.name": "treadle"})
    wanted = _signals(environment)
    tracers = _tracers(resource, is_sent="traces" in wanted)
    meters = _meters(resource, is_sent="metrics" in wanted)
    before = context.attach(propagate.extract(dict(handed)))
    measured = _CURRENT.set(Telemetry(tracer_provider=tracers, meter_provider=meters))
    try:
        tracer = trace.get_tracer("treadle", version("treadle"), tracers)
        # What is said of a failure holds paths and options of the person: the class alone is sent.
        with tracer.start_as_current_span(
            f"treadle {command}", record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(trace.StatusCode.ERROR)
                raise
    finally:
        _CURRENT.reset(measured)
        context.detach(before)
        # In a thread: a collector that does not answer must not hold the program.
        for close in (tracers.shutdown, meters.shutdown):
            closing = threading.Thread(target=close, daemon=True)
            closing.start()
            closing.join(_FLUSH_SECONDS)


def _tracers(resource: "Resource", *, is_sent: bool) -> "TracerProvider":
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - the package is an extra

    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    if is_sent:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return tracers


def _meters(resource: "Resource", *, is_sent: bool) -> "MeterProvider":
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - the package is an extra

    if not is_sent:
        return MeterProvider(resource=resource, shutdown_on_exit=False)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415 - as above
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415 - as above

    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    return MeterProvider([reader], resource=resource, shutdown_on_exit=False)
