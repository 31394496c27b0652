"""Making: from settings to an agent, checked, and the limits with which a run is resumed. Opens no session."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle import Agent, Budget, ClearResults, Handoff, Session, Tiers, Tool, Toolset, resolve_model
from treadle.cli.consent import policy_of
from treadle.cli.exits import UsageError
from treadle.cli.input.settings import Settings
from treadle.cli.origins import absolute_model
from treadle.cli.tool_sources import load_tools
from treadle.ports import Compactor, Policy

__all__ = ["make_agent", "resumed_budget"]


def make_agent(
    settings: Settings,
    model: str | None,
    *,
    tools: Sequence[Tool | Toolset] | None = None,
    policy: Policy | None = None,
    compactor: Compactor | None = None,
    instructions: str | None = None,
) -> Agent:
    """Put the agent together and check all of it: what is wrong is told before a session is opened or a model asked.

    Args:
        tools: None for those of the settings.
        policy: None for that of the settings' rules.

    Raises:
        ConfigurationError: The model, its key, a tool or a rule is wrong.
    """
    if model is None:
        raise UsageError(
            "No model is named. Say which with -m, such as -m openai-chat:gpt-5-mini, or set TREADLE_MODEL; "
            "-m demo needs no key and no network."
        )
    agent = Agent(
        resolve_model(absolute_model(model), base_url=settings.base_url, price=settings.price, facts=settings.facts),
        tools=load_tools(settings) if tools is None else tools,
        policy=policy_of(settings) if policy is None else policy,
        compactor=compactor or Tiers(ClearResults(), Handoff()),
        instructions=instructions,
        budget=settings.budget,
        profile=settings.profile,
        guards=settings.guards,
        on_limit=settings.on_limit,
        approval_seconds=settings.approval_seconds,
    )
    agent.check()
    return agent


def resumed_budget(session: Session, settings: Settings) -> Budget:
    """Return the run's own limits, with those that were given for this call."""
    run = session.state.run
    if run is None or run.budget is None:
        return settings.budget
    stored: Any = msgspec.convert(run.budget, Budget)
    return Budget(**{**msgspec.structs.asdict(stored), **settings.overriding})
