"""The ends of a run and the failures of a tool, by their values: which reason, which words, which fields."""

import asyncio

import msgspec
import pytest

from treadle.engine.rules import endings, failures
from treadle.errors import ModelUnavailable, Rejected
from treadle.events import CallDecided, HookActed, ModelFinished, RunFinished, RunPaused, ToolSuspended
from treadle.messages import Finish, Message, Text, ToolCall, Usage
from treadle.state import Approval, CallState
from treadle.stops import LimitReached, Stop, StopReason
from treadle.tools import CallStatus, Effect, Unfinished

CALL = ToolCall(id="c1", name="pay", arguments="{}")

SUSPENDED = CallState(call=CALL, position=0, suspended=ToolSuspended(call_id="c1", tool="pay", waits_for="a person"))


# --- endings
def finished(text: str, finish: Finish = Finish.STOP) -> ModelFinished:
    message = Message(role="assistant", parts=(Text(text),))
    return ModelFinished(message=message, finish=finish, usage=Usage(), turns=1)


@pytest.mark.parametrize(
    ("event", "reason", "message"),
    [
        (finished("x"), StopReason.COMPLETED, "The model answered."),
        (finished(" \n"), StopReason.NO_FINAL_ANSWER_OR_TOOL_CALL, "The model returned neither an answer nor a call."),
        (finished("x", Finish.LENGTH), StopReason.OUTPUT_TRUNCATED, "The answer was cut off by the output limit."),
        (finished("", Finish.REFUSED), StopReason.REFUSED, "The model or its provider refused."),
    ],
)
def test_a_response_without_calls_is_an_answer_or_says_why_not(event, reason, message):
    assert endings.answer_stop(event) == Stop(reason=reason, message=message)


@pytest.mark.parametrize(
    ("finish", "before", "allowed", "reason"),
    [
        (Finish.REFUSED, 0, 9, StopReason.REFUSED),
        (Finish.LENGTH, 1, 2, None),
        (Finish.LENGTH, 2, 2, StopReason.OUTPUT_TRUNCATED),
        (Finish.STOP, 9, 2, None),
    ],
)
def test_calls_that_were_cut_may_be_issued_again_so_many_times(finish, before, allowed, reason):
    stop = endings.unstarted_calls_stop(finish, cut_before=before, allowed=allowed)

    assert (None if stop is None else stop.reason) is reason
    if reason is StopReason.REFUSED and stop is not None:
        assert stop.message == "The model or its provider refused."
    if finish is Finish.LENGTH and stop is not None:
        assert stop.message == "The model's calls were cut off by the output limit 3 times in a row."


TURNS = LimitReached(budget="max_model_turns", used=5, limit=5)

TIME = LimitReached(budget="max_wall_seconds", used=9.0, limit=9.0)


def test_a_limit_of_turns_or_calls_is_told_to_the_model_and_others_are_not():
    calls = LimitReached(budget="max_tool_calls", used=3, limit=3)

    assert [endings.is_turn_or_call_limit(one) for one in (TURNS, calls, TIME)] == [True, True, False]
    assert endings.limit_notice(TURNS) == {
        "limit_reached": True,
        "limit_message": "Model turn limit reached (5). Stopping tool loop.",
    }
    assert endings.limit_notice(calls)["limit_message"] == "Tool call limit reached (3). Stopping tool loop."
    assert endings.limit_stop(TURNS).reason is StopReason.STEP_LIMIT_REACHED
    assert endings.limit_stop(calls).reason is StopReason.BUDGET_EXCEEDED
    assert endings.limit_stop(calls).reached == calls
    assert endings.limit_stop(calls).message == "The budget max_tool_calls is used up: 3 of 3."


def test_the_end_of_time_names_the_budget_or_the_deadline_that_came_first():
    by_budget = endings.time_stop(TIME, deadline=None)
    by_deadline = endings.time_stop(TIME, deadline=86_400.0)

    assert (by_budget.rank, by_budget.details, by_budget.reached) == (90, None, TIME)
    assert by_budget.message == "The budget max_wall_seconds is used up: 9.0 of 9.0."
    assert (by_deadline.rank, by_deadline.details) == (90, {"deadline": "1970-01-02T00:00:00+00:00"})
    assert by_deadline.message == "The run's deadline, 1970-01-02T00:00:00+00:00, has passed."


def test_a_closing_request_that_failed_is_told_beside_what_it_was_made_for():
    ending = Stop(reason=StopReason.BUDGET_EXCEEDED, message="Used up.", details={"a": 1})
    failed = Stop(reason=StopReason.REFUSED, message="Down.", details={"b": 2})
    bare = Stop(reason=StopReason.REFUSED, message="Down.")

    assert endings.not_closed(ending, None) is ending
    told = endings.not_closed(ending, failed)
    assert (told.reason, told.message) == (ending.reason, "Used up. The closing request failed: Down.")
    assert told.details == {"a": 1, "closing_request": {"reason": failed.reason.value, "b": 2}}
    assert endings.not_closed(bare, bare).details == {"closing_request": {"reason": bare.reason.value}}


def test_a_run_that_lacks_a_tool_says_which_and_why():
    stop = endings.lacking_stop("files", "It did not start.")

    assert (stop.reason, stop.details) == (StopReason.TOOL_UNAVAILABLE, {"tool": "files"})
    assert stop.message == "The run needs files, which is unavailable: It did not start."


def test_a_pause_says_what_waits_and_how_to_answer():
    approval = Approval(
        id="a1", session_id="s", call_id="c1", tool="pay", arguments={}, digest="d", effect=Effect.UNSAFE,
        requested_at=0.0, expires_at=1.0,
    )  # fmt: skip
    asks = endings.waiting_stop([approval, msgspec.structs.replace(approval, id="a2", tool="wire")], [SUSPENDED])
    waits = endings.waiting_stop([], [SUSPENDED])
    sentence = msgspec.structs.replace(SUSPENDED.suspended, waits_for="a person. Or send no.")
    waits_longer = endings.waiting_stop([], [msgspec.structs.replace(SUSPENDED, suspended=sentence)])
    nobody = endings.waiting_stop([])

    assert waits_longer.message == "The run is paused: pay waits for a person. Or send no."
    assert asks.reason is nobody.reason is StopReason.APPROVAL_REQUIRED
    assert asks.message.startswith(
        "Waiting for approval of pay (a1), wire (a2). Allow it with session.answer('a1', 'allow')"
    )
    assert "`treadle approve ID`" in nobody.message
    assert (waits.reason, waits.message) == (
        StopReason.INPUT_REQUIRED, "The run is paused: pay waits for a person.",
    )  # fmt: skip


def test_a_run_that_a_decision_stops_says_who_and_why():
    decided = CallDecided(call_id="c1", tool="pay", decision="deny", rule="r", by="ada", reason="No.", interrupt=True)
    said = endings.interrupted_stop(decided)
    by_hook = endings.interrupted_stop(
        HookActed(hook="watch", at_moment="response", answer="denied", reason="Odd.", interrupt=True)
    )

    assert said.message == "The run stopped for a person: pay was denied: No."
    assert said.details == {"call_id": "c1", "tool": "pay", "rule": "r", "by": "ada"}
    assert endings.interrupted_stop(msgspec.structs.replace(decided, reason="")).message.endswith("pay was denied.")
    assert endings.interrupted_stop(msgspec.structs.replace(decided, message="Ask.")).message.endswith("denied: Ask.")
    assert by_hook.message == "The run stopped for a person: watch denied the response: Odd."
    assert said.reason is by_hook.reason is StopReason.CANCELLED


def test_the_last_event_of_a_run_holds_the_whole_end():
    other = Stop(reason=StopReason.CANCELLED, message="Cancelled.")
    stop = Stop(
        reason=StopReason.STEP_LIMIT_REACHED,
        message="Full.",
        reached=TURNS,
        details={"a": 1},
        output=[2],
        also=(other,),
    )
    event = endings.ended_event(stop, text="T", profile="p", wall_seconds=1.5)
    plain = endings.ended_event(Stop(reason=StopReason.COMPLETED), text="T", profile=None, wall_seconds=0.5)
    paused = endings.ended_event(Stop(reason=StopReason.APPROVAL_REQUIRED), text="", profile=None, wall_seconds=2.5)

    assert event == RunFinished(
        reason="step_limit_reached", status="stopped", completed=False, message="Full.", text="T", profile="p", budget="max_model_turns",
        used=5, limit=5, details={"a": 1}, output=[2], wall_seconds=1.5, signals=stop.signals,
    )  # fmt: skip
    assert plain == RunFinished(
        reason="completed", status="completed", completed=True, text="T", wall_seconds=0.5, message=""
    )
    assert paused == RunPaused(reason="approval_required", wall_seconds=2.5)


# --- failures
class Silent(Exception):
    def __str__(self) -> str:
        raise SystemExit


@pytest.mark.parametrize(
    ("error", "read", "unsafe"),
    [
        (Rejected({}), "rejected", "rejected"),
        (Unfinished(CallStatus.CANCELLED, "It ended.", may_have_acted=False), "cancelled", "cancelled"),
        (TimeoutError(), "timeout", "outcome_unknown"),
        (failures.Cut(stop=None, seconds=1.0), "timeout", "outcome_unknown"),
        (ConnectionError(), "failed", "outcome_unknown"),
        (asyncio.CancelledError(), "failed", "outcome_unknown"),
        (KeyError(), "failed", "failed"),
        (ExceptionGroup("g", [KeyError(), ExceptionGroup("h", [OSError()])]), "failed", "outcome_unknown"),
        (ExceptionGroup("g", [KeyError(), ValueError()]), "failed", "failed"),
    ],
    ids=repr,
)
def test_what_an_error_means_follows_from_the_effect(error, read, unsafe):
    assert failures.failure_class(Effect.READ, error) == read
    assert failures.failure_class(Effect.UNSAFE, error) == unsafe


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a\n  b"), "ValueError: a b"),
        (ValueError(), "ValueError"),
        (Silent(), "Silent"),
        (failures.Cut(stop=None, seconds=1.23456), "no answer within 1.23 s"),
        (failures.ToolExited("SystemExit: 3"), "SystemExit: 3"),
        (FileNotFoundError(2, "No such file", "somewhere/x"), "FileNotFoundError: No such file"),
        (OSError("plain"), "OSError: plain"),
        (Rejected({"why": "full"}), "Rejected: {'why': 'full'}"),
        (ValueError("x" * 488), "ValueError: " + "x" * 488),
        (ValueError("x" * 489), "ValueError: " + "x" * 485 + "..."),
        (ValueError("it said: Traceback (most recent call last)\n  File\nKeyError: 1\n"), "ValueError: it said: KeyError: 1"),
        (ValueError("half \ud800"), "ValueError: half ?"),
    ],
    ids=range(12),
)  # fmt: skip
def test_an_error_is_described_in_one_bounded_line(error, line):
    assert failures.describe(error) == line


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        if cause is None:
            raise error
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 - it is what the test looks at
        return caught


def test_a_traceback_has_the_causes_the_groups_and_bounded_words():
    causes: BaseException = raised(KeyError("root"))
    for number in range(20):
        causes = raised(ValueError(f"number {number}."), causes)
    chain = failures.traceback_of(causes) or ""
    group = failures.traceback_of(ExceptionGroup("g", [ValueError(f"number {number}.") for number in range(12)])) or ""

    assert [f"number {number}." in chain for number in (10, 9)] == [True, False]
    assert chain.index("number 18.") < chain.index("The exception above led to this one") or "number 19." in chain
    assert chain.rstrip().endswith("ValueError: number 19.")
    assert "KeyError" not in chain
    assert [f"number {number}." in group for number in (0, 9, 10, 11)].count(True) == 3
    assert len(failures.traceback_of(raised(ValueError("x" * 50_000))) or "") < 3000
    assert (failures.traceback_of(ValueError("y" * 2001)) or "").count("y") == 2000
    assert failures.traceback_of(ValueError()) == "ValueError\n"
    assert failures.traceback_of(TimeoutError()) == "TimeoutError\n"
    assert failures.traceback_of(ModelUnavailable("m")) == "treadle.errors.ModelUnavailable: m\n"
    for error in (
        failures.Cut(stop=None, seconds=1),
        Rejected({}),
        Unfinished(CallStatus.FAILED, "x", may_have_acted=False),
    ):
        assert failures.traceback_of(raised(error)) is None


@pytest.mark.parametrize("hides", [True, False])
def test_a_context_is_shown_unless_it_was_suppressed(hides):
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            later = ValueError("outer")
            later.__context__, later.__suppress_context__ = error, hides
            raised_late.append(later)

    raised_late: list[BaseException] = []
    fail()
    shown = failures.traceback_of(raised_late[0]) or ""

    assert "outer" in shown
    assert ("inner" in shown) is not hides


async def test_a_tool_that_exits_is_told_from_what_stops_the_program():
    async def exits() -> None:
        raise SystemExit(3)

    def exits_too() -> None:
        raise SystemExit(3)

    with pytest.raises(failures.ToolExited, match="SystemExit: 3"):
        await failures.contained(exits())
    with pytest.raises(failures.ToolExited, match="SystemExit: 3"):
        failures.kept_inside(exits_too)
    assert failures.kept_inside(lambda: 5) == 5
    assert await failures.contained(asyncio.to_thread(int, "7")) == 7
    failures.pass_interrupts(SystemExit())
    failures.pass_interrupts(asyncio.CancelledError())
    with pytest.raises(KeyboardInterrupt):
        failures.pass_interrupts(KeyboardInterrupt())


async def test_a_cancellation_of_the_running_task_is_told_from_one_that_its_code_raised():
    seen: list[bool] = []

    async def wait() -> None:
        seen.append(failures.is_being_cancelled())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            seen.append(failures.is_being_cancelled())
            with pytest.raises(asyncio.CancelledError):
                failures.pass_interrupts(error)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await task

    assert seen == [False, True]
