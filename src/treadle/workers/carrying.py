"""Carrying out what is to be done in one session: its submitted task, or the run that can continue. The lease and the events decide."""

import copy
import inspect
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeAlias

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.registry import check_agent
from treadle.budgets import budget_from
from treadle.engine.lifecycle import Lifecycle
from treadle.engine.reports import RunResult
from treadle.errors import (
    AgentChanged,
    ConfigurationError,
    JournalError,
    NothingToResume,
    SessionConflict,
    SessionHeld,
    SessionNotActive,
    TreadleError,
    UnknownAgent,
    UnknownSession,
    shown,
)
from treadle.events import AnyEvent
from treadle.journals.store.resumable import can_continue
from treadle.ports import Clock, HasOverview, Journal, Model
from treadle.redaction import redacted_logger
from treadle.resolve import open_session
from treadle.sessions.answering import store_time
from treadle.sessions.session import Session
from treadle.state import RunState
from treadle.workers.limits import LimitReachedNow, Limits, Subject
from treadle.workers.live import LiveTeller, live_line
from treadle.workers.logs import TRACES, Traces
from treadle.workers.metrics import Metrics
from treadle.workers.presence import Presence

__all__ = ["AgentMaker", "Carrier", "Leash", "made_agents", "makers_of"]

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


class Leash:
    """A journal that stores nothing any more once it was cut: whoever uses it has handed its sessions over.

    Everything else is the journal's own.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.is_cut = False
        """Whether it stores nothing any more."""

    def cut(self) -> None:
        """Refuse all further events."""
        self.is_cut = True

    async def append(self, *args: Any, **options: Any) -> None:  # Any: as the journal's own
        if self.is_cut:
            raise JournalError("The worker ends: it has handed its sessions over.")
        await self._journal.append(*args, **options)

    def __getattr__(self, name: str) -> Any:  # Any: as the journal's own
        return getattr(self._journal, name)


class Carrier:
    """Runs sessions for a worker.

    Args:
        agents: What makes each agent, by the name under which tasks are submitted.
        tries: How often the process of a run may die at one place until the session is set aside.
        metrics: Where what the runs do is counted; None to count nothing.
        live: Whether followers see what the model says while it says it.
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
        live: bool = False,
        accepts_change: bool = False,
    ) -> None:
        self._accepts_change = accepts_change
        self._limits = limits or Limits(journal, (), clock)
        self._metrics = metrics or Metrics()
        self._live = live_line(journal) if live else None
        self._leash = Leash(journal)
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

    async def carry(self, session_id: str) -> RunResult | None:
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
                    return await self.carry(session.state.root_id)
                life = await self._life(session)
                if life is None:
                    return None
                whose = self._subject(session)
                traces.tenant, traces.agent = whose.tenant, whose.agent
                life.subscribers.append(partial(_trace_run, traces))
                if self._live is not None:
                    life.subscribers.append(LiveTeller(self._live, session_id))
                return await self._run(session, life, whose)
        except _NOT_OURS as error:
            logger.debug("Session %s is left to others: %s", session_id, error)
            await self._tell_refused(session_id, error)
        except JournalError as error:
            if self._leash.is_cut:
                logger.info("Session %s is handed over: another worker resumes it.", session_id)
                return None
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
        is_takeover = not life.takes_submitted and run is not None and run.phase == "running"
        life.watchers.append(self._metrics.watching(whose, session.id, is_takeover=is_takeover))
        async with self._limits.place(whose):
            self._count_in(life, session.id)
            try:
                result = await life.finish()
            finally:
                self._suspect = ("", 0.0) if life.is_alone else self._suspect
        self._failures.pop(session.id, None)
        return None if result.status == "paused" and await self._can_continue(session) else result

    async def _can_continue(self, session: Session) -> bool:
        now = await store_time(session.journal)
        return await can_continue(session.journal, session.state, now=self._clock.now() if now is None else now)

    def _subject(self, session: Session) -> Subject:
        """Return what limits may be about."""
        state = session.state
        agent = (
            state.submitted.agent if state.submitted is not None else state.run.agent if state.run is not None else ""
        )
        tenant = state.metadata.get("tenant", "")
        model = self._made[agent].model.name if agent in self._made else ""
        return Subject(tenant=tenant if isinstance(tenant, str) else "", agent=agent, model=model)

    def hand_over(self) -> None:
        """Let go of all sessions where they stand: nothing more is recorded of them here, and other workers resume them."""
        self._leash.cut()
        for life in tuple(self._lives):
            life.cancel()

    @asynccontextmanager
    async def _opened(self, session_id: str) -> AsyncIterator[Session]:
        leash: Any = self._leash  # it is the journal, but for its appends
        async with open_session(leash, id=session_id, clock=self._clock, must_exist=True) as session:
            yield session

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
        if run.deaths_now >= self._tries and not await _is_live(session):
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
        """
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
        life = agent._life(  # noqa: SLF001 - a worker is a door of the agent, as `run` is
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
            if now is None or now.phase not in ("running", "paused"):
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
            ConfigurationError: One could not be made, or is wrong.
        """
        for name in self._makers:
            (await self._agent(name)).check()

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
    """Return what makes each agent, by its name.

    Raises:
        ConfigurationError: There is none, one has no name, or two have the same.
    """
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
    """Make agents, each by the name under which its tasks are submitted.

    Raises:
        ConfigurationError: One could not be made.
    """
    return {name: _named(await _agent_of(make, name), name) for name, make in makers.items()}


async def _agent_of(make: AgentMaker, name: str) -> object:
    """Call a function that makes an agent.

    Raises:
        ConfigurationError: It failed.
    """
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
    named = copy.copy(agent)
    named._spec = msgspec.structs.replace(agent._spec, name=name, fingerprint={})  # noqa: SLF001 - a copy of ours
    return named


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


async def _is_live(session: Session) -> bool:
    return isinstance(session.journal, HasOverview) and bool(await session.journal.held([session.id]))
