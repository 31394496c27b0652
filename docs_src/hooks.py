"""Hooks: one keeps secrets out of a tool call, one makes the run check its work before it ends."""

import asyncio

from treadle import Agent, Decision, tool
from treadle.ports import Hook, HookContext
from treadle.testing import ScriptedModel, call, text


@tool(effect="unsafe", permission="allow")
async def post(words: str) -> str:
    """Post words for everybody to read."""
    return "posted"


async def no_secrets(context: HookContext) -> Decision | None:
    if "secret" in str(context.arguments):
        return Decision(kind="deny", reason="Nothing secret is posted.")
    return None


async def check_once(context: HookContext) -> str | None:
    return "Check your work, then answer again." if context.continued == 0 else None


async def main() -> None:
    model = ScriptedModel([call("post", words="the secret plan"), text("Done."), text("It was not posted.")])
    hooks = [
        Hook(at="before_tool", run=no_secrets, tools="post*", priority=10),
        Hook(at="stop", run=check_once),
    ]
    result = await Agent(model, tools=[post], hooks=hooks).run("Post the plan")

    print(result.text)
    assert [record.status for record in result.tool_calls] == ["denied"]
    assert result.text == "It was not posted."


asyncio.run(main())
