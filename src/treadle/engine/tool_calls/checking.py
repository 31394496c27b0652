"""Checking: from a proposed call to a decided one. Look up, parse, validate, intercept, decide; nothing runs here."""

import asyncio
import inspect

import msgspec

from treadle.canonical import call_digests, copied, digest, encoded
from treadle.engine.rules.failures import pass_interrupts
from treadle.engine.scope import RunScope
from treadle.engine.tool_calls import refusals
from treadle.engine.tool_calls.calls import Checked, Decided, Refused
from treadle.errors import InvalidArguments, InvalidJson, Rejected
from treadle.messages import ToolCall
from treadle.permissions.denied import with_reachable
from treadle.permissions.lines import facts_in, placed, resolved
from treadle.permissions.modes import in_mode, is_of_rules, with_approval, with_protection
from treadle.permissions.policies import default_decision, failed_policy, opinion, stricter
from treadle.ports import Policy
from treadle.redaction import redacted_logger
from treadle.tooling.toolbox import Completed
from treadle.tools import (
    DEFAULT_MODE,
    CheckedCall,
    Decision,
    DecisionKind,
    JsonObject,
    Tool,
    ToolResult,
)

__all__ = ["Checker"]

logger = redacted_logger(__name__)

_LONG_ARGUMENTS = 16 * 1024
"""Characters."""
_MOST_CHANGES = 8
"""How often a policy may change the arguments of one call before that is taken for a fault of the policy's."""


class Checker:
    """The first half of the pipeline, in one order: look up > parse > validate > intercept > decide (V05)."""

    def __init__(self, scope: RunScope) -> None:
        about = scope.about
        self._failure_text = about.failure_text
        self._is_strict = about.strict
        self._offering = offering = scope.offering
        self._contracts = offering.contracts
        self._policy = policy = about.policy
        self._above = above = about.policies_above
        self._hooks = hooks = scope.hooks
        self._session = offering.session
        self._session_id = offering.session.id
        self._top = scope.top
        self._sandbox = about.sandbox
        self._lifts = getattr(about.sandbox, "lifts", None)
        policies = above if policy is None else (policy, *above)
        self._has_policy = bool(policies)
        self._is_of_rules = all(map(is_of_rules, policies))
        self.may_wait = not self._is_of_rules or hooks.sees_calls or offering.validates
        """Whether a check may take its time, because somebody else's code has a say in it."""

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
        if call.permission == "always_ask" or call.tool.leaves_sandbox or call.tool.needs:
            decision = with_reachable(decision, call, (self._policy, *self._above), self._session)
            decision = with_approval(decision, call, self._lifts)
        if not (
            call.effect.is_read and call.tool.line is None and call.tool.subjects is None
        ):  # such a one reaches no file
            decision = with_protection(decision, call, facts_in(self._session))
        mode = self._top.mode
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
            return digest([tool.name, encoded(self._complete(tool, proposed, self._parse(proposed)).arguments)])
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
        completed = Completed(arguments=parsed)
        if tool is not place.otherwise:
            completed = self._complete(tool, proposed, parsed)
        arguments = completed.arguments
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
        call = CheckedCall(
            call=proposed,
            tool=tool,
            arguments=arguments,
            is_converted=completed.is_converted,
            values=values,
            effect=tool.effect_of(arguments),
            position=place.position,
            digest=equal,
            key=key,
            subjects=None if tool.subjects is None else resolved(tool, arguments),
        )
        return call if tool.line is None else placed(call, facts_in(self._session))

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

    def _complete(self, tool: Tool, proposed: ToolCall, arguments: JsonObject) -> Completed:
        try:
            return self._contracts.complete(tool, arguments, strict=self._is_strict)
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
