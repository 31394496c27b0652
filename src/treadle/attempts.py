"""Attempts: carry out one decided call. Time limits, retries by effect, the result's contract, its bound.

Decides nothing about permission and nothing about other calls; always gives exactly one result.
"""

import asyncio
import base64
import copy
import inspect
import logging
import traceback
from collections.abc import Awaitable, Sequence
from typing import Any

import msgspec

from treadle.budgets import Budget
from treadle.effects import Effect
from treadle.errors import Rejected, Transient
from treadle.events import ContractViolated, ToolAttemptFailed, ToolLate, ToolProgress
from treadle.ledger import Ledger
from treadle.messages import Media, ToolCall
from treadle.ports import Interceptor
from treadle.runtime.bounds import bound
from treadle.runtime.interrupts import Interrupt, wait_at_most
from treadle.runtime.observations import failed_result
from treadle.runtime.retries import LONGEST_WAIT_SECONDS, backoff_seconds, may_retry_call
from treadle.runtime.threads import Threads
from treadle.stops import StopReason
from treadle.toolbox import Toolbox
from treadle.tools import CallStatus, CheckedCall, JsonObject, SessionSnapshot, ToolOutput, ToolResult

__all__ = ["Attempts", "CallContext"]

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
                id=state.id, run_id=self._ledger.run_id, step=state.step, messages=tuple(state.messages)
            )
        return self._session

    def progress(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        event = ToolProgress(call_id=self._checked.id, message=str(message), done=done, total=total)
        try:
            self._loop.call_soon_threadsafe(self._ledger.publish, event)  # a blocking tool calls from its thread
        except RuntimeError:
            return  # the loop has been closed: nobody listens to an abandoned call


class _Cut(Exception):
    """The attempt did not end by itself: its time was up, or the run was interrupted."""

    def __init__(self, *, by_limit: bool, seconds: float) -> None:
        super().__init__("cut")
        self.by_limit = by_limit
        self.seconds = seconds


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
    ) -> None:
        self._ledger = ledger
        self._toolbox = toolbox
        self._interrupt = interrupt
        self._budget = budget
        self._interceptors = interceptors
        self._deps = deps
        self.abandoned: dict[asyncio.Future[Any], CheckedCall] = {}
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
                result = await self._returned(checked, value)
                break
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
                    raise
                if not await self._retry(checked, error, attempt):
                    result = self._raised(checked, error, clock.monotonic() - started)
                    break
        seconds = round(clock.monotonic() - started, 6)
        result = msgspec.structs.replace(result, attempts=attempt, duration_seconds=seconds)
        for interceptor in self._interceptors:
            result = await _after(interceptor, checked.call, result)
        return result

    # --- one attempt

    async def _once(self, checked: CheckedCall, attempt: int) -> Any:
        """Start the tool once and wait for it, its time limit or an interrupt.

        Raises:
            _Cut: The time was up or the run was interrupted; the call has been told to stop.
            BaseException: Whatever the tool raised.
        """
        context = CallContext(checked, attempt, self._deps, self._ledger)
        future = _start(checked, context, attempt)
        begun = self._ledger.clock.monotonic()
        seconds = checked.tool.timeout
        try:
            is_done = await self._interrupt.wait_for([future], seconds)
        except asyncio.CancelledError:
            context.cancelled = True
            future.cancel()
            raise
        if is_done:
            return future.result()
        by_limit = self._interrupt.stop is None
        context.cancelled = True
        if not isinstance(future, asyncio.Task):
            self._abandon(future, checked)  # a thread cannot be stopped, only told
        else:
            future.cancel()
            await wait_at_most(self._ledger.clock, [future], GRACE_SECONDS)
            if not future.done():
                self._abandon(future, checked)
            elif not future.cancelled():
                await self._late(checked, future)
        raise _Cut(by_limit=by_limit, seconds=self._ledger.clock.monotonic() - begun)

    def _abandon(self, future: "asyncio.Future[Any]", checked: CheckedCall) -> None:
        self.abandoned[future] = checked
        logger.warning("Call %s of %s was told to stop and runs on", checked.id, checked.name)

        def ended(_: "asyncio.Future[Any]") -> None:
            self.abandoned.pop(future, None)
            task = asyncio.ensure_future(self._late(checked, future))
            _background.add(task)
            task.add_done_callback(_background.discard)

        future.add_done_callback(ended)

    async def _late(self, checked: CheckedCall, future: "asyncio.Future[Any]") -> None:
        """Record how a call that had been given up ended (TF11). It is never sent to the model."""
        if future.cancelled():
            outcome, content = "cancelled", ""
        elif (error := future.exception()) is not None:
            outcome, content = "raised", f"{type(error).__name__}: {error}"
        else:
            outcome, content = "returned", repr(future.result())
        event = ToolLate(call_id=checked.id, tool=checked.name, outcome=outcome, content=content[:2000])
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
                failure_class=_failure_class(checked.effect, error).value,
                message=_describe(error),
                retry_in_seconds=wait,
                traceback=_traceback(error),
            )
        )
        return wait is not None and await self._interrupt.sleep(wait)

    def _wait_before_retry(self, checked: CheckedCall, error: BaseException, attempt: int) -> float | None:
        cause: BaseException = TimeoutError() if isinstance(error, _Cut) else error
        if self._interrupt.stop is not None or not may_retry_call(checked.effect, cause):
            return None
        allowed = self._budget.max_retries_per_tool_call
        if checked.tool.retries is not None:
            allowed = checked.tool.retries if allowed is None else min(allowed, checked.tool.retries)
        if allowed is not None and attempt > allowed:
            return None
        if any(call is checked for call in self.abandoned.values()) and not checked.effect.is_read:
            return None  # the attempt before still runs: a second one beside it would act twice
        wait = backoff_seconds(attempt, self._ledger.randomness.random())
        asked = error.retry_after_seconds if isinstance(error, Transient) else None
        if asked is not None and asked > LONGEST_WAIT_SECONDS:
            return None
        return max(wait, asked or 0.0)

    def _raised(self, checked: CheckedCall, error: BaseException, elapsed: float) -> ToolResult:
        """Turn what ended the last attempt into the call's result. No traceback and no path reaches the model."""
        if isinstance(error, Rejected):
            return self._rejected(checked, error.body, error.code)
        status = self._status_of(checked, error)
        acted = not checked.effect.is_read
        if status in (CallStatus.TIMEOUT, CallStatus.OUTCOME_UNKNOWN):
            extra = {"outcome": "unknown", "elapsed_seconds": round(elapsed, 3)}
            message = _unknown_message(checked, error, elapsed)
            return failed_result(checked.call, status, message, extra=extra, may_have_acted=acted)
        if status is CallStatus.CANCELLED:
            return failed_result(checked.call, status, "The run was stopped before the call ended.")
        asked = error.retry_after_seconds if isinstance(error, Transient) else None
        extra = {"may_have_acted": acted, **({} if asked is None else {"retry_after_seconds": asked})}
        message = f"The tool failed: {_describe(error)}"
        return failed_result(checked.call, status, message, code="internal_error", extra=extra, may_have_acted=acted)

    def _status_of(self, checked: CheckedCall, error: BaseException) -> CallStatus:
        if isinstance(error, _Cut) and not error.by_limit and checked.effect.is_read:
            stop = self._interrupt.stop
            is_cancel = stop is not None and stop.reason is StopReason.CANCELLED
            return CallStatus.CANCELLED if is_cancel else CallStatus.TIMEOUT
        return _failure_class(checked.effect, error)

    # --- what a tool returned

    async def _returned(self, checked: CheckedCall, value: Any) -> ToolResult:
        """Hold the value to the tool's output contract and bound it."""
        output = _output_of(value)
        data, problem = self._toolbox.plain(output.data)
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
            media=output.media,
            artifact=artifact,
        )

    def _rejected(self, checked: CheckedCall, body: Any, code: str | None) -> ToolResult:
        """The service said no: its own body goes to the model unchanged (F04)."""
        data, problem = self._toolbox.plain(body)
        plain = data if problem is None else _describe(Rejected(body))
        message = f"{checked.name} was refused by its service. Repeating the same call will not help."
        result = failed_result(checked.call, CallStatus.REJECTED, message, code=code, details=[plain])
        content, _ = bound(msgspec.json.decode(result.content), result.content, self._limit(checked))
        return msgspec.structs.replace(result, content=content)

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


_background: set["asyncio.Task[None]"] = set()
"""Recordings of late ends, held so that they are not collected while they run."""


def _start(checked: CheckedCall, context: CallContext, attempt: int) -> "asyncio.Future[Any]":
    """Start the tool: a coroutine function as a task, any other function in a thread. Each gets its own arguments (TF7)."""
    tool = checked.tool
    if tool.convert is not None:
        values = checked.values if attempt == 1 else tool.convert(checked.arguments)
    else:
        values = copy.deepcopy(checked.arguments)
    if inspect.iscoroutinefunction(tool.run) or inspect.iscoroutinefunction(type(tool.run).__call__):
        return asyncio.ensure_future(_contained(tool.run(values, context)))
    return _threads.submit(lambda: tool.run(values, context))


async def _contained(running: Awaitable[Any]) -> Any:
    """Keep a tool's SystemExit or KeyboardInterrupt from leaving its task: asyncio would end the whole loop with it."""
    try:
        return await running
    except (SystemExit, KeyboardInterrupt) as error:
        raise _ToolExited(f"{type(error).__name__}: {error}") from error


class _ToolExited(Exception):
    """A tool tried to end the process."""


def _is_being_cancelled() -> bool:
    """Whether somebody cancels us, rather than the tool having raised CancelledError of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failure_class(effect: Effect, error: BaseException) -> CallStatus:
    """Name a failure by effect (design section 1): whatever may have acted and did not say so is `outcome_unknown`."""
    match error:
        case Rejected():
            return CallStatus.REJECTED
        case _Cut() | TimeoutError():
            return CallStatus.TIMEOUT if effect.is_read else CallStatus.OUTCOME_UNKNOWN
        case OSError() | asyncio.CancelledError():
            return CallStatus.FAILED if effect.is_read else CallStatus.OUTCOME_UNKNOWN
        case _:
            return CallStatus.FAILED


def _unknown_message(checked: CheckedCall, error: BaseException, elapsed: float) -> str:
    how = f"gave no answer within {elapsed:.3g} s" if isinstance(error, _Cut) else f"broke off ({_describe(error)})"
    if checked.effect.is_read:
        return f"{checked.name} {how}. It only reads, so nothing has changed."
    return f"{checked.name} {how}. Its outcome is unknown: it may have been carried out. Check before you repeat it."


def _describe(error: BaseException) -> str:
    """Return one bounded line on an error: its name and its own words, no traceback."""
    if isinstance(error, _Cut):
        return f"no answer within {error.seconds:.3g} s"
    if isinstance(error, _ToolExited):
        return str(error)
    words = " ".join(str(error).split())
    line = f"{type(error).__name__}: {words}" if words else type(error).__name__
    line = line.encode("utf-8", "replace").decode()
    return line if len(line) <= 500 else line[:497] + "..."


def _traceback(error: BaseException) -> str | None:
    if isinstance(error, _Cut | Rejected):
        return None
    return "".join(traceback.format_exception(error))[-8000:].encode("utf-8", "replace").decode()


def _output_of(value: Any) -> ToolOutput:
    """Give every value its faces: bytes become a file that says its size, without loss (M11)."""
    match value:
        case ToolOutput():
            return value
        case bytes() | bytearray():
            encoded = base64.b64encode(value).decode()
            return ToolOutput(data={"base64": encoded, "size": len(value)})
        case Media():
            return ToolOutput(data={"media_type": value.media_type, "name": value.name}, media=(value,))
        case _:
            return ToolOutput(data=value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


async def _after(interceptor: Interceptor, call: ToolCall, result: ToolResult) -> ToolResult:
    """Let an interceptor change what is told of a call. It cannot change which call it was."""
    try:
        answer = interceptor.after(call, result)
        changed = await answer if inspect.isawaitable(answer) else answer
        return msgspec.structs.replace(changed, call_id=result.call_id, name=result.name)
    except Exception:
        # The call has happened: its result must reach the model whatever an interceptor does.
        logger.exception("Interceptor %s failed after %s; its result stands", type(interceptor).__name__, call.name)
        return result
