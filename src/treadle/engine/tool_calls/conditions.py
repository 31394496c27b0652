"""Conditions: whether a run is over after a batch of calls: by a tool that ends it, by its user's own condition, or by a guard.

A user's condition is a function of the session that says when the work is done. It is asked after each batch, and sees what the
model sees. Nothing here ends a run by itself.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from treadle.engine.interrupts import Interrupt
from treadle.engine.offering import Offering
from treadle.engine.rules.endings import failure_stop, interrupted_stop, lacking_stop
from treadle.engine.rules.failures import contained, pass_interrupts
from treadle.engine.rules.progress import Progress
from treadle.engine.rules.tries import Tries
from treadle.engine.spec import DoneWhen, OnFailure
from treadle.engine.tool_calls.batch import Batch
from treadle.engine.tool_calls.reminders import Reminders
from treadle.ports import CheckView
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.state import SessionState
from treadle.stops import Stop, StopReason, merged
from treadle.tools import CallStatus, Done, ToolResult
from treadle.tools.results import TOOL_UNAVAILABLE

__all__ = ["Conditions", "DoneCondition"]

logger = redacted_logger(__name__)

_FAILED = frozenset(
    {
        CallStatus.FAILED,
        CallStatus.REJECTED,
        CallStatus.TIMEOUT,
        CallStatus.OUTCOME_UNKNOWN,
        CallStatus.UNEXPECTED_RESULT_SHAPE,
    }
)
"""How a tool that has run fails. What never ran is the model's mistake, or a decision."""


class DoneCondition:
    """The condition of one run.

    Args:
        function: The user's own; None for no condition.
    """

    def __init__(
        self, function: DoneWhen | None, *, session: CheckView, offering: Offering, interrupt: Interrupt
    ) -> None:
        self._function = function
        self._session = session
        self._offering = offering
        self._interrupt = interrupt
        self._ending = offering.ending
        self._required = offering.required

    def ended_by(self, results: Sequence[ToolResult | None]) -> Stop | None:
        """Return the end of the run where a result is a success of a tool that ends it, or a tool that it needs is unavailable."""
        for result in results if self._required else ():
            if result is not None and result.code == TOOL_UNAVAILABLE and result.name in self._required:
                return lacking_stop(result.name, result.message or "")
        for result in results if self._ending else ():
            if result is not None and result.status is CallStatus.OK and result.name in self._ending:
                output = result.data if result.artifact is None else result.content
                return Stop(reason=StopReason.DONE_CONDITION_SATISFIED, output=output)
        return None

    async def stop(self) -> Stop | None:
        """Return the end of the run where the condition holds. A condition that fails is logged and ends nothing."""
        if self._function is None:
            return None
        try:
            answer: Any = self._function(self._session)  # whatever a stranger's function returns
            if inspect.isawaitable(answer):
                awaited, answer = answer, None
                with self._interrupt.cancel_scope():
                    answer = await contained(awaited)
        except BaseException as error:
            pass_interrupts(error)
            logger.exception("The function of done_when raised; the run continues")
            return None
        if answer is None or answer is False:
            return None
        if answer is True or answer is Done:
            answer = Done()
        if not isinstance(answer, Done):
            logger.error("done_when returned a %s; the run continues. Return Done(payload)", type(answer).__name__)
            return None
        return await self._done(answer)

    async def _done(self, answer: Done) -> Stop | None:
        plain = await self._offering.contracts.plain(answer.value)
        if plain.problem is not None:
            logger.error("The payload of done_when is not JSON (%s); the run continues", plain.problem)
            return None
        message = "The condition of done_when holds."
        return Stop(reason=StopReason.DONE_CONDITION_SATISFIED, message=message, output=plain.data)


class Conditions:
    """Whatever may end one run after a batch of calls.

    Args:
        done: The user's own condition.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        done: DoneCondition,
        tries: Tries,
        progress: Progress,
        reminders: Reminders,
        interrupt: Interrupt,
        on_failure: OnFailure = "continue",
    ) -> None:
        self._stops_on_failure = on_failure == "stop"
        self._ledger = ledger
        self._done = done
        self._tries = tries
        self._progress = progress
        self._reminders = reminders
        self._interrupt = interrupt
        self._looks_back = True
        self._shortened = _times_shortened(ledger.state) if ledger.state.compactions.made else 0

    def ended_by(self, results: Sequence[ToolResult | None]) -> Stop | None:
        """Return the end of the run where a result is a success of a tool that ends it, or a failure where none is to be continued after."""
        ended = self._done.ended_by(results)
        if ended is None and self._stops_on_failure:
            failed = next((one for one in results if one is not None and one.status in _FAILED), None)
            return None if failed is None else failure_stop(failed)
        return ended

    async def before_request(self) -> Stop | None:
        """Return the end that the last batch had brought about where its process died before it could record that end.

        Asked before each request; only the first one of a resumed run, if no batch went before it, can find something.
        """
        state, looks_back = self._ledger.state, self._looks_back
        if (interrupted := self._interrupted()) is not None:
            return interrupted
        self._looks_back = False
        if not looks_back or not state.messages or state.messages[-1].role != "tool":
            return None
        return (
            self._done.ended_by([call.result for call in state.answered])
            or await self._done.stop()
            or self._interrupt.stop
        )

    def begin(self) -> Stop | None:
        """Begin a batch. Return the end of the run that a result has brought about which it had before."""
        self._looks_back = False
        return self.ended_by([call.result for call in self._ledger.state.open.values()])

    async def after(self, batch: Batch, *stops: Stop | None) -> Stop | None:
        """Return the end of a run that is done by its user's own condition, or that a guard stops: every such signal.

        Args:
            stops: What ends it already; its user is not asked then.
        """
        guarded = self._guarded()
        is_closing = batch.proposal is not None and batch.proposal.finished.closing
        if all(stop is None for stop in stops):  # a batch that is resumed does not decide again what had interrupted it
            stops = (self._interrupted(),)
        is_over = is_closing or any(stop is not None for stop in stops)
        done = None if is_over else await self._done.stop()
        stop = merged(*self._interrupt.signals, *stops, done, *guarded)
        if stop is None and not self._ledger.state.has_open_calls:
            await self._reminders.remind()
        return stop

    def _interrupted(self) -> Stop | None:
        run = self._ledger.state.run
        return None if run is None or run.interrupted_by is None else interrupted_stop(run.interrupted_by)

    def _guarded(self) -> tuple[Stop, ...]:
        """Count the finished batch as a try. Return the stops of the guards that it has tripped."""
        if self._ledger.state.has_open_calls:
            return ()
        answered = self._ledger.state.answered
        self._tries.add(answered)
        if self._ledger.state.compactions.made and (
            (shortened := _times_shortened(self._ledger.state)) != self._shortened
        ):
            self._shortened = shortened
            self._progress.forget()
        self._progress.add(answered)
        lack = self._progress.stop() if self._progress.is_noteworthy else None
        return self._tries.stops() if lack is None else (*self._tries.stops(), lack)


def _times_shortened(state: SessionState) -> int:
    """Count how often what the model sees was made shorter: what it does not see any more it may look at again."""
    return sum(one.tier != "limits" for one in state.compactions.made)
