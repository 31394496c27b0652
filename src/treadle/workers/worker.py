"""A worker: takes sessions from its dispatcher, runs them side by side, and says that it is there. Knows no queue."""

import asyncio
import copy
import inspect
import os
import random
import shlex
import socket
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args

import msgspec
from msgspec.structs import replace

from treadle.agents.agent import Agent
from treadle.agents.registry import changed_parts, check_agent
from treadle.budgets import budget_from
from treadle.engine.lifecycle import Lifecycle
from treadle.engine.offering import check_deps
from treadle.engine.spec import RunResult
from treadle.errors import (
    AgentChanged,
    ConfigurationError,
    JournalError,
    NothingToResume,
    RunHandedOver,
    SessionConflict,
    SessionHeld,
    SessionNotActive,
    TreadleError,
    UnknownAgent,
    UnknownSession,
    WorkerNameTaken,
    shown,
)
from treadle.events import AnyEvent
from treadle.fields import Documented, checked, checked_but
from treadle.journals.store import broken_off, can_continue, held_of, with_messages
from treadle.ports import Clock, Delivery, Dispatcher, HasBell, Journal, Model, SessionFilter
from treadle.redaction import redacted_logger
from treadle.resolve import open_session
from treadle.resolve.journals import SystemClock
from treadle.sessions.answering import store_time, time_of
from treadle.sessions.maintenance import take_in
from treadle.sessions.session import Session
from treadle.state import RunState, SessionState
from treadle.workers.health import (
    LOOPBACK,
    TRACES,
    Condition,
    HealthServer,
    Metrics,
    Queue,
    Sample,
    Traces,
    WorkerCondition,
    tell_away,
    tell_back,
    worker_samples,
)
from treadle.workers.limits import Limit, LimitReachedNow, Limits, Subject, checked_limit
from treadle.workers.presence import Presence, WorkerInfo, boot_id, checked_worker_name, list_workers
from treadle.workers.submitting import shared_journal

__all__ = [
    "AgentMaker",
    "Delivered",
    "Finder",
    "JournalDispatcher",
    "SessionRunner",
    "StrandedSession",
    "Work",
    "Worker",
    "stranded_sessions",
]


# --- Carrying out what is to be done in one session: its submitted task, or the run that can continue. The lease and
# the events decide.

logger = redacted_logger(__name__)

AgentMaker: TypeAlias = Callable[[], Agent | Awaitable[Agent]]
"""Makes an agent, once for a worker."""

_NOT_OURS = (
    SessionHeld,
    SessionConflict,
    UnknownAgent,
    AgentChanged,
    UnknownSession,
    SessionNotActive,
    NothingToResume,
)
"""What says that another worker, or a person, has the session, or is to have it."""


_WAITS_SECONDS = 5.0
"""How long no other run begins because of a suspect that waits. It is delivered again much sooner, here or elsewhere."""


class SessionRunner:
    """Runs sessions for a worker.

    Args:
        agents: What makes each agent, by the name under which tasks are submitted.
        tries: How often the process of a run may die at one place until the session is set aside.
        metrics: Where what the runs do is counted; None to count nothing.
        accepts_change: Whether a run continues with an agent that has changed since the run began.
    """

    def __init__(
        self,
        journal: Journal,
        agents: Mapping[str, AgentMaker],
        *,
        clock: Clock,
        tries: int,
        deps: Any = None,  # Any: the application's own object
        limits: Limits | None = None,
        metrics: Metrics | None = None,
        accepts_change: bool = False,
    ) -> None:
        self._accepts_change = accepts_change
        self._limits = limits or Limits(journal, (), clock)
        self._metrics = metrics or Metrics()
        self._journal = journal
        self._is_handed_over = False
        self._makers = agents
        self._made: dict[str, Agent] = {}
        self._clock = clock
        self._tries = tries
        self._deps = deps
        self._failures: dict[str, int] = {}
        self._lives: dict[Lifecycle, str] = {}
        self._suspect: tuple[str, float] = ("", 0.0)
        self.presence: Presence | None = None
        """The worker's place in the journal; None where it has none."""
        self.on_refused: Callable[[str], Awaitable[None]] | None = None
        """Called with a session whose agent this worker has not, or has changed."""

    @property
    def sessions(self) -> tuple[str, ...]:
        """The sessions that are being run."""
        return tuple(self._lives.values())

    async def run(self, session_id: str) -> RunResult | None:
        """Do what is to be done in a session, or in the one at the top whose call it carries out.

        Returns:
            How its run ended or paused; None where there was nothing to do for this worker, or there is more to do at once.

        Raises:
            LimitReachedNow: It has to wait, because of a limit.
        """
        whose = Subject()
        traces = Traces(session_id=session_id)
        TRACES.set(traces)
        life: Lifecycle | None = None
        try:
            async with self._opened(session_id) as session:
                if session.state.caller is not None:
                    return await self.run(session.state.root_id)
                life = await self._life(session)
                if life is None:
                    return None
                whose = self._subject(session)
                traces.tenant, traces.agent = whose.tenant, whose.agent
                life.subscribers.append(partial(_trace_run, traces))
                return await self._run(session, life, whose)
        except RunHandedOver:
            logger.info("Session %s is handed over: another worker resumes it.", session_id)
        except _NOT_OURS as error:
            if isinstance(error, SessionHeld | SessionConflict):
                self._metrics.add("treadle_lease_conflicts_total", tenant=whose.tenant, agent=whose.agent)
            logger.debug("Session %s is left to others: %s", session_id, error)
            await self._tell_refused(session_id, error)
        except JournalError as error:
            self._metrics.failed(whose, error)
            logger.warning("Session %s stopped, because its journal failed: %s It continues later.", session_id, error)
        except TreadleError as error:
            self._metrics.failed(whose, error)
            await self._set_aside_after(session_id, error)
        finally:
            if life is not None:
                self._lives.pop(life, None)
        return None

    async def _tell_refused(self, session_id: str, error: TreadleError) -> None:
        if self.on_refused is not None and isinstance(error, UnknownAgent | AgentChanged):
            with suppress(JournalError):  # it is found again
                await self.on_refused(session_id)

    async def _run(self, session: Session, life: Lifecycle, whose: Subject) -> RunResult | None:
        """Run it within the limits. Return its end; None where it paused, and something has arrived that continues it."""
        run = session.state.run
        is_takeover = not life.takes_submitted and run is not None and run.status == "running"
        task = session.state.submitted if life.takes_submitted else None
        due_at = None if task is None else max(task.at, task.due_at or 0.0)
        life.watchers.append(self._metrics.watching(whose, session.id, is_takeover=is_takeover, due_at=due_at))
        async with self._limits.place(whose):
            self._count_in(life, session.id)
            try:
                result = await life.finish()
            finally:
                self._suspect = ("", 0.0) if life.is_alone else self._suspect
        self._failures.pop(session.id, None)
        _log_end(result)
        return None if result.status == "paused" and await self._can_continue(session) else result

    async def _can_continue(self, session: Session) -> bool:
        now = await time_of(session.journal, self._clock)
        return await can_continue(session.journal, session.state, now=now)

    def _subject(self, session: Session) -> Subject:
        """Return what limits may be about."""
        state = session.state
        agent = (
            state.submitted.agent if state.submitted is not None else state.run.agent if state.run is not None else ""
        )
        tenant = state.metadata.get("tenant", "")
        model = self._made[agent].model.name if agent in self._made else ""
        return Subject(tenant=tenant if isinstance(tenant, str) else "", agent=agent, model=model)

    async def hand_over(self) -> None:
        """Let go of all sessions where they stand: nothing more is recorded of them here, and other workers resume them."""
        self._is_handed_over = True
        await asyncio.gather(*(life.hand_over() for life in self._lives))

    def _opened(self, session_id: str) -> AbstractAsyncContextManager[Session]:
        return open_session(self._journal, id=session_id, clock=self._clock, must_exist=True)

    async def _life(self, session: Session) -> Lifecycle | None:
        """Return the run that is to begin or to continue; None where there is none."""
        session.check_active()
        state = session.state
        run = state.run
        if state.submitted is not None:
            return await self._beginning(session)
        if run is None or not await self._can_continue(session):
            return None
        is_suspect = False
        if run.deaths_now >= self._tries and not await held_of(session.journal, [session.id]):
            if self.presence is not None and not self.presence.is_settled:
                return None
            died = [worker for worker in run.lost_now if await self._has_died(worker)]
            is_suspect = len(died) >= self._tries
            if is_suspect and run.is_alone and run.worker in died:
                why = f"Its worker died {len(died)} times at the same place, the last time while it ran nothing else."
                await self._set_aside(session, why)
                return None
        life = await self._continuing(session, run)
        life.is_alone = is_suspect
        return life

    async def _has_died(self, worker: str) -> bool:
        """Whether a process died that had the run. A worker that had handed it over, or has lost it with its journal and lives, did not."""
        return self.presence is None or not worker or await self.presence.died(worker)

    # --- a suspect runs alone: any of the runs that a dead process had may have ended it

    def _count_in(self, life: Lifecycle, session_id: str) -> None:
        """Count a run among those under way. While a suspect runs, or waits for their end, no other begins.

        Raises:
            LimitReachedNow: It has to wait for another.
            RunHandedOver: The worker ends.
        """
        if self._is_handed_over:
            raise RunHandedOver("The worker ends: other workers run its sessions.")
        suspect, until = self._suspect
        is_near = suspect in self._lives.values() or time.monotonic() < until
        if is_near and suspect != session_id:
            raise LimitReachedNow(f"session {suspect}, which runs alone because its worker has died several times")
        if life.is_alone:
            self._suspect = (session_id, time.monotonic() + _WAITS_SECONDS)
            if self._lives:
                raise LimitReachedNow("a session that runs alone, because its worker has died several times")
        self._lives[life] = session_id

    async def _beginning(self, session: Session) -> Lifecycle:
        task = session.state.submitted
        assert task is not None
        agent = await self._agent(task.agent)
        life = agent._life(  # noqa: SLF001 - a worker starts runs of the agent, as `run` does
            _opening(session),
            task=task.message,
            deps=self._deps,
            budget=None if task.budget is None else budget_from(task.budget),
            deadline=task.deadline,
        )
        life.takes_submitted, life.admit, life.worker = True, _check_waits, self._mark
        return life

    async def _continuing(self, session: Session, run: RunState) -> Lifecycle:
        agent = await self._agent(run.agent)
        life = agent._life(_opening(session), task=None, deps=self._deps, budget=None, deadline=None)  # noqa: SLF001 - as above

        def admit(session: Session) -> None:
            now = session.state.run
            if now is None or now.status not in ("running", "paused"):
                raise SessionConflict(f"The run of session {session.id!r} has ended meanwhile.")
            check_agent(agent, session, accepts=self._accepts_change)

        life.admit, life.worker = admit, self._mark
        return life

    @property
    def _mark(self) -> str:
        return "" if self.presence is None else self.presence.mark

    async def _agent(self, name: str) -> Agent:
        """Return the agent of this name, made once.

        Raises:
            UnknownAgent: This worker has none.
            ConfigurationError: It could not be made.
        """
        if name not in self._makers:
            raise UnknownAgent(f"This worker has no agent {shown(name)}.")
        if name not in self._made:
            (named,) = (await made_agents({name: self._makers[name]})).values()
            self._made[name] = _with_model(named, self._limits.limiting(named.model))
        return self._made[name]

    @property
    def fingerprints(self) -> dict[str, dict[str, str]]:
        """Digests of the agents that were made, by name and part."""
        return {name: dict(agent.fingerprint) for name, agent in self._made.items()}

    async def check_agents(self) -> None:
        """Make every agent and check it, before any session is taken.

        Raises:
            ConfigurationError: One could not be made, is wrong, or has a tool that needs `deps` which were not given.
        """
        for name in self._makers:
            agent = await self._agent(name)
            agent.check()
            check_deps(agent.tools, self._deps)

    async def _set_aside_after(self, session_id: str, error: TreadleError) -> None:
        """Count a run that could not begin or continue, and set its session aside after some tries."""
        self._failures[session_id] = failures = self._failures.get(session_id, 0) + 1
        logger.warning("Session %s could not be run: %s", session_id, error)
        if failures >= self._tries:
            async with self._opened(session_id) as session:
                await self._set_aside(session, f"It could not be run: {error}")

    async def _set_aside(self, session: Session, reason: str) -> None:
        logger.warning("Session %s is set aside. %s", session.id, reason)
        self._failures.pop(session.id, None)
        try:
            await session.change(status="suspended", by="worker", reason=reason)
        except (SessionHeld, SessionConflict) as error:
            logger.info("Session %s is not set aside after all: %s", session.id, error)


def _trace_run(traces: Traces, event: AnyEvent) -> None:
    traces.run_id = event.run_id or traces.run_id


def makers_of(agents: Mapping[str, AgentMaker] | Iterable[Agent]) -> dict[str, AgentMaker]:
    """Return what makes each agent, by its name. Raises ConfigurationError: there is none, one has no name, or two have the same."""
    if isinstance(agents, Mapping):
        makers: dict[str, AgentMaker] = {}
        for name, make in agents.items():
            if not isinstance(name, str) or not name:
                raise ConfigurationError(f"The name of an agent must be a string that is not empty; got {shown(name)}.")
            makers[name] = partial(_same, make) if isinstance(make, Agent) else make
            if not callable(makers[name]):
                raise ConfigurationError(
                    f"Worker(agents={{{name!r}: ...}}) needs a function that makes the agent; got {shown(make)}."
                )
    else:
        makers = {agent.name: partial(_same, agent) for agent in _named_agents(agents)}
    if not makers:
        raise ConfigurationError("A worker needs at least one agent: Worker(journal, agents={'support': make_agent}).")
    return makers


def _named_agents(agents: Iterable[Agent]) -> list[Agent]:
    known = list(agents) if isinstance(agents, Iterable) else [agents]
    for agent in known:
        if not isinstance(agent, Agent) or not agent.name:
            raise ConfigurationError(
                f"A worker's agent needs a name: Agent(model, name='support'); got {shown(agent)}."
            )
    if len({agent.name for agent in known}) < len(known):
        raise ConfigurationError("Two agents of the worker have the same name. Give each a name of its own.")
    return known


def _same(agent: Agent) -> Agent:
    return agent


async def made_agents(makers: Mapping[str, AgentMaker]) -> dict[str, Agent]:
    """Make agents, each by the name under which its tasks are submitted. Raises ConfigurationError: one could not be made."""
    return {name: _named(await _agent_of(make, name), name) for name, make in makers.items()}


async def _agent_of(make: AgentMaker, name: str) -> object:
    """Call a function that makes an agent. Raises ConfigurationError: it failed."""
    try:
        agent = make()
        return await agent if inspect.isawaitable(agent) else agent
    except TreadleError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"The function for the agent {name!r} failed: {type(error).__name__}: {error} ({_place(error)})."
        ) from error


def _place(error: BaseException) -> str:
    """Say where an exception was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"


def _named(agent: object, name: str) -> Agent:
    """Return an agent that has the name under which its tasks are submitted."""
    if not isinstance(agent, Agent):
        raise ConfigurationError(
            f"The function for the agent {name!r} returned {shown(agent)}. Give a function that returns an Agent: "
            f"Worker(journal, agents={{{name!r}: make_agent}})."
        )
    if agent.name == name:
        return agent
    return agent.replace(name=name)


def _with_model(agent: Agent, model: Model) -> Agent:
    """Return an agent that asks this model, which has the same name as its own."""
    if model is agent.model:
        return agent
    changed = copy.copy(agent)
    changed._model = changed._found = model  # noqa: SLF001 - a copy of ours
    return changed


def _opening(session: Session) -> Callable[[], Awaitable[Session]]:
    async def opening() -> Session:
        return session

    return opening


def _check_waits(session: Session) -> None:
    if session.state.submitted is None:
        raise SessionConflict(f"The task of session {session.id!r} was taken by another worker, or was cancelled.")


def _log_end(result: RunResult) -> None:
    """Log one line for a run that has ended or paused, with its figures."""
    spent = result.spent
    run = {
        "status": result.status,
        "reason": str(result.reason),
        "steps": result.steps,
        "calls": spent.tool_calls,
        "tokens": spent.usage.input_tokens + spent.usage.output_tokens,
        "cost": None if spent.cost is None else f"{spent.cost:f}",
        "seconds": round(spent.wall_seconds, 3),
    }
    said = ", ".join(f"{name} {value}" for name, value in run.items() if name != "status")
    logger.info("Run %s %s: %s", result.run_id, result.status, said, extra={"run": run})


# --- Finding what is to be done in a journal, without a queue beside it: submitted tasks, answers, due times, and runs
# whose process died.

GLANCE_SECONDS = 0.02
"""How often a look is taken at whether the journal's file has changed."""
LOOK_SECONDS = 0.25
"""How often the journal is asked, where nothing says that it has changed: no file that grows, and no bell that rings."""
SWEEP_SECONDS = 0.5
"""How often runs are looked for whose process has died."""
_SHARE = 5
"""A look at a journal takes at most one part in so many of the time."""
_BACKOFF_SECONDS = (0.1, 30.0)
"""How long a session is left alone in which there was nothing to do: it doubles from the first to the last."""
_CHOICE = 8
"""Workers choose at random among so many: two that choose the same are in each other's way."""


class Work(msgspec.Struct, frozen=True):
    """A session in which there may be something to do."""

    session_id: str
    tenant: str = ""
    """Whose task it is; empty for what continues."""
    priority: int = 0
    at: float = 0.0
    is_task: bool = False
    """Whether a run begins; else one continues."""


class Finder:
    """Asks a journal what is to be done: submitted tasks, answers, due times, and runs that nobody holds."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._swept_at = float("-inf")

    async def find(self, *, but: Collection[str] = ()) -> list[Work]:
        """Return the sessions in which there may be something to do. `but`: sessions that this process runs."""
        now, loop = self._clock.now(), asyncio.get_running_loop()
        found = {
            item.session_id: Work(item.session_id, item.tenant, item.priority, item.at, item.kind == "task")
            for item in await self._journal.due(before=now)
            if item.kind != "deadline"  # a run that is live ends itself, and one that is not is found by other ways
        }
        found |= {one: Work(one) for one in await with_messages(self._journal) if one not in found}
        if loop.time() - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = loop.time()
            found |= {one: Work(one) for one in await broken_off(self._journal, but=but) if one not in found}
        return [work for work in found.values() if work.session_id not in but]


class _Backlog:
    """What was found and not taken yet, by tenants."""

    def __init__(self, found: Iterable[Work] = ()) -> None:
        self._continuing: list[Work] = []
        self._tasks: defaultdict[str, list[Work]] = defaultdict(list)
        for work in found:
            (self._tasks[work.tenant] if work.is_task else self._continuing).append(work)
        for tasks in self._tasks.values():
            tasks.sort(key=lambda work: (work.priority, -work.at))  # the first is at the end, where it is taken fast

    def __len__(self) -> int:
        return len(self._continuing) + sum(map(len, self._tasks.values()))

    def take(self, busy: Counter[str], served: Counter[str], resting: Collection[str]) -> Work | None:
        """Return what is to be done first: what continues, then a task of the tenant that has had least and does not rest."""
        if self._continuing:
            return self._continuing.pop(random.randrange(len(self._continuing)))  # noqa: S311 - no secret
        waiting = [one for one in self._tasks if one not in resting]
        if not waiting:
            return None
        tenant = min(waiting, key=lambda one: (busy[one], served[one], one))
        tasks = self._tasks[tenant]
        equal = sum(work.priority == tasks[-1].priority for work in tasks[-_CHOICE:])
        work = tasks.pop(-1 - random.randrange(equal))  # noqa: S311 - no secret
        if not tasks:
            del self._tasks[tenant]
        return work


class Delivered(msgspec.Struct, frozen=True):
    """The `Delivery` of a session: whoever delivered it is told of its end."""

    session_id: str
    end: "_End"


class _End(Protocol):
    def __call__(self, *, is_done: bool, waits: bool = False) -> Coroutine[Any, Any, None]: ...


class _Backoff(msgspec.Struct):
    """A session in which there was nothing to do."""

    seconds: float = _BACKOFF_SECONDS[0]
    until: float = 0.0


class JournalDispatcher:
    """The `Dispatcher` of workers that read the journal itself.

    Args:
        tenants: Whose tasks it delivers; None for those of every tenant.
    """

    @checked
    def __init__(self, journal: Journal, *, clock: Clock, tenants: Collection[str] | None = None) -> None:
        self._tenants = None if tenants is None else frozenset(tenants)
        self._finder = Finder(journal, clock)
        self._place = journal.location
        self._file = _log_of(self._place)
        self._backlog = _Backlog()
        self._look_again_at = float("-inf")
        self._running: dict[str, str] = {}  # sessions that were delivered here, with their tenants
        self._backoffs: dict[str, _Backoff] = {}
        self._served: Counter[str] = Counter()
        self._resting: dict[str, float] = {}
        self._nudge = asyncio.Event()
        self._bell = journal if isinstance(journal, HasBell) else None
        self._listening = AsyncExitStack()

    @checked
    async def send(
        self, session_id: str, *, at: float | None = None, priority: int = 0, tenant: str | None = None
    ) -> None:
        """Look at the journal at once: the session waits there already."""
        self._nudge.set()

    async def next(self) -> Delivered:
        if self._bell is not None:
            bell, self._bell = self._bell, None
            await self._listening.enter_async_context(bell.hear_bell(self._nudge.set))
        while True:
            if self._backlog and asyncio.get_running_loop().time() >= self._look_again_at:
                await self._look()  # others have taken some of it, and what came since may be more urgent
            if (work := self._choose()) is not None:
                self._running[work.session_id] = work.tenant
                self._served[work.tenant] += 1
                return Delivered(work.session_id, partial(self._ended, work))
            await self._wait()
            await self._look()

    async def close(self) -> None:
        self._backlog, self._bell = _Backlog(), None
        await self._listening.aclose()

    @property
    def waiting(self) -> int:
        """How many sessions were found that no worker has taken yet, at the last look."""
        return len(self._backlog)

    # --- choosing

    def _choose(self) -> Work | None:
        busy = Counter(self._running.values())
        now = asyncio.get_running_loop().time()
        resting = {tenant for tenant, until in self._resting.items() if until > now}
        while (work := self._backlog.take(busy, self._served, resting)) is not None:
            if self._is_wanted(work):
                return work
        return None

    def _is_wanted(self, work: Work) -> bool:
        away = self._backoffs.get(work.session_id)
        return (
            work.session_id not in self._running
            and (self._tenants is None or not work.is_task or work.tenant in self._tenants)
            and (away is None or asyncio.get_running_loop().time() >= away.until)
        )

    # --- looking

    async def _wait(self) -> None:
        """Wait until the journal may hold something new."""
        seen, waited = _stamp_of(self._file), 0.0
        while waited < LOOK_SECONDS and not self._nudge.is_set():
            step = GLANCE_SECONDS if self._file else LOOK_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(step):
                    await self._nudge.wait()
            waited += step
            if self._file and _stamp_of(self._file) != seen:
                break
        self._nudge.clear()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            found = await self._finder.find(but=self._running)
        except JournalError as error:
            tell_away(
                logger,
                self._place,
                "The journal cannot be asked what is to be done: %s The worker waits for it.",
                error,
            )
            found = []
            await asyncio.sleep(SWEEP_SECONDS)
        else:
            tell_back(self._place)
        self._backlog = _Backlog(work for work in found if self._is_wanted(work))
        took = loop.time() - begun
        self._look_again_at = loop.time() + max(LOOK_SECONDS, _SHARE * took)
        if not self._backlog:
            await asyncio.sleep(min(took * (_SHARE - 1), SWEEP_SECONDS))

    # --- what happened to a delivery

    async def _ended(self, work: Work, *, is_done: bool, waits: bool = False) -> None:
        self._running.pop(work.session_id, None)
        soon = asyncio.get_running_loop().time() + LOOK_SECONDS
        if is_done:
            self._backoffs.pop(work.session_id, None)
        elif waits and work.is_task:
            self._resting[work.tenant] = soon
        elif waits:
            self._backoffs.setdefault(work.session_id, _Backoff()).until = soon
        else:
            away = self._backoffs.setdefault(work.session_id, _Backoff())
            away.until = asyncio.get_running_loop().time() + away.seconds
            away.seconds = min(2 * away.seconds, _BACKOFF_SECONDS[1])
        self._nudge.set()


def _log_of(location: str) -> str:
    """Return the file that grows with each commit; empty for a journal that is not a file here."""
    file = Path(location)
    return f"{location}-wal" if file.is_absolute() and file.exists() else ""


def _stamp_of(file: str) -> tuple[int, int] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# --- Stranding: which sessions wait for a worker although none that lives can continue them, and why. Runs nothing,
# changes nothing.

_OPEN = ("paused", "queued", "running")
_LOOK_SECONDS = 5.0
"""How often a worker looks again."""

Why: TypeAlias = Literal["agent_changed", "unknown_agent", "tenant", "no_worker"]


class StrandedSession(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A session that no living worker can continue."""

    session_id: str
    """The session that waits."""
    reason: Why
    """`agent_changed`: every worker's agent of this name differs from the one that began the run; `unknown_agent`: no worker has
    the agent; `tenant`: none takes tasks of its tenant; `no_worker`: none is running."""
    agent: str
    """Name of the agent that it needs."""
    tenant: str = ""
    """Whose task it is; empty for a run, which any worker may continue."""
    message: str
    """What is missing, and the next step."""


@checked_but("agents")
async def stranded_sessions(
    journal: Journal,
    *,
    agents: Mapping[str, AgentMaker] | Iterable[Agent] | None = None,
    session_ids: Collection[str] | None = None,
) -> tuple[StrandedSession, ...]:
    """Return the sessions that wait for a worker although no living worker can continue them.

    A session that a process runs now is not among them, nor is a task before its time, nor is one whose run a program began with an
    agent that no worker has: its program continues it. With `agents`, the question is a preview: which open sessions would strand if these were all agents?

    Example:
        for one in await stranded_sessions(journal, agents=[clerk]):
            print(one.session_id, one.message)

    Args:
        agents: What the workers are about to have, as `Worker` takes it; None for what the living workers have.
        session_ids: Look at these sessions only; None for all of the journal.

    Raises:
        ConfigurationError: An agent could not be made.
        JournalError: The store failed.
    """
    workers = await list_workers(journal) if agents is None else (_planned(await made_agents(makers_of(agents))),)
    ids = session_ids
    if ids is None:
        ids = [row.id for row in await journal.sessions(SessionFilter(run_statuses=_OPEN))]
    is_preview = agents is not None
    held = () if is_preview else await held_of(journal, ids)
    found = [await _judged(journal, one, workers, is_preview=is_preview) for one in ids if one not in held]
    return tuple(one for one in found if one is not None)


class StrandedWatch:
    """What a worker knows of stranded sessions. It says so in one warning for each, where it is the oldest of the living workers.

    Args:
        worker: The worker's name.
    """

    def __init__(self, journal: Journal, worker: str) -> None:
        self._journal = journal
        self._worker = worker
        self._looked_at = float("-inf")
        self._found: dict[str, StrandedSession] = {}

    async def refused(self, session_id: str) -> None:
        """Look at a session that this worker cannot continue: perhaps another one can. Raises JournalError: the store failed."""
        workers = await list_workers(self._journal)
        one = await _judged(self._journal, session_id, workers, is_preview=False)
        if one is None:
            self._found.pop(session_id, None)
        elif self._found.get(session_id) != one:
            self._found[session_id] = one
            if min(workers, key=lambda worker: (worker.since, worker.name)).name == self._worker:
                logger.warning("Session %s is stranded: %s", session_id, one.message)

    def samples(self) -> list[Sample]:
        """Return how many sessions are stranded, as far as this worker has seen, by reason."""
        counts = Counter(one.reason for one in self._found.values())
        return [Sample("treadle_sessions_stranded", counts[why], (("reason", why),)) for why in get_args(Why)]

    async def look(self, now: float) -> None:
        """Look now and then at what was found before, and at the tasks of tenants that nobody serves."""
        time = asyncio.get_running_loop().time()
        if time - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = time
            with suppress(JournalError):  # the worker waits for it anyway
                await self._look(now)

    async def _look(self, now: float) -> None:
        workers = await list_workers(self._journal)
        served = {tenant for worker in workers for tenant in worker.tenants or ()}
        due: list[str] = []
        if all(worker.tenants is not None for worker in workers):
            items = await self._journal.due(before=now)
            due = [item.session_id for item in items if item.kind == "task" and item.tenant not in served]
        for session_id in dict.fromkeys((*self._found, *due)):
            await self.refused(session_id)


async def _read(journal: Journal, session_id: str) -> SessionState | None:
    try:
        return await take_in(SessionState(session_id), await journal.read(session_id))
    except JournalError as error:  # `treadle sessions` says of it that it cannot be read
        logger.debug("Session %s cannot be read: %s", session_id, error)
        return None


def _planned(agents: Mapping[str, Agent]) -> WorkerInfo:
    """Return a worker that has these agents, and takes the tasks of every tenant."""
    prints = {name: dict(agent.fingerprint) for name, agent in agents.items()}
    return WorkerInfo(name="", host="", pid=0, agents=tuple(agents), concurrency=1, since=0.0, fingerprints=prints)


async def _judged(
    journal: Journal, session_id: str, workers: Sequence[WorkerInfo], *, is_preview: bool
) -> StrandedSession | None:
    """Return why none of these workers can continue a session; None where one can, or where it waits for no worker."""
    state = await _read(journal, session_id)
    if state is None or state.own_status != "active" or state.caller is not None:
        return None
    task, run = state.submitted, state.run
    if task is not None:
        if task.due_at is not None and not is_preview and task.due_at > await time_of(journal, SystemClock()):
            return None
        agent, tenant, fingerprint = task.agent, task.tenant, {}
    elif run is not None and run.status in ("running", "paused"):
        agent, tenant, fingerprint = run.agent, "", run.fingerprint
        is_for_workers = bool(run.worker) or any(agent in worker.agents for worker in workers)
        if not (is_for_workers or (is_preview and agent)):
            return None
    else:
        return None
    if (found := _lack(agent, tenant if task is not None else None, fingerprint, workers)) is None:
        return None
    why, message = found
    start = f"treadle worker{'' if agent == 'default' else ' --agents FILE.py'}"
    start += {"tenant": f" --tenant {shlex.quote(tenant)}", "agent_changed": " --accept-change"}.get(why, "")
    tail = f" {_NEXT[why]}: {start} --journal {shlex.quote(journal.location)}"
    return StrandedSession(session_id=state.id, reason=why, agent=agent, tenant=tenant, message=message + tail)


_NEXT: dict[Why, str] = {
    "agent_changed": "Start a worker that has the agent as it was, or one that continues with the changed agent",
    "unknown_agent": "Start a worker that has it",
    "tenant": "Start a worker that takes them",
    "no_worker": "Start one that has the agent",
}


def _lack(
    agent: str, tenant: str | None, fingerprint: Mapping[str, str], workers: Sequence[WorkerInfo]
) -> tuple[Why, str] | None:
    """Return what the workers lack to continue a run of an agent, or to begin a task of a tenant; None for nothing."""
    if not (there := [worker for worker in workers if not worker.is_draining]):
        return "no_worker", f"It needs the agent {agent!r}, and no worker is running."
    if not (having := [worker for worker in there if agent in worker.agents]):
        known = ", ".join(sorted({repr(name) for worker in there for name in worker.agents}))
        return "unknown_agent", f"It needs the agent {agent!r}, and the workers have only {known}."
    if tenant is not None and not any(worker.tenants is None or tenant in worker.tenants for worker in having):
        return "tenant", f"No worker that has the agent {agent!r} takes tasks of the tenant {tenant!r}."
    changed = [None if worker.accepts_change else _changed(fingerprint, worker, agent) for worker in having]
    if all(changed):
        parts = ", ".join(dict.fromkeys(part for one in changed for part in one or ()))
        return "agent_changed", f"The agent {agent!r} has changed since it began the run. Changed: {parts}."
    return None


def _changed(fingerprint: Mapping[str, str], worker: WorkerInfo, agent: str) -> list[str]:
    now = worker.fingerprints.get(agent)  # an older worker does not say
    return [] if now is None else changed_parts(fingerprint, now)


# --- A worker: takes sessions from its dispatcher, runs them side by side, and says that it is there. Knows no queue.

TELL_SECONDS = 1.0
"""How often a worker writes what it does, where that has changed."""
_REMEMBERED_SECONDS = 10.0
"""How long a session that had to wait is counted."""
_APART_SECONDS = 5.0
"""A clock that differs by more from that of the database is reported."""
_TRIES_TO_BEGIN = 10
"""How often it asks a journal that was opened, and is away since, for its place, a second apart."""


class Worker:
    """Runs the sessions of a journal for which it has the agents, until it is stopped. Any number of workers can share a journal.

    Example:
        worker = Worker("agent.db", agents={"support": make_agent}, concurrency=8)
        await worker.run()

    Args:
        journal: A file's path, `postgresql://...`, or an open journal (it stays open).
        agents: Functions that create the agents, by the names under which tasks are submitted; or agents with names.
        concurrency: The maximum number of sessions that run in parallel.
        tenants: The tenants whose tasks it begins; None for all.
        name: Its name, unique among the workers of the journal; None for machine and process.
        dispatcher: Where sessions come from, closed at the end; None for the journal itself.
        deps: Your own object; tools read it as `ctx.deps`. Or a function of each session (`SessionSnapshot`) that returns it; it may be
            async, or open it with `@asynccontextmanager` and close it after the run.
        tries: How often a session's worker may die at one point before the session is tried alone, and set aside if it dies again.
        drain_seconds: How long runs may continue after `stop`, before they are handed over to other workers.
        limits: How much may run at once, and in a minute, over all workers that share the journal.
        health_port: The port on which it answers `/live`, `/health` and `/metrics`; 0 for any free port, None for none.
        health_host: Another address for that port, for probes and collectors that are not on this machine. Whoever reaches it reads
            the names of tenants, agents, models and tools, and what they cost.
        accepts_change: Whether it continues runs with its agents as they are now, if they have changed since: other tools,
            model or output. By default such a run waits for a worker that has the agent as it was.
        clock: Replaces the machine's clock, for tests.

    Raises:
        ConfigurationError: A value is invalid.
    """

    @checked_but("agents")
    def __init__(
        self,
        journal: str | Path | Journal,
        agents: Mapping[str, AgentMaker] | Iterable[Agent],
        *,
        concurrency: int = 4,
        tenants: Collection[str] | None = None,
        name: str | None = None,
        dispatcher: Dispatcher | None = None,
        deps: Any = None,  # Any: the application's own object
        tries: int = 3,
        drain_seconds: float = 30.0,
        limits: Collection[Limit] = (),
        health_port: int | None = None,
        health_host: str = LOOPBACK,
        accepts_change: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._journal = journal
        self._makers = makers_of(agents)
        _check_counts(concurrency, tries, drain_seconds)
        self._concurrency = concurrency
        self._tenants = _checked_tenants(tenants)
        self._name = checked_worker_name(name)
        self._dispatcher = dispatcher
        self._deps = deps
        self._tries = tries
        self._drain_seconds = drain_seconds
        self._limits = _checked_limits(limits)
        self._accepts_change = accepts_change
        self._clock = clock or SystemClock()
        self._waiting: dict[str, tuple[str, float]] = {}
        self._stopping = asyncio.Event()
        self._lost = asyncio.Event()
        self._is_superseded = False
        self._done = 0
        self._active: set[asyncio.Task[None]] = set()
        self._free = asyncio.Event()
        self._info: WorkerInfo | None = None
        self._runner: SessionRunner | None = None
        self._queue: Queue | None = None
        self._watch: StrandedWatch | None = None
        self._metrics = Metrics()
        self._health = None if health_port is None else self._health_on(health_port, health_host)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of its agents."""
        return tuple(self._makers)

    @property
    def info(self) -> WorkerInfo | None:
        """Its state; None before it has begun."""
        return None if self._info is None else replace(self._info, done=self._done)

    @property
    def health_address(self) -> str:
        """Where it answers, such as `http://127.0.0.1:9464`; empty while it does not."""
        return "" if self._health is None else self._health.address

    def stop(self) -> None:
        """Start no new work. Active runs have `drain_seconds` to end; then other workers take them over."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop` is called. Cancelling it hands all sessions over at once.

        Raises:
            ConfigurationError: An agent could not be made, or the port for its health is taken.
            WorkerNameTaken: A live worker of the journal has this name.
            JournalError: The journal cannot be opened.
        """
        async with AsyncExitStack() as stack:
            if self._health is not None:
                stack.push_async_callback(self._health.close)
                await self._health.start()
                logger.info("Worker %s answers at %s: /live, /health, /metrics.", self._name, self._health.address)
            journal = await stack.enter_async_context(shared_journal(self._journal))
            limits = Limits(journal, self._limits, self._clock)
            runner = SessionRunner(
                journal,
                self._makers,
                clock=self._clock,
                tries=self._tries,
                deps=self._deps,
                limits=limits,
                metrics=self._metrics,
                accepts_change=self._accepts_change,
            )
            await runner.check_agents()
            await _check_clock(journal, self._clock, self._name)
            runner.presence = presence = await self._present(journal, runner)
            self._watch = watch = StrandedWatch(journal, self._name)
            runner.on_refused = watch.refused
            stack.push_async_callback(presence.leave)
            dispatcher = self._dispatcher or JournalDispatcher(journal, clock=self._clock, tenants=self._tenants)
            self._runner, self._queue = runner, Queue(journal, self._clock)
            telling = asyncio.create_task(self._tell(presence, runner, limits, watch))
            try:
                await self._take(dispatcher, runner)
                await self._drain()
            finally:
                await self._end(runner, telling)
                await presence.tell(replace(presence.info, sessions=(), done=self._done, is_draining=True))
                await dispatcher.close()

    # --- its health

    def _health_on(self, port: int, host: str) -> HealthServer:
        if type(port) is not int or not 0 <= port < 1 << 16:
            raise ConfigurationError(f"Worker(health_port=...) is a port from 0 to 65535, or None; got {shown(port)}.")
        return HealthServer(port, self._metrics, self._condition, self._gauges, host=host)

    def _condition(self) -> WorkerCondition:
        status: Condition = "ready"
        if self._is_superseded:
            status = "superseded"
        elif self._stopping.is_set():
            status = "draining"
        elif self._runner is None:
            status = "beginning"
        elif self._lost.is_set():
            status = "waiting_for_journal"
        running = () if self._runner is None else self._runner.sessions
        return WorkerCondition(status=status, worker=self._name, sessions=len(running), done=self._done)

    async def _gauges(self) -> list[Sample]:
        waiting = [] if self._queue is None else await self._queue.samples()
        stranded = [] if self._watch is None else self._watch.samples()
        return worker_samples(self._info, self._condition()) + waiting + stranded

    # --- its place

    async def _present(self, journal: Journal, runner: SessionRunner) -> Presence:
        self._info = WorkerInfo(
            name=self._name,
            host=socket.gethostname(),
            pid=os.getpid(),
            agents=tuple(self._makers),
            concurrency=self._concurrency,
            tenants=self._tenants,
            since=self._clock.now(),
            boot=boot_id(),
            fingerprints=runner.fingerprints,
            accepts_change=self._accepts_change,
        )
        presence = Presence(journal, self._clock, self._info, on_lost=self._lost.set)
        for left in reversed(range(_TRIES_TO_BEGIN)):
            try:
                await presence.take()
                break
            except JournalError as error:
                if not left:
                    raise
                logger.warning("Worker %s cannot take its place yet: %s", self._name, error)
                await asyncio.sleep(TELL_SECONDS)
        return presence

    async def _take_again(self, presence: Presence) -> None:
        """Take the place again after the journal was away, or this process stood still: what it ran is others' by now.

        It ends where another worker has its name.
        """
        self._lost.clear()
        try:
            await presence.take()
            tell_back(presence.place)
            logger.warning("Worker %s had lost its place, and has it again: it continues.", self._name)
        except JournalError as error:
            self._lost.set()
            tell_away(
                logger, presence.place, "Worker %s has lost its place, and waits for its journal: %s", self._name, error
            )
        except WorkerNameTaken:
            logger.warning("Worker %s has lost its place: another worker has its name. It ends.", self._name)
            self._is_superseded = True
            self._stopping.set()

    async def _tell(self, presence: Presence, runner: SessionRunner, limits: Limits, watch: StrandedWatch) -> None:
        while not self._is_superseded:
            await asyncio.sleep(TELL_SECONDS)
            assert self._info is not None
            if self._lost.is_set():
                await self._take_again(presence)
                continue
            is_draining = self._stopping.is_set()
            self._info = replace(
                self._info,
                sessions=runner.sessions,
                done=self._done,
                is_draining=is_draining,
                waiting=self._reasons(limits),
            )
            await presence.tell(self._info)
            await watch.look(self._clock.now())

    def _reasons(self, limits: Limits) -> dict[str, int]:
        """Return how many sessions and requests wait for a limit, by reason, as this worker has seen it lately."""
        since = asyncio.get_running_loop().time() - _REMEMBERED_SECONDS
        self._waiting = {one: told for one, told in self._waiting.items() if told[1] > since}
        return dict(Counter(reason for reason, _ in self._waiting.values()) + limits.waiting)

    # --- its work

    async def _take(self, dispatcher: Dispatcher, runner: SessionRunner) -> None:
        """Take sessions, as many as may run side by side, until the worker is stopped."""
        while (delivery := await self._next(dispatcher)) is not None:
            carry = asyncio.create_task(self._run_session(delivery, runner))
            self._active.add(carry)
            carry.add_done_callback(self._let_go)

    def _let_go(self, carry: "asyncio.Task[None]") -> None:
        self._active.discard(carry)
        self._free.set()

    async def _next(self, dispatcher: Dispatcher) -> Delivery | None:
        """Return the next session; None where the worker is stopped."""
        while len(self._active) >= self._concurrency:
            self._free.clear()
            if await self._or_stopped(self._free.wait()) is None:
                return None
        return None if self._stopping.is_set() else await self._or_stopped(dispatcher.next())

    async def _or_stopped(self, waiting: Any) -> Any:  # Any: what is waited for, and what it gives
        """Return what comes first; None where that is the end of the worker."""
        wanted, stopped = asyncio.ensure_future(waiting), asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({wanted, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return wanted.result() if wanted.done() else None
        finally:
            stopped.cancel()
            wanted.cancel()

    async def _run_session(self, delivery: Delivery, runner: SessionRunner) -> None:
        is_done = waits = False
        self._waiting.pop(delivery.session_id, None)
        try:
            is_done = await runner.run(delivery.session_id) is not None
            self._done += is_done
        except LimitReachedNow as reason:
            waits = True
            self._waiting[delivery.session_id] = (str(reason), asyncio.get_running_loop().time())
        except Exception:
            logger.exception("Session %s could not be run", delivery.session_id)
        finally:
            await delivery.end(is_done=is_done, waits=waits)

    # --- its end

    async def _drain(self) -> None:
        """Let the runs under way end by themselves for a while, then wait for a moment at which no call may be acting."""
        if self._active and not self._is_superseded:
            logger.info("Worker %s ends: %d sessions may still end by themselves.", self._name, len(self._active))
            await asyncio.wait(self._active, timeout=self._drain_seconds)

    async def _end(self, runner: SessionRunner, telling: "asyncio.Task[None]") -> None:
        """Hand over what still runs, and end."""
        telling.cancel()
        await runner.hand_over()
        while self._active:
            await asyncio.wait(set(self._active))
        with suppress(asyncio.CancelledError):
            await telling


async def _check_clock(journal: Journal, clock: Clock, name: str) -> None:
    """Warn where this machine's clock is not that of the database: what is due at a time is begun by the worker's clock."""
    try:
        told = await store_time(journal)
    except JournalError:
        return  # it is away: the worker waits for it when it takes its place
    apart = 0.0 if told is None else clock.now() - told
    if abs(apart) > _APART_SECONDS:
        side, when = ("ahead of", "early") if apart > 0 else ("behind", "late")
        logger.warning(
            "The clock of worker %s is %.0f seconds %s the database's: what is due at a time begins so much too %s here. "
            "Set the machine's clock.",
            name, abs(apart), side, when,
        )  # fmt: skip


def _check_counts(concurrency: object, tries: object, drain_seconds: object) -> None:
    for name, value in (("concurrency", concurrency), ("tries", tries)):
        if type(value) is not int or value < 1:
            raise ConfigurationError(f"Worker({name}=...) is a whole number above 0; got {shown(value)}.")
    if type(drain_seconds) not in (int, float) or not 0 <= drain_seconds < float("inf"):  # type: ignore[operator]  # a number, by its type
        raise ConfigurationError(
            f"Worker(drain_seconds=...) is a number of seconds, 0 or more; got {shown(drain_seconds)}."
        )


def _checked_limits(limits: Collection[Limit]) -> tuple[Limit, ...]:
    for limit in limits:
        if not isinstance(limit, Limit):
            raise ConfigurationError(f"Worker(limits=...) is a list of limits: [Limit(name=...)]; got {shown(limit)}.")
        checked_limit(limit)
    if len({limit.name for limit in limits}) < len(limits):
        raise ConfigurationError("Two limits of the worker have the same name. Give each a name of its own.")
    return tuple(limits)


def _checked_tenants(tenants: Collection[str] | None) -> tuple[str, ...] | None:
    if tenants is None:
        return None
    if isinstance(tenants, str) or not all(isinstance(one, str) for one in tenants):
        raise ConfigurationError(f"Worker(tenants=...) is a list of names; got {shown(tenants)}.")
    return tuple(tenants)
