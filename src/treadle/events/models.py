"""What happens in a model call."""

from typing import ClassVar

from treadle.events.base import Event
from treadle.messages import Finish, Message, ToolCall, Usage

__all__ = ["DecisionRejected", "ModelDelta", "ModelDiscarded", "ModelFailed", "ModelFinished", "ModelStarted"]


class ModelStarted(Event, frozen=True, kw_only=True, tag="model.started"):
    attempt: int = 1
    model: str = ""
    tools: tuple[str, ...] = ()
    """Names of the tools offered."""
    tool_choice: str = "auto"
    messages: int = 0
    closing: bool = False
    """Whether this is the one request after a limit, which may not call tools."""


class ModelDelta(Event, frozen=True, kw_only=True, tag="model.delta"):
    """Live only: a piece of the answer as it streams."""

    is_live: ClassVar[bool] = True
    text: str = ""
    thinking: str = ""
    call: ToolCall | None = None
    """A call whose arguments are complete."""


class ModelFinished(Event, frozen=True, kw_only=True, tag="model.finished"):
    message: Message
    finish: Finish = Finish.UNKNOWN
    usage: Usage = Usage()
    cost: str | None = None
    """Exact decimal; None when the model has no price."""
    attempt: int = 1
    duration_seconds: float = 0.0
    first_token_seconds: float | None = None
    closing: bool = False
    dropped_text: str = ""
    """Text of the response that only repeated a call's arguments: it is no part of the message."""
    turns: int = 1
    """Responses that the step took; their usage and cost are in it."""


class ModelFailed(Event, frozen=True, kw_only=True, tag="model.failed"):
    error: str
    """The error's class."""
    message: str
    attempt: int = 1
    status: int | None = None
    retry_in_seconds: float | None = None
    """None when there is no further attempt."""
    usage: Usage | None = None
    """What the failed attempt used, where it is known."""
    cost: str | None = None
    is_aside: bool = False
    """Whether the step goes on without this request, as with a final inference whose draft stands."""


class ModelDiscarded(Event, frozen=True, kw_only=True, tag="model.discarded"):
    """A response broke off after calls of it had started early. Their results may answer equal calls of the retry."""

    attempt: int = 1
    reason: str = ""
    calls: tuple[str, ...] = ()


class DecisionRejected(Event, frozen=True, kw_only=True, tag="decision.rejected"):
    reason: str
    """extraction: it could not be read; validation: it could not be accepted."""
    text: str = ""
    attempt: int = 1
    message: str = ""
    """What the model is told."""
    usage: Usage | None = None
    """What the response used; None for the step's last one, which `model.finished` counts."""
    cost: str | None = None
