"""Run: one task under way, shown as events, as steps, as a result.

The loop is elsewhere; this is its handle.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from treadle.budgets import Budget, Deadline, LimitReached, Meter, Spent, budget_from, epoch_seconds, plain
from treadle.canonical import find_unencodable
from treadle.concurrency.patience import CURRENT, Patience
from treadle.doubts import resolution_message
from treadle.engine.assembly import AgentSpec, Host, assemble
from treadle.engine.interrupts import Interrupt, wait_until_recorded
from treadle.engine.loop import Loop
from treadle.engine.reports import RunResult, conclude
from treadle.engine.rules.endings import time_stop
from treadle.errors import ConfigurationError, JournalError
from treadle.events import AnyEvent, MessageAdded, RunResumed, RunStarted, Subscriber
from treadle.messages import Message, Usage, user_message
from treadle.ports import Model
from treadle.redaction import redacted_logger
from treadle.sessions.inbox import Inbox
from treadle.sessions.session import Session
from treadle.sessions.settling import settle
from treadle.sessions.views import ReadOnlyView
from treadle.stops import Status, Stop, StopReason
from treadle.tools import JsonObject

__all__ = ["Run", "Step"]

logger = redacted_logger(__name__)

_AFTER_CALLER_SECONDS = 1.0
"""How much longer a child may take than its caller, which cuts it at its own limit: that one end is told, and told once."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The session after one model call and the results of all calls that it proposed."""

    number: int
    """From 1, in this run."""
    message: Message
    results: Message | None
    messages: tuple[Message, ...]
    usage: Usage


class Run:
    """A run as it happens.

    Example:
        async with agent.stream("Compare Frodo and Sam") as run:
            async for event in run:
                print(event.type)
        print(run.result.text)
    """

    def __init__(
        self,
        spec: AgentSpec,
        model: Model,
        open_session: Callable[[], Awaitable[Session]],
        *,
        task: str | Message | None,
        deps: Any = None,
        budget: Budget | None = None,
        deadline: Deadline | None = None,
        above: Host | None = None,
    ) -> None:
        self._above = above
        self.meter: Meter | None = None
        """What the run has spent against what it may; None until it has begun."""
        self._spec = spec
        self._model = model
        self._open_session = open_session
        self._task_text = task
        self._deps = deps
        self._own_budget = budget
        self._deadline = None if deadline is None else epoch_seconds(deadline)
        self._session: Session | None = None
        self._interrupt: Interrupt | None = None
        self._inbox: Inbox | None = None
        self._queue: asyncio.Queue[AnyEvent | Step | None] | None = None
        self._running: asyncio.Task[RunResult] | None = None
        self._result: RunResult | None = None
        self._patience = Patience()
        self._looks: set[asyncio.Task[None]] = set()
        self._shown = 0  # steps that have been put into the queue
        self._subscribers: list[Subscriber] = []
        self._origin: JsonObject | None = None
        self._wanted: Stop | None = None  # what `stop` asked for before there was anything to interrupt

    # --- the result

    @property
    def result(self) -> RunResult:
        """How the run ended. Only there once it has."""
        if self._result is None:
            raise RuntimeError("The run has not ended: go through its events, or await run.finish().")
        return self._result

    async def finish(self) -> RunResult:
        """Wait for the end of the run, which begins now if it has not. Raises what the run raised.

        Cancelling the caller ends the run: its results and its end are recorded before the cancellation goes on (TF10).
        """
        if self._running is None:
            self._running = asyncio.create_task(self._carry_out())
        try:
            return await asyncio.shield(self._running)
        except asyncio.CancelledError:
            self.cancel()
            await wait_until_recorded(self._running)
            raise

    # --- as a stream

    async def __aenter__(self) -> Self:
        self._queue = asyncio.Queue()
        self._running = asyncio.create_task(self._carry_out())
        self._running.add_done_callback(lambda _: self._put(None))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.finish()
        else:
            assert self._running is not None
            self.cancel()
            await wait_until_recorded(self._running, known=error)

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        async for item in self._items():
            if not isinstance(item, Step):
                yield item

    async def steps(self) -> AsyncIterator[Step]:
        """Go through the run step by step."""
        async for item in self._items():
            if isinstance(item, Step):
                yield item

    async def _items(self) -> AsyncIterator[AnyEvent | Step]:
        if self._queue is None or self._running is None:
            raise RuntimeError("Enter the run first: `async with agent.stream(task) as run:`.")
        while (item := await self._queue.get()) is not None:
            yield item
        await self._running  # raise what it raised

    def _put(self, item: AnyEvent | Step | None) -> None:
        if self._queue is not None:
            self._queue.put_nowait(item)

    # --- steering

    def steer(self, text: str) -> "asyncio.Future[None]":
        """Give the model a message after the results of the step that is under way. May be awaited."""
        return asyncio.ensure_future(self._steer(text))

    async def _steer(self, text: str) -> None:
        if self._session is None or self._inbox is None:
            raise RuntimeError("The run has not begun: wait for its first event before steering it.")
        self._inbox.nudge()
        await self._session.steer(text)

    def cancel(self) -> None:
        """Stop the run: what is under way is cut, every open call gets its result, and the run's result says `cancelled`.

        As long as its session is being opened, there is nothing to record: then the run raises CancelledError.
        """
        self._patience.hurry()
        if self._interrupt is not None:
            self._interrupt.trip(Stop(reason=StopReason.CANCELLED, message="The run was cancelled."))
        elif self._running is not None:
            self._running.cancel()

    def stop(self, reason: StopReason, message: str) -> None:
        """End the run for a reason of yours, such as `task_denied`; the first reason stays.

        What is under way is cut as `cancel` cuts it. A subscriber that calls this when no call is open ends the run
        before the model is asked again.

        Raises:
            ConfigurationError: The reason is none that stops a run.
        """
        if reason.status is not Status.STOPPED:
            raise ConfigurationError(f"A run cannot be stopped as {reason.value!r}: that is not for its caller to say.")
        self._wanted = self._wanted or Stop(reason=reason, message=message)
        if self._interrupt is not None:
            self._interrupt.trip(self._wanted)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have a function called with every event of this run, at once; to be said before the run begins."""
        self._subscribers.append(subscriber)

    def remember(self, origin: JsonObject) -> None:
        """Have it recorded how this run was set up, in words of yours, for whoever resumes it; to be said before it begins.

        `session.state.run.origin` has it. It must hold no secrets.

        Raises:
            ConfigurationError: It is no JSON object.
        """
        if not isinstance(origin, dict) or (fault := find_unencodable(origin)) is not None:
            words = "it is no object" if not isinstance(origin, dict) else fault
            raise ConfigurationError(f"What a run is to remember must be a JSON object: {words}.")
        self._origin = origin

    # --- from other processes

    def _lose(self) -> None:
        """The lease is lost: stop everything, before another process may act. What we would still record is refused."""
        self._patience.hurry()
        if self._interrupt is not None:
            logger.warning(
                "The run stops, its session is lost: %s", (self._session and self._session.loss) or "taken over"
            )
            self._interrupt.trip(Stop(reason=StopReason.CANCELLED), is_urgent=True)

    def _look(self) -> None:
        """Something was left for the session: a cancellation cuts into what is under way, all else waits for the step."""
        if self._inbox is not None:
            self._inbox.nudge()
        if self._inbox is not None and self._interrupt is not None:
            look = asyncio.ensure_future(self._take_cancel(self._inbox))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    async def _take_cancel(self, inbox: Inbox) -> None:
        try:
            if await inbox.sees_cancel():
                self.cancel()
        except JournalError:
            inbox.nudge()
            logger.warning("The inbox could not be read; the run looks again after its step", exc_info=True)

    async def _end_cancels(self, inbox: Inbox, stop: Stop) -> None:
        """Consume the cancellations of a run that has ended so."""
        try:
            if stop.reason is StopReason.CANCELLED:
                await inbox.drop_cancels()
        except JournalError:  # the end is stored: the next run drops what is left
            logger.warning("A cancellation that has been carried out could not be removed", exc_info=True)

    async def _end_looks(self) -> None:
        for look in tuple(self._looks):
            await asyncio.wait({look})

    # --- one body

    async def _carry_out(self) -> RunResult:
        CURRENT.set(self._patience)
        session = await self._open_session()
        may_have_messages = await session.hold(on_lost=self._lose, on_message=self._look)
        try:
            session.check_active()
            if self._above is None:
                session.check_own()
            self._session, self._interrupt = session, Interrupt(session.clock)
            self._interrupt.on_trip(self._patience.hurry)
            if self._wanted is not None:
                self._interrupt.trip(self._wanted)
            ledger = session.ledger
            ledger.subscribers = [*self._spec.subscribers, *self._subscribers]
            if self._queue is not None:
                ledger.subscribers.append(self._show)
            self._check_name()
            self._check_price()
            budget = self._budget(session)
            self._inbox = Inbox(ledger, is_empty=not may_have_messages)
            if may_have_messages:
                await self._inbox.drop_cancels(but_of=self._cancelled_run(session))
            await self._begin(session, budget)
            stop = await self._loop(session, self._interrupt, self._narrowed(session, budget)).run()
            await self._end_cancels(self._inbox, stop)
            await session.journal.flush()
            has_price = self._model.price is not None
            self._result = self._typed(conclude(session.state, stop, session, has_price=has_price))
            return self._result
        finally:
            session.ledger.subscribers = []
            await self._end_looks()
            await session.release()

    def _cancelled_run(self, session: Session) -> str | None:
        """Return the run whose cancellation still holds: one that goes on, and was paused or broke off; else None."""
        run = session.state.run
        return run.id if self._task_text is None and run is not None and run.phase in ("running", "paused") else None

    def _typed(self, result: RunResult) -> RunResult:
        """Give the structured answer its type."""
        if self._spec.output is None or result.reason is not StopReason.COMPLETED:
            return result
        return msgspec.structs.replace(result, output=self._spec.output.value(result.output))

    def _budget(self, session: Session) -> Budget:
        if self._own_budget is not None:
            return self._own_budget
        run = session.state.run
        if self._task_text is None and run is not None and run.budget is not None:
            return budget_from(run.budget)
        return self._spec.budget

    def _narrowed(self, session: Session, budget: Budget) -> Budget:
        """Let the deadline cut the running time that is left. It is looked at once: no change of the clock moves it then."""
        run = session.state.run
        if run is None:
            return budget
        left = [] if run.deadline is None else [max(run.deadline - session.clock.now(), 0.0)]
        if self._above is not None and (above := self._above.seconds_left()) is not None:
            left.append(above + _AFTER_CALLER_SECONDS)
        if not left:
            return budget
        end, limit = run.spent.wall_seconds + min(left), budget.max_wall_time_seconds
        return msgspec.structs.replace(budget, max_wall_time_seconds=end if limit is None else min(end, limit))

    def _check_name(self) -> None:
        name = self._model.name
        if not isinstance(name, str) or not (name.isascii() or find_unencodable(name) is None):
            raise ConfigurationError(f"A model's name must be a text that can be stored; got {name!r:.80}.")

    def _check_price(self) -> None:
        budget = self._own_budget or self._spec.budget
        is_limited = budget.max_total_cost is not None or (self._above is not None and self._above.meter.has_cost_limit)
        if not is_limited or self._model.price is not None:
            return
        words = f"max_total_cost is set, but nobody knows what {self._model.name} costs."
        if self._spec.unpriced == "warn" or (self._above is not None and self._above.warns_of_price):
            logger.warning("%s The limit cannot hold.", words)
            return
        raise ConfigurationError(
            f"{words} Give its price with resolve_model(..., price=Price(input=, output=)), install "
            "genai-prices, leave the budget out, or let it pass with Agent(unpriced='warn')."
        )

    async def _begin(self, session: Session, budget: Budget) -> None:
        """Record that a task begins, or that a run goes on."""
        ledger, spec = session.ledger, self._spec
        own = None if self._own_budget is None else msgspec.to_builtins(self._own_budget)
        if self._task_text is None:
            session.check_resumable()
            self._shown = session.state.run.steps if session.state.run is not None else 0
            resumed = RunResumed(
                budget=own,
                profile=spec.profile,
                model=self._model.name,
                instructions=spec.instructions_digest,
                deadline=self._deadline,
                origin=self._origin,
            )
            await ledger.record(resumed, durable=True)
            await settle(ledger, session.state.salvaged)
            if told := _resolutions(session):
                await ledger.record(*told, durable=True)
            await self._go_on(session)
            return
        message = _task_message(self._task_text)
        state = session.state
        await settle(ledger, [*state.early.values(), *state.salvaged, *state.unanswered])
        ledger.run_id = "r_" + ledger.randomness.token()
        started = RunStarted(
            task=message.text,
            model=self._model.name,
            profile=spec.profile,
            budget=own,
            tools=tuple(tool.name for tool in spec.toolbox.visible(ReadOnlyView(session))),
            instructions=spec.instructions_digest,
            deadline=self._deadline,
            origin=self._origin,
        )
        await ledger.record(
            started, MessageAdded(message=message, source="task"), *_resolutions(session), durable=True
        )  # a task that was given is never lost

    async def _go_on(self, session: Session) -> None:
        """A history that ends with the model's words needs a word of the user before the next request."""
        messages = session.state.messages
        if messages and messages[-1].role == "assistant" and not session.state.has_open_calls:
            message = user_message("Please go on.")
            await session.ledger.record(MessageAdded(message=message, source="runtime"))

    def _loop(self, session: Session, interrupt: Interrupt, budget: Budget) -> Loop:
        assert self._inbox is not None
        if (end := _too_late(session, budget)) is not None:
            interrupt.trip(end)
        above = self._above
        self.meter = Meter(
            budget,
            spent=lambda: Spent() if session.state.run is None else session.state.run.spent,
            above=None if above is None else above.meter,
            charged=Spent if above is None else lambda: above.charged(session.id),
        )
        return assemble(
            self._spec, self._model, session,
            inbox=self._inbox, interrupt=interrupt, meter=self.meter, deps=self._deps, above=above,
        )  # fmt: skip

    def _show(self, event: AnyEvent) -> None:
        self._put(event)
        session = self._session
        run = session.state.run if session is not None else None
        if session is None or run is None or run.steps == self._shown or session.state.has_open_calls:
            return
        self._shown = run.steps
        if (step := _step_of(session)) is not None:
            self._put(step)


def _resolutions(session: Session) -> list[MessageAdded]:
    """Return what the model must be told of calls that it was told to be of unknown outcome.

    Invariant: nothing comes between calls and their results, so where calls are open, the inbox tells the model after them.
    """
    if session.state.has_open_calls:
        return []
    return [resolution_message(one) for one in session.state.untold_resolutions()]


def _step_of(session: Session) -> Step | None:
    run, messages = session.state.run, session.messages
    if run is None or not messages:
        return None
    last = next((at for at in reversed(range(len(messages))) if messages[at].role != "user"), 0)
    results = messages[last] if messages[last].role == "tool" else None
    spoken = messages[last - 1] if results is not None else messages[last]
    if spoken.role != "assistant":
        return None
    return Step(number=run.steps, message=spoken, results=results, messages=messages, usage=run.spent.usage)


def _too_late(session: Session, budget: Budget) -> Stop | None:
    """Return the end of a run whose time is over before it begins: a call that waits must not start then either."""
    run, limit = session.state.run, budget.max_wall_time_seconds
    if run is None or limit is None or run.spent.wall_seconds < limit:
        return None
    used = run.spent.wall_seconds
    left = None if run.deadline is None else run.deadline - session.clock.now()
    if left is None or left > 0:
        return time_stop(LimitReached(budget="max_wall_time_seconds", used=plain(used), limit=limit), deadline=None)
    # The running time at which the deadline came: below zero where that was before the run began.
    reached = LimitReached(budget="max_wall_time_seconds", used=round(used, 3), limit=round(used + left, 3))
    return time_stop(reached, deadline=run.deadline)


def _task_message(task: str | Message) -> Message:
    if isinstance(task, Message):
        return task
    if not task.strip():
        raise ConfigurationError("The task is empty. Say what to do.")
    return user_message(task.encode("utf-8", "replace").decode())
