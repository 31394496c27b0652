"""Work that lasts: a long run over a small window, a tree of agents, a goal whose model lies, 200 tools; killed again and again.

    python benchmarks/long_work.py steps --steps 1000 --kills 50
    python benchmarks/long_work.py tree --kills 200
    python benchmarks/long_work.py goal --steps 100 --kills 50
    python benchmarks/long_work.py tools --steps 40 --kills 10

Each life is a process of its own, killed with SIGKILL at a random moment and started again, until the work is done. What was done to
the world stands in a file that the processes append to. A tree is done in seconds: one after the other is grown until all kills are made. Exit code 1 when anything was lost, done twice, or left out of a request.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from treadle import Agent, Budget, Done, NotDone, RunResult, Tool, ToolContext, ask, open_session
from treadle.agents import Goal, StopRules, Subagent, run_goal, subagent_tool
from treadle.budgets import Guards
from treadle.context import ClearResults, Handoff, Tiers
from treadle.errors import NothingToResume
from treadle.events import ContextCompacted
from treadle.journals.sqlite import SqliteJournal
from treadle.messages import Finish, Text, ToolCall, Usage
from treadle.ports import ModelEnd, ModelPart, ModelRequest
from treadle.providers.openai_chat.request import ChatRequests
from treadle.testing import check_chat_history
from treadle.tools import JsonObject
from treadle.toolsets import OnDemand

OBJECTIVE = "Number all the shelves of the tea shop, one after the other"
WINDOW = 32_000
RESULT_CHARS = 1_500
ACT_SECONDS = 3.0
"""A call that was killed before it acted is made again after so long: until then its request might still be under way."""


# --- one life --------------------------------------------------------------------------------------------------------


class Shelves:
    """A model that continues after the last number that it sees, and writes down what each request was like."""

    name = "openai-chat:shelves"
    price = None
    window = WINDOW

    def __init__(self, steps: int, log: Path) -> None:
        self._steps = steps
        self._log = log
        self._wire = ChatRequests("shelves", origin="shelves", options={}, stream=False, thinking_field=None)
        self._last = b""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        await asyncio.sleep(0)
        body = self._wire.body(request)
        check_chat_history(json.loads(body)["messages"])
        is_work = bool(request.tools)
        if is_work:
            self._note(body)
        number = max(_numbers(request), default=0) + 1
        words = "The state of the work is as the journal says."
        parts: tuple[Any, ...] = (Text(words if not is_work else "All shelves are numbered."),)
        if is_work and number <= self._steps:
            parts = (ToolCall(id=f"c{number}", name="number", arguments=json.dumps({"shelf": number})),)
        usage = Usage(input_tokens=len(body) // 4, output_tokens=20)
        finish = Finish.CALLS if isinstance(parts[0], ToolCall) else Finish.STOP
        yield ModelEnd(parts=parts, finish=finish, usage=usage)

    def _note(self, body: bytes) -> None:
        text = body.decode()
        row = {
            "bytes": len(body),
            "kept": shared(self._last, body),
            "objective": OBJECTIVE in text,
            "at": time.monotonic(),
            "is_first": not self._last,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        self._last = body
        with self._log.open("a") as log:
            log.write(json.dumps(row) + "\n")


def shared(first: bytes, second: bytes) -> int:
    """Return how many bytes two texts begin with in common."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


def _numbers(request: ModelRequest) -> list[int]:
    """Return the numbers of the shelves that the last messages tell of."""
    found = [int(word) for one in request.messages[-4:] for part in one.results for word in part.content.split()[1:2]]
    called = [json.loads(call.arguments)["shelf"] for one in request.messages[-4:] for call in one.calls]
    return found or called


def acting(world: Path, name: str, field: str, *, permission: Any = "allow") -> Tool:
    """Return a tool that changes the world: one line of a file, written at once, with the approval that a person put into the call."""

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        handle = os.open(world, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{ctx.idempotency_key} {arguments[field]} {arguments.get('approval', '')}\n".encode())
        os.close(handle)
        return f"Numbered {arguments[field]} . " + "x" * RESULT_CHARS

    async def check(arguments: JsonObject, ctx: ToolContext) -> Any:
        is_done = any(line.startswith(ctx.idempotency_key + " ") for line in lines_of(world))
        return Done(f"Numbered {arguments[field]} . done before") if is_done else NotDone

    properties = {field: {"type": "integer"}, "approval": {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": [field]}
    return Tool(
        name=name,
        description="Act.",
        parameters=parameters,
        effect="unsafe",
        permission=permission,
        timeout=ACT_SECONDS,
        check=check,
        run=run,
    )


def lines_of(world: Path) -> list[str]:
    return world.read_text().splitlines() if world.exists() else []


class Leader:
    """A model that gives each of its helpers one task, all in one response, and then answers."""

    price = None

    def __init__(self, name: str, calls: Sequence[tuple[str, JsonObject]]) -> None:
        self.name = name
        self._calls = [
            ToolCall(id=f"{name}_{number}", name=tool, arguments=json.dumps(given))
            for number, (tool, given) in enumerate(calls)
        ]

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        await asyncio.sleep(0.002)
        usage = Usage(input_tokens=100, output_tokens=10)
        if any(message.role == "assistant" for message in request.messages):
            yield ModelEnd(parts=(Text(f"{self.name} is done."),), finish=Finish.STOP, usage=usage)
        else:
            calls = self._calls
            if self.name == "leaf":  # each leaf has its own number in its task
                number = int(request.messages[0].text.rpartition(" ")[2])
                calls = [
                    ToolCall(id=f"p{n}", name="pay", arguments=json.dumps({"n": number * 10 + n}))
                    for n in payments_of(number)
                ]
            yield ModelEnd(parts=tuple(calls), finish=Finish.CALLS, usage=usage)


def payments_of(leaf: int) -> tuple[int, ...]:
    """Return the numbers of a leaf's payments: two each, and three of the first two leaves, which makes twenty."""
    return (1, 2, 3) if leaf in (11, 12) else (1, 2)


def tree(world: Path) -> Agent:
    """Return an agent over three times three others; the nine pay twenty times, and ask before each payment."""

    def tasks(base: int) -> list[tuple[str, JsonObject]]:
        return [("spawn_agent", {"agent": "leaf", "task": f"Pay {base + number}"}) for number in (1, 2, 3)]

    middles = [f"middle{number}" for number in (1, 2, 3)]
    definitions = [Subagent(name=name, description="Leads.", instructions="Lead.", model=name) for name in middles]
    definitions.append(Subagent(name="leaf", description="Pays.", instructions="Pay.", model="leaf", tools=("pay",)))
    models: dict[str, Any] = {name: Leader(name, tasks(10 * number)) for number, name in enumerate(middles, 1)}
    models["leaf"] = Leader("leaf", [])
    top = Leader("top", [("spawn_agent", {"agent": name, "task": "Lead"}) for name in middles])
    tools = [acting(world, "pay", "n", permission=None), subagent_tool(definitions, models=models)]
    return Agent(top, tools=tools, policy=ask("pay"), budget=Budget(max_model_turns=26))


TOOLS = 200


class Picker:
    """A model that searches for a tool before each of its calls, and writes down which tools each request offers."""

    name = "openai-chat:picker"
    price = None

    def __init__(self, steps: int, log: Path) -> None:
        self._steps = steps
        self._log = log
        self._wire = ChatRequests("picker", origin="picker", options={}, stream=False, thinking_field=None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        await asyncio.sleep(0.002)
        body = json.loads(self._wire.body(request))
        check_chat_history(body["messages"])
        offered = [tool["function"]["name"] for tool in body["tools"]]
        row = {"tools": len(offered), "bytes": len(json.dumps(body["tools"]))}
        with self._log.open("a") as log:
            log.write(json.dumps(row) + "\n")
        done = sum(call.name != "search_tools" for one in request.messages for call in one.calls)
        wanted = tool_name(done)
        part: Any = Text("All of it is done.")
        if done < self._steps:
            name, given = (wanted, {"n": done}) if wanted in offered else ("search_tools", {"query": wanted})
            part = ToolCall(id=f"c{len(request.messages)}", name=name, arguments=json.dumps(given))
        finish = Finish.CALLS if isinstance(part, ToolCall) else Finish.STOP
        yield ModelEnd(parts=(part,), finish=finish, usage=Usage(input_tokens=100, output_tokens=10))


def tool_name(number: int) -> str:
    """Return the name of the tool that a step needs: far from the one before."""
    return f"act_{number * 37 % TOOLS:03}"


def shop(world: Path, log: Path, steps: int) -> Agent:
    """Return an agent with 200 tools, which are offered once they were searched for."""
    catalogue = [acting(world, f"act_{number:03}", "n") for number in range(TOOLS)]
    budget = Budget(max_model_turns=None, max_tool_calls=None, max_input_tokens=None)
    return Agent(Picker(steps, log), tools=[OnDemand(catalogue)], budget=budget, guards=Guards(budget_warning=None))


class Liar:
    """A model that numbers one shelf after the other, and claims before each that all of it is done."""

    name = "liar"
    price = None

    def __init__(self, steps: int) -> None:
        self._steps = steps

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        await asyncio.sleep(0.002)
        usage = Usage(input_tokens=100, output_tokens=10)
        given = [json.loads(call.arguments)["shelf"] for one in request.messages for call in one.calls]
        number = max(given, default=0) + 1
        was_denied = "is not reached" in request.messages[-1].text
        if number > self._steps or not was_denied:
            yield ModelEnd(parts=(Text("All shelves are numbered."),), finish=Finish.STOP, usage=usage)
        else:
            call = ToolCall(id=f"c{number}", name="number", arguments=json.dumps({"shelf": number}))
            yield ModelEnd(parts=(call,), finish=Finish.CALLS, usage=usage)


async def reach(words: argparse.Namespace) -> None:
    """Begin or continue the work on a goal, and write down what is said of it once it has ended."""
    folder = Path(words.folder)
    goal = Goal(
        objective="All shelves of the tea shop have numbers",
        done_condition=f"the file world has {words.steps} lines",
        validation=f"test $(cat world | wc -l) -ge {words.steps}",
        budget=Budget(max_model_turns=None, max_tool_calls=None, max_wall_time_seconds=None),
        checkpoint_every=7,
        plan=["Number the first shelf"],
        stop_rules=StopRules(unchanged_checks=1_000),
    )
    agent = Agent(
        Liar(words.steps), tools=[acting(folder / "world", "number", "shelf")], guards=Guards(budget_warning=None)
    )
    async with open_session(SqliteJournal(str(folder / "a.db"), lease_seconds=words.lease), id="work") as session:
        result = await run_goal(agent, goal, session=session, root=folder)
    lies = sum(not one.passed and one.trigger == "claim" for one in result.checks)
    report = {"reason": result.status, "lies": lies, "lines": len(lines_of(folder / "world"))}
    (folder / "report").write_text(json.dumps(report))


def shelves(world: Path, log: Path, steps: int) -> Agent:
    budget = Budget(max_model_turns=None, max_tool_calls=None, max_input_tokens=None, max_wall_time_seconds=None)
    return Agent(
        Shelves(steps, log),
        tools=[acting(world, "number", "shelf")],
        budget=budget,
        guards=Guards(budget_warning=None),
        compactor=Tiers(ClearResults(), Handoff()),
    )


async def live(words: argparse.Namespace) -> None:
    """Begin or continue the work, and write the report once it is done."""
    folder = Path(words.folder)
    world, log = folder / "world", folder / "log"
    agents = {"tree": lambda: tree(world), "tools": lambda: shop(world, log, words.steps)}
    agent = agents.get(words.what, lambda: shelves(world, log, words.steps))()
    journal = SqliteJournal(str(folder / "a.db"), lease_seconds=words.lease)
    async with open_session(journal, id="work") as session:
        result = await begun(agent, session)
        while result is not None and result.approvals:
            with (folder / "asked").open("a") as asked:
                asked.writelines(f"{one.id} {one.arguments['n']} {' > '.join(one.path)}\n" for one in result.approvals)
            for one in result.approvals:
                await session.answer(one.id, "allow", arguments={**one.arguments, "approval": one.id})
            result = await agent.resume(session)
        events = await session.events()
        report = {} if result is None else result.report()
        report["compactions"] = Counter(event.tier for event in events if isinstance(event, ContextCompacted))
    (folder / "report").write_text(json.dumps(report))


async def begun(agent: Agent, session: Any) -> RunResult | None:
    if session.state.run is None:
        return await agent.run(OBJECTIVE, session=session)
    try:
        return await agent.resume(session)
    except NothingToResume:  # it was killed behind its end
        return None


# --- many lives ------------------------------------------------------------------------------------------------------


def work(words: argparse.Namespace, folder: Path) -> tuple[int, float]:
    """Kill and continue until the work is done. Return how often it was killed, and how long it took."""
    chance, kills, begun_at = random.Random(words.seed), 0, time.monotonic()
    command = [sys.executable, __file__, words.what, "--folder", str(folder), "--steps", str(words.steps)]
    while not (folder / "report").exists():
        life = subprocess.Popen([*command, "--lease", str(words.lease)])
        try:
            life.wait(None if kills >= words.kills else chance.uniform(0.3, words.life))
        except subprocess.TimeoutExpired:
            life.kill()
            kills += 1
        if life.wait() not in (0, -9):
            raise SystemExit(f"A life ended with {life.returncode}.")
        if time.monotonic() - begun_at > words.seconds:
            raise SystemExit("There was too little time.")
    return kills, time.monotonic() - begun_at


def told(words: argparse.Namespace, folder: Path, kills: int, seconds: float) -> list[str]:
    """Print what came of it, and return what is wrong."""
    done = Counter(line.split()[1] for line in (folder / "world").read_text().splitlines())
    report = json.loads((folder / "report").read_text())
    twice = [name for name, count in done.items() if count > 1]
    print(f"{kills} kills in {seconds:.0f} s; acts {len(done)}, twice {len(twice)}, {report.get('reason', 'ended')}")
    faults = [f"done twice: {twice}"] * bool(twice)
    if words.what == "goal":
        print(f"{report['lies']} false claims, reported as {report['reason']} at {report['lines']} of {words.steps}")
        is_true = report["reason"] == "completed" and report["lines"] == words.steps
        return faults + [f"a false end: {report}"] * (not is_true)
    if words.what == "tree":
        return faults + of_tree(folder)
    if words.what == "tools":
        return faults + of_tools(words, folder)
    rows = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    sizes = [row["bytes"] for row in rows]
    kept = sum(row["kept"] for row in rows) / sum(sizes)
    spans = [after["at"] - before["at"] for before, after in itertools.pairwise(rows) if not after["is_first"]]
    tenth = max(len(spans) // 10, 1)
    early, late = (1000 * statistics.median(part) for part in (spans[:tenth], spans[-tenth:]))
    tiers = ", ".join(
        f"{count} of tier {tier} ({count / words.steps:.1%})" for tier, count in report["compactions"].items()
    )
    print(f"requests {len(rows)}, largest {max(sizes):,} bytes; prefix kept {kept:.1%}; compactions: {tiers}")
    print(
        f"a step: {early:.1f} ms in the first tenth, {late:.1f} ms in the last; memory {rows[-1]['memory']} MB at the end"
    )
    lost = words.steps - len(done)
    faults += [f"lost: {lost}"] * bool(lost)
    return faults + ["a request without its objective"] * (not all(row["objective"] for row in rows))


def of_tree(folder: Path) -> list[str]:
    """Print who was asked, and return which payments are lost, and which were made with the approval of another."""
    acts = [line.split() for line in lines_of(folder / "world")]
    asked = {line.split()[0]: line.split(maxsplit=2)[1:] for line in lines_of(folder / "asked")}
    leaves = [10 * middle + leaf for middle in (1, 2, 3) for leaf in (1, 2, 3)]
    wanted = {str(leaf * 10 + n) for leaf in leaves for n in payments_of(leaf)}
    print(f"asked {len(asked)} times, by {len({path for _, path in asked.values()})} paths")
    lost = wanted - {number for _, number, _ in acts}
    astray = [line for line in acts if asked.get(line[2], [""])[0] != line[1]]
    again = len(asked) - len(wanted)
    return (
        [f"lost: {sorted(lost)}"] * bool(lost)
        + [f"with the approval of another call: {astray}"] * bool(astray)
        + [f"asked {again} times again"] * bool(again)
    )


def of_tools(words: argparse.Namespace, folder: Path) -> list[str]:
    """Print how many schemas the requests had, and return what is wrong."""
    rows = [json.loads(line) for line in lines_of(folder / "log")]
    counts, sizes = [row["tools"] for row in rows], [row["bytes"] for row in rows]
    done = {line.split()[1] for line in lines_of(folder / "world")}
    print(
        f"requests {len(rows)}; of {TOOLS} tools {counts[0]} to {max(counts)} in a request, {statistics.mean(counts):.1f} on "
        f"average; their schemas {max(sizes):,} bytes at most"
    )
    lost = {str(number) for number in range(words.steps)} - done
    return [f"lost: {sorted(lost)}"] * bool(lost) + [f"{max(counts)} tools in a request"] * (max(counts) > 25)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("steps", "tree", "goal", "tools"))
    parser.add_argument("--steps", type=int, default=1000, help="calls of the long run (1000)")
    parser.add_argument("--kills", type=int, default=0, help="how often to kill, at most (0)")
    parser.add_argument(
        "--life", type=float, default=2.0, help="seconds that a life lasts at most before it is killed (2)"
    )
    parser.add_argument("--lease", type=float, default=10.0, help="seconds of the session's lease (10)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long in any case (3600)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the chance")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.folder:
        asyncio.run(reach(words) if words.what == "goal" else live(words))
        return 0
    faults, left = [], words.kills
    while True:
        with tempfile.TemporaryDirectory(prefix="treadle-long-") as folder:
            kills, seconds = work(words, Path(folder))
            faults += told(words, Path(folder), kills, seconds)
        left -= kills
        if words.what != "tree" or left <= 0:
            break
        words.kills, words.seed = left, words.seed + 1
    for fault in faults:
        print(f"FAULT {fault} (seed {words.seed})")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
