"""Endings: what a limit, an answer or a waiting call means for a run. Makes Stops and the words of a limit; ends nothing."""

from collections.abc import Collection, Container, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from treadle.events import CallDecided, HookActed, ModelFinished, RunFinished, RunPaused
from treadle.messages import Finish
from treadle.state import Approval, CallState
from treadle.stops import LimitReached, Status, Stop, StopReason
from treadle.tools import CallStatus, ToolResult
from treadle.tools.results import TOOL_UNAVAILABLE

__all__ = [
    "answer_stop",
    "cancelled_stop",
    "cut_status",
    "ended_by_results",
    "ended_event",
    "failure_stop",
    "interrupted_stop",
    "is_turn_or_call_limit",
    "lacking_stop",
    "limit_notice",
    "limit_stop",
    "not_closed",
    "time_stop",
    "unstarted_calls_stop",
    "used_up",
    "waiting_stop",
]

_TIME_PRIORITY = 90
"""Time cuts into whatever is under way: but for a person, nothing comes before it."""
_WORDS = {"max_model_turns": "Model turn", "max_tool_calls": "Tool call"}


def cancelled_stop(by: str = "") -> Stop:
    """Return the end of a run that somebody has cancelled.

    Args:
        by: Who or what; empty where that is not known.
    """
    return Stop(
        reason=StopReason.CANCELLED, message=f"The run was cancelled by {by}." if by else "The run was cancelled."
    )


def cut_status(stop: Stop | None) -> CallStatus:
    """Return the status of a call which cannot have acted, and which was cut off: a limit is named only if one did.

    Args:
        stop: The end of its run; None where its own time, or that of its response, was over.
    """
    return CallStatus.TIMEOUT if stop is None or stop.reached is not None else CallStatus.CANCELLED


def is_turn_or_call_limit(reached: LimitReached) -> bool:
    """Whether the limit is one after which the model may still be asked for a summary."""
    return reached.budget in _WORDS


def limit_notice(reached: LimitReached) -> dict[str, Any]:
    """Return the fields that the last result before a limit gains (seed 002)."""
    reason = f"{_WORDS[reached.budget]} limit reached ({reached.limit}). Stopping tool loop."
    return {"limit_reached": True, "limit_message": reason}


def limit_stop(reached: LimitReached) -> Stop:
    """Return the end of a run whose budget is used up."""
    is_turns = reached.budget == "max_model_turns"
    reason = StopReason.STEP_LIMIT_REACHED if is_turns else StopReason.BUDGET_EXCEEDED
    return Stop(reason=reason, message=used_up(reached), reached=reached)


def used_up(reached: LimitReached) -> str:
    """Return the sentence that says which budget is used up."""
    if reached.whose:
        return f"The budget of {reached.whose} has no room for another request: {reached.used} of {reached.limit} are used."
    return f"The budget {reached.budget} is used up: {reached.used} of {reached.limit}."


def not_closed(ending: Stop, failed: Stop | None) -> Stop:
    """Return the end of a run whose closing request had no answer.

    Args:
        ending: What the closing request was made for.
        failed: What it resulted in.
    """
    if failed is None:
        return ending
    details = {
        **(ending.details or {}),
        "closing_request": {"reason": failed.reason.value, **(failed.details or {})},
    }
    message = f"{ending.message} The closing request failed: {failed.message}"
    return msgspec.structs.replace(ending, message=message, details=details)


def ended_by_results(
    results: Sequence[ToolResult | None], *, ending: Container[str], required: Collection[str]
) -> Stop | None:
    """Return the end of a run where a result is a success of a tool that ends it, or a tool that it needs is unavailable.

    Args:
        ending: Names of tools whose success ends the run.
        required: Names of tools without which it does not continue.
    """
    for result in results if required else ():
        if result is not None and result.code == TOOL_UNAVAILABLE and result.name in required:
            return lacking_stop(result.name, result.message or "")
    for result in results if ending else ():
        if result is not None and result.status is CallStatus.OK and result.name in ending:
            output = result.data if result.artifact is None else result.content
            return Stop(reason=StopReason.DONE_CONDITION_SATISFIED, output=output)
    return None


def failure_stop(failed: ToolResult) -> Stop:
    """Return the end of a run that is not to continue after a failed call."""
    details = {"guard": "on_failure", "call_id": failed.call_id, "tool": failed.name, "class": failed.status.value}
    message = f"The call {failed.call_id} of {failed.name} failed, and the run ends with a failure: {failed.message or failed.content[:500]}"
    return Stop(reason=StopReason.REPEATED_FAILURES, message=message, details=details)


def lacking_stop(name: str, why: str) -> Stop:
    """Return the end of a run that needs a tool or toolset which is unavailable."""
    message = f"The run needs {name}, which is unavailable: {why}"
    return Stop(reason=StopReason.TOOL_UNAVAILABLE, message=message, details={"tool": name})


def time_stop(reached: LimitReached, *, deadline: float | None) -> Stop:
    """Return the end of a run whose time is over: by its budget, or by a deadline that came first.

    Args:
        deadline: That deadline, in seconds since 1970; None where the budget came first.
    """
    stop = msgspec.structs.replace(limit_stop(reached), priority=_TIME_PRIORITY)
    if deadline is None:
        return stop
    instant = datetime.fromtimestamp(deadline, UTC).isoformat(timespec="seconds")
    message = f"The run's deadline, {instant}, has passed."
    return msgspec.structs.replace(stop, message=message, details={"deadline": instant})


def answer_stop(finished: ModelFinished) -> Stop:
    """Return the end of a run whose model called nothing: an answer, a cut one, a refusal, or none."""
    if finished.finish is Finish.REFUSED:
        return Stop(reason=StopReason.REFUSED, message="The model or its provider refused.")
    if finished.finish is Finish.LENGTH:
        return Stop(reason=StopReason.OUTPUT_TRUNCATED, message="The answer was cut off by the output limit.")
    if not finished.message.text.strip():
        message = "The model returned neither an answer nor a call."
        return Stop(reason=StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL, message=message)
    return Stop(reason=StopReason.COMPLETED, message="The model answered.")


def unstarted_calls_stop(finish: Finish, *, cut_before: int, allowed: int) -> Stop | None:
    """Return the end of a run whose response proposed calls and may start none, or None to have them issued again.

    Args:
        cut_before: How many responses in a row before this one were cut off in their calls.
        allowed: How many times the model may issue cut calls again.
    """
    match finish:
        case Finish.REFUSED:
            return Stop(reason=StopReason.REFUSED, message="The model or its provider refused.")
        case Finish.LENGTH if cut_before >= allowed:
            message = f"The model's calls were cut off by the output limit {cut_before + 1} times in a row."
            return Stop(reason=StopReason.OUTPUT_TRUNCATED, message=message)
        case _:
            return None


def waiting_stop(approvals: Sequence[Approval], suspended: Sequence[CallState] = ()) -> Stop:
    """Return the pause of a run whose calls wait: for a person's word on tools, which it names, or for something else."""
    if suspended and not approvals:
        waits = ", ".join(
            f"{one.call.name} waits for {one.suspended.waits_for}" for one in suspended if one.suspended is not None
        )
        end = "" if waits.endswith(("?", "!")) else "."
        return Stop(reason=StopReason.INPUT_REQUIRED, message=f"The run is paused: {waits.removesuffix('.')}{end}")
    names = ", ".join(f"{approval.tool} ({approval.id})" for approval in approvals)
    first = approvals[0].id if approvals else "ID"
    how = f"Allow it with session.answer({first!r}, 'allow') or `treadle approve {first}`, then resume."
    return Stop(reason=StopReason.APPROVAL_REQUIRED, message=f"Waiting for approval of {names}. {how}")


def interrupted_stop(decided: CallDecided | HookActed) -> Stop:
    """Return the end of a run that a decision on one of its calls, or on a whole response, has stopped for a person."""
    if isinstance(decided, HookActed):
        reason = f"{decided.hook} denied the response{f': {decided.reason}' if decided.reason else '.'}"
        return Stop(reason=StopReason.CANCELLED, message=f"The run stopped for a person: {reason}")
    reason = decided.message or decided.reason
    message = f"The run stopped for a person: {decided.tool} was denied{f': {reason}' if reason else '.'}"
    details = {"call_id": decided.call_id, "tool": decided.tool, "rule": decided.rule, "by": decided.by}
    return Stop(reason=StopReason.CANCELLED, message=message, details=details)


def ended_event(stop: Stop, *, text: str, profile: str | None, wall_seconds: float) -> RunFinished | RunPaused:
    """Return the event that ends the run, or that pauses it."""
    if stop.reason.status is Status.PAUSED:
        return RunPaused(reason=stop.reason.value, wall_seconds=wall_seconds)
    reached = stop.reached
    return RunFinished(
        reason=stop.reason.value,
        status=stop.reason.status.value,
        completed=stop.reason.is_completed,
        message=stop.message,
        text=text,
        profile=profile,
        budget=reached.budget if reached else None,
        used=reached.used if reached else None,
        limit=reached.limit if reached else None,
        details=stop.details,
        output=stop.output,
        wall_seconds=wall_seconds,
        signals=stop.signals if stop.also else (),
    )
