"""Ports: what the core needs from the world, as Protocols. Each docstring is the contract; nothing is implemented here."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from treadle.errors import ModelError
from treadle.events import AnyEvent, JournalDegraded, SessionStatus
from treadle.messages import Finish, Message, Part, ToolCall, Usage
from treadle.state import Approval, SessionState
from treadle.tools import CheckedCall, JsonObject, Tool, ToolResult

__all__ = [
    "BoundDriver",
    "CallReady",
    "Capability",
    "Clock",
    "Compiler",
    "Decision",
    "DecisionFailure",
    "DecisionKind",
    "Degradation",
    "Driver",
    "Executor",
    "HasCapabilities",
    "HasClock",
    "HasOverview",
    "InboxMessage",
    "Interceptor",
    "Journal",
    "Lease",
    "Model",
    "ModelEnd",
    "ModelPart",
    "ModelRequest",
    "Policy",
    "Pricing",
    "Randomness",
    "RequestFailed",
    "ResponseSetAside",
    "SessionInfo",
    "SessionView",
    "TextDelta",
    "ThinkingDelta",
    "Timer",
    "ToolChoice",
    "ToolSpec",
    "tell_counted",
    "told_counted",
]

# --- the model -------------------------------------------------------------------------------------------------------


class Pricing(Protocol):
    """What a model costs. `Price` is one; a price list may be another."""

    def cost(self, usage: Usage) -> Decimal:
        """Return the exact cost of one model call."""
        ...


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is told of one tool."""

    name: str
    description: str
    parameters: JsonObject


ToolChoice: TypeAlias = str
"""`auto`, `required`, `none`, or a tool's name: that tool must be called."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model, in neutral words."""

    messages: tuple[Message, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    output_schema: JsonObject | None = None
    """JSON Schema of the final answer; None for free text."""
    parallel_tool_calls: bool = True
    """Whether one response may hold several calls. False asks the provider for one at a time; not all of them obey."""
    larger_output: bool = False
    """Whether the output limit has cut a response of this run: an adapter that sets that limit by itself then sets a larger one."""
    session_id: str = ""


class TextDelta(msgspec.Struct, frozen=True, tag="text", gc=False):
    """A piece of the answer."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, tag="thinking", gc=False):
    """A piece of the model's reasoning."""

    text: str


class CallReady(msgspec.Struct, frozen=True, tag="call", gc=False):
    """A call whose arguments are complete while the response may still stream.

    Yielded in call order and for none before all earlier ones, and equal to the call in the final message. A call that the
    server reports again may be yielded again. A driver that cannot tell when arguments are complete yields none.
    """

    call: ToolCall


class DecisionFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a driver gave up on the model's decision. The step fails with it, and the run ends."""

    reason: Literal["extraction", "validation"]
    message: str
    details: tuple[JsonObject, ...] = ()
    attempts: int = 1
    """Responses that were looked at, the last included."""

    @property
    def code(self) -> str:
        """The name of the pseudo-execution that stands for it in reports."""
        return f"decision_{self.reason}"


class ModelEnd(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """The terminal part: the whole message. Without it a response is incomplete, never final."""

    parts: tuple[Part, ...]
    finish: Finish = Finish.UNKNOWN
    usage: Usage | None = None
    """None when the server sent none."""
    cut_calls: frozenset[str] = frozenset()
    """Ids of calls that the response may have cut off: they must not run."""
    unnamed_calls: frozenset[str] = frozenset()
    """Ids that the adapter made up because the server sent none. A call without an id may be any equal call of the response."""
    is_retold: bool = False
    """Whether the server began its message again or sent part of it in a second form. Equal calls may then be one call or two, whatever
    their ids."""
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

    @property
    def is_broken_off(self) -> bool:
        """Whether the provider ended the response for a reason that is not known here, which is not a completion."""
        return self.finish is Finish.UNKNOWN and self.finish_reason is not None


class RequestFailed(msgspec.Struct, frozen=True, kw_only=True, tag="request_failed"):
    """A request of the driver failed, and the step goes on without it. Recorded as `model.failed`; what it used is counted."""

    error: ModelError


def tell_counted(cut: BaseException, usage: Usage | None) -> None:
    """Have the exception that cuts a response off carry what its server had counted by then. Adapters call it."""
    vars(cut)[_COUNTED] = usage


def told_counted(cut: BaseException) -> Usage | None:
    """Return what the server of a response that was cut off had counted; None where nobody told."""
    usage = vars(cut).get(_COUNTED)
    return usage if isinstance(usage, Usage) else None


_COUNTED = "counted"


class ResponseSetAside(msgspec.Struct, frozen=True, kw_only=True, tag="set_aside"):
    """A whole response that is not the step's own message; the driver asks again.

    Yielded by drivers before they send their next request: what it used is counted at once, so that limits hold. Where a
    limit forbids the next request, the driver is asked for no more.
    """

    reason: Literal["extraction", "validation", "reworded"]
    """Its decision could not be read, or not be accepted; or it is an answer that another inference words."""
    message: str = ""
    """What the model is told of a decision that was not accepted."""
    parts: tuple[Part, ...] = ()
    usage: Usage | None = None
    """None when the server sent none."""
    attempt: int = 1
    fallback: ModelEnd | None = None
    """What ends the step where no further request is allowed; None to end the run at its limit."""


ModelPart: TypeAlias = TextDelta | ThinkingDelta | CallReady | ModelEnd | RequestFailed | ResponseSetAside


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
    """It takes no tools on the wire: they are told in words, and it answers with decisions (ReAct)."""
    JSON_SCHEMA = "json_schema"
    """Its answers can be held to a JSON Schema."""


@runtime_checkable
class HasCapabilities(Protocol):
    """A model that says what is special about it. One that does not is taken to call tools natively."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The same for the model's whole life."""
        ...


class BoundDriver(Protocol):
    """A driver that knows the tools and the executor of one run."""

    def propose(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Obtain one step: yield the parts of the model's response, `ModelEnd` last. Executes nothing.

        Raises:
            ModelError: The model call failed.
        """
        ...


class Executor(Protocol):
    """What takes the calls of a response and gives results. It belongs to the loop; a driver may only ask about it."""

    def offers(self, name: str) -> bool:
        """Whether a call of this name would find a tool now."""
        ...


class Driver(Protocol):
    """How a step is obtained from a model: native tool calling, ReAct, or a script."""

    def bind(self, model: Model, tools: Sequence[Tool], executor: Executor) -> BoundDriver:
        """Return the driver of one run. Called once a run, before its first step; may return itself when stateless."""
        ...


class Compiler(Protocol):
    """What the model sees of the stored messages. The store is never changed by it."""

    def compile(self, session: "SessionView") -> Sequence[Message]:
        """Return the messages of the next request: the same for the same state, pairs of calls and results whole."""
        ...


# --- decisions -------------------------------------------------------------------------------------------------------


class DecisionKind(StrEnum):
    """What may become of a call."""

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"
    SANDBOX = "sandbox"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The word on one call, with the rule that spoke and its reason."""

    kind: DecisionKind | Literal["allow", "deny", "ask", "sandbox"]
    rule: str = ""
    reason: str = ""


class SessionView(Protocol):
    """What policies, compilers and tools may know of a session. Read only."""

    @property
    def id(self) -> str: ...
    @property
    def messages(self) -> tuple[Message, ...]: ...
    @property
    def state(self) -> SessionState: ...


class Policy(Protocol):
    """Turns a valid call into a decision, before anything runs."""

    def decide(self, call: CheckedCall, session: SessionView) -> "Decision | Awaitable[Decision | None] | None":
        """Return the decision, or None for no opinion. One that raises denies the call."""
        ...


class Interceptor(Protocol):
    """Stands before and after each tool call. It may change or block, and it can never widen what policy allows."""

    def before(self, call: ToolCall) -> "ToolCall | Decision | Awaitable[ToolCall | Decision]":
        """Return the call, perhaps with other arguments (they are validated again), or a Decision such as deny."""
        ...

    def after(self, call: ToolCall, result: ToolResult) -> "ToolResult | Awaitable[ToolResult]":
        """Return the result, perhaps changed. Its call_id stays."""
        ...


# --- the world -------------------------------------------------------------------------------------------------------


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
        """Call back on the event loop after so many seconds."""
        ...


class Randomness(Protocol):
    """Chance: jitter and names. The only source of it in the core."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""
        ...

    def token(self) -> str:
        """Return a new name: 16 lower-case letters and digits, never seen before."""
        ...


# --- the journal -----------------------------------------------------------------------------------------------------


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a journal's list of sessions."""

    id: str
    state: str
    """What became of its last run: active (none yet), running, paused, stopped, completed, failed; or deleted."""
    head: int
    """Number of its last event."""
    updated_at: float
    task: str = ""
    """The first words of the first task."""
    status: SessionStatus = "active"
    """What people have made of the session: active, suspended, completed, failed, deleted."""
    parent_id: str | None = None
    """The session that it was forked from, or whose call it carries out."""
    parent_seq: int | None = None
    """The last event that the two share."""


class InboxMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Something that another process left for a session."""

    id: str
    """Unique in the session: the first of two with one id wins."""
    kind: Literal["message", "answer", "cancel"]
    body: JsonObject


class Lease(Protocol):
    """The right to write one session, for as long as its run lasts."""

    @property
    def head(self) -> int | None:
        """Number of the session's last event when the lease was taken; None where the store does not say."""
        ...

    @property
    def has_messages(self) -> bool | None:
        """Whether anything lay in the session's inbox then; None where the store does not say."""
        ...

    async def release(self) -> None:
        """Give the session back. May be called twice, also after the lease was lost."""
        ...


class Degradation(Protocol):
    """A journal that goes on without its store for a while, and says so."""

    def listen(self, session_id: str, hear: Callable[[JournalDegraded], None]) -> None:
        """Call back when the store of this session has failed, and when it is back."""
        ...

    def waiting(self, session_id: str) -> int:
        """Return how many events of a session are in memory only, because its store has failed."""
        ...


@runtime_checkable
class HasClock(Protocol):
    """A store with a clock of its own, which all machines that share the store can ask."""

    async def now(self) -> float | None:
        """Return seconds since 1970 by the store's clock; None where it has none after all.

        Raises:
            JournalError: The store failed.
        """
        ...


@runtime_checkable
class HasOverview(Protocol):
    """A store that answers some questions about its sessions without their events being read one by one."""

    async def is_held(self, session_id: str) -> bool:
        """Return whether a process that seems to live runs the session. Waits for nothing, so one that has just died may count.

        Raises:
            JournalError: The store failed.
        """
        ...

    async def with_unknown_outcomes(self) -> Collection[str]:
        """Return the ids of the sessions in which a call has the result `outcome_unknown`; others may be among them.

        Raises:
            JournalError: The store failed.
        """
        ...


class Journal(Protocol):
    """The append-only log of all sessions in one store. Safe to use from many tasks of one event loop."""

    @property
    def location(self) -> str:
        """Where it is, for people: a path or an address without secrets."""
        ...

    async def create(self, session_id: str) -> bool:
        """Make the session if there is none. Return whether it was made."""
        ...

    async def acquire(self, session_id: str, *, on_lost: Callable[[], None], on_message: Callable[[], None]) -> Lease:
        """Take the session for one run. Whoever held it before is fenced: its appends are refused from now on.

        Args:
            on_lost: Called on this event loop, once, when another process has taken the session over because this one
                had not been heard of for too long. Everything under way should stop.
            on_message: Called on this event loop soon after something has been left in the session's inbox.

        Raises:
            SessionHeld: A process or task that is alive holds it; the message says which and since when.
            UnknownSession: There is no such session.
            JournalError: The store failed.
        """
        ...

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        """Append numbered events; all of them or none.

        Without `durable` it may return before they are stored, in order; with it they survive a power cut, together with
        everything appended before.

        Raises:
            SessionConflict: Another writer has appended: nothing was written.
            JournalError: The store failed. Also raised, once, by the next call after a deferred append failed.
        """
        ...

    async def adopt(
        self, session_id: str, events: Sequence[AnyEvent], *, state: str, inbox: Sequence["InboxMessage"] = ()
    ) -> None:
        """Make a session that has these events, from number 1, and these waiting messages; all of it, durable, or nothing.

        Raises:
            SessionExists: There is a session by that id, be it deleted.
            JournalError: The store failed.
        """
        ...

    async def purge(self, session_id: str, stone: AnyEvent, *, blobs: Sequence[str] = ()) -> None:
        """Remove everything of a session but this event, numbered 1, which says that the session is deleted.

        Args:
            blobs: Stored bytes that go too, where no other session names them.

        Raises:
            UnknownSession: There is no such session.
            JournalError: The store failed.
        """
        ...

    async def flush(self) -> None:
        """Return when everything appended so far is stored (not necessarily synced).

        Raises:
            JournalError: An append failed.
        """
        ...

    async def read(self, session_id: str, *, after: int = 0) -> Sequence[AnyEvent]:
        """Return the session's events with a number above `after`, in order; none for an unknown session."""
        ...

    async def sessions(self) -> Sequence[SessionInfo]:
        """Return all sessions, the last changed first."""
        ...

    async def approvals(self) -> Sequence[Approval]:
        """Return the requests for consent that wait for an answer, over all sessions."""
        ...

    async def put(self, session_id: str, message: InboxMessage) -> bool:
        """Leave a message in the inbox. Return False when one with its id is there already, consumed or not.

        Raises:
            UnknownSession: There is no such session.
        """
        ...

    async def inbox(self, session_id: str) -> Sequence[InboxMessage]:
        """Return the messages that nobody has consumed yet, in order of arrival."""
        ...

    async def consume(self, session_id: str, message_ids: Sequence[str], seq: int) -> None:
        """Mark messages as consumed by the event numbered `seq`."""
        ...

    async def put_blob(self, content: bytes) -> str:
        """Store bytes by their SHA-256 and return it in hexadecimal."""
        ...

    async def blob(self, digest: str) -> bytes | None:
        """Return stored bytes, or None."""
        ...

    async def close(self) -> None:
        """Store what is pending and let go of the store. May be called twice."""
        ...
