"""Reading: looks at all events of a session, to explain or export it; in a thread where that takes long."""

from collections.abc import Sequence
from functools import partial

from treadle.concurrency.collecting import full_collections_put_off
from treadle.concurrency.threads import Threads
from treadle.concurrency.turns import in_turns
from treadle.events import AnyEvent, ChildStarted, MessageAdded, ModelFinished, ToolFinished
from treadle.ports import Journal
from treadle.redaction import Redactor
from treadle.sessions.explain import explain
from treadle.sessions.explanation import Explanation
from treadle.sessions.transfer import Parcel, pack, pack_redacted

__all__ = ["events_of_all", "explained", "exported"]

_threads = Threads()
_MANY_EVENTS = 500
_MANY_CHARS = 200_000
"""Events and characters from which on a session is explained, or redacted, in a thread."""


async def explained(journal: Journal, session_id: str) -> Explanation:
    """Return the explanation of a session, and of those that carried out its calls."""
    with full_collections_put_off():
        return await _explained(journal, session_id)


async def _explained(journal: Journal, session_id: str) -> Explanation:
    events = await journal.read(session_id)
    children = [await _explained(journal, child_id) for child_id in _children_in(events)]
    if not _is_long(events):
        return explain(session_id, events, children)
    explanation: Explanation = await _threads.submit(partial(explain, session_id, events, children))
    return explanation


async def exported(parcel: Parcel, redactor: Redactor | None) -> Sequence[bytes]:
    """Return a parcel as lines of JSON; with a redactor, without the secrets."""
    packed = pack(parcel) if redactor is None else pack_redacted(parcel, redactor)
    if _is_long(parcel.events) or sum(map(len, parcel.blobs.values())) > _MANY_CHARS:
        lines: Sequence[bytes] = await _threads.submit(partial(tuple, packed))
        return lines
    return tuple(await in_turns(packed))


async def events_of_all(journal: Journal, session_id: str) -> list[AnyEvent]:
    """Return the events of a session, and of those that carried out its calls."""
    events = list(await journal.read(session_id))
    for child_id in _children_in(events):
        events += await events_of_all(journal, child_id)
    return events


def _children_in(events: Sequence[AnyEvent]) -> list[str]:
    return list(dict.fromkeys(event.child_id for event in events if isinstance(event, ChildStarted)))


def _is_long(events: Sequence[AnyEvent]) -> bool:
    """Whether looking at every word of these events takes longer than others may wait for their turn."""
    if len(events) > _MANY_EVENTS:
        return True
    chars = sum(len(event.result.content) for event in events if isinstance(event, ToolFinished))
    chars += sum(len(event.message.text) for event in events if isinstance(event, ModelFinished | MessageAdded))
    return chars > _MANY_CHARS
