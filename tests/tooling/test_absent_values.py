"""What the model leaves out stays absent: the defaults of a Python type are its own, and its library decides what it accepts."""

import dataclasses
import datetime as dt
import enum
from typing import Any

import pydantic
import pytest

from treadle import Agent, Tool, tool
from treadle.testing import ScriptedModel, text
from treadle.tooling.toolbox import Contracts, fix


class Patch(pydantic.BaseModel):
    title: str | None = None
    body: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_unset=True)


class Edit(pydantic.BaseModel):
    patch: Patch = Patch()
    others: list[Patch] = []


class Change(pydantic.BaseModel):
    a: int = 1
    b: int = 2

    @pydantic.model_validator(mode="after")
    def _is_something(self) -> "Change":
        if not self.model_fields_set:
            raise ValueError("give at least one field")
        return self


class Colour(enum.Enum):
    RED = "red"


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    day: dt.date
    colour: Colour
    pair: tuple[int, str]
    tags: frozenset[str] = frozenset()
    at: dt.datetime | None = None
    counts: dict[int, int] = {}


class Loose(pydantic.BaseModel):
    a: str = None  # type: ignore[assignment]  # what people write
    b: bool = "yes"  # type: ignore[assignment]  # as above


@dataclasses.dataclass
class Part:
    name: str
    version: int = dataclasses.field(init=False, default=1)
    parts: "list[Part]" = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Doubled:
    n: int
    twice: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.n


def one(change: Patch) -> None: ...
def several(changes: list[Patch]) -> None: ...
def named(changes: dict[str, Patch]) -> None: ...
def either(change: Patch | list[Patch] | None = None) -> None: ...
def defaulted(change: Patch = Patch(title="t")) -> None: ...  # noqa: B008 - what people write
def edit(edit: Edit) -> None: ...
def checked(change: Change) -> None: ...
def strict(value: Strict, day: dt.date | None = None) -> None: ...
def loose(value: Loose) -> None: ...
def part(part: Part) -> None: ...
def doubled(values: list[Doubled]) -> None: ...


def converted(function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what a function is called with."""
    made = tool(function)
    fix(made)
    assert made.convert is not None
    return made.convert(Contracts().complete(made, arguments).arguments)


TITLE = {"title": "x"}


@pytest.mark.parametrize(
    ("function", "arguments", "given"),
    [
        (one, {"change": TITLE}, lambda change: change.given == TITLE),
        (one, {"change": {"title": None}}, lambda change: change.given == {"title": None}),
        (several, {"changes": [TITLE, {}]}, lambda changes: [each.given for each in changes] == [TITLE, {}]),
        (named, {"changes": {"k": TITLE}}, lambda changes: changes["k"].given == TITLE),
        (either, {"change": TITLE}, lambda change: change.given == TITLE),
        (either, {"change": [TITLE]}, lambda change: change[0].given == TITLE),
        (defaulted, {}, lambda change: change.given == {"title": "t"}),
        (defaulted, {"change": {"title": "t", "body": None}}, lambda change: change.given == {"title": "t", "body": None}),
        (edit, {"edit": {}}, lambda edit: edit.model_fields_set == set()),
        (edit, {"edit": {"others": [TITLE]}}, lambda edit: edit.others[0].given == TITLE),
        (checked, {"change": {"b": 2}}, lambda change: change.model_fields_set == {"b"}),
        (loose, {"value": {}}, lambda value: (value.a, value.b) == (None, "yes")),
        (part, {"part": {"name": "a", "parts": [{"name": "b"}]}}, lambda part: (part.version, part.parts[0].version) == (1, 1)),
        (doubled, {"values": [{"n": 2}]}, lambda values: values == [Doubled(2)]),
        (
            strict,
            {"value": {"day": "2024-01-02", "colour": "red", "pair": [1, "a"], "tags": ["t"], "at": "2024-01-02T03:04:05Z", "counts": {"1": 2}}},
            lambda value: value
            == Strict(
                day=dt.date(2024, 1, 2), colour=Colour.RED, pair=(1, "a"), tags=frozenset({"t"}),
                at=dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC), counts={1: 2},
            ),
        ),
    ],
)  # fmt: skip
def test_a_value_of_a_type_is_what_its_library_makes_of_the_models_words(function, arguments, given) -> None:
    first = next(iter(converted(function, arguments).values()))

    assert given(first), first


def test_a_field_that_nobody_can_give_is_not_offered() -> None:
    assert tool(part).parameters["$defs"]["Part"]["properties"].keys() == {"name", "parts"}


@pytest.mark.parametrize("answer", ['{"n": 2}', '{"value": [{"n": 2}]}'])
async def test_an_answer_of_a_type_does_not_hold_what_nobody_can_give(answer) -> None:
    kind: Any = list[Doubled] if "value" in answer else Doubled
    result = await Agent(ScriptedModel([text(answer)]), output=kind).run("Go")

    assert result.output in (Doubled(2), [Doubled(2)])


def test_a_tool_that_a_json_schema_describes_gets_its_nested_defaults() -> None:
    made = Tool(name="a", description="A.", parameters=Edit.model_json_schema(), run=lambda arguments, ctx: None)

    assert Contracts().complete(made, {}).arguments == {"patch": {"title": None, "body": None}, "others": []}
