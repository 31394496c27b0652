"""Invocation: start one attempt of one call, and wait for its end, its time limit or an interrupt.

Retries nothing and makes no result: that is `attempts.py`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import Context
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from treadle.canonical import copied
from treadle.concurrency import Threads, is_async
from treadle.engine.interrupts import wait_at_most
from treadle.engine.rules.failures import Cut, contained, kept_inside
from treadle.engine.scope import RunScope
from treadle.errors import SandboxUnavailable, ToolError
from treadle.events import ToolProgress
from treadle.messages import Message, ToolCall
from treadle.ports import CallTracer
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.sessions.views import ReadOnlyMessages
from treadle.tools import (
    TRACE,
    CallStatus,
    CheckedCall,
    Command,
    Decision,
    DecisionKind,
    Effect,
    JsonObject,
    Runner,
    SessionSnapshot,
    ToolContext,
    Unfinished,
)
from treadle.tools.effects import effect_from

__all__ = ["GRACE_SECONDS", "CallContext", "Invoker"]


logger = redacted_logger(__name__)

GRACE_SECONDS = 0.2
"""How long a call that was told to stop may take to end before it is left behind."""

Decide: TypeAlias = Callable[[CheckedCall, str, JsonObject, Effect], Coroutine[Any, Any, Decision]]
"""Decides on an action of a call: the call, the action, its arguments, its effect."""

_T = TypeVar("_T")

_threads = Threads()


class CallContext:
    """What one attempt of one call may know: the `ToolContext` that tools are given."""

    def __init__(
        self,
        call: CheckedCall,
        attempt: int,
        deps: Any,
        ledger: Ledger,
        decide: Decide,
        *,
        sandbox: Runner | None,
        host: object,
        limit: Callable[[CheckedCall], int | None],
        left: Callable[[], Mapping[str, int | float]],
    ) -> None:
        self._decide = decide
        self._left = left
        self._limit = limit
        self.decision = call.decision or Decision(kind=DecisionKind.ALLOW)
        self.runner = sandbox if self.decision.kind == DecisionKind.SANDBOX else None
        self.host = host
        """The run of the call, for a tool that is an agent; its kind is known to `assembly.py`."""
        self._call = call
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._session: SessionSnapshot | None = None
        self.attempt = attempt
        self.deps = deps
        self.cancelled = False

    @property
    def call(self) -> ToolCall:
        return self._call.call

    @property
    def result_chars(self) -> int | None:
        return self._limit(self._call)

    @property
    def subjects(self) -> Mapping[str, tuple[str, ...]]:
        return self._call.named

    @property
    def idempotency_key(self) -> str:
        return self._call.key

    @property
    def inputs(self) -> tuple[Any, ...]:
        state = self._ledger.state.open.get(self._call.id)
        return () if state is None else tuple(copied(one.value) for one in state.inputs)

    @property
    def facts(self) -> JsonObject:
        facts: JsonObject = copied(self._ledger.state.facts.values)
        return facts

    @property
    def trace(self) -> Mapping[str, str]:
        return dict(TRACE.get({}))

    @property
    def session(self) -> SessionSnapshot:
        if self._session is None:
            state = self._ledger.state
            step, messages = state.step, state.transcript
            if self.call.id in state.early:  # its response still streams, and is not a message yet
                step += 1
                so_far = tuple(one.call for one in state.early.values())
                messages = (*messages, Message(role="assistant", parts=so_far))
            shown = ReadOnlyMessages().of(messages)
            self._session = SessionSnapshot(
                id=state.id,
                run_id=self._ledger.run_id,
                step=step,
                messages=shown,
                status=state.status,
                metadata=copied(state.metadata),
                budget_left=dict(self._left()),
            )
        return self._session

    async def artifact(self, name: str) -> bytes | None:
        digest = self._ledger.state.artifacts.get(name)
        if digest is None:
            return None
        return await self._in_loop(self._ledger.journal.blob(digest))

    async def decide(self, action: str, arguments: JsonObject, *, effect: Effect | str = Effect.UNSAFE) -> Decision:
        return await self._in_loop(self._decide(self._call, action, arguments, effect_from(effect)))

    async def _in_loop(self, asking: Coroutine[Any, Any, _T]) -> _T:
        """Wait for what the loop of the run does. A blocking tool asks in a loop of its own thread: asyncio.run(ctx.decide(...))."""
        if _running_loop() is self._loop:
            return await asking
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, self._loop))

    def progress(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        event = ToolProgress(call_id=self._call.id, message=str(message), done=done, total=total)
        if _running_loop() is self._loop:
            self._ledger.publish(event)  # at once: the tool may return before the loop comes round
            return
        try:
            self._loop.call_soon_threadsafe(self._ledger.publish, event)  # a blocking tool calls from its thread
        except RuntimeError:
            return  # the loop has been closed: nobody listens to an abandoned call


class Invoker:
    """Starts the calls of one run and watches them.

    Args:
        host: The run itself, as a tool that is an agent sees it.
        left: Returns what is left of the run's limits, by the name of each.
        decide: Decides on what a tool is about to do by itself.
        limit: Returns how many characters of a call's result the model is shown.
    """

    def __init__(
        self,
        scope: RunScope,
        *,
        deps: Any,
        decide: Decide,
        limit: Callable[[CheckedCall], int | None],
        host: object,
        left: Callable[[], Mapping[str, int | float]],
    ) -> None:
        self._left = left
        self._sandbox = scope.about.sandbox
        self._batch_time = scope.batch_time
        self._late = scope.late
        self._decide = decide
        self._host = host
        self._ledger = scope.ledger
        self._interrupt = scope.interrupt
        self._deps = deps
        self._are_async: dict[str, bool] = {}
        self._limit = limit

    async def call(self, call: CheckedCall, attempt: int) -> Any:
        """Start the tool once and wait for it, its time limit or an interrupt.

        Raises:
            Cut: The time was up or the run was interrupted; the call has been told to stop.
            BaseException: Whatever the tool raised.
        """
        context = self._context(call, attempt, self._host)
        clock, limit = self._ledger.clock, call.tool.timeout
        if self._batch_time is not None:
            self._batch_time.begin()
            limit = self._batch_time.within(limit)
        begun = clock.monotonic()
        place = self._place_of(call) if self._ledger.subscribers else None
        started = (
            self._start(call, context, attempt) if place is None else place.run(self._start, call, context, attempt)
        )
        value = await self._watched(started, limit)
        if not inspect.isawaitable(value):
            return value
        # A plain function that makes a coroutine, such as a lambda: it continues here, within the same limit.
        left = None if limit is None else max(limit - (clock.monotonic() - begun), 0.0)
        rest = _task(call, context, value) if place is None else place.run(_task, call, context, value)
        return await self._watched(rest, left)

    async def ask(
        self, check: Callable[[JsonObject, ToolContext], Awaitable[Any]], call: CheckedCall, attempt: int
    ) -> Any:
        """Ask a tool's `check` about a call, within the tool's own limit. Raises as `call` does."""
        context = self._context(call, attempt, None)
        answer = _awaited(check, copied(call.arguments), context)
        return await self._watched(_task(call, context, answer), call.tool.timeout)

    def _context(self, call: CheckedCall, attempt: int, host: object) -> CallContext:
        return CallContext(
            call,
            attempt,
            self._deps,
            self._ledger,
            self._decide,
            sandbox=self._sandbox,
            host=host,
            limit=self._limit,
            left=self._left,
        )

    def _place_of(self, call: CheckedCall) -> Context | None:
        """Return the context that a subscriber which traces calls has made for this one; None where nobody does."""
        for subscriber in self._ledger.subscribers:
            if isinstance(subscriber, CallTracer):
                try:
                    return subscriber.call_context(self._ledger.state.id, call.id)
                except Exception:  # a subscriber cannot change the run
                    logger.exception("A subscriber raised at call_context; the call runs without one")
        return None

    def _start(self, call: CheckedCall, context: CallContext, attempt: int) -> "_Underway":
        """Start the tool: a coroutine function as a task, any other function in a thread. Each gets its own arguments (TF7)."""
        tool = call.tool
        if context.decision.kind == DecisionKind.SANDBOX:
            if context.runner is None or tool.sandbox is None:  # what is to run in a sandbox never runs bare
                raise ToolError(
                    f"{tool.name} must run in a sandbox, and none is available, or the tool has no `sandbox` option."
                )
            if tool.sandbox != "runner":
                command = partial(tool.sandbox, copied(call.arguments))
                return _task(call, context, _in_sandbox(context.runner, command, context.decision.lifted))
        if tool.convert is None:
            values = copied(call.arguments)
        else:
            values = call.values if attempt == 1 else tool.convert(copied(call.arguments))
        if tool.name not in self._are_async:
            self._are_async[tool.name] = is_async(tool.run)
        if self._are_async[tool.name]:
            return _task(call, context, tool.run(values, context))
        return _Underway(call, context, _threads.submit(lambda: kept_inside(lambda: tool.run(values, context))))

    async def _watched(self, one: "_Underway", seconds: float | None) -> Any:
        """Wait for what was started. What does not end in time is told to stop, and after a short grace left behind."""
        clock, future = self._ledger.clock, one.future
        begun = clock.monotonic()
        try:
            if isinstance(future, asyncio.Task):
                await asyncio.sleep(0)  # many a task ends in its first step: then it needs neither a timer nor a gate
            is_done = future.done() or await self._interrupt.wait_for(future, seconds)
        except asyncio.CancelledError:
            await (_end_of(one) if one.call.tool.resumes else self._end(one))
            raise
        if not is_done and one.call.tool.resumes:
            await _end_of(one)
            is_done = not future.cancelled()  # it was told to stop, and says itself what happened to it
        if not is_done and one.call.tool.interrupt == "block" and self._interrupt.is_patient:
            one.context.cancelled = True
            left = (seconds or 0.0) - (clock.monotonic() - begun)
            await wait_at_most(clock, future, max(left, 0.0))
            is_done = future.done()
        if is_done:
            return future.result()
        stop = self._interrupt.stop
        await self._end(one)
        raise Cut(stop=stop, seconds=clock.monotonic() - begun)

    async def _end(self, one: "_Underway") -> None:
        """Tell a call to stop. One that has not ended after a short grace is left behind."""
        one.tell_to_stop()
        if isinstance(one.future, asyncio.Task):
            await wait_at_most(self._ledger.clock, one.future, GRACE_SECONDS)
        if not one.future.done():
            self._late.leave(one.call, one.future)  # a thread cannot be stopped, only told
        elif not one.future.cancelled():
            await self._late.record(one.call, one.future)


class _Underway(NamedTuple):
    """One attempt that has been started."""

    call: CheckedCall
    context: CallContext
    future: "asyncio.Future[Any]"

    def tell_to_stop(self) -> None:
        self.context.cancelled = True
        if isinstance(self.future, asyncio.Task):
            self.future.cancel()


async def _end_of(one: _Underway) -> None:
    """Tell a call to stop that records what it does by itself, and wait for its end: nothing of it outlives its run."""
    one.tell_to_stop()
    while not one.future.done():
        try:
            await asyncio.wait({one.future})
        except asyncio.CancelledError:
            continue
    if not one.future.cancelled():
        one.future.exception()  # looked at: nobody else may ask for it


def _task(call: CheckedCall, context: CallContext, running: Awaitable[Any]) -> _Underway:
    return _Underway(call, context, asyncio.get_running_loop().create_task(contained(running)))


async def _in_sandbox(runner: Runner, form: Callable[[], Command], lifted: tuple[str, ...]) -> Any:
    """Run the command that a tool names for a call in place of its function."""
    try:
        return msgspec.to_builtins(await runner.run(msgspec.structs.replace(form(), lifted=lifted)))
    except SandboxUnavailable as error:  # nothing was run
        message = f"It may run in a sandbox only: {error}"
        raise Unfinished(CallStatus.DENIED, message, code="sandbox_unavailable", may_have_acted=False) from error


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _awaited(function: Callable[..., Awaitable[Any]], arguments: JsonObject, context: CallContext) -> Any:
    return await function(arguments, context)
