"""OpenTelemetry: spans and metrics of runs, model calls and tool calls, made of events. Loads nothing until it is used."""

from treadle.otel.telemetry import Telemetry

__all__ = ["Telemetry"]
