"""Agent: the immutable description of an actor: model, tools, instructions, policy, budget. Runs nothing by itself."""

import copy
import dataclasses
import functools
import inspect
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, overload

import msgspec
from typing_extensions import TypeVar, Unpack, deprecated

from treadle.agents.checks import (
    checked_chars,
    checked_choice,
    checked_depth,
    checked_instructions,
    checked_metadata,
    checked_name,
    checked_required,
    checked_seconds,
    checked_subscribers,
    checked_task,
    equipped,
)
from treadle.agents.children import carry_out
from treadle.agents.options import AgentChanges, AgentOptions, Instructions, RunOptions, Tools
from treadle.agents.run import Run
from treadle.budgets import Budget, Deadline, Guards, TenantBudget
from treadle.context.compilers import compiler_for
from treadle.engine.lifecycle import Lifecycle
from treadle.engine.opening import Opened
from treadle.engine.rules.failures import FailureText
from treadle.engine.spec import (
    AgentSpec,
    CancelSiblings,
    DepsFunction,
    DoneWhen,
    InDoubt,
    OnDenial,
    OnFailure,
    Output_co,
    RunResult,
    fingerprint_of,
)
from treadle.errors import ConfigurationError
from treadle.events import Subscriber
from treadle.fields import BelowIt, checked, checked_but
from treadle.hooks import hooks_of
from treadle.messages import Message
from treadle.permissions.policies import APPROVAL_LIFETIME_SECONDS, unmatched
from treadle.ports import (
    Approver,
    Compactor,
    Compiler,
    Driver,
    HasCapabilities,
    HasFacts,
    Hook,
    Interceptor,
    Model,
    Policy,
    Toolset,
    ToolsetContext,
    UnmatchedRule,
)
from treadle.redaction import Redactor
from treadle.resolve import check_model_name, driver_for, memory_session, resolve_model
from treadle.sessions.session import Session
from treadle.sessions.views import ReadOnlyView
from treadle.state import Approval
from treadle.sync import wait
from treadle.tooling.toolbox import Toolbox
from treadle.tools import Effect, JsonObject, Runner, Tool, ToolContext
from treadle.tools.contexts import Deps_contra
from treadle.tools.effects import effect_from
from treadle.tools.tool import closed_schema

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from treadle.validation.typed import Typed

__all__ = ["Agent", "description_of"]


# --- Description: an agent as one JSON object: model, tools, rules, limits, hooks, as they were built. Runs nothing,
# asks nobody.

_DEPTH = 12
"""Policies may hold policies. Below so many levels only the class of an object is named."""
_DERIVED = {"fingerprint", "index", "opened", "policies_above"}
"""Fields that are made from the others, or belong to one run."""


def description_of(about: AgentSpec, model: Model) -> dict[str, Any]:
    """Return everything that an agent was built from: equal agents have equal descriptions, in every process.

    A function or an object of a program's own is described by its module and name. Secrets are redacted, and a model's key, headers
    and address are left out.
    """
    parts = {"model": _model(model), **_fields(about, 0)}
    parts["output"] = None if about.output is None else about.output.schema
    parts["tools"] = parts.pop("toolbox")
    parts["parallel_hint"] = about.toolbox.has_hints
    return Redactor().value({name: parts[name] for name in sorted(parts)})  # type: ignore[no-any-return]  # an object stays one


def _model(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "class": _name(type(model)),
        "price": _described(model.price, 1),
        "facts": _described(model.facts, 1) if isinstance(model, HasFacts) else None,
        "capabilities": _described(model.capabilities, 1) if isinstance(model, HasCapabilities) else [],
    }


def _fields(value: Any, depth: int) -> dict[str, Any]:
    names = (
        value.__struct_fields__
        if isinstance(value, msgspec.Struct)
        else [one.name for one in dataclasses.fields(value)]
    )
    return {name: _described(getattr(value, name), depth + 1) for name in names if name not in _DERIVED}


def _described(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):
        return str(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    if depth < _DEPTH:
        return _opened(value, depth)
    return _name(value if callable(value) else type(value))


def _opened(value: Any, depth: int) -> Any:
    """What is inside of a value: its items, or its public fields with its class."""
    if isinstance(value, Mapping):
        return {str(key): _described(one, depth + 1) for key, one in value.items()}
    if isinstance(value, AbstractSet):
        return sorted((_described(one, depth + 1) for one in value), key=str)
    if isinstance(value, list | tuple):
        return [_described(one, depth + 1) for one in value]
    if isinstance(value, msgspec.Struct) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return {"class": _name(type(value)), **_fields(value, depth)}
    if isinstance(value, Toolbox):
        return [_fields(tool, depth) for tool in value]
    around = getattr(value, "policies", None)  # of a policy around others
    return (
        {"class": _name(value), "policies": _described(around, depth + 1)}
        if isinstance(around, tuple)
        else _name(value)
    )


def _name(value: Any) -> str:
    """Return where a class, a function or an object's class is defined. An address in memory tells nobody anything."""
    if isinstance(value, functools.partial):
        return _name(value.func)
    if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        value = type(value)
    return f"{value.__module__}.{value.__qualname__}"


# --- Agent: the immutable description of an actor: model, tools, instructions, policy, budget. Runs nothing by itself.

Other = TypeVar("Other")
"""The type of the answer of one run, if it replaces the agent's."""
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


_MOST_SHOWN = 5
"""Tools that the short form of an agent names."""


_NAMES = {"stream": "run", "stream_resume": "resume"}
"""What the methods are called that wait for the result of the run that these begin."""


# Each takes the method alone: type checkers then carry over all of its overloads.


def _awaited(begin: Callable[P, Run[T]]) -> Callable[P, Coroutine[Any, Any, RunResult[T]]]:
    """Return the method that begins a run and waits for its result, with the same options."""

    started: Callable[P, Run[T]] = inspect.unwrap(begin)

    async def finished(*values: P.args, **options: P.kwargs) -> RunResult[T]:
        return await started(*values, **options).finish()

    return _like(started, finished, _NAMES[started.__name__])


def _waited_for(begin: Callable[P, Run[T]]) -> Callable[P, RunResult[T]]:
    """Return the same for code that is not async."""

    started: Callable[P, Run[T]] = inspect.unwrap(begin)

    def waited(*values: P.args, **options: P.kwargs) -> RunResult[T]:
        return wait(started(*values, **options).finish())

    return _like(started, waited, f"{_NAMES[started.__name__]}_sync")


def _like(begin: Callable[P, Any], made: Callable[P, R], name: str) -> Callable[P, R]:  # Any: what `made` awaits
    """Give a method of `Agent` its name, the parameters of another one, and the documentation that is below it."""
    made.__name__, made.__qualname__ = name, f"Agent.{name}"
    made.__doc__ = BelowIt(__name__, "Agent", name)
    returned = inspect.signature(made).return_annotation
    made.__signature__ = inspect.signature(begin).replace(return_annotation=returned)  # type: ignore[attr-defined]  # inspect looks there first
    return checked_but("output", "instructions", "tools")(made)


class Agent(Generic[Deps_contra, Output_co]):
    """The immutable description of an actor. You may run it any number of times, in parallel too.

    Type checkers know an agent as `Agent[Deps, Output]`: `Deps` is your own object, which `run(deps=...)` takes and tools read as
    `ctx.deps`; `Output` is the type of `result.output`, inferred from `output`. Both are Any by default. To have
    `deps` checked, write `agent: Agent[Database, Invoice] = Agent(...)` or `Agent[Database, Invoice](...)`.

    Example:
        agent = Agent("openai-chat:gpt-5-mini", tools=[get_character], instructions="Answer briefly.",
                      budget=Budget(max_model_turns=20))
        result = await agent.run("Compare Frodo and Sam")

    Args:
        model: A model, or its name such as `openai-chat:gpt-5-mini` or `demo`.
        name: The name by which `Agents` finds it when a session's run continues in another process.
        instructions: The system prompt: a text, a function of the `RunContext` (async or not) that returns one, or a list of these,
            which are joined. Functions are called when a run begins. What they return is recorded, and the run sends the same when it continues.
        tools: Tools made by `@tool` or `Tool(...)`, and toolsets, which each run opens and closes unless they are shared (`open`); their names are unique.
        policy: Decides on each call; without one, reads are allowed and every other call asks.
        sandbox: Where calls run that the policy decides as `sandbox`, in the way that their tools declare. Without
            a sandbox, or without such a declaration, the call is denied: it never runs unconfined.
        approver: Answers requests for approval before the run pauses: a function of the request, a policy, or an `Approver`. A request
            that it does not answer waits for a person.
        approver_seconds: How long the approver may take for one call (default: 10 minutes); then the call waits for
            a person. None for no limit but the run's.
        driver: How a step is obtained from the model. By default the model's capabilities decide: native tool
            calling, or ReAct for a model that cannot call tools.
        budget: The ten limits of one run.
        tenant_budgets: What all runs of a tenant, or of each of its users, may cost together in a period. An agent that is called by another is
            bound by those of its caller.
        profile: The kind of task, for reports, such as `research`.
        compiler: Chooses what the model sees of the stored messages.
        compactor: Shortens what the model sees when it has become too long. Without one, a request that the provider
            refuses as too long ends the run, unless the compiler makes a shorter one.
        history: `all` for every message, `current` to leave out calls and results of earlier tasks.
        output: The type of the final answer: a type (a msgspec Struct, a pydantic model, a dataclass, `list[str]`, a union of these) or a
            JSON Schema. The answer is checked strictly, and the model may correct it twice; `result.output` is the value. With `Town | str`
            the answer may be free text too.
        tool_choice: `auto`, `none`, `required` or a tool's name; the last two apply to a run's first request.
        on_limit: At a turn or call limit, `summarize` asks the model for a partial answer, `report` stops at once.
        in_doubt: What `resume` does about an unsafe call that had started and whose outcome no `check` knows: `ask` a person, or `tell`
            the model that it is unknown; None asks if a person had consented to the call.
        approval_seconds: How long a person may take to answer a request for approval (default: 7 days).
        batch_seconds: Seconds that the calls of one response may take together; None for each tool's own limit only. When
            they have passed, running calls are cut off as by their own limit, those that wait are `skipped`, and
            finished results are kept.
        toolset_seconds: Seconds that a toolset may take to open, to list its tools, or to close.
        step_result_chars: Characters that the results of one step may have together in the model's context; None for no limit.
            Above it, the largest results are shortened first, and kept whole as artifacts. Never more than half of a known window.
        done_when: A function of the session that says when the work is done. It is asked after each batch of calls: with
            `Done(payload)` or True the run ends as `done_condition_satisfied`, and with False or None it continues.
        cancel_siblings: What happens to the other calls of a response when a call that is not a read ends with an error. With `never`,
            only calls that need what it was meant to change are skipped. With `on_unsafe_error`, running reads are cut off, and
            calls that have not started do not start; the result of each says so.
        on_failure: What follows when a tool fails, refuses or runs out of time: the model reads it and `continue`s, or the run ends with
            `stop`. Calls under way run to their end then, and the others of the response are skipped; each has its result.
        on_denial: What follows when a call is denied: with `skip`, the calls behind it in the same response do not run, and their
            results say so.
        strict: Whether a scalar in quotes, such as `"42"` for a number, is refused for every tool, as with `tool(strict=True)`. Otherwise it is
            read as what the schema wants, if only one reading fits.
        failure_text: What the model reads of an exception that is not a `Rejected` or `ToolError`: `short` is its class, and `whole` has its
            message too, which may hold paths, addresses or SQL. The log has all of it.
        unpriced: With max_total_cost and a model without a known price: `refuse` to run, or `warn` and run.
        parallel_hint: Whether the descriptions of `read` tools say that calls may be issued in parallel.
        subscribers: Called with every event; what they do or raise does not affect the run.
        interceptors: Called before and after each tool call.
        hooks: Functions that are called at points of a run: its start and end, a user's message, a request, a response, a
            tool call, its stop. The `Hook` with the highest priority is called first; interceptors are hooks of priority 0.
        required: Names of tools and toolsets without which a run must not continue. If one is unavailable, or a call of such a
            tool cannot reach its service (`ConnectionError`), the run stops as `tool_unavailable`, and the call is not retried.
        max_depth: How many levels of agents may be below this one, each called by the one above it. A deeper call is refused.

    Raises:
        ConfigurationError: Something in the description is wrong; the message says what to do.
    """

    _found: Model | None = None

    @overload
    def __init__(
        self, model: str | Model, *, output: JsonObject | None = None, **options: Unpack[AgentOptions[Deps_contra]]
    ) -> None: ...

    @overload
    def __init__(
        self, model: str | Model, *, output: "TypeForm[Output_co]", **options: Unpack[AgentOptions[Deps_contra]]
    ) -> None: ...

    @checked_but("tools", "output", "instructions")
    def __init__(
        self,
        model: str | Model,
        *,
        name: str | None = None,
        instructions: "Instructions[Deps_contra] | None" = None,
        tools: "Tools[Deps_contra]" = (),
        policy: Policy | None = None,
        sandbox: Runner | None = None,
        approver: "Approver | Policy | Callable[[Approval], Any] | None" = None,
        approver_seconds: float | None = 600.0,
        driver: Driver | None = None,
        budget: Budget | None = None,
        tenant_budgets: Sequence[TenantBudget] = (),
        profile: str | None = None,
        compiler: Compiler | None = None,
        compactor: Compactor | None = None,
        output: Any = None,  # Any: a type or a JSON Schema; the overloads say which
        tool_choice: str = "auto",
        history: Literal["all", "current"] = "all",
        guards: Guards | None = None,
        on_limit: Literal["summarize", "report"] = "summarize",
        cancel_siblings: CancelSiblings = "never",
        on_failure: OnFailure = "continue",
        on_denial: OnDenial = "continue",
        strict: bool = False,
        failure_text: FailureText = "short",
        unpriced: Literal["refuse", "warn"] = "refuse",
        parallel_hint: bool = True,
        in_doubt: InDoubt | None = None,
        approval_seconds: float = APPROVAL_LIFETIME_SECONDS,
        batch_seconds: float | None = None,
        toolset_seconds: float = 30.0,
        step_result_chars: int | None = 200_000,
        done_when: "DoneWhen | None" = None,
        subscribers: "Sequence[Subscriber]" = (),
        interceptors: Sequence[Interceptor] = (),
        hooks: Sequence[Hook] = (),
        required: Sequence[str] = (),
        max_depth: int = 3,
    ) -> None:
        self._options = {name: one for name, one in locals().items() if name != "self"}  # for `replace`
        self._others: dict[str, Model] = {}
        if isinstance(model, str):
            check_model_name(model)
        if compiler is not None and history != "all":
            raise ConfigurationError("Give compiler= or history=, not both: each says what the model sees.")
        self._model, (self._toolbox, toolsets) = model, equipped(tools, parallel_hint=parallel_hint)
        self._spec = AgentSpec(
            name="" if name is None else checked_name(name, "An agent's"),
            toolbox=self._toolbox,
            toolsets=toolsets,
            toolset_seconds=checked_seconds("toolset_seconds", toolset_seconds),
            step_result_chars=checked_chars(step_result_chars),
            approval_seconds=checked_seconds("approval_seconds", approval_seconds),
            batch_seconds=checked_seconds("batch_seconds", batch_seconds),
            max_depth=checked_depth(max_depth),
            approver=approver,  # type: ignore[arg-type]  # one of three forms, which the engine distinguishes
            approver_seconds=checked_seconds("approver_seconds", approver_seconds),
            instructions=checked_instructions(instructions),
            policy=policy,
            sandbox=sandbox,
            driver=driver if driver is not None or isinstance(model, str) else driver_for(model),
            budget=budget or Budget(),
            tenant_budgets=tuple(tenant_budgets),
            profile=profile,
            compiler=compiler or compiler_for(history),
            compactor=compactor,
            tool_choice=checked_choice(tool_choice, self._toolbox, toolsets),
            output=None if output is None else _typed(output),
            guards=guards or Guards(),
            on_limit=on_limit,
            unpriced=unpriced,
            in_doubt=in_doubt,
            cancel_siblings=cancel_siblings,
            on_failure=on_failure,
            on_denial=on_denial,
            strict=strict,
            failure_text=failure_text,
            done_when=done_when,
            subscribers=checked_subscribers(subscribers),
            hooks=hooks_of(interceptors, hooks),
            required=checked_required(required),
        )

    def __repr__(self) -> str:
        """Return its name, its model and its tools."""
        name = f"{self.name!r}, " if self.name else ""
        model = self._model if isinstance(self._model, str) else self._model.name
        tools = [tool.name for tool in self._toolbox] + [toolset.name for toolset in self.toolsets]
        more = f", and {len(tools) - _MOST_SHOWN} more" if len(tools) > _MOST_SHOWN else ""
        return f"<Agent {name}{model}, tools: {', '.join(tools[:_MOST_SHOWN]) or 'none'}{more}>"

    @asynccontextmanager
    @checked
    async def open(
        self, *, session: Session | None = None, deps: Deps_contra | None = None, in_background: bool = False
    ) -> AsyncGenerator["Agent[Deps_contra, Output_co]"]:
        """Open the toolsets once for many runs, and yield the agent that shares them: a server keeps its state from run to run.

        Use it for a conversation, or for a program that serves many tasks. What the runs of one opening share, a server can pass from one
        to another: open once for each person. A toolset that failed or ended is opened again by the next run.

        Example:
            async with agent.open() as opened:
                first = await opened.run("Sign in to the shop")
                await opened.run("What is in the basket?", session=first.session)

        Args:
            session: The conversation that toolsets are opened for, as `ToolsetContext.session`; None for a new, empty one. Open with it
                where a toolset keeps something by session, as `ShellTools` does.
            deps: Your own object, which toolsets read as `ToolsetContext.deps`.
            in_background: Whether to return at once. A run that begins before a toolset is open does without its tools until it is, unless it
                needs them: they are in `required`, or the run was offered them before it was resumed.
        """
        place = await memory_session() if session is None else session
        context = ToolsetContext(session=ReadOnlyView(place), deps=deps)
        spec, is_awaited = self._whole(), not in_background
        held = Opened(context, place.clock, seconds=spec.toolset_seconds, is_awaited=is_awaited)
        opened = copy.copy(self)
        opened._spec = msgspec.structs.replace(spec, opened=held)  # noqa: SLF001 - a copy of ours
        try:
            for toolset in spec.toolsets:
                held.begin(toolset)
            if is_awaited:
                await held.wait()
            yield opened
        finally:
            await held.close()

    @property
    def opening(self) -> tuple[str, ...]:
        """Names of the toolsets that are still being opened; empty for an agent that `open` did not yield."""
        return () if self._spec.opened is None else self._spec.opened.opening

    @property
    def toolset_states(self) -> Mapping[str, str]:
        """The state of each toolset by its name: `opening`, `open` or `ended`, or why it failed. Empty for an agent that `open` did not yield."""
        return {} if self._spec.opened is None else self._spec.opened.states

    # What the checkers know of a run: without `deps`, it is one of an agent that needs none; `output=` gives the result another type.

    @overload
    def stream(
        self: "Agent[None, Output_co]",
        task: str | Message,
        *,
        deps: None = None,
        output: None = None,
        **options: Unpack[RunOptions[None]],
    ) -> Run[Output_co]: ...

    @overload
    def stream(
        self: "Agent[None]",
        task: str | Message,
        *,
        deps: None = None,
        output: "TypeForm[Other]",
        **options: Unpack[RunOptions[None]],
    ) -> Run[Other]: ...

    @overload
    def stream(
        self,
        task: str | Message,
        *,
        deps: Deps_contra | DepsFunction[Deps_contra],
        output: None = None,
        **options: Unpack[RunOptions[Deps_contra]],
    ) -> Run[Output_co]: ...

    @overload
    def stream(
        self,
        task: str | Message,
        *,
        deps: Deps_contra | DepsFunction[Deps_contra],
        output: "TypeForm[Other]",
        **options: Unpack[RunOptions[Deps_contra]],
    ) -> Run[Other]: ...

    @overload
    def stream(
        self,
        task: str | Message,
        *,
        deps: Deps_contra | DepsFunction[Deps_contra] | None = None,
        output: JsonObject,
        **options: Unpack[RunOptions[Deps_contra]],
    ) -> Run[Any]: ...

    @checked_but("output", "instructions", "tools")
    def stream(
        self,
        task: str | Message,
        *,
        session: Session | None = None,
        deps: Any = None,  # Any: Deps, or a function that returns it
        budget: Budget | None = None,
        deadline: Deadline | None = None,
        model: str | Model | None = None,
        instructions: Instructions[Any] | None = None,
        tools: Sequence[Tool[Any] | Toolset] | None = None,
        output: Any = None,  # Any: a type or a JSON Schema
        metadata: JsonObject | None = None,
        tenant: str | None = None,
        single_turn: bool = False,
    ) -> Run[Any]:
        """Carry out one task and yield its events.

        Example:
            async with agent.stream("Compare Frodo and Sam") as run:
                async for event in run: ...

        `model`, `instructions`, `tools` and `output` replace the agent's for this one run. To continue a run with another model, tools
        or output in another process, make the same agent: `agent.replace(model=...).resume(session)`.

        Args:
            session: The conversation to continue; without one, an in-memory session is created (`result.session`).
            deps: Your own object; tools read it as `ctx.deps`. A function of the session (`SessionSnapshot`) returns it; it may be async, or
                open it with `@asynccontextmanager` and close it after the run.
            budget: Replaces the agent's budget.
            deadline: When the run must have ended: a datetime with a time zone, or seconds since 1970.
                If it has passed, no request is made: `budget_exceeded`, max_wall_time_seconds.
            model: A model or its name.
            instructions: As for `Agent`. They are recorded, and a resume sends the same.
            tools: All that the run may call.
            output: The type of the answer, and so of `result.output`.
            metadata: Keys of the session's metadata with new values, None to remove a key; recorded when the run begins.
            tenant: Whose run it is: the key `tenant` of the metadata. A session of another tenant is refused.
            single_turn: Whether the model may call tools in one response only: for a question, a draft or a lookup. A second round of calls
                is refused; if the model insists, the run ends. `resume` continues it as a single turn.

        Raises:
            ConfigurationError: The model's name, key or price is missing or wrong, or a function for the instructions failed.
            SessionHeld: The session is already running.
            SessionConflict: The session belongs to another tenant.
            JournalError: The session's store failed.
        """
        given = {"model": self._resolved(model), "instructions": instructions, "tools": tools, "output": output}
        changes = {name: one for name, one in given.items() if one is not None}
        agent = self._replaced(changes) if changes else self
        life = agent._life(_opening(session), task=checked_task(task), deps=deps, budget=budget, deadline=deadline)  # noqa: SLF001 - one of its own class
        life.single_turn, life.keeps_instructions = single_turn, instructions is not None
        life.metadata = checked_metadata(metadata, tenant)
        return Run(life)

    run = _awaited(stream)
    """Carry out one task and return how it ended. An abnormal stop is a result, not an exception. Its options are those of `stream`.

    Example:
        result = await agent.run("Compare Frodo and Sam")
        print(result.text)
    """

    run_sync = _waited_for(stream)
    """`run` for code that is not async. One background event loop serves the whole process: see `treadle.sync` for sessions and the rest."""

    @deprecated("Write `agent.run(task, single_turn=True)`.")
    async def single_turn(self, task: str | Message, **options: Any) -> RunResult[Any]:  # Any: the options of `run`
        """Do as `run(task, single_turn=True)` does."""
        result: RunResult[Any] = await self.run(task, single_turn=True, **options)
        return result

    @overload
    def stream_resume(
        self: "Agent[None, Output_co]",
        session: Session,
        *,
        deps: None = None,
        budget: Budget | None = None,
        deadline: Deadline | None = None,
    ) -> Run[Output_co]: ...

    @overload
    def stream_resume(
        self,
        session: Session,
        *,
        deps: Deps_contra | DepsFunction[Deps_contra],
        budget: Budget | None = None,
        deadline: Deadline | None = None,
    ) -> Run[Output_co]: ...

    @checked
    def stream_resume(
        self,
        session: Session,
        *,
        deps: Any = None,  # Any: Deps, or a function that returns it
        budget: Budget | None = None,
        deadline: Deadline | None = None,
    ) -> Run[Output_co]:
        """Resume a run that was paused, stopped or interrupted, and yield its events. Finished calls do not run again.

        Args:
            deps: As for `stream`.
            budget: A larger budget, if a limit stopped the run; what was spent still counts.
            deadline: A later deadline, if the run had one: a deadline still applies after `resume`.

        Raises:
            NothingToResume: The session has no such run.
        """
        return Run(self._life(_opening(session), task=None, deps=deps, budget=budget, deadline=deadline))

    resume = _awaited(stream_resume)
    """Resume a run that was paused, stopped or interrupted, and return how it ended. Its options are those of `stream_resume`.

    Raises:
        NothingToResume: The session has no such run.
    """

    resume_sync = _waited_for(stream_resume)
    """`resume` for code that is not async."""

    def _resolved(self, model: str | Model | None) -> Model | None:
        """Return the model that a run names. It is resolved once: each resolution has connections of its own."""
        if not isinstance(model, str):
            return model
        if model not in self._others:
            self._others[model] = resolve_model(model)
        return self._others[model]

    def _life(
        self,
        opening: Callable[[], Awaitable[Session]],
        *,
        task: str | Message | None,
        deps: Deps_contra | DepsFunction[Deps_contra] | None,
        budget: Budget | None,
        deadline: Deadline | None,
    ) -> Lifecycle:
        """Return the life of a run, which has not begun."""
        return Lifecycle(self._whole(), self.model, opening, task=task, deps=deps, budget=budget, deadline=deadline)

    @overload
    def replace(
        self, *, output: "TypeForm[Other]", **changes: Unpack[AgentChanges[Deps_contra]]
    ) -> "Agent[Deps_contra, Other]": ...

    @overload
    def replace(
        self, *, output: JsonObject, **changes: Unpack[AgentChanges[Deps_contra]]
    ) -> "Agent[Deps_contra, Any]": ...

    @overload
    def replace(self, **changes: Unpack[AgentChanges[Deps_contra]]) -> "Agent[Deps_contra, Output_co]": ...

    def replace(self, **changes: Any) -> "Agent[Any, Any]":  # Any: options of Agent, which it checks
        """Return another agent with some options changed. This one stays as it is.

        Example:
            cheaper = agent.replace(model="openai-chat:gpt-5-nano", budget=Budget(max_model_turns=5))

        Args:
            changes: Options of `Agent`, the model too.

        Raises:
            ConfigurationError: As for `Agent`.
        """
        return self._replaced(changes)

    def _replaced(self, changes: Mapping[str, Any]) -> "Agent[Any, Any]":
        options = {**self._options, **changes}
        if "compiler" in changes and "history" not in changes:
            del options["history"]
        if "history" in changes and "compiler" not in changes:
            del options["compiler"]
        made = copy.copy(self)
        Agent.__init__(made, **options)
        if "tools" not in changes:  # toolsets that are open for many runs stay so for what is made of their agent
            made._spec = msgspec.structs.replace(made._spec, opened=self._spec.opened)  # noqa: SLF001 - as below
        made._found = None if "model" in changes else self._found  # noqa: SLF001 - one of its own class
        return made

    def as_tool(self, name: str, description: str, *, effect: Effect | str = Effect.UNSAFE) -> Tool[Deps_contra]:
        """Return a tool that gives this agent one task, in a separate session in the caller's journal.

        The agent's answer is the result. If it does not complete, the caller's model is told why and can try something else.
        The caller's limits apply to it: what the caller's policy forbids is denied to it too, and what it spends counts against
        the rest of the caller's budget. If one of its calls needs a person, the caller's run pauses;
        `session.answer` of either session accepts the answer, and `resume` of the caller's session continues.

        Example:
            lead = Agent(model, tools=[researcher.as_tool("research", "Find out one thing and say where it is.")])

        Args:
            effect: What the agent's own tools do to the world, at worst.
        """

        async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
            return await carry_out(self._whole(), self.model, arguments["task"], ctx)

        parameters = closed_schema(
            ["task"], task={"type": "string", "minLength": 1, "description": "The complete task, as text."}
        )
        return Tool(
            name=name,
            description=description,
            parameters=parameters,
            effect=effect_from(effect),
            timeout=None,
            resumes=True,
            needs_deps=next((one.needs_deps for one in self._toolbox if one.needs_deps), ""),
            run=run,
        )

    @property
    def name(self) -> str:
        """The name by which `Agents` finds it; empty for none."""
        return self._spec.name

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """Digests by which a changed agent is detected: of model, tools, answer. Empty without a name."""
        return self._whole().fingerprint

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Its own tools; those of its toolsets are known once a run has opened them."""
        return tuple(self._toolbox)

    @property
    def toolsets(self) -> tuple[Toolset, ...]:
        """The toolsets that each of its runs opens and closes, or that its runs share: see `open`."""
        return self._spec.toolsets

    def describe(self) -> dict[str, Any]:
        """Return the agent as it was built, as one JSON object: model, tools with their schemas, policy, limits, guards, hooks.

        Equal agents have equal descriptions, in every process. Functions and objects of your own are named by module and name.
        Secrets are redacted; keys, headers and addresses of the model are left out.

        Raises:
            ConfigurationError: The model's name or key is missing or wrong.
        """
        return description_of(self._whole(), self.model)

    def unmatched_rules(self) -> tuple[UnmatchedRule, ...]:
        """Return the rules of its policy that match no call of its tools, denials first. Most of them have a misspelt name.

        The tools of toolsets, and of agents that are tools, are not known yet. If it has any, only names are returned that resemble a
        known one. Its first run logs the same, once its toolsets are open.

        Example:
            assert not agent.unmatched_rules()
        """
        are_all = not self.toolsets and not self._toolbox.calls_agents
        servers = [toolset.name for toolset in self.toolsets]
        return unmatched(self._spec.policy, self.tools, are_all=are_all, servers=servers)

    def check(self) -> None:
        """Check every tool's contracts and resolve the model, without any request.

        Raises:
            ConfigurationError: Something is wrong; the message says what to do.
        """
        self._toolbox.compile()
        _ = self.model

    @property
    def model(self) -> Model:
        """The model, resolved on first use: a missing key is reported before any request, and importing needs none."""
        if self._found is None:
            self._found = resolve_model(self._model) if isinstance(self._model, str) else self._model
        return self._found

    def _whole(self) -> AgentSpec:
        """The description with what depends on the model: the default driver, and the fingerprint."""
        spec = self._spec
        if spec.driver is None:
            self._spec = spec = msgspec.structs.replace(spec, driver=driver_for(self.model))
        if spec.name and not spec.fingerprint:
            self._spec = spec = msgspec.structs.replace(spec, fingerprint=fingerprint_of(spec, self.model.name))
        return spec


def _typed(output: Any) -> "Typed":  # Any: a type or a JSON Schema
    from treadle.validation.typed import Typed  # noqa: PLC0415 - loads the validators on first use

    return Typed(output, where="output of the agent")


def _opening(session: Session | None) -> Callable[[], Awaitable[Session]]:
    async def opening() -> Session:
        return session if session is not None else await memory_session()

    return opening
