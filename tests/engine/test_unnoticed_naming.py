"""What a survey of mutations showed that no test noticed: the calls of one response that are reported twice, in any order of its parts."""

from collections.abc import Collection

import pytest

from treadle.engine.model_calls.response import Collected, ResponseCalls
from treadle.messages import Part, Text, ToolCall


def one(call_id: str, n: int = 1, *, name: str = "look", signature: str | None = None) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=f'{{"n":{n}}}', signature=signature)


def collected(
    *parts: Part, early: Collection[ToolCall] = (), cut: Collection[str] = (), unnamed: Collection[str] = (), is_retold: bool = False
) -> Collected:  # fmt: skip
    calls = ResponseCalls(frozenset(), 3)
    for call in early:
        calls.ready(call)
    return calls.collect(parts, cut=cut, unnamed=unnamed, is_retold=is_retold)


def ids(found: Collected) -> list[str]:
    return [part.id if isinstance(part, ToolCall) else "-" for part in found.parts]


@pytest.mark.parametrize(
    ("first", "second", "kept"), [(None, "s", "s"), ("s", None, "s"), ("s", "t", "s"), (None, None, None)]
)
def test_a_call_that_is_reported_twice_is_one_with_the_first_proof_of_its_origin(
    first: str | None, second: str | None, kept: str | None
) -> None:
    found = collected(Text("I"), one("a", signature=first), Text("see"), one("a", signature=second), one("b", 2))

    assert found.parts == (Text("I"), one("a", signature=kept), Text("see"), one("b", 2))
    assert found.repeated == frozenset()


@pytest.mark.parametrize(
    ("second", "unnamed", "is_retold", "repeated"),
    [
        (one("b"), [], False, set()),
        (one("b"), [], True, {"b"}),
        (one("b", 2), [], True, set()),
        (one("a", 2), [], False, {"call_3_2"}),
        (one("b"), ["a"], False, {"b"}),
        (one("b"), ["b"], False, {"b"}),
        (one("b", 2), ["b"], False, set()),
    ],
)
def test_a_second_call_is_marked_where_it_may_be_the_first_one_again(
    second: ToolCall, unnamed: list[str], is_retold: bool, repeated: set[str]
) -> None:
    found = collected(one("a"), second, unnamed=unnamed, is_retold=is_retold)

    assert len(found.parts) == 2
    assert found.repeated == repeated


def test_a_call_that_was_cut_off_is_no_first_of_two() -> None:
    found = collected(one("a"), one("b"), cut=["a"], is_retold=True)

    assert (found.cut, found.repeated) == ({"a"}, frozenset())


def test_calls_that_were_ready_early_keep_their_names_and_those_that_are_missing_come_last() -> None:
    found = collected(Text("x"), one("", 2), one("b", 3), early=[one("b", 3), one("", 2), one("c", 4)])

    assert ids(found) == ["-", "call_3_2", "b", "c"]


def test_an_early_call_that_went_on_is_another_call_and_only_its_last_form_is_kept() -> None:
    found = collected(one("a", 12), early=[one("a", 1)])

    assert ids(found) == ["call_3_1"]
    assert found.parts == (ToolCall(id="call_3_1", name="look", arguments='{"n":12}'),)


def test_a_call_with_an_id_that_is_ready_twice_is_ready_once_and_calls_without_one_are_several() -> None:
    calls = ResponseCalls(frozenset({"taken"}), 3)

    named = [calls.ready(one("a")), calls.ready(one("a")), calls.ready(one("")), calls.ready(one("")), calls.ready(one("taken"))]  # fmt: skip

    assert [None if call is None else call.id for call in named] == ["a", None, "call_3_2", "call_3_3", "call_3_4"]
    assert calls.early_count == 4
