"""A child process with an environment of its own, in which a model behind a cloud's door is asked. Reads nothing of ours."""

import asyncio
import os
import sys
from collections.abc import Mapping

__all__ = ["ask", "ran"]

_OURS = (
    "AWS_",
    "GOOGLE_",
    "GCLOUD_",
    "CLOUDSDK_",
    "AZURE_",
    "VERTEX_",
    "BEDROCK_",
    "OPENAI_",
    "ANTHROPIC_",
    "IDENTITY_",
    "MSI_",
)

_ASK = """
import asyncio, sys
from treadle import Agent, Budget, resolve_model

async def main():
    model = resolve_model(sys.argv[1])
    for _ in range(int(sys.argv[3])):
        runs = [Agent(model, budget=Budget(max_retries_per_model_call=0)).run("go") for _ in range(int(sys.argv[2]))]
        for result in await asyncio.gather(*runs):
            print(result.text or f"{result.reason}: {result.message}")

asyncio.run(main())
"""


async def ran(code: str, *arguments: str, environment: Mapping[str, str], without: str = "") -> str:
    """Run code in a process whose environment names no other cloud; return what it printed.

    Args:
        without: A library that is not installed there.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    code = f"import sys\nsys.modules[{without!r}] = None\n{code}" if without else code
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**clean, "HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1", **environment},
    )  # fmt: skip
    told, _ = await asyncio.wait_for(child.communicate(), timeout=90)
    return told.decode().strip()


async def ask(
    name: str, environment: Mapping[str, str], *, at_once: int = 1, times: int = 1, without: str = ""
) -> list[str]:
    """Ask a model in a process of its own, so many at once, so many times; return what came of each, or the error's lines."""
    return (await ran(_ASK, name, str(at_once), str(times), environment=environment, without=without)).splitlines()
