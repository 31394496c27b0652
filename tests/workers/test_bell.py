"""The bell of a journal in PostgreSQL: whoever waits for work hears that there is some."""

import asyncio

import pytest

from postgres_server import PostgresServer
from treadle import open_journal, open_session, submit
from treadle.ports import HasBell

pytestmark = pytest.mark.row("N19")


async def test_a_task_and_a_message_ring_in_another_connection_and_so_does_the_end_of_an_outage(
    postgres: PostgresServer, postgres_url: str
) -> None:
    rang = asyncio.Event()
    async with open_journal(postgres_url) as journal:
        await journal.sessions()  # its tables are made
        assert isinstance(journal, HasBell)
        async with journal.hear_bell(rang.set):
            await heard(rang)  # what was missed before it listened
            session_id = await submit(postgres_url, "clerk", "Do it")
            await heard(rang)
            async with open_session(postgres_url, id=session_id) as session:
                await session.steer("Do it soon")
            await heard(rang)
            postgres.crash()
            postgres.restart()
            await heard(rang)


async def heard(rang: asyncio.Event) -> None:
    await asyncio.wait_for(rang.wait(), 60)
    rang.clear()
