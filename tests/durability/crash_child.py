"""The process that dies: runs or resumes one session, and kills itself with SIGKILL at the point it is told.

    python crash_child.py

It reads jobs, one JSON object a line, from standard input. For each it forks, says the child's number and then how the
child ended: imports are paid once, and every job still is a process of its own.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from treadle import Agent, Decision, Tool, ToolContext, allow, open_session
from treadle.errors import NothingToResume
from treadle.events import AnyEvent, ApprovalRequested, RunFinished, RunPaused, ToolFinished, ToolStarted
from treadle.journals.sqlite import SqliteJournal, build
from treadle.messages import Finish, Text, ToolCall
from treadle.ports import CallReady, ModelEnd, ModelPart, ModelRequest, TextDelta
from treadle.providers.openai_chat.request import ChatRequests
from treadle.testing import ScriptedModel, call, check_chat_history, text
from treadle.tools import CheckedCall, JsonObject, NotDone, Unknown

LIFE_SECONDS = 60
"""A child that hangs is ended by the system after so long."""

LOOK = ToolCall(id="look", name="look", arguments="{}")
ACTS = tuple(ToolCall(id=f"act_{n}", name="act", arguments=f'{{"n": {n}}}') for n in (1, 2))
MIXED = "mixed"
"""One call of each effect in one step, in place of two calls of one effect."""
MIXED_ACTS = {
    effect: ToolCall(id=f"act_{n}", name=f"act_{effect}", arguments=f'{{"n": {n}}}')
    for n, effect in enumerate(("unsafe", "keyed", "idempotent", "read"), start=1)
}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What one child is to do."""

    journal: str
    port: int
    """Of the effects server."""
    out: str
    """Where the report goes."""
    session: str = "s"
    effect: str = "unsafe"
    """The effect of both acts, or `mixed`."""
    point: str = ""
    """Where to die; empty to live."""
    act: str = "start"
    """start, resume, again (resume, and see that there is nothing left to), or build: only make the journal's tables."""
    check: str = ""
    """Whether the tool can be asked: `service` asks the world, `unknown` never knows; empty for no check."""
    consent: bool = False
    in_doubt: str | None = None
    lease_seconds: float = 10.0
    timeout: float | None = None
    depth: int = 0
    """How many agents stand above the one that acts, each with the next one as its tool."""
    gate: str = ""
    """A named pipe that the first act reads from once the second is done: it waits until somebody has opened and closed it."""


class Reaper:
    """Ends this process at its point."""

    def __init__(self, point: str) -> None:
        self._point = point

    def waits_at(self, point: str) -> bool:
        return point == self._point

    def pass_by(self, point: str) -> None:
        if self.waits_at(point):
            os.kill(os.getpid(), signal.SIGKILL)


class Dying:
    """What makes a journal die right before or after an append. `CP9` and the like by what it holds, `append:7:after` by its number."""

    def __init__(self, job: Job, reaper: Reaper) -> None:
        super().__init__(job.journal, lease_seconds=job.lease_seconds)  # type: ignore[call-arg]  # of the store beside it
        self._reaper = reaper
        self._count = 0
        self.second_stored = asyncio.Event()
        """Set once the second act's result is in the file. A process stopped in mid-write would keep SQLite locked."""

    async def append(self, session_id: str, events: Sequence[AnyEvent], *, state: str, durable: bool) -> None:
        self._count += 1
        for point in (f"append:{self._count}:before", *map(_point_before, events)):
            self._reaper.pass_by(point)
        await super().append(session_id, events, state=state, durable=durable)  # type: ignore[misc]  # as above
        if any(isinstance(event, ToolFinished) and event.call_id == "act_2" for event in events):
            self.second_stored.set()
        for point in (f"append:{self._count}:after", *map(_point_after, events)):
            if self._reaper.waits_at(point):
                await self.flush()  # type: ignore[attr-defined]  # as above: what is to have been stored is stored; a deferred append may not be yet
            self._reaper.pass_by(point)


class DyingJournal(Dying, SqliteJournal):
    """A journal in a file."""


def dying_journal(job: Job, reaper: Reaper) -> Any:
    """Make the journal that the job names."""
    if not job.journal.startswith("postgresql:"):
        return DyingJournal(job, reaper)
    from treadle.journals.postgres import PostgresJournal

    return type("DyingPostgres", (Dying, PostgresJournal), {})(job, reaper)


def _point_before(event: AnyEvent) -> str:
    match event:
        case ToolStarted(tool=name) if name.startswith("act"):
            return "CP8"
        case ToolFinished(call_id="act_1"):
            return "CP11"
        case RunFinished():
            return "CP15:before"
        case _:
            return "none"


def _point_after(event: AnyEvent) -> str:
    match event:
        case ApprovalRequested():
            return "CP7"
        case RunPaused():
            return "CP7:paused"
        case ToolStarted(tool=name) if name.startswith("act"):
            return "CP9"
        case ToolFinished(call_id="act_1"):
            return "CP12"
        case RunFinished():
            return "CP15:after"
        case _:
            return "none"


class PlannedModel:
    """Proposes one look and two acts; then answers. It knows where it is from the history alone, and checks that strictly."""

    name = "planned"
    price = None

    def __init__(self, reaper: Reaper, acts: Sequence[ToolCall] = ACTS) -> None:
        self._reaper = reaper
        self._acts = acts
        self._requests = ChatRequests("m", origin="x", options={}, stream=False, thinking_field=None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        check_chat_history(json.loads(self._requests.body(request))["messages"])
        is_first = all(message.role != "assistant" for message in request.messages)
        self._reaper.pass_by("CP1" if is_first else "CP13")
        await asyncio.sleep(0)
        self._reaper.pass_by("CP2")
        yield TextDelta("I")
        self._reaper.pass_by("CP3")
        if is_first:
            yield CallReady(LOOK)
            self._reaper.pass_by("CP3:early")
            for call in self._acts:
                yield CallReady(call)
        self._reaper.pass_by("CP4")
        parts = (Text("I act."), LOOK, *self._acts) if is_first else (Text("I am done."),)
        yield ModelEnd(parts=parts, finish=Finish.CALLS if is_first else Finish.STOP)


class DyingPolicy:
    def __init__(self, reaper: Reaper) -> None:
        self._reaper = reaper

    def decide(self, call: CheckedCall, session: Any) -> Decision | None:
        if call.name.startswith("act"):
            self._reaper.pass_by("CP6")
        return None


class Acting:
    """The tool `act`, and its check."""

    def __init__(self, job: Job, effect: str, reaper: Reaper, second_stored: asyncio.Event) -> None:
        self._job = job
        self._effect = effect
        self._reaper = reaper
        self._second_stored = second_stored

    async def run(self, arguments: JsonObject, ctx: ToolContext) -> Any:
        n = arguments["n"]
        if self._job.gate and n == 1:
            await self._second_stored.wait()
            await wait_for_pipe(self._job.gate)
        if n == 2 and self._job.point == "CP12":
            await asyncio.Event().wait()
        asked = {"do": ctx.idempotency_key, "effect": self._effect, "n": n, "session": self._job.session}
        reader, writer = await asyncio.open_connection("127.0.0.1", self._job.port)
        writer.write(json.dumps(asked).encode() + b"\n")
        await writer.drain()
        if n == 1:
            self._reaper.pass_by("CP10")
        await reader.readline()
        writer.close()
        return {"n": n}

    async def check(self, arguments: JsonObject, ctx: ToolContext) -> Any:
        if self._job.check == "unknown":
            return Unknown
        reader, writer = await asyncio.open_connection("127.0.0.1", self._job.port)
        writer.write(json.dumps({"ask": ctx.idempotency_key}).encode() + b"\n")
        answer = json.loads(await reader.readline())
        writer.close()
        return {"n": arguments["n"]} if answer["done"] else NotDone

    def validate(self, arguments: JsonObject) -> None:
        self._reaper.pass_by("CP5")


async def wait_for_pipe(path: str) -> None:
    """Wait until somebody opens the named pipe to write, and closes it; the event loop continues meanwhile."""
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def read() -> None:
        Path(path).read_bytes()
        loop.call_soon_threadsafe(lambda: None if opened.done() else opened.set_result(None))

    threading.Thread(target=read, daemon=True).start()
    await opened


def act_tool(job: Job, name: str, effect: str, reaper: Reaper, second_stored: asyncio.Event) -> Tool:
    acting = Acting(job, effect, reaper, second_stored)
    return Tool(
        name=name,
        description="Act.",
        parameters={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        effect=effect,  # type: ignore[arg-type]  # a word of the test's
        permission="ask" if job.consent else "allow",
        resources=lambda arguments: {f"thing:{arguments['n']}": "write"},
        check=acting.check if job.check else None,
        validate=acting.validate,
        timeout=job.timeout or (8.0 if job.check else None),
        run=acting.run,
    )


def agent_of(job: Job, reaper: Reaper, second_stored: asyncio.Event) -> Agent:
    async def look(arguments: JsonObject, ctx: ToolContext) -> Any:
        return "nothing"

    named = {call.name: effect for effect, call in MIXED_ACTS.items()} if job.effect == MIXED else {"act": job.effect}
    acts = [act_tool(job, name, effect, reaper, second_stored) for name, effect in named.items()]
    looking = Tool(name="look", description="Look.", parameters={}, effect="read", run=look)
    agent = Agent(
        PlannedModel(reaper, tuple(MIXED_ACTS.values()) if job.effect == MIXED else ACTS),
        tools=[looking, *acts],
        policy=DyingPolicy(reaper),
        in_doubt=job.in_doubt,  # type: ignore[arg-type]
    )
    for _ in range(job.depth):
        turns = [call("clerk", id="clerk", task="Act twice."), text("It is done.")]
        lead = ScriptedModel(turns, follows_history=True)
        agent = Agent(lead, tools=[agent.as_tool("clerk", "Acts twice.")], policy=allow("clerk"))
    return agent


class DyingConnection(sqlite3.Connection):
    """Dies before its n-th statement."""

    reaper = Reaper("")
    count = 0

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self.count += 1
        self.reaper.pass_by(f"CP16:{self.count}")
        return super().execute(*arguments)


def build_tables(job: Job) -> dict[str, Any]:
    DyingConnection.reaper = Reaper(job.point)
    with closing(sqlite3.connect(job.journal, factory=DyingConnection, isolation_level=None)) as connection:
        build(connection)
    return {}


async def carry_out(job: Job) -> dict[str, Any]:
    reaper = Reaper(job.point)
    journal = dying_journal(job, reaper)
    agent = agent_of(job, reaper, journal.second_stored)
    try:
        async with open_session(journal, id=job.session) as session:
            is_new = session.state.run is None  # it died before its first event was stored
            run = agent.run("Act twice.", session=session) if is_new else agent.resume(session)
            result = await run
        if job.act == "again":
            async with open_session(journal, id=job.session) as session:
                with suppress(NothingToResume):
                    result = await agent.resume(session)
        return dict(result.report())
    finally:
        await journal.close()


def live(job: Job) -> None:
    """Be the child: carry out the job and end."""
    signal.alarm(LIFE_SECONDS)
    code = 0
    try:
        report = build_tables(job) if job.act == "build" else asyncio.run(carry_out(job))
    except NothingToResume as error:  # the kinds of it, too
        code, report = 1, {"error": f"NothingToResume: {error}"}
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent must be notified
        code, report = 1, {"error": f"{type(error).__name__}: {error}"}
    Path(job.out).write_text(json.dumps(report))
    os._exit(code)


def main() -> None:
    for line in sys.stdin:
        job = msgspec.json.decode(line, type=Job)
        pid = os.fork()
        if pid == 0:
            live(job)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
