"""Early calls: reads that start while the model's response still streams (design section 4, "Early start").

Not a second scheduler: only a `read`, allowed and valid, whose every predecessor in the response is one too.
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial

from treadle.engine.rules.bounds import claims_alone
from treadle.engine.rules.tries import Progress, Tries
from treadle.engine.scope import RunScope
from treadle.engine.tool_calls import refusals
from treadle.engine.tool_calls.attempts import Attempts
from treadle.engine.tool_calls.calls import Checked, Decided, Finisher
from treadle.engine.tool_calls.checking import Checker
from treadle.events import AnyEvent, ModelDiscarded
from treadle.messages import ToolCall
from treadle.ports import DecisionKind
from treadle.redaction import redacted_logger
from treadle.state import Suspended
from treadle.tools import CheckedCall, ToolResult

__all__ = ["EarlyCalls"]

logger = redacted_logger(__name__)


class _Running:
    """One early call. `end` is the whole of it, done when its `tool.finished` is recorded, or when it waits for something; it is
    never cancelled."""

    def __init__(self, *, proposed: ToolCall, call: CheckedCall, finisher: Finisher) -> None:
        self.proposed = proposed  # an interceptor may have changed the arguments of what runs
        self.call = call
        self.finisher = finisher
        self.begun = asyncio.Event()  # set when its `tool.started` is recorded, or could not be
        self.is_wanted = True
        self.task: asyncio.Task[ToolResult] | None = None  # once the start is recorded
        self.end: asyncio.Task[ToolResult | Suspended]

    def stop(self) -> None:
        self.is_wanted = False
        if self.task is not None:
            self.task.cancel()


class EarlyCalls:
    """The early calls of one run's current step, which closes them: nothing of them outlives it."""

    def __init__(
        self, scope: RunScope, *, checker: Checker, attempts: Attempts, tries: Tries, progress: Progress
    ) -> None:
        self._ledger = scope.ledger
        self._top = scope.top
        self._checker = checker
        self._attempts = attempts
        self._slots = scope.slots
        self._batch_time = scope.batch_time
        self._tries = tries
        self._progress = progress
        self._current: dict[str, _Running] = {}
        self._kept: list[_Running] = []
        self._checked: dict[str, Checked] = {}
        self._seen = 0
        self._choice = "auto"
        self.room = 0
        """How many calls of this response may start early."""
        self.is_unused = True
        """Whether no call of the response was looked at, and none of another is kept: then nobody need ask for one."""

    async def close(self, error: BaseException | None) -> None:
        """End what nobody came for, whatever the step resulted in: each call has its `tool.finished` when this returns.

        Args:
            error: What the step raised; None for nothing.

        Raises:
            JournalError: The end of a call could not be recorded, and the step raised nothing itself.
        """
        try:
            await self.drop()
        except Exception:
            if error is None:
                raise
            logger.warning("The end of an early call could not be recorded", exc_info=True)

    def listen(self, room: int, *, tool_choice: str = "auto") -> None:
        """Begin a response of which at most `room` calls may start early, and those only that its request permits."""
        if self._batch_time is not None:
            self._batch_time.end()
        self._choice = tool_choice
        self.room, self._seen = room, 0
        self._checked.clear()
        self.is_unused = not (self._kept or self._current)

    async def offer(self, proposed: ToolCall, *, position: int, step: int, attempt: int) -> None:
        """Start the call if it may start now; else it and all after it wait for the whole response."""
        if (
            position != self._seen
            or position >= self.room
            or refusals.forbidden_by(self._choice, proposed.name) is not None
        ):
            return
        self.is_unused = False
        checked = await self._checker.check(proposed, position=position, step=step)
        self._checked[proposed.id] = checked
        if not isinstance(checked, Decided) or not self._may_start(checked):
            return
        if any(running.call.digest == checked.call.digest for running in self._kept):
            self._seen += 1
            return  # a discarded response has started an equal call: its result will answer this one
        if not await self._slots.take(1):
            return
        self._seen += 1
        await self._start(proposed, checked, step=step, attempt=attempt)

    async def _start(self, proposed: ToolCall, decided: Decided, *, step: int, attempt: int) -> None:
        """Record the start and begin. What was begun stays whole though the response, and we with it, be cancelled."""
        call = decided.may_run
        finisher = Finisher(run_id=self._ledger.run_id, step=step, last_id="", state=self._ledger.state)
        started = finisher.started(call, early=proposed, attempt=attempt)
        running = _Running(proposed=proposed, call=call, finisher=finisher)
        self._current[proposed.id] = running
        record = (decided.event(early=True, step=step), started)
        running.end = asyncio.create_task(self._carry_out(running, record))
        await running.begun.wait()
        if running.end.done():
            running.end.result()  # it could not be recorded: raise that here

    async def _carry_out(self, running: _Running, events: Sequence[AnyEvent]) -> ToolResult | Suspended:
        try:
            if not await self._ledger.record(*events, holds=partial(self._is_of_now, running.call)):
                self._current.pop(running.proposed.id, None)
                self.room = 0  # it waits for the whole response, and so does what comes behind it
                return refusals.discarded(running.proposed)
            running.task = asyncio.create_task(self._attempts.run(running.call))
            if not running.is_wanted:
                running.task.cancel()
            running.begun.set()
            result = await running.task
        except asyncio.CancelledError:
            result = refusals.discarded(running.proposed)
        except Suspended as suspended:
            return suspended  # recorded once its response is known to need it
        finally:
            self._slots.give_back()
            running.begun.set()
        await self._ledger.record(running.finisher.finished(result))
        return result

    def _is_of_now(self, call: CheckedCall) -> bool:
        """Whether a call was decided on in the mode that holds now."""
        return call.decision is None or call.decision.mode == self._top.mode

    def _may_start(self, decided: Decided) -> bool:
        """Whether this decided call may start now. One that ends the run waits until the run is known to need it."""
        call = decided.call
        is_repeat = self._tries.may_be_over(self._tries.key(decided.proposed, call.digest))
        is_allowed = decided.decision.kind == DecisionKind.ALLOW
        is_own_record = call.tool.resumes  # an agent's work is too much to discard with a response that breaks off
        is_held = is_repeat or self._progress.is_at_its_end or call.tool.ends_run or is_own_record
        is_wanted = call.effect.is_read and is_allowed and not is_held
        return is_wanted and (call.tool.resources is None or not claims_alone(call))

    def find(self, proposed: ToolCall) -> CheckedCall | None:
        """Return the early call that this one is. Its id names it, however the whole response writes its arguments."""
        running = self._current.get(proposed.id)
        return None if running is None else running.call

    def checked(self, proposed: ToolCall) -> Checked | None:
        """Return what was found of this call while it streamed, so that no policy is asked twice about one call.

        What was decided in another mode holds no longer.
        """
        checked = self._checked.pop(proposed.id, None)
        is_stale = isinstance(checked, Decided) and checked.decision.mode != self._top.mode
        return None if is_stale else checked

    def take(self, call: CheckedCall) -> CheckedCall | None:
        """Return an early call of a discarded response that is equal to this one; each answers once."""
        for running in self._kept:
            if running.call.digest == call.digest:
                self._kept.remove(running)
                self._current[running.call.id] = running
                return running.call
        return None

    @property
    def is_idle(self) -> bool:
        return all(one.end.done() for one in (*self._current.values(), *self._kept))

    async def wait_idle(self) -> None:
        """Return when none of them runs: before a call that acts."""
        if ends := [one.end for one in (*self._current.values(), *self._kept)]:
            await asyncio.wait(ends)

    async def result_of(self, call: CheckedCall, *, is_own: bool) -> ToolResult | Suspended:
        """Wait for an early call's result, whose `tool.finished` is recorded by itself, or for why it waits.

        Args:
            is_own: Whether it is the call itself that is answered, not an equal one of a retry: nothing waits for that any more.
        """
        running = self._current.pop(call.id)
        result = await running.end
        if not is_own:
            await self._end(running)
        return result

    async def _end(self, running: _Running) -> None:
        """Give a call that waits its `tool.finished`: nobody wants it any more. Raises what the call's end has raised."""
        if isinstance(running.end.result(), Suspended):
            await self._ledger.record(running.finisher.finished(refusals.discarded(running.proposed)))

    async def discard(self, *, attempt: int, step: int, reason: str) -> None:
        """The response broke off: keep what it started for equal calls of the retry."""
        started = tuple(call_id for call_id, one in self._current.items() if one.task is not None)
        await self._ledger.record(ModelDiscarded(step=step, attempt=attempt, reason=reason, calls=started))
        self._kept.extend(self._current.values())
        self._current.clear()

    async def drop(self, *, but: Collection[str] = ()) -> None:
        """Stop what nobody wants any more. They are reads, so nothing is lost; each still gets its `tool.finished`.

        Args:
            but: Ids of the calls that are wanted.

        Raises:
            JournalError: The end of one could not be recorded.
        """
        if not (self._kept or self._current):  # most steps
            return
        unwanted = [*self._kept, *(one for call_id, one in self._current.items() if call_id not in but)]
        self._kept.clear()
        self._current = {call_id: one for call_id, one in self._current.items() if call_id in but}
        for running in unwanted:
            running.stop()
        if unwanted:
            await asyncio.wait([running.end for running in unwanted])
        for running in unwanted:
            await self._end(running)
