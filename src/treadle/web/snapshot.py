"""Snapshot: what a journal holds now, read once for all who look. Changes nothing.

One task reads what has changed, and every page is answered from memory: a hundred people who watch cost the journal as much as one.
"""

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from treadle import Approval, Session, StopReason, TreadleError, open_session
from treadle.errors import JournalError
from treadle.events import (
    AnyEvent,
    ChildEnded,
    DecisionRejected,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunFinished,
    RunStarted,
    SessionChanged,
    TaskSubmitted,
)
from treadle.ports import HasInboxes, HasOverview, Journal, SessionFilter, SessionInfo
from treadle.redaction import Redactor
from treadle.state import Doubt, LeftAnswer, LeftCancellation, LeftInput
from treadle.workers import WorkerInfo, list_workers, stranded_sessions

__all__ = ["Card", "Question", "Snapshot"]

Made = TypeVar("Made")

_POLL_SECONDS = 0.5
_WHOLE_SECONDS = 30.0
"""How often the whole list is read: what was removed, and what a machine with a slow clock has written, is in no other."""
_SLOW_SECONDS = 5.0
"""How often it is asked who runs, and what is stranded."""
_IDLE_SECONDS = 120.0
"""The journal is left alone so long after the last look at a page."""
_BATCH = 100
_MOST_STRANDED = 300
_OVERLAP_SECONDS = 5.0
_REDACTOR = Redactor()
_OVER_BUDGET = frozenset({StopReason.BUDGET_EXCEEDED, StopReason.STEP_LIMIT_REACHED})


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for somebody's answer, and not for consent."""

    session_id: str
    """The session that asks."""
    call_id: str
    """Id of the call."""
    tool: str
    """Name of the tool."""
    text: str
    """What is asked."""
    form: dict[str, object] | None = None
    """JSON Schema of the answer; None for free text."""
    since: float = 0.0
    """Since when it waits, in seconds since 1970."""


class Used(msgspec.Struct, kw_only=True, gc=False):
    """What one session has used of one model on one day, without what is below it."""

    day: str
    """Of the responses, in UTC."""
    model: str
    """The model that was asked."""
    requests: int = 0
    """Requests that were charged."""
    input_tokens: int = 0
    """Prompt tokens."""
    cached_tokens: int = 0
    """Prompt tokens that were read from the provider's cache."""
    output_tokens: int = 0
    """Completion tokens."""
    cost: Decimal = Decimal(0)
    """Of the requests that had a price."""
    unpriced: int = 0
    """Requests without a price."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One session in a few words and figures."""

    id: str
    """Id of the session."""
    head: int
    """Number of its last event when this was read."""
    run_status: str
    """What happened to its last run: see `SessionInfo.run_status`."""
    own_status: str
    """What people have set: see `SessionInfo.own_status`."""
    why: str
    """Why it has this status, in one phrase."""
    since: float
    """Since when, in seconds since 1970."""
    task: str
    """The beginning of its first task."""
    tenant: str
    """Whose it is; empty for nobody's."""
    agent: str
    """The agent that carries it out; empty for one without a name."""
    model: str
    """The model that was asked last."""
    steps: int
    """Responses of models, over all runs."""
    calls: int
    """Calls that models proposed."""
    tokens: int
    """Of all requests and responses, of those below it too."""
    cost: str | None
    """Exact decimal, with what is below it; None where a request had no price."""
    updated_at: float
    """When it last changed, in seconds since 1970."""
    root_id: str
    """The session at the top: its own id, unless it carries out a call of another."""
    metadata: dict[str, object] = {}
    """Its metadata."""
    questions: tuple[Question, ...] = ()
    """What it waits for a person to answer."""
    doubts: tuple[Doubt, ...] = ()
    """Its calls of unknown outcome; those without a result count only while nobody runs it."""
    used: tuple[Used, ...] = ()
    """What it has used by day and model."""
    worker: str = ""
    """The worker that runs it, or did last."""
    set_aside: bool = False
    """Whether a worker has given it up, so that it kills no more of them."""
    was_submitted: bool = False
    """Whether its task was submitted to workers, and can be submitted again."""
    over_budget: str = ""
    """Which budget has ended its last run, in one sentence; empty where none did."""
    fault: str = ""
    """Why it cannot be read."""


class Snapshot:
    """What a journal holds."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.version = 0
        """Grows with each change."""
        self.infos: dict[str, SessionInfo] = {}
        self.cards: dict[str, Card] = {}
        self.approvals: tuple[Approval, ...] = ()
        self.open_approvals: tuple[Approval, ...] = ()
        """Those of them that have not expired."""
        self.left: dict[str, str] = {}
        """What sessions that waited for a person will be continued with, where no run has taken it in yet."""
        self.held: frozenset[str] = frozenset()
        """Those of the running sessions that a living process runs."""
        self.stranded: dict[str, str] = {}
        """Why no worker continues them, without the journal's address: people of one tenant read it too."""
        self.workers: tuple[WorkerInfo, ...] = ()
        self.fault = ""
        """Why the journal cannot be read now; empty while it can."""
        self._changed = asyncio.Condition()
        self._poke = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reads_begun = self._reads_ended = 0
        self._asked_at = 0.0
        self._whole_at = self._slow_at = float("-inf")
        self._latest = 0.0
        self._made: dict[str, tuple[int, Any]] = {}
        self._waiting_at = float("-inf")
        self._waiting_took = 0.0

    # --- for those who look

    async def ready(self) -> "Snapshot":
        """Return it once the journal has been read."""
        self._asked_at = time.monotonic()
        if self._task is None or self._task.done():
            self._whole_at = float("-inf")
            self._task = asyncio.create_task(self._keep(), name="treadle web snapshot")
            async with self._changed:
                await self._changed.wait()
        return self

    async def refresh(self) -> None:
        """Return once a read of the journal that began after this call has ended: after an act, its page shows it."""
        await self.ready()
        wanted = self._reads_begun + 1
        async with self._changed:
            while self._reads_ended < wanted:
                self._poke.set()
                await self._changed.wait()

    async def versions(self) -> AsyncIterator[int]:
        """Yield the version whenever it has grown; at least every 15 seconds, so that a broken connection is noticed."""
        seen = -1
        while True:
            await self.ready()
            with suppress(TimeoutError):
                async with asyncio.timeout(15), self._changed:
                    while self.version == seen:
                        await self._changed.wait()
            self._asked_at = time.monotonic()
            seen = self.version
            yield seen

    async def close(self) -> None:
        """End the task that reads."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def unread(self) -> int:
        """How many sessions have not been looked into yet: it begins with the ones that changed last."""
        return sum(self._is_old(info) for info in self.infos.values())

    @property
    def questions(self) -> list[Question]:
        """What waits for an answer, the oldest first."""
        found = [one for card in self.cards.values() if card.id not in self.left for one in card.questions]
        return sorted(found, key=lambda one: one.since)

    @property
    def doubts(self) -> list[Doubt]:
        """The calls of unknown outcome, the oldest first."""
        cards = [card for card in self.cards.values() if card.doubts]
        found = [one for card in cards for one in card.doubts if one.is_told or card.id not in self.held]
        return sorted(found, key=lambda one: one.since)

    def top_of(self, session_id: str) -> str:
        """Return the session at the top of one."""
        card = self.cards.get(session_id)
        return session_id if card is None else card.root_id

    def tenant_of(self, session_id: str) -> str:
        """Return whose session it is; empty for nobody's. What carries out a call belongs to whoever made the call."""
        top = self.infos.get(self.top_of(session_id)) or self.infos.get(session_id)
        return "" if top is None else top.tenant

    def made(self, name: str, make: "Callable[[Snapshot], Made]") -> "Made":
        """Return something that is made of the snapshot, once for all who look at this version.

        Args:
            name: Whose it is.
        """
        version, found = self._made.get(name, (-1, None))
        if version != self.version:
            found = make(self)
            self._made[name] = (self.version, found)
        return found  # type: ignore[no-any-return]  # what `make` has made

    # --- reading

    async def _keep(self) -> None:
        is_asked = True
        while time.monotonic() - self._asked_at < _IDLE_SECONDS:
            self._poke.clear()
            self._reads_begun += 1
            begun = time.monotonic()
            try:
                has_changed = await self._read(is_asked=is_asked)
                has_changed, self.fault = has_changed or bool(self.fault), ""
            except (TreadleError, OSError) as error:
                has_changed, self.fault = self.fault != str(error), str(error)
            async with self._changed:
                self.version += has_changed
                self._reads_ended = self._reads_begun
                self._changed.notify_all()
            took = time.monotonic() - begun
            with suppress(TimeoutError):  # a journal that answers slowly is asked less often
                await asyncio.wait_for(self._poke.wait(), 0.0 if self.unread else max(_POLL_SECONDS, 4 * took))
            is_asked = self._poke.is_set()
            await asyncio.sleep(0)

    async def _read(self, *, is_asked: bool) -> bool:
        now = time.monotonic()
        has_changed = await self._list(is_whole=now - self._whole_at >= _WHOLE_SECONDS)
        old = sorted((one for one in self.infos.values() if self._is_old(one)), key=lambda one: -one.updated_at)
        for info in old[:_BATCH]:
            card = await _card(self.journal, info)
            self.cards[info.id] = msgspec.structs.replace(card, fault=self._without_address(card.fault))
        has_changed = has_changed or bool(old)
        if is_asked or now - self._waiting_at >= 10 * self._waiting_took:
            has_changed = await self._look_at_waiting() or has_changed
            self._waiting_at = time.monotonic()
            self._waiting_took = self._waiting_at - now
        has_changed = self._look_at_expiry() or has_changed
        if is_asked or now - self._slow_at >= _SLOW_SECONDS or (has_changed and not self.unread):
            self._slow_at = now
            has_changed = await self._look_at_fleet() or has_changed
        return has_changed

    async def _list(self, *, is_whole: bool) -> bool:
        since = None if is_whole else self._latest - _OVERLAP_SECONDS
        found = {info.id: info for info in await self.journal.sessions(SessionFilter(since=since))}
        before = self.infos
        if is_whole:
            self._whole_at = time.monotonic()
            self.infos = found
            self.cards = {key: card for key, card in self.cards.items() if key in found}
        else:
            self.infos = {**before, **found}
        self._latest = max((info.updated_at for info in found.values()), default=self._latest)
        return self.infos != before

    def _without_address(self, text: str) -> str:
        place = self.journal.location
        return text.replace(f" --journal {shlex.quote(place)}", "").replace(place, "")

    def _is_old(self, info: SessionInfo) -> bool:
        card = self.cards.get(info.id)
        return card is None or card.head != info.head or card.run_status != info.run_status

    async def _look_at_waiting(self) -> bool:
        before = (self.approvals, self.left)
        self.approvals = tuple(sorted(await self.journal.approvals(), key=lambda one: one.requested_at))
        asked = {one.session_id for one in self.approvals}
        paused = {card.id for card in self.cards.values() if card.run_status == "paused"}
        if paused and isinstance(self.journal, HasInboxes):
            paused &= set(await self.journal.with_messages())
        self.left = {one: why for one in paused if (why := await self._left_for(one, has_request=one in asked))}
        return (self.approvals, self.left) != before

    def _look_at_expiry(self) -> bool:
        before, at = self.open_approvals, time.time()
        self.open_approvals = tuple(one for one in self.approvals if one.expires_at >= at)
        return len(self.open_approvals) != len(before)

    async def _left_for(self, session_id: str, *, has_request: bool) -> str:
        """Return what a paused session will be continued with; empty while somebody must still answer."""
        left = await self.journal.inbox(session_id)
        if wishes := [message for message in left if isinstance(message, LeftCancellation)]:
            by = f" by {wishes[0].by}" if wishes[0].by else ""
            return f"was cancelled{by}, and ends when a worker or a resume continues it"
        given = {message.call_id for message in left if isinstance(message, LeftInput)}
        is_open = has_request or not given.issuperset(one.call_id for one in self.cards[session_id].questions)
        has_answer = given or any(isinstance(message, LeftAnswer) for message in left)
        return "" if is_open or not has_answer else "was answered, and waits for a worker or a resume"

    async def _look_at_fleet(self) -> bool:
        before = (self.held, self.stranded, self.workers)
        running = [info.id for info in self.infos.values() if info.run_status == "running"]
        if isinstance(self.journal, HasOverview):
            self.held = frozenset(await self.journal.held(running))
        self.workers = await list_workers(self.journal, all=True)
        waiting = [info.id for info in self.infos.values() if info.run_status in ("queued", "running")]
        looked = [*self.left, *(one for one in waiting if one not in self.held)][:_MOST_STRANDED]
        found = await stranded_sessions(self.journal, session_ids=looked)
        self.stranded = {one.session_id: self._without_address(one.message) for one in found}
        return (self.held, self.stranded, self.workers) != before


# --- One session in a few words.


async def _card(journal: Journal, info: SessionInfo) -> Card:
    try:
        async with open_session(journal, id=info.id, must_exist=True, on_store_failure="stop") as session:
            return _card_of(session, await session.events(), info)
    except (JournalError, TreadleError) as error:
        return Card(
            id=info.id,
            head=info.head,
            run_status=info.run_status,
            own_status=info.own_status,
            why="cannot be read",
            since=info.updated_at,
            task=info.task,
            tenant=info.tenant,
            agent="",
            model="",
            steps=0,
            calls=0,
            tokens=0,
            cost=None,
            updated_at=info.updated_at,
            root_id=info.id,
            fault=str(error),
        )


def _card_of(session: Session, events: Iterable[AnyEvent], info: SessionInfo) -> Card:
    state, figures = session.state, _Figures()
    for event in events:
        figures.count(event)
    run = state.run
    agent = state.submitted.agent if state.submitted is not None else "" if run is None else run.agent
    why, since = _why(session, info, figures)
    return Card(
        id=info.id,
        head=info.head,
        run_status=info.run_status,
        own_status=info.own_status,
        why=_REDACTOR.text(why),
        since=since,
        task=info.task,
        tenant=info.tenant,
        agent=agent,
        model=figures.model,
        steps=figures.steps,
        calls=figures.calls,
        tokens=figures.tokens,
        cost=None if figures.cost is None else f"{figures.cost:f}",
        updated_at=info.updated_at,
        root_id=state.root_id,
        metadata=dict(state.metadata),
        questions=_questions(session),
        doubts=state.open_doubts(),
        used=tuple(figures.used.values()),
        worker="" if run is None else run.worker,
        set_aside=info.status == "suspended" and figures.changed is not None and figures.changed.by == "worker",
        was_submitted=figures.was_submitted,
        over_budget=figures.over_budget if info.run_status == "stopped" else "",
    )


class _Figures:
    def __init__(self) -> None:
        self.model = ""
        self.steps = self.calls = self.tokens = 0
        self.cost: Decimal | None = Decimal(0)
        self.changed: SessionChanged | None = None
        """The last change of its status."""
        self.used: dict[tuple[str, str], Used] = {}
        self.ending = ""
        """What ended its last run, in a sentence."""
        self.over_budget = ""
        self.was_submitted = False

    def count(self, event: AnyEvent) -> None:
        match event:
            case RunStarted() | ModelStarted():
                self.model = event.model or self.model
            case TaskSubmitted():
                self.was_submitted = True
            case RunFinished():
                self.ending = event.message or event.reason.replace("_", " ")
                self.over_budget = self.ending if event.reason in _OVER_BUDGET else ""
            case ModelFinished():
                self.steps += event.act is None
                self.calls += len(event.message.calls)
                self._use(event)
            case ModelFailed() | DecisionRejected():
                self._use(event)
            case ChildEnded():
                usage, cost = event.spent.usage, event.spent.cost
                self._spend(usage.input_tokens + usage.output_tokens, None if cost is None else str(cost))
            case SessionChanged() if event.status is not None:
                self.changed = event

    def _use(self, event: ModelFinished | ModelFailed | DecisionRejected) -> None:
        usage, cost = event.usage, event.cost
        if usage is None:
            return
        self._spend(usage.input_tokens + usage.output_tokens, cost)
        day = datetime.fromtimestamp(event.at, UTC).date().isoformat()
        line = self.used.setdefault((day, self.model), Used(day=day, model=self.model))
        line.requests += 1
        line.input_tokens += usage.input_tokens
        line.cached_tokens += usage.cached_input_tokens
        line.output_tokens += usage.output_tokens
        line.cost += Decimal(cost or 0)
        line.unpriced += cost is None

    def _spend(self, tokens: int, cost: str | None) -> None:
        self.tokens += tokens
        self.cost = None if cost is None or self.cost is None else self.cost + Decimal(cost)


def _questions(session: Session) -> tuple[Question, ...]:
    return tuple(
        Question(
            session_id=session.id,
            call_id=one.call.id,
            tool=one.call.name,
            text=one.suspended.waits_for,
            form=one.suspended.form,
            since=one.suspended.at,
        )
        for one in session.state.questions
        if one.suspended is not None and one.call.id not in session.state.carried_out
    )


_WHY = {"active": "has not run yet", "completed": "completed", "deleted": "deleted"}


def _why(  # noqa: PLR0911 - a list of cases, one each
    session: Session, info: SessionInfo, figures: _Figures
) -> tuple[str, float]:
    """Return why a session has its status, and since when."""
    state, run, changed = session.state, session.state.run, figures.changed
    if state.moved_to:
        return f"moved to {state.moved_to}", info.updated_at
    if info.status == "suspended" and changed is not None:
        said = f": {changed.reason}" if changed.reason else ""
        return (f"set aside{said}" if changed.by == "worker" else f"suspended by {changed.by}{said}"), changed.at
    if state.submitted is not None:
        due_at = state.submitted.due_at
        later = "" if due_at is None else f", not before {datetime.fromtimestamp(due_at, UTC):%Y-%m-%d %H:%M} UTC"
        return f"waits for a worker that has the agent {state.submitted.agent}{later}", state.submitted.at
    if info.run_status == "paused":
        return _waits_for(session, info)
    if run is None or info.run_status in _WHY:
        return _WHY.get(info.run_status, info.run_status), info.updated_at
    if info.run_status == "running":
        worker = run.worker.rpartition(" ")[0]
        return f"runs at {worker}" if worker else "runs", run.segment_at
    return figures.ending or info.run_status, info.updated_at


def _waits_for(session: Session, info: SessionInfo) -> tuple[str, float]:
    state = session.state
    asks = sorted(state.pending_approvals(), key=lambda one: one.requested_at)
    if asks:
        more = f" and {len(asks) - 1} more" if len(asks) > 1 else ""
        return f"waits for approval of {asks[0].tool}{more}", asks[0].requested_at
    waits = [one for one in state.suspended if one.suspended is not None]
    questions = [one.suspended for one in state.questions if one.suspended is not None]
    if questions:
        return f"waits for an answer: {questions[0].waits_for}", questions[0].at
    if waits and (what := waits[0].suspended) is not None:
        return f"waits for {what.waits_for or what.reason}", what.at
    return (state.run.reason or "paused").replace("_", " ") if state.run else "paused", info.updated_at
