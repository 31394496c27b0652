"""What the peers of the model benchmark share: each runs the tasks that it is given, and prints one line of JSON for each."""

import argparse
import asyncio
import inspect
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from tasks import INSTRUCTIONS, MOST_REQUESTS, TASKS, Shop, Task

__all__ = ["INSTRUCTIONS", "MOST_REQUESTS", "TASK_SECONDS", "Outcome", "Peer", "main"]

MODEL = "qwen2.5-coder-0.5b-instruct"
TASK_SECONDS = 240


class Outcome(NamedTuple):
    """What a library says at the end of a run."""

    answer: str
    is_completed: bool
    """Whether the library says that the task was completed: for most, that it returned an answer."""
    calls: Sequence[tuple[str, bool]]
    """Every call that the model proposed, in order: the tool, and whether it was carried out without an error."""
    note: str = ""
    """Why it stopped, where the library says."""


class Peer(Protocol):
    """One library."""

    def run(self, base_url: str, tools: Sequence[Callable[..., Any]], task: str) -> Any:
        """Return the Outcome of one task, or an awaitable of it. What it raises counts as not completed."""
        ...


def main(peer: Peer) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="base URL; {task} in it is replaced")
    parser.add_argument("--tasks", required=True, help="names, separated by commas")
    wanted = parser.parse_args()
    names = wanted.tasks.split(",")
    asyncio.run(_run(peer, [task for task in TASKS if task.name in names], wanted.server))


async def _run(peer: Peer, tasks: Sequence[Task], server: str) -> None:
    for task in tasks:
        print(json.dumps(await judged(peer, task, server.replace("{task}", task.name))), flush=True)


async def judged(peer: Peer, task: Task, base_url: str) -> dict[str, Any]:
    """Run one task, and return what came of it."""
    shop, begun = Shop(), time.monotonic()
    try:
        async with asyncio.timeout(TASK_SECONDS):
            ran = peer.run(base_url, shop.tools(), task.text)
            outcome = await ran if inspect.isawaitable(ran) else ran
    except Exception as error:  # noqa: BLE001 - whatever a library raises: the task was not done
        outcome = Outcome("", False, (), f"{type(error).__name__}: {error}"[:300])
    return {
        "task": task.name,
        "done": task.is_done(shop, outcome.answer),
        "completed": outcome.is_completed,
        "answer": outcome.answer[:500],
        "note": outcome.note,
        "calls": list(outcome.calls),
        "ledger": [[entry.tool, dict(entry.arguments)] for entry in shop.ledger],
        "refused": [[entry.tool, dict(entry.arguments)] for entry in shop.refused],
        "seconds": round(time.monotonic() - begun, 1),
    }
