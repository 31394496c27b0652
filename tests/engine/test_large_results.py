"""Large results: whole in the journal, bounded for the model, and never a reason to hold the event loop."""

import asyncio
import enum
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import Agent, Budget, Rejected, Tool, tool
from treadle.testing import ScriptedModel, call, text
from treadle.validation.plain import NotData, Walk


def walked(value: Any) -> tuple[Any, list[bytes]]:
    walk = Walk(value)
    for _ in walk.steps():
        pass
    return walk.data, list(walk.encoded())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)  # fmt: skip


@given(JSON, st.sampled_from([1, 300, 3000]))
def test_the_pieces_of_a_text_are_the_text_of_the_value(value, times):
    large: Any = {"many": [value] * times, "long": "é\n" * 100 * times, "one": value}
    data, pieces = walked(large)

    assert data == large
    assert json.loads(b"".join(pieces)) == large


@given(JSON, st.sampled_from([1, 5, 40]), st.integers(1, 60))
def test_a_text_that_is_written_while_the_value_is_converted_is_the_same_text(value, times, text_from):
    large: Any = {"many": [value] * times, "long": "é\n" * 100, "one": value, "deep": {"er": [{"a": value}] * 3}}
    walk = Walk(large, text_from=text_from)
    for _ in walk.steps():
        pass
    whole = b"".join(walk.encoded())

    assert json.loads(whole) == large
    assert walk.is_text or len(whole) < 2 * text_from + 1 or walk.data == large
    assert not walk.is_text or len(whole.decode()) >= 2 * text_from - 1


class Twice(enum.Enum):
    ONE = "3"


@pytest.mark.parametrize("odd", [Twice.ONE, 3], ids=["twice", "no text"])
def test_a_key_is_looked_at_also_where_only_the_text_is_kept(odd):
    walk = Walk({**{str(number): 1 for number in range(100)}, odd: 1}, text_from=10)

    with pytest.raises(NotData, match="has the key '3' twice" if odd is Twice.ONE else "has a key that is a int"):
        for _ in walk.steps():
            pass


async def test_a_number_that_no_reader_takes_is_found_in_a_long_list_too():
    @tool(effect="read")
    async def produce():
        """Return it."""
        return [*range(60_000), 10**5000]

    model = ScriptedModel([call("produce"), text("done")])
    result = await Agent(model, tools=[produce]).run("go")

    assert [one.status for one in result.tool_calls] == ["unexpected_result_shape"]
    assert "$[60000] is an integer of more than 4300 digits" in str(model.requests[1].messages[-1])


@pytest.mark.row("N10")
@pytest.mark.parametrize("limit", [None, 60_001, 70_000, 200_000])
async def test_a_heavy_result_is_whole_where_it_fits_and_a_preview_where_it_does_not(limit):
    value = [1] * 35_000  # 70,001 characters

    def run(arguments: Any, ctx: Any) -> Any:
        return value

    produce = Tool(name="produce", description="Return it.", parameters={"type": "object"}, effect="read", run=run)
    model = ScriptedModel([call("produce"), text("done")])
    result = await Agent(model, tools=[produce], budget=Budget(max_tool_result_chars=limit)).run("go")

    (finished,) = [event for event in await result.session.events() if event.type == "tool.finished"]
    if limit is None or limit > 70_001:
        assert finished.result.data == value
        assert json.loads(finished.result.content) == value
    else:
        shown = json.loads(finished.result.content)
        assert shown["total_chars"] == 70_001
        assert len(finished.result.content) <= limit
        assert json.loads(await result.session.ledger.journal.blob(finished.result.artifact)) == value


@pytest.mark.row("N10")
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(list(range(1_000_000)), id="integers"),
        pytest.param([{"a": 1.0}] * 200_000, id="objects"),
        pytest.param({"output": "\n" * 10_000_000, "n": 1}, id="one text"),
        pytest.param({str(number): "x\n" * 500 for number in range(10_000)}, id="texts"),
        pytest.param([[["x"] * 100] * 100] * 20, id="a tree"),
    ],
)
async def test_a_large_result_is_looked_at_in_slices(value):
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    @tool(effect="read")
    async def produce() -> list[Any] | dict[str, Any]:
        """Return it."""
        nonlocal turns
        turns = 0
        return value

    model = ScriptedModel([call("produce"), text("done")])
    watching = asyncio.create_task(watch())
    result = await Agent(model, tools=[produce], budget=Budget(max_tool_result_chars=5000)).run("go")
    watching.cancel()

    assert [one.status for one in result.tool_calls] == ["ok"]
    assert turns > 30
    shown = model.requests[1].messages[-1].parts[0].content
    assert len(shown) <= 5000
    assert "truncated" in shown
    finished = [event for event in await result.session.events() if event.type == "tool.finished"]
    assert json.loads(await result.session.ledger.journal.blob(finished[0].result.artifact)) == value


class Endless(Mapping[str, int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __getitem__(self, key: str) -> int:
        return 1

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            yield str(number)
            number += 1


@pytest.mark.row("N10", "H21")
@pytest.mark.parametrize(
    ("length", "words"), [(10**9, "has more than 10000 values"), (1, "has a length of 1, and more items")]
)
def test_a_mapping_without_an_end_is_not_data(length, words):
    walk = Walk(Endless(length), max_values=10_000)

    with pytest.raises(NotData, match=words):
        for _ in walk.steps():
            pass


async def test_a_rejection_of_megabytes_is_bounded_too():
    @tool(effect="read")
    async def produce() -> str:
        """Return it."""
        raise Rejected({"words": ["no\n" * 1000] * 5000})

    model = ScriptedModel([call("produce"), text("done")])
    result = await Agent(model, tools=[produce], budget=Budget(max_tool_result_chars=5000)).run("go")

    assert [one.status for one in result.tool_calls] == ["rejected"]
    assert len(model.requests[1].messages[-1].parts[0].content) <= 5000


def test_the_place_of_what_is_not_data_is_named():
    for value, place in (
        ({"a": [1, {"b": {1}}]}, "$.a[1].b is a set"),
        ([0.5, float("nan")], "$[1] is nan"),
        ({"\ud800": 1}, "$, in a key, holds a lone surrogate"),
        ([[1] * 3000 + [b"x"]], "$[0][3000] is a bytes"),
    ):
        with pytest.raises(NotData) as caught:
            walked(value)
        assert str(caught.value).startswith(place)


@pytest.mark.row("N10")
async def test_an_error_of_megabytes_is_told_in_a_few_words_with_the_place_where_it_was_raised():
    @tool(effect="read", retries=0)
    async def produce() -> str:
        """Return it."""
        raise ValueError("no\n" * 5_000_000) from OSError("x" * 1_000_000)

    result = await Agent(ScriptedModel([call("produce"), text("done")]), tools=[produce]).run("go")
    (failed,) = [event for event in await result.session.events() if event.type == "tool.attempt_failed"]

    assert len(failed.message) <= 500
    assert len(failed.traceback) <= 8000
    assert "in produce" in failed.traceback
    assert "OSError: xxx" in failed.traceback
    assert "ValueError: no" in failed.traceback


async def test_arguments_of_too_many_values_are_told_before_anything_looks_at_them():
    ran = []

    @tool(effect="read")
    async def take(numbers: list[int]) -> int:
        """Count them."""
        ran.append(len(numbers))
        return len(numbers)

    many = '{"numbers":[' + "1," * 200_000 + "1]}"
    model = ScriptedModel([call("take", arguments=many), call("take", numbers=[1] * 60_000), text("done")])
    result = await Agent(model, tools=[take]).run("go")

    assert [one.status for one in result.tool_calls] == ["invalid_json", "ok"]
    assert "more than 100000 values" in model.requests[1].messages[-1].parts[0].content
    assert ran == [60_000]


@pytest.mark.row("N10")
@pytest.mark.parametrize(
    "value",
    [
        {str(number): "x" for number in range(50_000)},
        {
            "a": {str(number): "x" * (number % 50) for number in range(30_000)},
            "b": "y" * 700_000,
            "c": [{"k": 1}] * 40_000,
        },
        {"x" * 400_000: "y" * 400_000, "z": 1},
    ],
)
def test_an_object_of_many_fields_is_encoded_in_few_pieces_and_as_a_whole_would_be(value):
    data, pieces = walked(value)

    assert b"".join(pieces) == msgspec.json.encode(data)
    assert len(pieces) < 1000
