"""Large and endless results: read up to a bound, whole in the journal, bounded for the model."""

import asyncio
import base64
import dataclasses
import itertools
import json
import types as pythons
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pydantic
import pytest

from pipeline_tools import Recorder, content, raising, read, run_calls, statuses, types
from treadle import Agent, Budget, Rejected, RunResult, ToolOutput, tool
from treadle.engine.rules.bounds import bound_encoded
from treadle.testing import ScriptedModel, call, text

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


# --- without end


class World:
    """Counts what was read of the endless things that hang on it."""

    def __init__(self) -> None:
        self.read = 0

    def numbers(self) -> Iterator[int]:
        for number in itertools.count():
            self.read += 1
            yield number


class Endless(Mapping[str, Any]):
    def __init__(self, world: World, value: Any = 1, length: int = MANY) -> None:
        self.world, self.value, self.length = world, value, length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[str]:
        return (f"k{number}" for number in self.world.numbers())

    def __getitem__(self, key: str) -> Any:
        return self.value


class EndlessDict(dict[str, Any]):
    world: World

    def __len__(self) -> int:
        return MANY

    def items(self) -> Any:
        return ((f"k{number}", number) for number in self.world.numbers())


class EndlessList(list[int]):
    world: World

    def __len__(self) -> int:
        return MANY

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return 1
        count = index.stop - index.start
        self.world.read += count
        return [1] * count


class Fork(Mapping[str, Any]):
    """Two forks, each of which is two forks."""

    def __init__(self, world: World, depth: int = 30) -> None:
        self.world, self.depth = world, depth

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __getitem__(self, key: str) -> Any:
        self.world.read += 1
        return Fork(self.world, self.depth - 1) if self.depth else 1


@dataclasses.dataclass
class Branch:
    world: World
    depth: int

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__" or name.startswith("__"):
            return super().__getattribute__(name)
        world, depth = super().__getattribute__("world"), super().__getattribute__("depth")
        world.read += 1
        return Branch(world, depth - 1) if depth else 1


class Dumps(pydantic.BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    world: World
    depth: int = 30

    def model_dump(self, **_: Any) -> Any:
        self.world.read += 1
        return self.depth and [Dumps(world=self.world, depth=self.depth - 1) for _ in range(2)]


class Holder(msgspec.Struct):
    value: Any


class Model(pydantic.BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    value: Any


def with_world(made: Any) -> Callable[[World], Any]:
    def make(world: World) -> Any:
        made.world = world
        return made

    return make


ENDLESS: dict[str, Callable[[World], Any]] = {
    "mapping": Endless,
    "mapping of large texts": lambda world: Endless(world, "x" * 100_000),
    "mapping of texts": lambda world: Endless(world, "x" * 1_000),
    "mapping of large stored lists": lambda world: Endless(world, [1] * 10_000),
    "mapping in a list": lambda world: [1, Endless(world)],
    "mapping of mappings": lambda world: Endless(world, Endless(world)),
    "many mappings": lambda world: [Endless(world, 1, 1_000 + number) for number in range(1_000)],
    "view of a mapping": lambda world: pythons.MappingProxyType(Endless(world)),
    "dict": with_world(EndlessDict(a=1)),
    "list": with_world(EndlessList([1])),
    "forks": Fork,
    "dataclass": lambda world: Branch(world, 30),
    "field of a struct": lambda world: Holder(Endless(world)),
    "field of a model": lambda world: Model(value=Endless(world)),
    "dumps of a model": lambda world: Dumps(world=world),
}


@pytest.mark.row("N10", "H21")
@pytest.mark.parametrize("name", ENDLESS)
async def test_an_endless_result_is_read_up_to_a_bound(name):
    world = World()

    result = await returned(ENDLESS[name](world))

    assert (result.completed, statuses(result)) == (True, ["unexpected_result_shape"])
    assert 0 < world.read <= 250_000
    (event,) = await types(result, "contract.violated")
    assert "more" in event.details[0]["value"]


@pytest.mark.row("N10", "H21")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["x" * 2**24] * 17, "more than 268435456 characters"),
        (bytes(200_000_001), "more than 200000000 bytes"),
        ([*range(60_000), 10**5000], "$[60000] is an integer of more than 4300 digits"),
    ],
    ids=["text", "bytes", "a number that no reader takes"],
)
async def test_more_than_a_journal_can_hold_is_refused(value, words):
    result = await returned(value)

    assert statuses(result) == ["unexpected_result_shape"]
    (event,) = await types(result, "contract.violated")
    assert words in event.details[0]["value"] or words in shown(result)


# --- whole, and in slices

SIZES = [0, 1, 3 * 256 * 1024, 3 * 256 * 1024 + 1, 10_000_000]


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


@pytest.mark.row("N10", "H21")
@pytest.mark.parametrize(
    ("value", "least"),
    [
        pytest.param([*range(1_000_000)], 30, id="integers"),
        pytest.param({"output": "\n" * 10_000_000, "n": 1}, 30, id="one text"),
        pytest.param({str(number): "x\n" * 500 for number in range(10_000)}, 30, id="texts"),
        pytest.param([[["x"] * 100] * 100] * 20, 30, id="a tree"),
        pytest.param(bytes(20_000_000), 25, id="bytes"),
    ],
)
async def test_others_have_their_turns_while_a_large_result_is_looked_at(value, least):
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    @tool(effect="read")
    async def produce() -> Any:
        """Return it."""
        nonlocal turns
        turns = 0
        return value

    watching = asyncio.create_task(watch())
    model = ScriptedModel([call("produce"), text("done")])
    result = await Agent(model, tools=[produce], budget=Budget(max_tool_result_chars=5000)).run("go")
    watching.cancel()

    assert statuses(result) == ["ok"]
    assert turns > least
    assert len(shown(result)) <= 5000
    assert "truncated" in shown(result)
    assert isinstance(value, bytes) or await whole(result) == value


@pytest.mark.row("F06")
@pytest.mark.parametrize(("last", "status"), [(1, "ok"), ("one", "unexpected_result_shape")])
async def test_a_long_result_is_held_to_what_its_tool_promised(last, status):
    """So long that only its text would be kept if nobody looked at its values."""
    promised = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    rows = Recorder([{"n": number} for number in (*range(60_000), last)])

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
    bounded = bound_encoded(fields, [encoded.encode()], limit, total_chars=len(encoded))
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


# --- of refusals, errors and arguments


async def test_a_rejection_of_megabytes_is_bounded_too():
    tools = [read(raising(Rejected({"words": ["no\n" * 1000] * 5000})))]
    result = await run_calls(call("look"), tools=tools, budget=Budget(max_tool_result_chars=5000))

    assert statuses(result) == ["rejected"]
    assert len(shown(result)) <= 5000


@pytest.mark.row("N10")
async def test_an_error_of_megabytes_is_told_in_a_few_words_with_the_place_where_it_was_raised():
    async def produce(arguments: Any, ctx: Any) -> str:
        raise ValueError("no\n" * 5_000_000) from OSError("x" * 1_000_000)

    (failed,) = await types(await run_calls(call("look"), tools=[read(produce, retries=0)]), "tool.attempt_failed")

    assert (len(failed.message) <= 500, len(failed.traceback) <= 8000) == (True, True)
    assert all(words in failed.traceback for words in ("in produce", "OSError: xxx", "ValueError: no"))


async def test_arguments_of_too_many_values_are_told_before_anything_looks_at_them():
    ran = Recorder()
    many = '{"numbers":[' + "1," * 200_000 + "1]}"
    result = await run_calls(call("look", arguments=many), call("look", numbers=[1] * 60_000), tools=[read(ran)])

    assert statuses(result) == ["invalid_json", "ok"]
    assert "more than 100000 values" in shown(result)
    assert ran.runs == 1
