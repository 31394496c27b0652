"""A process that is killed in a call, at each dialect and each cloud's door: another one continues, and the strict server takes its history."""

import asyncio
import signal
import sys

import pytest

from treadle.testing import MockProvider, RecordedRequest, Turn, call

NAMES = (
    *("openai-chat:m", "openai:m", "anthropic:m", "gemini:m", "cohere:m"),
    *("azure:m", "azure-responses:m", "bedrock:us.amazon.nova-lite-v1:0", "bedrock-claude:us.anthropic.claude-sonnet-4-5-v1:0"),
    *("vertex:gemini-2.5-pro", "vertex:claude-sonnet-4-5@20250929"),
)  # fmt: skip

CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from treadle import Agent, Budget, open_session, resolve_model, tool

name, url, folder, act, form = sys.argv[1:]
folder = Path(folder)

@tool(effect="keyed", permission="allow")
async def look(key: str) -> str:
    \"\"\"Look a key up.\"\"\"
    with (folder / "looked").open("a") as file:
        file.write(key + "\\n")
    if key == "b" and act == "run":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"value of {key}"

async def main():
    model = resolve_model(name, base_url=url, api_key="k", stream=form == "stream")
    agent = Agent(model, tools=[look], budget=Budget(max_parallel_tool_calls=1))
    async with open_session(folder / "s.db", id="s") as session:
        result = await (agent.run("go", session=session) if act == "run" else agent.resume(session))
        print(result.text, result.completed)

asyncio.run(main())
"""


async def child(*arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told, _ = await asyncio.wait_for(process.communicate(), timeout=90)
    return process.returncode, told.decode().strip()


def told(request: RecordedRequest) -> str:
    return request.raw.decode()


@pytest.mark.row("P-CONVERSE", "P-INVOKE", "P-VERTEX", "P-AZURE", "P-COHERE")
@pytest.mark.parametrize("form", ["stream", "whole"])
@pytest.mark.parametrize("name", NAMES)
async def test_another_process_goes_on_with_the_results_that_were_recorded(name, form, tmp_path):
    asked = Turn(thinking="Hm.", text="I look.", calls=(call("look", key="a"), call("look", key="b")))
    async with MockProvider([asked, "done"]) as provider:
        killed, said = await child(name, provider.base_url, str(tmp_path), "run", form)
        ended = await child(name, provider.base_url, str(tmp_path), "resume", form)

    assert killed == -signal.SIGKILL, said
    assert ended == (0, "done True")
    assert (provider.refusals, len(provider.requests)) == ([], 2)
    assert (tmp_path / "looked").read_text().split() == ["a", "b", "b"]  # under the same key
    assert all(f"value of {key}" in told(provider.requests[1]) for key in "ab")
    if name.startswith(("anthropic", "bedrock", "cohere", "vertex:claude")):  # what these think goes back to them
        assert "Hm." in told(provider.requests[1])
