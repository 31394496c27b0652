"""Batches: the response, the calls of one step, and what happens to each. Values only: nothing in here is ever called."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.engine.tool_calls.finishing import Finisher
from treadle.events import AnyEvent, ModelFinished
from treadle.ports import CallsInText, DecisionFailure
from treadle.state import CallState
from treadle.stops import Stop
from treadle.tools import CheckedCall

__all__ = ["Batch", "Plan", "Proposal"]


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
