"""What people do to a session, and what happens to its store."""

from typing import Any, ClassVar, Literal, TypeAlias

from treadle.events.base import Event
from treadle.messages import Message
from treadle.tools import DEFAULT_MODE, JsonObject, Mode

__all__ = [
    "CompactionAsked",
    "JournalDegraded",
    "ModeChanged",
    "SessionChanged",
    "SessionForked",
    "SessionMarked",
    "SessionRewound",
    "SessionSpawned",
    "SessionStatus",
    "TaskSubmitted",
    "TaskWithdrawn",
]

SessionStatus: TypeAlias = Literal["active", "suspended", "completed", "failed", "deleted"]
"""The status that people have set for a session. It says nothing about how its runs ended."""


class SessionChanged(Event, frozen=True, kw_only=True, tag="session.changed"):
    """Something about the session itself was changed between its runs."""

    is_of_run: ClassVar[bool] = False
    status: SessionStatus | None = None
    """The new status; None if it is unchanged."""
    metadata: JsonObject | None = None
    """Keys with their new values, null for a key that is removed; None if all are unchanged."""
    moved_to: str = ""
    """Where the session continues from now on; empty if it was not moved."""
    by: str = ""
    """Who changed it, such as a user's name; empty if nobody is named."""
    reason: str = ""
    """Why, in one sentence; empty without one."""


class TaskSubmitted(Event, frozen=True, kw_only=True, tag="task.submitted"):
    """A task waits for a worker to begin its run."""

    is_of_run: ClassVar[bool] = False
    message: Message
    """The task, as the user's message."""
    agent: str
    """Name of the agent that carries it out."""
    tenant: str = ""
    """Whose task it is; empty for nobody's."""
    priority: int = 0
    """Among tasks of one tenant, those with a higher number begin first."""
    due_at: float | None = None
    """When it begins at the earliest, in seconds since 1970; None for at once."""
    budget: dict[str, Any] | None = None
    """The limits of its run, by name; None for those of the agent."""
    deadline: float | None = None
    """Seconds since 1970 at which its run must have ended; None for no such time."""
    by: str = ""
    """Who submitted it; empty if nobody is named."""


class TaskWithdrawn(Event, frozen=True, kw_only=True, tag="task.withdrawn"):
    """A task that waited for a worker was cancelled before its run started."""

    is_of_run: ClassVar[bool] = False
    by: str = ""
    """Who cancelled it; empty if nobody is named."""


class ModeChanged(Event, frozen=True, kw_only=True, tag="mode.changed"):
    """A person has changed the session's mode: how much happens in it without a question. It applies to decisions from now on."""

    is_of_run: ClassVar[bool] = False
    mode: Mode
    """The new mode."""
    before: Mode = DEFAULT_MODE
    """The mode until then."""
    by: str = "person"
    """Who changed it, such as a user's name."""
    message_id: str = ""
    """The inbox message that brought it: it is taken in once."""


class CompactionAsked(Event, frozen=True, kw_only=True, tag="context.compaction_asked"):
    """A person asked to shorten what the model is shown, however short it is. Done before the next request."""

    is_of_run: ClassVar[bool] = False
    by: str = "person"
    """Who asked, such as a user's name."""
    message_id: str = ""
    """The inbox message that brought it: it is taken in once."""


class SessionForked(Event, frozen=True, kw_only=True, tag="session.forked"):
    """The events before this one were copied from another session."""

    is_of_run: ClassVar[bool] = False
    parent_id: str
    """The session that it was forked from."""
    parent_seq: int
    """Number of the last event that both share."""


class SessionSpawned(Event, frozen=True, kw_only=True, tag="session.spawned"):
    """This session carries out one call of another session. Its first event."""

    is_of_run: ClassVar[bool] = False
    parent_id: str
    """The session whose call this one carries out."""
    parent_seq: int
    """The parent's last event at that time."""
    parent_run: str
    """Run of that call."""
    parent_step: int
    """Step of that call."""
    parent_call: str
    """Id of that call."""
    tool: str
    """Name of the tool."""
    root_id: str = ""
    """The session at the top, whose run a person resumes."""
    path: tuple[str, ...] = ()
    """Names of the agents from the one that the top calls down to this one. Empty in sessions of older versions."""


class SessionMarked(Event, frozen=True, kw_only=True, tag="session.marked"):
    """A point that can be named again. A name that is used twice means the later point."""

    is_of_run: ClassVar[bool] = False
    name: str
    """Name of the mark."""


class SessionRewound(Event, frozen=True, kw_only=True, tag="session.rewound"):
    """The conversation continues from an earlier point. What was done after it stays done, and stays in the journal."""

    is_of_run: ClassVar[bool] = False
    to: int
    """The last event whose messages the model still sees."""
    mark: str | None = None
    """Name of the mark, if one was given."""
    effects: tuple[str, ...] = ()
    """Calls after that point which may have changed the world."""


class JournalDegraded(Event, frozen=True, kw_only=True, tag="journal.degraded"):
    """Live only: the store has failed and the run continues in memory, or the store is back and has everything."""

    is_live: ClassVar[bool] = True
    is_over: bool = False
    """Whether the store is back."""
    waiting: int = 0
    """Events that are not stored yet."""
    message: str = ""
    """What happened, in one sentence."""
