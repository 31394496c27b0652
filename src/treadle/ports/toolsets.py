"""The port to a toolset: tools that come from elsewhere, such as a server, and that live as long as a run."""

import inspect
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeGuard

import msgspec

from treadle.fields import Documented
from treadle.ports.policies import SessionView
from treadle.tools import Tool

__all__ = ["OpenToolset", "Toolset", "ToolsetContext", "is_toolset"]


class ToolsetContext(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """What a toolset may know of the run that opens it."""

    session: SessionView
    """The session of the run, read only."""
    deps: Any = None  # Any: the application's own object
    """What the application gave to the run: `run(deps=...)`."""


class OpenToolset(Protocol):
    """A toolset that one run has opened."""

    def tools(self, session: SessionView) -> "Sequence[Tool] | Awaitable[Sequence[Tool]]":
        """Return the tools of the next request. Called before each request, so the list may change between steps.

        Returning the same Tool objects costs nothing. An exception makes these tools unavailable for that request; the
        run continues, and asks again before the next one. A toolset that cannot offer some of its tools may have an
        attribute `left_out`, a mapping from their names to the reasons: the log and the event `toolset.listed` show it.
        """
        ...


class Toolset(Protocol):
    """Tools that are opened before a run's first request and closed at its end.

    Example:
        class Tickets:
            name = "tickets"

            @asynccontextmanager
            async def open(self, ctx: ToolsetContext) -> AsyncIterator[OpenToolset]:
                async with connect(ctx.deps.token) as server:
                    yield server
    """

    @property
    def name(self) -> str:
        """Its name in events and messages; unique within an agent."""
        ...

    def open(self, ctx: ToolsetContext) -> AbstractAsyncContextManager[OpenToolset]:
        """Return what opens the toolset for one run, and closes it.

        Entered and left in one task, which lives as long as the run: a task group or a cancel scope may stay open in it.
        Left at every end of the run: an answer, a failure, a cancellation, the failure of another toolset. An exception in
        it makes the toolset's tools unavailable, with the reason; the run continues without them.
        """
        ...


def is_toolset(value: object) -> TypeGuard[Toolset]:
    """Whether a value has the form of a toolset: `name`, and `open(ctx)`. A path or a file, which opens otherwise, has not."""
    if isinstance(value, type) or not hasattr(value, "name"):
        return False
    try:
        parameters = inspect.signature(value.open).parameters.values()  # type: ignore[attr-defined]  # asked, not known
    except (AttributeError, TypeError, ValueError):
        return False
    return [one.default for one in parameters if one.kind is not one.VAR_KEYWORD][:1] == [inspect.Parameter.empty]
