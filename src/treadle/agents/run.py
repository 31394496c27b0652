"""Run: the handle of a running task: its events, steps and result, and how to end it. `engine/lifecycle.py` carries it out."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, Self

import msgspec

from treadle.agents.checks import checked_subscribers
from treadle.canonical import find_unencodable
from treadle.engine.interrupts import wait_until_recorded
from treadle.engine.lifecycle import Lifecycle
from treadle.engine.spec import Output_co, RunResult
from treadle.errors import ConfigurationError
from treadle.events import AnyEvent, ModelDelta, ModelFinished, ModelStarted, RunResumed, RunStarted, Subscriber
from treadle.events.public import Unshown
from treadle.fields import checked
from treadle.messages import Message, Usage
from treadle.sessions.session import Session
from treadle.stops import Status, Stop, StopReason
from treadle.tools import JsonObject

__all__ = ["Run", "Step"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The session after one model call and the results of all calls that it proposed."""

    number: int
    """From 1, in this run."""
    message: Message
    results: Message | None
    messages: tuple[Message, ...]
    usage: Usage


class Run(Generic[Output_co]):
    """A run as it happens.

    Example:
        async with agent.stream("Compare Frodo and Sam") as run:
            async for event in run:
                print(event.type)
        print(run.result.text)
    """

    def __init__(self, life: Lifecycle) -> None:
        self._life = life
        self._queue: deque[AnyEvent | Step] | None = None  # made for who looks: it takes 700 bytes when it is empty
        self._waiting: list[asyncio.Future[None]] = []  # those who wait for the queue
        self._running: asyncio.Task[RunResult[Output_co]] | None = None
        self._shown: int | None = None  # steps that have been put into the queue; None until the run is recorded

    def __repr__(self) -> str:
        """Return its session and how far it is."""
        session, result = self._life.session, self._life.result
        standing = (
            f"ended: {result.reason}" if result is not None else "not begun" if self._running is None else "running"
        )
        return f"<Run of {'a new session' if session is None else session.id}, {standing}>"

    # --- the result

    @property
    def result(self) -> RunResult[Output_co]:
        """How the run ended.

        Raises:
            RuntimeError: The run has not ended: go through its events, or await `finish()`.
        """
        if self._life.result is None:
            raise RuntimeError("The run has not ended: iterate over its events, or await run.finish().")
        return self._life.result

    async def finish(self) -> RunResult[Output_co]:
        """Wait for the end of the run, and begin it if it has not begun. Raises what the run raised.

        Cancelling the caller ends the run: its results and its end are recorded before the cancellation continues (TF10).
        """
        self._running = self._life.begin()
        return await self._life.finish()

    # --- as a stream

    async def __aenter__(self) -> Self:
        self._queue = deque()
        self._life.subscribers.append(self._show)
        self._running = self._life.begin()
        self._running.add_done_callback(lambda _: self._tell())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.finish()
        else:
            assert self._running is not None
            self._life.abandon()
            await wait_until_recorded(self._running, known=error)

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        while queue := await self._filled():
            while queue:  # in here: a generator below this one would cost every event a pass through it
                item = queue.popleft()
                if type(item) is not Step:
                    yield item  # type: ignore[misc]  # what is not a Step is an event

    async def steps(self) -> AsyncIterator[Step]:
        """Yield the steps of the run as they end."""
        while queue := await self._filled():
            while queue:
                item = queue.popleft()
                if isinstance(item, Step):
                    yield item

    async def text(self) -> AsyncIterator[str]:
        """Yield the text that the model writes, piece by piece, without reasoning and calls.

        Text that precedes calls is included; `run.result.text` is the answer alone. If a response breaks off and the
        model is asked again, text that was already yielded is not repeated; if the new response differs, it follows
        in full on a new line.

        Example:
            async with agent.stream("Compare Frodo and Sam") as run:
                async for piece in run.text():
                    print(piece, end="", flush=True)
        """
        unshown = Unshown()
        async for event in self:
            if isinstance(event, ModelStarted | ModelDelta | ModelFinished) and (piece := unshown.new_in(event)):
                yield piece

    async def _filled(self) -> "deque[AnyEvent | Step] | None":
        """Return the queue once there is something in it; None where the run has ended. Raises then what the run raised."""
        if self._running is None:
            raise RuntimeError("Enter the run first: `async with agent.stream(task) as run:`.")
        while not self._queue:
            if self._running.done():
                await self._running
                return None
            wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(wake)
            await wake
        return self._queue

    def _put(self, item: AnyEvent | Step) -> None:
        assert self._queue is not None  # nobody shows a run that was not entered
        self._queue.append(item)
        if self._waiting:
            self._tell()

    def _tell(self) -> None:
        for wake in self._waiting:
            if not wake.done():
                wake.set_result(None)
        self._waiting.clear()

    def _show(self, event: AnyEvent) -> None:
        self._put(event)
        session = self._life.session
        run = session.state.run if session is not None and not event.is_live else None
        if session is None or run is None:
            return
        if isinstance(event, RunStarted | RunResumed):
            self._shown = run.steps
        if self._shown is None or run.steps == self._shown or session.state.has_open_calls:
            return
        self._shown = run.steps
        if (step := _step_of(session)) is not None:
            self._put(step)

    # --- steering

    def steer(self, text: str) -> "asyncio.Future[None]":
        """Give the model a message after the results of the current step. May be awaited."""
        return asyncio.ensure_future(self._steer(text))

    async def _steer(self, text: str) -> None:
        self._life.nudge()
        assert self._life.session is not None
        await self._life.session.steer(text)

    @checked
    def cancel(self, *, by: str = "") -> None:
        """Stop the run: running calls are cut off, every open call gets its result, and the run's result says `cancelled`.

        A run that has not begun, or whose session is still being opened, ends before any model is asked.

        Args:
            by: Who or what cancels it, for the record and the model; empty where that is not known.
        """
        self._life.cancel(by.encode("utf-8", "replace").decode())

    async def hand_over(self) -> None:
        """Let go of the run where it is, for another process to resume. A service calls it when it gets SIGTERM.

        The session is left as a killed process leaves it: nothing is recorded as cancelled, and what was running is settled by
        the next process, by its `check` or a person. `finish()` and the run's events raise `RunHandedOver`. A run that has ended stays so.
        """
        await self._life.hand_over()

    @checked
    def stop(self, reason: StopReason, message: str) -> None:
        """End the run for a reason of yours, such as `task_denied`; the first reason stays.

        Running calls are cut off as by `cancel`. A subscriber that calls this while no call is open ends the run
        before the model is asked again.

        Raises:
            ConfigurationError: The reason does not stop a run, such as `completed`.
        """
        if reason.status is not Status.STOPPED:
            raise ConfigurationError(
                f"A run cannot be stopped as {reason.value!r}: only the run itself ends that way. Use run.cancel()."
            )
        self._life.stop(Stop(reason=reason, message=message))

    @checked
    def subscribe(self, subscriber: Subscriber, *, children: bool = False) -> None:
        """Call a function with every event of this run, as it happens. Subscribe before the run begins.

        Args:
            subscriber: Called in the event loop, so it must not block. What it raises is logged and changes nothing.
            children: Whether it also gets the events of agents that carry out calls of this run, at any depth.
                They have another `session_id`, and `parent_call` names the call.
        """
        listeners = self._life.watchers if children else self._life.subscribers
        listeners.extend(checked_subscribers([subscriber]))

    def remember(self, origin: JsonObject) -> None:
        """Record a JSON object of yours that says how this run was set up, for whoever resumes it. Call it before the run begins.

        `session.state.run.origin` has it. It must hold no secrets.

        Raises:
            ConfigurationError: It is not a JSON object.
        """
        if not isinstance(origin, dict) or (fault := find_unencodable(origin)) is not None:
            problem = "it is not an object" if not isinstance(origin, dict) else fault
            raise ConfigurationError(f"The origin that a run is to remember must be a JSON object: {problem}.")
        self._life.origin = origin


def _step_of(session: Session) -> Step | None:
    run, messages = session.state.run, session.messages
    if run is None or not messages:
        return None
    last = next((at for at in reversed(range(len(messages))) if messages[at].role != "user"), 0)
    results = messages[last] if messages[last].role == "tool" else None
    message = messages[last - 1] if results is not None else messages[last]
    if message.role != "assistant":
        return None
    return Step(number=run.steps, message=message, results=results, messages=messages, usage=run.spent.usage)
