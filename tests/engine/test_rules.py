"""The rules of the engine by their values: retries, schedules, refusals, endings and failures, each at its borders."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pipeline_tools import Recorder, checked_call, read, tool_of
from treadle.engine.rules import failures as retries
from treadle.engine.rules.bounds import conflicts, group, named_resources
from treadle.engine.rules.tries import Repetition
from treadle.engine.tool_calls import refusals
from treadle.errors import ModelError, ModelUnavailable, Rejected, Transient
from treadle.events import ToolStarted, ToolSuspended
from treadle.messages import Finish, ToolCall
from treadle.ports import Decision
from treadle.state import CallState
from treadle.tools import CheckedCall, Effect

CALL = ToolCall(id="c1", name="pay", arguments="{}")


def checked(effect: str, resources: Any = None, number: int = 0) -> CheckedCall:
    named: Callable[..., Any] | None = resources if resources is None or callable(resources) else lambda _: resources
    tool = tool_of(Recorder(), "t", effect=effect, resources=named)
    return CheckedCall(
        call=ToolCall(id=f"c{number}", name="t", arguments="{}"), tool=tool, arguments={"n": number}, values={},
        effect=tool.effect_of({}), position=number, digest="", key="",
    )  # fmt: skip


# --- schedules


def groups(*calls: Any) -> list[list[int]]:
    made = [checked(effect, resources, number) for number, (effect, resources) in enumerate(calls)]
    return [[one.position for one in of_group] for of_group in group(made)]


READ, WRITE = {"a": "read"}, {"a": "write"}


@pytest.mark.parametrize(
    ("calls", "cut"),
    [
        ([], []),
        ([("read", None)] * 3, [[0, 1, 2]]),
        ([("unsafe", {"a": "write"}), ("unsafe", {"b": "write"}), ("unsafe", {"a": "read"})], [[0, 1], [2]]),
        ([("unsafe", {"a": "read"}), ("unsafe", {"b": "write"}), ("unsafe", {"a": "write"})], [[0, 1], [2]]),
        # A write stays a write when a read of the same joins, and a read becomes one.
        ([("read", READ), ("read", {"b": "write"}), ("read", {"b": "read"})], [[0, 1], [2]]),
        ([("unsafe", {"a": "read", "b": "read"}), ("unsafe", READ), ("unsafe", {"b": "write"})], [[0, 1], [2]]),
        # One that may touch anything: beside reads only.
        ([("unsafe", {"b": "write"}), ("read", READ), ("read", None)], [[0, 1], [2]]),
        ([("read", READ), ("unsafe", {"b": "write"}), ("read", None)], [[0, 1], [2]]),
        ([("read", READ), ("read", {"b": "write"}), ("read", None)], [[0, 1, 2]]),
        ([("read", None), ("read", READ), ("unsafe", {"b": "read"})], [[0, 1], [2]]),
        ([("unsafe", None), ("read", READ)], [[0], [1]]),
        ([("read", READ), ("unsafe", None), ("read", READ)], [[0], [1], [2]]),
        ([("unsafe", WRITE), ("unsafe", {}), ("unsafe", {"b": "write"}), ("unsafe", WRITE)], [[0, 1, 2], [3]]),
    ],
)
def test_calls_are_grouped_by_what_the_whole_group_before_them_holds(calls: Any, cut: Any) -> None:
    assert groups(*calls) == cut


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ({"a": "read"}, {"a": "read"}),
        ({}, {}),
        (["a"], None),
        ({"a": "append"}, None),
        ({1: "read"}, None),
        ({str(number): "read" for number in range(10_000)}, {str(number): "read" for number in range(10_000)}),
        ({str(number): "read" for number in range(10_001)}, None),
    ],
    ids=["names", "none", "a list", "another mode", "another key", "many", "too many"],
)
def test_the_names_of_resources_are_taken_as_they_are_or_not_at_all(named: Any, found: Any) -> None:
    assert named_resources(checked("unsafe", named)) == found


def test_a_function_of_resources_that_fails_means_that_nobody_can_tell() -> None:
    def exits(arguments: Any) -> Any:
        raise SystemExit

    def stopped(arguments: Any) -> Any:
        raise KeyboardInterrupt

    assert named_resources(checked("unsafe", exits)) is None
    assert conflicts(checked("unsafe", exits), checked("unsafe", {"b": "read"}))
    with pytest.raises(KeyboardInterrupt):
        named_resources(checked("unsafe", stopped))


def test_a_function_of_resources_gets_a_copy_of_the_arguments() -> None:
    def changes(arguments: Any) -> Any:
        arguments["n"] = 99
        return {}

    call = checked("unsafe", changes, 3)
    named_resources(call)

    assert call.arguments == {"n": 3}


# --- retries


@pytest.mark.parametrize(
    ("attempt", "chance", "seconds"),
    [(1, 1.0, 1.0), (2, 1.0, 2.0), (3, 0.5, 2.0), (5, 1.0, 16.0), (6, 1.0, 30.0), (10**9, 1.0, 30.0), (4, 0.0, 0.0)],
)
def test_a_pause_doubles_with_each_attempt_up_to_half_a_minute(attempt: int, chance: float, seconds: float) -> None:
    assert retries.backoff_seconds(attempt, chance) == seconds


@pytest.mark.parametrize(
    ("effect", "error", "may"),
    [
        (Effect.READ, OSError(), True),
        (Effect.READ, TypeError(), False),
        (Effect.READ, ValueError(), False),
        (Effect.READ, KeyboardInterrupt(), False),
        (Effect.READ, Rejected({}), False),
        (Effect.KEYED, TimeoutError(), True),
        (Effect.KEYED, ConnectionResetError(), True),
        (Effect.IDEMPOTENT, Transient("busy"), True),
        (Effect.IDEMPOTENT, KeyError(), False),
        (Effect.KEYED, Rejected({}), False),
        (Effect.UNSAFE, TimeoutError(), False),
        (Effect.UNSAFE, Transient("busy"), False),
    ],
    ids=repr,
)
def test_what_may_run_again_follows_from_effect_and_error(effect: Effect, error: BaseException, may: bool) -> None:
    assert retries.may_retry_call(effect, error) is may


@pytest.mark.parametrize(
    ("asked", "attempt", "left", "wait"),
    [
        (None, 1, None, 1.0),
        (None, 3, None, 4.0),
        (7.0, 1, None, 7.0),
        (0.25, 1, None, 1.0),
        (-5.0, 1, None, 1.0),
        (120.0, 1, None, 120.0),
        (120.5, 1, None, None),
        (7.0, 1, 7.5, 7.0),
        (7.0, 1, 7.0, None),
        (7.0, 1, 6.0, None),
    ],
)
def test_a_provider_is_waited_for_as_long_as_it_asks_within_reason(
    asked: float | None, attempt: int, left: float | None, wait: float | None
) -> None:
    error = ModelUnavailable("busy", retry_after_seconds=asked)

    assert retries.model_wait_seconds(error, attempt, 1.0, left) == wait


@pytest.mark.parametrize(
    ("asked", "note"),
    [(None, ""), (0.0, ""), (-1.0, ""), (1500.0, " It asks to wait 1,500 s before the next request.")],
)
def test_a_wait_that_is_not_waited_for_is_told(asked: float | None, note: str) -> None:
    error: ModelError = ModelUnavailable("busy", retry_after_seconds=asked)

    assert retries.retry_after_note(error) == note


# --- refusals

BLANK = CallState(call=CALL, position=0)
UNSAFE_STARTED = CallState(
    call=CALL, position=0, started=ToolStarted(call_id="c1", tool="pay", effect=Effect.UNSAFE, key="k", attempt=1)
)
READ_STARTED = CallState(
    call=CALL, position=0, started=ToolStarted(call_id="c1", tool="pay", effect=Effect.READ, key="k", attempt=1)
)
SUSPENDED = CallState(call=CALL, position=0, suspended=ToolSuspended(call_id="c1", tool="pay", waits_for="a person"))  # fmt: skip

REFUSED: dict[str, tuple[Callable[[CallState], Any], str, str, str]] = {
    "changed": (refusals.changed, "skipped", "changed_since_decision", "have changed since it was allowed. Issue it again."),
    "stale": (refusals.stale, "skipped", "no_progress", "without new results"),
    "cut off": (refusals.cut_off, "skipped", "not_started", "cut off before its end. Issue it again."),
    "stops here": (refusals.stops_here, "skipped", "run_stopped", "the run stops here."),
    "stopped": (refusals.stopped, "skipped", "run_stopped", "the run was stopped."),
    "interrupted": (
        lambda state: refusals.interrupted(state, "wire"), "skipped", "run_stopped", "at the wire call in the same response.",
    ),
    "repeated": (
        lambda state: refusals.repeated(state, "Not executed: again.", {"count": 3}), "skipped", "repeated_tool_call", "again.",
    ),
    "forbidden": (
        lambda state: refusals.forbidden_by_response(state, "Not executed: cut."), "skipped", "not_started", "cut.",
    ),
    "over budget": (
        lambda state: refusals.over_budget(state, "max_tool_calls", had_consent=False), "skipped", "budget_exceeded", "max_tool_calls is used up.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("refuse", "status", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_refused_call_is_told_why_with_its_code(refuse: Any, status: str, code: str, words: str) -> None:
    result = refuse(BLANK)

    assert (result.status, result.code, result.may_have_acted, result.attempts) == (status, code, False, 0)
    assert (result.call_id, result.name) == ("c1", "pay")
    assert "Not executed: " in result.content
    assert words in result.content


@pytest.mark.parametrize(("refuse", "status", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_a_refused_call_that_had_begun_is_told_what_happened_to_it_instead(
    refuse: Any, status: str, code: str, words: str
) -> None:
    unknown, read, suspended = refuse(UNSAFE_STARTED), refuse(READ_STARTED), refuse(SUSPENDED)

    assert (unknown.status, unknown.may_have_acted, unknown.attempts) == ("outcome_unknown", True, 1)
    assert (read.status, read.code) == (status, code)
    assert (suspended.status, suspended.code) == ("cancelled", "suspended_call_ended")
    assert "waited for a person" in suspended.content


def test_a_refusal_repeats_its_details_and_says_where_a_consent_was_lost() -> None:
    repeated = refusals.repeated(BLANK, "Not executed: again.", {"count": 3})
    over = refusals.over_budget(BLANK, "max_tool_calls", had_consent=True)

    assert msgspec.json.decode(repeated.content)["details"] == [{"count": 3}]
    assert "that approval is no longer valid" in over.content
    assert "approval" not in refusals.over_budget(BLANK, "max_tool_calls", had_consent=False).content


@pytest.mark.parametrize(
    ("decision", "code", "words"),
    [
        (Decision(kind="deny", rule="r", reason="Closed."), "permission_denied", "t was denied: Closed."),
        (Decision(kind="deny", rule="r", reason="Closed.", message="Ask ada."), "permission_denied", "t was denied: Ask ada."),
        (Decision(kind="deny", rule="r"), "permission_denied", "t was denied."),
        (Decision(kind="sandbox", rule="r"), "sandbox_unavailable", "this tool cannot run in one"),
    ],
)  # fmt: skip
def test_a_denied_call_is_told_the_reason_and_the_rule(decision: Decision, code: str, words: str) -> None:
    call = msgspec.structs.replace(checked("unsafe"), call=CALL)
    result = refusals.denied(BLANK, call, decision)
    told = msgspec.json.decode(result.content)

    assert (result.status, result.code) == ("denied", code)
    assert words in result.content
    if code == "permission_denied":
        assert (told["rule"], told["reason"]) == ("r", decision.message or decision.reason)
    assert refusals.denied(UNSAFE_STARTED, call, decision).status == "outcome_unknown"
    assert refusals.denied(SUSPENDED, call, decision).code == "suspended_call_ended"


@pytest.mark.parametrize(
    ("choice", "name", "words"),
    [
        ("auto", "pay", None),
        ("required", "pay", None),
        ("pay", "pay", None),
        ("none", "pay", "'none': no tool may be called."),
        ("look", "pay", "'look': only this tool may be called now."),
    ],
)
def test_a_choice_of_tools_forbids_the_others(choice: str, name: str, words: str | None) -> None:
    why = refusals.forbidden_by(choice, name)

    assert (why is None) == (words is None)
    assert (words or "") in (why or "")


@pytest.mark.parametrize(
    ("finish", "closing", "words"),
    [
        (Finish.STOP, False, None),
        (Finish.STOP, True, "the run is at its limit"),
        (Finish.LENGTH, True, "the run is at its limit"),
        (Finish.LENGTH, False, "cut off by its output limit"),
        (Finish.REFUSED, False, "content filter"),
    ],
)
def test_no_call_of_a_closing_cut_or_refused_response_starts(finish: Finish, closing: bool, words: str | None) -> None:
    why = refusals.of_response(finish, closing=closing)

    assert (why is None) == (words is None)
    assert (words or "") in (why or "")


@pytest.mark.parametrize(
    ("names", "repetition", "words"),
    [
        (["a"], (3, 1, True), "a was called 3 times in a row with the same arguments and the same result; the last call was not run."),
        (["a"], (3, 1, False), "a was called 3 times in a row with the same arguments; the last call was not run."),
        (["a"], (1, 1, True), "a was called 1 times in a row with the same arguments; the last call was not run."),
        (["b", "a"], (2, 1, True), "a, b were called 2 times in a row with the same arguments and the same result; the last calls were not run."),
        (["a", "b", "c", "d", "e", "f"], (2, 1, False), "a, b, c, d, e were called 2 times in a row with the same arguments; the last calls were not run."),
        (["a"], (3, 2, True), "The same 2 responses came 3 times in a row with the same calls and the same result; the last was not run."),
    ],
)  # fmt: skip
def test_a_repetition_is_told_in_a_sentence(names: list[str], repetition: tuple[int, int, bool], words: str) -> None:
    count, period, equal = repetition
    found = Repetition(count=count, period=period, has_equal_results=equal, is_over=True)

    assert refusals.repeated_message(names, found) == words


def test_a_long_unknown_name_is_cut_and_told_with_those_that_resemble_it() -> None:
    short = refusals.unknown_tool(ToolCall(id="c", name="n" * 100, arguments=""), [])
    long = refusals.unknown_tool(ToolCall(id="c", name="n" * 101, arguments=""), ["pay", "play"])

    assert f"'{'n' * 100}'. Call one of the listed tools." in short.content
    assert f"'{'n' * 100}...'. Did you mean pay or play?" in long.content
    assert msgspec.json.decode(long.content)["did_you_mean"] == ["pay", "play"]


@pytest.mark.parametrize(
    ("refuse", "code"),
    [
        (refusals.run_ended, "run_ended"),
        (refusals.not_storable, "journal_unavailable"),
        (lambda one: refusals.prerequisite_failed(one, one), "prerequisite_failed"),
        (lambda one: refusals.batch_time_over(one, 3), "batch_deadline"),
    ],
)
def test_a_call_that_others_keep_from_starting_is_skipped_with_a_code(refuse: Any, code: str) -> None:
    result = refuse(checked_call(read(Recorder())))

    assert (result.status, result.code, result.attempts) == ("skipped", code, 0)
    assert msgspec.json.decode(result.content)["code"] == code
