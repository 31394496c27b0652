"""Approving: ask the agent's approver about calls that wait for consent, before the run pauses for a person. Decides nothing itself.

An approver's answer goes the way of everybody's: into the session's inbox first, so that the first answer wins, then into the journal.
"""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

from treadle.concurrency.threads import Threads
from treadle.engine.interrupts import Interrupt
from treadle.engine.rules.failures import contained, kept_inside, pass_interrupts
from treadle.errors import ConfigurationError
from treadle.ports import Approver, SessionView
from treadle.redaction import redacted_logger
from treadle.sessions.answering import check_answer, check_scope
from treadle.sessions.inbox import answer_events
from treadle.sessions.ledger import Ledger
from treadle.state import Approval, CallState, LeftAnswer, answer_id
from treadle.tools import Answer, CheckedCall, Decision

__all__ = ["Approving"]

logger = redacted_logger(__name__)

_threads = Threads()


class Approving:
    """Asks the approver of one run.

    Args:
        approver: None where only people answer.
        seconds: How long it may take for one call; None for no limit.
    """

    def __init__(
        self,
        approver: Approver | None,
        *,
        seconds: float | None,
        ledger: Ledger,
        session: SessionView,
        interrupt: Interrupt,
    ) -> None:
        self._approver = approver
        self._answered: tuple[str, ...] = ()
        self._seconds = seconds
        self._ledger = ledger
        self._session = session
        self._interrupt = interrupt
        self._calls: dict[str, CheckedCall] = {}
        self._asked: dict[str, None] = {}

    def waits(self, call: CheckedCall) -> None:
        """Note a call that waits for approval."""
        if self._approver is not None:
            self._calls[call.id] = call

    async def answered(self) -> list[CallState]:
        """Ask about each call that waits and has not been asked about. Return those that have their answer now."""
        found: list[CallState] = []
        for state in self._ledger.state.unanswered if self._calls else ():
            approval, call = state.approval, self._calls.get(state.call.id)
            if approval is None or call is None or approval.answer is not None or state.call.id in self._asked:
                continue
            self._asked[state.call.id] = None  # once: an edit that does not fit would come again
            answer = await self._ask(approval, call)
            if answer is not None and self._interrupt.stop is None and await self._record(approval, answer):
                found.append(self._ledger.state.open[state.call.id])
        return found

    async def _ask(self, approval: Approval, call: CheckedCall) -> Answer | None:
        try:
            answer = _as_answer(await self._ask_approver(approval, call), self._name)
            if answer is not None:
                check_answer(
                    answer.answer,
                    reason=answer.reason,
                    arguments=answer.arguments,
                    interrupt=answer.interrupt,
                    by=answer.by,
                )
                check_scope(answer.scope, approval, answer=answer.answer, arguments=answer.arguments)
        except BaseException as error:
            pass_interrupts(error)
            logger.warning("The approver failed; %s waits for a person", call.name, exc_info=True)
            return None
        # Only a person ends plan mode. A model that was told of an allowed plan would find all it does denied.
        is_for_people = call.tool.ends_plan and self._ledger.state.mode == "plan"
        return None if is_for_people and answer is not None and answer.answer == "allow" else answer

    async def _ask_approver(self, approval: Approval, call: CheckedCall) -> Any:  # Any: whatever a stranger answers
        """Return what the approver says; None once the run is to end. A plain function runs in a thread: it may wait for a person.

        Raises:
            TimeoutError: It has not answered in time. A thread cannot be stopped: its answer is not heard any more.
        """
        approver: Any = self._approver
        if hasattr(approver, "decide"):  # a policy is an approver, too: it is asked in the loop, as every policy is
            said = approver.decide(call, self._session)
        else:
            function = getattr(approver, "approve", approver)
            is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
            said = function(approval) if is_async else _threads.submit(lambda: kept_inside(lambda: function(approval)))
        for _ in range(2):  # a plain function may return a coroutine
            said = await self._in_time(said) if inspect.isawaitable(said) else said
        return said

    async def _in_time(self, said: Awaitable[Any]) -> Any:
        waiting = said if isinstance(said, asyncio.Future) else asyncio.ensure_future(contained(said))
        try:
            if await self._interrupt.wait_for(waiting, self._seconds):
                return waiting.result()
        finally:
            waiting.cancel()
        if self._interrupt.stop is None:
            raise TimeoutError(f"no answer within {self._seconds:g} seconds")
        return None

    def has_answered(self, approval_id: str) -> bool:
        """Whether the program has answered a request in this run, in place of a person."""
        return approval_id in self._answered

    @property
    def _name(self) -> str:
        kind = "policy" if hasattr(self._approver, "decide") else "approver"
        own = getattr(self._approver, "__name__", type(self._approver).__name__)
        return f"{kind}:{own}"

    async def _record(self, approval: Approval, answer: Answer) -> bool:
        """Record an answer, unless the call was answered meanwhile. Return whether it was recorded."""
        journal, session_id = self._ledger.journal, self._ledger.state.id
        message = LeftAnswer(
            id=answer_id(approval),
            approval_id=approval.id,
            answer=answer.answer,
            reason=answer.reason,
            approved_by=answer.by,
            at=self._ledger.store_time(),
            arguments=answer.arguments,
            interrupt=answer.interrupt,
            scope=answer.scope,
        )
        if not await journal.put(session_id, message):
            return False
        self._answered = (*self._answered, approval.id)
        await self._ledger.record(*answer_events(message, [approval]), durable=True)
        await journal.consume(session_id, [message.id], self._ledger.state.head)
        return True


def _as_answer(said: Any, by: str) -> Answer | None:
    """Return what an approver has said as an answer; None where it leaves the call to a person.

    Raises:
        ConfigurationError: The answer is invalid.
    """
    match said:
        case None:
            return None
        case Answer():
            return said if said.by else Answer(**{**_fields(said), "by": by})
        case "allow" | "deny":
            return Answer(answer=said, by=by)
        case Decision() if said.kind in ("allow", "deny"):
            reason = said.message or said.reason
            return Answer(
                answer="allow" if said.kind == "allow" else "deny",
                reason=reason,
                arguments=said.arguments,
                interrupt=said.interrupt,
                by=by,
            )
        case Decision():
            return None  # it asks, too
        case _:
            raise ConfigurationError(
                f"An approver answers with an Answer, 'allow', 'deny' or None; got a {type(said).__name__}."
            )


def _fields(answer: Answer) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in answer.__struct_fields__}
