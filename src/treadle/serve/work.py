"""Work: one task of a client, from its start to its end, with a person asked in between. Knows no protocol."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec

from treadle import Agent, Approval, Budget, Message, Run, RunResult, Session, StopReason, TreadleError
from treadle.events import AnyEvent, MessageAdded, RunResumed, RunStarted
from treadle.tools import Answer

__all__ = ["Setup", "Work"]

Ask: TypeAlias = Callable[[Approval], Awaitable[Answer | None]]
"""Asks a person about a call; None where nobody answered."""
See: TypeAlias = Callable[[AnyEvent], Awaitable[None]]
"""Takes in an event of a run."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts in a session, and within what."""

    agent: Agent
    budget: Budget | None = None
    """None for the agent's own."""
    deps: Any = None  # Any: the application's own object
    """What tools get as `ctx.deps`, or a function of the session that returns or opens it, as for `Agent.run`."""
    resumed_budget: Callable[[Session], Budget | None] = lambda _: None
    """The limits with which a session's run continues."""
    origin: dict[str, Any] = {}
    """What the session remembers of its run: see `Run.remember`."""


class Work:
    """A task under way. It outlives whoever waits for it: a client that leaves cuts nothing off unrecorded."""

    def __init__(self, setup: Setup, session: Session, *, see: See, ask: Ask, by: str) -> None:
        self._setup = setup
        self._session = session
        self._see = see
        self._ask = ask
        self._by = by
        self._run: Run | None = None
        self._asking: asyncio.Future[Answer | None] | None = None
        self._stopped: Literal["", "cancelled", "left"] = ""

    def cancel(self) -> None:
        """End the run as cancelled, a question included."""
        self._stop("cancelled")

    def leave(self) -> None:
        """End the run because the client has gone. One that waits for an answer keeps waiting."""
        self._stop("left")

    def _stop(self, why: Literal["cancelled", "left"]) -> None:
        self._stopped = self._stopped or why
        if self._run is not None:
            self._run.cancel(by=self._by)
        if self._asking is not None:
            self._asking.cancel()

    async def start(self, task: str | Message) -> RunResult:
        """Give the session a task, and see it through.

        Raises:
            TreadleError: What the run raised.
        """
        return await self._through(
            self._setup.agent.stream(task, session=self._session, deps=self._setup.deps, budget=self._setup.budget)
        )

    async def resume(self) -> RunResult:
        """Continue the session's run. What it still asks is asked again.

        Raises:
            TreadleError: There is nothing to resume, or what the run raised.
        """
        self._session.check_resumable()
        return await self._through(self._resumed())

    def _resumed(self) -> Run:
        budget = self._setup.resumed_budget(self._session)
        return self._setup.agent.stream_resume(self._session, deps=self._setup.deps, budget=budget)

    async def _through(self, run: Run) -> RunResult:
        while True:
            result = await self._watched(run)
            if result.reason is not StopReason.APPROVAL_REQUIRED or not await self._all_answered(result):
                return result
            run = self._resumed()

    async def _watched(self, run: Run) -> RunResult:
        run.remember(self._setup.origin)
        try:
            async with run:
                async for event in run:
                    # Before its first step a run has nothing to cancel; a stop that came then is passed on now.
                    if self._run is None and not isinstance(event, RunStarted | RunResumed | MessageAdded):
                        self._run = run
                        if self._stopped:
                            run.cancel(by=self._by)
                    await self._see(event)
            return run.result
        finally:
            self._run = None

    async def _all_answered(self, result: RunResult) -> bool:
        """Ask about each call that waits. Return whether the run continues."""
        for approval in result.approvals:
            if any(one.id == approval.id for one in await self._session.approvals()) and not await self._answered(
                approval
            ):
                break
        if self._stopped == "cancelled":
            await self._session.cancel(by=self._by)
            return True
        return not await self._session.approvals()

    async def _answered(self, approval: Approval) -> bool:
        """Ask about one call. Return whether somebody answered."""
        if self._stopped:
            return False
        self._asking = asyncio.ensure_future(self._ask(approval))
        answer = None
        with suppress(asyncio.CancelledError):  # the question was withdrawn; this task itself is never cancelled
            answer = await self._asking
        self._asking = None
        if answer is None:
            return False
        with suppress(TreadleError):  # somebody else has answered meanwhile: their answer counts
            await self._session.answer(
                approval.id,
                answer.answer,
                reason=answer.reason,
                arguments=answer.arguments,
                scope=answer.scope,
                by=answer.by or self._by,
            )
        return True
