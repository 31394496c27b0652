"""Planning: what happens to each call of a batch: refused, denied, asked about, adopted, or ready to run.

Reads answers that persons gave; starts nothing. All calls of a response are looked at before anything becomes of one.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from typing import Any, TypeAlias

import msgspec

from treadle.concurrency import Threads, is_async
from treadle.engine.rules.endings import interrupted_stop
from treadle.engine.rules.failures import contained, kept_inside, pass_interrupts
from treadle.engine.rules.tries import NOT_STARTED, Progress, Repetition, Tries
from treadle.engine.scope import RunScope
from treadle.engine.tool_calls import refusals
from treadle.engine.tool_calls.calls import Adopted, Batch, Checked, Decided, Finisher, Plan, Prepared, Refused
from treadle.engine.tool_calls.checking import Checker
from treadle.engine.tool_calls.early import EarlyCalls
from treadle.errors import ConfigurationError
from treadle.events import AnyEvent, ApprovalRequested, CallDecided, RepeatNoticed
from treadle.permissions import consent
from treadle.permissions.lines import has_other_names, placed, subjects_of
from treadle.ports import DecisionKind
from treadle.redaction import redacted_logger
from treadle.sessions.answering import check_answer, check_scope
from treadle.sessions.inbox import answer_events, plan_ended
from treadle.state import Approval, CallState, LeftAnswer, answer_id, is_equal
from treadle.stops import Stop, StopReason
from treadle.tools import Answer, CallStatus, CheckedCall, Decision, Effect, JsonObject, Subject, ToolResult

__all__ = ["Planner"]


# --- Approving: ask the agent's approver about calls that wait for consent, before the run pauses for a person. Decides
# nothing itself.

logger = redacted_logger(__name__)

_threads = Threads()


class Approving:
    """Asks the approver of one run, where it has one."""

    def __init__(self, scope: RunScope) -> None:
        self._approver = scope.about.approver
        self._answered: tuple[str, ...] = ()
        self._seconds = scope.about.approver_seconds
        self._ledger = scope.ledger
        self._session = scope.offering.session
        self._interrupt = scope.interrupt
        self.waiting: dict[str, CheckedCall] = {}
        """Calls that have waited for approval, by id. None where there is no approver."""
        self._asked: dict[str, None] = {}

    def waits(self, call: CheckedCall) -> None:
        """Note a call that waits for approval."""
        if self._approver is not None:
            self.waiting[call.id] = call

    async def answered(self) -> list[CallState]:
        """Ask about each call that waits and has not been asked about. Return those that have their answer now."""
        found: list[CallState] = []
        for state in self._ledger.state.unanswered:
            approval, call = state.approval, self.waiting.get(state.call.id)
            if approval is None or call is None or approval.answer is not None or state.call.id in self._asked:
                continue
            self._asked[state.call.id] = None  # once: an edit that does not fit would come again
            answer = await self._ask(approval, call)
            if answer is not None and self._interrupt.stop is None and await self._record(approval, answer):
                found.append(self._ledger.state.open[state.call.id])
        return found

    async def _ask(self, approval: Approval, call: CheckedCall) -> Answer | None:
        try:
            answer = _as_answer(await self._ask_approver(approval, call), self._name)
            if answer is not None:
                check_answer(
                    answer.answer,
                    reason=answer.reason,
                    arguments=answer.arguments,
                    interrupt=answer.interrupt,
                    by=answer.by,
                )
                check_scope(answer.scope, approval, answer=answer.answer, arguments=answer.arguments)
        except BaseException as error:
            pass_interrupts(error)
            logger.warning("The approver failed; %s waits for a person", call.name, exc_info=True)
            return None
        # Only a person ends plan mode. A model that was told of an allowed plan would find all it does denied.
        is_for_people = call.tool.ends_plan and self._ledger.state.mode == "plan"
        return None if is_for_people and answer is not None and answer.answer == "allow" else answer

    async def _ask_approver(self, approval: Approval, call: CheckedCall) -> Any:  # Any: whatever a stranger answers
        """Return what the approver says; None once the run is to end. A plain function runs in a thread: it may wait for a person.

        Raises:
            TimeoutError: It has not answered in time. A thread cannot be stopped: its answer is not heard any more.
        """
        approver: Any = self._approver
        if hasattr(approver, "decide"):  # a policy is an approver, too: it is asked in the loop, as every policy is
            said = approver.decide(call, self._session)
        else:
            function = getattr(approver, "approve", approver)
            said = (
                function(approval)
                if is_async(function)
                else _threads.submit(lambda: kept_inside(lambda: function(approval)))
            )
        for _ in range(2):  # a plain function may return a coroutine
            said = await self._in_time(said) if inspect.isawaitable(said) else said
        return said

    async def _in_time(self, said: Awaitable[Any]) -> Any:
        waiting = said if isinstance(said, asyncio.Future) else asyncio.ensure_future(contained(said))
        try:
            if await self._interrupt.wait_for(waiting, self._seconds):
                return waiting.result()
        finally:
            waiting.cancel()
        if self._interrupt.stop is None:
            raise TimeoutError(f"no answer within {self._seconds:g} seconds")
        return None

    def has_answered(self, approval_id: str) -> bool:
        """Whether the program has answered a request in this run, in place of a person."""
        return approval_id in self._answered

    @property
    def _name(self) -> str:
        kind = "policy" if hasattr(self._approver, "decide") else "approver"
        own = getattr(self._approver, "__name__", type(self._approver).__name__)
        return f"{kind}:{own}"

    async def _record(self, approval: Approval, answer: Answer) -> bool:
        """Record an answer, unless the call was answered meanwhile. Return whether it was recorded."""
        journal, session_id = self._ledger.journal, self._ledger.state.id
        message = LeftAnswer(
            id=answer_id(approval),
            approval_id=approval.id,
            answer=answer.answer,
            reason=answer.reason,
            approved_by=answer.by,
            at=self._ledger.store_time(),
            arguments=answer.arguments,
            interrupt=answer.interrupt,
            scope=answer.scope,
        )
        if not await journal.put(session_id, message):
            return False
        self._answered = (*self._answered, approval.id)
        await self._ledger.record(*answer_events(message, [approval]), durable=True)
        await journal.consume(session_id, [message.id], self._ledger.state.head)
        return True


def _as_answer(said: Any, by: str) -> Answer | None:
    """Return what an approver has said as an answer; None where it leaves the call to a person.

    Raises:
        ConfigurationError: The answer is invalid.
    """
    match said:
        case None:
            return None
        case Answer():
            return said if said.by else msgspec.structs.replace(said, by=by)
        case "allow" | "deny":
            return Answer(answer=said, by=by)
        case Decision() if said.kind in ("allow", "deny"):
            reason = said.message or said.reason
            return Answer(
                answer="allow" if said.kind == "allow" else "deny",
                reason=reason,
                arguments=said.arguments,
                interrupt=said.interrupt,
                by=by,
            )
        case Decision():
            return None  # it asks, too
        case _:
            raise ConfigurationError(
                f"An approver answers with an Answer, 'allow', 'deny' or None; got a {type(said).__name__}."
            )


# --- Planning: what happens to each call of a batch: refused, denied, asked about, adopted, or ready to run.

_CALLS_A_TURN = 64


class Planner:
    """Plans the batches of one run."""

    def __init__(
        self,
        scope: RunScope,
        *,
        checker: Checker,
        early: EarlyCalls,
        tries: Tries,
        progress: Progress,
    ) -> None:
        self._skips_behind = scope.about.on_denial == "skip"
        self._ledger = scope.ledger
        self._states = scope.states
        self._top = scope.top
        self._session = scope.offering.session
        self._checker = checker
        self._early = early
        self._interrupt = scope.interrupt
        self._tries = tries
        self._progress = progress
        self._approval_seconds = scope.about.approval_seconds
        self.approving = Approving(scope)
        self._several: dict[str, list[bool]] = {}
        """Which files of calls that wait for a call which acts have several names (hard links): it may give them another."""

    async def plan(self, batch: Batch, finisher: Finisher) -> Plan:
        """Return one decision a call, in call order. Nothing has run yet."""
        proposal = batch.proposal
        self._several.clear()
        plan = Plan(finisher=finisher, stop=None if proposal is None else proposal.stop)
        if proposal is not None and (failure := proposal.failure) is not None:
            for state in batch.calls:
                self._refuse(plan, state, refusals.undecided(state.call, failure))
            return plan
        found: list[_Found] = []
        unstarted = 0
        interrupting: CallDecided | None = None
        for index, state in enumerate(batch.calls):
            if index % _CALLS_A_TURN == _CALLS_A_TURN - 1:
                await asyncio.sleep(0)  # others have a turn: a batch may have a thousand calls
            call = await self._prepare(batch, unstarted, state)
            found.append((state, call))
            unstarted += state.started is None
            if interrupting is None and isinstance(call, Decided) and call.decision.interrupt:
                interrupting = call.event()
        if interrupting is not None:
            self._stop_for_person(plan, found, interrupting)
        elif self._skips_behind and any(isinstance(call, Decided) and call.is_denied for _, call in found):
            self._send(plan, batch, _without_those_behind(found))
        else:
            self._send(plan, batch, found)
        return plan

    def _send(self, plan: Plan, batch: Batch, found: "Sequence[_Found]") -> None:
        """Send each call where its decision says, unless the response repeats others too often."""
        keys = self._keys(found)
        # Calls that are all invalid have a guard of their own.
        is_compared = any(keys) and not all(_is_invalid(call) for _, call in found)
        repetition = self._tries.repetition(keys) if is_compared else None
        if repetition is not None and repetition.is_over:
            self._stop_repeating(plan, found, keys, repetition)
        elif self._progress.is_at_its_end and self._is_stale(batch):
            for state, _ in found:
                self._refuse(plan, state, refusals.stale(state), rule="guard no_progress")
        else:
            count = 1 if repetition is None else repetition.count
            seen: dict[str, int] = {}
            for (state, call), key in zip(found, keys, strict=True):
                nth = seen[key] = seen.get(key, 0) + 1
                self._route(plan, state, call, key=key, count=max(nth, count), nth=nth)

    def _keys(self, found: "Sequence[_Found]") -> list[str]:
        """Return what makes each call equal to others, empty for one that repeats nothing."""
        tries = self._tries
        if not tries.compares and len(found) == 1:
            return [""]  # there is nothing to compare it with
        keys: list[str] = []
        for state, call in found:
            is_no_try = isinstance(call, Refused) and call.is_skipped and call.result.code == NOT_STARTED
            keys.append("" if is_no_try else tries.key(state.call, call.digest))
        return keys

    async def _prepare(self, batch: Batch, before: int, state: CallState) -> Prepared:
        """Find out what a call is, before anything becomes of any call of its response.

        Args:
            before: How many calls of the batch come before it and have not started.
        """
        call = state.call
        if not self._early.is_unused and (early := self._early.find(call)) is not None:
            return Adopted(early=early)
        skipped = self._skipped(batch, before, state)
        checked = None if skipped is not None else await self._check(state, batch)
        if checked is not None:
            return checked
        skipped = skipped or refusals.stopped(state)
        digest = "" if skipped.code == NOT_STARTED else self._checker.digest_of(call)
        return Refused(result=skipped, digest=digest, is_skipped=True)

    def _skipped(self, batch: Batch, before: int, state: CallState) -> ToolResult | None:
        """Return the result of a call that may not start, whatever it is."""
        proposal = batch.proposal
        if proposal is not None:
            why = proposal.refusal
            if why is None and proposal.tool_choice != "auto":
                why = refusals.forbidden_by(proposal.tool_choice, state.call.name)
            if why is not None or state.call.id in proposal.cut_calls:
                return refusals.cut_off(state) if why is None else refusals.forbidden_by_response(state, why)
        if batch.allowance is not None and before >= batch.allowance and _is_due(state):
            return refusals.over_budget(state, "max_tool_calls", had_consent=consent.is_allowed(state))
        if proposal is not None and proposal.stop is not None:
            return refusals.stops_here(state)
        if self._interrupt.stop is not None:
            return refusals.stopped(state)
        run = self._ledger.state.run
        if run is not None and isinstance(run.interrupted_by, CallDecided):
            return refusals.interrupted(state, run.interrupted_by.tool)  # its process died before it recorded that end
        return None

    async def _check(self, state: CallState, batch: Batch) -> Checked | None:
        """Return the checked call with a person's word on it, where there is one; None when the run was stopped meanwhile."""
        approval, proposal = state.approval, batch.proposal
        checked = await self._checked(state, batch, earlier=None if approval is None else approval.edited)
        if self._has_doubts:
            checked = self._like_doubt(checked, state)
        if approval is not None or (proposal is not None and state.call.id in proposal.repeated_calls):
            checked = _doubted(checked, state, batch)
        if state.decision is not None:
            checked = _unchanged(checked, state)
        answer = None if approval is None else consent.answer_of(state)
        if checked is None or answer is None or isinstance(checked, Refused):
            return checked
        if answer.answer == "deny":
            return _ruled(checked, state)
        if not consent.covers(state, checked.call, self._ledger.state.id) or consent.is_new_danger(
            state, checked.decision
        ):
            return checked  # given too late, for another action, or before it led to a protected file: it is asked about again
        if answer.arguments is None:
            return _ruled(checked, state)
        return await self._edited(checked, answer.arguments, state, batch)

    def _like_doubt(self, checked: Checked | None, state: CallState) -> Checked | None:
        """Ask a person about a call that equals one in doubt: run under a new key, it could act a second time."""
        if not isinstance(checked, Decided) or _is_under_way(state, checked.call):
            return checked
        question = self._equals_doubt(checked.call)
        return checked if question is None else _asked_about(checked, question)

    @property
    def _has_doubts(self) -> bool:
        own, *others = self._states
        is_own = bool(own.doubts or own.doubts_below)
        return is_own or (bool(others) and any(state.doubts or state.doubts_below for state in others))

    def _equals_doubt(self, call: CheckedCall) -> Decision | None:
        if call.effect not in (Effect.KEYED, Effect.UNSAFE):
            return None
        doubt = next((one for state in self._states for one in state.doubtful() if is_equal(one, call)), None)
        return None if doubt is None else consent.equals_doubt(doubt)

    def stand(self, calls: Sequence[CheckedCall]) -> bool:
        """Whether what was decided on calls still holds, now that they start."""
        return not any(map(self._is_outdated, calls))

    def _is_outdated(self, call: CheckedCall) -> bool:
        """Whether a call was decided on in another mode, or for another folder or files; or equals one whose outcome has become
        unknown since, and no person has allowed it."""
        state = self._ledger.state.open.get(call.call.id)
        has_begun = state is not None and state.started is not None and (state.suspended or call.tool.resumes)
        if not has_begun:
            if call.decision is not None and call.decision.mode != self._top.mode:
                return True
            if (call.tool.line is not None or self._several) and self._is_elsewhere(call):
                return True
        if state is None or not self._has_doubts or _is_under_way(state, call) or consent.is_allowed(state):
            return False
        return self._equals_doubt(call) is not None

    def _is_elsewhere(self, call: CheckedCall) -> bool:
        """Whether a call would start in another folder, or touch other files, than those for which it was decided on."""
        if call.tool.line is not None:
            now = placed(call, self._ledger.state.facts.values)
            return (call.folder, call.files) != (now.folder, now.files)
        # A tool that opens files itself refuses a path that leads elsewhere.
        return call.call.id in self._several and self._several[call.call.id] != _with_other_names(call)

    async def decide_anew(self, calls: Sequence[CheckedCall], batch: Batch, finisher: Finisher) -> Plan:
        """Return the plan of calls that are to start, each decided on as things stand now."""
        plan = Plan(finisher=finisher, acts=True)
        proposed = {state.call.id: state for state in batch.calls}
        for call in calls:
            if not self._is_outdated(call):
                plan.ready.append(call)
                continue
            state = self._ledger.state.open.get(call.id, proposed[call.id])
            found = await self._prepare(batch, 0, state)
            if isinstance(found, Decided) and found.decision.interrupt:
                plan.stop = interrupted_stop(found.event())
            self._route(plan, state, found)
        return plan

    async def _edited(self, asked: Decided, arguments: JsonObject, state: CallState, batch: Batch) -> Checked | None:
        """Return the call with the arguments that a person has put in place of the model's."""
        edited = await self._checked(state, batch, edited=arguments)
        if isinstance(edited, Refused):
            return _asked_instead(asked, consent.unfit_edit(edited.result.message or ""))
        if edited is None or edited.proposed.arguments != msgspec.json.encode(arguments).decode():
            if edited is None or edited.decision.kind != DecisionKind.ASK:
                return edited
            # An interceptor, a hook or a policy made it another action than the one consented to.
            return msgspec.structs.replace(edited, decision=consent.changed_edit(edited.decision))
        if consent.is_new_danger(state, edited.decision):
            return _asked_instead(asked, consent.dangerous_edit(edited.decision.reason))
        return _ruled(edited, state)

    async def _checked(
        self,
        state: CallState,
        batch: Batch,
        *,
        edited: JsonObject | None = None,
        earlier: JsonObject | None = None,
    ) -> Checked | None:
        """Check a call. A policy or an interceptor that hangs does not outlive an interrupt.

        Args:
            edited: Arguments of the last answer, in place of the model's.
            earlier: Those of an answer before: what has been asked since follows from them.
        """
        if batch.exhausted is not None and _is_due(state):
            refused = await self._checker.refusal(state.call, position=state.position, step=batch.step)
            if refused is not None:
                return refused
            result = refusals.over_budget(state, batch.exhausted, had_consent=consent.is_allowed(state))
            return Refused(result=result, digest=self._checker.digest_of(state.call))
        if not self._early.is_unused and (known := self._early.checked(state.call)) is not None:
            return known
        is_new = edited is not None or state.decision is None  # most calls: they need not enter `consent` for it
        recorded = None if is_new else consent.recorded_decision(state)
        checking = self._checker.check(
            state.call,
            position=state.position,
            step=batch.step,
            edited=earlier if edited is None else edited,
            recorded=recorded,
        )
        checked: Checked | None = None
        if self._checker.may_wait:
            with self._interrupt.cancel_scope():
                checked = await checking
        else:
            checked = await checking
        if state.started is None or not isinstance(checked, Decided):
            return checked
        return msgspec.structs.replace(checked, decision=consent.still_boxed(checked.decision, state))

    def _route(
        self, plan: Plan, state: CallState, call: Prepared, *, key: str = "", count: int = 1, nth: int = 1
    ) -> None:
        """Send a call where its decision says.

        Args:
            key: What makes it equal to others; empty for a call that repeats nothing.
            count: How often it has been proposed in a row.
            nth: The same within its response.
        """
        if count > 1 and key and not _is_invalid(call):
            self._notice_repeat(plan, state, call.digest, count)
        match call:
            case Adopted():
                plan.adopted.append((call.early, call.early))
            case Refused():
                self._refuse(plan, state, call.result, digest=call.digest)
            case Decided():
                self._carry_out_decision(plan, state, call, nth if key else 0)

    def _carry_out_decision(self, plan: Plan, state: CallState, decided: Decided, nth: int) -> None:
        kind, may_start = decided.decision.kind, self._checker.may_start(decided)
        limit = self._tries.most_in_response
        is_too_often = limit is not None and nth >= limit and not decided.call.effect.is_read
        if is_too_often and (may_start or kind == DecisionKind.ASK):
            message = refusals.too_often_message(state.call.name, nth - 1)
            self._refuse_repeat(plan, state, decided.digest, message, nth)
        elif may_start:
            self._let_start(plan, state, decided)
        elif kind == DecisionKind.ASK:
            self.approving.waits(decided.call)
            plan.events.append(decided.event())
            now, session_id = self._ledger.store_time(), self._ledger.state.id
            if not consent.is_asked_about(state, decided.call, session_id, now=now):
                plan.events.append(self._request(state, decided))
        else:
            result = refusals.denied(state, decided.call, decided.decision)
            plan.events.extend((decided.event(), plan.finisher.finished(result)))

    def _let_start(self, plan: Plan, state: CallState, decided: Decided) -> None:
        call = decided.may_run
        plan.events.append(decided.event())
        if call.tool.ends_plan:
            plan.events += self._plan_ended(state)
        is_taken = decided.decision.kind == DecisionKind.ALLOW and not (plan.acts or self._early.is_unused)
        kept = self._early.take(call) if is_taken else None
        if kept is not None:
            plan.adopted.append((call, kept))
            return
        plan.ready.append(call)
        if plan.acts and call.tool.subjects is not None:
            self._several[call.id] = _with_other_names(call)
        plan.acts = plan.acts or not call.effect.is_read

    def _plan_ended(self, state: CallState) -> list[AnyEvent]:
        """Return the end of plan mode, where a person has allowed the plan of this call with edits, which are valid now."""
        answer = consent.answer_of(state) if self._ledger.state.mode == "plan" else None
        if answer is None or answer.answer != "allow" or self.approving.has_answered(answer.approval_id):
            return []
        return plan_ended(answer.approved_by, answer.approval_id)

    def _stop_for_person(self, plan: Plan, found: "Sequence[_Found]", interrupting: CallDecided) -> None:
        """End the run because a decision says so: what has started early ends, and nothing else starts."""
        for state, call in found:
            if isinstance(call, Decided) and not call.is_denied:
                self._refuse(plan, state, refusals.interrupted(state, interrupting.tool))
            else:
                self._route(plan, state, call)
        plan.stop = interrupted_stop(interrupting)

    # --- repetition

    def _is_stale(self, batch: Batch) -> bool:
        return batch.proposal is not None and self._progress.is_stale([state.call for state in batch.calls])

    def _notice_repeat(self, plan: Plan, state: CallState, digest: str, count: int) -> None:
        plan.events.append(RepeatNoticed(call_id=state.call.id, tool=state.call.name, digest=digest, count=count))

    def _stop_repeating(
        self, plan: Plan, found: "Sequence[_Found]", keys: Sequence[str], repetition: Repetition
    ) -> None:
        """End the run: what has started early ends, and nothing else starts."""
        repeated = [one for one, key in zip(found, keys, strict=True) if key]
        message = refusals.repeated_message({state.call.name for state, _ in repeated}, repetition)
        for (state, call), key in zip(found, keys, strict=True):
            if isinstance(call, Adopted) or (isinstance(call, Refused) and call.is_skipped):
                self._route(plan, state, call)
            else:
                if repetition.count > 1 and key and not _is_invalid(call):
                    self._notice_repeat(plan, state, call.digest, repetition.count)
                self._refuse_repeat(plan, state, call.digest, message, repetition.count)
        first, first_call = repeated[0]
        details = {"tool": first.call.name, "arguments_digest": first_call.digest, "count": repetition.count}
        details |= {"responses": repetition.period, "results": "equal" if repetition.has_equal_results else "different"}
        plan.stop = Stop(reason=StopReason.REPEATED_TOOL_CALL, message=message, asks_closing=True, details=details)

    def _refuse_repeat(self, plan: Plan, state: CallState, digest: str, message: str, count: int) -> None:
        details = {"tool": state.call.name, "arguments_digest": digest, "count": count}
        result = refusals.repeated(state, message, details)
        self._refuse(plan, state, result, rule="guard repeats", digest=digest)

    def _refuse(self, plan: Plan, state: CallState, result: ToolResult, *, rule: str = "", digest: str = "") -> None:
        decided = CallDecided(
            call_id=result.call_id,
            tool=result.name,
            decision="none",
            rule=rule or result.code or result.status.value,
            position=state.position,
            digest=digest,
        )
        plan.events.extend((decided, plan.finisher.finished(result)))

    def _request(self, state: CallState, decided: Decided) -> ApprovalRequested:
        return consent.request(
            state,
            decided.call,
            decided.decision,
            session=self._session,
            token=self._ledger.randomness.token(),
            expires_at=self._ledger.store_time() + self._approval_seconds,
            edited=decided.edited,
        )


def _with_other_names(call: CheckedCall) -> list[bool]:
    """Say of each file that a call names whether it has other names (hard links)."""
    return [has_other_names(one) for one in (subjects_of(call) or {}).values() if isinstance(one, Subject)]


def _is_under_way(state: CallState, call: CheckedCall) -> bool:
    """Whether a call has started, and does not wait for something outside: what equals it cannot keep it from acting any more."""
    return state.started is not None and (state.suspended is None or call.tool.resumes)


def _is_due(state: CallState) -> bool:
    """Whether a call would start now: it has not before, and no person has denied it."""
    return state.started is None and not consent.is_denied(state)


_Found: TypeAlias = tuple[CallState, Prepared]
"""A call of a response, and what it is."""


def _is_invalid(call: Prepared) -> bool:
    """Whether a call is not one that a guard against repetition counts: its arguments are invalid, or it may not start."""
    return isinstance(call, Refused) and (call.is_skipped or call.result.status is not CallStatus.UNKNOWN_TOOL)


def _without_those_behind(found: Sequence[_Found]) -> list[_Found]:
    """Skip the calls that come after a denied one, where the agent wants that."""
    kept: list[_Found] = []
    denied: str | None = None
    for state, call in found:
        is_behind = denied is not None and state.started is None
        if is_behind and not (isinstance(call, Adopted) or (isinstance(call, Refused) and call.is_skipped)):
            skipped = refusals.behind_denied(state, denied or "")
            kept.append((state, Refused(result=skipped, digest=call.digest, is_skipped=True)))
            continue
        if denied is None and isinstance(call, Decided) and call.is_denied:
            denied = state.call.name
        kept.append((state, call))
    return kept


def _ruled(decided: Decided, state: CallState) -> Decided:
    """Put a person's word in place of the policy's. It cannot lift what the policy forbids."""
    approval = state.approval
    assert approval is not None
    return msgspec.structs.replace(decided, decision=consent.ruled(decided.decision, approval))


def _asked_instead(decided: Decided, question: Decision) -> Decided:
    return msgspec.structs.replace(decided, decision=consent.asked_instead(decided.decision, question))


def _asked_about(decided: Decided, question: Decision) -> Decided:
    """Ask a person about a call that would run, or that a person is asked about for another reason."""
    decision = decided.decision
    if decision.kind == DecisionKind.ASK:
        return msgspec.structs.replace(decided, decision=consent.asked_besides(decision, question))
    return _asked_instead(decided, question) if decision.kind in _RUNNING else decided


def _doubted(checked: Checked | None, state: CallState, batch: Batch) -> Checked | None:
    """Ask about a call that may be the repetition of another one, where acting twice would matter."""
    is_repeated = batch.proposal is not None and state.call.id in batch.proposal.repeated_calls
    if not is_repeated and (state.approval is None or not consent.was_reported_twice(state)):
        return checked
    if not isinstance(checked, Decided) or checked.call.effect.is_read:
        return checked
    return _asked_about(checked, consent.may_be_repeated())


def _unchanged(checked: Checked | None, state: CallState) -> Checked | None:
    """Refuse a call that was allowed before, where what would start now is not what was allowed."""
    decided = state.decision
    if not isinstance(checked, Decided) or decided is None or decided.decision not in _RUNNING:
        return checked
    if decided.digest in ("", checked.call.digest) or decided.arguments is not None:
        return checked  # a person's or an interceptor's arguments are compared where they are put in
    return Refused(result=refusals.changed(state))


_RUNNING = (DecisionKind.ALLOW, DecisionKind.DRAFT, DecisionKind.SANDBOX)
