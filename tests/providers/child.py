"""Code in a process of its own whose environment is what a test says, and a model that is asked there."""

import asyncio
import os
import tempfile
from pathlib import Path

import program

__all__ = ["ask", "run_python", "run_treadle"]

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
_WITHOUT = """
import sys
for name in [*sys.modules]:
    if name.startswith("{0}."):
        del sys.modules[name]
sys.modules["{0}"] = None
"""


async def run_python(code: str, *arguments: str, **environment: str) -> tuple[str, str]:
    """Run code in a process that has these variables; return what it printed, and its errors."""
    kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("COVERAGE_")}
    variables = {**kept, "HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true", **environment}
    folder = Path(tempfile.gettempdir())
    done = await asyncio.to_thread(program.run, [program.CODE, code, *arguments], folder=folder, environment=variables)
    return done.stdout.decode().strip(), done.stderr.decode()


def run_treadle(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the program; return its exit code, what it printed, and its errors."""
    done = program.run(arguments, folder=folder, environment={**os.environ, "TREADLE_HOME": str(folder)})
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def ask(
    name: str, environment: dict[str, str], *, at_once: int = 1, times: int = 1, without: str = ""
) -> list[str]:
    """Ask a model in a process of its own, so many at once, so many times; return what came of each, or the error's lines.

    Args:
        without: A library that is not installed there.
    """
    code = (_WITHOUT.format(without) if without else "") + _ASK
    told = await run_python(code, name, str(at_once), str(times), **environment)
    return "\n".join(filter(None, told)).splitlines()
