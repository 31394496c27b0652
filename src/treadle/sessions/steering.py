"""Steering: what people and programs say to a session, from any process: answers, inputs, outcomes, messages, modes, cancellations.

It leaves messages for the run that takes them in, and carries out nothing by itself.
"""

from contextlib import suppress
from typing import Any, Literal

import msgspec

from treadle.canonical import find_unencodable
from treadle.errors import (
    ApprovalExpired,
    ConfigurationError,
    SessionHeld,
    UnknownApproval,
    UnknownDoubt,
    shown,
)
from treadle.events import (
    ChildStarted,
    ToolResolved,
)
from treadle.sessions import answering, maintenance, resolving
from treadle.sessions.awaitables import Approvals, Doubts, SessionEvents
from treadle.sessions.checkpoints import fold
from treadle.sessions.holding import HeldSession
from treadle.state import (
    Approval,
    LeftAnswer,
    LeftCancellation,
    LeftCompaction,
    LeftInput,
    LeftMessage,
    LeftMode,
    LeftWake,
    answer_id,
    input_id,
    instant,
    mode_after,
    waiting_approvals,
)
from treadle.tools import MODES, Done, JsonObject, Mode, NotDone, Unknown

__all__ = ["SteeredSession"]


class SteeredSession(HeldSession):
    """A session that people answer and steer, whether a run of it is under way here, elsewhere, or nowhere."""

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
        now = await answering.store_time(self.journal)
        at = self.clock.now() if now is None else now
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
        return Doubts(await resolving.doubts_of(self.journal, self.state), self._fresh_doubts)

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
        said = resolving.checked_outcome(outcome, reason=reason, by=by)
        holder = await self._holder_of(call_id)
        async with holder.held():
            resolved = await resolving.resolved(holder.ledger, call_id, said, by=by, reason=reason)
            await holder._report_to_callers(resolved)  # noqa: SLF001 - as above
            await holder.ledger.record(resolved, durable=True)
        await holder._wake()  # noqa: SLF001 - as above
        await self.refresh()

    async def _wake(self) -> None:
        """Let whoever resumes paused runs look at this one again: its inbox alone would not say that something has changed."""
        if self.state.run is not None and self.state.run.phase == "paused":
            await self.journal.put(self.id, LeftWake(id="wake_" + self.randomness.token()))

    async def _holder_of(self, call_id: str) -> "SteeredSession":
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

    async def _below(self) -> "list[SteeredSession]":
        """Return the sessions that have carried out calls of this one, at every level."""
        found = list[SteeredSession]()
        for child_id in dict.fromkeys([one.child_id for one in await self.events() if isinstance(one, ChildStarted)]):
            if events := await self.journal.read(child_id):
                child = self.beside(fold(child_id, events))
                found += [child, *await child._below()]  # noqa: SLF001 - as above
        return found

    async def _report_to_callers(self, resolved: ToolResolved) -> None:
        """Record a resolution with the sessions whose call this one has carried out: its own model is no longer informed."""
        caller, run = self.state.caller, self.state.run
        if caller is None or run is None or run.phase in ("running", "paused"):
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
        await self.refresh()
        maintenance.check_there(self.state)
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
            SessionNotActive: The session has been deleted, or carries out a call of another: change the mode of that one.
            SessionMoved: The session continues elsewhere.
        """
        if mode not in MODES:
            raise ConfigurationError(f"A session's mode is one of {', '.join(MODES)}; got {shown(mode)}.")
        maintenance.check_text("by", by)
        await self.refresh()
        maintenance.check_there(self.state)
        maintenance.check_here(self.state, self.journal)
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
        await self.refresh()
        maintenance.check_there(self.state)
        maintenance.check_here(self.state, self.journal)
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
        now = await answering.store_time(self.journal)
        at = self.clock.now() if now is None else now
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
        if not self.is_running and (run is None or run.phase not in ("running", "paused")):
            return False
        run_id = run.id if run is not None and run.phase in ("running", "paused") else ""
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
