"""What the model reads about a call that does not run: status, code, fields and words, by which programs tell such calls apart."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pipeline_tools import Recorder, checked_call, read
from treadle import Rejected, ToolCall
from treadle.engine.rules.tries import Repetition
from treadle.engine.tool_calls import refusals
from treadle.events import ToolStarted, ToolSuspended
from treadle.ports import Decision, DecisionFailure
from treadle.state import CallState
from treadle.tools import Effect

PROPOSED = ToolCall(id="c", name="look", arguments="{}")

CALL, WRITER = checked_call(read(Recorder())), checked_call(read(Recorder(), "write"))

BLANK = CallState(call=PROPOSED, position=0)

SUSPENDED = CallState(
    call=PROPOSED, position=0, suspended=ToolSuspended(call_id="c", tool="look", waits_for="a person")
)

UNSAFE_STARTED, READ_STARTED = (
    CallState(call=PROPOSED, position=0, started=ToolStarted(call_id="c", tool="look", effect=effect, key="k", attempt=1))
    for effect in (Effect.UNSAFE, Effect.READ)
)  # fmt: skip

# --- refused before it began
NOT_STARTED: dict[str, tuple[Callable[[], Any], str, str | None, dict[str, Any]]] = {
    "stopped by a limit": (lambda: refusals.run_stopped(CALL, is_cancel=False), "skipped", "run_stopped", {}),
    "cancelled": (lambda: refusals.run_stopped(CALL, is_cancel=True), "cancelled", "run_stopped", {}),
    "run ended": (lambda: refusals.run_ended(CALL), "skipped", "run_ended", {}),
    "not storable": (lambda: refusals.not_storable(CALL), "skipped", "journal_unavailable", {}),
    "no time left": (lambda: refusals.batch_time_over(CALL, 3), "skipped", "batch_deadline", {}),
    "a failed sibling": (lambda: refusals.sibling_failed(CALL, WRITER), "cancelled", "sibling_failed", {"errored_call": "c"}),
    "a failed prerequisite": (lambda: refusals.prerequisite_failed(CALL, WRITER), "skipped", "prerequisite_failed", {"prerequisite": "c"}),
    "a toolset that failed": (lambda: refusals.unavailable(PROPOSED, "files", "It is closed."), "failed", "toolset_unavailable", {"toolset": "files"}),
    "a tool that is gone": (lambda: refusals.unavailable(PROPOSED, "files", ""), "unknown_tool", None, {"name": "look"}),
    "a check that raised": (lambda: refusals.unchecked(PROPOSED, ValueError("x"), "short"), "failed", "internal_error", {}),
    "a check that refused": (
        lambda: refusals.unfit(PROPOSED, Rejected({"error": "No."}, code="closed")),
        "invalid_arguments", "closed", {"details": [{"error": "No."}], "message": "No."},
    ),
    "no decision": (
        lambda: refusals.undecided(PROPOSED, DecisionFailure(reason="extraction", message="No JSON.", details=({"n": 1},))),
        "failed", "decision_extraction", {"details": [{"n": 1}], "message": "No JSON."},
    ),
    "a discarded response": (
        lambda: refusals.discarded(PROPOSED), "cancelled", "response_discarded", {"message": "The response that proposed this call was discarded."},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("refuse", "status", "code", "fields"), NOT_STARTED.values(), ids=NOT_STARTED)
def test_a_program_tells_refused_calls_apart_by_status_code_and_fields(refuse, status, code, fields):
    result = refuse()
    told = msgspec.json.decode(result.content)

    assert (result.call_id, result.name, result.status, result.code) == ("c", "look", status, code)
    assert (result.attempts, result.may_have_acted) == (0, False)
    assert (told["type"], told["code"]) == (status, code)
    assert {name: told[name] for name in fields} == fields


# --- refused, begun or not
OF_STATES: dict[str, tuple[Callable[[CallState], Any], str, str]] = {
    "changed": (refusals.changed, "changed_since_decision", "have changed since it was allowed. Issue it again."),
    "stale": (refusals.stale, "no_progress", "without new results"),
    "cut off": (refusals.cut_off, "not_started", "cut off before its end. Issue it again."),
    "stops here": (refusals.stops_here, "run_stopped", "the run stops here."),
    "stopped": (refusals.stopped, "run_stopped", "the run was stopped."),
    "interrupted": (lambda state: refusals.interrupted(state, "wire"), "run_stopped", "at the wire call in the same response."),
    "repeated": (lambda state: refusals.repeated(state, "Not executed: again.", {"count": 3}), "repeated_tool_call", "again."),
    "forbidden": (lambda state: refusals.forbidden_by_response(state, "Not executed: cut."), "not_started", "cut."),
    "over budget": (
        lambda state: refusals.over_budget(state, "max_tool_calls", had_consent=False), "budget_exceeded", "max_tool_calls is used up.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("refuse", "code", "words"), OF_STATES.values(), ids=OF_STATES)
def test_a_refused_call_is_told_why_and_one_that_had_begun_what_happened_to_it_instead(refuse, code, words):
    result, unknown, read_, suspended = (refuse(state) for state in (BLANK, UNSAFE_STARTED, READ_STARTED, SUSPENDED))

    assert (result.status, result.code, result.may_have_acted, result.attempts) == ("skipped", code, False, 0)
    assert (result.call_id, result.name) == ("c", "look")
    assert "Not executed: " in result.content
    assert words in result.content
    assert (unknown.status, unknown.may_have_acted, unknown.attempts) == ("outcome_unknown", True, 1)
    assert (read_.status, read_.code) == ("skipped", code)
    assert (suspended.status, suspended.code) == ("cancelled", "suspended_call_ended")
    assert "waited for a person" in suspended.content


def test_a_refusal_repeats_its_details_and_says_where_a_consent_was_lost():
    repeated = refusals.repeated(BLANK, "Not executed: again.", {"count": 3})
    over = refusals.over_budget(BLANK, "max_tool_calls", had_consent=True)

    assert msgspec.json.decode(repeated.content)["details"] == [{"count": 3}]
    assert "that approval is no longer valid" in over.content
    assert "approval" not in refusals.over_budget(BLANK, "max_tool_calls", had_consent=False).content


@pytest.mark.parametrize(
    ("decision", "code", "words"),
    [
        (Decision(kind="deny", rule="r", reason="Closed."), "permission_denied", "look was denied: Closed."),
        (Decision(kind="deny", rule="r", reason="For people.", message="For models."), "permission_denied", "look was denied: For models."),
        (Decision(kind="deny", rule="r"), "permission_denied", "look was denied."),
        (Decision(kind="sandbox", rule="r"), "sandbox_unavailable", "this tool cannot run in one"),
    ],
)  # fmt: skip
def test_a_denied_call_is_told_the_reason_and_the_rule(decision, code, words):
    result = refusals.denied(BLANK, CALL, decision)
    told = msgspec.json.decode(result.content)

    assert (result.status, result.code) == ("denied", code)
    assert words in result.content
    if code == "permission_denied":
        assert (told["rule"], told["reason"]) == ("r", decision.message or decision.reason)
    assert refusals.denied(UNSAFE_STARTED, CALL, decision).status == "outcome_unknown"
    assert refusals.denied(SUSPENDED, CALL, decision).code == "suspended_call_ended"


# --- why
@pytest.mark.parametrize(
    ("names", "repetition", "words"),
    [
        (["a"], (3, 1, True), "a was called 3 times in a row with the same arguments and the same result; the last call was not run."),
        (["a"], (3, 1, False), "a was called 3 times in a row with the same arguments; the last call was not run."),
        (["a"], (1, 1, True), "a was called 1 times in a row with the same arguments; the last call was not run."),
        (["b", "a"], (2, 1, True), "a, b were called 2 times in a row with the same arguments and the same result; the last calls were not run."),
        ([*"abcdef"], (2, 1, False), "a, b, c, d, e were called 2 times in a row with the same arguments; the last calls were not run."),
        (["a"], (3, 2, True), "The same 2 responses came 3 times in a row with the same calls and the same result; the last was not run."),
    ],
)  # fmt: skip
def test_a_repetition_is_told_in_a_sentence(names, repetition, words):
    count, period, equal = repetition
    found = Repetition(count=count, period=period, has_equal_results=equal, is_over=True)

    assert refusals.repeated_message(names, found) == words
