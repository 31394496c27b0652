"""Registry: agents by name, so that a process that has only a session's id can resume its run."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

from treadle.agents.agent import Agent
from treadle.budgets import Budget, Deadline
from treadle.engine.lifecycle import Lifecycle
from treadle.engine.spec import RunResult
from treadle.errors import (
    AgentChanged,
    ConfigurationError,
    NothingToResume,
    SessionConflict,
    SessionHeld,
    SessionNotActive,
    TreadleError,
    UnknownAgent,
    shown,
)
from treadle.fields import checked
from treadle.ports import Journal
from treadle.redaction import redacted_logger
from treadle.resolve import open_journal, open_session
from treadle.sessions.session import Session

__all__ = ["Agents", "changed_parts", "check_agent"]

logger = redacted_logger(__name__)

_OTHERS = (SessionHeld, SessionConflict, NothingToResume, SessionNotActive)
"""What says that another process, or a person, came first."""


class Agents:
    """The agents of a program, each found by its name.

    Example:
        agents = Agents([invoices, research])
        result = await agents.resume("agent.db", "invoice-7")

    Args:
        agents: Agents with unique names, `Agent(name=...)`.

    Raises:
        ConfigurationError: An agent has no name, or two have the same.
    """

    @checked
    def __init__(self, agents: Iterable[Agent]) -> None:
        self._told: dict[str, str] = {}  # why a session could not be resumed, so that it is said once
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            if not isinstance(agent, Agent):
                raise ConfigurationError(f"Agents takes agents; got {shown(agent)}.")
            if not agent.name:
                raise ConfigurationError("A registered agent needs a name: Agent(model, name='invoices').")
            if agent.name in self._agents:
                raise ConfigurationError(f"Two agents are named {agent.name!r}. Give each its own name.")
            self._agents[agent.name] = agent

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    def __getitem__(self, name: str) -> Agent:
        """Return the agent of this name.

        Raises:
            UnknownAgent: No agent has it.
        """
        if name not in self._agents:
            known = ", ".join(map(repr, self._agents)) or "none"
            raise UnknownAgent(f"No agent is registered as {shown(name)}. Registered: {known}.")
        return self._agents[name]

    @checked
    async def resume(
        self,
        journal: str | Path | Journal,
        session_id: str,
        *,
        deps: Any = None,  # Any: the application's own object
        budget: Budget | None = None,
        deadline: Deadline | None = None,
        changed: Literal["refuse", "accept"] = "refuse",
    ) -> RunResult:
        """Resume a session's run, in any process, with the agent that its journal names. Return how it ended.

        Finished calls do not run again. The session is closed when this returns.

        Args:
            journal: A file's path, `postgresql://...`, or an open journal (it stays open).
            deps: Your own object; tools read it as `ctx.deps`. Or a function of each session (`SessionSnapshot`) that returns it; it may be
                async, or open it with `@asynccontextmanager` and close it after the run.
            budget: A larger budget, if a limit stopped the run.
            deadline: A later deadline, if the run had one.
            changed: What to do if the agent has changed since the run began: `refuse` to continue, or `accept` the change.

        Raises:
            UnknownSession: The journal has no session with that id.
            NothingToResume: The session has no run that can continue.
            UnknownAgent: No registered agent has the name that the run recorded, or it recorded none.
            AgentChanged: The agent's model, tools or output type differ. Nothing was done.
            SessionHeld: Another process runs the session.
            SessionNotActive: No run may continue in the session.
            JournalError: The journal cannot be opened, or failed.
        """
        async with open_session(journal, id=session_id, must_exist=True) as session:
            return await self._life(session, deps, budget, deadline, accepts=changed == "accept").finish()

    @checked
    async def resume_all(
        self,
        journal: str | Path | Journal,
        *,
        deps: Any = None,  # Any: the application's own object
        concurrency: int = 8,
    ) -> dict[str, RunResult]:
        """Resume every run of these agents that can continue now, and return how each ended, by session id.

        Call it when a service starts, and again as often as you like: a run that only waits is left alone. A run that another process
        holds, or whose agent is not registered or has changed, is left to others. Cancelling it hands its runs over, for the next process.

        Args:
            journal: A file's path, `postgresql://...`, or an open journal (it stays open).
            deps: Your own object; tools read it as `ctx.deps`. Or a function of each session (`SessionSnapshot`) that returns it; it may be
                async, or open it with `@asynccontextmanager` and close it after the run.
            concurrency: The maximum number of runs that continue side by side.

        Raises:
            JournalError: The journal cannot be opened, or failed.
        """
        if concurrency < 1:
            raise ConfigurationError(f"concurrency is a whole number above 0; got {concurrency}.")
        slots, found = asyncio.Semaphore(concurrency), dict[str, RunResult]()

        async def resume(store: Journal, session_id: str) -> None:
            async with slots:
                if (ended := await self._resumed(store, session_id, deps)) is not None:
                    found[session_id] = ended

        async with AsyncExitStack() as stack:
            store = (
                await stack.enter_async_context(open_journal(journal)) if isinstance(journal, str | Path) else journal
            )
            async with asyncio.TaskGroup() as tasks:
                for session_id in await store.resumable():
                    tasks.create_task(resume(store, session_id))
        return found

    async def _resumed(self, journal: Journal, session_id: str, deps: Any) -> RunResult | None:
        """Return how a run ended; None for one that is left to others."""
        try:
            async with open_session(journal, id=session_id, must_exist=True) as session:
                life = self._life(session, deps, None, None, accepts=False)
                try:
                    return await asyncio.shield(life.begin())
                except asyncio.CancelledError:
                    await life.hand_over()
                    raise
        except TreadleError as error:  # one session never keeps the others waiting
            level = logging.DEBUG if self._told.get(session_id) == str(error) else logging.WARNING
            self._told[session_id] = str(error)
            logger.log(
                logging.DEBUG if isinstance(error, _OTHERS) else level,
                "Session %s is not resumed here: %s",
                session_id,
                error,
            )
            return None

    def _life(
        self, session: Session, deps: Any, budget: Budget | None, deadline: Deadline | None, *, accepts: bool
    ) -> Lifecycle:
        agent = self._agent_of(session)

        async def opening() -> Session:
            return session

        life = agent._life(opening, task=None, deps=deps, budget=budget, deadline=deadline)  # noqa: SLF001 - one room
        life.admit = partial(check_agent, agent, accepts=accepts)
        return life

    def _agent_of(self, session: Session) -> Agent:
        """Return the agent that carries out the session's run."""
        session.check_active()
        session.check_own()
        session.check_resumable()
        run = session.state.run
        assert run is not None
        if not run.agent:
            raise UnknownAgent(
                f"Run {run.id!r} of session {session.id!r} was started by an agent without a name. "
                "Resume it with agent.resume(session), and give the agent a name for later runs: Agent(name=...)."
            )
        return self[run.agent]


def changed_parts(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return what of an agent has changed since its run recorded its fingerprint.

    The instructions of a fingerprint of version 0.1 do not count.
    """
    return [part for part, value in recorded.items() if part != "instructions" and now.get(part) != value]


def check_agent(agent: Agent, session: Session, *, accepts: bool) -> None:
    """Raise unless the run may continue with this agent. Its lease is held: nobody changes the run any more."""
    session.check_resumable()
    run = session.state.run
    assert run is not None
    if run.agent != agent.name:
        raise SessionConflict(
            f"Session {session.id!r} continued with the agent {run.agent!r} while it was being opened. Resume it again."
        )
    now = agent.fingerprint
    parts = changed_parts(run.fingerprint, now)
    if parts and not accepts:
        raise AgentChanged(
            f"The agent {agent.name!r} has changed since it began run {run.id!r} of session {session.id!r}. "
            f"Changed: {', '.join(parts)}. Register the agent as it was, or continue with it as it is now: "
            "resume(..., changed='accept')."
        )
