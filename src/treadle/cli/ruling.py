"""Ruling: what a rule covers, as a sentence, and what the rules make of one call. Runs no tool."""

import json
from typing import Any

import msgspec

from treadle import Agent, Tool, allow, open_session
from treadle.cli.consent import policy_of
from treadle.cli.exits import UsageError
from treadle.cli.input.flags import Mode
from treadle.cli.input.settings import Settings
from treadle.cli.tool_sources import load_tools
from treadle.events import ApprovalRequested, CallDecided
from treadle.ports import Policy, UnmatchedRule

__all__ = ["Ruling", "arguments_of", "covered_by", "idle_rules", "ruling_of", "unmatched_in"]

_KINDS = ("allow", "ask", "deny", "sandbox", "draft")


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to a call."""

    decision: str
    """`allow`, `ask`, `deny`, `sandbox` or `draft`; `invalid` for a call that can never run."""
    rule: str
    scope: str
    reason: str
    rules: tuple[str, ...] = ()
    """Rules that would spare the question."""


def idle_rules(agent: Agent) -> list[str]:
    """Return what a person is told, before a run, of the rules that match no call of its tools: those that deny first.

    Not of a permission of their own file for a tool that is not here: it harms nobody, and is listed by `treadle permissions`.
    """
    return [
        f"warning: {one.message}"
        for one in agent.unmatched_rules()
        if one.kind != "allow" or one.near or one.scope in ("session", "project")
    ]


def unmatched_in(settings: Settings) -> tuple[UnmatchedRule, ...]:
    """Return the rules of the settings that match no call of the tools that a conversation has."""
    from treadle.testing import ScriptedModel, text  # noqa: PLC0415 - loads the mock provider, which a run does without

    agent = Agent(ScriptedModel([text("")]), tools=load_tools(settings, may_write=True), policy=policy_of(settings))
    return agent.unmatched_rules()


def covered_by(rule: str) -> str:
    """Say in one sentence which calls a rule covers."""
    return allow(rule).rules[0].covers


def arguments_of(tool: Tool, given: str | None) -> dict[str, Any]:
    """Return the arguments of a call: one JSON object, or the text of the tool's first required parameter.

    Raises:
        UsageError: They cannot be determined.
    """
    if given is None:
        return {}
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    required = tool.parameters.get("required") or list(tool.parameters.get("properties", {}))
    if not required:
        raise UsageError(f"{tool.name} takes no arguments; got {given[:80]!r}.")
    return {required[0]: given}


async def ruling_of(tool: Tool, arguments: dict[str, Any], *, policy: Policy | None, mode: Mode) -> Ruling:
    """Return what would happen to a call, by the way that calls go in a run: only the tool's own function is left out.

    Hooks are not asked: they are programs.
    """
    from treadle.testing import ScriptedModel, call, text  # noqa: PLC0415 - as above

    harmless = msgspec.structs.replace(
        tool, run=_nothing, output_schema=None, error_schema=None, sandbox=None, resumes=False, check=None
    )
    events: list[Any] = []
    model = ScriptedModel([call(tool.name, **arguments), text("That was all.")])
    agent = Agent(model, tools=[harmless], policy=policy, subscribers=[events.append])
    async with open_session("memory:") as session:
        if mode != "ask":
            await session.set_mode(mode)
        result = await agent.run("What would happen to this call?", session=session)
    decided = next((one for one in events if isinstance(one, CallDecided)), None)
    asked = next((one for one in events if isinstance(one, ApprovalRequested)), None)
    if decided is None or decided.decision not in _KINDS:
        told = [one.content for message in result.messages for one in message.results]
        return Ruling(decision="invalid", rule="", scope="", reason=str(told[0]) if told else "")
    return Ruling(
        decision=decided.decision,
        rule=decided.rule,
        scope=decided.scope,
        reason=decided.reason,
        rules=() if asked is None else asked.rules,
    )


async def _nothing(arguments: object, ctx: object) -> None: ...
