"""The port to a language model: what it is asked, and the parts that it answers with."""

from collections.abc import AsyncIterator, Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from treadle.errors import ModelError
from treadle.fields import Documented, explained
from treadle.messages import Finish, Message, Part, TextCalls, ToolCall, Usage
from treadle.tools import JsonObject

__all__ = [
    "CallReady",
    "CallsInText",
    "Capability",
    "ChoosesModel",
    "DecisionFailure",
    "HasCapabilities",
    "HasWindow",
    "Model",
    "ModelEnd",
    "ModelPart",
    "ModelRequest",
    "Pricing",
    "RequestFailed",
    "ResponseSetAside",
    "TextDelta",
    "ThinkingDelta",
    "ToolChoice",
    "ToolSpec",
    "asked_model",
    "place_of",
    "tell_counted",
    "told_counted",
    "window_of",
]


class Pricing(Protocol):
    """What a model costs. `Price` is one; a price list may be another."""

    def cost(self, usage: Usage) -> Decimal:
        """Return the exact cost of one model call."""
        ...


class ToolSpec(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a model reads about one tool."""

    name: str
    """Name of the tool."""
    description: str
    """What it does, for the model."""
    parameters: JsonObject
    """JSON Schema of its arguments."""


ToolChoice: TypeAlias = str
"""`auto`, `required`, `none`, or a tool's name: that tool must be called."""


class ModelRequest(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One request to a model, in neutral words."""

    messages: tuple[Message, ...]
    """The conversation, as the compiler made it."""
    instructions: str | None = None
    """The system prompt; None without one."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools that are offered."""
    tool_choice: ToolChoice = "auto"
    """`auto`, `none`, `required` or the name of a tool."""
    output_schema: JsonObject | None = None
    """JSON Schema of the final answer; None for free text."""
    parallel_tool_calls: bool = True
    """Whether one response may hold several calls. False asks the provider for one at a time; not all of them obey."""
    raise_output_limit: bool = False
    """Whether the output limit has cut a response of this run: an adapter that sets that limit by itself then sets a larger one."""
    session_id: str = ""
    """The session that asks; providers may route by it."""
    model: str = ""
    """The model that it was made for: one made of several asks this one. Empty for whichever."""


class TextDelta(msgspec.Struct, Documented, frozen=True, tag="text", gc=False):
    """A piece of the answer."""

    text: str
    """The piece."""


class ThinkingDelta(msgspec.Struct, Documented, frozen=True, tag="thinking", gc=False):
    """A piece of the model's reasoning."""

    text: str
    """The piece."""


class CallReady(msgspec.Struct, Documented, frozen=True, tag="call", gc=False):
    """A call whose arguments are complete while the response may still stream.

    Yielded in call order and for none before all earlier ones, and equal to the call in the final message. A call that the
    server reports again may be yielded again. A driver that cannot tell when arguments are complete yields none.
    """

    call: ToolCall
    """The call."""


class DecisionFailure(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Why a driver gave up on the model's decision. The step fails with it, and the run ends."""

    reason: Literal["extraction", "validation"]
    """`extraction`: the decision could not be read; `validation`: it was not accepted."""
    message: str
    """What is wrong, in one sentence."""
    details: tuple[JsonObject, ...] = ()
    """Every violation, as JSON objects."""
    attempts: int = 1
    """Responses that were looked at, the last included."""

    @property
    def code(self) -> str:
        """The name of the pseudo-execution that stands for it in reports."""
        return f"decision_{self.reason}"


class CallsInText(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Calls that a response's text consists of, and that are not carried out. Found by the driver."""

    calls: tuple[ToolCall, ...]
    """What they would be."""
    told: str
    """What the model is to do about it, in one or two sentences."""
    advice: str
    """Which option makes the server read them, for people."""


class ModelEnd(msgspec.Struct, Documented, frozen=True, kw_only=True, tag="end"):
    """The terminal part: the whole message. Without it a response is incomplete, never final."""

    parts: tuple[Part, ...]
    """Everything that the model said, in order."""
    finish: Finish = Finish.UNKNOWN
    """Why the response ended, in neutral words."""
    usage: Usage | None = None
    """None when the server sent none."""
    cut_calls: frozenset[str] = frozenset()
    """Ids of calls that the response may have cut off: they must not run."""
    unnamed_calls: frozenset[str] = frozenset()
    """Ids that the adapter made up because the server sent none. A call without an id may be any equal call of the response."""
    is_retold: bool = False
    """Whether the server began its message again or sent part of it in a second form. Equal calls may then be one call or two, whatever
    their ids."""
    has_strays: bool = False
    """Whether a piece of a call came of which it is unknown to which call it belongs: no call of the response may start."""
    has_damaged_text: bool = False
    """Whether the text lost a character that the server sent broken: what is read from it must not be carried out."""
    origin: str | None = None
    """The dialect and model that answered, where that is not the model that was asked; None where it is."""
    price: Pricing | None = None
    """What that model costs."""
    finish_reason: str | None = None
    """The provider's own word for `finish`, where the adapter knows it."""
    dropped_text: str = ""
    """Text that the driver dropped because it only repeats a call's arguments."""
    failure: DecisionFailure | None = None
    """Why there is no usable decision in it. Its one call then stands for the failure, and never runs."""
    message: str = ""
    """The provider's own sentence on a refusal, for people."""
    text_calls: TextCalls | None = None
    """What the model's option says of calls that stand in the text; None to run those in markup, and to tell the model of bare JSON."""
    calls_in_text: CallsInText | None = None
    """The calls that its text consists of, where they are not carried out."""
    from_text: str = ""
    """The text that its calls were read from, by the driver; it is no part of the message."""
    advice: str = ""
    """What people can do about its server, in a sentence or two; empty where there is nothing, or where it was said before."""
    response_id: str = ""
    """The provider's id of the response; empty where it has none."""
    response_model: str = ""
    """The exact name of the model that answered, as the provider says; empty where it does not."""

    @property
    def is_broken_off(self) -> bool:
        """Whether the provider ended the response for a reason that is not known here, which is not a completion."""
        return self.finish is Finish.UNKNOWN and self.finish_reason is not None


class RequestFailed(msgspec.Struct, Documented, frozen=True, kw_only=True, tag="request_failed"):
    """A request of the driver failed, and the step continues without it. Recorded as `model.failed`; what it used is counted."""

    error: ModelError
    """What the request failed with."""


@explained
def tell_counted(cut: BaseException, usage: Usage | None) -> None:
    """Have the exception that cuts a response off carry what its server had counted by then. Adapters call it."""
    vars(cut)[_COUNTED] = usage


@explained
def told_counted(cut: BaseException) -> Usage | None:
    """Return what the server of a response that was cut off had counted; None where it reported nothing."""
    usage = vars(cut).get(_COUNTED)
    return usage if isinstance(usage, Usage) else None


_COUNTED = "counted"


class ResponseSetAside(msgspec.Struct, Documented, frozen=True, kw_only=True, tag="set_aside"):
    """A whole response that is not the step's own message; the driver asks again.

    Yielded by drivers before they send their next request: what it used is counted at once, so that limits hold. Where a
    limit forbids the next request, the driver is asked for no more.
    """

    reason: Literal["extraction", "validation", "reworded"]
    """Its decision could not be read, or not be accepted; or it is an answer that another inference words."""
    message: str = ""
    """What the model reads about a decision that was not accepted."""
    parts: tuple[Part, ...] = ()
    """Everything that the model said, in order."""
    usage: Usage | None = None
    """None when the server sent none."""
    attempt: int = 1
    """Number of the attempt, from 1."""
    fallback: ModelEnd | None = None
    """What ends the step where no further request is allowed; None to end the run at its limit."""


ModelPart: TypeAlias = TextDelta | ThinkingDelta | CallReady | ModelEnd | RequestFailed | ResponseSetAside
"""One piece of a response as it streams in."""


class Model(Protocol):
    """The port to a language model."""

    @property
    def name(self) -> str:
        """The dialect and model, such as `openai-chat:gpt-5-mini`."""
        ...

    @property
    def price(self) -> Pricing | None:
        """What it costs, or None when nobody knows."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Send one request and yield the parts of the one response, `ModelEnd` last.

        Never retries: the runtime does. Closing the iterator ends the connection.

        Raises:
            ModelError: The call failed; the class says whether another attempt may help.
        """
        ...


class Capability(StrEnum):
    """What is special about a model, where its driver must know."""

    NO_TOOLS = "no_tools"
    """It takes no tools on the wire: they are described in text, and it answers with decisions (ReAct)."""
    JSON_SCHEMA = "json_schema"
    """Its answers can be held to a JSON Schema."""


@runtime_checkable
class HasCapabilities(Protocol):
    """A model that says what is special about it. One that does not is taken to call tools natively."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The same for the model's whole life."""
        ...


@runtime_checkable
class HasWindow(Protocol):
    """A model that says how much it takes."""

    @property
    def window(self) -> int | None:
        """Tokens of request and response together; None where nobody knows."""
        ...


@runtime_checkable
class ChoosesModel(Protocol):
    """A model made of several, one of which is asked at a time."""

    def next_model(self) -> Model:
        """Return the one that would be asked now. Asks nobody."""
        ...


def asked_model(model: Model) -> Model:
    """Return the model that a request would go to now: of several, the one whose turn it is."""
    choose: Callable[[], Model] | None = getattr(model, "next_model", None)  # `isinstance` of a Protocol is slow
    return model if choose is None else choose()


def place_of(model: Model) -> tuple[Mapping[str, Any], tuple[str, int] | None]:
    """Return with which options a model asks, and at which host and port; nothing where it does not say."""
    options: Mapping[str, Any] = getattr(model, "asks_with", {})
    place: tuple[str, int] | None = getattr(model, "asks_at", None)
    return options, place


def window_of(model: Model) -> int | None:
    """Return how many tokens a model takes; None where nobody knows."""
    window: int | None = getattr(model, "window", None)
    return window
