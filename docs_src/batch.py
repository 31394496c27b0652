"""A batch of tasks: scored, within a budget, and continued by the same call."""

import asyncio
import tempfile
from pathlib import Path

from treadle import Agent, allow, tool
from treadle.batch import BatchTask, exact, read_rows, run_batch
from treadle.ports import ModelRequest
from treadle.testing import ScriptedCall, ScriptedModel, call


@tool(effect="read")
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def reply(request: ModelRequest) -> ScriptedCall | str:
    """Stand in for a model."""
    last = request.messages[-1]
    return last.results[0].content if last.results else call("multiply", a=6, b=int(last.text[-2]))


agent = Agent(ScriptedModel([reply]), tools=[multiply], policy=allow("multiply"))
tasks = [BatchTask(id=f"times {n}", task=f"What is 6 times {n}?", expected=str(6 * n)) for n in range(5)]


async def main() -> None:
    folder = Path(tempfile.mkdtemp())
    for _ in range(2):  # the second call runs nothing again
        summary = await run_batch(
            agent, tasks, journal=folder / "runs.db", results=folder / "results.jsonl", score=exact, concurrency=16
        )
    print(f"{summary.passed} of {summary.scored} passed")
    print([row.id for row in read_rows(folder / "results.jsonl") if not row.passed])


if __name__ == "__main__":
    asyncio.run(main())
