"""Parts of the engine by their values: who is waited for, who is cut off, what is shown of a late end and reported of a child."""

import asyncio
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_tools import act, checked_call, read
from treadle.budgets import Spent
from treadle.engine.model_calls.response import ResponseCollector
from treadle.engine.spec import _cached_share, _child, _usage
from treadle.engine.tool_calls.execution import Siblings
from treadle.engine.tool_calls.invocation import LateCalls, _shown
from treadle.events import ModelDelta
from treadle.messages import ToolCall, Usage
from treadle.ports import ModelRequest
from treadle.state import ChildState
from treadle.tools import CallStatus, CheckedCall, ToolResult
from treadle.validation.schema import _OffsetOptional


async def nothing(arguments: Any, ctx: Any) -> Any:
    return None


def acting(name: str = "act", **resources: str) -> CheckedCall:
    return checked_call(act(nothing, name, resources=lambda _: resources))


def reading(name: str = "look", **resources: str) -> CheckedCall:
    return checked_call(read(nothing, name, resources=lambda _: resources))


def late(given_up: Any) -> LateCalls:
    nobody: Any = None
    return LateCalls(given_up, ledger=nobody)


# --- calls that were given up


@pytest.mark.parametrize(
    ("holder", "calls", "waits"),
    [
        (acting(a="write"), [acting(a="write")], True),
        (acting(a="write"), [acting(b="write")], False),
        (acting(a="write"), [acting(b="write"), acting(a="write")], True),
        (acting(a="write"), [reading(a="read")], False),
        (reading(a="read"), [acting(a="write")], False),
        (acting(a="write"), [], False),
    ],
    ids=["the same", "another", "one of two", "a read", "held by a read", "no call"],
)
async def test_a_call_that_acts_waits_for_one_that_was_given_up_and_holds_the_same(
    holder: CheckedCall, calls: list[CheckedCall], waits: bool
) -> None:
    future = asyncio.get_running_loop().create_future()
    assert late({future: holder}).blocking(calls) == ([future] if waits else [])


async def test_nobody_waits_for_a_call_of_a_loop_that_has_ended() -> None:
    other = asyncio.new_event_loop()
    try:
        future = other.create_future()
        assert late({future: acting(a="write")}).blocking([acting(a="write")]) == []
    finally:
        other.close()


async def test_a_call_runs_on_where_this_very_call_was_given_up() -> None:
    one, other = acting(), acting()
    found = late({asyncio.get_running_loop().create_future(): one})
    assert (found.has(one), found.has(other)) == (True, False)


class Shy:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("paid", "'paid'"),
        ({"n": 1}, "{'n': 1}"),
        ("x" * 1998, "'" + "x" * 1998 + "'"),
        ("x" * 1999, "'" + "x" * 1999),
        (Shy(ValueError("no")), "Shy"),
        (Shy(SystemExit(1)), "Shy"),
        (None, "None"),
    ],
    ids=["text", "object", "2000 characters", "2001 characters", "an error", "an exit", "nothing"],
)
def test_a_late_value_is_shown_by_its_first_two_thousand_characters_or_its_kind(value: Any, words: str) -> None:
    assert _shown(value) == words


def test_a_late_value_is_shown_as_text_that_can_be_stored() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "a\ud800b"

    assert _shown(Odd()) == "a?b"


def test_who_presses_control_c_while_a_late_value_is_shown_is_heard() -> None:
    with pytest.raises(KeyboardInterrupt):
        _shown(Shy(KeyboardInterrupt()))


# --- siblings


def failed(call: CheckedCall) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, status=CallStatus.FAILED, content="x")


async def forever() -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError


async def watched(siblings: Siblings, call: CheckedCall) -> "tuple[asyncio.Task[Any], asyncio.Task[Any]]":
    inner = asyncio.create_task(forever())
    outer = asyncio.create_task(siblings.watched(call, inner))
    await asyncio.sleep(0)
    return inner, outer


async def test_a_read_whose_batch_is_cancelled_is_cancelled_and_gets_no_result() -> None:
    inner, outer = await watched(Siblings("on_unsafe_error"), reading())
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer
    with pytest.raises(asyncio.CancelledError):
        await inner


async def test_a_read_that_is_cancelled_by_nobodys_failure_gets_no_result() -> None:
    inner, outer = await watched(Siblings("on_unsafe_error"), reading())
    inner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer


async def test_a_read_is_cut_off_by_the_first_call_that_acts_and_fails() -> None:
    siblings, call = Siblings("on_unsafe_error"), reading()
    inner, outer = await watched(siblings, call)
    siblings.finished(reading("other"), failed(reading("other")))
    siblings.finished(acting("well"), ToolResult(call_id="c", name="well", status=CallStatus.OK, content="x"))
    await asyncio.sleep(0)
    assert not inner.cancelling()
    assert siblings.refusal(call) is None
    siblings.finished(acting("pay"), failed(acting("pay")))
    siblings.finished(acting("bill"), failed(acting("bill")))
    result = await outer
    assert inner.cancelled()
    assert "pay" in result.content
    assert "bill" not in result.content
    told = siblings.refusal(call)
    assert told is not None
    assert told.content == result.content
    siblings.begin()
    assert siblings.refusal(call) is None


async def test_a_read_that_is_cut_off_and_whose_batch_is_cancelled_too_gets_no_result() -> None:
    siblings = Siblings("on_unsafe_error")
    _, outer = await watched(siblings, reading())
    siblings.finished(acting("pay"), failed(acting("pay")))
    outer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await outer


@pytest.mark.parametrize(("policy", "cut"), [("on_unsafe_error", True), ("never", False)])
def test_only_reads_are_cut_off_and_only_where_the_policy_says_so(policy: Any, cut: bool) -> None:
    siblings = Siblings(policy)
    assert (siblings.may_cut(reading()), siblings.may_cut(acting())) == (cut, False)
    siblings.finished(acting("pay"), failed(acting("pay")))
    assert (siblings.refusal(reading()) is not None) == cut


def test_what_depends_on_a_failed_write_is_refused_and_so_is_what_depends_on_that() -> None:
    siblings = Siblings("never")
    pay, book, tell = acting("pay", a="write"), acting("book", a="read", b="write"), acting("tell", b="write")
    siblings.finished(pay, failed(pay))
    for call in (book, tell):
        told = siblings.refusal(call)
        assert told is not None
        assert "pay" in told.content
    assert siblings.refusal(acting("other", c="write")) is None
    everything = acting("all", **{"*": "write"})
    siblings.begin()
    siblings.finished(everything, failed(everything))
    assert siblings.refusal(acting("any", **{"*": "write"})) is None


def test_a_read_that_is_refused_breaks_nothing_and_a_failed_read_of_a_resource_neither() -> None:
    siblings = Siblings("never")
    pay = acting("pay", a="read", b="write")
    siblings.finished(pay, failed(pay))
    assert siblings.refusal(acting("other", a="write")) is None
    assert siblings.refusal(reading("look", b="read", c="write")) is not None
    assert siblings.refusal(acting("tell", c="write")) is None


# --- reports


def test_a_child_is_reported_with_these_fields() -> None:
    used = Usage(input_tokens=10, output_tokens=2)
    spent = Spent(model_turns=3, tool_calls=5, usage=used, cost=Decimal("0.50"), uncovered_calls=7)
    child = ChildState(
        session_id="s", call_id="c", tool="t", agent="clerk", status="stopped", reason="cancelled", spent=spent
    )
    assert _child(child) == {
        "agent": "clerk",
        "call_id": "c",
        "session_id": "s",
        "status": "stopped",
        "reason": "cancelled",
        "usage": _usage(used),
        "cost": "0.5",
        "steps": 3,
        "tool_calls": 5,
    }
    unknown = ChildState(session_id="s", call_id="c", tool="t", spent=Spent(cost=None))
    assert (_child(unknown)["cost"], _child(unknown)["reason"]) == (None, None)


def test_tokens_written_to_a_cache_are_reported_where_there_are_any() -> None:
    assert "cache_written_tokens" not in _usage(Usage(input_tokens=1))
    assert _usage(Usage(input_tokens=1, cache_written_tokens=4))["cache_written_tokens"] == 4


@pytest.mark.parametrize(("sent", "cached", "share"), [(0, 0, None), (3, 1, 0.333), (4, 0, 0.0), (1, 1, 1.0)])
def test_the_cached_share_is_a_part_of_what_was_sent(sent: int, cached: int, share: float | None) -> None:
    assert _cached_share(Usage(input_tokens=sent, cached_input_tokens=cached)) == share


# --- a response that streams


class Ear:
    """A ledger as far as a response that streams needs one."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.subscribers = (self,)
        self.clock = SimpleNamespace(monotonic=lambda: 1.0)
        self.state = SimpleNamespace(call_ids=frozenset({"taken"}), run=None)

    def publish(self, event: Any) -> None:
        self.told.append(event)


class Early:
    """Calls that may start early: writes down which are offered."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.offered: list[tuple[str, int, int, int]] = []

    async def offer(self, call: ToolCall, *, position: int, step: int, attempt: int) -> None:
        self.offered.append((call.id, position, step, attempt))


async def test_a_call_that_is_ready_is_told_and_offered_with_its_step_attempt_and_place() -> None:
    ear, early = Ear(), Early(2)
    scope: Any = SimpleNamespace(ledger=ear, meter=None)
    words: Any = {"model": None, "early": early}
    collector = ResponseCollector(ModelRequest(messages=()), scope, step=4, attempt=3, **words)
    for name in ("a", "a", "taken", "z"):
        collector._ready(ToolCall(id=name, name="pay", arguments="{}"))
    for _ in range(3):
        await asyncio.sleep(0)  # the offers have their turn
    told = [event for event in ear.told if isinstance(event, ModelDelta)]
    assert [(event.step, event.call and event.call.id) for event in told] == [(4, "a"), (4, "call_4_2"), (4, "z")]
    assert collector.has_emitted
    assert [one.id for one in collector._called] == ["", "", "", ""]
    assert early.offered == [("a", 0, 4, 3), ("call_4_2", 1, 4, 3)]


# --- formats


@pytest.mark.parametrize(
    ("name", "text", "fits"),
    [
        ("date-time", "2026-01-02T03:04:05Z", True),
        ("date-time", "2026-01-02T03:04:05", True),
        ("date-time", "2026-01-02", False),
        ("time", "03:04:05+01:00", True),
        ("time", "03:04:05", True),
        ("time", "25:04:05", False),
    ],
)
def test_a_time_may_leave_out_its_offset_and_nothing_else(name: str, text: str, fits: bool) -> None:
    assert _OffsetOptional(name)(text) is fits
