"""Stranding: which sessions wait for a worker although none that lives can continue them, and why. Runs nothing, changes nothing."""

import asyncio
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias, get_args

import msgspec

from treadle.agents.agent import Agent
from treadle.errors import JournalError
from treadle.fields import Documented, checked_but
from treadle.ports import HasOverview, Journal, SessionFilter
from treadle.redaction import redacted_logger
from treadle.sessions.checkpoints import take_in
from treadle.state import SessionState
from treadle.workers.carrying import AgentMaker, made_agents, makers_of
from treadle.workers.metrics import Sample
from treadle.workers.presence import WorkerInfo, list_workers

__all__ = ["StrandedSession", "Watch", "stranded_sessions"]

logger = redacted_logger(__name__)

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

    A session that a process runs now is not among them, nor is one whose run a program began with an agent that no worker has:
    its program continues it. With `agents`, the question is a preview: which open sessions would strand if these were all agents?

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
        ids = [row.id for row in await journal.sessions(SessionFilter(phases=_OPEN))]
    is_preview = agents is not None
    held = await journal.held(ids) if isinstance(journal, HasOverview) and not is_preview else ()
    found = [await _judged(journal, one, workers, is_preview=is_preview) for one in ids if one not in held]
    return tuple(one for one in found if one is not None)


class Watch:
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
        """Look at a session that this worker cannot continue: perhaps another one can.

        Raises:
            JournalError: The store failed.
        """
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
    if state is None or state.status != "active" or state.caller is not None:
        return None
    task, run = state.submitted, state.run
    if task is not None:
        agent, tenant, fingerprint = task.agent, task.tenant, {}
    elif run is not None and run.phase in ("running", "paused"):
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
    return [] if now is None else [part for part, value in fingerprint.items() if now.get(part) != value]
