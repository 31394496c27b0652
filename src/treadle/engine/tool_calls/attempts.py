"""Attempts: carry out one decided call: retries by effect, the result's contract, its bound.

Decides nothing about permission and nothing about other calls; always gives exactly one result.
"""

import asyncio
import math
from collections.abc import Callable, Container
from types import CoroutineType
from typing import Any

import msgspec

from treadle.budgets import Budget
from treadle.engine.hooks import Hooks
from treadle.engine.interrupts import Interrupt
from treadle.engine.rules.endings import cut_status
from treadle.engine.rules.failures import (
    Cut,
    FailureText,
    describe,
    failure_class,
    is_being_cancelled,
    told,
    traceback_of,
)
from treadle.engine.rules.retries import LONGEST_WAIT_SECONDS, backoff_seconds, may_retry_call
from treadle.engine.tool_calls.contract import Contract
from treadle.engine.tool_calls.invocation import Invoker, Slots
from treadle.errors import Rejected, Transient
from treadle.events import ContractViolated, ToolAttemptFailed, ToolProgress
from treadle.permissions.modes import may_start_again
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.state import Suspended
from treadle.tooling.toolbox import Contracts
from treadle.tools import (
    CallStatus,
    CheckedCall,
    Done,
    JsonObject,
    Mode,
    NotDone,
    ToolResult,
    Unfinished,
    Unknown,
    answer_of_check,
)
from treadle.tools.results import TOOL_UNAVAILABLE, after_earlier_attempt, failed_result

__all__ = ["Attempts"]

logger = redacted_logger(__name__)


class Attempts:
    """Runs calls of one run. One instance a run; calls run side by side through it."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        contracts: Contracts,
        interrupt: Interrupt,
        invoker: Invoker,
        budget: Budget,
        hooks: Hooks,
        mode: Callable[[], Mode],
        required: Container[str] = (),
        failure_text: FailureText = "short",
    ) -> None:
        self._ledger = ledger
        self._contract = Contract(ledger=ledger, contracts=contracts, max_chars=budget.max_tool_result_chars)
        self.result_chars = budget.max_tool_result_chars
        """Characters of a result that the model is shown; None for no limit."""
        self._interrupt = interrupt
        self._budget = budget
        self._hooks = hooks
        self._mode = mode
        self._required = required
        self._failure_text: FailureText = failure_text
        self.invoker = invoker
        invoker.limit = self._contract.limit
        self.batch_time = invoker.batch_time
        self.slots = Slots(budget.max_parallel_tool_calls)

    async def run(self, call: CheckedCall) -> ToolResult:
        """Carry out the call and return its one result. Never raises for the tool's own failure.

        Raises:
            Suspended: The call waits for something, and has no result yet.
        """
        clock = self._ledger.clock
        started = clock.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                value = await self.invoker.call(call, attempt)
            except Suspended:
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                    raise
                if await self._retry(call, error, attempt):
                    continue
                result = await self._failed(call, error, attempt, started=started)
            else:
                result = await self._contract.returned(call, value)
                value = None  # a large one is let go of in slices
            break
        seconds = round(clock.monotonic() - started, 6)
        result = msgspec.structs.replace(result, attempts=attempt, duration_seconds=seconds)
        if self._may_have_acted_before(call, attempt):
            result = after_earlier_attempt(result)
        return await self._after(call, result) if self._hooks.sees_results else result

    def _may_have_acted_before(self, call: CheckedCall, attempt: int) -> bool:
        """Whether an attempt before the last one may have been carried out, here or in a process that died."""
        state = self._ledger.state.open.get(call.id)
        return not call.effect.is_read and (attempt > 1 or (state is not None and state.starts > 1))

    async def ask_check(self, call: CheckedCall, attempt: int = 1) -> ToolResult | type[NotDone] | type[Unknown]:
        """Ask the tool's own `check` whether a call of unknown outcome was done: its result if so.

        A value that is not an answer is recorded as a broken contract, and leaves the outcome unknown.
        """
        check = call.tool.check
        if check is None or self._interrupt.stop is not None:
            return Unknown
        try:
            answer = await self.invoker.ask(check, call, attempt)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            logger.warning("check() of %s failed for call %s", call.name, call.id, exc_info=True)
            return Unknown
        said = answer_of_check(answer)
        if said is None:
            return await self._no_answer(call, answer)
        return await self.done(call, said.value) if isinstance(said, Done) else said

    async def ask_until_sure(
        self, call: CheckedCall, attempt: int = 1, *, over_at: float
    ) -> ToolResult | type[NotDone] | type[Unknown]:
        """Ask `check`, and believe `NotDone` only once no request of the call can still be under way in its service.

        Args:
            over_at: The monotonic time at which the last start of the call has surely ended.
        """
        answer = await self.ask_check(call, attempt)
        wait = over_at - self._ledger.clock.monotonic()
        if answer is not NotDone or wait <= 0:
            return answer
        self._ledger.publish(_waiting(call, wait))
        return await self.ask_check(call, attempt) if await self._interrupt.sleep(wait) else Unknown

    async def done(self, call: CheckedCall, value: Any) -> ToolResult:
        """Return the result of a call that was done, from its value, held to the tool's contract."""
        return await self._contract.returned(call, value)

    async def _no_answer(self, call: CheckedCall, value: object) -> type[Unknown]:
        """Record that `check` gave no answer. Nobody may read None or False as "it was done"."""
        if type(value) is CoroutineType:
            value.close()
        row = {"field": "check", "constraint": "Done(value), NotDone or Unknown", "value": _kind_of(value)}
        logger.error("check() of %s returned %s for call %s: no answer", call.name, row["value"], call.id)
        await self._ledger.record(ContractViolated(call_id=call.id, tool=call.name, details=(row,)))
        return Unknown

    # --- after an attempt

    async def _retry(self, call: CheckedCall, error: BaseException, attempt: int) -> bool:
        """Record the failed attempt; return whether to try again, after the pause."""
        wait = self._wait_before_retry(call, error, attempt)
        await self._ledger.record(
            ToolAttemptFailed(
                call_id=call.id,
                attempt=attempt,
                failure_class=failure_class(call.effect, error).value,
                message=describe(error),
                retry_in_seconds=wait,
                traceback=traceback_of(error),
            )
        )
        return wait is not None and await self._interrupt.sleep(wait) and may_start_again(self._mode(), call)

    def _wait_before_retry(self, call: CheckedCall, error: BaseException, attempt: int) -> float | None:
        cause: BaseException = TimeoutError() if isinstance(error, Cut) else error
        if isinstance(error, Unfinished) or self._interrupt.stop is not None or not may_retry_call(call.effect, cause):
            return None
        if self._is_lacking(call, error) or not may_start_again(self._mode(), call):
            return None
        allowed = self._budget.max_retries_per_tool_call
        if call.tool.retries is not None:
            allowed = call.tool.retries if allowed is None else min(allowed, call.tool.retries)
        if allowed is not None and attempt > allowed:
            return None
        if self.invoker.late.has(call) and not call.effect.is_read:
            return None  # the attempt before still runs: a second one beside it would act twice
        wait = backoff_seconds(attempt, self._ledger.randomness.random())
        asked, left = _retry_after_seconds(error) or 0.0, self.batch_time.within(self._interrupt.seconds_left)
        wait = max(wait, asked)
        return None if asked > LONGEST_WAIT_SECONDS or (left is not None and wait >= left) else wait

    async def _failed(self, call: CheckedCall, error: BaseException, attempt: int, *, started: float) -> ToolResult:
        """Turn what ended the last attempt into the call's result. No traceback and no path reaches the model.

        Args:
            started: When the first attempt began, by the monotonic clock.
        """
        now = self._ledger.clock.monotonic()
        elapsed = now - started
        if isinstance(error, Rejected):
            return await self._contract.rejected(call, error.body, _code_of(error))
        if isinstance(error, Unfinished):
            return await self._contract.unfinished(call, error)
        if not isinstance(error, Cut):
            self._log(call, error)
            await self._hooks.error(error, call)
        status = self._status_of(call, error)
        if status is CallStatus.OUTCOME_UNKNOWN and call.tool.check is not None and not self.invoker.late.has(call):
            over_at = now + (call.tool.timeout or 0.0)  # its request may have been sent a moment ago
            answer = await self.ask_until_sure(call, attempt, over_at=over_at)
            if isinstance(answer, ToolResult):
                return answer
            if answer is NotDone:
                message = f"{call.name} was not carried out: {told(error, self._failure_text)}"
                return failed_result(call, CallStatus.FAILED, message, code="not_done")
        return self._raised(call, error, status, elapsed)

    def _log(self, call: CheckedCall, error: BaseException) -> None:
        where = (call.name, call.id, self._ledger.run_id, self._ledger.state.id)
        logger.warning("Tool %s raised in call %s of run %s, session %s", *where, exc_info=error)

    def _raised(self, call: CheckedCall, error: BaseException, status: CallStatus, elapsed: float) -> ToolResult:
        acted = not call.effect.is_read
        if status in (CallStatus.TIMEOUT, CallStatus.OUTCOME_UNKNOWN):
            extra: JsonObject = {"outcome": "unknown", "elapsed_seconds": round(elapsed, 3)}
            message = _unknown_message(call, error, elapsed, self._failure_text)
            code = TOOL_UNAVAILABLE if self._is_lacking(call, error) else None
            return failed_result(call, status, message, code=code, extra=extra, may_have_acted=acted)
        if status is CallStatus.CANCELLED:
            return failed_result(call, status, "The run was stopped before the call ended.")
        asked = _retry_after_seconds(error)
        extra = {"may_have_acted": acted, **({} if asked is None else {"retry_after_seconds": asked})}
        message = f"The tool failed: {told(error, self._failure_text)}"
        code = (_code_of(error) if isinstance(error, Transient) else None) or "internal_error"
        code = TOOL_UNAVAILABLE if self._is_lacking(call, error) else code
        return failed_result(call, status, message, code=code, extra=extra, may_have_acted=acted)

    def _is_lacking(self, call: CheckedCall, error: BaseException) -> bool:
        """Whether a tool that the run needs cannot reach its service: asking again is of no use to a run that must stop."""
        return call.name in self._required and isinstance(error, ConnectionError)

    def _status_of(self, call: CheckedCall, error: BaseException) -> CallStatus:
        if isinstance(error, Cut) and error.stop is not None and call.effect.is_read:
            return cut_status(error.stop)
        return failure_class(call.effect, error)

    async def _after(self, call: CheckedCall, result: ToolResult) -> ToolResult:
        """Let hooks change what is reported of a call, within its limit."""
        changed = await self._hooks.after_tool(call, result)
        if changed is result:
            return result
        return await self._contract.reshaped(call, changed)


def _retry_after_seconds(error: BaseException) -> float | None:
    """Return the seconds that a tool's service asked us to wait. What is not a span of time asks nothing."""
    asked: object = error.retry_after_seconds if isinstance(error, Transient) else None
    is_number = issubclass(type(asked), int | float)  # of the type: what is not a number may raise when it is looked at
    seconds = float(asked) if is_number else -1.0  # type: ignore[arg-type]  # a number, as just said
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _code_of(error: Rejected | Transient) -> str | None:
    """Return the finer word that a tool's author gave an error. A code that is not text is dropped."""
    code: object = error.code
    return str(code) if issubclass(type(code), str) else None


def _unknown_message(call: CheckedCall, error: BaseException, elapsed: float, form: FailureText) -> str:
    if not isinstance(error, Cut):
        how = f"broke off ({told(error, form)})"
    elif error.stop is None:
        how = f"did not answer within {elapsed:.3g} s"
    else:
        how = f"was interrupted after {elapsed:.3g} s ({error.stop.message.rstrip('.')})"
    if call.effect.is_read:
        return f"{call.name} {how}. It only reads, so nothing has changed."
    return f"{call.name} {how}. Its outcome is unknown: it may have taken effect. Check before you repeat it."


def _waiting(call: CheckedCall, seconds: float) -> ToolProgress:
    message = f"Waiting {seconds:.0f} s until an earlier start of {call.name} has surely ended"
    return ToolProgress(call_id=call.id, message=message, total=seconds)


def _kind_of(value: object) -> str:
    """Return what a `check` returned, for operators: itself where it is plain, else its type."""
    is_empty = type(value) in (list, dict, tuple) and not value
    is_plain = value is None or is_empty or type(value) in (bool, int, float, str)
    return repr(value)[:80] if is_plain else type(value).__name__
