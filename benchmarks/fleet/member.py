"""One worker process of a fleet. What it does to the world, and when, is appended to a file that outlives it."""

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle import Agent, ToolContext, Worker, resolve_model, tool
from treadle.testing import ScriptedModel, call, text
from treadle.workers import Limit, PgQueuerDispatcher

EFFECTS = ("read", "idempotent", "keyed", "unsafe")

Spread = Literal["file", "postgres", "pgqueuer"]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker of a fleet works."""

    address: str
    """The journal's."""
    acts: str
    """The file that says what was done."""
    spread: Spread
    """What spreads the sessions."""
    name: str = ""
    lease_seconds: float = 10.0
    concurrency: int = 4
    seconds: float = 0.05
    """How long one call, or one answer of the model, takes."""
    limits: list[dict[str, Any]] = []
    base_url: str = ""
    """The mock provider's, for the agent `talker`."""


class Act(msgspec.Struct, frozen=True):
    """Something that a worker did, as its file says."""

    at: float
    worker: str
    what: str
    """`ask` and `end` for the model, else the effect of a call."""
    session: str
    key: str = ""


class Doing:
    """The agents of one worker."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._file = os.open(member.acts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: str, session: str, key: str = "") -> None:
        """Write one line, whole, that survives the process."""
        act = Act(time.time(), self._member.name, what, session, key)
        os.write(self._file, msgspec.json.encode(act) + b"\n")

    def payer(self) -> Agent:
        """Return an agent that makes one call of each effect."""
        return Agent(ScriptedModel([self._pay]), tools=[self._acting(effect) for effect in EFFECTS])

    def _acting(self, effect: Any) -> Any:
        @tool(name=f"act_{effect}", effect=effect, permission="allow")
        async def act(ctx: ToolContext) -> str:
            """Act on the world."""
            self.note(effect, ctx.session.id, ctx.idempotency_key)
            await asyncio.sleep(self._member.seconds)
            return "done"

        return act

    def _pay(self, request: Any) -> Any:
        results = sum(message.role == "tool" for message in request.messages)
        self.note("ask" if results < len(EFFECTS) else "end", request.session_id)
        return call(f"act_{EFFECTS[results]}") if results < len(EFFECTS) else text("All is done.")

    def clerk(self) -> Agent:
        """Return an agent that makes one call that takes a while."""

        @tool(effect="read", permission="allow")
        async def look() -> str:
            """Look for a while."""
            await asyncio.sleep(self._member.seconds)
            return "seen"

        def answer(request: Any) -> Any:
            is_first = not any(message.role == "tool" for message in request.messages)
            self.note("ask" if is_first else "end", request.session_id)
            return call("look") if is_first else text("Seen.")

        return Agent(ScriptedModel([answer]), tools=[look])

    def asker(self) -> Agent:
        """Return an agent whose one call waits for a person."""

        @tool(effect="unsafe", permission="ask")
        async def pay(ctx: ToolContext) -> str:
            """Pay."""
            self.note("unsafe", ctx.session.id, ctx.idempotency_key)
            return "paid"

        return Agent(ScriptedModel([call("pay"), text("Paid.")], follows_history=True), tools=[pay])

    def talker(self) -> Agent:
        """Return an agent that asks the mock provider once."""
        return Agent(resolve_model("openai-chat:mock", base_url=self._member.base_url, api_key="sk-mock"))


async def journal_of(member: Member) -> Any:
    """Open the fleet's journal with its lease."""
    if member.spread == "file":
        from treadle.journals.sqlite import open_sqlite

        return await open_sqlite(Path(member.address), lease_seconds=member.lease_seconds)
    from treadle.journals.postgres import open_postgres

    return await open_postgres(member.address, lease_seconds=member.lease_seconds)


async def work(member: Member) -> None:
    doing = Doing(member)
    agents = {"payer": doing.payer, "clerk": doing.clerk, "asker": doing.asker}
    if member.base_url:
        agents["talker"] = doing.talker
    journal = await journal_of(member)
    dispatcher = None
    if member.spread == "pgqueuer":
        dispatcher = PgQueuerDispatcher(member.address, stale_seconds=member.lease_seconds)
    worker = Worker(
        journal,
        agents,
        name=member.name,
        concurrency=member.concurrency,
        tries=50,
        dispatcher=dispatcher,
        limits=[Limit(**limit) for limit in member.limits],
    )
    await worker.run()


def end_with_the_parent() -> None:
    """End when the process that has started this one has ended."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    asyncio.run(work(msgspec.json.decode(sys.argv[1], type=Member)))
