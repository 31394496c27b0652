"""Refusals: what the model reads about a call that does not run. From values to sentences and results; refuses nothing itself.

A call that had started before a process died is not a refused one: `unstarted` says what happened to it instead.
"""

from collections.abc import Collection, Sequence

from treadle.engine.rules.failures import FailureText, message_of, told
from treadle.engine.rules.tries import NOT_STARTED, Repetition
from treadle.errors import InvalidArguments, InvalidJson, Rejected
from treadle.messages import Finish, Message, ToolCall
from treadle.ports import Decision, DecisionFailure, DecisionKind
from treadle.sessions.maintenance import may_have_acted, suspended_result, unknown_outcome, unstarted
from treadle.state import BUDGET_EXCEEDED, CallState
from treadle.tools import CallStatus, CheckedCall, JsonObject, ToolResult
from treadle.tools.results import failed_result

__all__ = [
    "batch_time_over",
    "because",
    "behind_denied",
    "changed",
    "changed_by",
    "cut_off",
    "denied",
    "discarded",
    "forbidden_by",
    "forbidden_by_response",
    "interrupted",
    "invalid_arguments",
    "invalid_json",
    "not_storable",
    "of_response",
    "over_budget",
    "prerequisite_failed",
    "repeated",
    "repeated_message",
    "run_ended",
    "run_stopped",
    "sibling_failed",
    "stale",
    "stopped",
    "stops_here",
    "too_often_message",
    "unavailable",
    "unchecked",
    "undecided",
    "unknown_tool",
    "was_refused",
]

_LONGEST_NAME = 100
_CHOICE = "Not executed: tool_choice is "
_STOPPED = "Not executed: the run was stopped."

# --- its response


def of_response(finish: Finish, *, closing: bool, has_strays: bool = False) -> str | None:
    """Return why no call of a response may start, or None where they may.

    Args:
        closing: Whether the run is at its limit, and the response was to call nothing.
        has_strays: Whether it holds arguments that may belong to one call or to another.
    """
    if closing:
        return "Not executed: the run is at its limit and no more tools may be called."
    match finish:
        case Finish.LENGTH:
            return "Not executed: the response was cut off by its output limit. Issue the calls again, fewer at a time."
        case Finish.REFUSED:
            return "Not executed: the response was ended by the provider's content filter."
        case _ if has_strays:
            return "Not executed: the server sent arguments whose call it does not say. Issue the calls again, one at a time."
        case _:
            return None


def forbidden_by(tool_choice: str, name: str) -> str | None:
    """Return why a call of this tool may not run, or None where the request's choice of tools permits it.

    A server may ignore the choice; the call does not run then.
    """
    if tool_choice in ("auto", "required", name):
        return None
    if tool_choice == "none":
        return f"{_CHOICE}'none': no tool may be called. Answer without one."
    return f"{_CHOICE}{tool_choice!r}: only this tool may be called now."


def was_refused(messages: Sequence[Message]) -> bool:
    """Whether the last response called only tools that its choice of tools forbade."""
    results = messages[-1].results if messages else ()
    return bool(results) and all(result.is_error and _CHOICE in result.content for result in results)


def undecided(proposed: ToolCall, failure: DecisionFailure) -> ToolResult:
    """The response holds no usable decision; its one call stands for that."""
    return failed_result(proposed, CallStatus.FAILED, failure.message, code=failure.code, details=failure.details)


def forbidden_by_response(state: CallState, why: str) -> ToolResult:
    """The response was cut off, or its request had forbidden the call."""
    return unstarted(state, CallStatus.SKIPPED, why, NOT_STARTED)


def cut_off(state: CallState) -> ToolResult:
    """The end of the call's arguments may be missing."""
    message = "Not executed: this call was cut off before its end. Issue it again."
    return unstarted(state, CallStatus.SKIPPED, message, NOT_STARTED)


def discarded(proposed: ToolCall) -> ToolResult:
    """The call had started early, and its response broke off."""
    message = "The response that proposed this call was discarded."
    return failed_result(proposed, CallStatus.CANCELLED, message, code="response_discarded")


# --- what the call is


def unknown_tool(proposed: ToolCall, near: Sequence[str]) -> ToolResult:
    """No tool has the call's name.

    Args:
        near: Names of tools that resemble it.
    """
    name = proposed.name if len(proposed.name) <= _LONGEST_NAME else proposed.name[:_LONGEST_NAME] + "..."
    hint = f" Did you mean {' or '.join(near)}?" if near else " Call one of the listed tools."
    message = f"There is no tool named {name!r}.{hint}"
    return failed_result(proposed, CallStatus.UNKNOWN_TOOL, message, extra={"name": name, "did_you_mean": near})


def unavailable(proposed: ToolCall, toolset: str, why: str) -> ToolResult:
    """The call's tool belongs to a toolset that has failed, or that has no such tool any more.

    Args:
        why: How the toolset failed; empty where it is well.
    """
    if not why:
        message = f"{proposed.name} did not run: {toolset} no longer has a tool of this name."
        return failed_result(proposed, CallStatus.UNKNOWN_TOOL, message, extra={"name": proposed.name})
    message = f"{proposed.name} did not run: its toolset {toolset} is unavailable. {why}"
    extra = {"toolset": toolset}
    return failed_result(proposed, CallStatus.FAILED, message, code="toolset_unavailable", extra=extra)


def invalid_json(proposed: ToolCall, error: InvalidJson) -> ToolResult:
    """The arguments are not JSON."""
    message = f"The arguments are not valid JSON: {error}"
    return failed_result(proposed, CallStatus.INVALID_JSON, message, details=[error.where])


def invalid_arguments(proposed: ToolCall, error: InvalidArguments) -> ToolResult:
    """The arguments do not fit the tool's schema, or what its author demands of them."""
    message = f"The arguments are invalid: {message_of(error)}"
    return failed_result(proposed, CallStatus.INVALID_ARGUMENTS, message, details=error.details)


def unfit(proposed: ToolCall, error: Rejected) -> ToolResult:
    """The tool's own check says no to the arguments, in its own words, before anything was decided."""
    reason = error.body.get("error") if isinstance(error.body, dict) else None
    message = reason if isinstance(reason, str) else f"{proposed.name} was refused by its own check: see `details`."
    return failed_result(proposed, CallStatus.INVALID_ARGUMENTS, message, code=error.code, details=[error.body])


def changed_by(who: str, proposed: ToolCall, refused: ToolResult) -> ToolResult:
    """The arguments that a hook or policy has given the call are refused."""
    message = f"A {who} changed the arguments of this call, and it did not run. {refused.message}"
    details = refused.data["details"] if isinstance(refused.data, dict) else ()
    return failed_result(proposed, refused.status, message, code=refused.code, details=details)


def unchecked(proposed: ToolCall, error: BaseException, form: FailureText) -> ToolResult:
    """The author's own check of the arguments raised."""
    message = f"{proposed.name} could not check its arguments and did not run: {told(error, form)}"
    return failed_result(proposed, CallStatus.FAILED, message, code="internal_error")


# --- what was decided


def denied(state: CallState, call: CheckedCall, decision: Decision) -> ToolResult:
    """The call may not run now; one that had started before says so."""
    if state.suspended is not None:
        return suspended_result(state)
    if may_have_acted(state):
        return unknown_outcome(state.call)
    if decision.kind == DecisionKind.SANDBOX:
        why = "this tool cannot run in one" if call.tool.sandbox is None else "none is available here"
        message = f"{call.name} must run in a sandbox, and {why}."
        return failed_result(call, CallStatus.DENIED, message, code="sandbox_unavailable")
    message = f"{call.name} was denied{because(decision)}"
    extra = {"reason": decision.message or decision.reason, "rule": decision.rule}
    return failed_result(call, CallStatus.DENIED, message, code="permission_denied", extra=extra)


def interrupted(state: CallState, tool: str) -> ToolResult:
    """The decision on another call of its response has stopped the run for a person.

    Args:
        tool: The tool of that call.
    """
    message = f"Not executed: the run stopped for a person, at the {tool} call in the same response."
    return unstarted(state, CallStatus.SKIPPED, message, "run_stopped")


def behind_denied(state: CallState, tool: str) -> ToolResult:
    """A call before it in its response was denied, and the agent's choice is that those behind it do not run then.

    Args:
        tool: The tool of that call.
    """
    message = f"Not executed: the {tool} call before it in the same response was denied. Issue it again if it still makes sense."
    return unstarted(state, CallStatus.SKIPPED, message, "denied_before")


def because(decision: Decision) -> str:
    """Return why something was denied, as the end of a sentence."""
    reason = decision.message or decision.reason
    return f": {reason}" if reason else "."


def changed(state: CallState) -> ToolResult:
    """What would start now is not what was allowed before."""
    message = "Not executed: the arguments of this call have changed since it was allowed. Issue it again."
    return unstarted(state, CallStatus.SKIPPED, message, "changed_since_decision")


# --- guards, budgets and the run's end


def repeated(state: CallState, message: str, details: JsonObject) -> ToolResult:
    """The guard against repetition does not let it run."""
    return unstarted(state, CallStatus.SKIPPED, message, "repeated_tool_call", details=[details])


def stale(state: CallState) -> ToolResult:
    """The guard against calls that bring nothing new does not let it run."""
    message = "Not executed: nearly the same call was made several times without new results. Use what you know, try something else, or answer."
    return unstarted(state, CallStatus.SKIPPED, message, "no_progress")


def too_often_message(name: str, times: int) -> str:
    """Say that one response holds a call too often."""
    return f"Not executed: this response already has the same {name} call {times} times."


def repeated_message(names: Collection[str], repetition: Repetition) -> str:
    """Say what came again and again, and that it was not run the last time."""
    if repetition.is_done:
        return f"{', '.join(sorted(names)[:5])} had been called with the same arguments before, and was not run again."
    times = f"{repetition.count} times in a row"
    results = " and the same result" if repetition.has_equal_results and repetition.count > 1 else ""
    if repetition.period > 1:
        return (
            f"The same {repetition.period} responses came {times} with the same calls{results}; the last was not run."
        )
    if len(names) == 1:
        return f"{next(iter(names))} was called {times} with the same arguments{results}; the last call was not run."
    shown = ", ".join(sorted(names)[:5])
    return f"{shown} were called {times} with the same arguments{results}; the last calls were not run."


def over_budget(state: CallState, budget: str, *, had_consent: bool) -> ToolResult:
    """The budget does not cover the call.

    Args:
        had_consent: Whether a person had allowed it: that consent ends here.
    """
    message = f"Not executed: the budget {budget} is used up."
    if had_consent:
        message += (
            " A person had allowed this call; that approval is no longer valid, and the call must be issued again."
        )
    return unstarted(state, CallStatus.SKIPPED, message, BUDGET_EXCEEDED)


def stops_here(state: CallState) -> ToolResult:
    """The run ends with the response, whatever it holds."""
    return unstarted(state, CallStatus.SKIPPED, "Not executed: the run stops here.", "run_stopped")


def stopped(state: CallState) -> ToolResult:
    """The run was interrupted before the call was decided on."""
    return unstarted(state, CallStatus.SKIPPED, _STOPPED, "run_stopped")


def run_stopped(call: ToolCall | CheckedCall, *, is_cancel: bool) -> ToolResult:
    """The run was interrupted after the call was decided on."""
    status = CallStatus.CANCELLED if is_cancel else CallStatus.SKIPPED
    return failed_result(call, status, _STOPPED, code="run_stopped")


def run_ended(call: ToolCall | CheckedCall) -> ToolResult:
    """Another call of the batch has ended the run."""
    return failed_result(call, CallStatus.SKIPPED, "Not executed: the run has ended.", code="run_ended")


def prerequisite_failed(call: CheckedCall, needed: CheckedCall) -> ToolResult:
    """The call names a resource that a failed call before it was to write."""
    message = f"Skipped: a prerequisite tool call failed: `{needed.name}` ({needed.id}) was meant to change what this call needs. Look at its result first."
    extra = {"prerequisite": needed.id}
    return failed_result(call, CallStatus.SKIPPED, message, code="prerequisite_failed", extra=extra)


def sibling_failed(call: CheckedCall, failed: CheckedCall) -> ToolResult:
    """Another call of the response failed, and the agent's policy is that the others end with it."""
    message = f"Cancelled: parallel tool call {failed.name} errored."
    extra = {"errored_call": failed.id}
    return failed_result(call, CallStatus.CANCELLED, message, code="sibling_failed", extra=extra)


def batch_time_over(call: ToolCall | CheckedCall, seconds: float) -> ToolResult:
    """The calls of its response have used up the time that they may take together."""
    reason = f"the calls of one response may take {seconds:g} seconds in total, and that time is used up"
    message = f"Not executed: {reason}. Issue the call again, with fewer others."
    return failed_result(call, CallStatus.SKIPPED, message, code="batch_deadline")


def not_storable(call: CheckedCall) -> ToolResult:
    """The journal cannot keep that the call starts."""
    message = "Not executed: the journal cannot be written, and nothing is changed without a record. Try again later."
    return failed_result(call, CallStatus.SKIPPED, message, code="journal_unavailable")
