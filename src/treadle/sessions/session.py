"""Session: the lasting conversation, rebuilt from its journal. Answers questions about it and takes messages for it.

It runs nothing: an Agent does, and only one run at a time.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache, partial
from types import TracebackType
from typing import Any, Literal, Self, get_args

import msgspec

from treadle.canonical import find_unencodable
from treadle.concurrency.threads import Threads
from treadle.concurrency.turns import in_turns
from treadle.errors import (
    ApprovalExpired,
    ConfigurationError,
    JournalError,
    NoRunYet,
    RunCompleted,
    SessionHeld,
    SessionNotActive,
    UnknownApproval,
    shown,
)
from treadle.events import (
    AnyEvent,
    ApprovalAnswered,
    ChildStarted,
    JournalDegraded,
    MessageAdded,
    ModelFinished,
    SessionStatus,
    ToolFinished,
    ToolResolved,
)
from treadle.messages import Message
from treadle.ports import Clock, Degradation, HasClock, InboxMessage, Journal, Lease, Randomness
from treadle.redaction import Redactor
from treadle.sessions import maintenance
from treadle.sessions.checkpoints import Rewind, fold, take_in
from treadle.sessions.explain import explain
from treadle.sessions.explanation import Explanation
from treadle.sessions.ledger import Ledger
from treadle.sessions.settling import end_children
from treadle.sessions.transfer import pack, pack_redacted
from treadle.state import Approval, Doubt, SessionState, answer_id, instant, is_cancelled, waiting_approvals
from treadle.tools import Done, JsonObject, NotDone, Unknown, answer_of_check

_threads = Threads()
_MANY_EVENTS = 500
_MANY_CHARS = 200_000
"""Events and characters from which on a session is explained, or redacted, in a thread."""

__all__ = ["Approvals", "Doubts", "Session", "SessionEvents", "fold"]


class Approvals(tuple[Approval, ...]):  # noqa: SLOT001 - it carries the session that it can ask again
    """The requests for consent that wait for an answer. Await it to look into the journal again first."""

    _session: "Session"

    def __await__(self) -> Generator[Any, None, "Approvals"]:
        return self._session._fresh_approvals().__await__()  # noqa: SLF001 - two faces of one object


class Doubts(tuple[Doubt, ...]):  # noqa: SLOT001 - as above
    """The calls in doubt. Await it to look into the journal again first, and to leave out what another process carries out."""

    _session: "Session"

    def __await__(self) -> Generator[Any, None, "Doubts"]:
        return self._session._fresh_doubts().__await__()  # noqa: SLF001 - two faces of one object


class SessionEvents:
    """A session's events: `await` it for a list, or go through it with `async for`."""

    def __init__(self, journal: Journal, session_id: str, after: int) -> None:
        self._journal = journal
        self._session_id = session_id
        self._after = after

    def __await__(self) -> Generator[Any, None, Sequence[AnyEvent]]:
        return self._journal.read(self._session_id, after=self._after).__await__()

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        for event in await self._journal.read(self._session_id, after=self._after):
            yield event


class Session:
    """One conversation in one journal.

    Example:
        async with open_session("agent.db", id="invoice-7") as session:
            result = await agent.run("Pay the invoice", session=session)
    """

    def __init__(
        self,
        *,
        state: SessionState,
        journal: Journal,
        clock: Clock,
        randomness: Randomness,
        parent: str | None = None,
        degradation: Degradation | None = None,
    ) -> None:
        self.journal = journal
        self.is_degraded = False
        """Whether the store has failed since the last run began, and the run went on in memory."""
        self._degradation = degradation
        if degradation is not None:
            degradation.listen(state.id, self._on_degraded)
        self.clock = clock
        self.randomness = randomness
        self.ledger = Ledger(state=state, journal=journal, clock=clock, randomness=randomness, parent=parent)
        self.is_running = False
        self._lease: Lease | None = None
        self._left: tuple[
            InboxMessage, ...
        ] = ()  # what lay in the inbox when this object last looked, or left something
        # Calls that a run gave up and that go on in this process: what they hold stays held in the next run.
        self.abandoned: dict[Any, Any] = {}  # Any: futures and calls, known to invocation.py alone
        self.children: dict[str, Session] = {}
        """Sessions that carry out calls of this one, as far as this process has opened them, by id."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(
            *([] if error is None else [JournalError])
        ):  # what was raised says more than what follows from it
            await self.journal.flush()

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def state(self) -> SessionState:
        """The sum of its events, as far as this process has seen them."""
        return self.ledger.state

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.state.transcript

    def approvals(self) -> Approvals:
        """Return the requests for consent that wait for an answer; await it to look into the journal again first."""
        found = Approvals(waiting_approvals(self.state, self._left))
        found._session = self  # noqa: SLF001 - two faces of one object
        return found

    async def _fresh_approvals(self) -> Approvals:
        left = await self._inbox()  # first: what a run takes in meanwhile is then in the events too
        await self.refresh()
        self._left = left
        return self.approvals()

    def events(self, after: int = 0) -> SessionEvents:
        """Return its events with a number above `after`: await it, or iterate with `async for`."""
        if not isinstance(after, int):
            raise ConfigurationError(f"after is the number of an event, 0 for all events; got {shown(after)}.")
        return SessionEvents(self.journal, self.id, after)

    async def answer(
        self,
        approval_id: str,
        answer: Literal["allow", "deny"],
        *,
        reason: str = "",
        arguments: JsonObject | None = None,
        by: str = "person",
    ) -> None:
        """Answer a request for consent, from this or any other process. `resume` then goes on.

        The answer counts from now on, however late a run takes it in.

        Args:
            arguments: Edited arguments for the call, validated like the model's own. Where they do not fit, the request waits again.
            by: Who answers, for the record.

        Raises:
            ConfigurationError: The answer is neither, or the arguments are no JSON object.
            ApprovalExpired: The request has expired; `resume` asks anew.
            UnknownApproval: Nothing by that id waits, or it has been answered: the first answer wins, and the message names it.
        """
        maintenance.check_text("approval_id", approval_id)
        _check_answer(answer, reason=reason, arguments=arguments, by=by)
        await self.refresh()
        maintenance.check_here(self.state)
        approval = await self._find_waiting(approval_id)
        at = await self._store_time()
        if at > approval.expires_at:
            raise ApprovalExpired(
                f"Approval {shown(approval_id)} expired at {instant(approval.expires_at)}. Resume the session to be asked anew."
            )
        body: JsonObject = {
            "approval_id": approval.id, "answer": answer, "reason": reason, "approved_by": by, "at": at,
        }  # fmt: skip
        if arguments is not None:
            body["arguments"] = arguments
        message = InboxMessage(id=answer_id(approval), kind="answer", body=body)
        asks = approval.session_id  # this session, or one that carries out a call of it
        if not await self.journal.put(asks, message):
            raise UnknownApproval(await self._why_not_waiting(approval.id))
        self._left = (*self._left, message)

    async def _find_waiting(self, approval_id: str) -> Approval:
        found = next((one for one in await self.approvals() if approval_id in (one.id, one.replaces)), None)
        if found is None:
            raise UnknownApproval(await self._why_not_waiting(approval_id))
        return found

    async def _why_not_waiting(self, approval_id: str) -> str:
        """Say what became of a request: who answered it first, or that there is none by that id."""
        inbox = await self._inbox()
        for message in inbox:
            if message.kind == "answer" and message.body.get("approval_id") == approval_id:
                body = message.body
                return _answered(approval_id, body.get("answer"), body.get("approved_by"), body.get("at"))
        answered = [
            event for event in await _events_of_all(self.journal, self.id) if isinstance(event, ApprovalAnswered)
        ]
        for event in reversed(answered):
            if event.approval_id == approval_id:
                at = event.at if event.given_at is None else event.given_at
                return _answered(approval_id, event.answer, event.approved_by, at)
        if is_cancelled(self.state, inbox):
            return (
                f"Approval {shown(approval_id)} no longer waits: the run was cancelled. Resume the session to end it."
            )
        known = ", ".join(sorted(one.id for one in self.approvals())) or "none"
        return f"No approval {shown(approval_id)} waits in session {self.id!r}. Waiting: {known}."

    async def _store_time(self) -> float:
        """Return the time by the store's clock where it has one, else by ours: machines that share a store agree on it."""
        at = await self._asked_time()
        return self.clock.now() if at is None else at

    async def _asked_time(self) -> float | None:
        """Return the time by the store's clock; None where it has none."""
        if not _has_clock(type(self.journal)):
            return None
        assert isinstance(self.journal, HasClock)
        return await self.journal.now()

    async def _inbox(self) -> tuple[InboxMessage, ...]:
        """Return what lies in the inbox, and the answers that lie in those of sessions that carry out calls of this one."""
        found = list(await self.journal.inbox(self.id))
        for asks in {approval.session_id for approval in self.state.pending_approvals()} - {self.id}:
            found += [message for message in await self.journal.inbox(asks) if message.kind == "answer"]
        return tuple(found)

    def doubts(self) -> Doubts:
        """Return the calls that may have acted, whose outcome nobody knows, and that no person has resolved.

        Calls without a result are among them where no run of this object is under way. Await it to look into the journal again
        first, and to leave out those that another process carries out.
        """
        found = self.state.open_doubts()
        return self._doubts(one for one in found if one.is_told or not self.is_running)

    async def _fresh_doubts(self) -> Doubts:
        await self.refresh()
        return self._doubts(await maintenance.doubts_of(self.journal, self.state))

    def _doubts(self, found: Iterable[Doubt]) -> Doubts:
        doubts = Doubts(found)
        doubts._session = self  # noqa: SLF001 - two faces of one object
        return doubts

    async def resolve(
        self, call_id: str, outcome: "Done | type[NotDone | Unknown]", *, reason: str = "", by: str = "person"
    ) -> None:
        """Say how a call in doubt ended, with the receipt in hand. The model is told with its next request.

        Before a `resume`, `Done(value)` becomes the call's result, and after `NotDone` the call may run, decided anew. Where the
        model has been told already that the outcome is unknown, it gets a message.

        Args:
            outcome: `Done(value)`, `NotDone`, or `Unknown` where nobody will find out: the doubt is listed no longer then.
            by: Who says so, for the record.

        Raises:
            ConfigurationError: The outcome is none of these, or its value is no JSON.
            UnknownDoubt: No call by that id is in doubt, or it has been resolved.
            SessionHeld: A run is under way.
        """
        maintenance.check_text("call_id", call_id)
        said = answer_of_check(outcome)
        if said is None or (isinstance(said, Done) and not isinstance(outcome, Done)):
            raise ConfigurationError(f"A doubt is resolved with Done(value), NotDone or Unknown; got {shown(outcome)}.")
        if isinstance(said, Done) and (fault := find_unencodable(said.value)) is not None:
            raise ConfigurationError(f"The result of Done(...) must be JSON: {fault}.")
        maintenance.check_text("reason", reason)
        maintenance.check_text("by", by)
        holder = await self._holder_of(call_id)
        async with holder._held():  # noqa: SLF001 - another session of this class
            resolved = await maintenance.resolved(holder.ledger, call_id, said, by=by, reason=reason)
            await holder._tell_callers(resolved)  # noqa: SLF001 - as above
            await holder.ledger.record(resolved, durable=True)
        await self.refresh()

    async def _holder_of(self, call_id: str) -> "Session":
        """Return the session whose call is in doubt: this one, or one that carried out a call of it."""
        await self.refresh()
        known = {doubt.call_id for doubt in self.state.open_doubts()} | self.state.doubts.keys()
        if call_id in known or call_id in self.state.open:
            return self
        for event in await self.events():
            if isinstance(event, ChildStarted) and (below := await self.journal.read(event.child_id)):
                found = await self.beside(fold(event.child_id, below))._holder_of(call_id)  # noqa: SLF001 - another session of this class
                if call_id in found.state.doubts or call_id in found.state.open:
                    return found
        return self

    async def _tell_callers(self, resolved: ToolResolved) -> None:
        """Record a resolution with the sessions whose call this one has carried out: its own model hears of nothing any more."""
        caller, run = self.state.caller, self.state.run
        if caller is None or run is None or run.phase in ("running", "paused"):
            return
        above = self.beside(fold(caller.parent_id, await self.journal.read(caller.parent_id)))
        told = msgspec.structs.replace(resolved, child_id=resolved.child_id or self.id)
        async with above._held():  # noqa: SLF001 - another session of this class
            await above._tell_callers(told)  # noqa: SLF001 - as above
            await above.ledger.record(told, durable=True)

    async def steer(self, text: str) -> None:
        """Leave a message for the run: it is added after the results of the step that is under way.

        Raises:
            ConfigurationError: It is no text.
            SessionMoved: The session goes on elsewhere.
        """
        maintenance.check_text("The message", text)
        await self.refresh()
        maintenance.check_here(self.state)
        message = InboxMessage(id="m_" + self.randomness.token(), kind="message", body={"text": text})
        await self.journal.put(self.id, message)

    async def cancel(self) -> bool:
        """Cancel the run that is under way, in whatever process, or that was paused or broke off.

        A run that is live stops within a second. One that is not ends as `cancelled` when it is resumed, and does nothing
        before; what it asked a person is withdrawn at once. The cancellation holds until the run has ended.

        Returns:
            Whether there is such a run. A run that has ended cannot be cancelled.
        """
        await self.refresh()
        maintenance.check_here(self.state)
        run = self.state.run
        if not self.is_running and (run is None or run.phase not in ("running", "paused")):
            return False
        body: JsonObject = {"run_id": run.id if run is not None and run.phase in ("running", "paused") else ""}
        message = InboxMessage(id="c_" + self.randomness.token(), kind="cancel", body=body)
        await self.journal.put(self.id, message)
        self._left = (*self._left, message)
        return True

    async def refresh(self) -> None:
        """Take in what other processes have recorded since. Does nothing while a run is under way here."""
        if not self.is_running:
            await self._catch_up()

    async def _catch_up(self) -> None:
        await take_in(self.state, await self.journal.read(self.id, after=self.state.head))
        if self.state.run is not None:
            self.ledger.run_id = self.state.run.id

    # --- between runs

    async def mark(self, name: str) -> int:
        """Give this point a name, to rewind to or fork from. A name that is used again means the later point.

        Raises:
            NoSuchPoint: A call has no result yet.
            SessionHeld: A run is under way.
        """
        async with self._held():
            return await maintenance.mark(self.ledger, name)

    async def rewind(self, to: int | str, *, tell_model: bool = True) -> Rewind:
        """Go on from an earlier point, given by its mark or the number of its last event. Nothing is undone.

        The model no longer sees later messages; the journal keeps them. Calls without a result are answered first.

        Args:
            tell_model: Leave the model a word on calls behind the point that may have changed the world, if there are any.

        Raises:
            NoSuchPoint: There is no such point, or a call is open at it.
            SessionHeld: A run is under way.
        """
        async with self._held():
            return await maintenance.rewind(self.ledger, to, tell_model=tell_model)

    async def fork(
        self,
        at: int | str | None = None,
        *,
        step: int | None = None,
        message: int | None = None,
        id: str | None = None,  # noqa: A002 - the face's word (design section 6)
    ) -> "Session":
        """Make a new session in the same journal that shares this one's past; both go on by themselves.

        Args:
            at: A mark, or the number of the last event to share; the end when left out.
            step: Instead, share all up to the results of this step.
            message: Instead, share so many messages.
            id: Of the new session; one is made when left out.

        Raises:
            NoSuchPoint: There is no such point, or a call is open at it: it could be carried out twice.
            SessionExists: There is a session by that id.
        """
        name = "s_" + self.randomness.token() if id is None else id
        state = await maintenance.fork(self.ledger, name, at=at, step=step, message=message)
        return self.beside(state)

    def beside(self, state: SessionState, *, parent: str | None = None) -> "Session":
        """Return another session of the same journal.

        Args:
            parent: The run that its runs are children of.
        """
        return Session(
            state=state,
            journal=self.journal,
            clock=self.clock,
            randomness=self.randomness,
            parent=parent,
            degradation=self._degradation,
        )

    async def change(
        self,
        *,
        status: SessionStatus | None = None,
        metadata: JsonObject | None = None,
        reason: str = "",
        by: str = "person",
        if_head: int | None = None,
        take_back: bool = False,
    ) -> None:
        """Change the session's own status, or keys of its metadata; the next run has them. How its runs ended stays.

        Args:
            status: A run begins in an `active` session only; `deleted` is for ever.
            metadata: Keys with new values, None for a key that goes; other keys stay.
            if_head: Change only a session that still stands at this event (`session.state.head`).
            take_back: The session was moved, and you know that it has not gone on there and will not: else its calls act twice.

        Raises:
            SessionMoved: The session goes on elsewhere, and `take_back` is not given.
            SessionConflict: The session has moved on from `if_head`; nothing was written.
            SessionHeld: A run is under way.
        """
        if status is not None and not (isinstance(status, str) and status in get_args(SessionStatus)):
            raise ConfigurationError(f"A session's status is one of {get_args(SessionStatus)}; got {shown(status)}.")
        async with self._held():
            await maintenance.change(
                self.ledger,
                status=status,
                metadata=metadata,
                reason=reason,
                by=by,
                if_head=if_head,
                take_back=take_back,
            )

    async def delete(self, *, purge: bool = False) -> None:
        """Delete the session: it is listed as deleted, and no run begins in it. Its id is never used again.

        Args:
            purge: Also remove its events, messages and stored results; only the fact of the deletion stays.

        Raises:
            SessionHeld: A run is under way.
        """
        async with self._held():
            await end_children(self.ledger, even_open=True)
            if self.state.status != "deleted":
                await maintenance.change(
                    self.ledger, status="deleted", metadata=None, reason="", by="person", if_head=None
                )
            if purge:
                self.ledger.state = await maintenance.purge(self.ledger)

    async def export(self, *, redactor: Redactor | None = None) -> Sequence[bytes]:
        """Return the whole session as lines of JSON, for `import_session`.

        The lines are exact, so that the session can go on elsewhere: keep them as private as the journal.

        Args:
            redactor: Takes the secrets out, for lines that other people read. A session with an open call cannot be imported then.
        """
        if redactor is not None and not isinstance(redactor, Redactor):
            raise ConfigurationError(f"redactor is a Redactor, or None for exact lines; got {shown(redactor)}.")
        parcel = await maintenance.parcel_of(self.ledger)
        packed = pack(parcel) if redactor is None else pack_redacted(parcel, redactor)
        if _is_long(parcel.events) or sum(map(len, parcel.blobs.values())) > _MANY_CHARS:
            lines: Sequence[bytes] = await _threads.submit(partial(tuple, packed))
            return lines
        return tuple(await in_turns(packed))

    async def move(self, to: str, *, by: str = "person", reason: str = "") -> Sequence[bytes]:
        """Close the session here, durably, and return it as lines of JSON, for `import_session` at the place where it goes on.

        From then on nothing begins, is answered or is cancelled here: `SessionMoved` names the place. What waited here, also a
        cancellation, goes along. `change(status="active", take_back=True)` takes the session back, where it has not gone on there.
        Import the lines at one place only: each import goes on by itself.

        Args:
            to: Where it goes on, for people: no secrets. Given once more for the same place, the lines are made again.

        Raises:
            SessionHeld: A run is under way.
            SessionMoved: It was moved elsewhere already.
            NoSuchPoint: Another session carries out a call of it, and a move does not carry that session. Resume or cancel it first.
        """
        maintenance.check_text("to", to)
        if not to.strip():
            raise ConfigurationError("Say where the session goes on: move('the other journal').")
        async with self._held():
            return tuple(pack(await maintenance.move(self.ledger, to, by=by, reason=reason)))

    async def explain(self) -> Explanation:
        """Say what was tried, on what, what it changed, who approved, what failed, why it stopped, and what a rerun does."""
        return await _explained(self.journal, self.id)

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        """Hold the session for one act, as a run does."""
        await self.hold(on_lost=_pass, on_message=_pass)
        try:
            yield
        finally:
            await self.release()

    # --- for runs

    async def hold(self, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> bool:
        """Begin a run: take the lease, and take in what others have recorded since this session was opened.

        Returns:
            Whether messages may lie in its inbox.

        Raises:
            SessionHeld: Another run of this session is under way, here or in another process.
        """
        if self.is_running:
            raise SessionHeld(
                f"Session {self.id!r} is being run already, in this process. Wait for that run, or open another session."
            )
        self.is_running = True
        self.is_degraded = False
        try:
            self._lease = lease = await self.journal.acquire(self.id, on_lost=on_lost, on_message=on_message)
            if lease.head != self.state.head:
                await self._catch_up()
            if (now := await self._asked_time()) is not None:
                self.ledger.store_ahead_seconds = now - self.clock.now()
        except BaseException:
            await self.release()
            raise
        return lease.has_messages is not False

    def _on_degraded(self, event: JournalDegraded) -> None:
        self.is_degraded = self.is_degraded or not event.is_over
        self.ledger.publish(event)

    @property
    def unstored(self) -> int:
        """How many events are in memory only, because the store has failed and is not back."""
        return 0 if self._degradation is None else self._degradation.waiting(self.id)

    @property
    def loss(self) -> str:
        """Why the run that is under way has lost its lease; empty where it holds, or where the journal does not say."""
        return str(getattr(self._lease, "loss", ""))

    async def release(self) -> None:
        """End a run: give the lease back."""
        lease, self._lease = self._lease, None
        self.is_running = False
        self._left = ()
        if lease is not None:
            await lease.release()

    def check_resumable(self) -> None:
        """Raise NoRunYet or RunCompleted unless a run was paused, stopped or broke off."""
        run = self.state.run
        if run is None:
            raise NoRunYet(f"Session {self.id!r} has no run yet. Start one with a task.")
        if run.phase == "completed":
            raise RunCompleted(f"The last run of session {self.id!r} is completed. Give it a new task instead.")

    def check_active(self) -> None:
        """Raise SessionNotActive unless a run may begin: people may have suspended, closed or deleted the session."""
        maintenance.check_here(self.state)
        status = self.state.status
        if status != "active":
            wake = (
                ""
                if status == "deleted"
                else f" To take it up again: `treadle sessions activate {self.id}`, or session.change(status='active')."
            )
            raise SessionNotActive(f"Session {self.id!r} is {status}: no run may begin in it.{wake}")

    def check_own(self) -> None:
        """Raise SessionNotActive where the session carries out a call of another: it goes on with that one, under its rules."""
        if self.state.caller is not None:
            raise SessionNotActive(
                f"Session {self.id!r} carries out a call of session {self.state.caller.parent_id!r}. "
                f"Resume session {self.state.root_id!r} instead, or fork this one."
            )


async def _events_of_all(journal: Journal, session_id: str) -> list[AnyEvent]:
    """Return the events of a session, and of those that carried out its calls."""
    events = list(await journal.read(session_id))
    for child_id in _children_in(events):
        events += await _events_of_all(journal, child_id)
    return events


@cache
def _has_clock(kind: type[Journal]) -> bool:
    """Whether stores of this kind have a clock. Looked up once for each: checking a protocol takes long."""
    return issubclass(kind, HasClock)


def _children_in(events: Sequence[AnyEvent]) -> list[str]:
    return list(dict.fromkeys(event.child_id for event in events if isinstance(event, ChildStarted)))


async def _explained(journal: Journal, session_id: str) -> Explanation:
    events = await journal.read(session_id)
    children = [await _explained(journal, child_id) for child_id in _children_in(events)]
    if not _is_long(events):
        return explain(session_id, events, children)
    explained: Explanation = await _threads.submit(partial(explain, session_id, events, children))
    return explained


def _is_long(events: Sequence[AnyEvent]) -> bool:
    """Whether looking at every word of these events takes longer than others may wait for their turn."""
    if len(events) > _MANY_EVENTS:
        return True
    chars = sum(len(event.result.content) for event in events if isinstance(event, ToolFinished))
    chars += sum(len(event.message.text) for event in events if isinstance(event, ModelFinished | MessageAdded))
    return chars > _MANY_CHARS


def _check_answer(answer: object, *, reason: object, arguments: object, by: object) -> None:
    if not isinstance(answer, str) or answer not in ("allow", "deny"):
        raise ConfigurationError(f"An approval is answered with 'allow' or 'deny'; got {shown(answer)}.")
    if arguments is not None and not isinstance(arguments, dict):
        raise ConfigurationError(f"Edited arguments are one object, by name; got {shown(arguments)}.")
    if (fault := find_unencodable(arguments)) is not None:
        raise ConfigurationError(f"Edited arguments must be JSON: {fault}.")
    maintenance.check_text("reason", reason)
    maintenance.check_text("by", by)


def _answered(approval_id: str, answer: object, by: object, at: object) -> str:
    when = f" at {instant(at)}" if isinstance(at, int | float) else ""
    return f"Approval {shown(approval_id)} waits no longer. It has been answered already ({answer}), by {by}{when}: the first answer wins."


def _pass() -> None:
    """Hear of a lost lease or a message, and go on: an act is one commit, which is refused where the lease is lost."""
