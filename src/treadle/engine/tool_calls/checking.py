"""Checking: from a proposed call to a decided one. Look up, parse, validate, intercept, decide; nothing runs here."""

import asyncio
import inspect
from collections.abc import Sequence

import msgspec

from treadle.canonical import copied, digest, encoded, find_unencodable, idempotency_key
from treadle.engine.rules.failures import pass_interrupts
from treadle.engine.tool_calls import refusals
from treadle.engine.tool_calls.batch import Checked, Decided, Refused
from treadle.errors import InvalidArguments, InvalidJson
from treadle.messages import ToolCall
from treadle.permissions.policies import decide, default_decision, failed_policy, held_to_port, stricter
from treadle.ports import Decision, DecisionKind, Interceptor, Policy, SessionView
from treadle.redaction import redacted_logger
from treadle.tooling.toolbox import Toolbox
from treadle.tools import CheckedCall, JsonObject, Tool, ToolResult

__all__ = ["Checker"]

logger = redacted_logger(__name__)

_LONG_ARGUMENTS = 16 * 1024
"""Characters."""


class Checker:
    """The first half of the pipeline, in one order: look up > parse > validate > intercept > decide (V05)."""

    def __init__(
        self, *, toolbox: Toolbox, policy: Policy | None, interceptors: Sequence[Interceptor], session: SessionView
    ) -> None:
        self._toolbox = toolbox
        self._policy = policy
        self._interceptors = interceptors
        self._session = session
        self._session_id = session.id
        self.may_wait = policy is not None or bool(interceptors) or toolbox.validates
        """Whether a check may take its time, because somebody else's code has a say in it."""

    async def check(
        self,
        proposed: ToolCall,
        *,
        position: int,
        step: int,
        edited: JsonObject | None = None,
        otherwise: Tool | None = None,
    ) -> Checked:
        """Return the decided call, or why it can never run. Never raises for what the model wrote.

        Args:
            edited: Arguments that an approver put in the place of the model's; checked like any others.
            otherwise: What the call means where no tool has its name; None to refuse it.
        """
        try:
            proposed = proposed if edited is None else _edited(proposed, edited)
            call = await self._fitting(proposed, position=position, step=step, otherwise=otherwise)
            blocked, changed = await self._intercept(proposed) if self._interceptors else (None, proposed)
            if changed is not proposed:
                call = await self._fitting(changed, position=position, step=step, otherwise=otherwise)
        except _Unfit as unfit:
            return unfit.refused(position)
        decision = blocked
        if decision is None or decision.kind != DecisionKind.DENY:
            own = await self._decide(call)
            decision = own if decision is None else stricter(own, decision)
        return Decided(call=call, decision=decision, is_rewritten=changed is not proposed or edited is not None)

    async def refusal(self, proposed: ToolCall, *, position: int, step: int) -> Refused | None:
        """Return why a call can never run; None where it could. Nobody is asked whether it may."""
        try:
            await self._fitting(proposed, position=position, step=step)
        except _Unfit as unfit:
            return unfit.refused(position)
        return None

    async def _decide(self, call: CheckedCall) -> Decision:
        if self._policy is None:
            return default_decision(call)
        # A copy: what a policy does to the arguments must not reach the tool past their validation.
        arguments = copied(call.arguments)
        values = arguments if call.tool.convert is None else call.tool.convert(copied(call.arguments))
        shown = msgspec.structs.replace(call, arguments=arguments, values=values)
        try:
            return await decide(self._policy, shown, self._session)
        except asyncio.CancelledError as error:
            pass_interrupts(error)
            return failed_policy(error)  # it raised this by itself

    async def _fitting(
        self, proposed: ToolCall, *, position: int, step: int, otherwise: Tool | None = None
    ) -> CheckedCall:
        """Return the call with its tool and valid arguments. Raises _Unfit where it has none."""
        tool = self._toolbox.find(proposed.name, self._session) or otherwise
        if tool is None:
            raise _Unfit(refusals.unknown_tool(proposed, self._toolbox.near(proposed.name, self._session)))
        parsed = self._parse(proposed)
        is_long = len(proposed.arguments) > _LONG_ARGUMENTS
        if is_long:  # others have a turn of the event loop between two looks at them
            await asyncio.sleep(0)
        arguments = parsed if tool is otherwise else self._complete(tool, proposed, parsed)
        if is_long:
            await asyncio.sleep(0)
        try:
            if tool.validate is not None and inspect.isawaitable(checking := tool.validate(copied(arguments))):
                await checking
            values = tool.convert(copied(arguments)) if tool.convert is not None else arguments
        except InvalidArguments as error:
            raise _Unfit(refusals.invalid_arguments(proposed, error)) from error
        except BaseException as error:
            pass_interrupts(error)
            # The tool's author erred, not the model: nothing ran, and the model may try another way.
            logger.warning("Checking the arguments of %s raised", tool.name, exc_info=True)
            raise _Unfit(refusals.unchecked(proposed, error)) from error
        if is_long:
            await asyncio.sleep(0)
        canonical = encoded(arguments)
        return CheckedCall(
            call=proposed,
            tool=tool,
            arguments=arguments,
            values=values,
            effect=tool.effect_of(copied(arguments) if callable(tool.effect) else arguments),
            position=position,
            digest=digest([tool.name, canonical]),
            key=idempotency_key(self._session_id, step, position, tool.name, canonical),
        )

    def _parse(self, proposed: ToolCall) -> JsonObject:
        try:
            return self._toolbox.parse(proposed.arguments)
        except InvalidArguments as error:
            raise _Unfit(refusals.invalid_arguments(proposed, error)) from error
        except InvalidJson as error:
            raise _Unfit(refusals.invalid_json(proposed, error)) from error

    def _complete(self, tool: Tool, proposed: ToolCall, arguments: JsonObject) -> JsonObject:
        try:
            return self._toolbox.complete(tool, arguments)
        except InvalidArguments as error:
            raise _Unfit(refusals.invalid_arguments(proposed, error)) from error

    async def _intercept(self, proposed: ToolCall) -> tuple[Decision | None, ToolCall]:
        """Let every interceptor see the call. One may change its arguments or forbid it, none may rename or allow it."""
        strictest: Decision | None = None
        for interceptor in self._interceptors:
            name = type(interceptor).__name__
            try:
                answer = interceptor.before(proposed)
                answer = await answer if inspect.isawaitable(answer) else answer
            except BaseException as error:
                pass_interrupts(error)
                reason = f"{name} failed before the call ({type(error).__name__})."
                logger.warning("%s", reason, exc_info=True)
                return Decision(kind=DecisionKind.DENY, rule="interceptor raised", reason=reason), proposed
            if not isinstance(answer, ToolCall) or not isinstance(answer.arguments, str):
                word = held_to_port(answer, f"interceptor {name}")
                strictest = word if strictest is None else stricter(strictest, word)
            elif answer.arguments != proposed.arguments:
                proposed = msgspec.structs.replace(proposed, arguments=answer.arguments)
        return strictest, proposed


class _Unfit(Exception):
    def __init__(self, result: ToolResult) -> None:
        super().__init__(result.message)
        self._result = result

    def refused(self, position: int) -> Refused:
        return Refused(result=self._result, position=position)


def _edited(proposed: ToolCall, arguments: JsonObject) -> ToolCall:
    """Put an approver's arguments in the place of the model's."""
    if (problem := find_unencodable(arguments)) is not None:
        raise _Unfit(
            refusals.invalid_arguments(proposed, InvalidArguments(f"the approver's arguments are no JSON: {problem}."))
        )
    return msgspec.structs.replace(proposed, arguments=msgspec.json.encode(arguments).decode())
