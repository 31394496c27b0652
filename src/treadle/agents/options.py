"""Options: what an agent, and one run of it, may be given, for type checkers. Checks nothing: `Agent` does."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypedDict

from treadle.budgets import Budget, Deadline, Guards, TenantBudget
from treadle.engine.rules.failures import FailureText
from treadle.engine.spec import CancelSiblings, Deps, DoneWhen, InDoubt, Instruction, OnDenial, OnFailure
from treadle.events import Subscriber
from treadle.ports import Approver, Compactor, Compiler, Driver, Hook, Interceptor, Model, Policy, Toolset
from treadle.sessions.session import Session
from treadle.state import Approval
from treadle.tools import JsonObject, Runner, Tool

__all__ = ["AgentChanges", "AgentOptions", "Instructions", "RunOptions", "Tools"]

Instructions: TypeAlias = Instruction[Deps] | Sequence[Instruction[Deps]]
"""A text, a function of the `RunContext` that returns one, or a list of these, which are joined in order."""


Tools: TypeAlias = Sequence[Tool[Deps] | Toolset]
"""Tools and toolsets; a tool may need no other deps than its agent has."""


class RunOptions(TypedDict, Generic[Deps], total=False):
    """The options of `stream` and its like, but for `deps` and `output`: what the result is depends on these."""

    session: Session | None
    budget: Budget | None
    deadline: Deadline | None
    model: str | Model | None
    instructions: Instructions[Deps] | None
    tools: Tools[Deps] | None
    metadata: JsonObject | None
    tenant: str | None
    single_turn: bool


class AgentOptions(TypedDict, Generic[Deps], total=False):
    """The options of `Agent`, but for `model` and `output`, by which the type of its results is inferred."""

    name: str | None
    instructions: Instructions[Deps] | None
    tools: Tools[Deps]
    policy: Policy | None
    sandbox: Runner | None
    approver: Approver | Policy | Callable[[Approval], Any] | None  # Any: an answer in one of its forms
    approver_seconds: float | None
    driver: Driver | None
    budget: Budget | None
    tenant_budgets: Sequence[TenantBudget]
    profile: str | None
    compiler: Compiler | None
    compactor: Compactor | None
    tool_choice: str
    history: Literal["all", "current"]
    guards: Guards | None
    on_limit: Literal["summarize", "report"]
    cancel_siblings: CancelSiblings
    on_failure: OnFailure
    on_denial: OnDenial
    strict: bool
    failure_text: FailureText
    unpriced: Literal["refuse", "warn"]
    parallel_hint: bool
    in_doubt: InDoubt | None
    approval_seconds: float
    batch_seconds: float | None
    toolset_seconds: float
    step_result_chars: int | None
    done_when: DoneWhen | None
    subscribers: Sequence[Subscriber]
    interceptors: Sequence[Interceptor]
    hooks: Sequence[Hook]
    required: Sequence[str]
    max_depth: int


class AgentChanges(AgentOptions[Deps], total=False):
    """What `replace` may change, but for `output`."""

    model: str | Model
