"""The bell of a journal in PostgreSQL: whoever waits for work hears that there is some."""

import asyncio

import pytest

from postgres_server import running_server
from treadle import open_journal, open_session, submit
from treadle.ports import HasBell

pytestmark = pytest.mark.row("N19")


async def test_a_task_and_a_message_ring_in_another_connection(postgres_url: str) -> None:
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


async def test_a_bell_rings_again_after_its_database_was_away() -> None:
    rang = asyncio.Event()
    with running_server() as server:
        async with open_journal(server.new_url()) as journal:
            await journal.sessions()
            assert isinstance(journal, HasBell)
            async with journal.hear_bell(rang.set):
                await heard(rang)
                server.crash()
                server.restart()
                await heard(rang)


async def heard(rang: asyncio.Event) -> None:
    await asyncio.wait_for(rang.wait(), 60)
    rang.clear()
