"""The list of sessions: which of them a filter names, in values and as conditions of a statement. Asks no store."""

from collections.abc import Callable, Iterable
from typing import Any

from treadle.errors import ConfigurationError
from treadle.fields import explained
from treadle.ports import SessionFilter, SessionInfo
from treadle.ports.journals import WORKER

__all__ = ["WITH_MESSAGES", "check_filter", "conditions", "listed"]

WITH_MESSAGES = (
    "SELECT DISTINCT session_id FROM inbox JOIN session ON session.id = session_id "
    "WHERE consumed_seq IS NULL AND session.state = 'paused' AND kind NOT IN ('message', 'compact')"
)
"""Which paused sessions have a message that their run would take in: a message to the model waits for the results of the open calls."""


def check_filter(where: SessionFilter) -> None:
    """Refuse a filter that no list can answer.

    Raises:
        ConfigurationError: Its cursor is of no list, or its limit is below 0.
    """
    if where.after:
        position(where.after)
    if where.limit is not None and where.limit < 0:
        raise ConfigurationError(
            f"The limit of a list of sessions must be 0 or more, or None for all; got {where.limit}."
        )


@explained
def listed(infos: Iterable[SessionInfo], where: SessionFilter) -> tuple[SessionInfo, ...]:
    """Return the sessions that a filter names, the last changed first, of all in the order in which they were made."""
    check_filter(where)
    numbered = [(info.updated_at, number, info) for number, info in enumerate(infos)]
    if where.after:
        at, session_id = position(where.after)
        seat = next((number for _, number, info in numbered if info.id == session_id), -1)
        numbered = [row for row in numbered if row[:2] < (at, seat)]
    found = [row for row in numbered if where.names(row[2])]
    return tuple(info for _, _, info in sorted(found, key=lambda row: row[:2], reverse=True)[: where.limit])


def conditions(
    where: SessionFilter, mark: Callable[[str], str], holds_text: str, *, status: str = "status"
) -> tuple[str, dict[str, Any]]:  # Any: what a statement takes
    """Return the end of a statement over the table of sessions, from `WHERE` on, and its values.

    Args:
        mark: Writes the place of a named value, such as `:limit`.
        holds_text: The condition on `{text}`, in lower case.
        status: The status, or what stands for it.
    """
    values: dict[str, Any] = {}

    def place(name: str, value: object) -> str:
        values[name] = value
        return mark(name)

    def one_of(column: str, name: str, wanted: Iterable[str]) -> list[str]:
        places = [place(f"{name}{number}", value) for number, value in enumerate(wanted)]
        return [f"{column} IN ({', '.join(places)})"] if places else []

    kinds = one_of("state", "phase", where.phases) + one_of(status, "status", where.statuses)
    asked = [f"({' OR '.join(kinds)})"] if kinds else []
    if WORKER not in where.phases:
        asked.append(f"state <> '{WORKER}'")
    if where.without_deleted:
        asked.append(f"{status} <> 'deleted'")
    if where.parent_id is not None:
        asked.append(f"parent_id = {place('parent', where.parent_id)}")
    if where.tenant is not None:
        asked.append(f"tenant = {place('tenant', where.tenant)}")
    if where.since is not None:
        asked.append(f"updated_at >= {place('since', where.since)}")
    if where.text:
        asked.append(holds_text.format(text=place("text", where.text.lower())))
    if where.after:
        at, session_id = position(where.after)
        seat = f"coalesce((SELECT seat FROM session WHERE id = {place('last', session_id)}), 0)"  # noqa: S608 - a place
        asked.append(f"(updated_at, seat) < ({place('at', at)}, {seat})")
    limit = "" if where.limit is None else f" LIMIT {place('limit', where.limit)}"
    filtered = f"WHERE {' AND '.join(asked)} " if asked else ""
    return f"{filtered}ORDER BY updated_at DESC, seat DESC{limit}", values


def position(cursor: str) -> tuple[float, str]:
    """Return time and id of the line after which a list continues.

    Raises:
        ConfigurationError: No list has given this cursor.
    """
    at, _, session_id = cursor.partition(" ")
    try:
        return float(at), session_id
    except ValueError:
        raise ConfigurationError(
            f"{cursor!r:.80} is not a cursor of a list of sessions. Pass the `cursor` of the last listed session."
        ) from None
