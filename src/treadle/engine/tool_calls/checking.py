"""Checking: from a proposed call to a decided one. Look up, parse, validate, intercept, decide; nothing runs here."""

import asyncio
import inspect
from collections.abc import Sequence
from sys import intern
from typing import Any, TypeAlias

import msgspec

from treadle.canonical import call_digests, copied, digest, encoded, execution_id
from treadle.engine.offering import Offering
from treadle.engine.rules.bounds import bound, with_fields
from treadle.engine.rules.failures import FailureText, pass_interrupts
from treadle.engine.scope import RunScope
from treadle.engine.tool_calls import refusals
from treadle.errors import InvalidArguments, InvalidJson, Rejected
from treadle.events import AnyEvent, CallDecided, ModelFinished, ToolFinished, ToolStarted
from treadle.messages import ToolCall
from treadle.permissions.lines import facts_in, resolved, start_folder
from treadle.permissions.modes import in_mode, is_of_rules, with_approval, with_protection
from treadle.permissions.policies import default_decision, failed_policy, opinion, stricter
from treadle.ports import CallsInText, DecisionFailure, Policy, SessionView
from treadle.redaction import redacted_logger
from treadle.state import CallState, SessionState
from treadle.stops import Stop
from treadle.tools import (
    DEFAULT_MODE,
    CheckedCall,
    Decision,
    DecisionKind,
    JsonObject,
    Mode,
    Runner,
    Tool,
    ToolResult,
    business_key,
)
from treadle.tools.results import failure_class

__all__ = ["Adopted", "Batch", "Checked", "Checker", "Decided", "Finisher", "Plan", "Prepared", "Proposal", "Refused"]

logger = redacted_logger(__name__)

_LONG_ARGUMENTS = 16 * 1024
"""Characters."""
_MOST_CHANGES = 8
"""How often a policy may change the arguments of one call before that is taken for a fault of the policy's."""


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A valid call and the decision on it."""

    call: CheckedCall
    decision: Decision
    edited: JsonObject | None = None
    """Arguments that a person has put in place of the model's, from which the call follows."""

    @property
    def is_rewritten(self) -> bool:
        """Whether a policy, an interceptor or an approver changed the model's arguments."""
        return self.decision.arguments is not None

    @property
    def may_run(self) -> CheckedCall:
        """The call with the decision by which it runs."""
        return msgspec.structs.replace(self.call, decision=self.decision)

    @property
    def proposed(self) -> ToolCall:
        """The call as it was checked: with the arguments that an interceptor or an approver has put in."""
        return self.call.call

    @property
    def digest(self) -> str:
        return self.call.digest

    @property
    def is_denied(self) -> bool:
        return self.decision.kind == DecisionKind.DENY

    def event(self, *, early: bool = False, step: int = 0) -> CallDecided:
        call, decision = self.call, self.decision
        return CallDecided(
            call_id=call.call.id,
            step=step,
            tool=call.tool.name,
            decision=intern(str(decision.kind)),
            rule=decision.rule,
            reason=decision.reason,
            effect=call.effect,
            digest=call.digest,
            key=call.key,
            position=call.position,
            early=early,
            arguments=None if decision.arguments is None else copied(decision.arguments),
            scope=decision.scope,
            by=decision.by,
            mode=decision.mode,
            message=decision.message,
            interrupt=decision.interrupt,
            risk=call.tool.risk_of(call.arguments, call.effect),
        )


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A call that never runs, with its result."""

    result: ToolResult
    digest: str = ""
    """Of its tool and arguments, where these are valid."""
    is_skipped: bool = False
    """Whether it may not start whatever it is: it was not looked at."""

    @property
    def rule(self) -> str:
        return self.result.code or self.result.status.value


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """A call that has started early: that start is its own."""

    early: CheckedCall

    @property
    def digest(self) -> str:
        return self.early.digest


Checked: TypeAlias = Decided | Refused
Prepared: TypeAlias = Decided | Refused | Adopted
"""What a call of a response is, before anything becomes of any of them."""


class Checker:
    """The first half of the pipeline, in one order: look up > parse > validate > intercept > decide (V05).

    Args:
        above: The policies of the runs that called this one.
        top: The state of the session that a person runs: its mode holds.
        sandbox: Where calls run that are decided to.
    """

    def __init__(
        self,
        scope: RunScope,
        *,
        offering: Offering,
        policy: Policy | None,
        above: Sequence[Policy],
        top: SessionState,
        callers: Sequence[SessionState] = (),
        sandbox: Runner | None = None,
        failure_text: FailureText = "short",
    ) -> None:
        self._failure_text: FailureText = failure_text
        self.callers = callers
        """The states of the sessions whose calls this one carries out, the nearest first."""
        self._offering = offering
        self._contracts = offering.contracts
        self._policy = policy
        self._above = above
        self._hooks = hooks = scope.hooks
        self._session = offering.session
        self._session_id = offering.session.id
        self.top = top
        self._sandbox = sandbox
        policies = above if policy is None else (policy, *above)
        self._has_policy = bool(policies)
        self._is_of_rules = all(map(is_of_rules, policies))
        self.may_wait = not self._is_of_rules or hooks.sees_calls or offering.validates
        """Whether a check may take its time, because somebody else's code has a say in it."""

    @property
    def session(self) -> SessionView:
        """The session whose calls are checked, as policies see it."""
        return self._session

    @property
    def mode(self) -> Mode:
        """The session's mode as it stands."""
        return self.top.mode

    def may_start(self, decided: Decided) -> bool:
        """Whether a decision lets the call run: as it is, or in a sandbox that is there and that its tool has a form for."""
        kind = decided.decision.kind
        is_boxed = kind == DecisionKind.SANDBOX and self._sandbox is not None and decided.call.tool.sandbox is not None
        return kind in (DecisionKind.ALLOW, DecisionKind.DRAFT) or is_boxed

    async def check(
        self,
        proposed: ToolCall,
        *,
        position: int,
        step: int,
        edited: JsonObject | None = None,
        recorded: Decision | None = None,
        otherwise: Tool | None = None,
    ) -> Checked:
        """Return the decided call, or why it can never run. Never raises for what the model wrote.

        Args:
            edited: Arguments that an approver put in place of the model's; checked like any others.
            recorded: What was decided on the call before a pause or a crash: a policy's change of its arguments stays the same.
            otherwise: What the call means where no tool has its name; None to refuse it.
        """
        place = _Place(position=position, step=step, otherwise=otherwise)
        try:
            call = await self._fitting(proposed if edited is None else _edited(proposed, edited), place)
            asked = call.digest if edited is None else await self._digest(proposed, place)
            blocked, changed = await self._hooks.before_tool(call) if self._hooks.sees_calls else (None, call.call)
            if changed is not call.call:
                call = await self._changed("hook", changed, place)
            decision, call = await self._judge(call, blocked, recorded, place)
            if recorded is not None and recorded.kind == DecisionKind.DRAFT:
                decision = stricter(decision, recorded)
            drafted = None
            if decision.kind == DecisionKind.DRAFT:
                drafted = call
                decision, call = await self._draft(decision, call, place)
        except _Unfit as unfit:
            return Refused(result=unfit.result)
        if call.tool.requires_approval or call.tool.leaves_sandbox:
            decision = with_approval(decision, call)
        if not (
            call.effect.is_read and call.tool.line is None and call.tool.subjects is None
        ):  # such a one reaches no file
            decision = with_protection(decision, call, facts_in(self._session))
        mode = self.top.mode
        if mode != DEFAULT_MODE:
            decision = in_mode(mode, decision, call)
        if decision.kind == DecisionKind.ASK:
            decision = await self._unattended(decision, call)
        is_changed = (drafted or call).digest != asked or (drafted is not None and drafted.arguments != call.arguments)
        arguments = copied(call.arguments) if is_changed else None
        if (decision.mode, decision.arguments) != (mode, arguments):
            decision = msgspec.structs.replace(decision, mode=mode, arguments=arguments)
        return Decided(call=call, decision=decision, edited=edited)

    async def _judge(
        self, call: CheckedCall, word: Decision | None, recorded: Decision | None, place: "_Place"
    ) -> tuple[Decision, CheckedCall]:
        """Ask the policies, and again about arguments that one puts in place of the model's, until all leave them.

        Each answer can only tighten those before it: nobody allows a call by changing what somebody else has decided on.

        Args:
            word: What hooks have said; None where they left it to the policies.
        """
        if word is None and not self._has_policy:
            return default_decision(call, self._session), call
        decision = word
        call = call if recorded is None else msgspec.structs.replace(call, decision=recorded)
        kept = None if recorded is None else recorded.arguments
        for _ in range(_MOST_CHANGES):
            before = call.digest
            for policy in (self._policy, *self._above):
                if decision is not None and decision.kind == DecisionKind.DENY:
                    return decision, call
                own = await self._decide(policy, call, is_above=policy is not self._policy)
                if own is None:
                    continue
                changed = own.arguments if own.arguments is None or kept is None else kept
                own = own if changed is None else msgspec.structs.replace(own, arguments=None)
                decision = own if decision is None else stricter(decision, own)
                if changed is not None and decision.kind != DecisionKind.DENY:
                    fitted = await self._changed("policy", _edited(call.call, changed), place)
                    call = call if fitted.digest == call.digest else msgspec.structs.replace(fitted, decision=decision)
            if call.digest == before and decision is not None:
                return decision, call
        return _UNSETTLED, call

    async def _unattended(self, decision: Decision, call: CheckedCall) -> Decision:
        """Return what happens in place of a question to a person, where nobody can be asked."""
        for policy in (self._policy, *self._above):
            instead = getattr(policy, "unattended", None)
            if instead is not None and (own := await self._decide(instead, call, is_above=True)) is not None:
                return own
        return decision

    async def _draft(self, decision: Decision, call: CheckedCall, place: "_Place") -> tuple[Decision, CheckedCall]:
        """Put the tool that prepares in place of the one that commits. What is decided on that one by itself holds beside."""
        name = call.tool.draft
        tool = None if name is None else self._offering.current.find(name)
        if name is None or tool is None:
            why = f"{call.name} may only be drafted, and it has no draft tool here."
            return msgspec.structs.replace(decision, kind=DecisionKind.DENY, reason=why), call
        proposed = msgspec.structs.replace(call.call, name=name, arguments=msgspec.json.encode(call.arguments).decode())
        own, prepared = await self._judge(await self._fitting(proposed, place), None, None, place)
        # Under the name of the call: a result answers the tool that the model has called.
        shown = msgspec.structs.replace(prepared.tool, name=call.name, draft=None)
        # The digest stays that of what prepares: consent to a draft does not cover the call that commits.
        swapped = msgspec.structs.replace(prepared, call=call.call, tool=shown, key=call.key)
        if own.kind == DecisionKind.DRAFT:
            return msgspec.structs.replace(
                own, kind=DecisionKind.DENY, reason=f"{name} may only be drafted itself."
            ), call
        if own.kind != DecisionKind.ALLOW:
            what = f"Only a draft: {name} runs in place of {call.name}, which does not."
            return msgspec.structs.replace(own, reason=f"{what} {own.reason}".strip()), swapped
        message = decision.message or f"Nothing was committed: {name} has prepared it, and {call.name} did not run."
        return msgspec.structs.replace(decision, message=message), swapped

    async def refusal(self, proposed: ToolCall, *, position: int, step: int) -> Refused | None:
        """Return why a call can never run; None where it could. Nobody is asked whether it may."""
        try:
            await self._fitting(proposed, _Place(position=position, step=step))
        except _Unfit as unfit:
            return Refused(result=unfit.result)
        return None

    def digest_of(self, proposed: ToolCall) -> str:
        """Return what makes a call equal to others, though nobody decides on it; empty where its arguments do not fit its tool."""
        tool = self._offering.current.find(proposed.name)
        if tool is None:
            return ""
        try:
            return digest([tool.name, encoded(self._complete(tool, proposed, self._parse(proposed)))])
        except _Unfit:
            return ""

    async def _decide(self, policy: Policy | None, call: CheckedCall, *, is_above: bool) -> Decision | None:
        """Return what a policy says; of one above None where it has no opinion."""
        if policy is None:
            return default_decision(call, self._session)
        try:
            own = await opinion(policy, call if self._is_of_rules else _copy_of(call), self._session)
        except asyncio.CancelledError as error:
            pass_interrupts(error)
            return failed_policy(error)  # it raised this by itself
        return default_decision(call, self._session) if own is None and not is_above else own

    async def _digest(self, proposed: ToolCall, place: "_Place") -> str:
        """Return what tells the model's own call from others; empty where that can no longer run."""
        try:
            return (await self._fitting(proposed, place)).digest
        except _Unfit:
            return ""

    async def _changed(self, who: str, proposed: ToolCall, place: "_Place") -> CheckedCall:
        """Return the call with the arguments that a hook or policy has given it. Raises _Unfit where they are invalid."""
        try:
            return await self._fitting(proposed, place)
        except _Unfit as unfit:
            raise _Unfit(refusals.changed_by(who, proposed, unfit.result)) from unfit

    async def _fitting(self, proposed: ToolCall, place: "_Place") -> CheckedCall:
        """Return the call with its tool and valid arguments. Raises _Unfit where it has none."""
        tool = self._offering.current.find(proposed.name) or place.otherwise
        if tool is None:
            raise _Unfit(self._missing(proposed))
        parsed = self._parse(proposed)
        is_long = len(proposed.arguments) > _LONG_ARGUMENTS
        if is_long:  # others have a turn of the event loop between two looks at them
            await asyncio.sleep(0)
        arguments = parsed if tool is place.otherwise else self._complete(tool, proposed, parsed)
        if is_long:
            await asyncio.sleep(0)
        try:
            if tool.validate is not None and inspect.isawaitable(checking := tool.validate(copied(arguments))):
                await checking
            values = tool.convert(copied(arguments)) if tool.convert is not None else arguments
        except InvalidArguments as error:
            raise _Unfit(refusals.invalid_arguments(proposed, error)) from error
        except Rejected as error:
            raise _Unfit(refusals.unfit(proposed, error)) from error
        except BaseException as error:
            pass_interrupts(error)
            # The tool's author erred, not the model: nothing ran, and the model may try another way.
            logger.warning("Checking the arguments of %s raised", tool.name, exc_info=True)
            raise _Unfit(refusals.unchecked(proposed, error, self._failure_text)) from error
        if is_long:
            await asyncio.sleep(0)
        equal, key = call_digests(self._session_id, place.step, place.position, tool.name, arguments)
        return CheckedCall(
            call=proposed,
            tool=tool,
            arguments=arguments,
            values=values,
            effect=tool.effect_of(arguments),
            position=place.position,
            digest=equal,
            key=key,
            subjects=None if tool.subjects is None else resolved(tool, arguments),
            folder="." if tool.line is None else start_folder(tool, arguments, facts_in(self._session)),
        )

    def _missing(self, proposed: ToolCall) -> ToolResult:
        """Say why there is no such tool now."""
        if (absence := self._offering.absence(proposed.name)) is not None:
            return refusals.unavailable(proposed, *absence)
        return refusals.unknown_tool(proposed, self._offering.current.near(proposed.name))

    def _parse(self, proposed: ToolCall) -> JsonObject:
        try:
            return self._contracts.parse(proposed.arguments)
        except InvalidArguments as error:
            raise _Unfit(refusals.invalid_arguments(proposed, error)) from error
        except InvalidJson as error:
            raise _Unfit(refusals.invalid_json(proposed, error)) from error

    def _complete(self, tool: Tool, proposed: ToolCall, arguments: JsonObject) -> JsonObject:
        try:
            return self._contracts.complete(tool, arguments)
        except InvalidArguments as error:
            raise _Unfit(refusals.invalid_arguments(proposed, error)) from error


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where in its session a call is proposed."""

    position: int
    step: int
    otherwise: Tool | None = None
    """What the call means where no tool has its name."""


_UNSETTLED = Decision(
    kind=DecisionKind.DENY,
    rule="policy never settles",
    reason=f"The policy has changed the arguments {_MOST_CHANGES} times, each time to others. Have it leave what it has changed.",
    scope="runtime",
    by="runtime",
)


class _Unfit(Exception):
    def __init__(self, result: ToolResult) -> None:
        super().__init__(result.message)
        self.result = result


def _copy_of(call: CheckedCall) -> CheckedCall:
    """Return a call for a stranger's policy: what that does to the arguments must not reach the tool past their validation."""
    arguments = copied(call.arguments)
    values = arguments if call.tool.convert is None else call.tool.convert(copied(call.arguments))
    return msgspec.structs.replace(call, arguments=arguments, values=values)


def _edited(proposed: ToolCall, arguments: JsonObject) -> ToolCall:
    """Put an approver's arguments in place of the model's. Whoever gave them was refused what is not JSON."""
    return msgspec.structs.replace(proposed, arguments=msgspec.json.encode(arguments).decode())


# --- Finishing: the events that begin and end a call, with what the runtime adds to its result. Makes events; records
# none.

_LONGEST_SHARE = 4
"""The changed arguments that a result shows take at most one part in so many of it."""


class Finisher(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the `tool.started` and `tool.finished` of each call of one batch."""

    run_id: str
    step: int
    last_id: str
    """The last call of the batch, in call order."""
    state: SessionState
    """Read only: what was decided on the calls."""
    notice: dict[str, Any] | None = None
    """Fields that the last result gains because a limit is reached (seed 002)."""
    result_chars: int | None = None

    def started(
        self, call: CheckedCall, *, sandbox: Runner | None = None, early: ToolCall | None = None, attempt: int = 1
    ) -> ToolStarted:
        """Return the event that begins a call, with the decision by which it runs.

        Args:
            sandbox: Where it runs if that is the decision.
            early: The call as it was proposed, where its response still streams.
            attempt: The model attempt that proposed it.
        """
        decision = call.decision or Decision(kind=DecisionKind.ALLOW)
        is_boxed = decision.kind == DecisionKind.SANDBOX and sandbox is not None
        call_id = call.call.id
        return ToolStarted(
            step=0 if early is None else self.step,
            call_id=call_id,
            tool=call.tool.name,
            key=call.key,
            execution_id=execution_id(self.run_id, self.step, call_id),
            position=call.position,
            effect=call.effect,
            early=early is not None,
            attempt=attempt,
            call=early,
            digest=call.digest,
            business_key="" if call.effect.is_read else business_key(call.tool, call.arguments) or "",
            timeout=None if call.effect.is_read else call.tool.timeout,
            decision=intern(str(decision.kind)),
            rule=decision.rule,
            scope=decision.scope,
            by=decision.by,
            mode=decision.mode,
            sandbox=str(sandbox.name) if sandbox is not None and is_boxed else "",
        )

    def finished(self, result: ToolResult, *, reused_from: str | None = None) -> ToolFinished:
        """Return the event that ends the call of a result."""
        content = result.content
        notes = self._of_decision(result) if result.attempts else {}
        if self.notice is not None and result.call_id == self.last_id:
            notes = {**notes, **self.notice}
        if notes:
            content = self._noticed(result, notes)
        elif self.result_chars is not None and len(content) > self.result_chars:
            content, _ = bound(_value_of(result), content, self.result_chars)
        execution = execution_id(self.run_id, self.step, result.call_id)
        result = msgspec.structs.replace(result, content=content, execution_id=execution)
        failure = failure_class(result) if result.is_error else None
        return ToolFinished(
            step=self.step, call_id=result.call_id, result=result, failure_class=failure, reused_from=reused_from
        )

    def _of_decision(self, result: ToolResult) -> dict[str, Any]:
        """Return what the model is told of the decision by which a call was carried out."""
        call = self.state.open.get(result.call_id) or self.state.early.get(result.call_id)
        decided = None if call is None else call.decision
        if decided is None or not (decided.message or decided.arguments is not None):
            return {}
        notes: dict[str, Any] = {"decision_message": decided.message} if decided.message else {}
        if decided.arguments is None:
            return notes
        limit = None if self.result_chars is None else self.result_chars // _LONGEST_SHARE
        shown, is_shortened = bound(decided.arguments, _json(decided.arguments), limit)
        return {**notes, "arguments_changed": True, "arguments": _decoded(shown) if is_shortened else decided.arguments}

    def _noticed(self, result: ToolResult, notice: dict[str, Any]) -> str:
        """Add notes beside the result's own fields; it is the result that is shortened for it, never a note."""
        value = _value_of(result)
        content = _json(with_fields(value, notice))
        if self.result_chars is None or len(content) <= self.result_chars:
            return content
        room = max(self.result_chars - len(_json(with_fields("", notice))), 1)
        text = value if isinstance(value, str) else _json(value)
        while room > 0:
            short, _ = bound(value, text, room)
            content = _json(with_fields(short if isinstance(value, str) else _decoded(short), notice))
            if len(content) <= self.result_chars:
                return content
            room -= max(len(content) - self.result_chars, room // 8, 1)
        return _json(notice)


def _value_of(result: ToolResult) -> Any:
    """Return what the model would read: the object of a JSON text, or the text itself."""
    if isinstance(result.data, str):
        return result.content
    return _decoded(result.content)


def _decoded(content: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        return content


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# --- Batches: the response, the calls of one step, and what happens to each. Values only: nothing in here is ever
# called.


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """One whole response, not recorded yet."""

    finished: ModelFinished
    calls: tuple[ToolCall, ...] = ()
    """The calls of its message."""
    refusal: str | None = None
    """Why none of its calls may start; None when they may."""
    cut_calls: frozenset[str] = frozenset()
    """Ids of calls whose end may be missing: they may not start, whatever the response says of itself."""
    repeated_calls: frozenset[str] = frozenset()
    """Ids of calls that may be the repetition of an earlier one in it: a person decides, unless they only read."""
    failure: DecisionFailure | None = None
    """Why the driver found no usable decision in it, so that its one call stands for that; None when it did."""
    calls_in_text: CallsInText | None = None
    """The calls that its text consists of, which the server has not read. They never run, and the text does not end the run."""
    stop: Stop | None = None
    """Why the run ends with this response, whatever is in it; None when that depends on it."""
    tool_choice: str = "auto"
    """What was asked for. A server may ignore it; then the calls that it forbade do not start."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one step that have no result yet."""

    calls: Sequence[CallState]
    step: int
    proposal: Proposal | None = None
    """The response that proposed them; None where it is recorded already, and the run continues with what it had left."""
    allowance: int | None = None
    """How many of the calls that have not started the budget still covers, the first ones; None for all."""
    exhausted: str | None = None
    """The budget that is used up, so that no call may start that has not started before; None when there is none."""
    notice: dict[str, Any] | None = None
    """Fields that the last result gains because a limit is reached."""


class Plan(msgspec.Struct, kw_only=True):
    """What happens to each call of the batch, in call order."""

    finisher: Finisher
    events: list[AnyEvent] = msgspec.field(default_factory=list)
    """To be recorded before a call starts: the decisions, and the results of calls that do not run."""
    ready: list[CheckedCall] = msgspec.field(default_factory=list)
    adopted: list[tuple[CheckedCall, CheckedCall]] = msgspec.field(default_factory=list)
    """Calls that have started early, and the early calls whose results they get."""
    stop: Stop | None = None
    acts: bool = False
    """Whether one that is ready may change something. What was read before it is not an answer to a read after it."""
