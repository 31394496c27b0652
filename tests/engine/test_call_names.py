"""The names of calls: those of one response, of earlier ones, and of calls that are reported twice, in any order of its parts."""

from collections.abc import Collection

import pytest

from pipeline_tools import Recorder, read
from treadle import Agent, ToolCall, open_session
from treadle.engine.model_calls.response import CallNames, Collected, ResponseCalls
from treadle.messages import Part, Text
from treadle.testing import ScriptedModel, Turn, call, text


async def test_ids_that_two_calls_of_a_response_share_with_earlier_ones_are_replaced_by_new_ones():
    turns = [
        Turn(calls=(call("look", id="call_2_1", n=1), call("look", id="call_2_1_2", n=2))),
        Turn(calls=(call("look", id="call_2_1", n=3), call("look", id="", n=4))),
    ]
    async with open_session("memory:") as session:
        result = await Agent(ScriptedModel([*turns, text("x")]), tools=[read(Recorder())]).run("go", session=session)

    assert [one.id for one in result.tool_calls] == ["call_2_1", "call_2_1_2", "call_2_1_3", "call_2_2"]


# --- names
@pytest.mark.row("N02")
def test_a_call_without_an_id_is_named_by_its_place_and_by_a_number_where_that_is_taken():
    names = CallNames({"call_3_1", "call_3_2", "call_3_2_2"}, 3)

    assert [names.give(place, "") for place in (0, 0, 1, 1, 2)] == [
        "call_3_1_2", "call_3_1_3", "call_3_2_3", "call_3_2_4", "call_3_3",
    ]  # fmt: skip


@pytest.mark.row("N02")
def test_an_id_that_was_used_or_is_strange_is_replaced():
    names = CallNames(set(), 1)
    given = [names.give(0, raw) for raw in ("a", "a", "b c", "\n", "é", "")]

    assert given == ["a", "call_1_1", "call_1_1_2", "call_1_1_3", "call_1_1_4", "call_1_1_5"]


@pytest.mark.row("N02")
def test_calls_that_are_ready_early_are_named_by_their_place_among_them():
    calls = ResponseCalls(set(), 1)
    named = [calls.ready(ToolCall(id="", name="look", arguments=f'{{"n": {number}}}')) for number in range(3)]

    assert [one.id for one in named if one is not None] == ["call_1_1", "call_1_2", "call_1_3"]


def one(call_id: str, n: int = 1, *, name: str = "look", signature: str | None = None) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=f'{{"n":{n}}}', signature=signature)


def collected(
    *parts: Part, early: Collection[ToolCall] = (), cut: Collection[str] = (), unnamed: Collection[str] = (), is_retold: bool = False
) -> Collected:  # fmt: skip
    calls = ResponseCalls(frozenset(), 3)
    for ready in early:
        calls.ready(ready)
    return calls.collect(parts, cut=cut, unnamed=unnamed, is_retold=is_retold)


def ids(found: Collected) -> list[str]:
    return [part.id if isinstance(part, ToolCall) else "-" for part in found.parts]


@pytest.mark.parametrize(
    ("first", "second", "kept"), [(None, "s", "s"), ("s", None, "s"), ("s", "t", "s"), (None, None, None)]
)
def test_a_call_that_is_reported_twice_is_one_with_the_first_proof_of_its_origin(first, second, kept):
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
def test_a_second_call_is_marked_where_it_may_be_the_first_one_again(second, unnamed, is_retold, repeated):
    found = collected(one("a"), second, unnamed=unnamed, is_retold=is_retold)

    assert len(found.parts) == 2
    assert found.repeated == repeated


def test_a_call_that_was_cut_off_is_no_first_of_two():
    found = collected(one("a"), one("b"), cut=["a"], is_retold=True)

    assert (found.cut, found.repeated) == ({"a"}, frozenset())


def test_calls_that_were_ready_early_keep_their_names_and_those_that_are_missing_come_last():
    found = collected(Text("x"), one("", 2), one("b", 3), early=[one("b", 3), one("", 2), one("c", 4)])

    assert ids(found) == ["-", "call_3_2", "b", "c"]


def test_an_early_call_that_went_on_is_another_call_and_only_its_last_form_is_kept():
    found = collected(one("a", 12), early=[one("a", 1)])

    assert ids(found) == ["call_3_1"]
    assert found.parts == (ToolCall(id="call_3_1", name="look", arguments='{"n":12}'),)


def test_a_call_with_an_id_that_is_ready_twice_is_ready_once_and_calls_without_one_are_several():
    calls = ResponseCalls(frozenset({"taken"}), 3)

    named = [calls.ready(one("a")), calls.ready(one("a")), calls.ready(one("")), calls.ready(one("")), calls.ready(one("taken"))]  # fmt: skip

    assert [None if call is None else call.id for call in named] == ["a", None, "call_3_2", "call_3_3", "call_3_4"]
    assert calls.early_count == 4
