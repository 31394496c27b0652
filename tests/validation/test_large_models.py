"""Large values and pydantic models: each limit of a conversion, what counts against it, and models that are converted in parts."""

import dataclasses
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

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
from treadle.validation.plain import Walk, data_of

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


class Holds(pydantic.BaseModel):
    value: Any = None


class Dumps(Holds):
    def model_dump(self, **options: Any) -> dict[str, Any]:
        return {}


def counted(value: Any) -> list[int]:
    return list(values_of_model(Holds(value=value)))


def test_a_model_is_known_by_its_class_and_a_dump_of_its_own_by_its_function() -> None:
    assert [is_model(one) for one in (Holds(), {}, msgspec.Raw(b""), None)] == [True, False, False, False]
    assert [has_own_dump(one) for one in (Holds(), Dumps())] == [False, True]
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
        (Holds(value=[0] * 1998), [2000]),
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


# --- large models, converted to what their own dump would be

MANY = 5_000


class Row(pydantic.BaseModel):
    number: int = pydantic.Field(serialization_alias="No")
    name: str = "x"


class Report(pydantic.BaseModel):
    model_config = {"extra": "allow"}
    title: str = "all"
    rows: list[Row] = pydantic.Field(default=[], serialization_alias="Rows")
    names: dict[str, Row] = {}
    hidden: list[int] = pydantic.Field(default=[], exclude=True)
    either: list[int] | None = None
    last: int = 3


class Book(pydantic.BaseModel):
    report: Report
    pages: list[list[int]] = []


class Longer(Report):
    further: int = 7


class Shelf(pydantic.BaseModel):
    book: Book = pydantic.Field(serialization_alias="Book")
    report: Report = pydantic.Field(default_factory=Report, exclude=True)


class Counted(pydantic.BaseModel):
    rows: list[Row]

    @pydantic.field_serializer("rows")
    def count(self, rows: list[Row]) -> int:
        return len(rows)


class Summed(pydantic.BaseModel):
    rows: list[int]

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic has it
    @property
    def total(self) -> int:
        return sum(self.rows)


class Described(pydantic.BaseModel):
    rows: Annotated[list[int], pydantic.PlainSerializer(lambda rows: f"{len(rows)} rows")]


class Whole(pydantic.BaseModel):
    rows: list[int]

    @pydantic.model_serializer
    def whole(self) -> dict[str, Any]:
        return {"rows": len(self.rows)}


class Root(pydantic.RootModel[list[Row]]):
    pass


T = TypeVar("T")


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


def rows() -> list[Row]:
    return [Row(number=number) for number in range(MANY)]


MODELS = [
    pytest.param(lambda: Report(rows=rows(), names={str(one.number): one for one in rows()}, more=[1]), id="fields"),
    pytest.param(lambda: Report(hidden=list(range(MANY)), either=list(range(MANY))), id="hidden and optional"),
    pytest.param(lambda: Book(report=Report(rows=rows()), pages=[[1, 2]] * MANY), id="within"),
    pytest.param(lambda: Report(rows=rows(), more=Row(number=7)), id="a model beyond the fields"),
    pytest.param(lambda: Book(report=Longer(rows=rows())), id="a model with more fields than were declared"),
    pytest.param(
        lambda: Shelf(book=Book(report=Report(rows=rows())), report=Report(rows=rows())), id="renamed and hidden models"
    ),
    pytest.param(lambda: Counted(rows=rows()), id="a serializer of a field"),
    pytest.param(lambda: Summed(rows=list(range(MANY))), id="a computed field"),
    pytest.param(lambda: Described(rows=list(range(MANY))), id="an annotated serializer"),
    pytest.param(lambda: Whole(rows=list(range(MANY))), id="a serializer of the model"),
    pytest.param(lambda: Root(rows()), id="a root model"),
    pytest.param(lambda: Page[Row](items=rows()), id="generic"),
]


@pytest.mark.row("H21")
@pytest.mark.parametrize("made", MODELS)
def test_a_large_model_is_what_its_own_dump_is(made: Any) -> None:
    model = made()
    expected, walk = model.model_dump(by_alias=True), Walk(model)
    for _ in walk.steps():
        pass

    assert walk.data == expected
    assert not isinstance(expected, dict) or [*walk.data] == [*expected]
    assert model == made()


@pytest.mark.row("H21")
def test_no_step_dumps_more_than_a_part_of_a_large_model() -> None:
    dumped: list[int] = []

    class Noted(pydantic.BaseModel):
        number: int

        @pydantic.field_serializer("number")
        def note(self, number: int) -> int:
            dumped.append(number)
            return number

    class Notes(pydantic.BaseModel):
        rows: list[Noted]

    walk, most, before = Walk(Notes(rows=[Noted(number=number) for number in range(50_000)])), 0, 0
    for _ in walk.steps():
        most, before = max(most, len(dumped) - before), len(dumped)

    assert dumped == [*range(50_000)]
    assert most <= 5_000


@pytest.mark.row("H21")
def test_what_a_large_model_holds_is_handed_over_in_slices() -> None:
    model = Book(report=Report(rows=rows(), names={str(one.number): one for one in rows()}))
    slices: list[tuple[Any, ...]] = []
    for _ in Walk(model, keep=slices.append).steps():
        pass

    handed = {id(one) for group in slices for one in group}
    named = {id(one[1]) for group in slices for one in group if isinstance(one, tuple)}
    assert {id(row) for row in model.report.rows} <= handed
    assert {id(row) for row in model.report.names.values()} <= named
    assert max(map(len, slices)) <= MANY


@pytest.mark.row("H21")
def test_a_long_list_is_looked_at_in_slices() -> None:
    assert len([*values_of_model(Summed(rows=[1] * 100_000))]) >= 10


@pytest.mark.row("H21")
def test_models_of_many_values_are_not_taken_for_one_that_stands_in_many_places() -> None:
    many = [Row(number=number, name="x" * 20_000) for number in range(1_000)]

    assert [one["No"] for one in data_of(many)] == [*range(1_000)]


@pytest.mark.row("H21")
def test_a_list_that_stands_in_many_places_is_refused_behind_a_model_too() -> None:
    shared = [1] * 1000

    with pytest.raises(NotData, match="same lists or objects so often"):
        data_of([Summed(rows=[1] * 100), *[shared] * 502])
