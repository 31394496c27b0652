"""Large and endless results: read up to a bound, whole in the journal, bounded for the model."""

import asyncio
import enum
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_tools import Recorder, content, read, run_calls, statuses, types
from treadle import Agent, Budget, Rejected, Tool, ToolOutput, tool
from treadle.engine.rules.bounds import bound_encoded
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
        {"a": {str(number): "x" * (number % 50) for number in range(30_000)}, "b": "y" * 700_000, "c": [{"k": 1}] * 40_000},
        {"x" * 400_000: "y" * 400_000, "z": 1},
    ],
)  # fmt: skip
def test_an_object_of_many_fields_is_encoded_in_few_pieces_and_as_a_whole_would_be(value):
    data, pieces = walked(value)

    assert b"".join(pieces) == msgspec.json.encode(data)
    assert len(pieces) < 1000


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a summary", "a summary\n[The whole is the artifact "), ({"n": 1}, None), ("{no json", "{no json\n[The whole is the artifact ")],
)  # fmt: skip
async def test_an_artifact_that_a_tool_gives_is_named_beside_its_value(value, shown):
    result = await run_calls(call("look"), tools=[read(Recorder(ToolOutput(data=value, artifact=b"all of it")))])

    (part,) = (one for message in result.messages for one in message.results)
    if shown is None:
        assert set(content(result)) == {"n", "artifact"}
    else:
        assert part.content.startswith(shown)
    async with result.session as session:
        (name,) = session.state.artifacts
        assert name in part.content


@pytest.mark.parametrize("value", [list(range(5_000)), [{"a": "é\n" * 10}] * 500], ids=["numbers", "objects"])
async def test_what_the_model_is_shown_of_a_long_result_says_how_much_there_is_and_where(value):
    result = await run_calls(call("look"), tools=[read(Recorder(value))], budget=Budget(max_tool_result_chars=1_000))

    shown = content(result)
    assert sorted(shown) == ["artifact", "preview", "shown_chars", "total_chars", "truncated"]
    whole = msgspec.json.encode(value).decode()
    assert shown["truncated"] is True
    assert (shown["total_chars"], shown["shown_chars"]) == (len(whole), len(shown["preview"]))
    assert whole.startswith(shown["preview"])
    assert shown["artifact"].startswith("a_")


@pytest.mark.parametrize(("own", "of_the_run"), [(300, 700), (700, 300), (None, 300), (300, None)])
async def test_a_result_is_held_to_the_smaller_limit_of_the_tool_and_of_the_run(own, of_the_run):
    tools = [read(Recorder("x" * 5000), result_limit=own)]
    run = await run_calls(call("look"), tools=tools, budget=Budget(max_tool_result_chars=of_the_run))

    assert 250 < len(run.messages[-2].results[0].content) <= 300


@pytest.mark.parametrize(
    "fields", [{"a": "x" * 9000, "b": "y"}, {"b": "y", "a": "x" * 9000}, {"b": 7, "a": "x" * 9000, "c": None}]
)
@pytest.mark.parametrize("limit", [300, 1000])
def test_of_a_long_object_the_longest_text_is_shortened_wherever_it_stands(fields, limit):
    whole = json.dumps(fields)

    shown = bound_encoded(fields, [whole.encode()], limit, total_chars=len(whole))

    kept = json.loads(shown)
    assert len(shown) <= limit
    assert {name: value for name, value in kept.items() if name != "a"} == {
        name: value for name, value in fields.items() if name != "a"
    }
    assert "of 9000 characters" in kept["a"]


@pytest.mark.row("F06")
@pytest.mark.parametrize(("last", "status"), [(1, "ok"), ("one", "unexpected_result_shape")])
async def test_a_long_result_is_held_to_what_its_tool_promised(last, status):
    """So long that only its text would be kept if nobody looked at its values."""
    promised = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}

    async def look(arguments: Any, ctx: Any) -> Any:
        return [{"n": number} for number in (*range(60_000), last)]

    run = await run_calls(call("look"), tools=[read(look, output_schema=promised)])

    assert statuses(run) == [status]


@pytest.mark.row("B10", "TF3")
async def test_a_long_result_is_shortened_and_marked_and_the_rest_is_in_the_journal():
    whole = "".join(f"line {n} é\n" for n in range(100_000))

    async def run(arguments, ctx):
        return whole if arguments["n"] == 1 else {"rows": whole, "count": 3}

    result = await run_calls(
        call("look", n=1), call("look", n=2), tools=[read(run)], budget=Budget(max_tool_result_chars=5000)
    )

    first, second = result.messages[2].results
    assert len(first.content) <= 5000
    assert f"of {len(whole)} characters" in first.content
    assert len(second.content) <= 5000
    assert json.loads(second.content)["count"] == 3
    ended = {event.call_id: event.result for event in await types(result, "tool.finished")}  # in whatever order
    assert await result.session.journal.blob(ended[first.call_id].artifact) == whole.encode()


@pytest.mark.row("B10")
@pytest.mark.parametrize("limit", [1, 5, 30, 80, 300])
@pytest.mark.parametrize("value", ["x" * 1000, ["é" * 50] * 50, {"a": "x" * 1000, "b": ["y"] * 100}, {"n": 1, "m": list(range(500))}])  # fmt: skip
async def test_no_limit_is_too_small_to_be_kept(limit, value):
    async def run(arguments, ctx):
        return value

    result = await run_calls(
        call("look"), tools=[read(run)], budget=Budget(max_tool_result_chars=limit, max_model_turns=3)
    )

    told = result.messages[2].results[0].content
    assert len(told) <= limit
    if not isinstance(value, str) and limit >= 30:
        json.loads(told)
    assert "truncated" in told or "…" in told


async def test_a_limits_notice_is_kept_when_the_result_beside_it_is_long():
    async def run(arguments, ctx):
        return list(range(2000))

    result = await run_calls(
        call("look"), tools=[read(run)], budget=Budget(max_tool_result_chars=1000, max_model_turns=1)
    )

    told = content(result)
    assert told["limit_reached"] is True
    assert "limit reached (1)" in told["limit_message"]
    assert len(result.messages[2].results[0].content) <= 1000
