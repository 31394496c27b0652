"""Making: from settings to an agent, checked, and the limits with which a run is resumed. Opens no session."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle import Agent, Budget, ClearResults, Handoff, Session, Tiers, Tool, Toolset, command_hooks, resolve_model
from treadle.cli.consent import policy_of
from treadle.cli.exits import UsageError
from treadle.cli.guidance import guidance_of, skill_tools
from treadle.cli.input.options import Options
from treadle.cli.input.settings import Settings
from treadle.cli.input.values import instructions_of, schema_of
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
    options: Options | None = None,
) -> Agent:
    """Put the agent together and check all of it: what is wrong is told before a session is opened or a model asked.

    Args:
        tools: None for those of the settings.
        policy: None for that of the settings' rules.
        instructions: Where the person gives none.
        options: What the person gave for the model: its options, instructions, and the form of the answer.

    Raises:
        ConfigurationError: The model, its key, a tool or a rule is wrong.
    """
    if model is None:
        raise UsageError(
            "No model is named. There are three ways: -m demo needs no key and no network; a model server of your own needs no key, "
            "such as -m ollama:NAME (`treadle doctor` lists what runs here); a vendor's model needs its key, such as OPENAI_API_KEY and "
            "-m openai-chat:gpt-5-mini. TREADLE_MODEL, or `model` in your configuration, keeps your choice."
        )
    given = options or Options(command="run")
    guidance = guidance_of(settings)
    chosen = load_tools(settings) if tools is None else tools
    has_own = any(isinstance(one, Tool) and one.name == "skill" for one in chosen)
    agent = Agent(
        resolve_model(
            absolute_model(model),
            base_url=settings.base_url,
            price=settings.price,
            facts=settings.facts,
            options=given.model_options,
        ),
        tools=chosen if has_own else (*chosen, *skill_tools(guidance)),
        policy=policy_of(settings) if policy is None else policy,
        hooks=[hook for file in settings.hooks for hook in command_hooks(file, folder=settings.root)],
        compactor=compactor or Tiers(ClearResults(), Handoff()),
        instructions=_instructions(
            instructions if given.system is None else instructions_of(given.system), guidance.instructions.text
        ),
        output=None if given.schema is None else schema_of(given.schema),
        budget=settings.budget,
        profile=settings.profile,
        guards=settings.guards,
        on_limit=settings.on_limit,
        approval_seconds=settings.approval_seconds,
    )
    agent.check()
    return agent


def _instructions(own: str | None, folder: str) -> str | None:
    """Return the person's own instructions, and what the folder says behind them."""
    return "\n\n".join(part for part in (own, folder) if part) or None


def resumed_budget(session: Session, settings: Settings) -> Budget:
    """Return the run's own limits, with those that were given for this call."""
    run = session.state.run
    if run is None or run.budget is None:
        return settings.budget
    stored: Any = msgspec.convert(run.budget, Budget)
    return Budget(**{**msgspec.structs.asdict(stored), **settings.overriding})
