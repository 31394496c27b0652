"""Contexts: what a tool may know about its call while it runs. Protocols and frozen values; runs and decides nothing."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Generic, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from typing_extensions import TypeVar

from treadle.fields import Documented, NamedOptions
from treadle.messages import Message, ToolCall
from treadle.tools.effects import Decision, Effect, FileNames
from treadle.tools.needs import Need

__all__ = [
    "TRACE",
    "Command",
    "Deps_contra",
    "Detached",
    "Detaching",
    "Hiding",
    "JsonObject",
    "Lifting",
    "Place",
    "ProcessResult",
    "Refusal",
    "RunContext",
    "Runner",
    "SessionSnapshot",
    "ShellLine",
    "ToolContext",
]


# --- Commands: a program to run, how it ended, and what runs it. Values and one port.


class Command(msgspec.Struct, Documented, frozen=True, kw_only=True, metaclass=NamedOptions):
    """A program with its arguments. No shell reads them.

    Example:
        Command(arguments=("git", "log", "-1"), cwd="/repository")
    """

    arguments: tuple[str, ...]
    """The program and its arguments."""
    cwd: str | None = None
    """The folder it runs in; None for the runner's own."""
    env: Mapping[str, str] | None = None
    """Its whole environment; None for a clean one."""
    stdin: bytes | None = None
    """Its standard input; None for no input."""
    timeout: float | None = None
    """Seconds after which it is ended, keeping what it has written so far; None for no separate limit."""
    on_output: Callable[[bytes], None] | None = None
    """Called with each piece of its output as it arrives, if the runner supports that. It must not raise."""
    lifted: tuple[str, ...] = ()
    """What of the sandbox's border was allowed for this program, as in `Decision.lifted`. A runner that cannot lift just that refuses, or lifts nothing."""


class Refusal(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """Something that a sandbox refused to a program."""

    kind: Literal["read", "write", "network", "processes", "memory", "time", "disk", "other"]
    """What was refused."""
    target: str = ""
    """The path, from `/`, or the limit; empty if unknown."""
    line: str = ""
    """The program's own message."""


class ProcessResult(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """How a program ended. A non-zero exit code is a result, not an error."""

    exit_code: int
    """Negative: the signal that ended it."""
    stdout: str
    """What the program wrote to its standard output."""
    stderr: str
    """What it wrote to its standard error."""
    is_shortened: bool = False
    """Whether more was written than is kept here; the middle is then left out."""
    timed_out: bool = False
    """Whether it was ended at its time limit."""
    refused: tuple[Refusal, ...] = ()
    """What its sandbox refused, as far as that is known. Empty if the sandbox was not the cause."""


class Place(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a path really stands for, links resolved."""

    path: str
    """From `/`."""
    relative: str | None
    """Relative to the root folder; None where it lies outside of it."""
    is_folder: bool = False
    """Whether it is a folder now."""
    is_unknown: bool = False
    """Whether it leads each process elsewhere, as `/proc/self/cwd` does: only the one that opens it knows where."""


class ShellLine(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A line of shell that a call would run, for the rules that judge it."""

    text: str
    """What a shell is given."""
    look: Callable[[str], Place]
    """Says what a path in the line stands for, relative to the folder in which the line starts."""
    look_from_root: Callable[[str], Place]
    """Says what a path in a rule stands for, relative to the root folder."""
    files: FileNames | None = None
    """The root folder: it knows which names in rules are links, or other names of one file."""
    expand: Callable[[str], Sequence[str] | None] | None = None
    """Returns the names that a pattern of the shell matches, relative to the folder in which the line starts; None where there are too many
    to look at. Without it, a pattern may match anything."""
    brought: Callable[[str, str], str] | None = None
    """Says why a program that is known to read would start something that the project brings: by its name, and the folder in which it
    starts, relative to the folder in which the line starts. Empty where it would not."""


class Detached(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """A command in the form in which it runs confined, for somebody else to start."""

    arguments: tuple[str, ...]
    """The program and its arguments."""
    cwd: str
    """The folder it is started in."""
    env: Mapping[str, str]
    """Its whole environment."""
    groups: tuple[str, ...] = ()
    """Folders of the control groups that it joins: whatever is in them has to be ended with it."""
    handed: Mapping[int, bytes] = {}
    """What it reads when it starts, from the descriptors of these numbers."""
    disk_folders: tuple[str, ...] = ()
    """Folders that it may write in, from `/`."""
    closed_names: tuple[str, ...] = ()
    """Paths in these folders that it may give to nothing: what has one is renamed while it runs."""
    disk_bytes: int | None = None
    """Bytes that its files there may take together, after which it has to be ended; None for no limit."""


class Runner(Protocol):
    """Runs programs in another place: in a sandbox, in a container, on another machine."""

    @property
    def name(self) -> str:
        """What it is, for people and records, such as `bubblewrap`."""
        ...

    async def run(self, command: Command) -> ProcessResult:
        """Run a program to its end. A cancellation ends the program and everything that it has started.

        Raises:
            OSError: The program cannot be run there. It is never run anywhere else instead.
        """
        ...


@runtime_checkable
class Detaching(Protocol):
    """A runner that can also say how a command is started confined, for processes that outlive a call."""

    def detached(self, command: Command) -> Detached:
        """Return a command as it runs confined.

        Raises:
            OSError: It cannot be confined.
        """
        ...


@runtime_checkable
class Lifting(Protocol):
    """A runner that cannot lift each need of a program alone."""

    def lifts(self, need: Need) -> Need:
        """Return what it lifts for a need: the same, or what includes it."""
        ...


@runtime_checkable
class Hiding(Runner, Protocol):
    """A runner that can keep more files from its programs: those that rules deny reading."""

    def hiding(self, globs: Sequence[str]) -> Runner:
        """Return the same runner whose programs cannot read what the globs name, as far as it exists when they start.

        Args:
            globs: Paths and globs as in rules, relative to the folders that it works in, or from `/`.
        """
        ...


# --- Contexts: what a tool may know about its call while it runs. Protocols and frozen values; runs and decides
# nothing.

TRACE: ContextVar[Mapping[str, str]] = ContextVar("treadle_trace")
"""The W3C trace context of the call under way, as headers: `traceparent`, `tracestate`. Whoever traces calls sets it."""

JsonObject: TypeAlias = dict[str, Any]  # Any: JSON of strangers, checked against a schema before it is used
"""A JSON object, as Python has it."""

Deps_co = TypeVar("Deps_co", covariant=True, default=Any)
"""The type of the application's own object."""
Deps_contra = TypeVar("Deps_contra", contravariant=True, default=Any)
"""The same, of what is given one: a tool that takes any object is also a tool for a database."""


class ToolContext(Protocol[Deps_co]):
    """What a tool may know about its call. A parameter annotated with it is injected, and the model never sees it.

    Example:
        @tool(effect="read")
        async def find_order(number: int, ctx: ToolContext[Database]) -> Order:
            \"\"\"Find an order.\"\"\"
            return await ctx.deps.find(number)          # a Database, for type checkers and editors
    """

    @property
    def call(self) -> ToolCall:
        """The call that triggered this execution, with its raw arguments."""
        ...

    @property
    def decision(self) -> Decision:
        """The decision by which the call runs: its rule, scope and mode, who decided, and the arguments if they were changed."""
        ...

    @property
    def subjects(self) -> Mapping[str, tuple[str, ...]]:
        """The canonical names of what the arguments named when the call was decided on, by argument: see `Tool.subjects`.

        Act on these and on nothing else: a path may lead elsewhere by now, and nobody has decided on that.
        """
        ...

    @property
    def runner(self) -> Runner | None:
        """The sandbox in which the call must run; None if it may run unconfined: see `Tool.sandbox`."""
        ...

    @property
    def idempotency_key(self) -> str:
        """Stable for one logical call over attempts, resumes and processes. Pass it to the service."""
        ...

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether this call should stop. A blocking tool should check it from time to time."""
        ...

    @property
    def deps(self) -> Deps_co:
        """The application's own object, as passed to `run(deps=...)`."""
        ...

    @property
    def inputs(self) -> tuple[Any, ...]:  # Any: JSON
        """The inputs that people gave this call while it was suspended, in order: see `Suspended` and `Session.input`."""
        ...

    @property
    def facts(self) -> JsonObject:
        """The facts that tools have stored in this session, by name: see `ToolOutput.facts`. A copy."""
        ...

    @property
    def result_chars(self) -> int | None:
        """How many characters of the result the model is shown; None for no limit. A longer one is shortened and kept whole."""
        ...

    @property
    def session(self) -> "SessionSnapshot":
        """The session as it is now: frozen values that cannot be changed."""
        ...

    @property
    def trace(self) -> Mapping[str, str]:
        """The W3C trace context of the call, as headers to pass on: `traceparent` and perhaps `tracestate`; empty without tracing."""
        ...

    async def artifact(self, name: str) -> bytes | None:
        """Return an artifact, of which the model was shown a part, by the id in its mark; None if the session has none with that id.

        A result that is too long for the model is stored whole, as an artifact, and shortened around a mark that names it.
        """
        ...

    async def decide(
        self,
        action: str,
        arguments: JsonObject,
        *,
        effect: Effect | Literal["read", "idempotent", "keyed", "unsafe"] = Effect.UNSAFE,
    ) -> Decision:
        """Ask the permission engine about one of the tool's own actions before it is carried out. The decision is recorded.

        The policy, its rules and the interceptors treat it like a call of that name: of the agent's tool with the name, or else
        of a tool with this effect. No person is asked. Carry the action out only if `kind` is "allow".

        Example:
            decision = await ctx.decide("delete", {"path": path})
            if decision.kind == "allow":
                os.remove(path)

        Args:
            effect: What the action does to the world, if no tool of the agent has its name.

        Raises:
            ConfigurationError: The action has no name, or its arguments are not a JSON object.
        """
        ...

    def progress(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        """Report how far the call is. People see it, the model does not.

        Args:
            done: How much is done, in any unit.
            total: How much there is in total, in the same unit.
        """
        ...


class SessionSnapshot(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a tool may read of its session."""

    id: str
    """Id of the session."""
    run_id: str = ""
    """Id of the run; empty before it is recorded as begun."""
    step: int = 0
    """Number of the step, from 1; 0 before the first."""
    messages: tuple[Message, ...] = ()
    """The conversation so far."""
    status: str = "running"
    """In which state it is: `running`; before the run continues or begins also `active` (no run yet), `queued`, `paused`, `stopped`,
    `completed` or `failed`."""
    metadata: Mapping[str, Any] = {}  # Any: JSON
    """The session's metadata. A copy."""
    budget_left: Mapping[str, int | float | Decimal] = {}
    """What is left of the limits of the run and of those that called it, by the name of each, such as `max_tool_calls`: counts and tokens,
    seconds as a float, dollars as a Decimal. What has no limit is left out."""

    @property
    def phase(self) -> str:
        """The old name of `status`."""
        warnings.warn("Write ctx.session.status: `phase` goes.", DeprecationWarning, stacklevel=2)
        return self.status

    @property
    def tenant(self) -> str:
        """Whose session it is: the key `tenant` of its metadata; empty for nobody's."""
        tenant = self.metadata.get("tenant")
        return tenant if isinstance(tenant, str) else ""


class RunContext(msgspec.Struct, Documented, Generic[Deps_co], frozen=True, kw_only=True):
    """What a function that writes instructions may know: whose run it is, and your own object.

    Example:
        async def for_customer(ctx: RunContext[Database]) -> str:
            return f"The customer is {await ctx.deps.name_of(ctx.tenant)}."
    """

    deps: Deps_co
    """The application's own object, as passed to `run(deps=...)`."""
    session: SessionSnapshot
    """The session as it is before the run begins: the task is not one of its messages yet."""

    @property
    def metadata(self) -> Mapping[str, Any]:  # Any: JSON
        """The session's metadata."""
        return self.session.metadata

    @property
    def tenant(self) -> str:
        """Whose session it is; empty for nobody's."""
        return self.session.tenant
