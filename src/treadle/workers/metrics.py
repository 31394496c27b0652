"""What a worker has done and what waits, as numbers in the text format of Prometheus. Counts events; asks nothing itself.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from treadle.events import (
    AnyEvent,
    DecisionRejected,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    ToolFinished,
)
from treadle.messages import Usage
from treadle.tools import CallStatus
from treadle.workers.limits import Subject

__all__ = ["CONTENT_TYPE", "Metrics", "RunWatcher", "Sample", "Waiting"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MOST_SERIES = 2_000
"""How many label sets one metric keeps: further ones are counted together, with `(other)` for each label."""
_OTHER = "(other)"

_COUNTERS = {
    "treadle_runs_total": "Runs that ended or paused, by status and stop reason.",
    "treadle_run_seconds_total": "Seconds that the runs which ended were under way.",
    "treadle_takeovers_total": "Runs that were continued here after another process died or handed them over.",
    "treadle_model_requests_total": "Requests to a model, by outcome: ok, or the class of the error.",
    "treadle_model_seconds_total": "Seconds that answered requests to a model took.",
    "treadle_tokens_total": "Tokens, by kind: input and output; cached_input and reasoning are parts of them.",
    "treadle_cost_dollars_total": "Cost in US dollars of requests whose price is known.",
    "treadle_tool_calls_total": "Finished tool calls, by status.",
    "treadle_errors_total": "Sessions that could not be run or stopped in mid-run, by the class of the error.",
}
_GAUGES = {
    "treadle_worker_info": "Always 1; the labels name the worker.",
    "treadle_worker_started_seconds": "When the worker began, in seconds since 1970.",
    "treadle_worker_ready": "1 while the worker takes sessions, 0 while it begins, drains or has no journal.",
    "treadle_worker_concurrency": "How many sessions it runs side by side at most.",
    "treadle_sessions_running": "Sessions that it runs now.",
    "treadle_limit_waiting": "Sessions and requests that wait for a limit, as this worker sees it.",
    "treadle_queue_tasks": "Tasks that are due and that no worker has begun, over the whole journal.",
    "treadle_queue_oldest_seconds": "How long the oldest of these tasks has been due.",
    "treadle_approvals_expiring": "Requests for consent with an expiry time that wait for a person, over the whole journal.",
    "treadle_sessions_stranded": "Sessions that no living worker can continue, as this worker has seen, by reason.",
    "treadle_queue_seen": "1 where the journal could be asked what waits, else 0.",
}

Labels: TypeAlias = tuple[tuple[str, str], ...]


class Sample(msgspec.Struct, frozen=True):
    """One number with its labels."""

    name: str
    value: float
    labels: Labels = ()


class Waiting(msgspec.Struct, frozen=True):
    """The tasks of one tenant that wait for a worker."""

    tasks: int
    oldest_seconds: float


class Metrics:
    """The counters of one worker. They begin at 0 with its process."""

    def __init__(self) -> None:
        self._counts: dict[str, defaultdict[Labels, float]] = {name: defaultdict(float) for name in _COUNTERS}

    def add(self, name: str, value: float = 1.0, /, **labels: str) -> None:
        """Add to a counter."""
        series = self._counts[name]
        key = tuple(labels.items())
        if key not in series and len(series) >= MOST_SERIES:
            key = tuple((label, _OTHER) for label in labels)
        series[key] += value

    def failed(self, subject: Subject, error: Exception) -> None:
        """Count a session that could not be run."""
        self.add("treadle_errors_total", tenant=subject.tenant, agent=subject.agent, error=type(error).__name__)

    def watching(self, subject: Subject, session_id: str, *, is_takeover: bool) -> "RunWatcher":
        """Return a subscriber that counts what a run does, and the runs that carry out its calls."""
        return RunWatcher(self, subject, session_id, is_takeover=is_takeover)

    def text(self, gauges: Iterable[Sample]) -> str:
        """Return all numbers in the text format of Prometheus."""
        samples: defaultdict[str, list[Sample]] = defaultdict(list)
        for name, series in self._counts.items():
            samples[name] = [Sample(name, value, labels) for labels, value in series.items()]
        for gauge in gauges:
            samples[gauge.name].append(gauge)
        return "".join(
            _family(name, kind, help_text, samples[name])
            for kind, families in (("counter", _COUNTERS), ("gauge", _GAUGES))
            for name, help_text in families.items()
        )


class RunWatcher:
    """Counts the events of one run."""

    def __init__(self, metrics: Metrics, subject: Subject, session_id: str, *, is_takeover: bool) -> None:
        self._metrics = metrics
        self._whose = {"tenant": subject.tenant, "agent": subject.agent}
        self._session_id = session_id
        self._is_takeover = is_takeover
        self._models: dict[str, str] = {}

    def __call__(self, event: AnyEvent) -> None:
        match event:
            case RunFinished() | RunPaused() | RunResumed() if event.session_id == self._session_id:
                self._on_run(event)
            case ModelStarted():
                self._models[event.session_id] = event.model
            case ModelFinished() | ModelFailed() | DecisionRejected():
                self._on_model(event)
            case ToolFinished():
                status = event.result.status
                tool = "" if status is CallStatus.UNKNOWN_TOOL else event.result.name  # a name that the model made up
                self._metrics.add("treadle_tool_calls_total", **self._whose, tool=tool, status=str(status))

    def _on_run(self, event: RunFinished | RunPaused | RunResumed) -> None:
        add, whose = self._metrics.add, self._whose
        match event:
            case RunResumed():
                if self._is_takeover:
                    add("treadle_takeovers_total", **whose)
                self._is_takeover = False
            case RunPaused():
                add("treadle_runs_total", **whose, status="paused", reason="paused")
            case RunFinished():
                add("treadle_runs_total", **whose, status=event.status, reason=event.reason)
                add("treadle_run_seconds_total", event.wall_seconds, **whose)

    def _on_model(self, event: ModelFinished | ModelFailed | DecisionRejected) -> None:
        labels = {**self._whose, "model": self._models.get(event.session_id, "")}
        if isinstance(event, ModelFinished):
            self._metrics.add("treadle_model_requests_total", **labels, outcome="ok")
            self._metrics.add("treadle_model_seconds_total", event.duration_seconds, **labels)
        elif isinstance(event, ModelFailed):
            self._metrics.add("treadle_model_requests_total", **labels, outcome=event.error)
        if event.usage is not None:
            self._spend(event.usage, event.cost, labels)

    def _spend(self, usage: Usage, cost: str | None, labels: Mapping[str, str]) -> None:
        for kind, tokens in (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cached_input", usage.cached_input_tokens),
            ("reasoning", usage.reasoning_tokens),
        ):
            if tokens:
                self._metrics.add("treadle_tokens_total", tokens, **labels, kind=kind)
        if cost is not None:
            self._metrics.add("treadle_cost_dollars_total", float(cost), **labels)


def _family(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_shown(sample.labels)} {sample.value:.15g}" for sample in samples]
    return "\n".join(lines) + "\n"


def _shown(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    value = value.encode("utf-8", "replace").decode()
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
