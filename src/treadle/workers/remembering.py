"""Remembering: a set of texts that all processes of a journal share, for work that is done once for all of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from treadle.canonical import digest
from treadle.fields import checked
from treadle.ports import Journal
from treadle.resolve.journals import SystemClock
from treadle.sessions.counting import SharedCounts

__all__ = ["shared_set"]


class _Known(msgspec.Struct):
    texts: list[str] = []


@checked
@asynccontextmanager
async def shared_set(journal: Journal, name: str) -> AsyncIterator[set[str]]:
    """Hold a set of texts that is kept in the journal, and store what happens to it. Nobody else changes it meanwhile.

    Example:
        async with shared_set(journal, "mails sent") as sent:
            if number not in sent:
                await send(number)
                sent.add(number)

    Args:
        name: Its name in the journal.

    Raises:
        JournalError: The store failed. What was changed is not kept, or nobody knows whether it is.
    """
    kept = SharedCounts(journal, SystemClock(), "known", _Known)
    async with kept.counting(f"known/{digest([name])[:24]}") as (known, _):
        texts = set(known.texts)
        yield texts
        known.texts = sorted(texts)
