"""Session: the lasting conversation, rebuilt from its journal. Answers questions about it and takes messages for it.

It runs nothing: an Agent does, and only one run at a time.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

import msgspec

from treadle.canonical import find_unencodable
from treadle.concurrency.collecting import full_collections_put_off
from treadle.errors import (
    ApprovalExpired,
    ConfigurationError,
    SessionHeld,
    UnknownApproval,
    UnknownInput,
    shown,
)
from treadle.events import (
    ChildStarted,
    SessionStatus,
    ToolResolved,
)
from treadle.fields import checked, checked_but
from treadle.messages import Message
from treadle.redaction import Redactor
from treadle.sessions import answering, maintenance, resolving
from treadle.sessions.awaitables import Approvals, Doubts, SessionEvents
from treadle.sessions.checkpoints import Rewind, fold
from treadle.sessions.explanation import Explanation
from treadle.sessions.holding import HeldSession
from treadle.sessions.reading import explained, exported
from treadle.sessions.transfer import pack
from treadle.state import (
    Approval,
    LeftAnswer,
    LeftCancellation,
    LeftCompaction,
    LeftInput,
    LeftMessage,
    LeftMode,
    answer_id,
    input_id,
    instant,
    waiting_approvals,
)
from treadle.tools import MODES, Done, JsonObject, Mode, NotDone, Unknown

__all__ = ["Session", "fold"]


class Session(HeldSession):
    """One conversation in one journal.

    Example:
        async with open_session("agent.db", id="invoice-7") as session:
            result = await agent.run("Pay the invoice", session=session)
    """

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.state.transcript

    @property
    def mode(self) -> Mode:
        """How much happens in it without a question: `ask` where nobody has changed it.

        A change that no run has taken in yet is known to the object that made it.
        """
        left = [message.mode for message in self._left if isinstance(message, LeftMode)]
        return next((mode for mode in MODES if mode in left[-1:]), self.state.mode)

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
        now = await answering.store_time(self.journal)
        at = self.clock.now() if now is None else now
        if at > approval.expires_at:
            raise ApprovalExpired(
                f"Approval {shown(approval_id)} expired at {instant(approval.expires_at)}. Resume the session to be asked anew."
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
        found = next((one for one in await self.approvals() if approval_id in (one.id, one.replaces)), None)
        if found is None:
            raise UnknownApproval(await self._why_not_waiting(approval_id))
        return found

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
        return Doubts(await resolving.doubts_of(self.journal, self.state), self._fresh_doubts)

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
            ConfigurationError: The outcome is not one of these, or its value is not valid JSON.
            UnknownDoubt: No call by that id is in doubt, or it has been resolved.
            SessionHeld: A run is under way.
        """
        maintenance.check_text("call_id", call_id)
        said = resolving.checked_outcome(outcome, reason=reason, by=by)
        holder = await self._holder_of(call_id)
        async with holder.held():
            resolved = await resolving.resolved(holder.ledger, call_id, said, by=by, reason=reason)
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
        """Record a resolution with the sessions whose call this one has carried out: its own model is no longer informed."""
        caller, run = self.state.caller, self.state.run
        if caller is None or run is None or run.phase in ("running", "paused"):
            return
        above = self.beside(fold(caller.parent_id, await self.journal.read(caller.parent_id)))
        told = msgspec.structs.replace(resolved, child_id=resolved.child_id or self.id)
        async with above.held():
            await above._tell_callers(told)  # noqa: SLF001 - as above
            await above.ledger.record(told, durable=True)

    async def steer(self, text: str) -> None:
        """Leave a message for the run: it is added after the results of the step that is under way.

        Raises:
            ConfigurationError: It is not text.
            SessionMoved: The session continues elsewhere.
        """
        maintenance.check_text("The text of a message", text)
        await self.refresh()
        maintenance.check_here(self.state, self.journal)
        message = LeftMessage(id="m_" + self.randomness.token(), text=text)
        await self.journal.put(self.id, message)

    async def set_mode(self, mode: Mode, *, by: str = "person") -> None:
        """Change how much happens without a question, from this or any other process. It holds for all that has not started.

        A run that is under way takes it in at once; one that is paused, and each new one, before it decides anything.
        `plan`: nothing runs but what only reads. `ask`: what no rule allows is asked about. `accept-edits`: as `ask`, so far.
        `deny-unlisted`: what no rule speaks of is denied. `bypass`: nobody is asked; what is denied stays denied.

        Args:
            by: Who changes it, for the record.

        Raises:
            ConfigurationError: There is no such mode.
            SessionNotActive: The session carries out a call of another: change the mode of that one.
            SessionMoved: The session continues elsewhere.
        """
        if mode not in MODES:
            raise ConfigurationError(f"A session's mode is one of {', '.join(MODES)}; got {shown(mode)}.")
        maintenance.check_text("by", by)
        await self.refresh()
        maintenance.check_here(self.state, self.journal)
        self.check_own()
        message = LeftMode(id="mode_" + self.randomness.token(), mode=mode, by=by)
        await self.journal.put(self.id, message)
        self._left = (*self._left, message)

    async def compact(self, *, by: str = "person") -> None:
        """Have what the model is shown made shorter before its next request, however short it is.

        From this or any other process, also while a run is under way. The agent's own compactor does it; for an agent without
        one, old results are cleared, and where that does not help, the model writes a summary. What became of it is recorded:
        `context.compacted`, or `context.compaction_skipped` where nothing could be made shorter.

        Args:
            by: Who asks, for the record.

        Raises:
            SessionNotActive: The session carries out a call of another, or its user has closed it.
            SessionMoved: The session continues elsewhere.
        """
        maintenance.check_text("by", by)
        await self.refresh()
        maintenance.check_here(self.state, self.journal)
        self.check_own()
        await self.journal.put(self.id, LeftCompaction(id="compact_" + self.randomness.token(), by=by))

    async def input(self, call_id: str, value: Any, *, by: str = "person") -> None:  # Any: JSON
        """Give a suspended call what it waits for, from this or any other process. `resume` then starts it again.

        Its tool finds the value in `ctx.inputs`. Each suspension takes one input; a call that waits again takes another.

        Args:
            call_id: Of a call of this session, or of a session that carries out a call of it.
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
        now = await answering.store_time(self.journal)
        at = self.clock.now() if now is None else now
        message = LeftInput(id=input_id(suspended), call_id=call_id, value=value, by=by, at=at)
        if not await self.journal.put(waits, message):
            raise UnknownInput(
                f"Call {shown(call_id)} has been given its input already: the first one wins. Resume it."
            )

    async def cancel(self) -> bool:
        """Cancel the run that is under way, in whatever process, or that was paused or broke off, or a task that waits for a worker.

        A task that no worker has begun is withdrawn at once. A run that is live stops within a second. One that is not ends as `cancelled` when it is resumed, and does nothing
        before; what it asked a person is withdrawn at once. The cancellation holds until the run has ended.

        Returns:
            Whether there is such a run. A run that has ended cannot be cancelled.
        """
        await self.refresh()
        maintenance.check_here(self.state, self.journal)
        if self.state.submitted is not None and await self._withdraw():
            return True
        run = self.state.run
        if not self.is_running and (run is None or run.phase not in ("running", "paused")):
            return False
        run_id = run.id if run is not None and run.phase in ("running", "paused") else ""
        message = LeftCancellation(id="c_" + self.randomness.token(), run_id=run_id)
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

    # --- between runs

    async def mark(self, name: str) -> int:
        """Give this point a name, to rewind to or fork from. A name that is used again means the later point.

        Raises:
            NoSuchPoint: A call has no result yet.
            SessionHeld: A run is under way.
        """
        async with self.held():
            return await maintenance.mark(self.ledger, name)

    @checked_but("to")
    async def rewind(self, to: int | str, *, tell_model: bool = True) -> Rewind:
        """Continue from an earlier point, given by its mark or the number of its last event. Nothing is undone.

        The model no longer sees later messages; the journal keeps them. Calls without a result are answered first.

        Args:
            tell_model: Leave the model a word on calls behind the point that may have changed the world, if there are any.

        Raises:
            NoSuchPoint: There is no such point, or a call is open at it.
            SessionHeld: A run is under way.
        """
        async with self.held():
            return await maintenance.rewind(self.ledger, to, tell_model=tell_model)

    @checked_but("at", "step", "message")
    async def fork(
        self,
        at: int | str | None = None,
        *,
        step: int | None = None,
        message: int | None = None,
        id: str | None = None,  # noqa: A002 - the face's word (design section 6)
    ) -> "Session":
        """Make a new session in the same journal that shares this one's past; both continue by themselves.

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
        """Change the session's own status, or keys of its metadata; the next run has them. How its runs ended stays.

        Args:
            status: A run begins in an `active` session only; `deleted` is for ever.
            metadata: Keys with new values, None for a key that goes; other keys stay.
            if_head: Change only a session that still stands at this event (`session.state.head`).
            take_back: The session was moved, and you know that it has not continued there and will not: else its calls act twice.

        Raises:
            SessionMoved: The session continues elsewhere, and `take_back` is not given.
            SessionConflict: The session has moved on from `if_head`; nothing was written.
            SessionHeld: A run is under way.
        """
        if status is not None and not (isinstance(status, str) and status in get_args(SessionStatus)):
            raise ConfigurationError(f"A session's status is one of {get_args(SessionStatus)}; got {shown(status)}.")
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

    @checked
    async def delete(self, *, purge: bool = False) -> None:
        """Delete the session: it is listed as deleted, and no run begins in it. Its id is never used again.

        Args:
            purge: Also remove its events, messages and stored results; only the fact of the deletion stays.

        Raises:
            SessionHeld: A run is under way.
        """
        async with self.held():
            await maintenance.delete(self.ledger, purge=purge)

    async def export(self, *, redactor: Redactor | None = None) -> Sequence[bytes]:
        """Return the whole session as lines of JSON, for `import_session`.

        The lines are exact, so that the session can continue elsewhere: keep them as private as the journal.

        Args:
            redactor: Takes the secrets out, for lines that other people read. A session with an open call cannot be imported then.
        """
        if redactor is not None and not isinstance(redactor, Redactor):
            raise ConfigurationError(f"redactor is a Redactor, or None for exact lines; got {shown(redactor)}.")
        with full_collections_put_off():
            return await exported(await maintenance.parcel_of(self.ledger), redactor)

    @checked
    async def move(self, to: str, *, by: str = "person", reason: str = "") -> Sequence[bytes]:
        """Close the session here, durably, and return it as lines of JSON, for `import_session` at the place where it continues.

        From then on nothing begins, is answered or is cancelled here: `SessionMoved` names the place. What waited here, also a
        cancellation, goes along. `change(status="active", take_back=True)` takes the session back, where it has not continued there.
        Import the lines at one place only: each import continues by itself.

        Args:
            to: Where it continues, for people: no secrets. Given once more for the same place, the lines are made again.

        Raises:
            SessionHeld: A run is under way.
            SessionMoved: It was moved elsewhere already.
            NoSuchPoint: Another session carries out a call of it, and a move does not carry that session. Resume or cancel it first.
        """
        for word, text in (("to", to), ("by", by), ("reason", reason)):
            maintenance.check_text(word, text)
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
        maintenance.check_resumable(self.state)

    def check_active(self) -> None:
        """Raise SessionNotActive unless a run may begin: people may have suspended, closed or deleted the session."""
        maintenance.check_active(self.state, self.journal)

    def check_no_task(self) -> None:
        """Raise SessionNotActive where a submitted task waits for a worker."""
        maintenance.check_no_task(self.state)

    def check_own(self) -> None:
        """Raise SessionNotActive where the session carries out a call of another: it continues with that one, under its rules."""
        maintenance.check_own(self.state)
