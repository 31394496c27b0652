"""The port to what distributes work over workers. The journal decides: a dispatcher only says which session to look at."""

from typing import Protocol

__all__ = ["Delivery", "Dispatcher"]


class Delivery(Protocol):
    """One session to run now."""

    @property
    def session_id(self) -> str:
        """The session."""
        ...

    async def end(self, *, is_done: bool, waits: bool = False) -> None:
        """Say that the worker has let go of the session.

        Args:
            is_done: Whether there was something to do. Where not, the session is offered again after a while only.
            waits: Whether a limit was in the way, which may be free again at any moment: it is offered again soon.
        """
        ...


class Dispatcher(Protocol):
    """Run this session, somewhere, soon; at least once.

    It may deliver a session twice, late, to any worker, and sessions in which there is nothing to do: the lease and the
    events of the session decide what happens. It may forget a session only where the journal says that nothing waits.
    """

    async def send(
        self, session_id: str, *, at: float | None = None, priority: int = 0, tenant: str | None = None
    ) -> None:
        """Ask that a session be run. What waits in the journal is also found without it.

        Args:
            tenant: Whose task begins; None for what continues.
            at: When at the earliest, in seconds since 1970; None for now.
            priority: Sessions with a higher number come first.
        """
        ...

    async def next(self) -> Delivery:
        """Wait for a session to run. Cancelling the wait loses none."""
        ...

    async def close(self) -> None:
        """Let go of what is held. The worker calls it at its end. May be called twice."""
        ...
