"""Views: what permissions ask of a session on every call. A view says it at once; of any other session, its state is asked."""

from collections.abc import Mapping

from treadle.canonical import copied
from treadle.events import RulesGranted
from treadle.ports import SessionView
from treadle.tools import CheckedCall, JsonObject, Subject, Tool

__all__ = ["facts_in", "granted_in", "resolved", "subjects_of"]


def subjects_of(call: CheckedCall) -> Mapping[str, Subject] | None:
    """Return what the arguments of a call name: as it was checked, or of a call that was made by hand, as its tool says now.

    None where its tool does not say, or cannot. A value that is not a Subject says nothing.
    """
    return resolved(call.tool, call.arguments) if call.subjects is None else call.subjects


def resolved(tool: Tool, arguments: JsonObject) -> Mapping[str, Subject] | None:
    """Return what the arguments of a call name now; None where its tool does not say, or cannot."""
    if tool.subjects is None:
        return None
    try:
        return dict(tool.subjects(copied(arguments)))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the author's function: one that raises, SystemExit too, has resolved nothing
        return None


def facts_in(session: SessionView) -> JsonObject:
    """Return what tools have remembered in the session. A view's state would be copied whole for it."""
    known: JsonObject | None = getattr(session, "facts", None)
    return session.state.facts.values if known is None else known


def granted_in(session: SessionView) -> tuple[RulesGranted, ...]:
    """Return what a person has allowed for more than one call."""
    known: tuple[RulesGranted, ...] | None = getattr(session, "granted", None)
    return session.state.granted if known is None else known
