"""pydantic-evals: an agent as the task of a dataset, and exact checks as an evaluator. Judges no answer: their evaluators do."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic_evals import increment_eval_metric, set_eval_attribute
from pydantic_evals.evaluators import EvaluationReason, Evaluator, EvaluatorContext

from treadle import Agent, ConfigurationError, Message, RunResult, TreadleError, open_session
from treadle.fields import checked
from treadle.ports import Journal
from treadle.testing import Check, Observed, observe

__all__ = ["Exact", "task"]

_OBSERVED = "observed"


@checked
def task(
    agent: Agent[Any, Any],
    *,
    prompt: Callable[[Any], str | Message] | None = None,  # Any: the inputs of a case
    deps: Any = None,  # Any: the application's own object
    journal: str | Journal = "memory:",
) -> Callable[[Any], Awaitable[Any]]:
    """Return a task for `Dataset.evaluate`: each case is a session of its own, and its output is the agent's answer.

    The metrics `cost`, `model_turns`, `tool_calls`, `prompt_tokens` and `completion_tokens` are what the run has used. Attributes are
    `session_id`, `reason` (the stop reason), `cost` (exact), `tool_calls` (each with its arguments and its status), and `observed`, which `Exact` reads.

    Example:
        report = await dataset.evaluate(task(agent))

    Args:
        agent: Who carries out the cases.
        prompt: Makes the task for the agent from a case's inputs; None for inputs that are a text.
        deps: As for `agent.run`.
        journal: Where the sessions are stored, such as `evals.db`.

    Raises:
        TreadleError: From the task: a run has failed, such as by the provider. A run that stops at a limit has an output, and its `reason`.
    """

    async def run(inputs: Any) -> Any:  # Any: as above, and what the agent answers
        given = inputs if prompt is None else prompt(inputs)
        if not isinstance(given, str | Message):
            raise ConfigurationError(
                f"The inputs of a case are {type(given).__name__}, and the agent takes a text: give task() a `prompt` function."
            )
        async with open_session(journal) as session:
            result = await agent.run(given, session=session, deps=deps)
            _report(result, await observe(session))
        if result.status == "failed":
            raise TreadleError(result.message)
        return result.text if result.output is None else result.output

    run.__name__ = agent.name or "agent"  # the name of the experiment in a report
    return run


def _report(result: RunResult[Any], seen: Observed) -> None:
    spent = seen.spent
    used = {
        "cost": None if spent.cost is None else float(spent.cost),
        "model_turns": spent.model_turns,
        "tool_calls": spent.tool_calls,
        # Not `input_tokens`: pydantic-evals adds those itself where spans are recorded.
        "prompt_tokens": spent.usage.input_tokens,
        "completion_tokens": spent.usage.output_tokens,
    }
    for name, amount in used.items():
        if amount is not None:
            increment_eval_metric(name, amount)
    attributes = {
        "session_id": result.session_id,
        "reason": result.reason.value,
        "cost": None if spent.cost is None else str(spent.cost),
        "tool_calls": [str(one) for one in seen.calls],
        _OBSERVED: msgspec.to_builtins(seen),
    }
    for name, value in attributes.items():
        set_eval_attribute(name, value)


@dataclass(repr=False, init=False)
class Exact(Evaluator[Any, Any, Any]):
    """Exact checks of what the sessions of `task` have done, as assertions of a report, each with its reason.

    Example:
        Dataset(name="shop", cases=cases, evaluators=[Exact(never_called("refund"), no_doubt())])
    """

    checks: tuple[Check, ...]

    @checked
    def __init__(self, *checks: Check) -> None:
        self.checks = checks

    @checked
    def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> dict[str, bool | EvaluationReason]:
        """Return each check's finding."""
        if _OBSERVED not in ctx.attributes:
            raise ConfigurationError("Exact() reads what task() has recorded: evaluate the dataset with task(agent).")
        seen = msgspec.convert(ctx.attributes[_OBSERVED], Observed)
        found = {check.name: check(seen) for check in self.checks}
        return {name: EvaluationReason(value=one.is_met, reason=one.reason) for name, one in found.items()}

    def build_serialization_arguments(self) -> dict[str, Any]:
        """Return the names of its checks: a report shows them, and a dataset's file cannot hold functions."""
        return {"checks": [check.name for check in self.checks]}
