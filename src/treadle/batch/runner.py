"""Runner: the tasks of a batch side by side, each in the session that its key names, until each has a row."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.registry import changed_parts
from treadle.batch.pace import Pace, PacedModel
from treadle.batch.rows import TOTAL, BatchRow, RowFile, ending_in, ending_of, row_of
from treadle.batch.scoring import Score, scored
from treadle.batch.summary import BatchSummary, Tally, money
from treadle.batch.tasks import BatchTask, as_task
from treadle.batch.vendor import VendorBatches, VendorModel
from treadle.budgets import Budget, TenantBudget, as_decimal
from treadle.errors import AgentChanged, ConfigurationError, JournalError, SessionHeld, TaskCancelled, check_path, shown
from treadle.events import RunFinished, RunPaused, TaskWithdrawn
from treadle.fields import Documented, checked
from treadle.journals.store import can_continue
from treadle.ports import Clock, Journal
from treadle.redaction import shown_error
from treadle.resolve import open_journal, open_session
from treadle.resolve.journals import SystemClock, SystemRandomness
from treadle.sessions.maintenance import fold
from treadle.sessions.session import Session
from treadle.state import RunState
from treadle.stops import StopReason
from treadle.workers.limits import Limit, Limits, checked_limit
from treadle.workers.submitting import keyed_session_id, submit

__all__ = ["BatchProgress", "run_batch"]

_MOST = 99_999
_HELD_SECONDS = 60
"""How long a session is waited for that another process runs, or that has died with one a moment ago."""
_FATAL = (ConfigurationError, JournalError, AgentChanged, SessionHeld)
"""What ends a batch: no other task would fare better."""


class BatchProgress(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """How far a batch is."""

    total: int | None
    """Tasks, each repetition counted; None if nobody knows yet."""
    done: int
    """Tasks that have a row, those from before included."""
    failed: int
    """Those of them whose run did not complete, and does not wait for a person."""
    running: int
    """Tasks under way."""
    cost: Decimal
    """What the rows of the results have cost together, those of other tasks included: what `total_budget` bounds."""
    per_minute: float
    """Tasks a minute, since this process has begun."""
    seconds_left: float | None
    """How long the rest takes at this rate; None if nobody knows."""
    paused_seconds: float = 0.0
    """How long no request begins, because the vendor limits the rate; 0 for none."""

    def __str__(self) -> str:
        """Return a line of progress."""
        of = f" of {self.total:,} ({100 * self.done / self.total:.0f} %)" if self.total else ""
        parts = [f"{self.done:,}{of} done", f"{self.failed:,} failed", f"{self.running:,} running", money(self.cost)]
        parts.append(f"{self.per_minute:,.0f} a minute")
        if self.seconds_left is not None:
            parts.append(f"{timedelta(seconds=round(self.seconds_left))} left")
        if self.paused_seconds > 0:
            parts.append(f"rate limit: waits {self.paused_seconds:.0f} s")
        return ", ".join(parts)


@checked
async def run_batch(
    agent: Agent[Any, Any] | str,
    tasks: Iterable[BatchTask | str | Mapping[str, Any]],
    *,
    journal: str | Path | Journal,
    results: str | Path | None = None,
    name: str = "batch",
    concurrency: int = 8,
    repeat: int = 1,
    budget: Budget | None = None,
    total_budget: float | Decimal | None = None,
    score: Score | None = None,
    on_error: Literal["continue", "stop"] = "continue",
    only_failed: bool = False,
    limits: Sequence[Limit] = (),
    vendor_batch: bool = False,
    deps: Any = None,  # Any: as for `Agent.run`
    stop: asyncio.Event | None = None,
    on_row: Callable[[BatchRow], object] | None = None,
    on_progress: Callable[[BatchProgress], object] | None = None,
    clock: Clock | None = None,
) -> BatchSummary:
    """Run each task in a session of its own, and return what they came to. The same call continues a batch that was killed.

    A task whose run has ended is never run again: its row comes from the results, or from the journal. One that broke off continues.
    Rate limits of the vendor slow all tasks together.

    Example:
        summary = await run_batch(agent, read_tasks("tasks.jsonl"), journal="runs.db", results="results.jsonl")
        print(summary.completed, summary.cost)

    Args:
        agent: The agent, or the name of one that workers have: then its tasks are submitted, and this process only collects.
        tasks: `BatchTask`s, texts, or objects such as {"id": "q1", "task": "..."}. They are read as they are needed, and their ids are unique.
        journal: A file's path, `postgresql://...`, or an open journal.
        results: A file that gets a line of JSON for each row as it is made; None for none.
        name: Of the batch in its journal: under another name all tasks run again. Recorded as `batch` in each session's metadata.
        concurrency: How many tasks run at once, or wait for workers at once.
        repeat: How often each task is run.
        budget: Of each run; replaces the agent's.
        total_budget: What all runs of this name may cost together, those of tasks that are no longer given included. A model call that
            does not fit is not made, no further task begins, and the same call with a larger one continues.
        score: Says how good an answer is.
        on_error: Whether the batch continues, or begins no further task, if a run fails or raises an exception.
        only_failed: Whether tasks are tried again whose run was stopped or failed. Finished calls do not run again.
        limits: Requests and tokens a minute, over all processes with the same journal: `Limit(name="key 1", tokens_per_minute=200_000)`.
        vendor_batch: Whether requests go into batches of OpenAI or Anthropic, at half the price and within a day, for tasks of one step:
            each step of all tasks under way is one batch. A file beside the results says which.
        deps: As for `Agent.run`, for each run.
        stop: When it is set, no further task begins, and those under way end.
        on_row: Called with each row as it is made.
        on_progress: Called whenever a task begins or ends. It must not block.
        clock: Replaces the machine's clock, for tests.

    Raises:
        ConfigurationError: A task or an option is invalid, or a task has changed since it was run.
        AgentChanged: The agent has changed since the batch began.
        JournalError: The store failed. The same call continues.
    """
    _check(agent, name, concurrency, repeat, total_budget, limits, only_failed=only_failed)
    if vendor_batch and (isinstance(agent, str) or results is None):
        raise ConfigurationError("run_batch(vendor_batch=True) needs the agent itself, and results=.")
    time = clock or SystemClock()
    async with _opened(journal) as store, AsyncExitStack() as open_here:
        pace = Pace(concurrency, clock=time, randomness=SystemRandomness())
        vendor = None
        if vendor_batch and not isinstance(agent, str):
            vendor = VendorBatches(Path(results or "").with_suffix(".batches.jsonl"), lambda: batch.running, time)
            budget = _without_end(budget or agent._spec.budget)  # noqa: SLF001 - as it would run
            agent = agent.replace(model=VendorModel(agent.model, vendor))
        way = (
            _Fleet(agent, store, name, budget, time)
            if isinstance(agent, str)
            else _Here(_prepared(agent, store, pace, limits, total_budget, time), store, name, budget, deps, time)
        )
        if isinstance(way, _Here):
            way.tries_again = only_failed
        batch = _Batch(way, tasks, repeat, score, pace, time)
        batch.total_budget = None if total_budget is None else as_decimal(total_budget)
        batch.stop, batch.on_row, batch.on_progress = stop or asyncio.Event(), on_row, on_progress
        batch.stops_at_error = on_error == "stop"
        if results is not None:
            check_path("results", results)
            batch.file = RowFile(
                Path(results), lambda row: row.is_final and not (only_failed and row.status != "completed")
            )
        if vendor is not None:
            await open_here.enter_async_context(vendor.open())
            batch.on_idle = vendor.look
        return await batch.run(concurrency)


def _without_end(budget: Budget) -> Budget:
    """Return a budget without a limit of time: a vendor's batch may last a day."""
    return msgspec.structs.replace(budget, max_wall_time_seconds=None)


def _check(
    agent: Agent[Any, Any] | str,
    name: str,
    concurrency: int,
    repeat: int,
    total_budget: float | Decimal | None,
    limits: Sequence[Limit],
    *,
    only_failed: bool,
) -> None:
    if not name or not name.isprintable() or len(name) > 200:
        raise ConfigurationError(f"run_batch(name=...) has 1 to 200 printable characters; got {shown(name)}.")
    for word, value in (("concurrency", concurrency), ("repeat", repeat)):
        if not 1 <= value <= _MOST:
            raise ConfigurationError(
                f"run_batch({word}=...) is a whole number from 1 to {_MOST:,}; got {shown(value)}."
            )
    if total_budget is not None and total_budget < 0:
        raise ConfigurationError(f"run_batch(total_budget=...) is not negative; got {shown(total_budget)}.")
    for limit in limits:
        if checked_limit(limit).sessions is not None:
            raise ConfigurationError(
                f"The limit {limit.name!r} limits sessions: use run_batch(concurrency=...) for that."
            )
    if isinstance(agent, str) and (only_failed or limits):
        raise ConfigurationError("Workers run the tasks: only_failed and limits need the agent itself in run_batch.")


@asynccontextmanager
async def _opened(journal: str | Path | Journal) -> AsyncIterator[Journal]:
    if isinstance(journal, str | Path):
        async with open_journal(journal) as store:
            yield store
    else:
        yield journal


def _prepared(
    agent: Agent[Any, Any],
    journal: Journal,
    pace: Pace,
    limits: Sequence[Limit],
    total_budget: float | Decimal | None,
    clock: Clock,
) -> Agent[Any, Any]:
    """Return the agent whose requests keep the pace, with a name, so that its changes show, and within the total budget."""
    model = agent.model
    changes: dict[str, Any] = {"model": PacedModel(model, Limits(journal, limits, clock).limiting(model), pace)}
    if not agent.name:
        changes["name"] = "batch"
    if total_budget is not None:
        own = agent._spec.tenant_budgets  # noqa: SLF001 - it gets one more, as the agent would be written
        changes["tenant_budgets"] = (*own, TenantBudget(max_total_cost=total_budget, per="ever", each="batch"))
    return agent.replace(**changes)


# --- The batch: takes tasks, has each made into a row, and stops cleanly.


class _Way(Protocol):
    """How a task gets its row."""

    async def row(self, task: BatchTask, repeat: int) -> BatchRow:
        """Return the row of a task, whose run begins, continues, or has ended before."""
        ...

    async def check_kept(self, row: BatchRow) -> None:
        """Raise AgentChanged if a row from before was made by another agent."""
        ...


class _Batch:
    def __init__(
        self,
        way: _Way,
        tasks: Iterable[BatchTask | str | Mapping[str, Any]],
        repeat: int,
        score: Score | None,
        pace: Pace,
        clock: Clock,
    ) -> None:
        self.total_budget: Decimal | None = None
        self.stop = asyncio.Event()
        self.on_row: Callable[[BatchRow], object] | None = None
        self.on_progress: Callable[[BatchProgress], object] | None = None
        self.stops_at_error = False
        self.file: RowFile | None = None
        self.on_idle: Callable[[], None] = lambda: None
        """Called when one of those that run tasks finds no further one."""
        self._way, self._score, self._pace, self._clock = way, score, pace, clock
        self._source = self._expanded(tasks, repeat)
        self._total = len(tasks) * repeat if isinstance(tasks, Sized) else None
        self._tally = Tally()
        self._done: dict[tuple[str, int], int] = {}  # a digest of the task by the key of a row that stays
        self._failed_before = set[tuple[str, int]]()
        self._running = self._made = self._kept = self._failed = self._unfinished = 0
        self._ended_by = ""
        self._began = clock.monotonic()

    @property
    def running(self) -> int:
        """How many tasks are under way."""
        return self._running

    async def run(self, concurrency: int) -> BatchSummary:
        try:
            await self._take_kept()
            self._began = self._clock.monotonic()
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(concurrency):
                        group.create_task(self._work())
            except BaseExceptionGroup as errors:
                raise _first(errors) from None
            self._count_rest()
        finally:
            if self.file is not None:
                self.file.close()
        others = len(self._done) - self._kept
        return self._tally.summary(others=others, unfinished=self._unfinished, ended_by=self._ended_by)

    async def _take_kept(self) -> None:
        """Take the rows that the results hold already."""
        if self.file is None:
            return
        for row in self.file.begin():
            if not self._done:
                await self._way.check_kept(row)
            self._done[row.key] = hash(row.task)
            if row.has_failed:
                self._failed_before.add(row.key)
            self._tally.add(row)

    def _expanded(self, tasks: Iterable[Any], repeat: int) -> Iterator[tuple[BatchTask, int]]:
        seen: set[str] = set()
        for number, value in enumerate(tasks, 1):
            task = as_task(value, number)
            if task.id in seen:
                raise ConfigurationError(
                    f"Two tasks have the id {task.id!r} (the second is task {number}). Give each an id of its own."
                )
            seen.add(task.id)
            for n in range(1, repeat + 1):
                yield task, n

    def _count_rest(self) -> None:
        """Count the tasks that were not begun, after a batch that ended early."""
        for task, repeat in self._source:
            has_row = (task.id, repeat) in self._done
            self._kept += has_row
            self._unfinished += not has_row

    def _next(self) -> tuple[BatchTask, int] | None:
        if self.stop.is_set():
            self._ended_by = self._ended_by or "stop"
        if self.total_budget is not None and self._tally.cost >= self.total_budget:
            self._ended_by = self._ended_by or "total_budget"
        while not self._ended_by:
            found = next(self._source, None)
            if found is None or (known := self._done.get((found[0].id, found[1]))) is None:
                return found
            if known != hash(found[0].task):
                raise _changed(found[0])
            self._kept += 1
            self._failed += (found[0].id, found[1]) in self._failed_before
        return None

    async def _work(self) -> None:
        while (found := self._next()) is not None:
            self._running += 1
            self._tell()
            try:
                row = await self._row(*found)
            finally:
                self._running -= 1
            self._take(row)
            self._tell()
        self.on_idle()

    async def _row(self, task: BatchTask, repeat: int) -> BatchRow:
        """Return the scored row of a task; one that says so if an exception was raised on the way."""
        row: BatchRow | None = None
        try:
            row = await self._way.row(task, repeat)
            return row if self._score is None else await scored(task, row, self._score)
        except _FATAL:
            raise
        except Exception as error:
            if self.stops_at_error:
                raise
            message = shown_error(error).encode("utf-8", "replace").decode()
            failed = row or BatchRow(id=task.id, repeat=repeat, task=task.task, status="", metadata=task.metadata)
            return msgspec.structs.replace(failed, status="error", message=message)

    def _take(self, row: BatchRow) -> None:
        """Keep a row, unless the total budget has cut its run off, which then has none yet."""
        if row.budget == TOTAL and self.total_budget is not None:
            self._ended_by = self._ended_by or "total_budget"
            self._unfinished += 1
            return
        self._made += 1
        self._failed += row.has_failed
        self._tally.add(row)
        if self.file is not None:
            self.file.add(row)
        if self.on_row is not None:
            self.on_row(row)
        if self.stops_at_error and row.status in ("failed", "error"):
            self._ended_by = self._ended_by or "error"

    def _tell(self) -> None:
        if self.on_progress is None:
            return
        done = self._kept + self._made
        seconds = self._clock.monotonic() - self._began
        rate = self._made / seconds if seconds > 0 else 0.0
        self.on_progress(
            BatchProgress(
                total=self._total,
                done=done,
                failed=self._failed,
                running=self._running,
                cost=self._tally.cost,
                per_minute=60 * rate,
                seconds_left=None if self._total is None or not rate else max(self._total - done, 0) / rate,
                paused_seconds=self._pace.paused_seconds,
            )
        )


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what a person reads of several errors: the first that ends a batch by itself."""
    return next((one for one in errors.exceptions if isinstance(one, _FATAL)), errors.exceptions[0])


def _changed(task: BatchTask) -> ConfigurationError:
    return ConfigurationError(
        f"Task {task.id!r} was run with another text than it has now. Give the changed task another id, or run the whole batch again: "
        "another name=, or another journal and other results."
    )


# --- Ways to a row: in this process, and by workers.


class _Sessions:
    """The sessions of a batch in its journal."""

    def __init__(self, journal: Journal, name: str, clock: Clock) -> None:
        self.journal, self.name, self.clock = journal, name, clock

    def id_of(self, task: BatchTask, repeat: int) -> str:
        return keyed_session_id(self.tenant_of(task), f"{self.name}/{repeat}/{task.id}")

    def tenant_of(self, task: BatchTask) -> str:
        tenant = task.metadata.get("tenant", "")
        return tenant if isinstance(tenant, str) else ""

    def about(self, task: BatchTask, repeat: int) -> dict[str, Any]:
        return {**task.metadata, "batch": self.name, "task": task.id, "repeat": repeat}


class _Here(_Sessions):
    """Runs tasks in this process."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        journal: Journal,
        name: str,
        budget: Budget | None,
        deps: Any,  # Any: as for `Agent.run`
        clock: Clock,
    ) -> None:
        super().__init__(journal, name, clock)
        self.tries_again = False
        self._agent, self._budget, self._deps = agent, budget, deps
        self._fingerprint = agent.fingerprint

    async def row(self, task: BatchTask, repeat: int) -> BatchRow:
        session_id = self.id_of(task, repeat)
        VendorBatches.ask_for(session_id)
        for _ in range(_HELD_SECONDS):
            try:
                return await self._row(task, repeat, session_id)
            except SessionHeld:
                await asyncio.sleep(1)
        return await self._row(task, repeat, session_id)

    async def _row(self, task: BatchTask, repeat: int, session_id: str) -> BatchRow:
        async with open_session(self.journal, id=session_id, clock=self.clock) as session:
            run = session.state.run
            if run is None:
                begun = self._agent.stream(
                    task.task, session=session, deps=self._deps, budget=self._budget, metadata=self.about(task, repeat)
                )
                return row_of(task, repeat, session.state, ending_of(await begun.finish()))
            self._check_same(task, run)
            if await self._continues(session, run):
                resumed = self._agent.stream_resume(session, deps=self._deps, budget=self._budget)
                return row_of(task, repeat, session.state, ending_of(await resumed.finish()))
            ending = ending_in(await self.journal.read(session_id))
            assert ending is not None
            return row_of(task, repeat, session.state, ending)

    async def _continues(self, session: Session, run: RunState) -> bool:
        """Whether the run continues: it broke off, was cut off from outside, is tried again, or what it waited for has come."""
        if run.status == "completed":
            return False
        is_cut = run.reason == StopReason.CANCELLED or (
            run.reason == StopReason.BUDGET_EXCEEDED and await self._is_by_total(session)
        )
        return (
            is_cut
            or (self.tries_again and run.status != "paused")
            or await can_continue(self.journal, session.state, now=self.clock.now())
        )

    async def _is_by_total(self, session: Session) -> bool:
        ending = ending_in(await self.journal.read(session.id))
        return ending is not None and ending.budget == TOTAL

    def _check_same(self, task: BatchTask, run: RunState) -> None:
        if run.task != task.task:
            raise _changed(task)
        self._check_agent(run)

    def _check_agent(self, run: RunState) -> None:
        if parts := changed_parts(run.fingerprint, self._fingerprint):
            raise AgentChanged(
                f"The agent has changed since the batch {self.name!r} began ({', '.join(parts)}). To run it again, use another name=, or "
                "another journal and other results."
            )

    async def check_kept(self, row: BatchRow) -> None:
        if run := fold(row.session_id, await self.journal.read(row.session_id)).run:
            self._check_agent(run)


class _Fleet(_Sessions):
    """Submits tasks to workers, and waits for their ends."""

    def __init__(self, agent: str, journal: Journal, name: str, budget: Budget | None, clock: Clock) -> None:
        super().__init__(journal, name, clock)
        self._agent, self._budget = agent, budget

    async def row(self, task: BatchTask, repeat: int) -> BatchRow:
        session_id = await submit(
            self.journal,
            self._agent,
            task.task,
            tenant=self.tenant_of(task),
            key=f"{self.name}/{repeat}/{task.id}",
            budget=self._budget,
            metadata=self.about(task, repeat),
            clock=self.clock,
        )
        await self._ended(session_id)
        events = await self.journal.read(session_id)
        state, ending = fold(session_id, events), ending_in(events)
        if state.run is None or ending is None:
            raise TaskCancelled(f"The task of session {session_id!r} was cancelled before its run started.")
        if state.run.task != task.task:
            raise _changed(task)
        return row_of(task, repeat, state, ending)

    async def _ended(self, session_id: str) -> None:
        """Wait until the session's run has ended, or waits for a person."""
        followed = self.journal.follow(session_id)
        try:
            async for event in followed:
                if isinstance(event, RunFinished | RunPaused | TaskWithdrawn) and await self._is_over(session_id):
                    return
        finally:
            if isinstance(followed, AsyncGenerator):
                await followed.aclose()

    async def _is_over(self, session_id: str) -> bool:
        """Whether the session's run has ended or waits, as it is now: what is followed begins in the past."""
        run = fold(session_id, await self.journal.read(session_id)).run
        return run is None or run.status != "running"

    async def check_kept(self, row: BatchRow) -> None:
        """Workers check by themselves which agent a session began with."""
