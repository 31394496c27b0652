"""Views: what permissions ask of a session on every call. A view says it at once; of any other session, its state is asked."""

from treadle.events import RulesGranted
from treadle.ports import SessionView
from treadle.tools import JsonObject

__all__ = ["facts_in", "granted_in"]


def facts_in(session: SessionView) -> JsonObject:
    """Return what tools have remembered in the session. A view's state would be copied whole for it."""
    known: JsonObject | None = getattr(session, "facts", None)
    return session.state.facts.values if known is None else known


def granted_in(session: SessionView) -> tuple[RulesGranted, ...]:
    """Return what a person has allowed for more than one call."""
    known: tuple[RulesGranted, ...] | None = getattr(session, "granted", None)
    return session.state.granted if known is None else known
