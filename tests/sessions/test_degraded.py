"""The store fails in mid-run: what is safe continues in memory and says so; nothing changes the world without a record."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from session_tools import look_tool, pay_tool, payer
from tests.journals.switchable import Switchable

from treadle import Agent, ConfigurationError, Suspended, Tool, ToolContext, allow, open_session
from treadle.errors import JournalError
from treadle.events import AnyEvent, JournalDegraded
from treadle.journals.degrading import DegradingJournal
from treadle.journals.memory import MemoryJournal
from treadle.journals.sqlite import SqliteJournal
from treadle.ports import Journal
from treadle.sessions.session import fold
from treadle.state.session import sums
from treadle.testing import ScriptedModel, call, text
from treadle.tools import JsonObject


class Log:
    """Hears events, and switches a store at the first of a kind."""

    def __init__(self, store: Switchable, *switches: tuple[str, bool]) -> None:
        self.store = store
        self.switches = list(switches)
        self.degraded: list[JournalDegraded] = []

    def __call__(self, event: AnyEvent) -> None:
        if isinstance(event, JournalDegraded):
            self.degraded.append(event)
        if self.switches and event.type == self.switches[0][0]:
            self.store.is_off = self.switches.pop(0)[1]


def wrapped(store: Journal) -> DegradingJournal:
    return DegradingJournal(store, retry_seconds=0)


@pytest.mark.row("Q05")
async def test_a_run_whose_store_is_lost_ends_in_memory_and_says_that_it_is_degraded() -> None:
    store = Switchable()
    log = Log(store, ("model.finished", False), ("tool.started", True))
    model = ScriptedModel([call("look"), call("look"), text("Forty.")])
    async with open_session(wrapped(store), id="s", on_store_failure="degrade") as session:
        result = await payer(model, subscribers=[log]).run("How much?", session=session)

        assert (result.completed, result.text) == (True, "Forty.")
        assert result.degraded
        assert result.report()["degraded"] is True
        assert [(event.is_over, bool(event.message)) for event in log.degraded] == [(False, True)]
        assert len(result.messages) == 6


@pytest.mark.row("Q05")
async def test_when_the_store_is_back_everything_is_in_it() -> None:
    store = Switchable()
    log = Log(store, ("tool.started", True))
    journal = wrapped(store)
    async with open_session(journal, id="s", on_store_failure="degrade") as session:
        degraded = await payer(ScriptedModel([call("look"), text("Forty.")]), subscribers=[log]).run(
            "?", session=session
        )
        store.is_off = False
        again = await payer(ScriptedModel([text("Yes.")]), subscribers=[log]).run("Sure?", session=session)

        assert (degraded.degraded, again.degraded) == (True, False)
        assert [event.is_over for event in log.degraded] == [False, True]
        assert sums(fold("s", await store.read("s"))) == sums(session.state)


@pytest.mark.row("Q05")
async def test_a_call_that_changes_the_world_never_starts_while_that_cannot_be_stored() -> None:
    store, paid = Switchable(), list[tuple[int, str]]()
    log = Log(store, ("tool.started", True))
    model = ScriptedModel([call("look"), [call("look"), call("pay", amount=1)], text("I could not pay.")])
    async with open_session(wrapped(store), id="s", on_store_failure="degrade") as session:
        result = await payer(model, paid, subscribers=[log]).run("Pay", session=session)

        assert paid == []
        assert [(one.name, one.status) for one in result.tool_calls] == [
            ("look", "ok"),
            ("look", "ok"),
            ("pay", "skipped"),
        ]
        assert "journal_unavailable" in model.requests[-1].messages[-1].results[-1].content
        assert result.completed
        store.is_off = False
        paying = ScriptedModel([call("pay", amount=1), text("Paid.")])
        result = await payer(paying, paid).run("Again", session=session)

        assert [amount for amount, _ in paid] == [1]
        assert not result.degraded


@pytest.mark.row("Q05")
async def test_a_store_that_comes_back_in_mid_run_lets_the_call_that_changes_the_world_start() -> None:
    store, paid = Switchable(), list[tuple[int, str]]()
    log = Log(store, ("tool.started", True), ("tool.finished", False))
    model = ScriptedModel([call("look"), call("pay", amount=1), text("Paid.")])
    async with open_session(wrapped(store), id="s", on_store_failure="degrade") as session:
        result = await payer(model, paid, subscribers=[log]).run("Pay", session=session)

    assert [amount for amount, _ in paid] == [1]
    assert result.degraded
    assert [event.is_over for event in log.degraded] == [False, True]
    assert fold("s", await store.read("s")).run_status == "completed"


async def test_a_result_of_a_call_that_had_started_is_kept_in_memory_until_it_can_be_stored() -> None:
    store, paid = Switchable(), list[tuple[int, str]]()
    log = Log(store, ("tool.started", True))
    model = ScriptedModel([call("pay", amount=1), text("Paid.")])
    journal = wrapped(store)
    async with open_session(journal, id="s", on_store_failure="degrade") as session:
        await payer(model, paid, subscribers=[log]).run("Pay", session=session)
        store.is_off = False
        await journal.flush()

    assert [amount for amount, _ in paid] == [1]
    assert [one.status for one in fold("s", await store.read("s")).call_records()] == ["ok"]


@pytest.mark.row("Q05")
async def test_with_stop_a_run_ends_with_the_fault() -> None:
    store = Switchable()
    log = Log(store, ("tool.started", True))
    agent = payer(ScriptedModel([call("look"), text("never")]), subscribers=[log])

    with pytest.raises(JournalError, match="disk is full"):
        async with open_session(store, id="s", on_store_failure="stop") as session:
            await agent.run("?", session=session)


async def test_a_session_is_not_opened_in_memory_where_its_store_fails_from_the_start() -> None:
    store = Switchable()
    store.is_off = True

    with pytest.raises(JournalError, match="disk is full"):
        async with open_session(wrapped(store), id="s", on_store_failure="degrade"):
            pass
    with pytest.raises(ConfigurationError, match="on_store_failure"):
        async with open_session(MemoryJournal(), on_store_failure="ignore"):  # type: ignore[arg-type]
            pass


@pytest.mark.row("Q05")
async def test_a_database_that_another_program_locks_for_good_does_not_kill_the_session(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    store = SqliteJournal(path, busy_seconds=0.05)
    journal = DegradingJournal(store, retry_seconds=0)
    blocker: list[sqlite3.Connection] = []

    def block(event: AnyEvent) -> None:
        if event.type == "tool.finished" and not blocker:
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
            blocker.append(connection)

    paid: list[tuple[int, str]] = []
    model = ScriptedModel([call("look"), call("pay", amount=1), text("Not now.")])
    agent = Agent(model, tools=[look_tool(), pay_tool(paid)], subscribers=[block])
    async with open_session(journal, id="s", on_store_failure="degrade") as session:
        result = await agent.run("Pay", session=session)
        blocker[0].close()
        await journal.flush()
        stored = fold("s", await store.read("s"))

        assert (result.completed, result.degraded, paid) == (True, True, [])
        assert sums(stored) == sums(session.state)
    await journal.close()


@pytest.mark.row("T04")
@pytest.mark.parametrize(("effect", "kind"), [("unsafe", "deny"), ("idempotent", "deny"), ("read", "allow")])
async def test_an_action_of_a_tools_own_is_denied_where_its_decision_cannot_be_stored(effect: Any, kind: str) -> None:
    store = Switchable()
    heard: list[tuple[str, str]] = []

    async def run(arguments: JsonObject, ctx: ToolContext) -> str:
        store.is_off = True  # after the start of this call has been stored
        decision = await ctx.decide("wipe", {}, effect=effect)
        store.is_off = False
        heard.append((decision.kind, decision.rule))
        return "done"

    act = Tool(name="act", description="Act.", parameters={"type": "object"}, effect="unsafe", run=run)
    agent = Agent(ScriptedModel([call("act"), text("Done.")]), tools=[act], policy=allow("act", "wipe"))
    async with open_session(wrapped(store), id="s") as session:
        assert (await agent.run("go", session=session)).completed

    assert [decided for decided, _ in heard] == [kind]
    assert (heard[0][1] == "journal unavailable") is (kind == "deny")


@pytest.mark.row("Q05", "R05")
async def test_a_suspended_call_that_acts_does_not_continue_when_that_cannot_be_stored() -> None:
    sent: list[Any] = []

    async def form(arguments: JsonObject, ctx: ToolContext) -> str:
        if not ctx.inputs:
            raise Suspended("a number")
        sent.append(ctx.inputs[0])
        return "sent"

    store = Switchable()
    log = Log(store, ("tool.input", True))
    tool = Tool(name="form", description="Send.", parameters={"type": "object"}, effect="unsafe", run=form)

    def agent(*turns: Any, **options: Any) -> Agent:
        return Agent(ScriptedModel(turns), tools=[tool], policy=allow("form"), **options)

    async with open_session(wrapped(store), id="s", on_store_failure="degrade") as session:
        await agent(call("form", id="a")).run("Send it.", session=session)
        await session.input("a", 7)
        lost = await agent(text("Later."), subscribers=[log]).resume(session)
        assert lost.degraded
        assert sent == []
    store.is_off = False

    async with open_session(store, id="s") as session:  # as another process finds it
        done = await agent(text("Sent.")).resume(session)
        assert (done.text, sent) == ("Sent.", [7])
