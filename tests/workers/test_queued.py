"""Workers whose sessions are spread by pgqueuer on the PostgreSQL of the journal."""

import asyncio
import logging
from collections import Counter
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import psycopg
import pytest
from tests.workers.test_workers import until, working

from pipeline_tools import paying
from treadle import Agent, ConfigurationError, open_journal, open_session, tool
from treadle.errors import JournalError
from treadle.ports import Dispatcher
from treadle.testing import ScriptedModel, call, text
from treadle.workers import PgQueuerDispatcher, Worker, result, submit

pytestmark = pytest.mark.row("W12")


def queued(url: str, make: Any, **options: Any) -> AbstractAsyncContextManager[Worker]:
    return working(url, {"clerk": make}, dispatcher=PgQueuerDispatcher(url), **options)


def make() -> Agent:
    return Agent(ScriptedModel([lambda _: text("done")]))


async def taken(dispatcher: Dispatcher) -> str:
    async with asyncio.timeout(60):
        delivery = await dispatcher.next()
    await delivery.end(is_done=True)
    return delivery.session_id


async def test_workers_share_the_tasks_of_a_queue_and_each_is_carried_out_once(postgres_url: str) -> None:
    done: Counter[str] = Counter()
    async with (
        queued(postgres_url, paying(done), name="one", concurrency=3),
        queued(postgres_url, paying(done), name="two", concurrency=3),
    ):
        ids = [await submit(postgres_url, "clerk", f"invoice {n}", tenant=f"t{n % 3}") for n in range(12)]
        answers = [await result(postgres_url, session_id, timeout=60) for session_id in ids]
    assert {answer.status for answer in answers} == {"completed"}
    assert done == Counter({f"invoice {n}": 1 for n in range(12)})


async def test_an_answer_and_a_second_one_wake_the_session_through_the_queue(postgres_url: str) -> None:
    @tool(effect="unsafe", permission="ask")
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    def asking() -> Agent:
        model = ScriptedModel([call("pay", amount=1), call("pay", amount=2), text("paid")], follows_history=True)
        return Agent(model, tools=[pay])

    session_id = await submit(postgres_url, "clerk", "Pay")
    async with queued(postgres_url, asking), open_journal(postgres_url) as journal:
        for _ in range(2):
            await until(journal.approvals)
            asked = await journal.approvals()
            async with open_session(journal, id=session_id) as session:
                await session.answer(asked[0].id, "allow")

            async def is_taken_in(answered: str = asked[0].id) -> bool:
                return answered not in {one.id for one in await journal.approvals()}

            await until(is_taken_in)
        assert (await result(journal, session_id, timeout=60)).completed


async def test_what_a_dead_worker_took_is_delivered_to_another(postgres_url: str) -> None:
    dead, heir = (
        PgQueuerDispatcher(postgres_url, stale_seconds=0.5),
        PgQueuerDispatcher(postgres_url, stale_seconds=0.5),
    )
    try:
        session_id = await submit(postgres_url, "clerk", "Do it")
        await dead.send(session_id, tenant="")
        async with asyncio.timeout(60):
            assert (await dead.next()).session_id == session_id
        await dead.close()  # it gives no sign of life any more, and says of nothing that it has ended
        assert await taken(heir) == session_id
    finally:
        await heir.close()


async def test_what_could_not_be_run_is_delivered_again_and_what_was_done_is_not(postgres_url: str) -> None:
    dispatcher = PgQueuerDispatcher(postgres_url)
    try:
        await dispatcher.send("one", tenant="a")
        await dispatcher.send("one", tenant="a")
        async with asyncio.timeout(60):
            delivery = await dispatcher.next()
            await delivery.end(is_done=False)
            again = await dispatcher.next()
        assert (delivery.session_id, again.session_id) == ("one", "one")
        await again.end(is_done=True)
        await dispatcher.send("two", tenant="a")
        assert await taken(dispatcher) == "two"
    finally:
        await dispatcher.close()


async def test_a_tenant_with_much_work_does_not_delay_another_and_what_continues_comes_first(postgres_url: str) -> None:
    dispatcher = PgQueuerDispatcher(postgres_url, tenants=["many", "one"])
    try:
        for n in range(20):
            await dispatcher.send(f"many {n}", priority=n, tenant="many")
        await dispatcher.send("else", tenant="not mine")
        await dispatcher.send("one", tenant="one")
        await dispatcher.send("continues")
        got = [await taken(dispatcher) for _ in range(5)]
    finally:
        await dispatcher.close()
    assert got[0] == "continues"
    assert sorted(got[1:3]) == ["many 19", "one"]
    assert got[3:] == ["many 18", "many 17"]


async def test_a_cancelled_wait_loses_no_session(postgres_url: str) -> None:
    dispatcher = PgQueuerDispatcher(postgres_url)
    try:
        for n in range(5):
            await dispatcher.send(f"s{n}")
        got = set()
        async with asyncio.timeout(60):
            while len(got) < 5:
                waiting = asyncio.create_task(dispatcher.next())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                delivery = await dispatcher.next()
                got.add(delivery.session_id)
                await delivery.end(is_done=True)
    finally:
        await dispatcher.close()


async def test_a_lost_connection_is_opened_anew_and_nothing_is_lost(postgres_url: str) -> None:
    def cut() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
            )

    async def done(task: str, *, is_cut: bool) -> bool:
        session_id = await submit(postgres_url, "clerk", task)
        if is_cut:
            await asyncio.to_thread(cut)
        while True:
            with suppress(JournalError):  # the one who waits was cut off too, and asks again
                return (await result(postgres_url, session_id, timeout=60)).completed

    async with queued(postgres_url, make):
        assert [await done(f"Do {n}", is_cut=n > 0) for n in range(4)] == [True] * 4


def test_what_is_no_database_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match="journal in PostgreSQL"):
        PgQueuerDispatcher("agent.db")
    with pytest.raises(ConfigurationError, match="above 0"):
        PgQueuerDispatcher("postgresql://x/y", stale_seconds=0)


@pytest.mark.row("N19")
async def test_while_the_database_is_away_all_who_ask_its_queue_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    asked = asyncio.Semaphore(0)

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.release()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = f"postgresql://x@127.0.0.1:{server.sockets[0].getsockname()[1]}/y"
        dispatchers = [PgQueuerDispatcher(url) for _ in range(2)]
        asking = [asyncio.create_task(one.next()) for one in dispatchers]
        async with asyncio.timeout(60):
            for _ in range(20):
                await asked.acquire()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for one in dispatchers:
            await one.close()

    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("The queue cannot be asked what is to be done: ")
