"""Subagents: the tool by which a model gives a task to one of several agents by name."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.children import carry_out, host_of
from treadle.agents.definitions import Subagent
from treadle.engine.assembly import Host
from treadle.errors import ConfigurationError
from treadle.fields import checked
from treadle.permissions.policies import first_of
from treadle.ports import Model, Policy, SessionView
from treadle.resolve import resolve_model
from treadle.tools import CallStatus, CheckedCall, Decision, Effect, JsonObject, Tool, ToolContext, Unfinished

__all__ = ["subagent_tool"]

_DESCRIPTION = "Delegate a task to another agent. It does not see this conversation, so include everything that it needs to know; its answer is the result. You can delegate several tasks in one response. The agents:"


@checked
def subagent_tool(
    subagents: Sequence[Subagent], *, name: str = "spawn_agent", models: Mapping[str, Model] | None = None
) -> Tool:
    """Return the tool by which a model calls agents by name. Each of them is run as by `Agent.as_tool`.

    An agent gets only tools that its caller's last request offered, whatever its definition names. Its calls are decided
    under its caller's rules, so calling it needs no consent.

    Example:
        agent = Agent(model, tools=[*file_tools("."), subagent_tool(load_subagents(".treadle/agents"))])

    Args:
        models: Models by the name that definitions use; other names are resolved by `resolve_model`.

    Raises:
        ConfigurationError: There is no agent, or two have one name.
    """
    known = _by_name(subagents)
    found: dict[str, Model] = dict(models or {})

    async def run(arguments: JsonObject, ctx: ToolContext) -> Any:
        definition, host = known[arguments["agent"]], host_of(ctx)
        agent = _agent(definition, host, found)
        return await carry_out(agent._whole(), agent.model, arguments["task"], ctx, name=definition.name)  # noqa: SLF001 - one room

    return Tool(
        name=name,
        description="\n".join([_DESCRIPTION, *(f"- {one.name}: {_line(one.description)}" for one in known.values())]),
        parameters={
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": list(known), "description": "The agent to call."},
                "task": {"type": "string", "minLength": 1, "description": "The complete task, as text."},
            },
            "required": ["agent", "task"],
            "additionalProperties": False,
        },
        effect=lambda arguments: known[arguments["agent"]].effect,
        permission="allow",
        timeout=None,
        resumes=True,
        run=run,
    )


def _by_name(subagents: Sequence[Subagent]) -> dict[str, Subagent]:
    known: dict[str, Subagent] = {}
    for one in subagents:
        if one.name in known:
            raise ConfigurationError(f"Two subagents are named {one.name!r}. Rename one of them.")
        known[one.name] = one
    if not known:
        raise ConfigurationError("subagent_tool needs at least one subagent: load_subagents(folder) reads them.")
    return known


def _model(definition: Subagent, host: Host, models: dict[str, Model]) -> Model:
    """Return the model of an agent: that of its caller where it names none."""
    if definition.model is None:
        return host.model
    if definition.model not in models:
        models[definition.model] = resolve_model(definition.model)
    return models[definition.model]


def _agent(definition: Subagent, host: Host, models: dict[str, Model]) -> Agent:
    """Return an agent as it stands below this caller.

    Raises:
        Unfinished: It cannot be made: its model has no key, or its answer no valid form. The caller may go another way.
    """
    try:
        return _made(definition, host, _model(definition, host, models))
    except ConfigurationError as error:
        message = f"The agent {definition.name} is not available: {error}"
        raise Unfinished(CallStatus.REJECTED, message, code="subagent_unavailable", may_have_acted=False) from error


def _made(definition: Subagent, host: Host, model: Model) -> Agent:
    about = host.about
    return Agent(
        model,
        instructions=definition.instructions,
        tools=_tools(definition, host),
        policy=_policy(definition, about.policy),
        budget=definition.budget,
        output=definition.output,
        compactor=about.compactor,
        step_result_chars=about.step_result_chars,
        guards=about.guards,
        on_limit=about.on_limit,
        unpriced=about.unpriced,
        approval_seconds=about.approval_seconds,
    )


def _tools(definition: Subagent, host: Host) -> list[Tool]:
    """Return the caller's tools that the agent has: what the caller's own request offered, and no more."""
    return [
        msgspec.structs.replace(tool, visible=True)
        for tool in host.offering.current.tools
        if definition.tools is None or tool.name in definition.tools
        if tool.name not in definition.deny
        if definition.effect != "read" or callable(tool.effect) or Effect(tool.effect).is_read
    ]


def _policy(definition: Subagent, callers: Policy | None) -> Policy | None:
    """Return what decides on its calls: what its caller's policy allows, asks about or denies is so for it, too."""
    if definition.effect != "read":
        return callers
    reads_only = _ReadsOnly(definition.name)
    return reads_only if callers is None else first_of(reads_only, callers)


class _ReadsOnly:
    """Denies an agent that only reads every call that may change something."""

    def __init__(self, name: str) -> None:
        self._name = name

    def decide(self, call: CheckedCall, session: SessionView) -> Decision | None:
        if call.effect.is_read:
            return None
        reason = f"The agent {self._name} only reads, and this call may change something."
        return Decision(kind="deny", rule="subagent effect read", reason=reason)


def _line(text: str) -> str:
    return " ".join(text.split())
