"""The ports of a run: context, hooks, drivers, toolsets, tracing, clocks and chance. Protocols and values; nothing is implemented here."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard, runtime_checkable

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.events import AnyEvent
from treadle.fields import Documented, NamedOptions, checked, explained
from treadle.messages import ErrorForm, Media, Message, ToolCall, Usage
from treadle.ports.models import Model, ModelPart, ModelRequest, Pricing, window_of
from treadle.ports.policies import SessionView
from treadle.stops import Stop
from treadle.tools import DEFAULT_MODE, Decision, Effect, JsonObject, Mode, Tool, ToolResult

__all__ = [
    "INPUTS",
    "BoundDriver",
    "CallTracer",
    "CheckView",
    "Clock",
    "Compactable",
    "Compaction",
    "Compactor",
    "Compiler",
    "Delivery",
    "Dispatcher",
    "Driver",
    "Executor",
    "HasFacts",
    "Hook",
    "HookAnswer",
    "HookContext",
    "ModelFacts",
    "Moment",
    "OpenToolset",
    "Randomness",
    "RequestNeed",
    "RequestTracer",
    "RequestView",
    "RunTracer",
    "Timer",
    "Toolset",
    "ToolsetContext",
    "facts_of",
    "input_of",
    "is_toolset",
]


class RequestNeed(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a request is for. Each attempt of a step has its own request."""

    model: str = ""
    """The model that will be asked: of several, the current one."""
    window: int | None = None
    """The model's context window in tokens, including its response; None if unknown."""
    step: int = 0
    """Number of the step, from 1."""
    attempt: int = 1
    """From 1, in this step."""
    reason: Literal["step", "retry", "overflow"] = "step"
    """`overflow`: the provider refused the last request as too long, and this one must be shorter."""
    overflows: int = 0
    """How often that has happened in this step."""
    fixed_tokens: int = 0
    """Tokens of the instructions and the tools, estimated at four characters each."""
    closing: bool = False
    """Whether it is the request after a limit, in which the model may not call tools."""


class RequestView(SessionView, Protocol):
    """A session from which a request is built. Its messages are those that compactions have left."""

    @property
    def need(self) -> RequestNeed: ...


class Compiler(Protocol):
    """Chooses what the model sees of the stored messages. It never changes the store."""

    def compile(self, session: RequestView) -> Sequence[Message] | Awaitable[Sequence[Message]]:
        """Return the messages of one request: the same for the same state and need, and never a call without its result.

        Asked before each attempt; may be a coroutine function.
        """
        ...


class Compaction(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Something shorter that permanently replaces some messages. Recorded as `context.compacted`."""

    tier: str
    """How it was shortened, such as `results` or `summary`."""
    begin: int
    """Index of the first message concerned, in `Compactable.messages`."""
    end: int
    """Index behind the last one. Calls and their results are both in, or both out."""
    messages: tuple[Message, ...] | None = None
    """What replaces the messages; None if each stays in its place."""
    results: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What replaces the results of these calls, by call id."""
    summary: str = ""
    """The text that replaces the messages, for people."""
    usage: Usage = Usage()
    """What was used besides requests by `Compactable.ask`, which are counted separately."""
    cost: str | None = "0"
    """The cost of that usage: an exact decimal; None if unknown."""


class Compactable(Protocol):
    """What a compactor gets: the messages as they are shown now, and a model to ask."""

    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def session(self) -> SessionView:
        """The session with all its messages, facts, approvals and marks."""
        ...

    @property
    def need(self) -> RequestNeed: ...
    @property
    def tokens(self) -> int:
        """Estimated tokens of the whole request as it is now."""
        ...

    async def keep(self, call_id: str) -> str:
        """Keep the whole result of a call, so that the model can read it later, and return the id of the artifact.

        If it is already kept, the id is the same.
        """
        ...

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask the run's model without tools, and return its text. Recorded under the compaction, and charged to the run.

        Raises:
            ModelError: It failed, or the run's budget is used up.
        """
        ...


class Compactor(Protocol):
    """Shortens what the model is shown when it has become too long."""

    def is_due(self, need: RequestNeed, tokens: int) -> bool:
        """Return whether a request with this number of tokens should be shortened before it is sent.

        Asked before each attempt, except after an overflow, when the request is shortened in any case.
        """
        ...

    async def compact(self, context: Compactable) -> Compaction | None:
        """Return what is shorter, or None if nothing can be shortened. The same events always lead to the same request."""
        ...


class CheckView(SessionView, Protocol):
    """The session that `done_when` gets: a check may ask the run's model, at the run's cost."""

    async def ask(self, messages: Sequence[Message], *, instructions: str | None = None) -> str:
        """Ask the run's model without tools, and return its text. Recorded as `check:...`, and charged to the run.

        Raises:
            ModelError: It failed, or the run's budget is used up.
        """
        ...


# --- The port to what distributes work over workers. The journal decides: a dispatcher only says which session to look
# at.


class Delivery(Protocol):
    """One session to run now."""

    @property
    def session_id(self) -> str:
        """The session."""
        ...

    async def end(self, *, is_done: bool, waits: bool = False) -> None:
        """Say that the worker has let go of the session.

        Args:
            is_done: Whether there was something to do. Where not, the session is offered again after a while only.
            waits: Whether a limit was in the way, which may be free again at any moment: it is offered again soon.
        """
        ...


class Dispatcher(Protocol):
    """Run this session, somewhere, soon; at least once.

    It may deliver a session twice, late, to any worker, and sessions in which there is nothing to do: the lease and the
    events of the session decide what happens. It may forget a session only where the journal says that nothing waits.
    """

    async def send(
        self, session_id: str, *, at: float | None = None, priority: int = 0, tenant: str | None = None
    ) -> None:
        """Ask that a session be run. What waits in the journal is also found without it.

        Args:
            tenant: Whose task begins; None for what continues.
            at: When at the earliest, in seconds since 1970; None for now.
            priority: Sessions with a higher number come first.
        """
        ...

    async def next(self) -> Delivery:
        """Wait for a session to run. Cancelling the wait loses none."""
        ...

    async def close(self) -> None:
        """Let go of what is held. The worker calls it at its end. May be called twice."""
        ...


# --- The port to a driver: how a step is obtained from a model.


class BoundDriver(Protocol):
    """A driver that knows the tools and the executor of one run."""

    def propose(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Obtain one step: yield the parts of the model's response, `ModelEnd` last. Executes nothing.

        Raises:
            ModelError: The model call failed.
        """
        ...


class Executor(Protocol):
    """What executes the calls of a response. It belongs to the loop; a driver may only ask it questions."""

    def offers(self, name: str) -> bool:
        """Whether a call of this name would find a tool now."""
        ...


class Driver(Protocol):
    """How a step is obtained from a model: native tool calling, ReAct, or a script."""

    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> BoundDriver:
        """Return the driver of one run. Called once for each run, before its first step; a stateless driver may return itself."""
        ...


# --- Facts: what a model can do and accept, as far as it is known.

INPUTS = ("text", "image", "pdf", "audio", "video")
"""The kinds of input that a model may accept."""


class ModelFacts(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """What is known about a model. None means unknown.

    Example:
        resolve_model("vllm:my-model", facts=ModelFacts(window=32_768, inputs=["text"]))

    Raises:
        ConfigurationError: A fact is of the wrong kind.
    """

    window: int | None = None
    """Tokens of request and response together."""
    output: int | None = None
    """Tokens that it can write in one response, including its thinking."""
    inputs: Collection[str] | None = None
    """What it accepts: text, image, pdf, audio, video. A task with any other kind is refused. Other media, from earlier tasks or from
    tools, are left out of the request, and the model is told."""
    tools: bool | None = None
    """Whether it can call tools. If not, it is driven by ReAct."""
    strict: bool | None = None
    """Whether it enforces the schema of a call's arguments."""
    parallel: bool | None = None
    """Whether it can call several tools in one response."""
    thinking: bool | None = None
    """Whether it can think before it answers."""
    small: bool | None = None
    """Whether it is a small model, of a few billion parameters at most: drivers then spell each step out, and ask for the answer where
    it only repeats what it has done."""
    error_form: ErrorForm | None = None
    """What it reads of a tool's error: the `sentence` alone, or all fields as `json`. By default a sentence for small models."""
    slots: int | None = None
    """Requests that its server answers at the same time. Further ones of this program wait until one of them has ended."""
    prompt_tokens_per_second: int | None = None
    """How fast its server reads a prompt: the time to the first byte allows for twice of what the request needs by that."""
    price: Pricing | None = None
    """Its price."""

    def __post_init__(self) -> None:
        for name in ("window", "output", "slots", "prompt_tokens_per_second"):
            value, unit = getattr(self, name), "" if name == "slots" else " of tokens"
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigurationError(f"The fact {name!r} is a whole number{unit} above 0; got {shown(value)}.")
        if self.error_form not in (None, "sentence", "json"):
            raise ConfigurationError(f"The fact 'error_form' is sentence or json; got {shown(self.error_form)}.")
        for name in ("tools", "strict", "parallel", "thinking", "small"):
            if not isinstance(getattr(self, name), bool | None):
                raise ConfigurationError(f"The fact {name!r} is true or false; got {shown(getattr(self, name))}.")
        if self.inputs is not None:
            is_list = isinstance(self.inputs, Collection) and not isinstance(self.inputs, str | bytes | Mapping)
            if not is_list or any(one not in INPUTS for one in self.inputs):
                raise ConfigurationError(
                    f"The fact 'inputs' is a list of {', '.join(INPUTS)}; got {shown(self.inputs)}."
                )
            msgspec.structs.force_setattr(self, "inputs", frozenset(self.inputs))

    @property
    def has_sentences(self) -> bool:
        """Whether the model reads an error as one sentence."""
        return (self.error_form or ("sentence" if self.small else "json")) == "sentence"

    @checked
    def over(self, others: "ModelFacts") -> "ModelFacts":
        """Return these facts, and the others' where these say nothing."""
        own = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(others, **own)


@runtime_checkable
class HasFacts(Protocol):
    """A model that says what is known about it."""

    @property
    def facts(self) -> ModelFacts:
        """The same for the model's whole life."""
        ...


@explained
def facts_of(model: Model) -> ModelFacts:
    """Return what is known about a model."""
    facts: ModelFacts | None = getattr(model, "facts", None)  # `isinstance` of a Protocol is slow, and each run asks
    if facts is not None:
        return facts
    window, price = window_of(model), model.price
    return _UNKNOWN if window is None and price is None else ModelFacts(window=window, price=price)


_UNKNOWN = ModelFacts()


@explained
def input_of(media: Media) -> str | None:
    """Return which kind of input a medium is; None for one that nobody has a word for."""
    start = media.media_type.partition("/")[0].lower()
    if media.media_type.lower() == "application/pdf":
        return "pdf"
    return start if start in INPUTS else None


# --- The port to a toolset: tools that come from elsewhere, such as a server, and that live as long as a run.


class ToolsetContext(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a toolset may know of the run that opens it."""

    session: SessionView
    """The session of the run, read only."""
    deps: Any = None  # Any: the application's own object
    """What the application gave to the run: `run(deps=...)`."""


class OpenToolset(Protocol):
    """A toolset that one run has opened."""

    def tools(self, session: SessionView) -> "Sequence[Tool] | Awaitable[Sequence[Tool]]":
        """Return the tools of the next request. Called before each request, so the list may change between steps.

        Returning the same Tool objects costs nothing. An exception makes these tools unavailable for that request; the
        run continues, and asks again before the next one. A toolset that cannot offer some of its tools may have an
        attribute `left_out`, a mapping from their names to the reasons: the log and the event `toolset.listed` show it.
        """
        ...


class Toolset(Protocol):
    """Tools that are opened before a run's first request and closed at its end.

    Example:
        class Tickets:
            name = "tickets"

            @asynccontextmanager
            async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
                async with connect(ctx.deps.token) as server:
                    yield server
    """

    @property
    def name(self) -> str:
        """Its name in events and messages; unique within an agent."""
        ...

    def open(self, ctx: ToolsetContext) -> AbstractAsyncContextManager[OpenToolset]:
        """Return what opens the toolset for one run, and closes it.

        Entered and left in one task, which lives as long as the run: a task group or a cancel scope may stay open in it.
        Left at every end of the run: an answer, a failure, a cancellation, the failure of another toolset. An exception in
        it makes the toolset's tools unavailable, with the reason; the run continues without them.
        """
        ...


def is_toolset(value: object) -> TypeGuard[Toolset]:
    """Whether a value has the form of a toolset: `name`, and `open(ctx)`. A path or a file, which opens otherwise, has not."""
    if isinstance(value, type) or not hasattr(value, "name"):
        return False
    try:
        parameters = inspect.signature(value.open).parameters.values()  # type: ignore[attr-defined]  # asked, not known
    except (AttributeError, TypeError, ValueError):
        return False
    return [one.default for one in parameters if one.kind is not one.VAR_KEYWORD][:1] == [inspect.Parameter.empty]


# --- The ports to what traces runs and calls: subscribers that also know where a run belongs, and in which context a
# call runs.


@runtime_checkable
class CallTracer(Protocol):
    """A subscriber that gives each call a context of its own: what the call starts belongs to it.

    Example:
        class Tracer:
            def __call__(self, event: AnyEvent) -> None: ...

            def call_context(self, session_id: str, call_id: str) -> Context | None:
                return contextvars.copy_context()
    """

    def __call__(self, event: AnyEvent) -> None:
        """Take in one event, as every subscriber does."""
        ...

    def call_context(self, session_id: str, call_id: str) -> Context | None:
        """Return the context in which a call that has started is to run; None to leave it where it is. It must not raise.

        Args:
            session_id: Id of the session.
            call_id: Id of the call.
        """
        ...


@runtime_checkable
class RunTracer(Protocol):
    """A subscriber that ties a run to the trace of the process that worked on it before.

    Example:
        class Tracer:
            def __call__(self, event: AnyEvent) -> None: ...

            def headers(self) -> Mapping[str, str]:
                return {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

            def link(self, run_id: str, headers: Mapping[str, str]) -> None: ...
    """

    def __call__(self, event: AnyEvent) -> None:
        """Take in one event, as every subscriber does."""
        ...

    def headers(self) -> Mapping[str, str]:
        """Return what is current where a run begins, as W3C headers; empty where nothing is. It is recorded with the run. It must not raise."""
        ...

    def link(self, run_id: str, headers: Mapping[str, str]) -> None:
        """Take in, before a run continues, what `headers` returned when it began or continued before. It must not raise.

        Args:
            run_id: Id of the run.
            headers: `traceparent`, and perhaps `tracestate`.
        """
        ...


@runtime_checkable
class RequestTracer(Protocol):
    """A subscriber that is shown each request to a model, whole. Events have only its size.

    Example:
        class Tracer:
            def __call__(self, event: AnyEvent) -> None: ...

            def model_request(self, session_id: str, act: str | None, request: ModelRequest, model: Model) -> None:
                print(len(request.messages))
    """

    def __call__(self, event: AnyEvent) -> None:
        """Take in one event, as every subscriber does."""
        ...

    def model_request(self, session_id: str, act: str | None, request: ModelRequest, model: Model) -> None:
        """Take in a request that is about to be sent, after its `model.started`. It must not raise.

        Args:
            session_id: Id of the session.
            act: What the request is for, as in the event; None for a step of the run.
            request: The request.
            model: The model that is asked.
        """
        ...


# --- The ports to the world: time and chance.


class Timer(Protocol):
    """A call that waits for its time."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time. The only source of it in the core."""

    def now(self) -> float:
        """Seconds since 1970, as people know them; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back on the event loop after so many seconds.

        Args:
            seconds: How long from now; 0 or less for the next turn of the loop.
            callback: Called once, unless the timer is cancelled before.
        """
        ...


class Randomness(Protocol):
    """Chance: jitter and names. The only source of it in the core."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""
        ...

    def token(self) -> str:
        """Return a new name: 16 lower-case letters and digits, never seen before."""
        ...


# --- The port to hooks: functions at points of a run, what they get, and what they may answer.


class Moment(StrEnum):
    """When a hook is called."""

    SESSION_START = "session_start"
    """A run begins or continues. A text is added as a message."""
    SESSION_END = "session_end"
    """A run has ended, or pauses. The answer changes nothing."""
    PROMPT = "prompt"
    """Before a user's message is added: the task, or a message to a running run. A text is added after it; a denial keeps it out."""
    BEFORE_REQUEST = "before_request"
    """Before the model is asked. A text is added as a message; a denial ends the run."""
    AFTER_RESPONSE = "after_response"
    """After a complete response, before its calls start. A denial prevents its calls from starting."""
    BEFORE_TOOL = "before_tool"
    """Before a call is decided on. A `ToolCall` or a decision's `arguments` change it; any other decision can only make it stricter."""
    AFTER_TOOL = "after_tool"
    """After a call. A `ToolResult` replaces its own."""
    ERROR = "error"
    """A tool has raised an exception, or the model could not be asked, and it is not tried again. The answer changes nothing."""
    STOP = "stop"
    """Before a run ends with an answer, or because its work is done. A text is added as a message, and the run continues."""


_DENYING = (Moment.SESSION_START, Moment.PROMPT, Moment.BEFORE_REQUEST, Moment.AFTER_RESPONSE, Moment.BEFORE_TOOL)


class HookContext(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a hook gets."""

    at: Moment
    """The moment."""
    session_id: str
    """Id of the session."""
    run_id: str
    """Id of the run."""
    step: int
    """Number of the current step; 0 before the first."""
    mode: Mode = DEFAULT_MODE
    """The session's mode."""
    tool: str = ""
    """Name of the tool, around a call."""
    effect: Effect | None = None
    """What the call does to the world."""
    call: ToolCall | None = None
    """The call, with its raw arguments."""
    arguments: JsonObject | None = None
    """Its validated arguments; a copy."""
    result: ToolResult | None = None
    """The call's result, after a tool."""
    message: Message | None = None
    """The user's message, or the model's response."""
    source: str = ""
    """For a prompt: `task` or `steer`; for the start of a session: `start` or `resume`."""
    stop: Stop | None = None
    """At the end of a run: why it ends."""
    error: BaseException | None = None
    """At an error: what was raised."""
    continued: int = 0
    """How often hooks have already made the run continue."""


HookAnswer: TypeAlias = Decision | ToolCall | ToolResult | str | None
"""None for no opinion. Which other answers are valid depends on the moment."""


class Hook(msgspec.Struct, Documented, frozen=True, kw_only=True, eq=False, metaclass=NamedOptions):
    """A function that is called at one point of a run.

    Example:
        async def no_secrets(context: HookContext) -> Decision | None:
            return Decision(kind="deny", reason="No.") if "secret" in str(context.arguments) else None

        Agent(model, tools=tools, hooks=[Hook(at="before_tool", run=no_secrets, tools="write*")])
    """

    at: Moment | Literal["session_start", "session_end", "prompt", "before_request", "after_response", "before_tool", "after_tool", "error", "stop"]  # fmt: skip
    """The moment."""
    run: Callable[[HookContext], HookAnswer | Awaitable[HookAnswer]]
    """Called with the context. A plain function runs in a thread, unless `timeout` is None."""
    name: str = ""
    """For records and messages; empty for the function's own name."""
    tools: str = "*"
    """Around a call: the tools it is for, as a pattern such as `write*`."""
    priority: int = 0
    """A number without a unit: the highest is called first; of equals, the one that was listed first."""
    timeout: float | None = 30.0
    """Seconds that it may take; None for no limit."""
    fails: Literal["open", "closed"] | None = None
    """What happens if the hook raises or takes too long: nothing (`open`), or a denial (`closed`; after a tool, the result is
    withheld from the model). None: `closed` if it can deny, else `open`."""

    def __post_init__(self) -> None:
        if not isinstance(self.at, str) or self.at not in set(Moment):
            raise ConfigurationError(f"A hook is called at one of {', '.join(Moment)}; got {shown(self.at)}.")
        if not callable(self.run):
            raise ConfigurationError(f"A hook's run must be a function of its context; got {shown(self.run)}.")
        for word, value in (("name", self.name), ("tools", self.tools)):
            if not isinstance(value, str):
                raise ConfigurationError(f"A hook's {word} must be a string; got {shown(value)}.")
        if isinstance(self.priority, bool) or not isinstance(self.priority, int):
            raise ConfigurationError(f"A hook's priority must be a whole number; got {shown(self.priority)}.")
        _check_timeout(self.timeout)
        if self.fails not in (None, "open", "closed"):
            raise ConfigurationError(f"A hook fails 'open' or 'closed'; got {shown(self.fails)}.")

    @property
    def title(self) -> str:
        """Its name in records, such as `hook no_secrets`."""
        return self.name or f"hook {getattr(self.run, '__name__', type(self.run).__name__)}"

    @property
    def is_closed(self) -> bool:
        """Whether its failure denies."""
        return self.fails == "closed" or (self.fails is None and self.at in _DENYING)


def _check_timeout(value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and value > 0):
        raise ConfigurationError(f"A hook's timeout must be more than 0 seconds, or None; got {shown(value)}.")
