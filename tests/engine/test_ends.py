"""The ends of a run and the failures of a tool, by their values: which reason, which words, which fields."""

import asyncio

import msgspec
import pytest

from treadle.engine.rules import endings, failures
from treadle.errors import ModelUnavailable, Rejected
from treadle.events import CallDecided, HookActed, ToolSuspended
from treadle.messages import ToolCall
from treadle.state import Approval, CallState
from treadle.stops import LimitReached, StopReason
from treadle.tools import CallStatus, Effect, Unfinished

CALL = ToolCall(id="c1", name="pay", arguments="{}")

SUSPENDED = CallState(call=CALL, position=0, suspended=ToolSuspended(call_id="c1", tool="pay", waits_for="a person"))


# --- endings
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


def test_the_end_of_time_names_the_budget_or_the_deadline_that_came_first():
    over = LimitReached(budget="max_wall_seconds", used=9.0, limit=9.0)
    by_budget = endings.time_stop(over, deadline=None)
    by_deadline = endings.time_stop(over, deadline=86_400.0)

    assert (by_budget.rank, by_budget.details, by_budget.reached) == (90, None, over)
    assert by_budget.message == "The budget max_wall_seconds is used up: 9.0 of 9.0."
    assert (by_deadline.rank, by_deadline.details) == (90, {"deadline": "1970-01-02T00:00:00+00:00"})
    assert by_deadline.message == "The run's deadline, 1970-01-02T00:00:00+00:00, has passed."


# --- failures
class Silent(Exception):
    def __str__(self) -> str:
        raise SystemExit


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
