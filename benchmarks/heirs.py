"""Let many processes resume one dead session on PostgreSQL at once, and print how long each took to know what became of it.

    python benchmarks/heirs.py --processes 30

The holder is ended with SIGKILL. Each other process has started before; its time runs from its call of `resume`; that
of `open_session`, which loads the driver and connects, is printed beside it. Exit code 1 unless exactly one goes on and all others know within five seconds of their request.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from treadle import Agent, open_session, tool
from treadle.errors import RunCompleted, SessionHeld
from treadle.testing import ScriptedModel, call, text

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

LIMIT_SECONDS = 5.0


async def hold(url: str) -> None:
    """Run the session until somebody kills this process."""

    @tool(effect="read", permission="allow")
    async def wait() -> str:
        """Wait."""
        print("ready", flush=True)
        return await asyncio.Future()

    async with open_session(url, id="s") as session:
        await Agent(ScriptedModel([call("wait")]), tools=[wait]).run("Wait", session=session)


async def inherit(url: str) -> None:
    """Resume the session when told, and say what came of it."""

    @tool(effect="read", permission="allow")
    async def wait() -> str:
        """Wait."""
        return "waited"

    agent = Agent(ScriptedModel([text("It is done.")]), tools=[wait])
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    begun = time.monotonic()
    said = "goes on"
    async with open_session(url, id="s") as session:
        asked = time.monotonic()
        try:
            await agent.resume(session)
        except (SessionHeld, RunCompleted):  # the second: so late that all is done
            said = "told"
        print(json.dumps([said, time.monotonic() - asked, asked - begun]), flush=True)


def measure(url: str, processes: int) -> list[tuple[str, float, float]]:
    def child(act: str) -> "subprocess.Popen[str]":
        command = [sys.executable, __file__, "--act", act, url]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with contextlib.ExitStack() as stack:
        heirs = [child("inherit") for _ in range(processes)]
        holder = child("hold")
        for one in (*heirs, holder):
            stack.callback(one.wait)
            stack.callback(one.kill)
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        os.kill(holder.pid, signal.SIGKILL)
        for one in heirs:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        return sorted(
            (tuple(json.loads(one.stdout.readline())) for one in heirs if one.stdout), key=lambda said: said[1]
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=30, help="how many resume it (30)")
    parser.add_argument("--act", choices=("hold", "inherit"), help=argparse.SUPPRESS)
    parser.add_argument("url", nargs="?", help="of a database; a server of our own without one")
    words = parser.parse_args()
    if words.act:
        asyncio.run((hold if words.act == "hold" else inherit)(words.url))
        return 0
    from soak import database

    with contextlib.nullcontext(words.url) if words.url else database() as url:
        said = measure(url, words.processes)
    told = [seconds for what, seconds, _ in said if what == "told"]
    went_on = [seconds for what, seconds, _ in said if what == "goes on"]
    opened = sorted(seconds for _, _, seconds in said)
    print(f"{len(went_on)} went on after {', '.join(f'{seconds:.1f} s' for seconds in went_on)}")
    print(f"{len(told)} were told: median {told[len(told) // 2]:.2f} s, last {told[-1]:.2f} s")
    print(f"opening the session took: median {opened[len(opened) // 2]:.2f} s, last {opened[-1]:.2f} s")
    return 0 if len(went_on) == 1 and told[-1] <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
