"""A tool that runs a program, and an agent that is a tool of another agent."""

import asyncio
import sys

from treadle import Agent, tool
from treadle.sandboxes import run_process
from treadle.testing import ScriptedModel, call, text


@tool(effect="read", timeout=30)
async def python_version() -> str:
    """Say which Python this is."""
    result = await run_process([sys.executable, "--version"])
    return result.stdout.strip()


async def main() -> None:
    expert = Agent(ScriptedModel([call("python_version"), text("It is Python 3.")]), tools=[python_version])
    asks = ScriptedModel([call("ask_expert", task="Which Python is this?"), text("The expert says: Python 3.")])
    lead = Agent(asks, tools=[expert.as_tool("ask_expert", "Ask about this machine.", effect="read")])

    print((await lead.run("Which Python do we have?")).text)


asyncio.run(main())
