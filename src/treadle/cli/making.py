"""Making: from settings to an agent, checked, and the limits with which a run is resumed. Opens no session."""

import os
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from treadle import (
    Agent,
    Budget,
    ClearResults,
    Handoff,
    Labelled,
    Session,
    Tiers,
    Tool,
    Toolset,
    WholeHistory,
    artifact_tool,
    command_hooks,
    find_sandbox,
    resolve_model,
)
from treadle.cli.consent import confinement_of, policy_of
from treadle.cli.exits import UsageError
from treadle.cli.guidance import guidance_of, skill_tools
from treadle.cli.input.options import Options
from treadle.cli.input.places import absolute
from treadle.cli.input.settings import Settings
from treadle.cli.input.values import instructions_of, json_object, schema_of
from treadle.cli.origins import absolute_model
from treadle.cli.telemetry import telemetry
from treadle.cli.tool_sources import load_tools
from treadle.ports import Driver, Hook, Policy, SessionView

__all__ = ["make_agent", "resumed_budget"]

_UNTRUSTED: dict[str, Literal["untrusted"]] = {"fetch": "untrusted", "mcp__*": "untrusted"}
"""Tools whose results strangers write."""


def make_agent(
    settings: Settings,
    model: str | None,
    *,
    tools: Sequence[Tool | Toolset] | None = None,
    policy: Policy | None = None,
    instructions: str | None = None,
    options: Options | None = None,
    driver: Driver | None = None,
) -> Agent:
    """Put the agent together and check all of it: what is wrong is reported before a session is opened or a model asked.

    Args:
        tools: None for those of the settings.
        policy: None for that of the settings' rules.
        instructions: Where the person gives none.
        options: What the person gave for the model: its options, instructions, and the form of the answer.
        driver: None for the model's own.

    Raises:
        ConfigurationError: The model, its key, a tool or a rule is wrong.
    """
    if model is None:
        raise UsageError(
            "No model is named. There are three ways: -m demo needs no key and no network; a model server of your own needs no key, "
            "such as -m ollama:NAME (`treadle doctor` lists what runs here); a vendor's model needs its key, such as OPENAI_API_KEY and "
            "-m openai-chat:gpt-5-mini. TREADLE_MODEL, or `model` in your configuration, keeps your choice."
        )
    if settings.config is not None:  # it is protected like the person's own file, by programs started from here too
        os.environ["TREADLE_CONFIG"] = absolute(settings.config)
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
            options=settings.model_options,
        ),
        tools=(*chosen, *_reading_on(chosen), *(() if has_own else skill_tools(guidance))),
        policy=policy_of(settings) if policy is None else policy,
        sandbox=None if settings.sandbox == "off" else find_sandbox(confinement_of(settings)),
        hooks=_hooks(settings),
        compiler=Labelled(WholeHistory(), _UNTRUSTED),
        compactor=Tiers(ClearResults(), Handoff()),
        instructions=_instructions(
            instructions if settings.system is None else instructions_of(settings.system, settings.held),
            guidance.instructions.text,
        ),
        output=None if given.schema is None else schema_of(given.schema),
        driver=driver,
        subscribers=telemetry(),
        budget=settings.budget,
        profile=settings.profile,
        guards=settings.guards,
        on_limit=settings.on_limit,
        approval_seconds=settings.approval_seconds,
    )
    agent.check()
    return agent


def _hooks(settings: Settings) -> list[Hook]:
    found: list[Hook] = []
    for file in settings.hooks:
        content = settings.held.content_of(file)
        if content is None:
            found += command_hooks(file, folder=settings.root)
        else:
            table = json_object(f"The hooks of {file}", content)
            found += command_hooks(table, folder=settings.root, is_approved=settings.held.is_approved)
    return found


def _reading_on(chosen: Sequence[Tool | Toolset]) -> tuple[Tool, ...]:
    """Return the tool that reads on in results that were shortened, offered once the session has one: their marks name it."""
    if any(one.name == "read_artifact" for one in chosen):
        return ()
    return (msgspec.structs.replace(artifact_tool(), visible=_has_artifacts),)


def _has_artifacts(session: SessionView) -> bool:
    return bool(session.state.artifacts)


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
