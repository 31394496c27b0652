"""Hooks: call the hooks of one run, in order, each within its time, and hold their answers to the port.

They may only tighten: nothing that a hook answers allows a call. What they change of a run is recorded as `hook.acted`.
"""

import asyncio
import fnmatch
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from treadle.canonical import copied, find_unencodable
from treadle.concurrency import Threads
from treadle.engine.interrupts import Interrupt, wait_at_most
from treadle.engine.rules.failures import contained, kept_inside, pass_interrupts
from treadle.events import AnyEvent, HookActed, MessageAdded, ModelFinished
from treadle.messages import Message, ToolCall, user_message
from treadle.permissions.policies import held_to_port, stricter
from treadle.ports import Hook, HookContext, Moment
from treadle.redaction import redacted_logger
from treadle.sessions.ledger import Ledger
from treadle.state import SessionState
from treadle.stops import Stop, StopReason
from treadle.tools import CheckedCall, Decision, DecisionKind, ToolResult

__all__ = ["GRACE_SECONDS", "Hooks", "denied_stop"]

logger = redacted_logger(__name__)

GRACE_SECONDS = 0.2
"""How long a hook that is under way when the run ends may take to end."""

_threads = Threads()
_CONTINUED = "continued"
_MAY_GO_ON = (
    StopReason.COMPLETED,
    StopReason.DONE_CONDITION_SATISFIED,
    StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL,
)


class Hooks:
    """The hooks of one run.

    Args:
        top: The state of the session that a person runs: its mode holds.
        continuations: How often they may make the run continue at its end.
    """

    def __init__(
        self,
        hooks: Sequence[Hook],
        *,
        ledger: Ledger,
        top: SessionState,
        interrupt: Interrupt,
        continuations: int | None,
    ) -> None:
        self._hooks = hooks
        self._ledger = ledger
        self._top = top
        self._interrupt = interrupt
        self._continuations = continuations
        moments = {Moment(hook.at) for hook in hooks}
        self.sees_requests = Moment.BEFORE_REQUEST in moments
        self.sees_calls = Moment.BEFORE_TOOL in moments
        self.sees_results = Moment.AFTER_TOOL in moments
        self.sees_responses = Moment.AFTER_RESPONSE in moments
        """Whether a whole response is looked at before any of its calls starts."""

    # --- around a call

    async def before_tool(self, call: CheckedCall) -> tuple[Decision | None, ToolCall]:
        """Return the strictest word on a call, and the call, perhaps with other arguments. None may rename or allow it."""
        proposed, strictest = call.call, None
        for hook in self._at(Moment.BEFORE_TOOL, call.name):
            arguments = copied(call.arguments)
            context = self._context(
                Moment.BEFORE_TOOL, call=proposed, arguments=arguments, tool=call.name, effect=call.effect
            )
            answer, error = await self._ask(hook, context)
            if error is not None:
                if not hook.is_closed:
                    continue
                return _raised(hook, error), proposed
            if isinstance(answer, ToolCall) and isinstance(answer.arguments, str):
                proposed = msgspec.structs.replace(proposed, arguments=answer.arguments)
            elif answer is not None:
                word = held_to_port(answer, hook.title, scope="hook")
                if word.arguments is not None and word.kind != DecisionKind.DENY:
                    proposed = msgspec.structs.replace(proposed, arguments=msgspec.json.encode(word.arguments).decode())
                if word.kind != DecisionKind.ALLOW:
                    strictest = word if strictest is None else stricter(strictest, word)
        return strictest, call.call if proposed == call.call else proposed

    async def after_tool(self, call: CheckedCall, result: ToolResult) -> ToolResult:
        """Let hooks change what is reported of a call. They cannot change which call it was, nor what a journal holds."""
        for hook in self._at(Moment.AFTER_TOOL, call.name):
            shown = msgspec.structs.replace(result, data=copied(result.data))
            context = self._context(
                Moment.AFTER_TOOL, call=call.call, arguments=copied(call.arguments), tool=call.name, effect=call.effect,
                result=shown,
            )  # fmt: skip
            answer, error = await self._ask(hook, context)
            changed = result if error is None and answer is None else _result_of(answer, shown, result, hook)
            if changed is None and hook.is_closed:
                withheld = f"The result is withheld: {hook.title} failed."
                changed = msgspec.structs.replace(result, content=withheld, data=None, media=())
            result = result if changed is None else changed
        return result

    # --- around a response

    async def before_request(self) -> Stop | None:
        """Let hooks add messages before the model is asked. Return the end of a run that one does not let ask."""
        denied, events = await self._ask_all(Moment.BEFORE_REQUEST)
        if events:
            await self._ledger.record(*events)
        return None if denied is None else denied_stop(denied, "The request")

    async def after_response(self, message: Message) -> Decision | None:
        """Return the denial of a response, whose calls do not start then; None where they may."""
        denied, events = await self._ask_all(Moment.AFTER_RESPONSE, message=message)
        acted = [event for event in events if isinstance(event, HookActed)]
        if acted:
            await self._ledger.record(*acted)
        return denied

    # --- messages, the beginning and the end

    async def prompt(self, message: Message, source: str) -> tuple[Decision | None, list[AnyEvent]]:
        """Return the denial of a user's message, or None, and what is recorded behind it."""
        return await self._ask_all(Moment.PROMPT, message=message, source=source)

    async def start(self, source: str) -> tuple[Stop | None, list[AnyEvent]]:
        """Tell hooks that a run begins or continues. Return its end where one denies that, and what is to be recorded once no call
        is open: nothing comes between calls and their results."""
        denied, events = await self._ask_all(Moment.SESSION_START, source=source)
        stop = None if denied is None else denied_stop(denied, "The run")
        if self._ledger.state.has_open_calls:
            if stop is None:
                return None, events
            events = events[-1:]  # the run ends here: only the denial counts
        if events:
            await self._ledger.record(*events)
        return stop, []

    async def end(self, stop: Stop) -> None:
        """Tell hooks that a run has ended."""
        for hook in self._at(Moment.SESSION_END):
            await self._ask(hook, self._context(Moment.SESSION_END, stop=stop), is_over=True)

    async def error(self, error: BaseException, call: CheckedCall | None = None) -> None:
        """Tell hooks that a tool has raised, or that the model could not be asked."""
        facts: dict[str, Any] = {} if call is None else {"call": call.call, "tool": call.name, "effect": call.effect}
        for hook in self._at(Moment.ERROR, "" if call is None else call.name):
            if call is not None:
                facts["arguments"] = copied(call.arguments)
            await self._ask(hook, self._context(Moment.ERROR, error=error, **facts))

    async def at_stop(self, stop: Stop, answer: ModelFinished | None) -> bool:
        """Whether a hook makes the run continue instead of this end: the answer is recorded then, and the hook's message behind it."""
        run = self._ledger.state.run
        continued = 0 if run is None else run.continued
        is_over = self._continuations is not None and continued >= self._continuations
        if stop.reason not in _MAY_GO_ON or self._interrupt.stop is not None or is_over:
            return False
        for hook in self._at(Moment.STOP):
            instruction, _ = await self._ask(hook, self._context(Moment.STOP, stop=stop, continued=continued))
            if isinstance(instruction, str) and instruction.strip():
                before = [] if answer is None else [answer]
                await self._ledger.record(*before, self._acted(hook, Moment.STOP, _CONTINUED), _added(instruction))
                return True
        return False

    # --- one hook

    async def _ask_all(self, at: Moment, **facts: Any) -> tuple[Decision | None, list[AnyEvent]]:
        """Ask the hooks of a moment. Return the first denial, and what they add and did until then."""
        events: list[AnyEvent] = []
        for hook in self._at(at):
            answer, error = await self._ask(hook, self._context(at, **facts))
            word = _raised(hook, error) if error is not None and hook.is_closed else None
            if isinstance(answer, str) and answer.strip():
                events += [self._acted(hook, at, "message"), _added(answer)]
            elif answer is not None and not isinstance(answer, str):
                word = held_to_port(answer, hook.title, scope="hook")
            if word is not None and word.kind != DecisionKind.ALLOW:
                denied = self._acted(hook, at, "deny", word.message or word.reason)
                interrupts = word.interrupt and at is Moment.AFTER_RESPONSE
                return word, [*events, msgspec.structs.replace(denied, interrupt=interrupts)]
        return None, events

    def _at(self, at: Moment, tool: str = "") -> Iterator[Hook]:
        return (
            hook for hook in self._hooks if hook.at == at and fnmatch.fnmatchcase(tool, hook.tools if tool else "*")
        )

    def _context(self, at: Moment, **facts: Any) -> HookContext:
        ledger = self._ledger
        return HookContext(
            at=at,
            session_id=ledger.state.id,
            run_id=ledger.run_id,
            step=ledger.state.step,
            mode=self._top.mode,
            **facts,
        )

    def _acted(self, hook: Hook, at: Moment, answer: str, reason: str = "") -> HookActed:
        return HookActed(hook=hook.title, at_moment=at.value, answer=answer, reason=reason)

    async def _ask(
        self, hook: Hook, context: HookContext, *, is_over: bool = False
    ) -> tuple[Any, BaseException | None]:
        """Call one hook; return its answer, or why there is none. It outlives neither its time nor, but for a moment, the run."""
        try:
            if hook.timeout is None or inspect.iscoroutinefunction(hook.run):
                answer = hook.run(context)
                if not inspect.isawaitable(answer):
                    return answer, None
                task: asyncio.Future[Any] = asyncio.ensure_future(contained(answer))
            else:
                task = _threads.submit(lambda: kept_inside(lambda: hook.run(context)))
            await self._wait(task, hook.timeout, is_over=is_over)
            answer = task.result()
            return (await contained(answer) if inspect.isawaitable(answer) else answer), None
        except BaseException as error:
            pass_interrupts(error)
            then = "" if hook.is_closed else ", and was ignored"
            logger.exception("%s failed at %s%s", hook.title, context.at, then)
            return None, error

    async def _wait(self, task: "asyncio.Future[Any]", seconds: float | None, *, is_over: bool) -> None:
        clock = self._ledger.clock
        if is_over:
            await wait_at_most(clock, task, GRACE_SECONDS if seconds is None else seconds)
        elif not await self._interrupt.wait_for(task, seconds) and self._interrupt.stop is not None:
            await wait_at_most(clock, task, GRACE_SECONDS)
        if not task.done():
            task.cancel()
            raise TimeoutError(
                "the run was stopped meanwhile" if self._interrupt.stop else f"no answer within {seconds:g} s"
            )


def _raised(hook: Hook, error: BaseException) -> Decision:
    reason = f"{hook.title} failed ({type(error).__name__})."
    return Decision(
        kind=DecisionKind.DENY, rule=f"{hook.title.split()[0]} raised", reason=reason, scope="hook", by=hook.title
    )


def denied_stop(denied: Decision, what: str) -> Stop:
    """Return the end of a run that a hook has denied."""
    reason = denied.message or denied.reason
    message = f"{what} was denied by {denied.by}{f': {reason}' if reason else '.'}"
    return Stop(reason=StopReason.TASK_DENIED, message=message, details={"rule": denied.rule, "by": denied.by})


def _added(instruction: str) -> MessageAdded:
    return MessageAdded(message=user_message(instruction.encode("utf-8", "replace").decode()), source="hook")


def _result_of(answer: Any, shown: ToolResult, result: ToolResult, hook: Hook) -> ToolResult | None:
    """Return the result that a hook has put in place of a call's own; None where its answer is not a result."""
    try:
        if answer is shown and shown.data == result.data:
            return result
        changed = msgspec.structs.replace(answer, call_id=result.call_id, name=result.name)
        if find_unencodable(changed.content) is not None:
            return None
        return msgspec.json.decode(msgspec.json.encode(changed), type=ToolResult)
    except BaseException as error:
        pass_interrupts(error)
        # The call has happened: its result must reach the model whatever a hook does.
        logger.exception("%s returned no valid result after %s; the original result is kept", hook.title, result.name)
        return None
