"""Endless results: what a tool returns is read up to a bound, in values, characters and bytes, whatever makes them."""

import asyncio
import base64
import dataclasses
import itertools
import types
from collections import ChainMap, Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pydantic
import pytest

from treadle import Agent, tool
from treadle.testing import ScriptedModel, call, text
from treadle.validation import NotData, Walk, data_of

MANY = 2**40


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
        return self.depth and [
            Dumps(world=self.world, depth=self.depth - 1),
            Dumps(world=self.world, depth=self.depth - 1),
        ]


class Holder(msgspec.Struct):
    value: Any


class Model(pydantic.BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    value: Any


def with_world(kind: Any) -> Callable[[World], Any]:
    def make(world: World) -> Any:
        made = kind([("a", 1)]) if issubclass(kind, dict) else kind([1])
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
    "view of a mapping": lambda world: types.MappingProxyType(Endless(world)),
    "dict": with_world(EndlessDict),
    "list": with_world(EndlessList),
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

    @tool(effect="read")
    async def produce() -> Any:
        """Return it."""
        return ENDLESS[name](world)

    model = ScriptedModel([call("produce"), text("done")])
    result = await Agent(model, tools=[produce]).run("go")

    assert result.completed
    assert [one.status for one in result.tool_calls] == ["unexpected_result_shape"]
    assert 0 < world.read <= 250_000
    (event,) = (one for one in await result.session.events() if one.type == "contract.violated")
    assert "more" in event.details[0]["value"]


def doubled(times: int) -> Any:
    value: Any = [1]
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.row("N10", "H21")
@pytest.mark.parametrize("wrapped", [lambda one: one, lambda one: {"a": one}, Holder, lambda one: Model(value=one)])
def test_what_holds_itself_many_times_is_refused_before_it_is_written_out(wrapped):
    walk = Walk(wrapped(doubled(40)))

    with pytest.raises(NotData, match="holds the same lists or objects so often"):
        for _ in walk.steps():
            pass
    assert walk.values < 1_500_000


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([["x"] * 100] * 1_000, id="one row often"),
        pytest.param(types.MappingProxyType({"a": [1] * 50_000}), id="a view"),
        pytest.param(OrderedDict((str(number), number) for number in range(150_000)), id="an ordered dict"),
        pytest.param(Counter({str(number): number for number in range(150_000)}), id="a counter"),
        pytest.param({"rows": [{"id": number} for number in range(100_000)]}, id="rows"),
    ],
)
def test_what_is_stored_may_be_larger_than_what_is_made(value):
    assert data_of(value) == value


def test_many_equal_small_models_are_data():
    rows = [Model(value=[[number] * 80]) for number in range(9_000)]

    assert data_of(rows)[-1] == {"value": [[8_999] * 80]}


def test_a_chain_of_dicts_is_data():
    assert data_of(ChainMap({"a": 1}, {"b": 2})) == {"a": 1, "b": 2}


@pytest.mark.row("N10", "H21")
async def test_more_text_than_a_journal_can_hold_is_refused():
    piece = "x" * 2**24

    @tool(effect="read")
    async def produce() -> list[str]:
        """Return it."""
        return [piece] * 17

    model = ScriptedModel([call("produce"), text("done")])
    result = await Agent(model, tools=[produce]).run("go")

    assert [one.status for one in result.tool_calls] == ["unexpected_result_shape"]
    (event,) = (one for one in await result.session.events() if one.type == "contract.violated")
    assert "more than 268435456 characters" in event.details[0]["value"]


@pytest.mark.row("N10", "M11")
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=["bytes", "bytearray", "memoryview"])
@pytest.mark.parametrize("size", [0, 1, 3 * 256 * 1024, 3 * 256 * 1024 + 1, 10_000_000])
async def test_bytes_are_an_object_of_their_text_made_in_slices(kind, size):
    content = bytes(range(251)) * (size // 251 + 1)

    @tool(effect="read")
    async def produce() -> Any:
        """Return it."""
        return kind(content[:size])

    result = await Agent(ScriptedModel([call("produce"), text("done")]), tools=[produce]).run("go")

    (event,) = (one for one in await result.session.events() if one.type == "tool.finished")
    data = event.result.data
    if event.result.artifact is not None:
        data = msgspec.json.decode(await result.session.ledger.journal.blob(event.result.artifact))
    assert data["size"] == size
    assert base64.b64decode(data["base64"], validate=True) == content[:size]


@pytest.mark.row("N10", "H21")
async def test_large_bytes_give_others_their_turns():
    turns: list[int] = []

    @tool(effect="read")
    async def produce() -> bytes:
        """Return it."""
        turns.clear()
        return bytes(20_000_000)

    async def watch() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(1)

    watching = asyncio.create_task(watch())
    result = await Agent(ScriptedModel([call("produce"), text("done")]), tools=[produce]).run("go")
    watching.cancel()

    assert [one.status for one in result.tool_calls] == ["ok"]
    assert len(turns) > 25


@pytest.mark.row("N10", "H21")
async def test_bytes_that_no_journal_would_hold_are_refused():
    @tool(effect="read")
    async def produce() -> bytes:
        """Return it."""
        return bytes(200_000_001)

    result = await Agent(ScriptedModel([call("produce"), text("done")]), tools=[produce]).run("go")

    assert [one.status for one in result.tool_calls] == ["unexpected_result_shape"]
    (event,) = (one for one in await result.session.events() if one.type == "contract.violated")
    assert "more than 200000000 bytes" in event.details[0]["value"]


async def test_a_view_with_gaps_is_read_as_its_bytes():
    @tool(effect="read")
    async def produce() -> memoryview:
        """Return it."""
        return memoryview(b"a-b-c-")[::2]

    result = await Agent(ScriptedModel([call("produce"), text("done")]), tools=[produce]).run("go")

    assert result.messages[2].results[0].content == '{"base64":"YWJj","size":3}'
