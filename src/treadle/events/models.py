"""What happens in a model call."""

from typing import ClassVar

from treadle.events.base import Event
from treadle.messages import Finish, Message, ToolCall, Usage

__all__ = ["DecisionRejected", "ModelDelta", "ModelDiscarded", "ModelFailed", "ModelFinished", "ModelStarted"]


class ModelStarted(Event, frozen=True, kw_only=True, tag="model.started"):
    """A request goes to the model."""

    attempt: int = 1
    """Number of the attempt, from 1."""
    model: str = ""
    """The dialect and model, such as `openai-chat:gpt-5-mini`."""
    tools: tuple[str, ...] = ()
    """Names of the tools offered."""
    tool_choice: str = "auto"
    """`auto`, `none`, `required` or the name of a tool."""
    messages: int = 0
    """Number of messages in the request."""
    closing: bool = False
    """Whether this is the one request after a limit, which may not call tools."""
    prefix: str = ""
    """Hash of what requests begin with: instructions, tools, form of the answer, and the messages before the model's first one."""
    prefix_changed: tuple[str, ...] = ()
    """What of the request before it this one does not begin with, so that a provider's cache is lost: `instructions`, `tools`, `output`,
    `messages`, or `restart` where the request before it was another process's. A compaction changes messages and is not named here."""


class ModelDelta(Event, frozen=True, kw_only=True, tag="model.delta"):
    """Live only: a piece of the answer as it streams."""

    is_live: ClassVar[bool] = True
    text: str = ""
    """A piece of the answer's text."""
    thinking: str = ""
    """A piece of the model's reasoning."""
    call: ToolCall | None = None
    """A call whose arguments are complete."""


class ModelFinished(Event, frozen=True, kw_only=True, tag="model.finished"):
    """The model has answered: a complete response."""

    message: Message
    """The model's message, with its calls."""
    finish: Finish = Finish.UNKNOWN
    """Why the response ended, independent of the provider."""
    usage: Usage = Usage()
    """Tokens of the response."""
    cost: str | None = None
    """Exact decimal; None when the model has no price."""
    attempt: int = 1
    """Number of the attempt, from 1."""
    duration_seconds: float = 0.0
    """Seconds from the request to the end of the response."""
    first_token_seconds: float | None = None
    """Seconds from the request to the first piece of the answer; None if nothing streamed."""
    closing: bool = False
    """Whether this is the one answer after a limit."""
    dropped_text: str = ""
    """Text of the response that only repeated a call's arguments: it is no part of the message."""
    from_text: str = ""
    """The text that its calls were read from, because the server had left them there: it is no part of the message."""
    advice: str = ""
    """What people can do about the server, said once in a run; empty where there is nothing to say."""
    turns: int = 1
    """Responses that the step took; their usage and cost are in it."""
    response_id: str = ""
    """The provider's id of the response; empty where it has none."""
    response_model: str = ""
    """The exact name of the model that answered, as the provider says; empty where it does not."""
    interrupted: bool = False
    """Whether somebody cancelled the run in the middle of the response: the message is what had come by then, none of whose calls started late."""


class ModelFailed(Event, frozen=True, kw_only=True, tag="model.failed"):
    """A model request has failed."""

    error: str
    """The error's class."""
    message: str
    """What went wrong, in one sentence."""
    attempt: int = 1
    """Number of the attempt, from 1."""
    status: int | None = None
    """The HTTP status; None for a failure without one."""
    retry_in_seconds: float | None = None
    """None when there is no further attempt."""
    usage: Usage | None = None
    """What the failed attempt used, where it is known."""
    cost: str | None = None
    """Cost in US dollars, as an exact decimal; None for a model without a price."""
    is_aside: bool = False
    """Whether the step continues without this request, as with a final inference whose draft stands."""


class ModelDiscarded(Event, frozen=True, kw_only=True, tag="model.discarded"):
    """A response broke off after calls of it had started early. Their results may answer equal calls of the retry."""

    attempt: int = 1
    """Number of the attempt, from 1."""
    reason: str = ""
    """Why the response was discarded."""
    calls: tuple[str, ...] = ()
    """Ids of its calls that had started."""


class DecisionRejected(Event, frozen=True, kw_only=True, tag="decision.rejected"):
    """A text decision of the model (ReAct) could not be read, or was not accepted."""

    reason: str
    """extraction: it could not be read; validation: it could not be accepted."""
    text: str = ""
    """What the model wrote."""
    attempt: int = 1
    """Number of the attempt, from 1."""
    message: str = ""
    """What the model reads."""
    usage: Usage | None = None
    """What the response used; None for the step's last one, which `model.finished` counts."""
    cost: str | None = None
    """Cost in US dollars, as an exact decimal; None for a model without a price."""
