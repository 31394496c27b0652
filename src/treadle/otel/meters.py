"""Meters: durations, tokens and cost of runs, requests and calls. Knows no span."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics

from treadle.events import ModelDiscarded, ModelFailed, ModelFinished, RunFinished, ToolFinished
from treadle.otel import names

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

__all__ = ["Meters"]


class Meters:
    """The instruments."""

    def __init__(self, provider: "MeterProvider | None") -> None:
        meter = metrics.get_meter("treadle", version("treadle"), provider, names.SCHEMA_URL)
        self._duration = meter.create_histogram(
            names.DURATION,
            unit="s",
            description="Duration of a run, a request or a call.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self._first = meter.create_histogram(
            names.FIRST_CHUNK_DURATION,
            unit="s",
            description="From the request to the first piece of the answer.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self._tokens = meter.create_histogram(
            names.TOKENS,
            unit="{token}",
            description="Tokens of a request.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )
        self._cost = meter.create_counter(names.COST, unit="{USD}", description="Cost of requests in US dollars.")

    def run(self, event: RunFinished, shared: dict[str, Any]) -> None:
        """Measure a run that has ended."""
        about = {**shared, names.OPERATION: "invoke_agent", names.REASON: event.reason}
        self._duration.record(event.wall_seconds, about | _error(event.reason if event.status == "failed" else None))

    def model(self, event: ModelFinished | ModelFailed | ModelDiscarded, shared: dict[str, Any]) -> None:
        """Measure a request that has ended."""
        if isinstance(event, ModelDiscarded):
            return
        about = {**shared, names.OPERATION: "chat"}
        if isinstance(event, ModelFinished):
            about |= {names.RESPONSE_MODEL: event.response_model} if event.response_model else {}
            self._duration.record(event.duration_seconds, about)
            if event.first_token_seconds is not None:
                self._first.record(event.first_token_seconds, about)
        if event.usage is not None:
            self._tokens.record(event.usage.input_tokens, {**about, names.TOKEN_TYPE: "input"})
            self._tokens.record(event.usage.output_tokens, {**about, names.TOKEN_TYPE: "output"})
        if event.cost is not None:
            self._cost.add(float(event.cost), about)

    def call(self, event: ToolFinished, shared: dict[str, Any]) -> None:
        """Measure a call that has ended; one that never started took no time."""
        result = event.result
        if result.attempts:
            about = {names.OPERATION: "execute_tool", names.TOOL_NAME: result.name, names.STATUS: str(result.status)}
            self._duration.record(result.duration_seconds, about | _error(event.failure_class))


def _error(kind: str | None) -> dict[str, str]:
    return {} if kind is None else {names.ERROR_TYPE: kind}
