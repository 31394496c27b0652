"""Batches: the calls of one step, what is found of each, and what happens to it. Values only."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from treadle.canonical import copied
from treadle.engine.tool_calls.finishing import Finisher
from treadle.events import AnyEvent, CallDecided, ModelFinished
from treadle.messages import ToolCall
from treadle.ports import Decision, DecisionFailure
from treadle.state import CallState
from treadle.stops import Stop
from treadle.tools import CheckedCall, ToolResult

__all__ = ["Batch", "Checked", "Decided", "Plan", "Proposal", "Refused"]


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """One whole response, not recorded yet."""

    finished: ModelFinished
    refusal: str | None = None
    """Why none of its calls may start; None when they may."""
    cut_calls: frozenset[str] = frozenset()
    """Ids of calls whose end may be missing: they may not start, whatever the response says of itself."""
    repeated_calls: frozenset[str] = frozenset()
    """Ids of calls that may be the repetition of an earlier one in it: a person decides, unless they only read."""
    failure: DecisionFailure | None = None
    """Why the driver found no usable decision in it, so that its one call stands for that; None when it did."""
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


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A valid call and the decision on it."""

    call: CheckedCall
    decision: Decision

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

    def event(self, *, early: bool = False, step: int = 0) -> CallDecided:
        return CallDecided(
            call_id=self.call.id,
            step=step,
            tool=self.call.name,
            decision=str(self.decision.kind),
            rule=self.decision.rule,
            reason=self.decision.reason,
            effect=self.call.effect,
            digest=self.call.digest,
            key=self.call.key,
            position=self.call.position,
            early=early,
            arguments=copied(self.decision.arguments),
            scope=self.decision.scope,
            by=self.decision.by,
            mode=self.decision.mode,
            message=self.decision.message,
            interrupt=self.decision.interrupt,
            risk=self.call.risk,
        )


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A call that can never run, with its result."""

    result: ToolResult
    position: int

    @property
    def rule(self) -> str:
        return self.result.code or self.result.status.value


Checked: TypeAlias = Decided | Refused


class Plan(msgspec.Struct, kw_only=True):
    """What happens to each call of the batch, in call order."""

    finisher: Finisher
    events: list[AnyEvent] = msgspec.field(default_factory=list)
    """To be recorded before a call starts: the decisions, and the results of calls that do not run."""
    ready: list[CheckedCall] = msgspec.field(default_factory=list)
    adopted: list[tuple[ToolCall, CheckedCall]] = msgspec.field(default_factory=list)
    """Calls that have started early, and the early calls whose results they get."""
    stop: Stop | None = None
    acts: bool = False
    """Whether one that is ready may change something. What was read before it is not an answer to a read after it."""
