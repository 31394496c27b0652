"""Make the file of one schema version: `python make_corpus.py corpus/v2.sqlite`. Run once a version, then never again."""

import asyncio
import sys

from journal_events import kept_session, one_of_each, whole_session

from treadle.journals.sqlite import open_sqlite
from treadle.state import LeftMessage


async def make(path: str) -> None:
    journal = await open_sqlite(path)
    await journal.create("weather")
    await journal.append("weather", whole_session("weather"), state="completed", durable=True)
    await journal.create("kinds")
    await journal.append("kinds", one_of_each(), state="completed", durable=True)
    await journal.adopt("kept", kept_session(), state="active")
    for name in ("m1", "m2"):
        await journal.put("weather", LeftMessage(id=name, text=name))
    await journal.consume("weather", ["m1"], 2)
    await journal.put_blob(b"kept bytes")
    await journal.close()


if __name__ == "__main__":
    asyncio.run(make(sys.argv[1]))
