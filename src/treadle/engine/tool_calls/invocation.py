"""Invocation: start one attempt of one call in its slot, and wait for its end, its time limit or an interrupt.

Knows how many calls may be under way at once, and how long those of one response may take together. Retries nothing and makes no
result: that is `attempts.py`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from treadle.canonical import copied
from treadle.concurrency import Threads, is_async
from treadle.engine.interrupts import wait_at_most
from treadle.engine.rules.bounds import conflicts
from treadle.engine.rules.failures import Cut, contained, describe, kept_inside
from treadle.engine.scope import RunScope
from treadle.errors import SandboxUnavailable, ToolError
from treadle.events import ToolLate, ToolProgress
from treadle.messages import Message, ToolCall
from treadle.ports import CallTracer, Clock
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

__all__ = ["GRACE_SECONDS", "BatchTime", "CallContext", "Held", "Invoker", "LateCalls", "Slots"]


# --- Late calls: they were told to stop, did not, and run on. Knows which they are, and records how each ends; stops
# none.

logger = redacted_logger(__name__)

_Running: TypeAlias = dict["asyncio.Future[Any]", CheckedCall]

_recording: set["asyncio.Task[None]"] = set()
"""Recordings of late ends, held so that they are not collected while they run."""


class LateCalls:
    """The late calls of one session. One that may change something keeps its resource until it ends.

    Args:
        running: Those that earlier runs of the session gave up; the next ones are added to it.
    """

    __slots__ = ("_ledger", "_running")

    def __init__(self, running: _Running, *, ledger: Ledger) -> None:
        self._running = running
        self._ledger = ledger

    def has(self, call: CheckedCall) -> bool:
        """Whether an earlier attempt of this call was given up and has not ended."""
        return any(one is call for one in self._running.values())

    def blocking(self, calls: Sequence[CheckedCall]) -> "list[asyncio.Future[Any]]":
        """Return those that hold what one of these calls needs."""
        acting = [call for call in calls if not call.effect.is_read]
        loop = asyncio.get_running_loop()  # a session may outlive a loop, whose futures nobody completes any more
        held = [
            (future, call)
            for future, call in self._running.items()
            if not call.effect.is_read and future.get_loop() is loop
        ]
        return [future for future, holder in held if any(conflicts(call, holder) for call in acting)]

    def leave(self, call: CheckedCall, future: "asyncio.Future[Any]") -> None:
        """Leave a call behind that has been told to stop. It is remembered until it ends."""
        self._running[future] = call
        logger.info("Call %s of %s was told to stop, and is still running", call.id, call.name)

        def ended(future: "asyncio.Future[Any]") -> None:
            self._running.pop(future, None)
            if future.cancelled():
                return
            task = asyncio.ensure_future(self.record(call, future))
            _recording.add(task)
            task.add_done_callback(_recording.discard)

        future.add_done_callback(ended)

    async def record(self, call: CheckedCall, future: "asyncio.Future[Any]") -> None:
        """Record how a call that had been given up ended (TF11). It is never sent to the model."""
        error = future.exception()
        outcome, content = ("returned", _shown(future.result())) if error is None else ("raised", describe(error))
        event = ToolLate(call_id=call.id, tool=call.name, outcome=outcome, content=content)
        try:
            await self._ledger.record(event)
        except Exception:
            # Nobody waits for this any more: a journal that has been closed since must not raise in the event loop.
            logger.info("Late end of call %s of %s could not be recorded", call.id, call.name, exc_info=True)


def _shown(value: Any) -> str:
    """Return a late value for operators."""
    try:
        return repr(value)[:2000].encode("utf-8", "replace").decode()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a stranger's object may refuse to be shown
        return type(value).__name__


# --- Invocation: start one attempt of one call in its slot, and wait for its end, its time limit or an interrupt.

GRACE_SECONDS = 0.2
"""How long a call that was told to stop may take to end before it is left behind."""

Decide: TypeAlias = Callable[[CheckedCall, str, JsonObject, Effect], Coroutine[Any, Any, Decision]]
"""Decides on an action of a call: the call, the action, its arguments, its effect."""

_T = TypeVar("_T")
_NO_LIMIT = 1_000_000

_threads = Threads()


# --- how many at once, and how long together -------------------------------------------------------------------------


class Held:
    """Slots that somebody holds. As a context manager, it gives back at its end those that were not handed on.

    Example:
        with await slots.wait() as held:
            await start(call)
    """

    def __init__(self, free: asyncio.Semaphore, count: int) -> None:
        self._free = free
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.keep(0)

    def transfer(self) -> "Held":
        """Return one of them, which its new holder gives back."""
        assert self._count > 0
        self._count -= 1
        return Held(self._free, 1)

    def keep(self, count: int) -> None:
        """Give back all but so many."""
        while self._count > count:
            self._count -= 1
            self._free.release()


class Slots:
    """The slots of one run.

    Args:
        limit: How many calls may be under way at once; None for no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self._free = asyncio.Semaphore(limit or _NO_LIMIT)

    async def wait(self) -> Held:
        """Wait for one."""
        await self._free.acquire()
        return Held(self._free, 1)

    async def take(self, most: int) -> Held:
        """Take as many as are free, at most these, and wait for none."""
        count = 0
        while count < most and not self._free.locked():
            await self._free.acquire()  # at once, as one is free
            count += 1
        return Held(self._free, count)


class BatchTime:
    """Runs from the first call of a response that starts until its last has ended. Waiting for a person does not count.

    Args:
        seconds: What the calls of one response may take together; None for no limit.
    """

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self.seconds = seconds
        self._clock = clock
        self._begun: float | None = None

    def begin(self) -> None:
        """A call starts. Only the first of a response begins the time."""
        if self.seconds is not None and self._begun is None:
            self._begun = self._clock.monotonic()

    def end(self) -> None:
        """The calls of the response have ended, or its response is discarded: the next one has the whole time."""
        self._begun = None

    @property
    def left(self) -> float | None:
        """Seconds that the calls still have; None for no limit."""
        if self.seconds is None:
            return None
        passed = 0.0 if self._begun is None else self._clock.monotonic() - self._begun
        return max(self.seconds - passed, 0.0)

    @property
    def is_over(self) -> bool:
        return self.seconds is not None and self.left == 0.0

    def within(self, seconds: float | None) -> float | None:
        """Return the shorter of a call's own limit and what the batch has left; None for neither."""
        if self.seconds is None or (left := self.left) is None:
            return seconds
        return left if seconds is None else min(seconds, left)


# --- one attempt -----------------------------------------------------------------------------------------------------


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
        sandbox: Runner | None = None,
        host: object = None,
        result_chars: int | None = None,
        left: Callable[[], Mapping[str, int | float]] = dict,
    ) -> None:
        self._decide = decide
        self._left = left
        self.result_chars = result_chars
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
        late: Calls of the session that were given up and run on.
        host: The run itself, as a tool that is an agent sees it.
        left: Returns what is left of the run's limits, by the name of each.
        batch_time: What the calls of one response may take together.
        decide: Decides on what a tool is about to do by itself.
        limit: Returns how many characters of a call's result the model is shown.
        sandbox: Where calls run that were decided to; None where there is none, and no such call starts.
    """

    def __init__(
        self,
        scope: RunScope,
        *,
        deps: Any,
        late: LateCalls,
        batch_time: BatchTime,
        decide: Decide,
        limit: Callable[[CheckedCall], int | None],
        sandbox: Runner | None = None,
        host: object = None,
        left: Callable[[], Mapping[str, int | float]] = dict,
    ) -> None:
        self._left = left
        self._sandbox = sandbox
        self._batch_time = batch_time
        self._late = late
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
        self._batch_time.begin()
        clock, limit = self._ledger.clock, self._batch_time.within(call.tool.timeout)
        begun = clock.monotonic()
        place = self._place_of(call)
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
            result_chars=self._limit(call),
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
                return _task(call, context, _in_sandbox(context.runner, tool.sandbox, copied(call.arguments)))
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


async def _in_sandbox(runner: Runner, form: Callable[[JsonObject], Command], arguments: JsonObject) -> Any:
    """Run the command that a tool names for a call in place of its function."""
    try:
        return msgspec.to_builtins(await runner.run(form(arguments)))
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
