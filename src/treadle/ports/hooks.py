"""The port to hooks: functions at points of a run, what they get, and what they may answer."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec

from treadle.errors import ConfigurationError, shown
from treadle.fields import Documented, NamedOptions
from treadle.messages import Message, ToolCall
from treadle.stops import Stop
from treadle.tools import DEFAULT_MODE, Decision, Effect, JsonObject, Mode, ToolResult

__all__ = ["Hook", "HookAnswer", "HookContext", "Moment"]


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
