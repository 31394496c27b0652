"""Events of goals: what is to be reached, and what each look at it has found."""

import msgspec

from treadle.events.base import Event

__all__ = ["GoalChecked", "GoalSet"]


class GoalSet(Event, frozen=True, kw_only=True, tag="goal.set"):
    """A session has got a goal. Its objective never changes."""

    digest: str
    """Of the whole goal: another goal has another."""
    objective: str
    """What is to be reached."""
    done_condition: str
    """When it is reached, in words."""
    validation: str
    """What decides that it is reached: the command, or the function's name."""


class GoalChecked(Event, frozen=True, kw_only=True, tag="goal.checked"):
    """A checkpoint: the six questions about a goal, and their answers. None of them is asked of the model."""

    trigger: str
    """`checkpoint` after so many steps, or `claim` where the model says that it is done."""
    passed: bool
    """Is the done condition met? As the validation has found it."""
    exit_code: int | None = None
    """Of the command; None for a function, and for a command that did not end in time."""
    output: str = ""
    """What the validation has said: its end, where it is long."""
    is_valid: bool = True
    """Is the objective still valid? Whether the goal is the one that the session was given."""
    evidence: tuple[str, ...] = ()
    """What evidence proves progress? What was changed since the last checkpoint."""
    is_in_budget: bool = True
    """Are we within budget?"""
    left: dict[str, str] = msgspec.field(default_factory=dict)
    """What is left of each limit."""
    needs_approval: bool = False
    """Is human approval needed before the next step?"""
    should_compact: bool = False
    """Should compaction or handoff happen now?"""
