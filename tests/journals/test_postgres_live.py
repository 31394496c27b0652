"""What PostgreSQL carries from whoever runs a session to whoever follows it, and stores nowhere."""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest

from postgres_server import PostgresServer, connect
from treadle.journals.postgres import PostgresJournal
from treadle.journals.postgres_live import digest_of

pytestmark = pytest.mark.row("W15")

FOLLOWER = """
import asyncio, sys
from treadle.journals.postgres import PostgresJournal

async def main():
    async with PostgresJournal(sys.argv[1]).hear_live("s") as hear:
        await asyncio.Event().wait()

asyncio.run(main())
"""

Hear = Callable[[], list[tuple[int, str]]]


async def tell_all(journal: PostgresJournal, pieces: list[str], *, number: int = 1, told: int = 0) -> int:
    """Tell until a follower knows all of it."""
    async with asyncio.timeout(60):
        while (told := await journal.tell_live("s", number, pieces, told)) < len(pieces):
            await asyncio.sleep(0.05)  # sleep: a follower shows itself in its own time
    return told


async def hear_all(hear: Hear, text: str, *, number: int = 1) -> str:
    """Hear until it is as long as what is told."""
    heard = ""
    async with asyncio.timeout(60):
        while len(heard) < len(text):
            heard += "".join(part for of, part in hear() if of == number)
            await asyncio.sleep(0.02)  # sleep: what is told arrives in its own time
    return heard


async def test_a_text_of_any_length_and_script_is_heard_whole(postgres_url: str) -> None:
    pieces = ["short", "'quoted' \\ %s", "語" * 9_000, "🧵" * 5_000, "x" * 20_000]
    journal = PostgresJournal(postgres_url)
    async with journal.hear_live("s") as hear:
        await tell_all(journal, pieces)
        assert await hear_all(hear, "".join(pieces)) == "".join(pieces)
    await journal.close()


async def test_who_comes_later_hears_it_from_its_beginning_and_nobody_hears_it_twice(postgres_url: str) -> None:
    journal, pieces = PostgresJournal(postgres_url), ["one ", "two "]
    async with journal.hear_live("s") as first:
        told = await tell_all(journal, pieces)
        assert await hear_all(first, "one two ") == "one two "
        async with journal.hear_live("s") as second:
            pieces, heard, heard_later = ["one ", "two "], "", ""
            async with asyncio.timeout(60):
                while not heard_later:
                    pieces.append("more ")
                    told = await journal.tell_live("s", 1, pieces, told)
                    heard += "".join(part for _, part in first())
                    heard_later += "".join(part for _, part in second())
                    await asyncio.sleep(0.05)  # sleep: as above
            whole = "".join(pieces)
            await tell_all(journal, pieces, told=told)
            heard += await hear_all(first, whole[len("one two ") + len(heard) :])
            heard_later += await hear_all(second, whole[len(heard_later) :])
    assert ("one two " + heard, heard_later) == (whole, whole)
    await journal.close()


async def test_a_later_text_takes_the_place_of_an_earlier_one(postgres_url: str) -> None:
    journal = PostgresJournal(postgres_url)
    async with journal.hear_live("s") as hear:
        await tell_all(journal, ["broken off"], number=3)
        assert await hear_all(hear, "broken off", number=3) == "broken off"
        await tell_all(journal, ["again"], number=8)
        assert await hear_all(hear, "again", number=8) == "again"
    await journal.close()


async def test_nothing_is_sent_where_nobody_follows(postgres_url: str) -> None:
    journal = PostgresJournal(postgres_url)
    with connect(postgres_url) as listener:  # it listens to the channel, and does not show that it does
        found = listener.execute("SELECT current_schema()::regnamespace::oid::bigint").fetchone()
        assert found is not None
        listener.execute(f"LISTEN treadle_live_{found[0]}_{digest_of('s')}")  # type: ignore[arg-type]  # a name of ours
        assert await journal.tell_live("s", 1, ["not sent"], 0) == 0
        async with journal.hear_live("s") as hear:
            await tell_all(journal, ["sent"], number=2)
            assert await hear_all(hear, "sent", number=2) == "sent"
        async with asyncio.timeout(60):
            while await journal.tell_live("s", 3, ["the last"], 0):
                await asyncio.sleep(0.05)  # sleep: who followed is forgotten at the next look
        assert await journal.tell_live("s", 4, ["not sent"], 0) == 0
        sent = {note.payload for note in listener.notifies(timeout=0.1)}
    assert {"2 0 sent"} <= sent <= {"2 0 sent", "3 0 the last"}
    await journal.close()


async def test_a_session_of_the_same_name_in_another_schema_is_another_one(postgres: PostgresServer) -> None:
    journal, other = PostgresJournal(postgres.new_url()), PostgresJournal(postgres.new_url())
    async with journal.hear_live("s") as hear, other.hear_live("s") as hear_other:
        await tell_all(journal, ["ours"])
        await tell_all(other, ["theirs"])
        assert await hear_all(hear, "ours") == "ours"
        assert await hear_all(hear_other, "theirs") == "theirs"
        assert (hear(), hear_other()) == ([], [])
    await journal.close()
    await other.close()


async def test_a_follower_that_is_killed_leaves_nothing_behind(postgres_url: str) -> None:
    journal = PostgresJournal(postgres_url)
    follower = subprocess.Popen([sys.executable, "-c", FOLLOWER, postgres_url])
    try:
        told = await tell_all(journal, ["one"])
    finally:
        follower.kill()
        follower.wait()
    async with asyncio.timeout(60):
        while told:
            told = await journal.tell_live("s", 2, ["two"], 0)
            await asyncio.sleep(0.05)  # sleep: the server notices the end of a process in its own time
    await journal.close()


async def test_a_follower_whose_connection_was_cut_hears_the_whole_again(postgres_url: str) -> None:
    journal, pieces = PostgresJournal(postgres_url), ["one "]
    async with journal.hear_live("s") as hear:
        told = await tell_all(journal, pieces)
        assert await hear_all(hear, "one ") == "one "
        with connect(postgres_url) as killer:
            killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = "
                "(SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        heard = ""
        async with asyncio.timeout(60):
            while not heard:
                pieces.append("more ")
                told = await journal.tell_live("s", 1, pieces, told)
                heard += "".join(part for _, part in hear())
                await asyncio.sleep(0.05)  # sleep: as above
        assert ("one " + heard).startswith("one more ")
    await journal.close()
