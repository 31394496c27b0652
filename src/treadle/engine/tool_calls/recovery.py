"""Recovery: what happens to a call that had started when the run broke off, by its effect (design section 1).

Not a second pipeline: a call that may run again goes back into the batch, and is planned like any other.
"""

from typing import Literal

import msgspec

from treadle.engine.scope import RunScope
from treadle.engine.tool_calls.attempts import Attempts
from treadle.engine.tool_calls.calls import Batch, Decided, Finisher
from treadle.engine.tool_calls.checking import Checker
from treadle.events import ToolResolved
from treadle.permissions import consent
from treadle.ports import DecisionKind
from treadle.sessions.maintenance import abandoned, in_doubt, may_have_acted, unknown_outcome
from treadle.state import CallState
from treadle.tools import CallStatus, CheckedCall, NotDone, ToolResult

__all__ = ["Recovery"]


class Recovery:
    """Settles the calls of a step that had started without a result when their process died."""

    def __init__(self, scope: RunScope, *, checker: Checker, attempts: Attempts) -> None:
        self._ledger = ledger = scope.ledger
        self._session = scope.offering.session
        self._checker = checker
        self._attempts = attempts
        self._interrupt = scope.interrupt
        self._in_doubt = scope.about.in_doubt
        self._approval_seconds = scope.about.approval_seconds
        # The lease was taken before this: whatever the dead process had sent was sent by now.
        self._begun = ledger.clock.monotonic()

    async def settle(self, batch: Batch, finisher: Finisher) -> Batch:
        """Answer the calls in doubt, or ask about them. Return the batch of those that may run, perhaps again."""

        calls = [state for state in batch.calls if await self._may_run(state, batch.step, finisher)]
        return msgspec.structs.replace(batch, calls=calls)

    async def _may_run(self, state: CallState, step: int, finisher: Finisher) -> bool:
        if not may_have_acted(state):
            return True
        assert state.started is not None
        resolved = state.resolution
        if resolved is not None and (resolved.outcome != "not_done" or self._interrupt.stop is None):
            return await self._resolved(state, resolved, finisher)
        decided = await self._same(state, step)
        if decided is None and state.suspended is not None:
            await self._ledger.record(finisher.finished(abandoned(state)))
            return False
        if decided is not None and (state.suspended is not None or decided.call.tool.resumes):
            return True  # it continues where it stopped: nobody has to ask what happened to it
        if decided is None:  # the tool is gone or forbidden now, or its arguments mean another call: never run that
            await self._doubt(state)
            await self._tell(state, finisher)
            return False
        is_unsafe = not (state.started.effect.is_repeatable and decided.call.effect.is_repeatable)
        return not is_unsafe or await self._resolve(state, decided, finisher)

    async def _resolved(self, state: CallState, resolved: ToolResolved, finisher: Finisher) -> bool:
        """Take over how a call ended, as a person has said. Return whether to run it: it was not done."""
        await self._doubt(state, asked="person", answer=resolved.outcome)
        if resolved.outcome == "not_done":
            return True
        if resolved.outcome == "unknown":
            await self._tell(state, finisher)
            return False
        name, value = state.call.name, resolved.value
        content = value if isinstance(value, str) else msgspec.json.encode(value).decode()  # `Finisher` bounds it
        done = ToolResult(
            call_id=state.call.id, name=name, status=CallStatus.OK, content=content, data=value, attempts=1
        )
        await self._ledger.record(finisher.finished(done), durable=True)
        return False

    async def _same(self, state: CallState, step: int) -> Decided | None:
        """Return the call as it is today, if it is still the very one that started and may run now."""
        if self._interrupt.stop is not None:
            return None
        answer, edited = consent.answer_of(state), consent.edit_of(state)
        is_new = answer is not None and answer.arguments is not None
        recorded = None if is_new else consent.recorded_decision(state)
        checked = await self._checker.check(
            state.call, position=state.position, step=step, edited=edited, recorded=recorded
        )
        if not isinstance(checked, Decided):
            return None
        assert state.started is not None
        decided = msgspec.structs.replace(checked, decision=consent.still_boxed(checked.decision, state))
        may_run = decided.decision.kind == DecisionKind.ASK or self._checker.may_start(decided)
        return decided if may_run and decided.call.key == state.started.key else None

    async def _resolve(self, state: CallState, decided: Decided, finisher: Finisher) -> bool:
        """Find out about a call in doubt: ask the tool, else a person, else tell the model. Return whether to run it."""
        allowed = consent.answer_in_doubt(state, decided.call, self._ledger.state.id)
        if allowed == "allow":
            return True
        if allowed == "deny":
            await self._tell(state, finisher)
            return False
        answer = await self._ask_tool(state, decided.may_run)
        if isinstance(answer, ToolResult):
            await self._ledger.record(finisher.finished(answer))
            return False
        if answer == "absent":
            return True
        if self._person_is_there(state) and self._interrupt.stop is None:
            await self._ask_person(state, decided.call)
        else:
            await self._tell(state, finisher)
        return False

    # --- the tool

    async def _ask_tool(self, state: CallState, call: CheckedCall) -> ToolResult | Literal["absent", "unknown"]:
        """Return the result of a call that was done, or whether it surely was not."""
        if call.tool.check is None:
            if not self._is_asked_about(state, call):
                await self._doubt(state)
            return "unknown"
        answer = await self._attempts.ask_until_sure(call, over_at=self._over_at(state, call))
        word = "done" if isinstance(answer, ToolResult) else "not_done" if answer is NotDone else "unknown"
        await self._doubt(state, asked="check", answer=word)
        if isinstance(answer, ToolResult):
            return msgspec.structs.replace(answer, attempts=1)
        return "absent" if word == "not_done" else "unknown"

    def _over_at(self, state: CallState, call: CheckedCall) -> float:
        """Return when the attempt that died has surely ended: its tool's whole time limit after this run began.

        Measured by this process alone: the clock that stamped `tool.started` may be another machine's.
        """
        assert state.started is not None
        limits = [limit for limit in (state.started.timeout, call.tool.timeout) if limit is not None]
        return self._begun + max(limits, default=0.0)

    # --- a person

    def _person_is_there(self, state: CallState) -> bool:
        """Whether somebody can be asked: as the agent says, else where a person had consented to this call."""
        if consent.edit_of(state) is not None:
            return False  # the consent was to other arguments than the model's: a second one could not say to which
        if self._in_doubt is not None:
            return self._in_doubt == "ask"
        return state.approval is not None

    def _is_asked_about(self, state: CallState, call: CheckedCall) -> bool:
        """Whether a person is asked already whether to run the call again."""
        now, session_id = self._ledger.store_time(), self._ledger.state.id
        return consent.is_asked_about(state, call, session_id, now=now, is_in_doubt=True)

    async def _ask_person(self, state: CallState, call: CheckedCall) -> None:
        """Ask whether to run the call again, unless that very question is open already."""
        if self._is_asked_about(state, call):
            return
        request = consent.request(
            state,
            call,
            consent.has_started_before(),
            session=self._session,
            token=self._ledger.randomness.token(),
            expires_at=self._ledger.store_time() + self._approval_seconds,
        )
        await self._ledger.record(request, durable=True)

    # --- the model

    async def _doubt(self, state: CallState, *, asked: str | None = None, answer: str | None = None) -> None:
        await self._ledger.record(in_doubt(state, asked=asked, answer=answer))

    async def _tell(self, state: CallState, finisher: Finisher) -> None:
        await self._ledger.record(finisher.finished(unknown_outcome(state.call)))
