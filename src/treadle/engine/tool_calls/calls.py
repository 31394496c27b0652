"""A call, from its response to its result: what it is once it is prepared, and the events of its life. Values; runs and records nothing.

Batch > prepare (planning.py) > Decided, Refused or Adopted > run (attempts.py) > finish > ToolResult
"""

from collections.abc import Sequence
from sys import intern
from typing import Any, TypeAlias

import msgspec

from treadle.canonical import copied, execution_id
from treadle.engine.rules.bounds import bound, with_fields
from treadle.events import AnyEvent, CallDecided, ModelFinished, ToolFinished, ToolStarted
from treadle.messages import ToolCall
from treadle.ports import CallsInText, DecisionFailure
from treadle.state import CallState, SessionState
from treadle.stops import Stop
from treadle.tools import CheckedCall, Decision, DecisionKind, JsonObject, Runner, ToolResult, business_key
from treadle.tools.results import failure_class

__all__ = ["Adopted", "Batch", "Checked", "Decided", "Finisher", "Plan", "Prepared", "Proposal", "Refused"]


# --- The response that proposes calls, and the calls of one step.


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


# --- What each of them is.


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
            converted=copied(call.arguments) if call.is_converted else None,
            arguments=None if decision.arguments is None else copied(decision.arguments),
            scope=decision.scope,
            by=decision.by,
            mode=decision.mode,
            message=decision.message,
            interrupt=decision.interrupt,
            risk=call.tool.risk_of(call.arguments, call.effect),
            lifted=decision.lifted,
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


# --- Its events, with what the runtime adds to its result.

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
            lifted=decision.lifted if is_boxed else (),
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


# --- What happens to all of them.


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
