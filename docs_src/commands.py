"""An agent that works on a folder: it reads, runs what the rules allow, and asks about the rest."""

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, allow, deny, file_tools, first_of, shell_tool
from treadle.testing import ScriptedModel, call, text
from treadle.toolsets import writing_tools

FOLDER = Path(tempfile.mkdtemp())
(FOLDER / "notes.txt").write_text("teapots: 12\n")
(FOLDER / "secrets").mkdir()
(FOLDER / "secrets" / "key").write_text("do not read me")

model = ScriptedModel(  # or "ollama:qwen3"
    [
        call("shell", command="grep -c teapots notes.txt && ls"),
        call("shell", command="cat secrets/key"),
        call("shell", command="ls; rm notes.txt"),
        text("Done."),
    ]
)
agent = Agent(
    model,
    tools=[*file_tools(FOLDER), *writing_tools(FOLDER), shell_tool(FOLDER)],
    policy=first_of(deny("read(path=secrets/**)"), allow("shell(ls:*)", "shell(grep:*)", "write(path=notes*)")),
)


async def main() -> None:
    result = await agent.run("How many teapots do we have?")
    print([one.status for one in result.tool_calls], result.status)
    assert [one.status for one in result.tool_calls][:2] == ["ok", "denied"]
    assert result.status == "paused"  # `rm` is not allowed: a person is asked


asyncio.run(main())
