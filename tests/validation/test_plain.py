"""From what a tool returns to JSON data: what becomes what, what is refused, and how much is looked at."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import types
import uuid
from collections import ChainMap, Counter, OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.validation import NotData, TooMuch, data_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_json_data_stays_as_it_is(value):
    assert data_of(value) == value


# --- what becomes what


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass
class Point:
    x: int
    when: dt.date


class Ring(msgspec.Struct, tag="ring", rename="camel"):
    is_heavy: bool


class Field(msgspec.Struct, tag="x", tag_field="kind"):
    a: int
    b: int | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True):
    a: int
    b: list[int]


class TaggedRow(msgspec.Struct, array_like=True, tag="t"):
    a: int


class Hobbit(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    born: dt.date


class Fellowship(pydantic.BaseModel):
    model_config = {"extra": "allow"}
    members: list[Hobbit]


class Counts(pydantic.BaseModel):
    rows: list[int]

    @pydantic.field_serializer("rows")
    def count(self, rows: list[int]) -> int:
        return len(rows)


class Text(str):
    __slots__ = ()


FRODO = Hobbit(fullName="Frodo", born=dt.date(2968, 9, 22))


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, None),
        ({"a": [1, 2.5, "x", True, None]}, {"a": [1, 2.5, "x", True, None]}),
        ((1, (2,)), [1, [2]]),
        (Colour.RED, "red"),
        ({Colour.RED: Level.LOW}, {"red": 1}),
        (Pair(1, "b"), [1, "b"]),
        (Point(1, dt.date(2024, 1, 2)), {"x": 1, "when": "2024-01-02"}),
        (Ring(is_heavy=True), {"type": "ring", "isHeavy": True}),
        (FRODO, {"fullName": "Frodo", "born": "2968-09-22"}),
        (Fellowship(members=[FRODO], ring=1), {"members": [{"fullName": "Frodo", "born": "2968-09-22"}], "ring": 1}),
        (Counts(rows=[7, 7]), {"rows": 2}),
        (dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "2024-01-02T03:04:05Z"),
        (dt.time(3, 4), "03:04:00"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1E+3"), "1000"),
        (decimal.Decimal("1E+399"), "1" + "0" * 399),
        (decimal.Decimal("1E+400"), "1E+400"),
        (decimal.Decimal("1E-399"), "0." + "0" * 398 + "1"),
        (decimal.Decimal("1E-400"), "1E-400"),
        (decimal.Decimal("-2.50"), "-2.50"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (ChainMap({"a": 1}, {"b": 2}), {"a": 1, "b": 2}),
        (OrderedDict(a=Counter("x")), {"a": {"x": 1}}),
        ([1, 10**400], [1, 10**400]),
        (Text("x"), "x"),
    ],
    ids=repr,
)
def test_a_value_becomes_plain_data(value, data):
    plain = data_of(value)

    assert plain == data
    assert type(plain) is type(data)


@pytest.mark.parametrize("value", [Ring(is_heavy=True), Field(1), Field(1, 2), Row(1, [2]), TaggedRow(1)], ids=repr)
def test_a_struct_is_what_msgspec_makes_of_it(value: Any) -> None:
    assert json.dumps(data_of(value)) == json.dumps(msgspec.to_builtins(value))


# --- what is refused

LOOP: list[object] = []
LOOP.append(LOOP)


class Short(Mapping[str, int]):
    """Says that it is shorter than it is."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[str]:
        return iter("abc")

    def __getitem__(self, key: str) -> int:
        return 1


@pytest.mark.row("MF7")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": [float("nan")]}, "$.a[0] is nan"),
        ([*range(4321), float("nan")], "$[4321] is nan"),
        (float("inf"), "$ is inf"),
        ({"a": [0, {1}]}, "$.a[1] is a set, which JSON cannot hold: return a sorted list"),
        (frozenset(), "$ is a frozenset, which JSON cannot hold: return a sorted list"),
        (b"x", "$ is a bytes, which JSON cannot hold: return text, or ToolOutput with media"),
        (memoryview(b""), "$ is a memoryview, which JSON cannot hold: return text, or ToolOutput with media"),
        ({"a": object()}, "$.a is a object, which JSON cannot hold: return an object, a dataclass or a model"),
        (Point(1, print), "$.when is a builtin"),
        (Point, "$ is a type"),
        ((item for item in ()), "$ is a generator"),
        ("x" * 300_000 + "\ud800", "$ holds a lone surrogate, which is not text"),
        ({"a": {"\ud800": 1}}, "$.a, in a key, holds a lone surrogate, which is not text"),
        ([{1: 2}], "$[0] has a key that is a int, not text"),
        ({Colour.RED: 1, "red": 2}, "$ has the key 'red' twice"),
        (decimal.Decimal("NaN"), "$ is NaN, which JSON cannot hold"),
        ([*range(9), 10**5000], "$[9] is an integer of more than 4300 digits"),
        (Short(), "$ has a length of 2, and more items than that"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_refused_with_its_place_and_never_shown(value, reason):
    with pytest.raises(NotData) as caught:
        data_of(value)

    assert str(caught.value).startswith(reason)
    assert " at 0x" not in str(caught.value)
    str(caught.value).encode()


def nested(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "levels"),
    [(0, 201), (Colour.RED, 199), ({"a": 0}, 199), (Row(0, []), 199), (Counts(rows=[]), 198)],
    ids=["number", "enum", "object", "struct", "model"],
)
def test_two_hundred_levels_may_stand_in_one_another_and_no_more(value: Any, levels: int) -> None:
    data_of(nested(levels, value))
    with pytest.raises(NotData, match="nested too deeply or contains itself"):
        data_of(nested(levels + 1, value))


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(NotData, match="contains itself"):
        data_of(LOOP)


# --- how much is looked at

MANY = 2**40


class Endless(Mapping[str, Any]):
    def __init__(self, value: Any = 1) -> None:
        self.value = value
        self.read = 0

    def __len__(self) -> int:
        return MANY

    def __iter__(self) -> Iterator[str]:
        while True:
            self.read += 1
            yield f"k{self.read}"

    def __getitem__(self, key: str) -> Any:
        return self.value


class EndlessList(list[int]):
    def __len__(self) -> int:
        return MANY


class Fork(Mapping[str, Any]):
    """Two forks, each of which is two forks."""

    def __init__(self, depth: int = 30) -> None:
        self.depth = depth

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __getitem__(self, key: str) -> Any:
        return Fork(self.depth - 1) if self.depth else 1


@dataclasses.dataclass
class Branch:
    depth: int = 30
    more: Any = None

    def __getattribute__(self, name: str) -> Any:
        depth = super().__getattribute__("depth")
        return Branch(depth - 1) if name in ("depth", "more") and depth else super().__getattribute__(name)


class Dumps(pydantic.BaseModel):
    depth: int = 30

    def model_dump(self, **_: Any) -> Any:
        return self.depth and [Dumps(depth=self.depth - 1), Dumps(depth=self.depth - 1)]


class Holder(msgspec.Struct):
    value: Any


class Model(pydantic.BaseModel):
    model_config = {"arbitrary_types_allowed": True, "extra": "allow"}
    value: Any = None


def doubled() -> Any:
    value: Any = [1]
    for _ in range(40):
        value = [value, value]
    return value


@pytest.mark.row("N10", "H21")
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda: [0] * 10_000, id="a list"),
        pytest.param(Endless, id="a mapping"),
        pytest.param(lambda: types.MappingProxyType(Endless(Endless())), id="a view of mappings"),
        pytest.param(lambda: [1, Holder(Endless([1] * 100))], id="a field of a struct"),
        pytest.param(lambda: EndlessList([1]), id="a list that says so"),
        pytest.param(Fork, id="forks"),
        pytest.param(Branch, id="a dataclass"),
        pytest.param(Dumps, id="dumps of a model"),
        pytest.param(lambda: Model(value=Endless()), id="a field of a model"),
        pytest.param(doubled, id="what holds itself twice"),
        pytest.param(lambda: Model(value=doubled()), id="what holds itself twice, in a model"),
        pytest.param(lambda: Model(more=[Model(value=doubled())]), id="what holds itself twice, beyond the fields"),
        pytest.param(lambda: Model(value={frozenset(range(10_000))}), id="a set in a model"),
    ],
)
def test_only_so_many_values_are_looked_at_whatever_makes_them(value: Any) -> None:
    with pytest.raises(TooMuch, match="has more than 10000 values: store it"):
        data_of(value(), max_values=10_000)


@pytest.mark.row("N10", "H21")
def test_only_so_many_characters_are_looked_at() -> None:
    endless = Endless("x" * 1_000_000)
    with pytest.raises(TooMuch, match="has more than 268435456 characters: store it"):
        data_of(endless)

    assert endless.read < 2**28 // 1_000_000 + 2
    assert data_of(["xx", {"yy": "z"}], max_chars=5) == ["xx", {"yy": "z"}]
    with pytest.raises(TooMuch, match="more than 4 characters"):
        data_of(["xx", {"yy": "z"}], max_chars=4)


def test_a_row_that_stands_in_many_places_counts_each_time() -> None:
    value = [["x"] * 99] * 100

    assert data_of(value, max_values=10_001) == value
    with pytest.raises(TooMuch):
        data_of(value, max_values=10_000)
