"""Usage: what the sessions of a journal have used, in groups. Reads events; knows no store."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import msgspec

from treadle.budgets import Deadline, epoch_seconds
from treadle.events import (
    AnyEvent,
    DecisionRejected,
    ModelFailed,
    ModelFinished,
    ModelStarted,
    RunResumed,
    RunStarted,
    SessionChanged,
    SessionForked,
    SessionSpawned,
)
from treadle.messages import Usage
from treadle.ports import Journal, SessionFilter, UsageRow
from treadle.tools import JsonObject

__all__ = ["usage_of"]

_FORMATS = {"day": "%Y-%m-%d", "month": "%Y-%m"}


async def usage_of(journal: Journal, by: Sequence[str], since: Deadline | None) -> Sequence[UsageRow]:
    """Return what all sessions have used, as `Journal.usage` says."""
    after = 0.0 if since is None else epoch_seconds(since, name="time `since`")
    rows: dict[tuple[str, ...], UsageRow] = {}
    for info in await journal.sessions(SessionFilter(since=after)):
        for values, usage, cost in await _requests(journal, info.id, by, after):
            row = rows.get(values) or UsageRow(group=dict(zip(by, values, strict=True)))
            rows[values] = msgspec.structs.replace(
                row,
                requests=row.requests + 1,
                usage=row.usage + usage,
                cost=row.cost + Decimal(cost or 0),
                unpriced=row.unpriced + (cost is None),
            )
    return tuple(rows[values] for values in sorted(rows))


async def _requests(
    journal: Journal, session_id: str, by: Sequence[str], after: float
) -> Sequence[tuple[tuple[str, ...], Usage, str | None]]:
    """Return the values of the groups, the tokens and the cost of each request of a session."""
    found: list[tuple[tuple[str, ...], Usage, str | None]] = []
    facts: dict[str, str] = {"session": session_id}
    metadata: JsonObject = {}
    for event in await journal.read(session_id):
        match event:
            case SessionForked():
                found.clear()  # the events before were copied, and are counted where they happened
            case SessionSpawned(root_id=root_id) if root_id:
                metadata = _metadata(await journal.read(root_id))  # those of the session that a person runs
            case SessionChanged(metadata=dict(changed)):
                metadata = metadata | changed
            case RunStarted() | RunResumed():
                facts["agent"] = event.agent or facts.get("agent", "")
            case ModelStarted():
                facts["model"] = event.model
            case ModelFinished() | ModelFailed() | DecisionRejected() if event.usage is not None and event.at >= after:
                found.append((_values(by, facts, metadata, event.at), event.usage, event.cost))
    return found


def _metadata(events: Sequence[AnyEvent]) -> JsonObject:
    found: JsonObject = {}
    for event in events:
        if isinstance(event, SessionChanged) and event.metadata is not None:
            found |= event.metadata
    return found


def _values(by: Sequence[str], facts: dict[str, str], metadata: JsonObject, at: float) -> tuple[str, ...]:
    known = facts | {
        word: datetime.fromtimestamp(at, UTC).strftime(form) for word, form in _FORMATS.items() if word in by
    }
    return tuple(known[word] if word in known else str(metadata.get(word) or "") for word in by)
