"""Stops: why a run ended, what that means for a person, and the report of it. Values only."""

from enum import StrEnum
from typing import Any, Literal

import msgspec

from treadle.fields import Documented, checked, explained

__all__ = [
    "EXIT_IN_DOUBT",
    "EXIT_NOT_STORED",
    "EXIT_SESSION_HELD",
    "EXIT_USAGE",
    "LimitReached",
    "Status",
    "Stop",
    "StopReason",
    "StopSignal",
    "exit_code",
    "merged",
]

EXIT_USAGE = 2
"""Exit code for a wrong option or configuration."""
EXIT_SESSION_HELD = 16
"""Exit code when another process runs the session."""
EXIT_NOT_STORED = 17
"""Exit code when the journal lacks events of the run, however the run ended."""
EXIT_IN_DOUBT = 18
"""Exit code of a completed run that leaves a call in doubt: a person must find out how it ended."""


class Status(StrEnum):
    """The status of a run that has ended."""

    COMPLETED = "completed"
    """The task is done."""
    STOPPED = "stopped"
    """A limit, a guard, a person or a refusal ended it."""
    PAUSED = "paused"
    """It waits for a person or an input; `resume` continues it."""
    FAILED = "failed"
    """The model could not be asked, or its answer could not be used."""


class StopReason(StrEnum):
    """Every reason for which a run can end."""

    COMPLETED = "completed"
    """The model answered without a further call."""
    DONE_CONDITION_SATISFIED = "done_condition_satisfied"
    """`done_when`, or a tool that ends the run, says that the work is done."""
    STEP_LIMIT_REACHED = "step_limit_reached"
    """The budget max_model_turns is used up."""
    BUDGET_EXCEEDED = "budget_exceeded"
    """Another budget is used up; the report names it."""
    APPROVAL_REQUIRED = "approval_required"
    """A call waits for a person's consent."""
    INPUT_REQUIRED = "input_required"
    """A call waits for an input."""
    TASK_DENIED = "task_denied"
    """The task was refused by its caller, or nobody may be asked."""
    REPEATED_TOOL_CALL = "repeated_tool_call"
    """The model made equal calls again and again."""
    REPEATED_FAILURES = "repeated_failures"
    """Too many responses in a row had failed calls and no successful one."""
    INVALID_CALL_LIMIT = "invalid_call_limit"
    """Too many responses in a row had invalid calls and no successful one."""
    REFUSED = "refused"
    """The model or its vendor refused."""
    TOOL_UNAVAILABLE = "tool_unavailable"
    """A tool that the run needs is unavailable."""
    NO_FINAL_ANSWER_OR_TOOL_CALL = "no_final_answer_or_tool_call"
    """The response had neither text nor a call, or its answer does not fit the output type."""
    OUTPUT_TRUNCATED = "output_truncated"
    """The output limit cut the answer off, even after it was continued."""
    INCOMPLETE_STREAM = "incomplete_stream"
    """The response broke off, even after retries."""
    MODEL_ERROR = "model_error"
    """The model could not be asked; the message has the provider's words."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The conversation does not fit the model's context."""
    CANCELLED = "cancelled"
    """A person or the program cancelled the run."""

    @property
    def status(self) -> Status:
        return _MEANING[self][0]

    @property
    def is_completed(self) -> bool:
        return self.status is Status.COMPLETED

    @property
    def next_safe_action(self) -> str:
        """What a program that acts for a user may safely do next."""
        return _MEANING[self][2]

    @property
    def next_step(self) -> str:
        """The same for a person who reads it: what to do next, in one sentence."""
        return _FOR_READERS.get(self, self.next_safe_action)


_LARGER_BUDGET = "Ask the user whether to continue with a larger budget."

_MEANING: dict[StopReason, tuple[Status, int, str]] = {
    StopReason.COMPLETED: (Status.COMPLETED, 0, "None needed: the task is answered."),
    StopReason.DONE_CONDITION_SATISFIED: (Status.COMPLETED, 0, "None needed: the done condition holds."),
    StopReason.STEP_LIMIT_REACHED: (Status.STOPPED, 10, _LARGER_BUDGET),
    StopReason.BUDGET_EXCEEDED: (Status.STOPPED, 10, _LARGER_BUDGET),
    StopReason.APPROVAL_REQUIRED: (
        Status.PAUSED,
        11,
        "Get an answer for the pending approval, pass it to session.answer(), then resume.",
    ),
    StopReason.INPUT_REQUIRED: (
        Status.PAUSED,
        11,
        "Get an answer to the question, pass it to session.input(call_id, answer), then resume.",
    ),
    StopReason.TASK_DENIED: (Status.STOPPED, 12, "Do not try again: a policy denies this task."),
    StopReason.REPEATED_TOOL_CALL: (
        Status.STOPPED,
        13,
        "Look at why the call does not move the task forward, then rephrase the task or fix the tool.",
    ),
    StopReason.REPEATED_FAILURES: (Status.STOPPED, 13, "Look at the failed calls, fix their cause, then resume."),
    StopReason.INVALID_CALL_LIMIT: (
        Status.STOPPED,
        13,
        "Use a model that writes valid calls, or simplify the tool's parameters.",
    ),
    StopReason.REFUSED: (Status.STOPPED, 14, "Rephrase the task: the model refused it."),
    StopReason.TOOL_UNAVAILABLE: (Status.STOPPED, 15, "Bring the required tool back, then resume."),
    StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL: (Status.STOPPED, 1, "Ask the model again, or use another model."),
    StopReason.OUTPUT_TRUNCATED: (Status.STOPPED, 1, "Raise the model's output limit, or ask for less at once."),
    StopReason.INCOMPLETE_STREAM: (
        Status.FAILED,
        1,
        "Try again: the model's answer broke off and nothing in it was run.",
    ),
    StopReason.MODEL_ERROR: (
        Status.FAILED,
        1,
        "Read the message, fix the connection or the configuration, then resume.",
    ),
    StopReason.CONTEXT_OVERFLOW: (
        Status.FAILED,
        1,
        "Start a new session with a shorter history, or use a larger model.",
    ),
    StopReason.CANCELLED: (Status.STOPPED, 1, "Resume the session to continue where it stopped."),
}


_FOR_READERS: dict[StopReason, str] = {
    StopReason.STEP_LIMIT_REACHED: "Increase the limit to continue.",
    StopReason.BUDGET_EXCEEDED: "Increase the limit to continue.",
    StopReason.APPROVAL_REQUIRED: "Allow or deny each call, then resume.",
    StopReason.INPUT_REQUIRED: "Answer the question, then resume.",
    StopReason.TASK_DENIED: "A policy denies this task: change the policy or the task.",
    StopReason.REFUSED: "Rephrase the task, or use another model.",
}


_PRIORITIES = {
    StopReason.CANCELLED: 100,
    StopReason.TASK_DENIED: 95,
    StopReason.MODEL_ERROR: 85,
    StopReason.INCOMPLETE_STREAM: 85,
    StopReason.CONTEXT_OVERFLOW: 85,
    StopReason.REFUSED: 80,
    StopReason.TOOL_UNAVAILABLE: 75,
    StopReason.REPEATED_TOOL_CALL: 70,
    StopReason.DONE_CONDITION_SATISFIED: 60,
    StopReason.REPEATED_FAILURES: 50,
    StopReason.INVALID_CALL_LIMIT: 50,
    StopReason.OUTPUT_TRUNCATED: 45,
    StopReason.STEP_LIMIT_REACHED: 30,
    StopReason.BUDGET_EXCEEDED: 30,
}
"""Of several signals at once, the one with the highest number decides; the first of equals. Others have 10."""


class StopSignal(msgspec.Struct, Documented, frozen=True, kw_only=True, omit_defaults=True):
    """One of the reasons that ended a run at the same time."""

    reason: str
    """The stop reason."""
    message: str
    """What happened, in one sentence."""
    priority: int
    """A number without a unit: of several signals at once, the one with the highest decides."""
    budget: str | None = None
    """The budget that is used up, or None."""
    details: dict[str, Any] | None = None
    """Facts of the reason. JSON values."""


class LimitReached(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """One limit, and how much of it is used."""

    budget: str
    """Name of the budget, such as `max_tool_calls`."""
    used: int | float | str
    """How much of it is used, in the unit of the budget: turns, calls, seconds, tokens, characters, retries or USD."""
    limit: int | float | str
    """The limit, in the same unit."""
    whose: str = ""
    """Whose budget it is and for which period, such as `tenant 'K7' in 2026-11`; empty for the run's own."""


class Stop(msgspec.Struct, Documented, frozen=True, kw_only=True):
    """The end of a run: the reason, and the facts that a report shows."""

    reason: StopReason
    """The stop reason."""
    message: str = ""
    """One sentence for a person: what happened, with what."""
    reached: LimitReached | None = None
    """The budget that ended the run, if one did."""
    details: dict[str, Any] | None = None
    """Facts of the reason, such as the tool and the count of a repeated call. JSON values."""
    phase: Literal["model", "tool"] | None = None
    """What was under way when the run was cancelled."""
    output: Any = None
    """The payload of a tool that ends the run: a JSON value."""
    priority: int | None = None
    """A number without a unit: of several signals at once, the one with the highest decides. None for the reason's own."""
    also: tuple["Stop", ...] = ()
    """Other signals that ended the run at the same time, those of the highest priority first."""
    asks_closing: bool = False
    """Whether the model is asked for a partial answer first, as at a turn limit."""

    @property
    def rank(self) -> int:
        """Return the number of its priority: its own, or its reason's."""
        return _PRIORITIES.get(self.reason, 10) if self.priority is None else self.priority

    @property
    def signals(self) -> tuple[StopSignal, ...]:
        """All signals that ended the run, itself first."""
        return tuple(
            StopSignal(
                reason=one.reason.value,
                message=one.message,
                priority=one.rank,
                budget=None if one.reached is None else one.reached.budget,
                details=one.details,
            )
            for one in (self, *self.also)
        )


@explained
def merged(*stops: Stop | None) -> Stop | None:
    """Return the signal with the highest priority, the first of equals, with the others in `also`; None for none."""
    found: list[Stop] = []
    for stop in stops:
        for one in () if stop is None else (msgspec.structs.replace(stop, also=()), *stop.also):
            if one not in found:
                found.append(one)
    if len(found) < 2:
        return next(filter(None, stops), None)
    first, *others = sorted(found, key=lambda one: -one.rank)
    return msgspec.structs.replace(first, also=tuple(others))


@checked
def exit_code(reason: StopReason, signal: int | None = None, *, is_in_doubt: bool = False) -> int:
    """Return the documented exit code. For a cancelled run it is 128 plus the signal, if there was one.

    Args:
        reason: Why the run ended.
        signal: The number of the signal that cancelled it, or None.
        is_in_doubt: Whether a call of the session is in doubt: a completed run then ends with a separate code.

    Raises:
        ConfigurationError: The reason is unknown.
    """
    if is_in_doubt and reason.is_completed:
        return EXIT_IN_DOUBT
    if reason is StopReason.CANCELLED and signal is not None:
        return 128 + signal
    return _MEANING[reason][1]
