"""A worker's health and numbers over HTTP, on loopback unless another address is named. Asks the journal what waits, at most once a second."""

import asyncio
import errno
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, JournalError
from treadle.events import (
    AnyEvent,
    BudgetReached,
    DecisionRejected,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SessionChanged,
    ToolFinished,
)
from treadle.fields import checked
from treadle.messages import Usage
from treadle.ports import Clock, Journal, SessionFilter
from treadle.redaction import redacted_logger
from treadle.resolve.archives import list_doubts
from treadle.tools import CallStatus
from treadle.workers.limits import Subject
from treadle.workers.presence import WorkerInfo

if TYPE_CHECKING:
    from aiohttp import web  # imported when a worker serves its health: most do not

__all__ = [
    "LOOPBACK",
    "METRICS",
    "TRACES",
    "Condition",
    "HealthServer",
    "Metrics",
    "Queue",
    "Sample",
    "SessionLogFilter",
    "Traces",
    "Waiting",
    "WorkerCondition",
    "tell_away",
    "tell_back",
    "worker_samples",
]


# --- What a worker has done and what waits, as numbers in the text format of Prometheus. Counts events; asks nothing
# itself.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MOST_SERIES = 2_000
"""How many label sets one metric keeps: further ones are counted together, with `(other)` for each label."""
_OTHER = "(other)"

_COUNTERS = {
    "treadle_runs_total": "Runs that ended or paused, by status and stop reason.",
    "treadle_tasks_started_total": "Submitted tasks that were begun.",
    "treadle_task_wait_seconds_total": "Seconds that the tasks which were begun had waited since they were submitted, or due.",
    "treadle_budget_refusals_total": "Limits that were reached, by the name of the budget.",
    "treadle_lease_conflicts_total": "Sessions that this worker wanted to run and another process had, or took over.",
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
    "treadle_approvals_open": "Requests for consent that wait for a person, over the whole journal.",
    "treadle_approvals_oldest_seconds": "How long the oldest of these requests has waited.",
    "treadle_doubts_open": "Calls of unknown outcome that no person has resolved, over the whole journal.",
    "treadle_doubts_oldest_seconds": "How long ago the oldest of these calls started.",
    "treadle_sessions_suspended": "Sessions that a person has suspended, or that a worker has set aside.",
    "treadle_sessions_set_aside": "Sessions that a worker has set aside because workers failed on them.",
    "treadle_journal_answer_seconds": "How long the journal took to say what waits when it was last asked.",
    "treadle_approvals_expiring": "Requests for consent with an expiry time that wait for a person, over the whole journal.",
    "treadle_sessions_stranded": "Sessions that no living worker can continue, as this worker has seen, by reason.",
    "treadle_queue_seen": "1 where the journal could be asked what waits, else 0.",
}
METRICS = frozenset({*_COUNTERS, *_GAUGES})
"""The names of all metrics."""

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

    def watching(
        self, subject: Subject, session_id: str, *, is_takeover: bool, due_at: float | None = None
    ) -> "RunWatcher":
        """Return a subscriber that counts what a run does, and the runs that carry out its calls. `due_at`: of a task that begins."""
        return RunWatcher(self, subject, session_id, is_takeover=is_takeover, due_at=due_at)

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

    def __init__(
        self, metrics: Metrics, subject: Subject, session_id: str, *, is_takeover: bool, due_at: float | None
    ) -> None:
        self._due_at = due_at
        self._metrics = metrics
        self._whose = {"tenant": subject.tenant, "agent": subject.agent}
        self._session_id = session_id
        self._is_takeover = is_takeover
        self._models: dict[str, str] = {}

    def __call__(self, event: AnyEvent) -> None:
        match event:
            case RunStarted() if event.session_id == self._session_id and self._due_at is not None:
                self._metrics.add("treadle_tasks_started_total", **self._whose)
                self._metrics.add("treadle_task_wait_seconds_total", max(0.0, event.at - self._due_at), **self._whose)
            case BudgetReached():
                self._metrics.add("treadle_budget_refusals_total", **self._whose, budget=event.budget)
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


# --- A worker's health and numbers over HTTP. Asks the journal what waits, at most once a second.

logger = redacted_logger(__name__)

LOOPBACK = "127.0.0.1"
_OWN_HOSTS = frozenset({LOOPBACK, "localhost", "::1"})
_OWN_NAMES = frozenset({LOOPBACK, "localhost", "[::1]"})
_OPEN_SECONDS = 5.0
"""How long a connection without a request stays open."""
_FRESH_SECONDS = 1.0
"""How long what the journal said of its queue is told again."""
_ANSWER_SECONDS = 2.0
"""How long the journal has to say what waits."""
_DOUBTS_SECONDS = 60.0
"""How long the number of doubts is told again: each session that has not ended is read for it."""

Condition: TypeAlias = Literal["beginning", "ready", "draining", "waiting_for_journal", "superseded"]
"""`ready`: it takes sessions; `superseded`: another worker has its name, and it ends."""


class WorkerCondition(msgspec.Struct, frozen=True, kw_only=True):
    """What `/health` answers."""

    status: Condition
    worker: str
    sessions: int = 0
    """How many it runs now."""
    done: int = 0
    """How many runs it has brought to an end or a pause."""


class Queue:
    """What waits in a journal for a worker, whichever."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._asked_at = float("-inf")
        self._samples: list[Sample] = []
        self._doubts: list[Sample] = []
        self._doubts_at = float("-inf")
        self._asking = asyncio.Lock()

    async def samples(self) -> list[Sample]:
        """Return the numbers of what waits. Where the journal does not answer in time, say that alone."""
        async with self._asking:
            loop = asyncio.get_running_loop()
            if loop.time() - self._asked_at >= _FRESH_SECONDS:
                try:
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        self._samples = await self._ask()
                except (JournalError, TimeoutError) as error:
                    logger.info("The journal does not say what waits: %s", error or "it did not answer in time")
                    self._samples = [Sample("treadle_queue_seen", 0)]
                self._asked_at = loop.time()
            return self._samples

    async def _ask(self) -> list[Sample]:
        now, begun = self._clock.now(), time.monotonic()
        items = await self._journal.due()
        ready = await self._journal.due(before=now)
        due_since: defaultdict[str, list[float]] = defaultdict(list)
        for item in ready:
            if item.kind == "task":
                due_since[item.tenant].append(min(item.at, now))
        samples = [
            Sample("treadle_queue_seen", 1),
            Sample("treadle_approvals_expiring", sum(item.kind == "approval" for item in items)),
            *await self._for_people(now),
        ]
        for tenant, times in sorted(due_since.items()):
            whose = (("tenant", tenant),)
            samples.append(Sample("treadle_queue_tasks", len(times), whose))
            samples.append(Sample("treadle_queue_oldest_seconds", now - min(times), whose))
        return [*samples, Sample("treadle_journal_answer_seconds", time.monotonic() - begun)]

    async def _for_people(self, now: float) -> list[Sample]:
        """Return how much waits for a person, and for how long."""
        tenants = {
            info.id: info.tenant for info in await self._journal.sessions(SessionFilter(run_statuses=("paused",)))
        }
        asked_since: defaultdict[str, list[float]] = defaultdict(list)
        for approval in await self._journal.approvals():
            asked_since[tenants.get(approval.root_id or approval.session_id, "")].append(approval.requested_at)
        samples = []
        for tenant, times in sorted(asked_since.items()):
            whose = (("tenant", tenant),)
            samples.append(Sample("treadle_approvals_open", len(times), whose))
            samples.append(Sample("treadle_approvals_oldest_seconds", now - min(times), whose))
        suspended = await self._journal.sessions(SessionFilter(statuses=("suspended",)))
        samples.append(Sample("treadle_sessions_suspended", len(suspended)))
        if (time_now := asyncio.get_running_loop().time()) - self._doubts_at >= _DOUBTS_SECONDS:
            since = [doubt.since for doubt in await list_doubts(self._journal)]
            self._doubts = [Sample("treadle_doubts_open", len(since))]
            self._doubts += [Sample("treadle_doubts_oldest_seconds", now - min(since))] if since else []
            set_aside = [info.id for info in suspended if await self._is_set_aside(info.id)]
            self._doubts.append(Sample("treadle_sessions_set_aside", len(set_aside)))
            self._doubts_at = time_now
        return [*samples, *self._doubts]

    async def _is_set_aside(self, session_id: str) -> bool:
        changes = [
            one for one in await self._journal.read(session_id) if isinstance(one, SessionChanged) and one.status
        ]
        return bool(changes) and changes[-1].by == "worker"


class HealthServer:
    """Answers `/live`, `/health` and `/metrics` on a port.

    Args:
        port: 0 for any free one.
        host: The address that it listens on.
        condition: Says how the worker is.
        gauges: Returns the numbers that are looked up when they are asked for.

    Raises:
        ConfigurationError: The port is taken.
    """

    def __init__(
        self,
        port: int,
        metrics: Metrics,
        condition: Callable[[], WorkerCondition],
        gauges: Callable[[], Awaitable[Iterable[Sample]]],
        *,
        host: str = LOOPBACK,
    ) -> None:
        self._port = port
        self._host = host
        self._metrics = metrics
        self._condition = condition
        self._gauges = gauges
        self._runner: web.AppRunner | None = None
        self.address = ""
        """Such as `http://127.0.0.1:9464`; empty while it does not serve."""

    async def start(self) -> None:
        from aiohttp import web  # noqa: PLC0415 - heavy, and used by workers that serve their health alone

        app = _application(self._metrics, self._condition, self._gauges, is_open=self.is_open)
        self._runner = web.AppRunner(
            app, access_log=None, logger=_request_log(), keepalive_timeout=_OPEN_SECONDS, shutdown_timeout=0.5
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self.close()
            why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be listened on: {error.strerror}"
            raise ConfigurationError(
                f"Port {self._port} of {self._host} {why}. Name another one for the worker's health: "
                "--health PORT, or Worker(health_port=...)."
            ) from error
        host, port = self._runner.addresses[0][:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if self.is_open:
            logger.warning(
                "Whoever reaches %s reads the names of tenants, agents, models and tools, and what they cost: "
                "let the network allow only what probes and collects.",
                self.address,
            )

    @property
    def is_open(self) -> bool:
        """Whether others than this machine may reach it."""
        return self._host not in _OWN_HOSTS

    async def close(self) -> None:
        """Stop serving. May be called twice."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()


def _application(
    metrics: Metrics,
    condition: Callable[[], WorkerCondition],
    gauges: Callable[[], Awaitable[Iterable[Sample]]],
    *,
    is_open: bool,
) -> "web.Application":
    from aiohttp import web  # noqa: PLC0415 - as above

    # A web page may have its own name point at this machine: who asks for another name is refused.
    @web.middleware
    async def own_names_only(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        host = request.host.lower()
        if host.rpartition(":")[0] not in _OWN_NAMES and host not in _OWN_NAMES:
            raise web.HTTPForbidden(text="Ask for 127.0.0.1 or localhost.\n")
        return await handler(request)

    def state(*, is_well: bool) -> web.Response:
        body = msgspec.json.encode(condition()) + b"\n"
        return web.Response(body=body, status=200 if is_well else 503, content_type="application/json")

    async def live(
        _: web.Request,
    ) -> web.Response:  # the process answers: whoever restarts processes need not restart it
        return state(is_well=condition().status != "superseded")

    async def health(_: web.Request) -> web.Response:
        return state(is_well=condition().status == "ready")

    async def numbers(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(await gauges()).encode(), headers={"Content-Type": CONTENT_TYPE})

    async def index(_: web.Request) -> web.Response:
        return web.Response(text="A Treadle worker. Ask for /live, /health or /metrics.\n")

    app = web.Application(middlewares=() if is_open else [own_names_only])
    for path, handler in (("/live", live), ("/health", health), ("/metrics", numbers), ("/", index)):
        app.router.add_get(path, handler)
    return app


def worker_samples(info: WorkerInfo | None, condition: WorkerCondition) -> list[Sample]:
    """Return the numbers of a worker itself."""
    samples = [
        Sample("treadle_worker_ready", condition.status == "ready"),
        Sample("treadle_sessions_running", condition.sessions),
    ]
    if info is not None:
        samples += [
            Sample("treadle_worker_info", 1, (("worker", info.name), ("host", info.host), ("pid", str(info.pid)))),
            Sample("treadle_worker_started_seconds", info.since),
            Sample("treadle_worker_concurrency", info.concurrency),
        ]
        samples += [
            Sample("treadle_limit_waiting", count, (("reason", reason),)) for reason, count in info.waiting.items()
        ]
    return samples


def _request_log() -> logging.Logger:
    """Return where the server logs: its own faults, and not each request that is too long or no HTTP, which is answered with 400."""
    log = logging.getLogger(f"{__name__}.requests")
    log.addFilter(_is_own_fault)
    return log


def _is_own_fault(record: logging.LogRecord) -> bool:
    from aiohttp.http_exceptions import HttpProcessingError  # noqa: PLC0415 - as above

    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


# --- Which session and run a line of a log belongs to, where a worker runs many side by side.

_AGAIN_SECONDS = 60.0
"""How often it is said again that a journal is away."""
_said: dict[str, float] = {}
"""When this process has last said it, by journal."""


def tell_away(logger: logging.Logger, journal: str, message: str, *values: object) -> None:
    """Log that a journal is away: at once, then once a minute for all who ask for it in this process; else for debugging only."""
    now = time.monotonic()
    is_due = now - _said.get(journal, float("-inf")) >= _AGAIN_SECONDS
    if is_due:
        _said[journal] = now
    logger.log(logging.WARNING if is_due else logging.DEBUG, message, *values)


def tell_back(journal: str) -> None:
    """Note that a journal answers: its next absence is said at once."""
    _said.pop(journal, None)


class Traces(msgspec.Struct):
    """What is being run, as far as it is known. One object for a session under way, filled in on the way."""

    session_id: str = ""
    run_id: str = ""
    tenant: str = ""
    agent: str = ""


TRACES: ContextVar[Traces | None] = ContextVar("treadle_worker_traces", default=None)


class SessionLogFilter(logging.Filter):
    """Gives each record `session_id`, `run_id`, `tenant` and `agent`: empty where a worker does not run a session there.

    The records of your own tools get them too. Add it to a handler, not to a logger:

    Example:
        handler = logging.StreamHandler()
        handler.addFilter(SessionLogFilter())
        handler.setFormatter(logging.Formatter("%(levelname)s %(session_id)s %(message)s"))
    """

    def __init__(self) -> None:
        super().__init__()

    @checked
    def filter(self, record: logging.LogRecord) -> bool:
        """Fill in the record. It is never discarded."""
        traces = TRACES.get() or Traces()
        for name in Traces.__struct_fields__:
            setattr(record, name, getattr(traces, name))
        return True
