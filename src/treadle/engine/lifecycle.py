"""Lifecycle: the life of one run, from its session's lease to its recorded end. Needs no handle: whoever has a session runs one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from treadle.budgets import Budget, Deadline, Meter, Spent, budget_from, epoch_seconds, plain
from treadle.canonical import find_unencodable
from treadle.concurrency import CURRENT, Patience
from treadle.engine.assembly import Host, assemble
from treadle.engine.given import deps_for, instructions_from, makes_deps, snapshot_of
from treadle.engine.hooks import Hooks, denied_stop
from treadle.engine.interrupts import Interrupt, wait_until_recorded
from treadle.engine.loop import Loop
from treadle.engine.offering import Offering, check_deps
from treadle.engine.rules.endings import cancelled_stop, time_stop
from treadle.engine.spec import AgentSpec, RunResult, conclude, link_runs, traced_origin
from treadle.errors import AgentChanged, ConfigurationError, JournalError, RunHandedOver, SessionConflict, shown
from treadle.events import MessageAdded, RunResumed, RunStarted, SessionChanged, Subscriber
from treadle.messages import Message, user_message
from treadle.ports import Model
from treadle.redaction import redacted_logger
from treadle.sessions.inbox import Inbox
from treadle.sessions.live import LiveTeller, teller_of
from treadle.sessions.maintenance import settle
from treadle.sessions.session import Session
from treadle.sessions.views import ReadOnlyView
from treadle.state import resolution_message
from treadle.stops import LimitReached, Stop, StopReason
from treadle.tools import Decision, JsonObject, RunContext

__all__ = ["Lifecycle"]

logger = redacted_logger(__name__)

_ROUNDING_SECONDS = 0.001
_AFTER_CALLER_SECONDS = 1.0
"""How much longer a child may take than its caller, which cuts it at its own limit: that end is reported once."""


class Lifecycle:
    """The life of one run. It begins once, and has ended when its session is released.

    Example:
        result = await Lifecycle(spec, model, opening, task="Pay invoice 7").finish()

    Args:
        opening: Opens the session that the run belongs to.
        task: What to do; None to resume the session's run.
        deps: What tools find in `ctx.deps`, or a function of the session that returns or opens it.
        budget: In place of the agent's.
        deadline: The instant at which the run must have ended.
        above: The run that called this one; None for a run that people started.
    """

    def __init__(
        self,
        spec: AgentSpec,
        model: Model,
        opening: Callable[[], Awaitable[Session]],
        *,
        task: str | Message | None,
        deps: Any = None,  # Any: the application's own object
        budget: Budget | None = None,
        deadline: Deadline | None = None,
        above: Host | None = None,
    ) -> None:
        self.subscribers: list[Subscriber] = [*spec.subscribers]
        """Called with every event of the run; added to before it begins."""
        self.watchers: list[Subscriber] = [] if above is None else [*above.watchers]
        """Called with every event of the run and of those that carry out its calls, at any depth; added to before it begins."""
        self.origin: JsonObject | None = None
        """How whoever starts the run had set it up, for whoever resumes it; None for nothing."""
        self.single_turn = False
        """Whether the model may call tools in one response only. What a session's run began with holds when it is resumed."""
        self.keeps_instructions = False
        """Whether its instructions were given for this run alone, so that they are recorded with it."""
        self.metadata: JsonObject = {}
        """What its beginning changes of the session's metadata, by key; None to remove a key."""
        self.admit: Callable[[Session], None] | None = None
        """Looks at the session once it is leased, and raises where the run must not continue; None for no such look."""
        self.takes_submitted = False
        """Whether it carries out the task that waits in the session for a worker."""
        self.worker = ""
        """The worker that runs it, for the record; empty for another process."""
        self.is_alone = False
        """Whether that worker runs nothing else meanwhile."""
        self.meter: Meter | None = None
        """What the run has spent against what it may; None until it has begun."""
        self.session: Session | None = None
        """The session; None until it is opened and leased."""
        self.result: RunResult | None = None
        """How the run ended; None until it has."""
        self._spec = spec
        self._model = model
        self._opening = opening
        self._task = task
        self._deps = deps
        self._own_budget = budget
        self._deadline = None if deadline is None else epoch_seconds(deadline)
        self._above = above
        self._written: str | None = None  # the instructions, if this process has had them written for the run
        self._interrupt: Interrupt | None = None
        self._inbox: Inbox | None = None
        self._patience = Patience()
        self._looks: list[asyncio.Task[None]] = []
        self._wanted: Stop | None = None  # the end that was asked for before there was anything to interrupt
        self._running: asyncio.Task[RunResult] | None = None
        self._is_handed_over = False
        self._live: LiveTeller | None = None

    # --- from its beginning to its end

    def begin(self) -> "asyncio.Task[RunResult]":
        """Begin the run if it has not begun, and return its task."""
        if self._running is None:
            self._running = asyncio.create_task(self._carry_out())
        return self._running

    async def finish(self) -> RunResult:
        """Wait for the end of the run, which begins now if it has not. Raises what the run raised.

        Cancelling the caller ends the run: its results and its end are recorded before the cancellation continues (TF10).
        """
        running = self.begin()
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if (
                self._is_handed_over and running.done()
            ):  # it was cancelled before its session was open, and not its caller
                raise RunHandedOver("The run was handed over before it began.") from None
            self.abandon()
            await wait_until_recorded(running)
            raise

    async def _carry_out(self) -> RunResult:
        CURRENT.set(self._patience)
        session = await self._opening()
        may_have_messages = await session.hold(on_lost=self._lose, on_message=self._look)
        try:
            session.check_active()
            if not self.takes_submitted:
                session.check_no_task()
            if self._above is None:
                session.check_own()
            (self.admit or self._check_goal)(session)
            self.session = session
            interrupt = self._interruptible(session)
            session.ledger.subscribers = [*self.subscribers, *self.watchers]
            session.ledger.live = self._live = teller_of(session.journal, session.id)
            self._check_name()
            self._check_tenant(session)
            check_deps(self._spec.toolbox, self._deps)
            self._check_price()
            if self._task is None:
                session.check_resumable()
            if self._above is not None or not makes_deps(self._deps):  # a run that is called has its caller's
                return await self._to_its_end(session, interrupt, may_have_messages=may_have_messages)
            async with deps_for(self._deps, snapshot_of(session, self.metadata), interrupt) as self._deps:
                return await self._to_its_end(session, interrupt, may_have_messages=may_have_messages)
        finally:
            if self._interrupt is not None:
                self._interrupt.disarm()
            session.ledger.subscribers = []
            await self._end_looks()
            if self._live is not None:
                session.ledger.live = None
                await self._live.close()
            await session.release()

    async def _to_its_end(self, session: Session, interrupt: Interrupt, *, may_have_messages: bool) -> RunResult:
        """Begin or continue the run, and carry it out until its end is recorded."""
        if interrupt.stop is None:
            check_deps(self._spec.toolbox, self._deps)
        budget = self._budget(session)
        hooks = self._hooks(session, interrupt)
        self._inbox = inbox = Inbox(session.ledger, is_empty=not may_have_messages, prompt=hooks.prompt)
        if may_have_messages:
            await inbox.drop_cancels(but_of=_open_run(session), continues=self._task is None)
        await self._instruct(session, interrupt)
        await (self._resume(session, hooks) if self._task is None else self._start(session, self._task, hooks))
        await inbox.drop_superseded()
        self._begin_time(session, interrupt, self._narrowed(session, budget))
        async with self._offering(session, interrupt) as offering:
            if interrupt.stop is None:
                offering.check_deps()
            stop = await self._loop(session, inbox, interrupt, offering).run()
        await self._end_cancels(inbox, stop)
        await hooks.end(stop)
        await session.journal.flush()
        self.result = self._typed(conclude(session.state, stop, session, has_price=self._model.price is not None))
        return self.result

    # --- its end, asked for from outside

    def cancel(self, by: str = "") -> None:
        """End the run as `cancelled`, with its end recorded: as soon as its session is open, where that is not yet so."""
        self._patience.hurry()
        self.stop(cancelled_stop(by))

    def abandon(self) -> None:
        """End the run whose caller goes away. As long as its session is being opened, its task is cancelled: nothing is recorded."""
        above = None if self._above is None else self._above.interrupt.stop
        self._patience.hurry()
        self.stop(cancelled_stop() if above is None else Stop(reason=StopReason.CANCELLED, message=above.message))
        if self._interrupt is None and self._running is not None:
            self._running.cancel()

    async def hand_over(self) -> None:
        """Let go of the run where it is, as a kill would: nothing more is recorded of it here. Return when nothing runs any more."""
        if self._running is None or self._running.done():
            return
        self._is_handed_over = True
        if self.session is not None:
            self.session.hand_over()
        self.abandon()
        await asyncio.wait({self._running})
        if not self._running.cancelled():
            self._running.exception()  # whoever cancelled its caller reads it no more

    def stop(self, stop: Stop) -> None:
        """End the run for this reason, as soon as there is anything to end; the first reason stays."""
        self._wanted = self._wanted or stop
        if self._interrupt is not None:
            self._interrupt.trip(stop)

    def nudge(self) -> None:
        """Have the run look into its inbox after its step.

        Raises:
            RuntimeError: It has not begun.
        """
        if self._inbox is None:
            raise RuntimeError("The run has not begun: wait for its first event before steering it.")
        self._inbox.nudge()

    def _interruptible(self, session: Session) -> Interrupt:
        self._interrupt = interrupt = Interrupt(session.clock)
        interrupt.on_trip(self._patience.hurry)
        if self._wanted is not None:
            interrupt.trip(self._wanted)
        return interrupt

    # --- its lease and its inbox

    def _lose(self) -> None:
        """The lease is lost: stop everything, before another process may act. What we would still record is refused."""
        self._patience.hurry()
        if self._interrupt is not None:
            loss = (self.session and self.session.loss) or "Another process has taken the session over."
            logger.warning("The run stops because it has lost its session: %s", loss)
            # The end is stored nowhere, unless the run continues in memory: then its result has the reason too.
            self._interrupt.trip(Stop(reason=StopReason.CANCELLED, message=loss), is_urgent=True)

    def _look(self) -> None:
        """Something was left for the session: a cancellation cuts into what is under way, a change of mode holds at once.

        All else waits for the step.
        """
        if self._inbox is not None:
            self._inbox.nudge()
            look = asyncio.ensure_future(self._take_cancel(self._inbox))
            self._looks.append(look)
            look.add_done_callback(self._looks.remove)

    async def _take_cancel(self, inbox: Inbox) -> None:
        try:
            if (cancel := await inbox.look()) is not None:
                self.cancel(cancel.by)
        except (JournalError, SessionConflict):
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

    def _check_goal(self, session: Session) -> None:
        """Refuse to continue a run that works on a goal without the rules of the goal."""
        run = session.state.run
        goal = None if self._task is not None or run is None else run.fingerprint.get("goal")
        if run is not None and goal not in (None, self._spec.fingerprint.get("goal")):
            raise AgentChanged(
                f"Run {run.id!r} of session {session.id!r} works on a goal, whose rules and validation this agent does not have. "
                "Continue it with run_goal(agent, load_goal(FILE), session=session), or with `treadle goal FILE`."
            )

    # --- what it may spend

    def _check_name(self) -> None:
        name = self._model.name
        if not isinstance(name, str) or not (name.isascii() or find_unencodable(name) is None):
            raise ConfigurationError(f"A model's name must be a string that can be stored; got {shown(name)}.")

    def _check_tenant(self, session: Session) -> None:
        """Refuse to run in a session of another tenant: who may see it has been decided by its own."""
        owner = session.state.metadata.get("tenant")
        tenant = self.metadata.get("tenant", owner)
        if owner and tenant != owner:
            raise SessionConflict(
                f"Session {session.id!r} belongs to another tenant than {shown(tenant)}. Use a session of that tenant, or a new one."
            )

    def _check_price(self) -> None:
        budget = self._own_budget or self._spec.budget
        above = self._above
        is_limited = budget.max_total_cost is not None or bool(self._spec.tenant_budgets)
        is_limited = is_limited or (above is not None and (above.meter.has_cost_limit or above.purse is not None))
        if not is_limited or self._model.price is not None:
            return
        problem = f"max_total_cost is set, but the price of {self._model.name} is unknown."
        if self._spec.unpriced == "warn" or (self._above is not None and self._above.warns_of_price):
            logger.warning("%s The limit cannot be enforced.", problem)
            return
        raise ConfigurationError(
            f"{problem} Give its price with resolve_model(..., price=Price(input=, output=)), install "
            "genai-prices, leave the budget out, or accept it with Agent(unpriced='warn')."
        )

    def _budget(self, session: Session) -> Budget:
        if self._own_budget is not None:
            return self._own_budget
        run = session.state.run
        if self._task is None and run is not None and run.budget is not None:
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

    # --- its parts

    async def _instruct(self, session: Session, interrupt: Interrupt) -> None:
        """Have the instructions written, and keep them for the whole run: one that continues sends what it has sent before."""
        run = session.state.run
        own, sent = self._spec.instructions, None if self._task is not None or run is None else run.sent_instructions
        if sent is None and own is not None and (self.keeps_instructions or not isinstance(own, str)):
            context = RunContext(deps=self._deps, session=snapshot_of(session, self.metadata))
            with interrupt.cancel_scope():  # a run that is cancelled meanwhile ends before it asks a model
                if interrupt.stop is None:
                    self._written = await instructions_from((own,) if isinstance(own, str) else own, context)
            sent = self._written
        if sent is not None or isinstance(own, tuple):
            self._spec = msgspec.structs.replace(self._spec, instructions=sent)

    def _hooks(self, session: Session, interrupt: Interrupt) -> Hooks:
        """Return the hooks of the agent itself, for the beginning and the end of its run and for what people say to it."""
        top = session.state if self._above is None else self._above.top
        limit = self._spec.guards.continuations
        return Hooks(self._spec.hooks, ledger=session.ledger, top=top, interrupt=interrupt, continuations=limit)

    async def _begun(self, source: str, hooks: Hooks, denied: Decision | None) -> None:
        """Let hooks look at a run that is recorded as begun, and end it where one denies it, or has denied its task."""
        stop, said = (denied_stop(denied, "The task"), []) if denied is not None else await hooks.start(source)
        if said and self._inbox is not None:
            self._inbox.add_later(said)
        if stop is not None and self._interrupt is not None:
            self._interrupt.trip(stop)

    async def _start(self, session: Session, task: str | Message, hooks: Hooks) -> None:
        """Record that a task begins. A task that was given is never lost."""
        message, ledger, state = _task_message(task), session.ledger, session.state
        await settle(ledger, [*state.early.values(), *state.salvaged, *state.unanswered])
        ledger.run_id = "r_" + ledger.randomness.token()
        started = RunStarted(
            task=message.text,
            model=self._model.name,
            profile=self._spec.profile,
            budget=self._recorded_budget,
            tools=tuple(tool.name for tool in self._spec.toolbox.visible(ReadOnlyView(session))),
            instructions=self._spec.instructions_digest,
            sent_instructions=self._written,
            deadline=self._deadline,
            origin=traced_origin(self.subscribers, self.origin, None),
            agent=self._spec.name,
            fingerprint=self._spec.fingerprint,
            single_turn=self.single_turn,
            worker=self.worker,
        )
        denied, beside = await hooks.prompt(message, "task")
        given = [MessageAdded(message=message, source="task")] if denied is None else []
        changed = [SessionChanged(metadata=self.metadata, by="run")] if self.metadata else []
        await ledger.record(*changed, started, *given, *beside, *_resolutions(session), durable=True)
        await self._begun("start", hooks, denied)

    async def _resume(self, session: Session, hooks: Hooks) -> None:
        """Record that the session's run continues."""
        ledger = session.ledger
        link_runs(self.subscribers, session.state.run)
        resumed = RunResumed(
            budget=self._recorded_budget,
            profile=self._spec.profile,
            model=self._model.name,
            instructions=self._spec.instructions_digest,
            sent_instructions=self._written,
            deadline=self._deadline,
            origin=traced_origin(self.subscribers, self.origin, session.state.run),
            agent=self._spec.name,
            fingerprint=self._spec.fingerprint,
            worker=self.worker,
            is_alone=self.is_alone,
        )
        run = session.state.run
        if run is not None and run.status == "paused" and self._recorded_budget is None and self._deadline is None:
            ledger.defer(resumed)  # whoever resumes a run for which nothing has arrived adds nothing to its session
        else:
            await ledger.record(resumed, durable=True)
        await settle(ledger, session.state.salvaged)
        if resolutions := _resolutions(session):
            await ledger.record(*resolutions, durable=True)
        await self._begun("resume", hooks, await _prompt_again(session, hooks))
        await _ask_on(session)

    @property
    def _recorded_budget(self) -> dict[str, Any] | None:
        return None if self._own_budget is None else msgspec.to_builtins(self._own_budget)

    def _begin_time(self, session: Session, interrupt: Interrupt, budget: Budget) -> None:
        """Begin to count what the run spends, its time included, which cuts into whatever runs: a tool, a silent stream, a pause."""
        if (end := _too_late(session, budget)) is not None:
            interrupt.trip(end)
        above, run = self._above, session.state.run
        self.meter = Meter(
            budget,
            spent=lambda: Spent() if session.state.run is None else session.state.run.spent,
            above=None if above is None else above.meter,
            charged=Spent if above is None else lambda: above.charged(session.id),
        )
        interrupt.begin()
        left = self.meter.seconds_left(Spent().wall_seconds if run is None else run.spent.wall_seconds)
        if run is not None and left is not None and (limit := budget.max_wall_time_seconds) is not None:
            reached = LimitReached(budget="max_wall_time_seconds", used=limit, limit=limit)
            is_nearer = run.deadline is not None and run.deadline <= session.clock.now() + left + _ROUNDING_SECONDS
            interrupt.trip_after(left, time_stop(reached, deadline=run.deadline if is_nearer else None))

    def _offering(self, session: Session, interrupt: Interrupt) -> Offering:
        """Return the tools of the run, whose toolsets are yet to be opened."""
        top = session.state if self._above is None else self._above.top
        view = ReadOnlyView(session, mode=lambda: top.mode)
        return Offering(
            self._spec,
            ledger=session.ledger,
            session=view,
            interrupt=interrupt,
            deps=self._deps,
            is_called=self._above is not None,
        )

    def _loop(self, session: Session, inbox: Inbox, interrupt: Interrupt, offering: Offering) -> Loop:
        assert self.meter is not None
        host = Host(
            self._spec, self._model, session, offering=offering, meter=self.meter,
            interrupt=interrupt, above=self._above, watchers=self.watchers,
        )  # fmt: skip
        return assemble(host, inbox=inbox, deps=self._deps)

    def _typed(self, result: RunResult) -> RunResult:
        """Give the structured answer its type."""
        if self._spec.output is None or result.reason is not StopReason.COMPLETED:
            return result
        return msgspec.structs.replace(result, output=self._spec.output.value(result.output))


async def _prompt_again(session: Session, hooks: Hooks) -> Decision | None:
    """Add a task that a hook had kept out, unless it does so again; return its denial then."""
    run = session.state.run
    if run is None or not run.task or session.state.messages[run.first_message :]:
        return None
    message = user_message(run.task)
    denied, beside = await hooks.prompt(message, "task")
    given = [MessageAdded(message=message, source="task")] if denied is None else []
    await session.ledger.record(*given, *beside, durable=True)
    return denied


async def _ask_on(session: Session) -> None:
    """Add a word of the user's where the history ends with the model's: without one there is nothing to ask."""
    messages = session.state.messages
    if messages and messages[-1].role == "assistant" and not session.state.has_open_calls:
        message = user_message("Please continue.")
        await session.ledger.record(MessageAdded(message=message, source="runtime"))


def _open_run(session: Session) -> str | None:
    """Return the run that was paused or broke off; None where there is none."""
    run = session.state.run
    return run.id if run is not None and run.status in ("running", "paused") else None


def _resolutions(session: Session) -> list[MessageAdded]:
    """Return what the model must be told of calls that were reported to it as of unknown outcome.

    Invariant: nothing comes between calls and their results, so where calls are open, the inbox tells the model after them.
    """
    if session.state.has_open_calls:
        return []
    return [resolution_message(one) for one in session.state.untold_resolutions()]


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
        raise ConfigurationError("The task is empty. Describe what to do.")
    return user_message(task.encode("utf-8", "replace").decode())
