"""Large and endless results: read up to a bound, whole in the journal, bounded for the model."""

import base64
import itertools
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pydantic
import pytest

from pipeline_tools import Recorder, content, read, run_calls, statuses, types
from treadle import Budget, RunResult, ToolOutput
from treadle.engine.rules.bounds import bound
from treadle.testing import call

MANY = 2**40


async def returned(value: Any, **words: Any) -> RunResult:
    """Run one call of a read that returns this."""
    return await run_calls(call("look"), tools=[read(Recorder(value))], **words)


def shown(result: RunResult) -> str:
    """Return what the model reads of the first result."""
    return next(one.content for message in result.messages for one in message.results)


async def whole(result: RunResult) -> Any:
    """Return the data of the one result as it is stored."""
    (finished,) = await types(result, "tool.finished")
    if finished.result.artifact is None:
        return finished.result.data
    return json.loads(await result.session.journal.blob(finished.result.artifact))


# --- read up to a bound


class Endless(Mapping[str, str]):
    """Longer than anything: what a conversion counts is tested in tests/validation/test_plain.py."""

    def __len__(self) -> int:
        return MANY

    def __iter__(self) -> Iterator[str]:
        return map(str, itertools.count())

    def __getitem__(self, key: str) -> str:
        return "x" * 1_000_000


@pytest.mark.row("N10", "H21")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Endless(), "more than 268435456 characters"),
        (["x" * 2**24] * 17, "more than 268435456 characters"),
        (bytes(200_000_001), "more than 200000000 bytes"),
        ([*range(60_000), 10**5000], "$[60000] is an integer of more than 4300 digits"),
    ],
    ids=["without an end", "text", "bytes", "a number that no reader takes"],
)
async def test_more_than_a_journal_can_hold_is_refused(value, words):
    result = await returned(value)

    assert statuses(result) == ["unexpected_result_shape"]
    (event,) = await types(result, "contract.violated")
    assert words in event.details[0]["value"] or words in shown(result)


# --- whole, and in a thread

SIZES = [0, 1, 1_000_000]


@pytest.mark.row("N10", "M11")
@pytest.mark.parametrize(
    ("kind", "size"), [*((bytes, size) for size in SIZES), (bytearray, SIZES[-1]), (memoryview, SIZES[-1])]
)
async def test_bytes_are_an_object_of_their_text(kind, size):
    plain = bytes(range(251)) * (size // 251 + 1)

    data = await whole(await returned(kind(plain[:size])))

    assert data["size"] == size
    assert base64.b64decode(data["base64"], validate=True) == plain[:size]


async def test_a_view_with_gaps_is_read_as_its_bytes():
    assert shown(await returned(memoryview(b"a-b-c-")[::2])) == '{"base64":"YWJj","size":3}'


class Report(pydantic.BaseModel):
    rows: list[dict[str, int]]


@pytest.mark.row("N10", "H21")
@pytest.mark.parametrize(
    "value",
    [
        pytest.param([*range(100_000)], id="integers"),
        pytest.param({"output": "\n" * 1_000_000, "n": 1}, id="one text"),
        pytest.param({str(number): "x\n" * 500 for number in range(2_000)}, id="texts"),
        pytest.param([[["x"] * 100] * 100] * 5, id="a tree"),
        pytest.param(Report(rows=[{"a": number} for number in range(20_000)]), id="a model"),
    ],
)
async def test_a_large_result_is_whole_in_the_journal_and_bounded_for_the_model(value):
    result = await returned(value, budget=Budget(max_tool_result_chars=5000))

    assert statuses(result) == ["ok"]
    assert len(shown(result)) <= 5000
    assert "truncated" in shown(result)
    assert await whole(result) == (value.model_dump() if isinstance(value, Report) else value)


class Watched(Mapping[str, int]):
    """Says in which thread it is read."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.threads: list[str] = []

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[str]:
        for number in range(self.length):
            self.threads.append(threading.current_thread().name)
            yield str(number)

    def __getitem__(self, key: str) -> int:
        return 1


@pytest.mark.row("N10", "H21")
async def test_only_the_beginning_of_a_large_result_is_looked_at_in_the_event_loop():
    here, large, small = threading.current_thread().name, Watched(50_000), Watched(100)
    await returned(large)
    await returned(small)

    in_loop = [name for name in large.threads if name == here]
    assert len(in_loop) <= 10_001
    assert large.threads[-50_000:] == ["treadle-tool"] * 50_000
    assert small.threads == [here] * 100


@pytest.mark.row("F06")
@pytest.mark.parametrize(("last", "status"), [(1, "ok"), ("one", "unexpected_result_shape")])
async def test_a_long_result_is_held_to_what_its_tool_promised(last, status):
    promised = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    rows = Recorder([{"n": number} for number in (*range(20_000), last)])

    assert statuses(await run_calls(call("look"), tools=[read(rows, output_schema=promised)])) == [status]


# --- bounded for the model


@pytest.mark.row("N10")
@pytest.mark.parametrize("limit", [None, 60_001, 70_000, 70_001, 200_000])
async def test_a_heavy_result_is_whole_where_it_fits_and_a_preview_where_it_does_not(limit):
    value = [1] * 35_000  # 70,001 characters
    result = await returned(value, budget=Budget(max_tool_result_chars=limit))

    assert await whole(result) == value
    if limit is None or limit >= 70_001:
        assert content(result) == value
    else:
        assert content(result)["total_chars"] == 70_001
        assert len(shown(result)) <= limit


@pytest.mark.row("B10", "TF3")
@pytest.mark.parametrize("value", [[*range(5_000)], [{"a": "é\n" * 10}] * 500], ids=["numbers", "objects"])
async def test_what_the_model_is_shown_of_a_long_result_says_how_much_there_is_and_where(value):
    result = await returned(value, budget=Budget(max_tool_result_chars=1_000))
    found, encoded = content(result), msgspec.json.encode(value).decode()

    assert sorted(found) == ["artifact", "preview", "shown_chars", "total_chars", "truncated"]
    assert (found["truncated"], found["total_chars"], found["shown_chars"]) == (
        True,
        len(encoded),
        len(found["preview"]),
    )
    assert encoded.startswith(found["preview"])
    assert found["artifact"].startswith("a_")


@pytest.mark.row("B10", "TF3")
async def test_a_long_text_is_shortened_and_marked_and_the_rest_is_in_the_journal():
    words = "".join(f"line {n} é\n" for n in range(100_000))
    tools = [read(Recorder(words), "a"), read(Recorder({"rows": words, "count": 3}), "b")]
    result = await run_calls(call("a"), call("b"), tools=tools, budget=Budget(max_tool_result_chars=5000))

    first, second = result.messages[2].results
    ended = {event.call_id: event.result for event in await types(result, "tool.finished")}  # in whatever order
    assert f"of {len(words)} characters" in first.content
    assert max(len(first.content), len(second.content)) <= 5000
    assert json.loads(second.content)["count"] == 3
    assert await result.session.journal.blob(ended[first.call_id].artifact) == words.encode()


@pytest.mark.row("B10")
@pytest.mark.parametrize("limit", [1, 5, 30, 80, 300])
@pytest.mark.parametrize(
    "value", ["x" * 1000, ["é" * 50] * 50, {"a": "x" * 1000, "b": ["y"] * 100}, {"n": 1, "m": [*range(500)]}]
)
async def test_no_limit_is_too_small_to_be_kept(limit, value):
    told = shown(await returned(value, budget=Budget(max_tool_result_chars=limit)))

    assert len(told) <= limit
    if not isinstance(value, str) and limit >= 30:
        json.loads(told)
    assert "truncated" in told or "…" in told


@pytest.mark.parametrize(("own", "of_the_run"), [(300, 700), (700, 300), (None, 300), (300, None)])
async def test_a_result_is_held_to_the_smaller_limit_of_the_tool_and_of_the_run(own, of_the_run):
    tools = [read(Recorder("x" * 5000), result_limit=own)]
    run = await run_calls(call("look"), tools=tools, budget=Budget(max_tool_result_chars=of_the_run))

    assert 250 < len(shown(run)) <= 300


async def test_a_limits_notice_is_kept_when_the_result_beside_it_is_long():
    result = await returned([*range(2000)], budget=Budget(max_tool_result_chars=1000, max_model_turns=1))

    assert content(result)["limit_reached"] is True
    assert "limit reached (1)" in content(result)["limit_message"]
    assert len(shown(result)) <= 1000


@pytest.mark.parametrize(
    "fields", [{"a": "x" * 9000, "b": "y"}, {"b": "y", "a": "x" * 9000}, {"b": 7, "a": "x" * 9000, "c": None}]
)
@pytest.mark.parametrize("limit", [300, 1000])
def test_of_a_long_object_the_longest_text_is_shortened_wherever_it_stands(fields, limit):
    encoded = json.dumps(fields)
    bounded, _ = bound(fields, encoded, limit)
    kept = json.loads(bounded)

    assert len(bounded) <= limit
    assert "of 9000 characters" in kept["a"]
    assert {**kept, "a": ""} == {**fields, "a": ""}


@pytest.mark.parametrize(
    ("value", "begins"),
    [("a summary", "a summary\n[The whole is the artifact "), ({"n": 1}, None), ("{no json", "{no json\n[The whole is the artifact ")],
)  # fmt: skip
async def test_an_artifact_that_a_tool_gives_is_named_beside_its_value(value, begins):
    result = await returned(ToolOutput(data=value, artifact=b"all of it"))

    assert set(content(result)) == {"n", "artifact"} if begins is None else shown(result).startswith(begins)
    (name,) = result.session.state.artifacts
    assert name in shown(result)
