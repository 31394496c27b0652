"""Amounts: each limit of a conversion to the value, what counts against it, and what counts as stored."""

import dataclasses
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from treadle.validation.arguments import (
    Amounts,
    NotData,
    has_own_dump,
    is_field_stored,
    is_model,
    is_stored,
    values_of_model,
)

MADE = 100_000
MADE_CHARS = 2**26
CHARS = 2**28
REPEATED = 500_000


def made() -> Amounts:
    """Amounts within something that makes its values, and that began at 5 values and 7 characters."""
    amounts = Amounts(10**9)
    assert amounts.enter_made(5, 7)
    return amounts


@pytest.mark.parametrize(
    ("make", "values", "chars"),
    [
        (lambda: Amounts(10), 10, 0),
        (lambda: Amounts(10), 0, CHARS),
        (lambda: Amounts(10**9), MADE + 1, MADE_CHARS + 1),
        (made, 5 + MADE, 7),
        (made, 5, 7 + MADE_CHARS),
    ],
    ids=["values", "characters", "stored", "made values", "made characters"],
)
def test_what_is_exactly_at_a_limit_is_within_it(make: Callable[[], Amounts], values: int, chars: int) -> None:
    make().check(values, chars)


@pytest.mark.parametrize(
    ("make", "values", "chars", "words"),
    [
        (lambda: Amounts(10), 11, 0, "has more than 10 values"),
        (lambda: Amounts(10), 0, CHARS + 1, f"has more than {CHARS} characters"),
        (made, 5 + MADE + 1, 7, f"makes more than {MADE} values while it is read"),
        (made, 5, 7 + MADE_CHARS + 1, f"makes more than {MADE_CHARS} characters while it is read"),
    ],
    ids=["values", "characters", "made values", "made characters"],
)
def test_what_is_over_a_limit_is_refused_with_that_limit(
    make: Callable[[], Amounts], values: int, chars: int, words: str
) -> None:
    with pytest.raises(NotData, match=rf"^\$ {words}"):
        make().check(values, chars)


def test_what_is_made_is_added_up_over_all_things_that_make_their_values() -> None:
    amounts = Amounts(10**9)
    for begin, chars in ((1_000, 7), (200_000, 90)):
        assert amounts.enter_made(begin, chars)
        assert not amounts.enter_made(begin + 1, chars + 1)  # within it: nothing else begins
        amounts.leave_made(begin + MADE // 2, chars + MADE_CHARS // 2)
        amounts.leave_made(begin + 10 * MADE, 0)  # outside of it: nothing ends
    amounts.check(10**8, CHARS)  # what is stored does not count
    amounts.enter_made(300_000, 40)

    amounts.check(300_000, 40)
    with pytest.raises(NotData, match="values"):
        amounts.check(300_001, 40)
    with pytest.raises(NotData, match="characters"):
        amounts.check(300_000, 41)


def test_a_list_that_is_met_again_counts_with_its_weight_each_further_time() -> None:
    amounts, one, other = Amounts(10**9), [1], [2]
    amounts.meet(one, 10 * REPEATED)  # the first time: it is what the value holds
    amounts.meet(other, 10 * REPEATED)
    amounts.meet(one, REPEATED - 3)
    amounts.meet(other, 3)

    with pytest.raises(NotData, match=f"same lists or objects so often that these are more than {REPEATED} values"):
        amounts.meet(one, 1)


def test_what_is_made_while_it_is_read_is_not_taken_for_something_met_before() -> None:
    """Its parts are freed meanwhile, and others get their ids."""
    amounts, one = Amounts(10**9), [1]
    amounts.enter_made(0, 0)
    amounts.meet(one, REPEATED + 1)
    amounts.meet(one, REPEATED + 1)
    amounts.leave_made(0, 0)
    for _ in range(2):
        amounts.enter_new()
        amounts.enter_new()
        amounts.leave_new()
        amounts.meet(one, REPEATED + 1)
        amounts.leave_new()

    amounts.meet(one, REPEATED + 1)
    with pytest.raises(NotData):
        amounts.meet(one, REPEATED + 1)


def test_a_place_is_told_from_the_outside_in_and_not_at_length() -> None:
    assert str(NotData(" is bad").within("[3]").within(".a")) == "$.a[3] is bad"
    assert str(NotData(" is bad").within("." + "k" * 300)) == "$." + "k" * 198 + " is bad"


# --- what is stored


class OwnItems(dict[str, int]):
    def items(self) -> Any:
        return iter(())


class OwnLength(dict[str, int]):
    def __len__(self) -> int:
        return 9


class Named(NamedTuple):
    a: int


class OwnItem(list[int]):
    def __getitem__(self, index: Any) -> Any:
        return 1


class OwnListLength(list[int]):
    def __len__(self) -> int:
        return 9


class Plain(list[int]):
    pass


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({}, True),
        ([], True),
        ((), True),
        (OrderedDict(), True),
        (Counter(), True),
        (Named(1), True),
        (Plain(), True),
        (OwnItems(), False),
        (OwnLength(), False),
        (OwnItem(), False),
        (OwnListLength(), False),
        (MappingProxyType({}), False),
        ("text", False),
        (None, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_computes_its_items_or_its_length_is_not_stored(value: object, stored: bool) -> None:
    assert is_stored(value) is stored


@dataclasses.dataclass
class Fields:
    a: int


@dataclasses.dataclass(slots=True)
class Slots:
    a: int


class Made(Fields):
    def __getattribute__(self, name: str) -> Any:
        return [1] if name == "a" else super().__getattribute__(name)


@pytest.mark.parametrize(("value", "stored"), [(Fields(1), True), (Slots(1), True), (Made(1), False)])
def test_a_field_that_is_made_when_it_is_read_is_not_stored(value: Any, stored: bool) -> None:
    assert is_field_stored(value, "a", value.a) is stored
    assert is_field_stored(value, "elsewhere", None) is False


# --- models


class Model(pydantic.BaseModel):
    value: Any = None


class Dumps(Model):
    def model_dump(self, **options: Any) -> dict[str, Any]:
        return {}


def counted(value: Any) -> list[int]:
    return list(values_of_model(Model(value=value)))


def test_a_model_is_known_by_its_class_and_a_dump_of_its_own_by_its_function() -> None:
    assert [is_model(one) for one in (Model(), {}, msgspec.Raw(b""), None)] == [True, False, False, False]
    assert [has_own_dump(one) for one in (Model(), Dumps())] == [False, True]
    assert "pydantic" in sys.modules


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([0] * 1999, [2000]),  # the field, and what stands in it
        ([0] * 1998, []),
        ([[0] * 1997], []),
        ([[0] * 1998], [2000]),
        ({str(number): 0 for number in range(1999)}, [2000]),
        (set(range(1999)), [2000]),
        (frozenset(range(1999)), [2000]),
        (Model(value=[0] * 1998), [2000]),
        (tuple(range(1999)), [2000]),
        ([[0] * 2000, [0] * 1998], [2001, 4001]),  # the last comes first
        ([[0] * 1999, [0] * 1998], [2001]),
        (MappingProxyType({str(number): 0 for number in range(1999)}), []),  # its dump copies no more than a reference
    ],
    ids=range(12),
)
def test_what_a_model_holds_is_counted_with_a_pause_for_each_slice(value: Any, told: list[int]) -> None:
    assert counted(value) == told


def test_a_model_may_hold_one_list_often_but_not_more_than_could_be_built() -> None:
    shared = [0] * 1000

    assert counted([shared] * 501)[-1] <= 502_000
    with pytest.raises(NotData, match=f"more than {REPEATED} values"):
        counted([shared] * 502)
