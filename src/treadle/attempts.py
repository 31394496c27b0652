"""Attempts: carry out one decided call. Time limits, retries by effect, the result's contract, its bound.

Decides nothing about permission and nothing about other calls; always gives exactly one result.
"""

import asyncio
import copy
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from treadle.budgets import Budget
from treadle.errors import Rejected, Transient
from treadle.events import ContractViolated, ToolAttemptFailed, ToolLate, ToolProgress
from treadle.ledger import Ledger
from treadle.messages import ToolCall
from treadle.ports import Interceptor
from treadle.runtime.bounds import bound
from treadle.runtime.failures import Cut, contained, describe, failure_class, kept_inside, traceback_of
from treadle.runtime.interrupts import Interrupt, wait_at_most
from treadle.runtime.observations import failed_result
from treadle.runtime.outputs import fault_of, output_of
from treadle.runtime.retries import LONGEST_WAIT_SECONDS, backoff_seconds, may_retry_call
from treadle.runtime.threads import Threads
from treadle.stops import StopReason
from treadle.toolbox import Toolbox
from treadle.tools import (
    CallStatus,
    CheckedCall,
    JsonObject,
    NotDone,
    SessionSnapshot,
    ToolOutput,
    ToolResult,
    Unknown,
)

__all__ = ["Abandoned", "Attempts", "CallContext"]

logger = logging.getLogger(__name__)

GRACE_SECONDS = 0.2
"""How long a call that was told to stop may take to end before it is left behind."""

_threads = Threads()


class CallContext:
    """What one attempt of one call may know: the `ToolContext` that tools are given."""

    def __init__(self, checked: CheckedCall, attempt: int, deps: Any, ledger: Ledger) -> None:
        self._checked = checked
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._session: SessionSnapshot | None = None
        self.attempt = attempt
        self.deps = deps
        self.cancelled = False

    @property
    def call(self) -> ToolCall:
        return self._checked.call

    @property
    def idempotency_key(self) -> str:
        return self._checked.key

    @property
    def session(self) -> SessionSnapshot:
        if self._session is None:
            state = self._ledger.state
            self._session = SessionSnapshot(
                id=state.id, run_id=self._ledger.run_id, step=state.step, messages=state.transcript
            )
        return self._session

    def progress(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        event = ToolProgress(call_id=self._checked.id, message=str(message), done=done, total=total)
        try:
            self._loop.call_soon_threadsafe(self._ledger.publish, event)  # a blocking tool calls from its thread
        except RuntimeError:
            return  # the loop has been closed: nobody listens to an abandoned call


class Attempts:
    """Runs calls of one run. One instance a run; calls run side by side through it."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        toolbox: Toolbox,
        interrupt: Interrupt,
        budget: Budget,
        interceptors: Sequence[Interceptor] = (),
        deps: Any = None,
        abandoned: "Abandoned | None" = None,
    ) -> None:
        self._ledger = ledger
        self._toolbox = toolbox
        self._interrupt = interrupt
        self._budget = budget
        self._interceptors = interceptors
        self._deps = deps
        self.slots = asyncio.Semaphore(budget.max_parallel_tool_calls or _NO_CAP)
        """One for each call that may run now. Whoever starts a call takes one, and gives it back."""
        self.abandoned: Abandoned = {} if abandoned is None else abandoned
        """Calls that were given up and have not ended: a non-read keeps its resource until it does."""

    async def run(self, checked: CheckedCall) -> ToolResult:
        """Carry out the call and return its one result. Never raises for the tool's own failure."""
        clock = self._ledger.clock
        started = clock.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                value = await self._once(checked, attempt)
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                    raise
                if await self._retry(checked, error, attempt):
                    continue
                result = await self._failed(checked, error, attempt, clock.monotonic() - started)
            else:
                result = await self._returned(checked, value)
            break
        seconds = round(clock.monotonic() - started, 6)
        result = msgspec.structs.replace(result, attempts=attempt, duration_seconds=seconds)
        for interceptor in self._interceptors:
            result = await self._after(interceptor, checked, result)
        return result

    async def ask_check(self, checked: CheckedCall, attempt: int = 1) -> ToolResult | type[NotDone] | type[Unknown]:
        """Ask the tool's own `check` whether a call of unknown outcome was done: its result if so."""
        check = checked.tool.check
        if check is None or self._interrupt.stop is not None:
            return Unknown
        context = CallContext(checked, attempt, self._deps, self._ledger)
        asking = asyncio.ensure_future(contained(_awaited(check, copy.deepcopy(checked.arguments), context)))
        try:
            answer = await self._watched(checked, context, asking, checked.tool.timeout)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                raise
            logger.warning("check() of %s failed for call %s", checked.name, checked.id, exc_info=True)
            return Unknown
        for word in (NotDone, Unknown):
            if answer is word or isinstance(answer, word):
                return word
        return await self._returned(checked, answer)

    # --- one attempt

    async def _once(self, checked: CheckedCall, attempt: int) -> Any:
        """Start the tool once and wait for it, its time limit or an interrupt.

        Raises:
            Cut: The time was up or the run was interrupted; the call has been told to stop.
            BaseException: Whatever the tool raised.
        """
        context = CallContext(checked, attempt, self._deps, self._ledger)
        clock, limit = self._ledger.clock, checked.tool.timeout
        begun = clock.monotonic()
        value = await self._watched(checked, context, _start(checked, context, attempt), limit)
        if not inspect.isawaitable(value):
            return value
        # A plain function that makes a coroutine, such as a lambda: it goes on here, within the same limit.
        left = None if limit is None else max(limit - (clock.monotonic() - begun), 0.0)
        return await self._watched(checked, context, asyncio.ensure_future(contained(value)), left)

    async def _watched(
        self, checked: CheckedCall, context: CallContext, future: "asyncio.Future[Any]", seconds: float | None
    ) -> Any:
        begun = self._ledger.clock.monotonic()
        try:
            is_done = await self._interrupt.wait_for([future], seconds)
        except asyncio.CancelledError:
            context.cancelled = True
            self._abandon(future, checked)
            raise
        if not is_done and checked.tool.interrupt == "block" and self._interrupt.is_patient:
            context.cancelled = True
            left = (seconds or 0.0) - (self._ledger.clock.monotonic() - begun)
            await wait_at_most(self._ledger.clock, [future], max(left, 0.0))
            is_done = future.done()
        if is_done:
            return future.result()
        by_limit = self._interrupt.stop is None
        context.cancelled = True
        if isinstance(future, asyncio.Task):
            future.cancel()
            await wait_at_most(self._ledger.clock, [future], GRACE_SECONDS)
        if not future.done():
            self._abandon(future, checked)  # a thread cannot be stopped, only told
        elif not future.cancelled():
            await self._late(checked, future)
        raise Cut(by_limit=by_limit, seconds=self._ledger.clock.monotonic() - begun)

    def _abandon(self, future: "asyncio.Future[Any]", checked: CheckedCall) -> None:
        """Leave a call behind that has been told to stop. It is remembered until it ends."""
        if isinstance(future, asyncio.Task):
            future.cancel()
        self.abandoned[future] = checked
        logger.info("Call %s of %s was told to stop and runs on", checked.id, checked.name)

        def ended(_: "asyncio.Future[Any]") -> None:
            self.abandoned.pop(future, None)
            if future.cancelled():
                return
            task = asyncio.ensure_future(self._late(checked, future))
            _background.add(task)
            task.add_done_callback(_background.discard)

        future.add_done_callback(ended)

    async def _late(self, checked: CheckedCall, future: "asyncio.Future[Any]") -> None:
        """Record how a call that had been given up ended (TF11). It is never sent to the model."""
        error = future.exception()
        outcome, content = ("returned", _shown(future.result())) if error is None else ("raised", describe(error))
        event = ToolLate(call_id=checked.id, tool=checked.name, outcome=outcome, content=content)
        try:
            await self._ledger.record(event)
        except Exception:
            # Nobody waits for this any more: a journal that has been closed since must not raise in the event loop.
            logger.info("Late end of call %s of %s could not be recorded", checked.id, checked.name, exc_info=True)

    # --- after an attempt

    async def _retry(self, checked: CheckedCall, error: BaseException, attempt: int) -> bool:
        """Record the failed attempt; return whether to try again, after the pause."""
        wait = self._wait_before_retry(checked, error, attempt)
        await self._ledger.record(
            ToolAttemptFailed(
                call_id=checked.id,
                attempt=attempt,
                failure_class=failure_class(checked.effect, error).value,
                message=describe(error),
                retry_in_seconds=wait,
                traceback=traceback_of(error),
            )
        )
        return wait is not None and await self._interrupt.sleep(wait)

    def _wait_before_retry(self, checked: CheckedCall, error: BaseException, attempt: int) -> float | None:
        cause: BaseException = TimeoutError() if isinstance(error, Cut) else error
        if self._interrupt.stop is not None or not may_retry_call(checked.effect, cause):
            return None
        allowed = self._budget.max_retries_per_tool_call
        if checked.tool.retries is not None:
            allowed = checked.tool.retries if allowed is None else min(allowed, checked.tool.retries)
        if allowed is not None and attempt > allowed:
            return None
        if self._is_running_on(checked) and not checked.effect.is_read:
            return None  # the attempt before still runs: a second one beside it would act twice
        wait = backoff_seconds(attempt, self._ledger.randomness.random())
        asked = _asked_wait(error)
        return None if asked is not None and asked > LONGEST_WAIT_SECONDS else max(wait, asked or 0.0)

    def _is_running_on(self, checked: CheckedCall) -> bool:
        return any(call is checked for call in self.abandoned.values())

    async def _failed(self, checked: CheckedCall, error: BaseException, attempt: int, elapsed: float) -> ToolResult:
        """Turn what ended the last attempt into the call's result. No traceback and no path reaches the model."""
        if isinstance(error, Rejected):
            return self._rejected(checked, error.body, error.code)
        status = self._status_of(checked, error)
        if status is CallStatus.OUTCOME_UNKNOWN and checked.tool.check is not None and not self._is_running_on(checked):
            answer = await self.ask_check(checked, attempt)
            if isinstance(answer, ToolResult):
                return answer
            if answer is NotDone:
                message = f"{checked.name} was not carried out: {describe(error)}"
                return failed_result(checked.call, CallStatus.FAILED, message, code="not_done")
        return self._raised(checked, error, status, elapsed)

    def _raised(self, checked: CheckedCall, error: BaseException, status: CallStatus, elapsed: float) -> ToolResult:
        acted = not checked.effect.is_read
        if status in (CallStatus.TIMEOUT, CallStatus.OUTCOME_UNKNOWN):
            extra: JsonObject = {"outcome": "unknown", "elapsed_seconds": round(elapsed, 3)}
            message = _unknown_message(checked, error, elapsed)
            return failed_result(checked.call, status, message, extra=extra, may_have_acted=acted)
        if status is CallStatus.CANCELLED:
            return failed_result(checked.call, status, "The run was stopped before the call ended.")
        asked = _asked_wait(error)
        extra = {"may_have_acted": acted, **({} if asked is None else {"retry_after_seconds": asked})}
        message = f"The tool failed: {describe(error)}"
        code = (error.code if isinstance(error, Transient) else None) or "internal_error"
        return failed_result(checked.call, status, message, code=code, extra=extra, may_have_acted=acted)

    def _status_of(self, checked: CheckedCall, error: BaseException) -> CallStatus:
        if isinstance(error, Cut) and not error.by_limit and checked.effect.is_read:
            stop = self._interrupt.stop
            is_cancel = stop is not None and stop.reason is StopReason.CANCELLED
            return CallStatus.CANCELLED if is_cancel else CallStatus.TIMEOUT
        return failure_class(checked.effect, error)

    # --- what a tool returned

    async def _returned(self, checked: CheckedCall, value: Any) -> ToolResult:
        """Hold the value to the tool's output contract and bound it."""
        output = output_of(value)
        data, problem = self._toolbox.plain(output.data)
        problem = problem or fault_of(output)
        if problem is not None:
            return await self._violated(checked, [{"field": "", "constraint": "plain JSON", "value": problem}], None)
        if violations := self._toolbox.result_violations(checked.tool, data):
            if self._toolbox.fits_error_schema(checked.tool, data):
                return self._rejected(checked, data, None)
            return await self._violated(checked, violations, data)
        return await self._ok(checked, data, output)

    async def _ok(self, checked: CheckedCall, data: Any, output: ToolOutput) -> ToolResult:
        text = data if isinstance(data, str) else _json(data)
        content, is_shortened = bound(data, text, self._limit(checked))
        artifact = await self._ledger.journal.put_blob(text.encode()) if is_shortened else None
        return ToolResult(
            call_id=checked.id,
            name=checked.name,
            status=CallStatus.OK,
            content=content,
            data=None if is_shortened else data,
            display=output.display,
            media=tuple(output.media),
            artifact=artifact,
        )

    def _rejected(self, checked: CheckedCall, body: Any, code: str | None) -> ToolResult:
        """The service said no: its own body goes to the model unchanged (F04)."""
        data, problem = self._toolbox.plain(body)
        plain = data if problem is None else describe(Rejected(body))
        message = f"{checked.name} was refused by its service, in the words of `details`. It was not tried again."
        result = failed_result(checked.call, CallStatus.REJECTED, message, code=code, details=[plain])
        content, is_shortened = bound(msgspec.json.decode(result.content), result.content, self._limit(checked))
        return msgspec.structs.replace(result, content=content, data=None if is_shortened else plain)

    async def _violated(self, checked: CheckedCall, violations: list[JsonObject], data: Any) -> ToolResult:
        """The tool broke its own contract: the raw value is kept for operators, out of the model's sight (F06)."""
        artifact = None if data is None else await self._ledger.journal.put_blob(_json(data).encode())
        shape = "" if data is None else " " + self._toolbox.shape_mismatch(checked.tool, data)
        message = f"{checked.name} ran, but its result has an unexpected shape and was withheld.{shape}"
        told = [{"field": row.get("field", ""), "constraint": row.get("constraint", "")} for row in violations]
        await self._ledger.record(
            ContractViolated(call_id=checked.id, tool=checked.name, details=tuple(violations), artifact=artifact)
        )
        acted = not checked.effect.is_read
        result = failed_result(
            checked.call,
            CallStatus.UNEXPECTED_RESULT_SHAPE,
            message,
            details=told,
            may_have_acted=acted,
            extra={"may_have_acted": acted},
        )
        return msgspec.structs.replace(result, artifact=artifact)

    def _limit(self, checked: CheckedCall) -> int | None:
        limits = [limit for limit in (self._budget.max_tool_result_chars, checked.tool.result_limit) if limit]
        return min(limits) if limits else None

    async def _after(self, interceptor: Interceptor, checked: CheckedCall, result: ToolResult) -> ToolResult:
        """Let an interceptor change what is told of a call. It cannot change which call it was, nor what a journal holds."""
        name = type(interceptor).__name__
        try:
            answer = interceptor.after(checked.call, result)
            changed = await self._in_time(answer) if inspect.isawaitable(answer) else answer
            if changed is result:
                return result
            changed = msgspec.structs.replace(changed, call_id=result.call_id, name=result.name)
            changed = msgspec.json.decode(msgspec.json.encode(changed), type=ToolResult)
        except Exception:
            # The call has happened: its result must reach the model whatever an interceptor does.
            logger.exception("Interceptor %s failed after %s; its result stands", name, checked.name)
            return result
        content, _ = bound(changed.content, changed.content, self._limit(checked))
        return msgspec.structs.replace(changed, content=content)

    async def _in_time(self, answer: Awaitable[ToolResult]) -> ToolResult:
        """Wait for an interceptor, but not past the end of the run: a short grace is all that it has then."""
        task = asyncio.ensure_future(_one(answer))
        if not await self._interrupt.wait_for([task]):
            await wait_at_most(self._ledger.clock, [task], GRACE_SECONDS)
        if not task.done():
            task.cancel()
            raise TimeoutError("the run was stopped meanwhile")
        return task.result()


Abandoned: TypeAlias = dict["asyncio.Future[Any]", CheckedCall]

_NO_CAP = 1_000_000

_background: set["asyncio.Task[None]"] = set()
"""Recordings of late ends, held so that they are not collected while they run."""


def _start(checked: CheckedCall, context: CallContext, attempt: int) -> "asyncio.Future[Any]":
    """Start the tool: a coroutine function as a task, any other function in a thread. Each gets its own arguments (TF7)."""
    tool = checked.tool
    if tool.convert is None:
        values = copy.deepcopy(checked.arguments)
    else:
        values = checked.values if attempt == 1 else tool.convert(copy.deepcopy(checked.arguments))
    if inspect.iscoroutinefunction(tool.run) or inspect.iscoroutinefunction(type(tool.run).__call__):
        return asyncio.ensure_future(contained(tool.run(values, context)))
    return _threads.submit(lambda: kept_inside(lambda: tool.run(values, context)))


async def _awaited(function: Callable[..., Awaitable[Any]], arguments: JsonObject, context: CallContext) -> Any:
    return await function(arguments, context)


async def _one(answer: Awaitable[ToolResult]) -> ToolResult:
    return await answer


def _is_being_cancelled() -> bool:
    """Whether somebody cancels us, rather than the tool having raised CancelledError of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _asked_wait(error: BaseException) -> float | None:
    """Return the seconds that a tool's service asked us to wait. What is no span of time asks nothing."""
    asked = error.retry_after_seconds if isinstance(error, Transient) else None
    is_number = isinstance(asked, int | float) and math.isfinite(asked) and asked >= 0
    return asked if is_number else None


def _unknown_message(checked: CheckedCall, error: BaseException, elapsed: float) -> str:
    how = f"gave no answer within {elapsed:.3g} s" if isinstance(error, Cut) else f"broke off ({describe(error)})"
    if checked.effect.is_read:
        return f"{checked.name} {how}. It only reads, so nothing has changed."
    return f"{checked.name} {how}. Its outcome is unknown: it may have been carried out. Check before you repeat it."


def _shown(value: Any) -> str:
    """Return a late value for operators."""
    try:
        return repr(value)[:2000].encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - a stranger's object may refuse to be shown
        return type(value).__name__


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
