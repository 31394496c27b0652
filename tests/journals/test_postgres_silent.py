"""A PostgreSQL server that takes bytes and answers nothing: nothing waits for it without a limit. With a real server."""

import asyncio
import os
from contextlib import suppress
from typing import Literal

import pytest

pytest.importorskip("psycopg", reason="a journal in PostgreSQL needs the extra `postgres`")

from journal_events import notes
from journal_places import opened
from proxies import SilentProxy

from postgres_server import PostgresServer
from treadle import Agent, open_session, tool
from treadle.budgets import Budget
from treadle.engine.spec import RunResult
from treadle.errors import JournalError, TreadleError
from treadle.journals.postgres import PostgresJournal, open_postgres
from treadle.ports import Journal
from treadle.testing import ScriptedModel, call, text
from treadle.tools import Tool

SHORT = 0.5
ENDLESS = 1000.0
"""A limit that no test outlives: what ends before it was not ended by it."""

Mode = Literal["stop", "degrade"]


STRIDES = {"cancel": 41, "lease": 83, "limits": 83}
"""How many messages of a client lie between two places where the server goes silent."""

SIDE_BY_SIDE = 4
"""Lives at once: most of a life is waiting for a limit to pass."""

STRIDE = int(os.environ.get("TREADLE_STRIDE", "0"))
"""The same for all, where it is set: `make soak` goes through every message."""


class Payment:
    """An unsafe tool that waits in its effect until it is stopped, or let go."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()
        self.underway = 0
        self.was_stopped = False

    @property
    def tool(self) -> Tool:
        @tool(effect="unsafe", permission="allow")
        async def pay() -> str:
            """Pay."""
            self.underway += 1
            self.started.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.was_stopped = True
                raise
            finally:
                self.underway -= 1
            return "paid"

        return pay


async def run(journal: Journal, payment: Payment, budget: Budget | None = None, mode: Mode = "stop") -> RunResult:
    agent = Agent(ScriptedModel([call("pay"), text("Paid.")]), tools=[payment.tool])
    async with open_session(journal, id="s", on_store_failure=mode) as session:
        return await agent.run("Pay the invoice", session=session, budget=budget)


@pytest.mark.row("ST01")
@pytest.mark.row("SF9")
@pytest.mark.parametrize(
    ("ending", "mode"),
    [("lease", "stop"), ("lease", "degrade"), ("cancel", "stop"), ("cancel", "degrade"), ("wall time", "degrade")],
)
async def test_an_unsafe_tool_is_stopped_by_its_lease_a_cancel_or_the_wall_time_though_the_server_is_silent(
    server: PostgresServer, url: str, ending: str, mode: Mode
):
    payment, result = Payment(), None
    lease_seconds = SHORT * 2 if ending == "lease" else ENDLESS
    budget = Budget(max_wall_time_seconds=SHORT * 2) if ending == "wall time" else None
    async with (
        SilentProxy(server.folder) as proxy,
        opened(proxy.url(url), lease_seconds=lease_seconds, busy_seconds=ENDLESS, patience_seconds=ENDLESS) as journal,
    ):
        running = asyncio.create_task(run(journal, payment, budget, mode))
        await payment.started.wait()
        proxy.silent.set()
        if ending == "cancel":
            running.cancel()
        with suppress(TreadleError, asyncio.CancelledError):
            result = await running
    assert (payment.was_stopped, payment.underway) == (True, 0)
    if ending == "lease" and result is not None:
        assert "was not renewed" in result.message
        assert "another process" not in result.message.lower()
    if ending == "wall time":
        assert result is not None
        assert (result.reason, result.degraded) == ("budget_exceeded", True)


@pytest.mark.row("ST01")
async def test_a_lease_is_taken_and_given_back_within_its_length_though_the_server_is_silent(
    server: PostgresServer, url: str
):
    async with (
        SilentProxy(server.folder) as proxy,
        opened(proxy.url(url), lease_seconds=SHORT * 2, busy_seconds=ENDLESS, patience_seconds=ENDLESS) as journal,
    ):
        await journal.create("s")
        lease = await journal.acquire("s", on_lost=lambda: None, on_message=lambda: None)
        proxy.silent.set()
        await lease.release()
        with pytest.raises(JournalError, match="not answer"):
            await journal.acquire("s", on_lost=lambda: None, on_message=lambda: None)


@pytest.mark.row("SF9")
@pytest.mark.parametrize("ending", ["cancel", "lease", "limits"])
async def test_a_run_ends_when_the_server_goes_silent_at_any_statement(server: PostgresServer, url: str, ending: str):
    """The server goes silent at each message of a client in turn, until a whole run is done without one."""
    passes, is_whole = 0, False
    limits = {
        "cancel": {"lease_seconds": ENDLESS, "busy_seconds": ENDLESS, "patience_seconds": ENDLESS},
        "lease": {"lease_seconds": SHORT, "busy_seconds": ENDLESS, "patience_seconds": ENDLESS},
        "limits": {"lease_seconds": ENDLESS, "busy_seconds": SHORT / 4, "patience_seconds": SHORT / 4},
    }[ending]
    stride = STRIDE or STRIDES[ending]
    while not is_whole and passes < 1_000:
        places = range(passes, passes + SIDE_BY_SIDE * stride, stride)
        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(one_life(server, place, ending, limits)) for place in places]
        is_whole = any(life.result() for life in lives)
        passes = places[-1] + stride
    assert is_whole
    assert passes > 100


async def one_life(server: PostgresServer, passes: int, ending: str, limits: dict[str, float]) -> bool:
    target = server.new_url()
    async with opened(target):
        pass
    return await live(server, target, passes, ending, limits)


async def live(server: PostgresServer, url: str, passes: int, ending: str, limits: dict[str, float]) -> bool:
    """Run through a proxy that goes silent after so many messages. Return whether the run was whole without that."""
    payment = Payment()
    payment.go_on.set()
    async with SilentProxy(server.folder) as proxy:
        journal = PostgresJournal(proxy.url(url) + "&connect_timeout=2", **limits)
        await create_patiently(journal)
        proxy.seen, proxy.passes = 0, passes
        running = asyncio.create_task(run_held(journal, payment))
        silent = asyncio.create_task(proxy.silent.wait())
        await asyncio.wait({running, silent}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and ending == "cancel":
            running.cancel()
        is_whole = False
        with suppress(TreadleError, asyncio.CancelledError):
            is_whole = (await running).completed
        silent.cancel()
        assert payment.underway == 0
        was_silent = proxy.silent.is_set()
        with suppress(JournalError):
            await journal.close()
    return is_whole and not was_silent


async def create_patiently(journal: Journal) -> None:
    """Create the session before the run. A busy machine may take longer for it than the store's short limits."""
    for _ in range(100):
        with suppress(JournalError):
            return await journal.create("s")
    raise AssertionError("The session cannot be created.")


async def run_held(journal: Journal, payment: Payment) -> RunResult:
    agent = Agent(ScriptedModel([call("pay"), text("Paid.")]), tools=[payment.tool])
    from treadle.resolve.journals import SystemClock, SystemRandomness
    from treadle.sessions.session import Session
    from treadle.state import SessionState

    session = Session(state=SessionState("s"), journal=journal, clock=SystemClock(), randomness=SystemRandomness())
    return await agent.run("Pay the invoice", session=session)


@pytest.mark.row("ST08")
async def test_opening_reading_and_closing_have_a_limit(
    server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
):
    async with SilentProxy(server.folder) as proxy:
        journal = await open_postgres(proxy.url(url) + "&connect_timeout=2", busy_seconds=SHORT, patience_seconds=SHORT)
        await journal.create("s")
        await journal.append("s", notes(1, 1), state="running", durable=True)
        proxy.silent.set()
        with pytest.raises(JournalError, match="cannot be reached"):  # a connection of its own
            await journal.read("s")
        with pytest.raises(JournalError, match="did not answer"):
            await journal.append("s", notes(2, 2), state="running", durable=True)
        await journal.close()
        with pytest.raises(JournalError, match="cannot be reached"):
            await open_postgres(proxy.url(url) + "&connect_timeout=2", busy_seconds=SHORT, patience_seconds=0)
    assert [record.getMessage() for record in caplog.records if record.name == "psycopg"] == []
