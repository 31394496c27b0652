"""Attempts: carry out one decided call: start it, within its time; retries by effect; the result's contract, its bound.

Decides nothing about permission and nothing about other calls; always gives exactly one result.
"""

import asyncio
import base64
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import Context
from decimal import Decimal
from functools import partial
from types import CoroutineType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from treadle.canonical import artifact_id, copied, find_unencodable
from treadle.concurrency import Threads, is_async
from treadle.engine.interrupts import wait_at_most
from treadle.engine.rules.bounds import bound
from treadle.engine.rules.endings import cut_status
from treadle.engine.rules.failures import (
    LONGEST_WAIT_SECONDS,
    Cut,
    FailureText,
    backoff_seconds,
    contained,
    describe,
    failure_class,
    is_being_cancelled,
    kept_inside,
    may_retry_call,
    told,
    traceback_of,
)
from treadle.engine.scope import RunScope
from treadle.errors import Rejected, SandboxUnavailable, ToolError, Transient, shown
from treadle.events import ContractViolated, ToolAttemptFailed, ToolProgress
from treadle.messages import Media, Message, ToolCall
from treadle.permissions.modes import may_start_again
from treadle.ports import CallTracer
from treadle.redaction import redacted_logger, without_known
from treadle.sessions.views import ReadOnlyMessages
from treadle.state import Suspended
from treadle.tooling.toolbox import Plain
from treadle.tools import (
    TRACE,
    CallStatus,
    CheckedCall,
    Command,
    Decision,
    DecisionKind,
    Done,
    Effect,
    JsonObject,
    NotDone,
    Runner,
    SessionSnapshot,
    ToolContext,
    ToolOutput,
    ToolResult,
    Unfinished,
    Unknown,
    answer_of_check,
)
from treadle.tools.effects import effect_from
from treadle.tools.results import TOOL_UNAVAILABLE, after_earlier_attempt, failed_result

__all__ = ["GRACE_SECONDS", "Attempts", "CallContext", "Invoker"]


# --- Contract: what a tool returned, held to what it promised, and made the call's result within its bounds. Calls no
# tool.

logger = redacted_logger(__name__)

_threads = Threads()
_T = TypeVar("_T")
_LARGE = 256 * 1024
"""Characters or bytes from which on a result is looked at in a thread."""
_MAX_RESULT_BYTES = 200_000_000


class Contract:
    """Makes the results of one run's calls from what their tools returned.

    Large values are looked at in threads, so that they do not hold the event loop.
    """

    def __init__(self, scope: RunScope) -> None:
        self._scope = scope
        self._ledger = scope.ledger
        self._contracts = scope.offering.contracts

    async def returned(self, call: CheckedCall, value: Any) -> ToolResult:
        """Return the result of a call whose tool returned a value."""
        output, data, problem = await _read(value)
        plain = await self._contracts.plain(data)
        problem = problem or plain.problem
        if problem is not None:
            row = {"field": "", "constraint": "plain JSON", "value": problem}
            return await self._violated(call, [row], f"It is not JSON: {problem}.", None)
        if violations := await self._violations(call, plain):
            if self._contracts.fits_error_schema(call.tool, plain.data):
                return await self._refused(call, plain, None)
            artifact = await self._keep(await _done(partial(_json, plain.data), is_large=plain.is_large))
            shape = self._contracts.shape_mismatch(call.tool, plain.data)
            return await self._violated(call, violations, shape, artifact)
        return await self._ok(call, plain, output)

    async def _violations(self, call: CheckedCall, plain: Plain) -> list[JsonObject]:
        if call.tool.output_schema is None:
            return []
        check = partial(self._contracts.result_violations, call.tool, plain.data)
        return await _done(check, is_large=plain.is_large)

    async def rejected(self, call: CheckedCall, body: Any, code: str | None) -> ToolResult:
        """Return the result of a call that its service refused: the service's own body, unchanged (F04)."""
        plain = await self._contracts.plain(body)
        if plain.problem is not None:
            plain = Plain(data=describe(Rejected(body)))
        return await self._refused(call, plain, code)

    async def _ok(self, call: CheckedCall, plain: Plain, output: ToolOutput) -> ToolResult:
        content, artifact = await self._bounded(plain, _shown_chars(self._scope, call))
        is_whole = artifact is None
        if output.artifact is not None and is_whole:
            artifact = await self._keep_bytes(output.artifact)
            content = _with_artifact(content, artifact_id(artifact))
        return ToolResult(
            call_id=call.call.id,
            name=call.tool.name,
            status=CallStatus.OK,
            content=content,
            data=plain.data if is_whole else None,
            display=output.display,
            media=tuple(output.media),
            artifact=artifact,
            facts=copied(output.facts) if output.facts else None,
        )

    async def _bounded(self, plain: Plain, limit: int | None) -> tuple[str, str | None]:
        """Return the text for the model and, where that had to be shortened, the digest of the whole, which is kept."""
        data = plain.data
        text = data if isinstance(data, str) else await _done(partial(_json, data), is_large=plain.is_large)
        if limit is None or len(text) <= limit:
            return text, None
        digest = await self._keep(text)
        shorten = partial(bound, data, text, limit, artifact=artifact_id(digest))
        return (await _done(shorten, is_large=plain.is_large))[0], digest

    async def _keep(self, text: str) -> str:
        """Keep what the model is shown a part of, and return its digest."""
        return await self._keep_bytes(text.encode())

    async def _keep_bytes(self, content: bytes) -> str:
        clean = await _done(partial(without_known, content), is_large=len(content) > _LARGE)
        return await self._ledger.journal.put_blob(clean)

    async def reshaped(self, call: CheckedCall, result: ToolResult) -> ToolResult:
        """Return a result as an interceptor has changed it, within its bounds."""
        limit, content = _shown_chars(self._scope, call), result.content
        if limit is None or len(content) <= limit:
            return result
        digest = await self._keep(content)
        content, _ = bound(content, content, limit, artifact=artifact_id(digest))
        return msgspec.structs.replace(result, content=content, artifact=digest)

    async def _refused(self, call: CheckedCall, plain: Plain, code: str | None) -> ToolResult:
        message = f"{call.name} refused the call: see `details`. It was not retried."
        reported, artifact = await self._failure_details(call, plain)
        result = failed_result(call, CallStatus.REJECTED, message, code=code, details=[reported])
        return await self._shortened(call, result, reported, artifact)

    async def unfinished(self, call: CheckedCall, error: Unfinished) -> ToolResult:
        """Return the result of a call that ended without a value, and that says itself what happened to it."""
        plain = await self._contracts.plain(error.body)
        reported, artifact = (None, None) if plain.problem is not None else await self._failure_details(call, plain)
        acted = error.may_have_acted
        result = failed_result(
            call,
            error.status,
            error.message,
            code=error.code,
            details=[] if reported is None else [reported],
            extra={"may_have_acted": acted},
            may_have_acted=acted,
        )
        return await self._shortened(call, result, reported, artifact)

    async def _failure_details(self, call: CheckedCall, plain: Plain) -> tuple[Any, str | None]:
        """Return what a failed call has to say, cut where it is large, and the digest of the whole then."""
        limit = _shown_chars(self._scope, call)
        if limit is None or not plain.is_large:
            return plain.data, None
        content, digest = await self._bounded(plain, limit // 2)
        return (plain.data, None) if digest is None else (content, digest)

    async def _shortened(self, call: CheckedCall, result: ToolResult, reported: Any, digest: str | None) -> ToolResult:
        """Return a failed call's result within its bounds.

        Args:
            digest: Of the whole of what it has to say, where that is kept already.
        """
        limit, whole = _shown_chars(self._scope, call), result.content
        is_long = limit is not None and len(whole) > limit
        if is_long and digest is None:
            digest = await self._keep(whole)
        named = None if digest is None else artifact_id(digest)
        content, _ = bound(msgspec.json.decode(whole), whole, limit, artifact=named)
        return msgspec.structs.replace(result, content=content, data=None if is_long else reported, artifact=digest)

    async def _violated(
        self, call: CheckedCall, violations: list[JsonObject], shape: str, artifact: str | None
    ) -> ToolResult:
        """The tool broke its own contract: the raw value is kept for operators, hidden from the model (F06)."""
        message = f"{call.name} ran, but its result has an unexpected shape and was withheld. {shape}"
        reported = [{"field": row.get("field", ""), "constraint": row.get("constraint", "")} for row in violations]
        await self._ledger.record(
            ContractViolated(call_id=call.id, tool=call.name, details=tuple(violations), artifact=artifact)
        )
        acted = not call.effect.is_read
        result = failed_result(
            call,
            CallStatus.UNEXPECTED_RESULT_SHAPE,
            message,
            details=reported,
            may_have_acted=acted,
            extra={"may_have_acted": acted},
        )
        return msgspec.structs.replace(result, artifact=artifact)


def _with_artifact(content: str, name: str) -> str:
    """Name the artifact that a tool has given beside its value."""
    if content.startswith("{"):
        with suppress(msgspec.DecodeError):  # else it is text that only begins like an object
            return msgspec.json.encode({**msgspec.json.decode(content), "artifact": name}).decode()
    return f"{content}\n[The whole is the artifact {name}.]"


def _shown_chars(scope: RunScope, call: CheckedCall) -> int | None:
    """Return how many characters of a call's result the model is shown; None for no limit."""
    ours, own = scope.meter.budget.max_tool_result_chars, call.tool.result_limit
    return min(ours, own) if ours and own else ours or own or None


async def _done(work: Callable[[], _T], *, is_large: bool) -> _T:
    """Do some work: in a thread where it looks at much."""
    done: _T = await _threads.submit(work) if is_large else work()
    return done


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode()


# --- the faces of what a tool returned: data, media, words for people


_BARE = ToolOutput()
_JSON_KINDS = (str, int, float, bool, type(None), dict, list)


async def _read(value: Any) -> tuple[ToolOutput, Any, str | None]:
    """Give a value its faces: bytes become an object that holds them whole and says their size (M11).

    Returns:
        The faces, the data, and why they cannot be read, or None. Never raises: looking at a stranger's object may raise anything.
    """
    try:
        if type(value) in _JSON_KINDS:  # nearly all
            return _BARE, value, None
        match value:
            case ToolOutput():
                output = value
            case Media():
                output = ToolOutput(data={"media_type": value.media_type, "name": value.name}, media=(value,))
            case _:
                output = ToolOutput(data=value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - as said above
        return _BARE, None, f"$ cannot be read ({type(error).__name__})"
    data, problem = output.data, None
    if issubclass(type(data), (bytes, bytearray, memoryview)):  # not isinstance(), which asks the value itself
        data, problem = await _text_of_bytes(data)
    return output, data, problem or _fault_of(output)


async def _text_of_bytes(value: Any) -> tuple[Any, str | None]:
    """Return bytes as an object that holds them whole as text, and why they cannot be read, or None."""
    try:
        view = memoryview(value)
        if view.nbytes > _MAX_RESULT_BYTES:
            return None, f"$ has more than {_MAX_RESULT_BYTES} bytes: store them, and return where they are"
        encoded = await _done(lambda: base64.b64encode(view.tobytes()).decode(), is_large=view.nbytes > _LARGE)
    except (TypeError, ValueError, BufferError) as error:  # such as a view that has been released
        return None, f"$ cannot be read ({type(error).__name__})"
    return {"base64": encoded, "size": view.nbytes}, None


def _fault_of(output: ToolOutput) -> str | None:
    """Say what is wrong with the faces beside the data, or None. A journal must be able to read them again."""
    facts: object = output.facts  # a stranger's, as what follows
    fault = None if facts is None else find_unencodable(facts) if isinstance(facts, dict) else f"got {shown(facts)}"
    if fault is not None:
        return f"facts must be a JSON object: {fault}"
    artifact: object = output.artifact
    if artifact is not None and not isinstance(artifact, bytes):
        return f"artifact must be bytes: got {shown(artifact)}"
    if output.display is None and output.media is _NO_MEDIA:
        return None
    try:
        msgspec.json.decode(msgspec.json.encode((output.display, output.media)), type=_Faces)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return f"display must be text and media a tuple of Media: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - strangers' objects may raise anything
        return f"display must be text and media a tuple of Media: they cannot be read ({type(error).__name__})"
    return None


_NO_MEDIA: tuple[Media, ...] = ()
_Faces = tuple[str | None, tuple[Media, ...]]


# --- Invocation: start one attempt of one call, and wait for its end, its time limit or an interrupt. Retries nothing.

GRACE_SECONDS = 0.2
"""How long a call that was told to stop may take to end before it is left behind."""

Decide: TypeAlias = Callable[[CheckedCall, str, JsonObject, Effect], Coroutine[Any, Any, Decision]]
"""Decides on an action of a call: the call, the action, its arguments, its effect."""


class CallContext:
    """What one attempt of one call may know: the `ToolContext` that tools are given."""

    def __init__(
        self,
        call: CheckedCall,
        attempt: int,
        scope: RunScope,
        *,
        deps: Any,  # Any: the application's own object
        decide: Decide,
        host: object,
        left: Callable[[], Mapping[str, int | float | Decimal]],
    ) -> None:
        self._scope = scope
        self._decide = decide
        self._left = left
        self.decision = call.decision or Decision(kind=DecisionKind.ALLOW)
        self.runner = scope.about.sandbox if self.decision.kind == DecisionKind.SANDBOX else None
        self.host = host
        """The run of the call, for a tool that is an agent; its kind is known to `assembly.py`."""
        self._call = call
        self._ledger = scope.ledger
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
        return _shown_chars(self._scope, self._call)

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
                metadata=copied(self._ledger.metadata),
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
    """

    def __init__(
        self,
        scope: RunScope,
        *,
        deps: Any,
        decide: Decide,
        host: object,
        left: Callable[[], Mapping[str, int | float | Decimal]],
    ) -> None:
        self._scope = scope
        self._left = left
        self._batch_time = scope.batch_time
        self._late = scope.late
        self._decide = decide
        self._host = host
        self._ledger = scope.ledger
        self._interrupt = scope.interrupt
        self._deps = deps
        self._are_async: dict[str, bool] = {}

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
        return CallContext(call, attempt, self._scope, deps=self._deps, decide=self._decide, host=host, left=self._left)

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


# --- Attempts: one decided call from its first attempt to its result.


class Attempts:
    """Runs calls of one run. One instance a run; calls run side by side through it."""

    def __init__(self, scope: RunScope, invoker: Invoker) -> None:
        self._ledger = scope.ledger
        self._contract = Contract(scope)
        self._interrupt = scope.interrupt
        self._budget = scope.meter.budget
        self._hooks = scope.hooks
        self._top = scope.top
        self._required = scope.about.required
        self._failure_text = scope.about.failure_text
        self._invoker = invoker
        self._late = scope.late
        self._batch_time = scope.batch_time

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
                value = await self._invoker.call(call, attempt)
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
            break
        seconds = round(clock.monotonic() - started, 6)
        result = msgspec.structs.replace(result, attempts=attempt, duration_seconds=seconds)
        if not call.effect.is_read and self._may_have_acted_before(call, attempt):
            result = after_earlier_attempt(result)
        if not self._hooks.sees_results:
            return result
        changed = await self._hooks.after_tool(call, result)
        return result if changed is result else await self._contract.reshaped(call, changed)

    def _may_have_acted_before(self, call: CheckedCall, attempt: int) -> bool:
        """Whether an attempt before the last one may have been carried out, here or in a process that died."""
        state = self._ledger.state.open.get(call.id)
        return attempt > 1 or (state is not None and state.starts > 1)

    async def ask_check(self, call: CheckedCall, attempt: int = 1) -> ToolResult | type[NotDone] | type[Unknown]:
        """Ask the tool's own `check` whether a call of unknown outcome was done: its result if so.

        A value that is not an answer is recorded as a broken contract, and leaves the outcome unknown.
        """
        check = call.tool.check
        if check is None or self._interrupt.stop is not None:
            return Unknown
        try:
            answer = await self._invoker.ask(check, call, attempt)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            logger.warning("check() of %s failed for call %s", call.name, call.id, exc_info=True)
            return Unknown
        said = answer_of_check(answer)
        if said is None:
            return await self._no_answer(call, answer)
        return await self._contract.returned(call, said.value) if isinstance(said, Done) else said

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
        message = f"Waiting {wait:.0f} s until an earlier start of {call.name} has surely ended"
        self._ledger.publish(ToolProgress(call_id=call.id, message=message, total=wait))
        return await self.ask_check(call, attempt) if await self._interrupt.sleep(wait) else Unknown

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
        return wait is not None and await self._interrupt.sleep(wait) and may_start_again(self._top.mode, call)

    def _wait_before_retry(self, call: CheckedCall, error: BaseException, attempt: int) -> float | None:
        cause: BaseException = TimeoutError() if isinstance(error, Cut) else error
        if isinstance(error, Unfinished) or self._interrupt.stop is not None or not may_retry_call(call.effect, cause):
            return None
        if self._is_lacking(call, error) or not may_start_again(self._top.mode, call):
            return None
        allowed = self._budget.max_retries_per_tool_call
        if call.tool.retries is not None:
            allowed = call.tool.retries if allowed is None else min(allowed, call.tool.retries)
        if allowed is not None and attempt > allowed:
            return None
        if self._late.has(call) and not call.effect.is_read:
            return None  # the attempt before still runs: a second one beside it would act twice
        wait = backoff_seconds(attempt, self._ledger.randomness.random())
        asked, left = _retry_after_seconds(error) or 0.0, self._interrupt.seconds_left
        if self._batch_time is not None:
            left = self._batch_time.within(left)
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
            where = (call.name, call.id, self._ledger.run_id, self._ledger.state.id)
            logger.warning("Tool %s raised in call %s of run %s, session %s", *where, exc_info=error)
            await self._hooks.error(error, call)
        cut_by = error.stop if isinstance(error, Cut) and call.effect.is_read else None
        status = failure_class(call.effect, error) if cut_by is None else cut_status(cut_by)
        if status is CallStatus.OUTCOME_UNKNOWN and call.tool.check is not None and not self._late.has(call):
            over_at = now + (call.tool.timeout or 0.0)  # its request may have been sent a moment ago
            answer = await self.ask_until_sure(call, attempt, over_at=over_at)
            if isinstance(answer, ToolResult):
                return answer
            if answer is NotDone:
                message = f"{call.name} was not carried out: {told(error, self._failure_text)}"
                return failed_result(call, CallStatus.FAILED, message, code="not_done")
        return self._raised(call, error, status, elapsed)

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


def _kind_of(value: object) -> str:
    """Return what a `check` returned, for operators: itself where it is plain, else its type."""
    is_empty = type(value) in (list, dict, tuple) and not value
    is_plain = value is None or is_empty or type(value) in (bool, int, float, str)
    return repr(value)[:80] if is_plain else type(value).__name__
