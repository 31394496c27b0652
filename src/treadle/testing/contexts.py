"""Contexts: a ToolContext for unit tests of tools, without an agent or a run. It records what the tool does with it."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar

from treadle.canonical import find_unencodable
from treadle.errors import ConfigurationError, shown
from treadle.events import ToolProgress
from treadle.fields import Documented, checked
from treadle.messages import Message, ToolCall
from treadle.ports import Decision
from treadle.tools import Effect, JsonObject, Runner, SessionSnapshot

__all__ = ["FakeToolContext", "tool_context"]

Deps = TypeVar("Deps", default=Any)
DecisionWord = Literal["allow", "deny", "ask", "sandbox"]


@checked
def tool_context(
    deps: Deps | None = None,
    *,
    tool: str = "tool",
    arguments: JsonObject | None = None,
    call_id: str = "call_1",
    idempotency_key: str = "key_1",
    attempt: int = 1,
    cancelled: bool = False,
    inputs: Sequence[Any] = (),
    facts: JsonObject | None = None,
    messages: Sequence[Message] = (),
    decisions: Mapping[str, Decision | DecisionWord] | None = None,
    decision: Decision | None = None,
    subjects: Mapping[str, tuple[str, ...]] | None = None,
    runner: Runner | None = None,
    artifacts: Mapping[str, bytes] | None = None,
    result_chars: int | None = None,
    trace: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,  # Any: JSON
) -> "FakeToolContext[Deps]":
    """Make the `ctx` of a tool for its unit test.

    Example:
        >>> import asyncio
        >>> async def find_customer(number, ctx):
        ...     return ctx.deps[number]
        >>> asyncio.run(find_customer(7, tool_context({7: "Ada"})))
        'Ada'

    Args:
        deps: What the tool reads as `ctx.deps`.
        tool: Name of the tool that is called.
        arguments: The arguments of `ctx.call`; None for none.
        call_id: Id of `ctx.call`.
        idempotency_key: What the tool passes to its service.
        attempt: 1 for the first attempt.
        cancelled: Whether the run has asked the call to stop. A test may change `ctx.cancelled` while the tool runs.
        inputs: What people have given the call while it was suspended.
        facts: What tools have remembered in this session.
        messages: The conversation, as `ctx.session.messages`.
        decisions: The answers of `ctx.decide`, by action; every other action is allowed.
        decision: The decision by which the call runs; None for one that allows it.
        subjects: The canonical names of what the arguments named when the call was decided on; None for none.
        runner: The sandbox that the call was decided to run in.
        artifacts: What `ctx.artifact` finds, by id.
        result_chars: How many characters of the result the model is shown.
        trace: The headers of the call's trace context; None for none.
        metadata: The metadata of `ctx.session`, whose key `tenant` is `ctx.session.tenant`; None for none.

    Raises:
        ConfigurationError: The arguments are not a JSON object.
    """
    given = {} if arguments is None else arguments
    if not isinstance(given, dict) or find_unencodable(given) is not None:
        raise ConfigurationError(f"arguments must be a JSON object; got {shown(given)}.")
    return FakeToolContext(
        deps=deps,  # type: ignore[arg-type]  # a tool that takes deps is given them by its test
        call=ToolCall(id=call_id, name=tool, arguments=msgspec.json.encode(given).decode()),
        idempotency_key=idempotency_key,
        attempt=attempt,
        cancelled=cancelled,
        inputs=tuple(inputs),
        facts=facts or {},
        session=SessionSnapshot(
            id="session", run_id="run", step=1, messages=tuple(messages), metadata=dict(metadata or {})
        ),
        decisions=decisions or {},
        decision=decision or Decision(kind="allow", rule="test"),
        subjects=dict(subjects or {}),
        runner=runner,
        artifacts=artifacts or {},
        result_chars=result_chars,
        trace=dict(trace or {}),
    )


class FakeToolContext(msgspec.Struct, Documented, Generic[Deps], kw_only=True, eq=False):
    """A `ToolContext` that a test has made with `tool_context`, and what the tool has done with it.

    Example:
        >>> ctx = tool_context()
        >>> ctx.progress("half way", done=1, total=2)
        >>> ctx.progress_events[0].message
        'half way'
    """

    deps: Deps
    """The application's own object."""
    call: ToolCall
    """The call, with its raw arguments."""
    idempotency_key: str
    """Stable for one logical call."""
    attempt: int
    """1 for the first attempt."""
    cancelled: bool
    """Whether the run has asked this call to stop. A test may set it."""
    inputs: tuple[Any, ...]
    """What people have given the call while it was suspended."""
    facts: JsonObject
    """What tools have remembered in this session."""
    session: SessionSnapshot
    """The session as it is."""
    decisions: Mapping[str, Decision | DecisionWord]
    """The answers of `decide`, by action; every other action is allowed."""
    decision: Decision
    """The decision by which the call runs."""
    subjects: Mapping[str, tuple[str, ...]] = {}
    """The canonical names of what the arguments named when the call was decided on."""
    runner: Runner | None = None
    """The sandbox that the call was decided to run in; None where it may run as it is."""
    artifacts: Mapping[str, bytes] = {}
    """What `artifact` finds, by id."""
    result_chars: int | None = None
    """How many characters of the result the model is shown; None for no limit."""
    trace: Mapping[str, str] = {}
    """The W3C trace context of the call, as headers."""
    progress_events: list[ToolProgress] = []
    """What the tool has reported, in order."""
    asked_actions: list[tuple[str, JsonObject]] = []
    """Each action that the tool has asked about, with its arguments, in order."""

    @checked
    async def artifact(self, name: str) -> bytes | None:
        """Return the test's artifact of this id."""
        return self.artifacts.get(name)

    @checked
    async def decide(
        self,
        action: str,
        arguments: JsonObject,
        *,
        effect: Effect | Literal["read", "idempotent", "keyed", "unsafe"] = Effect.UNSAFE,
    ) -> Decision:
        """Return the test's decision on an action, and record that it was asked for."""
        self.asked_actions.append((action, deepcopy(arguments)))
        found = self.decisions.get(action, "allow")
        return found if isinstance(found, Decision) else Decision(kind=found, rule="test")

    @checked
    def progress(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        """Record how far the tool says it is."""
        self.progress_events.append(ToolProgress(call_id=self.call.id, message=message, done=done, total=total))
