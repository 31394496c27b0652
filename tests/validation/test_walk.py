"""The conversion of a result: what it counts, where it pauses, what it writes and what it hands over to be kept."""

import dataclasses
import decimal
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

import msgspec
import pydantic
import pytest

from treadle.validation.plain import NotData, Walk, data_of

SLICE = 2000
HEAVY = 20_000
LONG = 256 * 1024


def walked(value: Any, **options: Any) -> Walk:
    walk = Walk(value, **options)
    for _ in walk.steps():
        pass
    return walk


def pauses(value: Any) -> int:
    return sum(1 for _ in Walk(value).steps())


# --- what is counted


@pytest.mark.parametrize(
    ("value", "values", "chars"),
    [
        (1, 1, 0),
        ("xy", 1, 2),
        ([1, None, True], 4, 0),
        ([1, "abc"], 3, 3),
        ({"ab": 1, "c": "de"}, 3, 5),
        ([[], {}, [1]], 5, 0),
        ([1] * 2001, 2002, 0),
    ],
)
def test_each_value_counts_once_and_each_character_of_its_texts_and_keys(value: Any, values: int, chars: int) -> None:
    walk = walked(value)

    assert (walk.values, walk.chars, walk.data, walk.is_text) == (values, chars, value, False)


@pytest.mark.parametrize(
    ("value", "whole"),
    [(1.0, True), (1.5, False), ([1.0, 1.5], True), ([1.5, 1.0, 2.5], True), (1, False), ("1.0", False)],
)
def test_a_whole_float_anywhere_is_noted(value: Any, whole: bool) -> None:
    assert walked(value).has_whole_floats is whole


@pytest.mark.parametrize(
    ("value", "heavy"),
    [
        ([0] * (HEAVY - 1), False),
        ([0] * HEAVY, True),
        ("x" * (16 * HEAVY - 1), False),
        ("x" * 16 * HEAVY, True),
        ([0] * (HEAVY - 3) + ["x" * 31], False),
        ([0] * (HEAVY - 3) + ["x" * 32], True),
    ],
    ids=range(6),
)
def test_a_value_is_heavy_by_its_values_and_by_sixteen_characters_each(value: Any, heavy: bool) -> None:
    assert walked(value).is_heavy is heavy


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_two_hundred_lists_may_stand_in_one_another_and_no_more() -> None:
    assert data_of(nested(201)) == nested(201)
    with pytest.raises(NotData, match="nested too deeply or contains itself"):
        data_of(nested(202))


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ([0] * 1998, 0, 0),
        ([0] * 1999, 1, 1),
        ([0] * 20 * SLICE, 20, 21),
        ([[0]] * 10 * SLICE, 20, 21),
        ({str(number): 0 for number in range(10 * SLICE)}, 10, 11),
        ("x" * LONG, 0, 0),
        ("x" * (LONG + 1), 2, 2),
    ],
    ids=range(7),
)
def test_a_pause_is_made_after_each_slice(value: Any, least: int, most: int) -> None:
    assert least <= pauses(value) <= most


def test_the_number_of_values_is_compared_with_its_limit_at_each_pause() -> None:
    assert walked([0] * 4000, max_values=4001).values == 4001
    with pytest.raises(NotData, match="more than 4000 values"):
        walked([0] * 4000, max_values=4000)


# --- what JSON cannot hold


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1}, "is a set, which JSON cannot hold: return a sorted list"),
        (frozenset(), "is a frozenset, which JSON cannot hold: return a sorted list"),
        (bytearray(), "is a bytearray, which JSON cannot hold: return text, or ToolOutput with media"),
        (memoryview(b""), "is a memoryview, which JSON cannot hold: return text, or ToolOutput with media"),
        (object(), "is a object, which JSON cannot hold: return an object, a dataclass or a model"),
        ({2: 1}, "has a key that is a int, not text"),
        ({"\ud800": 1}, ", in a key, holds a lone surrogate, which is not text"),
        (decimal.Decimal("Infinity"), "is Infinity, which JSON cannot hold"),
    ],
    ids=range(8),
)
def test_what_json_cannot_hold_is_told_with_what_to_return_instead(value: Any, words: str) -> None:
    with pytest.raises(NotData) as caught:
        data_of({"a": [0, value]})

    shown = str(caught.value)
    assert shown.startswith("$.a[1]")
    assert shown.removeprefix("$.a[1]").strip() == words


def test_the_place_of_a_fault_far_back_in_a_list_is_its_own_index() -> None:
    with pytest.raises(NotData, match=r"^\$\[4321\] is nan"):
        data_of([*range(4321), float("nan")])


def test_half_a_character_is_found_in_every_part_of_a_long_text() -> None:
    for at in (0, LONG - 1, LONG, 2 * LONG - 1, 2 * LONG):
        long = "x" * at + "\ud800" + "x" * (2 * LONG + 5 - at)
        with pytest.raises(NotData, match="lone surrogate"):
            data_of(long)


class Short(Mapping[str, int]):
    """Says that it is shorter than it is."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[str]:
        return iter("abc")

    def __getitem__(self, key: str) -> int:
        return 1


def test_a_mapping_with_more_items_than_its_length_is_refused() -> None:
    with pytest.raises(NotData, match="has a length of 2, and more items than that"):
        data_of(Short())
    assert data_of(MappingProxyType({"a": 1, "b": 2})) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("number", "written"),
    [
        ("1E+399", "1" + "0" * 399),
        ("1E+400", "1E+400"),
        ("1E-399", "0." + "0" * 398 + "1"),
        ("1E-400", "1E-400"),
        ("-2.50", "-2.50"),
    ],
)
def test_a_decimal_is_written_out_unless_that_were_hundreds_of_digits(number: str, written: str) -> None:
    assert data_of(decimal.Decimal(number)) == written


# --- classes


class Tagged(msgspec.Struct, tag="ring"):
    a: int


class Field(msgspec.Struct, tag="x", tag_field="kind"):
    a: int
    b: int | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True):
    a: int
    b: list[int]


class TaggedRow(msgspec.Struct, array_like=True, tag="t"):
    a: int


@pytest.mark.parametrize("value", [Tagged(1), Field(1), Field(1, 2), Row(1, [2]), TaggedRow(1)], ids=repr)
def test_a_struct_is_what_msgspec_makes_of_it(value: Any) -> None:
    assert json.dumps(data_of(value)) == json.dumps(msgspec.to_builtins(value))


@dataclasses.dataclass
class Slow:
    rows: Any

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return list(found) if name == "rows" else found


class Dumps(pydantic.BaseModel):
    rows: list[int] = pydantic.Field(alias="Rows")

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return super().model_dump(**options)


class Lazy(Mapping[str, Any]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str]:
        return map(str, range(self.count))

    def __getitem__(self, key: str) -> int:
        return 1


MAKERS = {
    "a dataclass": lambda count: Slow([0] * count),
    "a model": lambda count: Dumps(Rows=[0] * count),
    "a mapping": Lazy,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_makes_its_values_may_make_many_and_what_follows_it_may_store_more(make: Any) -> None:
    assert walked([make(60_000), [0] * 300_000, make(30_000)]).values > 390_000
    with pytest.raises(NotData, match="makes more than 100000 values"):
        data_of([make(60_000), [0] * 300_000, make(60_000)])


def test_a_model_is_told_by_its_aliases_and_one_inside_of_another_too() -> None:
    class Outer(pydantic.BaseModel):
        inner: Dumps

    assert data_of(Outer(inner=Dumps(Rows=[1]))) == {"inner": {"Rows": [1]}}


def test_a_model_that_holds_too_much_is_refused_before_it_is_dumped() -> None:
    class Model(pydantic.BaseModel):
        rows: list[Any]

        def model_dump(self, **options: Any) -> dict[str, Any]:
            raise AssertionError("It was dumped.")

    walk = Walk(Model(rows=[0] * 5000), max_values=4999)

    with pytest.raises(NotData, match="more than 4999 values"):
        for _ in walk.steps():
            pass


def test_a_large_model_is_counted_with_pauses() -> None:
    class Model(pydantic.BaseModel):
        rows: list[list[int]]

    assert pauses(Model(rows=[[0] * 10] * 10_000)) > 100


# --- what is written


LARGE: dict[str, Any] = {
    "empty": [[], {}, ""],
    "text at the limit": "é" * LONG,
    "text over the limit": '"\\\n' * (LONG // 3 + 1),
    "list": list(range(3 * HEAVY)),
    "list of heavy lists": [[0] * (HEAVY + 1), [1], {}, [0] * (HEAVY + 1), []],
    "objects": [{"a": number, "b": [number]} for number in range(HEAVY)],
    "object": {str(number): number for number in range(HEAVY + 1)},
    "object of heavy objects": {"a": {str(number): 0 for number in range(HEAVY + 1)}, "b": 1, "c": [0] * (HEAVY + 1), "d": ""},
    "texts": {str(number): "x" * 5000 for number in range(200)},
    "long names": {"k" * 5000 + str(number): number for number in range(200)},
}  # fmt: skip


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("text_from", [None, 1, 100, SLICE, 10**9])
def test_the_pieces_make_up_the_text_and_none_is_large(value: Any, text_from: int | None) -> None:
    walk = walked(value, text_from=text_from)
    pieces = list(walk.encoded())

    assert b"".join(pieces) == msgspec.json.encode(value)
    assert max(map(len, pieces)) <= 2 * LONG + 2
    if walk.is_text:
        assert walk.data is None
        assert walk.values >= (text_from or 0)
    else:
        assert walk.data == value


@pytest.mark.parametrize(
    "value", [list(range(3 * HEAVY)), {str(number): number for number in range(HEAVY + 1)}, ["x" * 1600] * 1000]
)
def test_a_heavy_value_is_written_in_several_pieces(value: Any) -> None:
    pieces = list(walked(value).encoded())

    assert len(pieces) > 4
    assert max(map(len, pieces)) < 0.8 * sum(map(len, pieces))


@pytest.mark.parametrize(
    ("value", "pieces"),
    [
        (["x" * 16_000] * 40, 7),  # each weighs 1001: two groups of 19, and one of 2
        (["x" * 15_984] * 60, 7),  # each weighs 1000: three groups of 20
        ({str(number): "x" * 16_000 for number in range(40)}, 7),
        ({str(number): "x" * 15_968 for number in range(60)}, 7),
        ([{"a": 1}] * 700, 1),
        ({"a": [0] * (HEAVY + 1)}, 134),  # a field that is heavy by itself is divided further: 65 groups of its list
    ],
    ids=range(6),
)
def test_a_piece_is_as_much_as_may_be_encoded_at_once(value: Any, pieces: int) -> None:
    assert len(list(walked(value).encoded())) == pieces


@pytest.mark.parametrize(("text_from", "is_text"), [(4, True), (5, True), (6, False)])
@pytest.mark.parametrize("value", [[{"a": 1}, {"a": 1}], {"a": {"a": 1}, "b": {"a": 1}}], ids=["list", "object"])
def test_a_value_is_kept_as_text_from_so_many_values_on(value: Any, text_from: int, is_text: bool) -> None:
    assert walked(value, text_from=text_from).is_text is is_text


class Twice(Enum):
    RED = "5"


def test_a_member_of_an_enum_counts_as_one_level() -> None:
    value: Any = Twice.RED
    for _ in range(199):
        value = [value]

    assert str(data_of(value)).count("[") == 199
    with pytest.raises(NotData, match="nested too deeply"):
        data_of([value])


@pytest.mark.parametrize("text_from", [None, 3, 2500])
@pytest.mark.parametrize("count", [10, 5000])
def test_a_key_that_comes_twice_is_found_whatever_is_kept(text_from: int | None, count: int) -> None:
    value = {**{str(number): [1] for number in range(count)}, Twice.RED: 1}

    for mapping in (value, MappingProxyType(value)):
        with pytest.raises(NotData, match="has the key '5' twice"):
            walked(mapping, text_from=text_from)


# --- what is kept


def kept(value: Any) -> list[tuple[Any, ...]]:
    slices: list[tuple[Any, ...]] = []
    walked(value, keep=slices.append)
    return slices


def test_what_a_large_list_holds_is_handed_over_in_slices_with_its_copies() -> None:
    value = [{"n": number} for number in range(5 * SLICE)]
    slices = [one for one in kept(value) if one]

    handed = [one for group in slices for one in group]
    sources, copies = handed[0::2], handed[1::2]
    assert len(slices) >= 4
    assert max(map(len, slices)) <= 2 * SLICE + 2
    assert sources == copies  # each with its copy
    assert all(source is not copy for source, copy in zip(sources, copies, strict=True))
    assert {id(one) for one in sources} <= {id(one) for one in value}
    assert len(sources) >= 3 * SLICE  # all but what is freed with the list itself: the first and the last slice


def test_what_a_large_list_of_numbers_holds_is_handed_over_whole() -> None:
    value = [*range(1000, 1000 + 2 * SLICE), {"a": 1}, *range(5000, 5000 + 3 * SLICE)]
    handed = [one for group in kept(value) for one in group]

    assert {*range(1000, 1000 + SLICE)} <= {one for one in handed if isinstance(one, int)}
    assert {*range(6000, 5000 + 3 * SLICE)} <= {one for one in handed if isinstance(one, int)}


def test_what_a_large_object_holds_is_handed_over_with_its_names() -> None:
    value = {f"k{number}": {"n": number} for number in range(5 * SLICE)}
    handed = [one for group in kept(value) for one in group]

    names = [one[0] for one in handed[0::2]]
    assert len(names) >= 3 * SLICE
    assert set(names) <= set(value)
    assert all(copy == value[name] for name, copy in zip(names, handed[1::2], strict=True))


def test_a_small_value_hands_over_nothing_and_many_small_ones_say_that_there_is_much() -> None:
    assert kept([{"n": number} for number in range(64)]) == []
    assert kept({str(number): [1] for number in range(64)}) == []
    assert [any(kept([[{"n": 1}] * 60 for _ in range(count)])) for count in (64, 65)] == [False, True]
    many = kept([[[number] for number in range(60)] for _ in range(60)])
    assert many
    assert not any(many)


class Holder(pydantic.BaseModel):
    """A model that holds anything."""

    items: Any


class Items(msgspec.Struct, array_like=True):
    """A struct that becomes an array."""

    items: Any


def test_a_struct_that_becomes_an_array_is_as_deep_as_that() -> None:
    deep: Any = 0
    for _ in range(200):
        deep = [deep]

    assert data_of(Items(deep)) == [deep]
    with pytest.raises(NotData, match="nested too deeply"):
        data_of(Items([deep]))


@pytest.mark.parametrize("make", [lambda items: {"items": items}, lambda items: Holder(items=items)])
def test_a_model_is_as_deep_as_the_object_that_it_becomes(make: Any) -> None:
    """A model itself counts as one level more."""
    own = int(isinstance(make(0), Holder))
    deep: Any = 0
    for _ in range(200 - own):
        deep = [deep]

    assert data_of(make(deep)) == {"items": deep}
    with pytest.raises(NotData, match="nested too deeply"):
        data_of(make([deep]))
