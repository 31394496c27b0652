"""A worker's health and numbers over HTTP, on loopback only. Asks the journal what waits, at most once a second."""

import asyncio
import errno
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, JournalError
from treadle.ports import Clock, Journal
from treadle.redaction import redacted_logger
from treadle.workers.metrics import CONTENT_TYPE, Metrics, Sample
from treadle.workers.presence import WorkerInfo

if TYPE_CHECKING:
    from aiohttp import web  # imported when a worker serves its health: most do not

__all__ = ["Condition", "HealthServer", "Queue", "WorkerCondition", "worker_samples"]

logger = redacted_logger(__name__)

_HOST = "127.0.0.1"
_OWN_NAMES = frozenset({_HOST, "localhost", "[::1]"})
_OPEN_SECONDS = 5.0
"""How long a connection without a request stays open."""
_FRESH_SECONDS = 1.0
"""How long what the journal said of its queue is told again."""
_ANSWER_SECONDS = 2.0
"""How long the journal has to say what waits."""

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
        now = self._clock.now()
        items = await self._journal.due()
        ready = await self._journal.due(before=now)
        due_since: defaultdict[str, list[float]] = defaultdict(list)
        for item in ready:
            if item.kind == "task":
                due_since[item.tenant].append(min(item.at, now))
        samples = [
            Sample("treadle_queue_seen", 1),
            Sample("treadle_approvals_expiring", sum(item.kind == "approval" for item in items)),
        ]
        for tenant, times in sorted(due_since.items()):
            whose = (("tenant", tenant),)
            samples.append(Sample("treadle_queue_tasks", len(times), whose))
            samples.append(Sample("treadle_queue_oldest_seconds", now - min(times), whose))
        return samples


class HealthServer:
    """Answers `/live`, `/health` and `/metrics` on a port of loopback.

    Args:
        port: 0 for any free one.
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
    ) -> None:
        self._port = port
        self._metrics = metrics
        self._condition = condition
        self._gauges = gauges
        self._runner: web.AppRunner | None = None
        self.address = ""
        """Such as `http://127.0.0.1:9464`; empty while it does not serve."""

    async def start(self) -> None:
        from aiohttp import web  # noqa: PLC0415 - heavy, and used by workers that serve their health alone

        app = web.Application()
        app.router.add_get("/live", self._live)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._numbers)
        app.router.add_get("/", self._index)
        self._runner = web.AppRunner(
            app, access_log=None, logger=_request_log(), keepalive_timeout=_OPEN_SECONDS, shutdown_timeout=0.5
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, _HOST, self._port).start()
        except OSError as error:
            await self.close()
            why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be listened on: {error.strerror}"
            raise ConfigurationError(
                f"Port {self._port} of {_HOST} {why}. Name another one for the worker's health: "
                "--health PORT, or Worker(health_port=...)."
            ) from error
        host, port = self._runner.addresses[0][:2]
        self.address = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop serving. May be called twice."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    # --- what is asked

    async def _live(self, request: "web.Request") -> "web.Response":
        """The process answers: whoever restarts processes need not restart this one."""
        return self._as_json(request, is_well=self._condition().status != "superseded")

    async def _health(self, request: "web.Request") -> "web.Response":
        """The worker takes sessions."""
        return self._as_json(request, is_well=self._condition().status == "ready")

    async def _numbers(self, request: "web.Request") -> "web.Response":
        from aiohttp import web  # noqa: PLC0415 - as above

        _refuse_strangers(request)
        text = self._metrics.text(await self._gauges())
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _index(self, request: "web.Request") -> "web.Response":
        from aiohttp import web  # noqa: PLC0415 - as above

        _refuse_strangers(request)
        return web.Response(text="A Treadle worker. Ask for /live, /health or /metrics.\n")

    def _as_json(self, request: "web.Request", *, is_well: bool) -> "web.Response":
        from aiohttp import web  # noqa: PLC0415 - as above

        _refuse_strangers(request)
        body = msgspec.json.encode(self._condition()) + b"\n"
        return web.Response(body=body, status=200 if is_well else 503, content_type="application/json")


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


def _refuse_strangers(request: "web.Request") -> None:
    """Refuse a request that was made for another name: a web page that had its own name point at this machine.

    Raises:
        HTTPForbidden: The request's host is not this machine's own.
    """
    from aiohttp import web  # noqa: PLC0415 - as above

    if request.host.rpartition(":")[0].lower() not in _OWN_NAMES and request.host.lower() not in _OWN_NAMES:
        raise web.HTTPForbidden(text="Ask for 127.0.0.1 or localhost.\n")
