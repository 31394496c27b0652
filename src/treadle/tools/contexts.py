"""Contexts: what a tool may know about its call while it runs. Protocols and frozen values; runs and decides nothing."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from typing_extensions import TypeVar

from treadle.fields import Documented
from treadle.messages import Message, ToolCall
from treadle.tools.commands import Runner
from treadle.tools.decisions import Decision
from treadle.tools.effects import Effect

__all__ = ["TRACE", "JsonObject", "SessionSnapshot", "ToolContext"]

TRACE: ContextVar[Mapping[str, str]] = ContextVar("treadle_trace")
"""The W3C trace context of the call under way, as headers: `traceparent`, `tracestate`. Whoever traces calls sets it."""

JsonObject: TypeAlias = dict[str, Any]  # Any: JSON of strangers, checked against a schema before it is used
"""A JSON object, as Python has it."""

Deps_co = TypeVar("Deps_co", covariant=True, default=Any)
"""The type of the application's own object."""


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
    run_id: str
    """Id of the run."""
    step: int
    """Number of the step, from 1."""
    messages: tuple[Message, ...]
    """The conversation so far."""
    status: str = "active"
    """The session's own status, which people set: see `Session.change`."""
    metadata: Mapping[str, Any] = {}  # Any: JSON
    """The session's metadata. A copy."""
    budget_left: Mapping[str, int | float] = {}
    """What is left of the limits of the run and of those that called it, by the name of each, such as `max_tool_calls`; without a limit,
    it is not in there."""

    @property
    def tenant(self) -> str:
        """Whose session it is: the key `tenant` of its metadata; empty for nobody's."""
        tenant = self.metadata.get("tenant")
        return tenant if isinstance(tenant, str) else ""
