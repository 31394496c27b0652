"""Acts: what people do on the page: answers, and changes of sessions. Each is an act of a session, and decides nothing by itself."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle import (
    Agent,
    Agents,
    ConfigurationError,
    Done,
    NotDone,
    Session,
    SessionHeld,
    TreadleError,
    Unknown,
    open_session,
)
from treadle.errors import JournalError, UnknownAgent, UnknownSession
from treadle.ports import Journal
from treadle.redaction import Redactor
from treadle.workers import retry

__all__ = ["CONSEQUENCES", "Acts"]

logger = logging.getLogger("treadle.web")
_redactor = Redactor()

CONSEQUENCES = {
    "cancel": "The run ends as cancelled. Calls under way are stopped; what they have done stays done. What it asked people is withdrawn.",
    "suspend": "No new run begins or continues here until somebody activates the session. A run under way continues.",
    "activate": "Runs may begin and continue again. A worker takes the session if it has work.",
    "resume": "The run continues where it stopped. Calls that have a result are not made again.",
    "retry": "The task runs again in this session, by a worker. The model reads what was done here before.",
    "steer": "The message is added after the step that is under way. A session without a run gets it with its next one.",
    "fork": "A new session begins with a copy of this one up to that point. This one stays as it is.",
    "delete": "The session is listed as deleted and never runs again. Its events stay in the journal.",
    "purge": "The session and all its events are removed permanently. Only a record of the deletion stays.",
}
"""What each act on a session does, said before it is done."""


class Acts:
    """What people do to the sessions of a journal.

    Args:
        journal: Where the sessions are.
        agents: Agents that this process can run; without them, workers and programs continue what is answered.
    """

    def __init__(self, journal: Journal, agents: Agents | None) -> None:
        self._journal = journal
        self.agents = agents
        self._runs: set[asyncio.Task[None]] = set()

    def _opened(self, session_id: str) -> Any:  # Any: a context manager of a session
        return open_session(self._journal, id=session_id, must_exist=True, on_store_failure="stop")

    # --- answers

    async def approve(self, session_id: str, approval_id: str, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Allow or deny a call. `given`: `answer`, `reason`, `arguments`, `scope`, `interrupt`."""
        async with self._opened(session_id) as session:
            await session.answer(
                approval_id,
                given.get("answer", ""),
                reason=given.get("reason") or "",
                arguments=given.get("arguments"),
                interrupt=given.get("interrupt", False),
                scope=given.get("scope") or "call",
                by=by,
            )
        self._go_on(session.state.root_id)
        return {"answer": given["answer"], "by": by}

    async def answer(self, session_id: str, call_id: str, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Give a call what it waits for. `given`: `value`."""
        if "value" not in given:
            raise ConfigurationError("An answer needs a value.")
        async with self._opened(session_id) as session:
            await session.input(call_id, given["value"], by=by)
        self._go_on(session.state.root_id)
        return {"by": by}

    async def resolve(self, session_id: str, call_id: str, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Say how a call in doubt ended. `given`: `outcome` (done, not_done or unknown), `value`, `reason`."""
        outcomes: dict[Any, Any] = {"done": Done(given.get("value")), "not_done": NotDone, "unknown": Unknown}
        outcome = outcomes.get(given.get("outcome"))
        if outcome is None:
            raise ConfigurationError("The outcome of a call is done, not_done or unknown.")
        async with self._opened(session_id) as session:
            await session.resolve(call_id, outcome, reason=given.get("reason") or "", by=by)
        self._go_on(session.state.root_id)
        return {"outcome": given["outcome"], "by": by}

    # --- changes of a session

    async def act(self, act: str, session_id: str, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        """Do one of `CONSEQUENCES`. Raises ConfigurationError: there is no such act."""
        if act not in CONSEQUENCES:
            raise ConfigurationError(f"There is no act {act!r:.40}. There are {', '.join(CONSEQUENCES)}.")
        if act == "resume":
            return await self._resume(session_id, by)
        if act == "retry":
            return await self._retry(session_id, given, by)
        async with self._opened(session_id) as session:
            done: dict[str, Any] = await getattr(self, f"_{act}")(session, given, by)
        return done

    async def _retry(self, session_id: str, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        key, may_repeat = given.get("key"), given.get("may_repeat", False)
        new_id = await retry(self._journal, session_id, key=key, may_repeat=may_repeat, by=by)
        return {"session": new_id}

    async def _cancel(self, session: Session, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        if not await session.cancel(by=by):
            raise ConfigurationError(f"There is nothing to cancel: the session is {session.state.status}.")
        return {"cancelled": session.id}

    async def _suspend(self, session: Session, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        await session.change(status="suspended", reason=given.get("reason") or "", by=by)
        return {"suspended": session.id}

    async def _activate(self, session: Session, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        await session.change(status="active", reason=given.get("reason") or "", by=by)
        self._go_on(session.state.root_id)
        return {"activated": session.id}

    async def _steer(self, session: Session, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        text = given.get("text")
        if not isinstance(text, str) or not text.strip():
            raise ConfigurationError("Write a message first.")
        await session.steer(text)
        return {"sent": session.id}

    async def _fork(self, session: Session, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        new = await session.fork(given.get("at"))
        return {"session": new.id}

    async def _delete(self, session: Session, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        await session.delete()
        return {"deleted": session.id}

    async def _purge(self, session: Session, given: Mapping[str, Any], by: str) -> dict[str, Any]:
        await session.delete(purge=True)
        return {"deleted": session.id}

    async def export(self, session_id: str, *, exact: bool) -> bytes:
        """Return the lines of a session; without its secrets unless `exact`."""
        async with self._opened(session_id) as session:
            lines: Sequence[bytes] = await session.export(redactor=None if exact else Redactor())
        return b"".join(line + b"\n" for line in lines)

    # --- runs, where this process has agents

    async def _resume(self, session_id: str, by: str) -> dict[str, Any]:
        async with self._opened(session_id) as session:
            session.check_active()
            session.check_resumable()
            run = session.state.run
        name = "" if run is None else run.agent
        if self._has(name):
            self._start(self._resumed(session_id))
            return {"resumed": session_id}
        raise UnknownAgent(
            f"This page has no agent {name!r:.80}. A worker that has it continues the session when it is answered or activated; "
            f"or run: treadle resume {session_id}"
        )

    def _has(self, name: str) -> bool:
        return self.agents is not None and any(agent.name == name for agent in self.agents)

    def _go_on(self, session_id: str) -> None:
        """Continue a session that was answered, where its agent is here. A worker may be faster: then it does."""
        if self.agents is not None:
            self._start(self._resumed(session_id))

    async def _resumed(self, session_id: str) -> None:
        assert self.agents is not None
        try:
            await self.agents.resume(self._journal, session_id)
        except TreadleError as error:
            logger.info("Session %s is not continued here: %s", session_id, _redactor.text(str(error)))

    def _start(self, work: Any) -> None:  # Any: a coroutine
        task = asyncio.create_task(work)
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)

    async def try_out(self, agent: str, text: str, session_id: str | None, *, tenant: str, by: str) -> dict[str, Any]:
        """Send a message to an agent of this process, in a new session or in one that an earlier message began."""
        if self.agents is None:
            raise ConfigurationError("This page has no agents to try. Give it some: treadle web --agents FILE.py.")
        if not text.strip():
            raise ConfigurationError("Write a message first.")
        found = self.agents[agent]
        async with open_session(self._journal, id=session_id, on_store_failure="stop") as session:
            if session.state.run_status in ("running", "paused"):
                raise ConfigurationError(
                    f"The session is {session.state.status}: answer or cancel what is under way first."
                )
            if session_id is None:
                of_tenant = {"tenant": tenant} if tenant else {}
                await session.change(metadata={"tried_by": by, **of_tenant}, by=by)
        self._start(self._tried(found, text, session.id))
        return {"session": session.id}

    async def _tried(self, agent: Agent, text: str, session_id: str) -> None:
        try:
            async with open_session(self._journal, id=session_id) as session:
                await agent.run(text, session=session)
        except TreadleError as error:
            logger.info("Session %s: the agent could not run: %s", session_id, _redactor.text(str(error)))

    async def close(self) -> None:
        """Hand the runs of this process over: the next process, or a worker, continues them."""
        for task in self._runs:
            task.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)


def told(error: Exception) -> tuple[int, str]:
    """Return the HTTP status and the sentence for what went wrong."""
    if isinstance(error, UnknownSession):
        return 404, str(error)
    if isinstance(error, SessionHeld):
        return 409, f"{error} Try again in a moment."
    if isinstance(error, JournalError):
        return 503, str(error)
    if isinstance(error, TreadleError):
        return 409 if not isinstance(error, ConfigurationError) else 422, str(error)
    if isinstance(error, msgspec.ValidationError):
        return 422, str(error)
    raise error
