"""The rules of the engine by their values: schedules and retries, each at its borders."""

from collections.abc import Callable
from typing import Any

import pytest

from pipeline_tools import Recorder, tool_of
from treadle.engine.rules import failures as retries
from treadle.engine.rules.bounds import conflicts, group, named_resources
from treadle.errors import ModelError, ModelUnavailable, Rejected, Transient
from treadle.messages import ToolCall
from treadle.tools import CheckedCall, Effect


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
def test_calls_are_grouped_by_what_the_whole_group_before_them_holds(calls, cut):
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
def test_the_names_of_resources_are_taken_as_they_are_or_not_at_all(named, found):
    assert named_resources(checked("unsafe", named)) == found


def test_a_function_of_resources_that_fails_means_that_nobody_can_tell():
    def exits(arguments: Any) -> Any:
        raise SystemExit

    def stopped(arguments: Any) -> Any:
        raise KeyboardInterrupt

    assert named_resources(checked("unsafe", exits)) is None
    assert conflicts(checked("unsafe", exits), checked("unsafe", {"b": "read"}))
    with pytest.raises(KeyboardInterrupt):
        named_resources(checked("unsafe", stopped))


# --- retries
@pytest.mark.parametrize(
    ("attempt", "chance", "seconds"),
    [(1, 1.0, 1.0), (2, 1.0, 2.0), (3, 0.5, 2.0), (5, 1.0, 16.0), (6, 1.0, 30.0), (10**9, 1.0, 30.0), (4, 0.0, 0.0)],
)
def test_a_pause_doubles_with_each_attempt_up_to_half_a_minute(attempt, chance, seconds):
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
def test_what_may_run_again_follows_from_effect_and_error(effect, error, may):
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
def test_a_provider_is_waited_for_as_long_as_it_asks_within_reason(asked, attempt, left, wait):
    error = ModelUnavailable("busy", retry_after_seconds=asked)

    assert retries.model_wait_seconds(error, attempt, 1.0, left) == wait


@pytest.mark.parametrize(("asked", "note"), [(None, ""), (0.0, ""), (-1.0, ""), (1500.0, " It asks to wait 1,500 s before the next request.")])  # fmt: skip
def test_a_wait_that_is_not_waited_for_is_told(asked, note):
    error: ModelError = ModelUnavailable("busy", retry_after_seconds=asked)

    assert retries.retry_after_note(error) == note
