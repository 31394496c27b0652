"""Hooks as commands, for the tests of this folder: the settings that name one, and a run whose calls it guards."""

from typing import Any

from treadle import Agent, allow, tool
from treadle.resolve.command_hooks import command_hooks
from treadle.testing import ScriptedModel, call, text

__all__ = ["on", "rm", "run", "status"]


@tool(effect="unsafe")
async def rm(path: str, force: bool = False) -> str:
    """Remove."""
    return f"removed {path[:20]} {force}"


def on(event: str, command: str, **more: Any) -> dict[str, Any]:
    """Return settings with one hook: this command, and the fields of its entry and its group."""
    group = {"matcher": more.pop("matcher")} if "matcher" in more else {}
    return {"hooks": {event: [{**group, "hooks": [{"type": "command", "command": command, **more}]}]}}


async def run(settings: Any, *calls: Any, tools: Any = None, policy: Any = None, folder: Any = ".", **more: Any) -> Any:
    """Run an agent that makes these calls; return its result, and what the model was shown of each call."""
    model = ScriptedModel([*(calls or (call("rm", path="x"),)), *(text("Done.") for _ in range(5))])
    hooks = command_hooks(settings, folder=folder, **more)
    result = await Agent(model, tools=tools or [rm], policy=policy or allow("*"), hooks=hooks).run("go")
    return result, [one.content for message in result.messages for one in message.results]


def status(result: Any) -> str:
    """Return how the first call of a run ended."""
    return str(result.tool_calls[0].status)
