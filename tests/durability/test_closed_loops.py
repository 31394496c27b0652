"""An event loop that is closed with a run pending gives its session back. With real loops."""

import asyncio
from pathlib import Path

import pytest

from treadle.errors import SessionHeld
from treadle.ports import Journal
from treadle.resolve import open_journal


def nothing() -> None:
    """Notice nothing."""


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_session_whose_event_loop_was_closed_is_given_back(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
):
    journal = asyncio.run(
        _opened(str(tmp_path / "agent.db") if store == "sqlite" else request.getfixturevalue("postgres_url"))
    )

    async def hold() -> None:
        await journal.create("s")
        await journal.acquire("s", on_lost=nothing, on_message=nothing)

    async def take() -> None:
        while True:
            try:
                lease = await journal.acquire("s", on_lost=nothing, on_message=nothing)
            except SessionHeld:
                await asyncio.sleep(0)
                continue
            await lease.release()
            await journal.close()
            return

    asyncio.run(hold())  # the loop is closed, and nobody has released the lease
    asyncio.run(take())


async def _opened(place: str) -> Journal:
    return await open_journal(place)
