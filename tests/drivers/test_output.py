"""Structured answers: checked strictly, mended by the model within two tries, or a failure with its own reason."""

import dataclasses
import json
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from driver_tools import chat

from loop_tools import echo_tool
from treadle import Agent, Budget, ConfigurationError, open_session
from treadle.testing import MockProvider, ScriptedModel, call, text


class Town(msgspec.Struct):
    name: str
    people: int
    kind: Literal["city", "village"] = "city"


class PydanticTown(pydantic.BaseModel):
    name: str
    people: int

    @pydantic.field_validator("people")
    @classmethod
    def _is_inhabited(cls, people: int) -> int:
        if people <= 0:
            raise ValueError("a town has people")
        return people


@dataclasses.dataclass
class DataTown:
    name: str
    people: int


class Tree(pydantic.BaseModel):
    leaf: int
    children: list["Tree"] = []


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}, "people": {"type": "integer"}}, "required": ["name", "people"]}  # fmt: skip
BERGEN = '{"name": "Bergen", "people": 290000}'


@pytest.mark.row("D17")
@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        (Town, BERGEN, Town(name="Bergen", people=290000)),
        (PydanticTown, BERGEN, PydanticTown(name="Bergen", people=290000)),
        (DataTown, BERGEN, DataTown(name="Bergen", people=290000)),
        (SCHEMA, BERGEN, {"name": "Bergen", "people": 290000}),
        (Tree, '{"leaf": 1, "children": [{"leaf": 2}]}', Tree(leaf=1, children=[Tree(leaf=2)])),
        (list[str], '{"value": ["a"]}', ["a"]),
        (int, '{"value": 3}', 3),
        (Town | None, '{"value": null}', None),
        (list[Town], f'{{"value": [{BERGEN}]}}', [Town(name="Bergen", people=290000)]),
        ({"type": "array", "items": {"type": "integer"}}, '{"value": [1]}', [1]),
        (Town, f"```json\n{BERGEN}\n```", Town(name="Bergen", people=290000)),
        (Town, f"```python\ncount()\n```\nprints\n```json\n{BERGEN}\n```", Town(name="Bergen", people=290000)),
    ],
)
async def test_the_answer_is_a_value_of_the_type(kind, words, expected):
    async with MockProvider([call("echo", x=1), words]) as mock:
        result = await Agent(chat(mock), tools=[echo_tool()], output=kind).run("go")

    assert (result.reason, result.output) == ("completed", expected)
    assert json.loads(json.dumps(result.report()))["completed"] is True
    for request in mock.requests:
        assert request.body["tools"]
        assert request.body["response_format"]["json_schema"]["schema"]["type"] == "object"


@pytest.mark.row("D17")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("Bergen has many people.", "not JSON"),
        ("", "empty"),
        ("[1]", "not a JSON object"),
        ('{"name": "Bergen", "people": "many"}', "`people`"),
        ('{"name": "Bergen", "people": "290000"}', "`people`"),
        ('{"name": "Bergen", "people": 3.0}', "`people`"),
        ('{"name": "Bergen"}', "`people`"),
        ('{"name": "Bergen", "people": 0}', "a town has people"),
        ('{"name": "Oslo", "name": "Bergen", "people": 1}', "not JSON"),
        (f"Here: {BERGEN}", "not JSON"),
    ],
)
async def test_what_is_wrong_is_told_and_may_be_mended(wrong, told):
    model = ScriptedModel([text(wrong), text(BERGEN)])

    result = await Agent(model, output=PydanticTown).run("go")

    assert result.output == PydanticTown(name="Bergen", people=290000)
    assert told in model.requests[1].messages[-1].text


@pytest.mark.row("D17")
async def test_a_correction_shows_the_form_that_is_wanted():
    model = ScriptedModel([text("Bergen"), text(BERGEN)])

    await Agent(model, output=Town).run("go")

    form = '{"name": <string>, "people": <integer>, "kind": <one of "city", "village"> (may be left out)}'
    assert f"The form is: {form}." in model.requests[1].messages[-1].text


@pytest.mark.parametrize(
    ("words", "output"), [(BERGEN, Town(name="Bergen", people=290000)), ("I do not know.", "I do not know.")]
)
async def test_an_answer_that_may_be_text_is_text_or_structured(words, output):
    async with MockProvider([call("echo", x=1), words]) as mock:
        agent = Agent(chat(mock), tools=[echo_tool()], output=Town | str, instructions="Be brief.")
        result = await agent.run("go")

    assert (result.reason, result.output, result.text) == ("completed", output, words)
    for request in mock.requests:
        assert "response_format" not in request.body
        told = request.body["messages"][0]["content"]
        assert told.startswith("Be brief.\n\nAnswer in words, or with nothing but JSON that fits this JSON Schema: ")


async def test_text_that_is_an_answer_only_by_form_is_none_where_text_is_allowed_too():
    model = ScriptedModel([call("echo", x=1), text(""), text("Done.")])

    result = await Agent(model, tools=[echo_tool()], output=Town | str).run("go")

    assert result.output == "Done."


@pytest.mark.row("D17")
async def test_after_two_corrections_the_run_fails_with_its_own_reason(tmp_path):
    model = ScriptedModel([text('{"name": "Bergen"}')])

    async with open_session(tmp_path / "a.db", id="s") as session:
        result = await Agent(model, output=Town).run("go", session=session)

    assert (result.reason, result.completed, len(model.requests)) == ("no_final_answer_or_tool_call", False, 3)
    assert result.output is None
    details = result.stop.details or {}
    assert (details["class"], details["attempts"]) == ("output_invalid", 3)
    assert [row["field"] for row in details["violations"]] == ["people"]


@pytest.mark.row("D17")
async def test_tools_between_two_corrections_do_not_begin_the_count_anew():
    model = ScriptedModel([text("a"), call("echo", x=1), text("b"), call("echo", x=2), text("c")])

    result = await Agent(model, tools=[echo_tool()], output=Town).run("go")

    assert (result.reason, len(model.requests)) == ("no_final_answer_or_tool_call", 5)


async def test_a_new_task_has_its_corrections_again():
    model = ScriptedModel([text("a"), text(BERGEN), text("b"), text("c"), text(BERGEN)])
    async with open_session("memory:") as session:
        agent = Agent(model, output=Town)
        outputs = [(await agent.run(task, session=session)).output for task in ("one", "two")]

    assert outputs == [Town(name="Bergen", people=290000)] * 2


async def test_a_structured_answer_that_was_cut_off_is_put_together():
    model = ScriptedModel([text(BERGEN[:20], finish="length"), text(BERGEN[20:])])

    result = await Agent(model, output=Town).run("go")

    assert result.output == Town(name="Bergen", people=290000)


async def test_at_a_limit_the_partial_answer_is_text_and_no_output():
    model = ScriptedModel([call("echo", x=1), text("so far")])

    result = await Agent(model, tools=[echo_tool()], output=Town, budget=Budget(max_model_turns=1)).run("go")

    assert (result.reason, result.text, result.output) == ("step_limit_reached", "so far", None)


@pytest.mark.parametrize("kind", ["Town", 3, object(), {"type": "nonsense"}, {"$ref": "https://example.org/x"}, [Town]])
def test_what_no_schema_describes_is_refused_at_once(kind):
    with pytest.raises(ConfigurationError):
        Agent("demo", output=kind)
