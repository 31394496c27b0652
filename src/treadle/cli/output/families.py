"""Families: which agent below a run an event belongs to, by the events alone. Shows nothing."""

from treadle.events import AnyEvent, ChildStarted

__all__ = ["Family"]


class Family:
    """The agents that carry out calls of one run, as far as its events have named them."""

    def __init__(self) -> None:
        self._paths: dict[str, tuple[str, ...]] = {}
        self._calls: dict[str, str] = {}

    def take(self, event: AnyEvent) -> None:
        """Take in an event of the run, or of an agent below it."""
        if isinstance(event, ChildStarted):
            above = event.session_id
            self._paths[event.child_id] = (*self._paths.get(above, ()), event.agent or event.tool)
            self._calls[event.child_id] = self._calls.get(above) or event.call_id or ""

    def path(self, event: AnyEvent) -> tuple[str, ...]:
        """Return the names of the agents from the run down to the one whose event it is; empty for the run's own."""
        return self._paths.get(event.session_id, ())

    def call(self, event: AnyEvent) -> str:
        """Return the id of the run's call that the event belongs to; empty for the run's own."""
        return self._calls.get(event.session_id, "")
