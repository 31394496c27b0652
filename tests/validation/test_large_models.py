"""Large pydantic models: converted in parts, to what their own dump would be."""

from typing import Annotated, Any, Generic, TypeVar

import pydantic
import pytest

from treadle.validation.arguments import NotData, values_of_model
from treadle.validation.plain import Walk, data_of

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
