"""Session: a durable conversation, rebuilt from its journal; marked, rewound, forked, exported, moved and deleted here.

It runs nothing: an Agent does, and only one run at a time.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec

from treadle.canonical import find_unencodable
from treadle.errors import (
    ApprovalExpired,
    ConfigurationError,
    JournalError,
    SessionHeld,
    UnknownApproval,
    UnknownDoubt,
    shown,
)
from treadle.events import AnyEvent, ChildStarted, JournalDegraded, SessionStatus, ToolResolved
from treadle.fields import checked, checked_but
from treadle.messages import Message
from treadle.ports import Clock, Degradation, InboxMessage, Journal, Lease, Randomness
from treadle.redaction import Redactor
from treadle.sessions import answering, maintenance
from treadle.sessions.answering import store_time
from treadle.sessions.explain import Explanation, explained, exported
from treadle.sessions.ledger import Ledger
from treadle.sessions.maintenance import Rewind, fold, pack, pass_on, take_in
from treadle.state import (
    Approval,
    Doubt,
    LeftAnswer,
    LeftCancellation,
    LeftCompaction,
    LeftInput,
    LeftMessage,
    LeftMode,
    LeftWake,
    SessionState,
    answer_id,
    input_id,
    instant,
    mode_after,
    waiting_approvals,
)
from treadle.tools import MODES, Done, JsonObject, Mode, NotDone, Unknown

__all__ = ["Approvals", "Doubts", "Session", "SessionEvents", "fold"]


# --- Awaitables: what a session knows at once, and looks up in its journal where it is awaited.

_One = TypeVar("_One")


class _Found(tuple[_One, ...]):  # noqa: SLOT001 - it carries what looks into the journal again
    """What a session knows of something. Await it to look into the journal again first."""

    _look: Callable[[], Awaitable[Self]]

    def __new__(cls, found: Iterable[_One], look: Callable[[], Awaitable[Self]]) -> Self:
        made = super().__new__(cls, found)
        made._look = look
        return made

    def __await__(self) -> Generator[Any, None, Self]:
        return self._look().__await__()


class Approvals(_Found[Approval]):
    """The requests for consent that wait for an answer. Await it to look into the journal again first."""


class Doubts(_Found[Doubt]):
    """The calls in doubt. Await it to look into the journal again first, and to leave out what another process carries out."""


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


# --- Session: a durable conversation, rebuilt from its journal; held, answered, steered, marked, rewound, forked, exported, moved
# and deleted here.


class Session:
    """One conversation in one journal.

    Example:
        async with open_session("agent.db", id="invoice-7") as session:
            result = await agent.run("Pay the invoice", session=session)
    """

    @checked
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
        """Make the session from its events. People call `open_session`.

        Args:
            state: The sum of its events, as far as they have been read.
            journal: Where its events are stored.
            clock: What tells the time.
            randomness: Where new ids come from.
            parent: The run that its runs are children of; None for a session that a person runs.
            degradation: Reports that the store has failed; None where a failed store ends the run.
        """
        self.journal = journal
        self.is_degraded = False
        """Whether the store has failed since the last run began, and the run continued in memory."""
        self._degradation = degradation
        if degradation is not None:
            degradation.listen(state.id, self._on_degraded)
        self.clock = clock
        self.randomness = randomness
        self.ledger = Ledger(state=state, journal=journal, clock=clock, randomness=randomness, parent=parent)
        self.is_running = False
        self._lease: Lease | None = None
        self._left: tuple[InboxMessage, ...] = ()
        """What lay in the inbox when this object last looked, or left something."""
        # Calls that a run gave up and that continue in this process: what they hold stays held in the next run.
        self.abandoned: dict[Any, Any] = {}  # Any: futures and calls, known to late.py alone
        self.children: dict[str, Self] = {}
        """Sessions that carry out calls of this one, as far as this process has opened them, by id."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ignored = () if error is None else (JournalError,)  # what was raised says more than what follows from it
        with suppress(*ignored):
            await self.journal.flush()

    @property
    def id(self) -> str:
        return self.ledger.state.id

    @property
    def state(self) -> SessionState:
        """The sum of its events, as far as this process has seen them."""
        return self.ledger.state

    @checked
    def beside(self, state: SessionState, *, parent: str | None = None) -> Self:
        """Return another session of the same journal.

        Args:
            state: The sum of that session's events.
            parent: The run that its runs are children of.
        """
        return type(self)(
            state=state,
            journal=self.journal,
            clock=self.clock,
            randomness=self.randomness,
            parent=parent,
            degradation=self._degradation,
        )

    async def refresh(self) -> None:
        """Take in what other processes have recorded since. Does nothing while a run is under way here."""
        if not self.is_running:
            await self._catch_up()

    async def _catch_up(self) -> None:
        await take_in(self.state, await self.journal.read(self.id, after=self.state.head))
        if self.state.run is not None:
            self.ledger.run_id = self.state.run.id

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the session for one act, as a run does."""
        await self.hold(on_lost=pass_on, on_message=pass_on)
        left = self._left
        try:
            yield
        finally:
            await self.release()
            # Only a run takes messages in: a change of the mode still lies in the inbox.
            self._left = tuple(message for message in left if isinstance(message, LeftMode))

    async def hold(self, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> bool:
        """Begin a run: take the lease, and take in what others have recorded since this session was opened.

        Args:
            on_lost: Called on this event loop soon after the lease has been lost.
            on_message: Called on this event loop soon after something has been left in the session's inbox.

        Returns:
            Whether messages may lie in its inbox.

        Raises:
            SessionHeld: Another run of this session is under way, here or in another process.
        """
        if self.is_running:
            raise SessionHeld(
                f"Session {self.id!r} is already running in this process. Wait for that run, or open another session."
            )
        self.is_running = True
        self.is_degraded = self.ledger.is_cut = False
        self.ledger.forget()
        try:
            self._lease = lease = await self.journal.acquire(self.id, on_lost=on_lost, on_message=on_message)
            if lease.head != self.state.head:
                await self._catch_up()
            if (now := await store_time(self.journal)) is not None:
                self.ledger.store_ahead_seconds = now - self.clock.now()
        except BaseException:
            await self.release()
            raise
        return lease.has_messages is not False

    def hand_over(self) -> None:
        """Record nothing more of the run that is under way, nor of those that carry out its calls: others resume it."""
        self.ledger.is_cut = True
        for child in self.children.values():
            child.hand_over()

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

    # --- what people and programs say to it, from any process: answers, inputs, outcomes, messages, modes, cancellations

    @property
    def mode(self) -> Mode:
        """How much happens in it without a question: `ask` where nobody has changed it.

        A change that no run has taken in yet is known to the object that made it.
        """
        taken = self.state.message_ids
        return mode_after((message for message in self._left if message.id not in taken), self.state.mode)

    def approvals(self) -> Approvals:
        """Return the requests for consent that wait for an answer; await it to look into the journal again first."""
        return Approvals(waiting_approvals(self.state, self._left), self._fresh_approvals)

    async def _fresh_approvals(self) -> Approvals:
        # First: what a run takes in meanwhile is then in the events too.
        left = await answering.inbox_of(self.journal, self.state)
        await self.refresh()
        self._left = left
        return self.approvals()

    def events(self, after: int = 0) -> SessionEvents:
        """Return its events with a number above `after`: await it, or iterate with `async for`.

        Args:
            after: The number of an event, from 1; 0 for all events.

        Raises:
            ConfigurationError: `after` is not a whole number.
        """
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
        interrupt: bool = False,
        scope: Literal["call", "session", "rule"] = "call",
        by: str = "person",
    ) -> None:
        """Answer a request for consent, from this or any other process. `resume` then continues.

        The answer counts from now on, however late a run takes it in.

        Args:
            approval_id: As `approvals()` lists it.
            answer: `allow` or `deny`.
            reason: Why; the model reads it where the call is denied.
            arguments: Edited arguments for the call, validated like the model's own. Where they do not fit, the request waits again.
            interrupt: With a denial: `resume` stops the run then, and starts no other call of the response.
            scope: What an `allow` covers: this one `call`; or, by the rules that the request offers, this `session`; or later ones too,
                as a `rule`: keeping it in a configuration is up to you. A request without rules can be answered for the call only.
            by: Who answers, for the record.

        Raises:
            ConfigurationError: The answer is neither, the arguments are not a JSON object, or the request does not offer the scope.
            ApprovalExpired: The request has expired; `resume` asks anew.
            UnknownApproval: Nothing by that id waits, or it has been answered: the first answer wins, and the message names it.
        """
        maintenance.check_text("approval_id", approval_id)
        answering.check_answer(answer, reason=reason, arguments=arguments, interrupt=interrupt, by=by)
        await self.refresh()
        maintenance.check_here(self.state, self.journal)
        approval = await self._find_waiting(approval_id)
        answering.check_scope(scope, approval, answer=answer, arguments=arguments)
        at = await answering.time_of(self.journal, self.clock)
        if at > approval.expires_at:
            raise ApprovalExpired(
                f"Approval {shown(approval_id)} expired at {instant(approval.expires_at)}. Resume the session to be asked again."
            )
        message = LeftAnswer(
            id=answer_id(approval),
            approval_id=approval.id,
            answer=answer,
            reason=reason,
            approved_by=by,
            at=at,
            arguments=arguments,
            interrupt=interrupt,
            scope=scope,
        )
        asks = approval.session_id  # this session, or one that carries out a call of it
        if not await self.journal.put(asks, message):
            raise UnknownApproval(await self._why_not_waiting(approval.id))
        self._left = (*self._left, message)

    async def _find_waiting(self, approval_id: str) -> Approval:
        found = [one for one in await self.approvals() if one.id == approval_id]
        if not found or await answering.is_withdrawn_above(self.journal, self.state):
            raise UnknownApproval(await self._why_not_waiting(approval_id))
        if len(found) > 1:
            asking = ", ".join(one.session_id for one in found)
            raise UnknownApproval(
                f"Approval {shown(approval_id)} waits in several sessions: {asking}. Open the one that is meant."
            )
        return found[0]

    async def _why_not_waiting(self, approval_id: str) -> str:
        return await answering.why_not_waiting(self.journal, self.state, approval_id, waiting=self.approvals())

    def doubts(self) -> Doubts:
        """Return the calls that may have acted, whose outcome nobody knows, and that no person has resolved.

        Calls without a result are among them where no run of this object is under way. Await it to look into the journal again
        first, and to leave out those that another process carries out.
        """
        found = self.state.open_doubts()
        return Doubts((one for one in found if one.is_told or not self.is_running), self._fresh_doubts)

    async def _fresh_doubts(self) -> Doubts:
        await self.refresh()
        return Doubts(await answering.doubts_of(self.journal, self.state), self._fresh_doubts)

    async def resolve(
        self, call_id: str, outcome: "Done | type[NotDone | Unknown]", *, reason: str = "", by: str = "person"
    ) -> None:
        """Say how a call in doubt ended, with the receipt in hand. The model reads it with its next request.

        Before a `resume`, `Done(value)` becomes the call's result, and after `NotDone` the call may run, decided anew. Where the
        model has been told already that the outcome is unknown, it gets a message.

        Args:
            outcome: `Done(value)`, `NotDone`, or `Unknown` where nobody will find out: the doubt is listed no longer then.
            by: Who says so, for the record.

        Raises:
            ConfigurationError: The outcome is not one of these, or its value is not valid JSON.
            UnknownDoubt: No call by that id is in doubt, or it has been resolved.
            SessionHeld: A run is under way.
        """
        maintenance.check_text("call_id", call_id)
        said = answering.checked_outcome(outcome, reason=reason, by=by)
        holder = await self._holder_of(call_id)
        async with holder.held():
            resolved = await answering.resolved(holder.ledger, call_id, said, by=by, reason=reason)
            await holder._report_to_callers(resolved)  # noqa: SLF001 - as above
            await holder.ledger.record(resolved, durable=True)
        await holder._wake()  # noqa: SLF001 - as above
        await self.refresh()

    async def _wake(self) -> None:
        """Let whoever resumes paused runs look at this one again: its inbox alone would not say that something has changed."""
        if self.state.run is not None and self.state.run.status == "paused":
            await self.journal.put(self.id, LeftWake(id="wake_" + self.randomness.token()))

    async def _holder_of(self, call_id: str) -> "Session":
        """Return the session whose call is in doubt: this one, or one that carried out a call of it."""
        await self.refresh()
        if self._knows_doubt(call_id):
            return self
        found = [one for one in await self._below() if one._knows_doubt(call_id)]  # noqa: SLF001 - another session of this class
        if len(found) > 1:
            raise UnknownDoubt(
                f"Several calls {shown(call_id)} are in doubt, of sessions {', '.join(one.id for one in found)}. Open the one that is meant."
            )
        return found[0] if found else self

    def _knows_doubt(self, call_id: str) -> bool:
        state = self.state
        is_open = call_id in state.open and call_id not in state.carried_out
        return is_open or call_id in state.doubts or any(one.call_id == call_id for one in state.open_doubts())

    async def _below(self) -> "list[Session]":
        """Return the sessions that have carried out calls of this one, at every level."""
        found = list[Session]()
        for child_id in dict.fromkeys([one.child_id for one in await self.events() if isinstance(one, ChildStarted)]):
            if events := await self.journal.read(child_id):
                child = self.beside(fold(child_id, events))
                found += [child, *await child._below()]  # noqa: SLF001 - as above
        return found

    async def _report_to_callers(self, resolved: ToolResolved) -> None:
        """Record a resolution with the sessions whose call this one has carried out: its own model is no longer informed."""
        caller, run = self.state.caller, self.state.run
        if caller is None or run is None or run.status in ("running", "paused"):
            return
        above = self.beside(fold(caller.parent_id, await self.journal.read(caller.parent_id)))
        reported = msgspec.structs.replace(resolved, child_id=resolved.child_id or self.id)
        async with above.held():
            await above._report_to_callers(reported)  # noqa: SLF001 - as above
            await above.ledger.record(reported, durable=True)

    async def steer(self, text: str) -> None:
        """Leave a message for the run: it is added after the results of the step that is under way.

        Raises:
            ConfigurationError: It is not text.
            SessionNotActive: The session has been deleted.
            SessionMoved: The session continues elsewhere.
        """
        maintenance.check_text("The text of a message", text)
        await self._refresh_open()
        message = LeftMessage(id="m_" + self.randomness.token(), text=text)
        await self.journal.put(self.id, message)

    async def _refresh_open(self) -> None:
        """Refresh, and raise where the session was deleted or moved: what is left for its run would reach nobody."""
        await self.refresh()
        maintenance.check_there(self.state)
        maintenance.check_here(self.state, self.journal)

    async def set_mode(self, mode: Mode, *, by: str = "person") -> None:
        """Change how much happens without a question, from this or any other process. It holds for all that has not started.

        A run that is under way takes it in at once; one that is paused, and each new one, before it decides anything.
        `plan`: nothing runs but what only reads. `ask`: what no rule allows is asked about. `accept-edits`: edits of files in the
        folder run. `auto`: so do commands that run confined.
        `deny-unlisted`: what no rule speaks of is denied. `bypass`: nobody is asked; what is denied stays denied.

        Args:
            by: Who changes it, for the record.

        Raises:
            ConfigurationError: There is no such mode.
            SessionNotActive: The session has been deleted, or carries out a call of another: change the mode of that one.
            SessionMoved: The session continues elsewhere.
        """
        if mode not in MODES:
            raise ConfigurationError(f"A session's mode is one of {', '.join(MODES)}; got {shown(mode)}.")
        maintenance.check_text("by", by)
        await self._refresh_open()
        maintenance.check_own(self.state)
        message = LeftMode(id="mode_" + self.randomness.token(), mode=mode, by=by)
        await self.journal.put(self.id, message)
        self._left = (*self._left, message)

    async def compact(self, *, by: str = "person") -> None:
        """Have what the model is shown made shorter before its next request, however short it is.

        From this or any other process, also while a run is under way. The agent's own compactor does it; for an agent without
        one, old results are cleared, and where that does not help, the model writes a summary. What happened to it is recorded:
        `context.compacted`, or `context.compaction_skipped` where nothing could be made shorter.

        Args:
            by: Who asks, for the record.

        Raises:
            SessionNotActive: The session has been deleted, or carries out a call of another.
            SessionMoved: The session continues elsewhere.
        """
        maintenance.check_text("by", by)
        await self._refresh_open()
        maintenance.check_own(self.state)
        await self.journal.put(self.id, LeftCompaction(id="compact_" + self.randomness.token(), by=by))

    async def input(self, call_id: str, value: Any, *, by: str = "person") -> None:  # Any: JSON
        """Give a suspended call what it waits for, from this or any other process. `resume` then starts it again.

        Its tool finds the value in `ctx.inputs`. Each suspension takes one input; a call that waits again takes another.

        Args:
            call_id: Of a call of this session, or of a session that carries out a call of it. The id of a call that is carried out so
                means what waits there.
            value: Any JSON value.
            by: Who gives it, for the record.

        Raises:
            ConfigurationError: The value is not valid JSON.
            UnknownInput: No call by that id is suspended, or it was given its input already: the first one wins.
            SessionMoved: The session continues elsewhere.
        """
        maintenance.check_text("call_id", call_id)
        maintenance.check_text("by", by)
        if (fault := find_unencodable(value)) is not None:
            raise ConfigurationError(f"The input of a call must be JSON: {fault}.")
        await self.refresh()
        maintenance.check_here(self.state, self.journal)
        waits, suspended = await answering.find_suspended(self.journal, self.state, call_id)
        at = await answering.time_of(self.journal, self.clock)
        waiting = suspended.call_id or call_id
        message = LeftInput(id=input_id(suspended), call_id=waiting, value=value, by=by, at=at)
        if not await self.journal.put(waits, message):
            raise answering.has_input(call_id)

    async def cancel(self, *, by: str = "") -> bool:
        """Cancel the run that is under way, in whatever process, or that was paused or broke off, or a task that waits for a worker.

        A task that no worker has begun is withdrawn at once. A run that is live stops within a second. One that is not live ends as
        `cancelled` when it is resumed, and does nothing before; what it asked a person is withdrawn at once. The cancellation holds until
        the run has ended.

        Args:
            by: Who cancels it, for the record and the model; empty where that is not known.

        Returns:
            Whether there is such a run. A run that has ended cannot be cancelled.
        """
        maintenance.check_text("by", by)
        await self.refresh()
        maintenance.check_here(self.state, self.journal)
        if self.state.submitted is not None and await self._withdraw():
            return True
        run = self.state.run
        if not self.is_running and (run is None or run.status not in ("running", "paused")):
            return False
        run_id = run.id if run is not None and run.status in ("running", "paused") else ""
        message = LeftCancellation(id="c_" + self.randomness.token(), run_id=run_id, by=by)
        await self.journal.put(self.id, message)
        self._left = (*self._left, message)
        return True

    async def _withdraw(self) -> bool:
        """Withdraw the submitted task. Return False where a worker has begun its run."""
        with suppress(SessionHeld):
            async with self.held():
                return await maintenance.withdraw(self.ledger)
        await self.refresh()
        return False

    def __repr__(self) -> str:
        """Return its id and how much it holds."""
        return f"<Session {self.id}, {len(self.messages)} messages, {self.state.head} events>"

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.ledger.state.transcript

    # --- between runs

    async def mark(self, name: str) -> int:
        """Name this point, to rewind to it or fork from it. A name that is used again means the later point.

        Raises:
            NoSuchPoint: A call has no result yet.
            SessionHeld: A run is under way.
        """
        async with self.held():
            return await maintenance.mark(self.ledger, name)

    @checked_but("to")
    async def rewind(self, to: int | str, *, tell_model: bool = True, undone: Collection[str] = ()) -> Rewind:
        """Go back to an earlier point, given by its mark or the number of its last event. Effects are not undone.

        The model no longer sees later messages; the journal keeps them. Calls without a result are answered first.

        Args:
            to: The name of a mark, or the number of the last event that stays.
            tell_model: Tell the model about later calls that may have changed the world, if there are any.
            undone: Ids of calls whose effects you have taken back yourself: the model is not told about them.

        Raises:
            NoSuchPoint: There is no such point, or a call is open at it.
            SessionHeld: A run is under way.
        """
        async with self.held():
            return await maintenance.rewind(self.ledger, to, tell_model=tell_model, undone=undone)

    @checked_but("at", "step", "message")
    async def fork(
        self,
        at: int | str | None = None,
        *,
        step: int | None = None,
        message: int | None = None,
        id: str | None = None,  # noqa: A002 - the face's word (design section 6)
    ) -> "Session":
        """Create a session in the same journal that shares the past of this one; both continue independently.

        Args:
            at: A mark, or the number of the last event to share (default: the end).
            step: Instead, share everything up to the results of this step.
            message: Instead, share this number of messages.
            id: The new session's id (default: generated).

        Raises:
            NoSuchPoint: There is no such point, or a call is open at it: it could be carried out twice.
            SessionExists: There is a session with that id.
        """
        name = "s_" + self.randomness.token() if id is None else id
        state = await maintenance.fork(self.ledger, name, at=at, step=step, message=message)
        return self.beside(state)

    @checked
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
        """Change the session's own status, or keys of its metadata; the next run has them. It does not change how runs ended.

        Args:
            status: A run can begin only in an `active` session; `deleted` is permanent.
            metadata: Keys with new values, None to remove a key; other keys stay.
            if_head: Change the session only if it is still at this event (`session.state.head`).
            take_back: Take back a session that was moved. Only if it has not continued there and will not: else its calls act twice.

        Raises:
            SessionMoved: The session continues elsewhere, and `take_back` is not given.
            SessionConflict: The session is not at `if_head` any more; nothing was written.
            SessionHeld: A run is under way.
            ConfigurationError: The status is unknown, or the metadata cannot be stored.
        """
        async with self.held():
            await maintenance.change(
                self.ledger,
                status=status,
                metadata=metadata,
                reason=reason,
                by=by,
                if_head=if_head,
                take_back=take_back,
            )
        if status == "active":
            await self._wake()

    @checked
    async def delete(self, *, purge: bool = False) -> None:
        """Delete the session: it is listed as deleted, and no run can begin in it. Its id is never used again.

        Args:
            purge: Also remove its events, messages and stored results; only a record of the deletion stays.

        Raises:
            SessionHeld: A run is under way.
        """
        async with self.held():
            await maintenance.delete(self.ledger, purge=purge)

    async def export(self, *, redactor: Redactor | None = None) -> Sequence[bytes]:
        """Return the whole session as lines of JSON, for `import_session`.

        The lines are exact, so that the session can continue elsewhere: keep them as private as the journal.

        Args:
            redactor: Removes secrets, for lines that other people read. A session with an open call can then not be imported.

        Raises:
            ConfigurationError: The redactor is not a Redactor.
        """
        if redactor is not None and not isinstance(redactor, Redactor):
            raise ConfigurationError(f"redactor is a Redactor, or None for exact lines; got {shown(redactor)}.")
        return await exported(await maintenance.parcel_of(self.ledger), redactor)

    @checked
    async def move(self, to: str, *, by: str = "person", reason: str = "") -> Sequence[bytes]:
        """Close the session here, durably, and return it as lines of JSON for `import_session` at its new place.

        From then on no run begins here, and nothing is answered or cancelled: `SessionMoved` names the place. Waiting approvals,
        answers and cancellations are moved too. `change(status="active", take_back=True)` takes the session back if it has not
        continued there. Import the lines at one place only: each import would continue.

        Args:
            to: The new place, for people to read: no secrets. Called again with the same place, it returns the lines again.

        Raises:
            SessionHeld: A run is under way.
            SessionMoved: It was moved elsewhere already.
            NoSuchPoint: Another session carries out one of its calls, and a move does not include that session. Resume or cancel it first.
            ConfigurationError: The destination is empty, or an option cannot be stored.
        """
        for option, text in (("to", to), ("by", by), ("reason", reason)):
            maintenance.check_text(option, text)
        if not to.strip():
            raise ConfigurationError("Name the destination: move('the other journal').")
        async with self.held():
            return tuple(pack(await maintenance.move(self.ledger, to, by=by, reason=reason)))

    async def explain(self) -> Explanation:
        """Say what was tried, on what, what it changed, who approved, what failed, why it stopped, and what a rerun does."""
        return await explained(self.journal, self.id)

    # --- for runs

    def check_resumable(self) -> None:
        """Raise NoRunYet or RunCompleted unless a run was paused, stopped or broke off."""
        maintenance.check_resumable(self.state, self.journal)

    def check_active(self) -> None:
        """Raise SessionNotActive unless a run may begin: people may have suspended, closed or deleted the session."""
        maintenance.check_active(self.state, self.journal)

    def check_no_task(self) -> None:
        """Raise SessionNotActive where a submitted task waits for a worker."""
        maintenance.check_no_task(self.state, self.journal)

    def check_own(self) -> None:
        """Raise SessionNotActive where the session carries out a call of another: it continues with that one, under its rules."""
        maintenance.check_own(self.state)
