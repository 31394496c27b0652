"""Spec: the description of an agent, whole. What carries a run out takes it instead of many of its fields."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from treadle.budgets import Budget, Guards
from treadle.canonical import digest
from treadle.engine.rules.failures import FailureText
from treadle.events import Subscriber
from treadle.ports import Approver, CheckView, Compactor, Compiler, Driver, Hook, Policy, Toolset
from treadle.tooling.toolbox import Toolbox
from treadle.tools import Done, Runner, Tool

if TYPE_CHECKING:
    from treadle.validation.typed import Typed

__all__ = ["AgentSpec", "CancelSiblings", "DoneWhen", "InDoubt", "OnDenial", "OnFailure", "fingerprint_of"]

DoneWhen: TypeAlias = Callable[[CheckView], Done | bool | Awaitable[Done | bool | None] | None]
"""Returns `Done(payload)` or True to end the run, and False or None to continue."""

InDoubt: TypeAlias = Literal["ask", "tell"]
"""Who decides on a call of unknown outcome: a person is asked, or the model is told."""

OnFailure: TypeAlias = Literal["continue", "stop"]
"""Whether the model reads that a call failed, or the run ends with it."""
OnDenial: TypeAlias = Literal["continue", "skip"]
"""Whether the calls behind a denied one, in the same response, still run."""

CancelSiblings: TypeAlias = Literal["never", "on_unsafe_error"]
"""Whether a call that acts and ends with an error cancels the other calls of its response."""


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything about an agent but its model."""

    name: str
    """By which a registry finds it; empty for none."""
    fingerprint: dict[str, str] = {}
    """What tells the agent from one that has changed, by part; empty for an agent without a name."""
    toolbox: Toolbox
    """The tools that it has by itself."""
    toolsets: tuple[Toolset, ...]
    """What is opened for each of its runs."""
    toolset_seconds: float
    instructions: str | None
    policy: Policy | None
    approver: Approver | None = None
    """Who is asked for consent before the run pauses for a person."""
    approver_seconds: float | None = None
    """How long the approver may take for one call; None for no limit."""
    sandbox: Runner | None
    """Where calls run that were decided to run in a sandbox; None where there is none."""
    driver: Driver | None
    """None as long as the model has not been asked which it needs."""
    budget: Budget
    profile: str | None
    compiler: Compiler
    compactor: Compactor | None
    step_result_chars: int | None
    """Characters that the results of one step may take together."""
    tool_choice: str
    output: "Typed | None"
    guards: Guards
    on_limit: Literal["summarize", "report"]
    unpriced: Literal["refuse", "warn"]
    in_doubt: InDoubt | None
    approval_seconds: float
    batch_seconds: float | None
    cancel_siblings: CancelSiblings = "never"
    on_failure: OnFailure = "continue"
    on_denial: OnDenial = "continue"
    failure_text: FailureText = "short"
    done_when: DoneWhen | None
    subscribers: tuple[Subscriber, ...]
    required: tuple[str, ...] = ()
    """Names of tools and toolsets without which a run does not continue."""
    max_depth: int
    """How many agents may stand below it, each called by the one above."""
    hooks: tuple[Hook, ...]
    """In the order in which they are called; interceptors are among them."""
    policies_above: tuple[Policy, ...] = ()
    """Policies of the runs that called it: each can only tighten what its own one says."""

    @property
    def instructions_digest(self) -> str:
        """What tells changed instructions from those before, without repeating either; empty for none."""
        instructions = self.instructions
        return "" if instructions is None else digest(instructions.encode("utf-8", "replace").decode())


def fingerprint_of(about: AgentSpec, model: str) -> dict[str, str]:
    """Return what the runs of an agent depend on, by part. Its budget, policy and listeners belong to whoever runs it.

    Args:
        model: The name of its model.
    """
    tools = [
        [tool.name, tool.description, tool.parameters, tool.output_schema, _effect(tool), tool.ends_run]
        for tool in about.toolbox
    ]
    tools += [["toolset", toolset.name] for toolset in about.toolsets]
    answer = [None if about.output is None else about.output.schema, about.tool_choice]
    return {
        "model": model,
        "instructions": about.instructions_digest,
        "tools": digest(tools),
        "answer": digest(answer),
    }


def _effect(tool: Tool) -> str:
    return "by arguments" if callable(tool.effect) else str(tool.effect)
