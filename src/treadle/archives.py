"""Archives: bring exported sessions into a journal, and let old ones go. Looks into no session's run."""

from collections.abc import Iterable

from treadle.errors import SessionHeld
from treadle.ports import Journal
from treadle.resolve import open_session
from treadle.transfer import unpack

__all__ = ["expire_sessions", "import_session"]


async def import_session(
    journal: Journal,
    lines: Iterable[bytes | str],
    *,
    id: str | None = None,  # noqa: A002 - the face's word (design section 6)
) -> str:
    """Bring a session that `session.export()` wrote into this journal, whole or not at all. Return its id.

    Whoever wrote the lines is trusted like the journal itself: consent that they hold counts.

    Example:
        await import_session(journal, Path("invoice-7.jsonl").read_bytes().splitlines())

    Args:
        id: Another id for it; its idempotency keys are others then, so no call of it may be open.

    Raises:
        JournalError: The lines are no whole export; nothing was imported.
        SessionExists: There is a session by that id, be it deleted.
        NoSuchPoint: It is to get another id, and a call is open.
    """
    parcel = unpack(lines)
    if id is not None and id != parcel.session_id:
        parcel = parcel.named(id)
    for content in parcel.blobs.values():  # first: bytes that nobody names do no harm
        await journal.put_blob(content)
    await journal.adopt(parcel.session_id, parcel.events, state=parcel.state().phase, inbox=parcel.inbox)
    return parcel.session_id


async def expire_sessions(journal: Journal, *, before: float, purge: bool = False) -> tuple[str, ...]:
    """Delete the sessions that have not changed since `before` (seconds since 1970); running ones stay.

    Args:
        purge: Also remove their events, and those of sessions that were deleted before.

    Returns:
        The ids of the sessions that are gone.
    """
    gone = []
    for info in await journal.sessions():
        is_stone = info.status == "deleted" and (info.head <= 1 or not purge)
        if info.updated_at >= before or is_stone:
            continue
        async with open_session(journal, id=info.id) as session:
            try:
                await session.delete(purge=purge)
            except SessionHeld:
                continue
        gone.append(info.id)
    return tuple(gone)
