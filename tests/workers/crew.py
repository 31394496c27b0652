"""A worker process for tests: its agent pays once with a call of each effect, and every act is written to a file."""

import asyncio
import os
import sys
import threading
from pathlib import Path

from treadle import Agent, ToolContext, tool
from treadle.testing import ScriptedModel, call, text
from treadle.workers import PgQueuerDispatcher, Worker

EFFECTS = ("read", "idempotent", "keyed", "unsafe")


def note(folder: Path, line: str) -> None:
    """Write one line, whole, that survives the process."""
    with (folder / "acts").open("a") as acts:
        acts.write(f"{line}\n")


def make(folder: Path) -> Agent:
    def acting(effect: str) -> object:
        @tool(name=f"act_{effect}", effect=effect, permission="allow")  # type: ignore[arg-type,call-overload]  # one of the four
        async def act(ctx: ToolContext) -> str:
            """Act on the world."""
            note(folder, f"{effect} {ctx.session.id} {ctx.idempotency_key}")
            await asyncio.sleep(0.05)  # sleep: a moment in which the process may be killed
            return "done"

        return act

    def answer(request: object) -> object:
        messages = request.messages  # type: ignore[attr-defined]
        results = sum(message.role == "tool" for message in messages)
        return call(f"act_{EFFECTS[results]}") if results < len(EFFECTS) else text("All is done.")

    return Agent(ScriptedModel([answer]), tools=[acting(effect) for effect in EFFECTS])  # type: ignore[misc]


async def main(address: str, folder: Path, name: str, spread: str) -> None:
    dispatcher = PgQueuerDispatcher(address) if spread == "pgqueuer" else None
    worker = Worker(address, {"payer": lambda: make(folder)}, name=name, concurrency=3, tries=50, dispatcher=dispatcher)
    note(folder, f"up {name} {os.getpid()}")
    await worker.run()


def end_with_the_test() -> None:
    """End when the process that has started this one has ended."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_test, daemon=True).start()
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
