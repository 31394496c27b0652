"""Recorded calls of tools, held to the tools' contracts as they are now. Nothing is called unless that is asked for."""

from typing import Any

import pytest

from treadle import Tool, tool
from treadle.agents import ToolFinding, check_tools, load_tool_examples
from treadle.errors import ConfigurationError
from treadle.tools import ToolExample

MONEY = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
ASKED = {"type": "object", "properties": {"product": {"type": "string", "description": "A product, such as teapot."}}, "required": ["product"]}  # fmt: skip


def price(**options: Any) -> Tool:
    def run(arguments: Any, ctx: Any) -> Any:
        return {"price": 24.5}

    given: dict[str, Any] = {
        "name": "price", "description": "Return the price of a product in euros.", "parameters": ASKED,
        "output_schema": MONEY, "effect": "read", "run": run, **options,
    }  # fmt: skip
    return Tool(**given)


def recorded(result: Any, **options: Any) -> ToolExample:
    return ToolExample(arguments={"product": "teapot"}, result=result, **options)


async def errors_of(*tools: Tool, **options: Any) -> list[ToolFinding]:
    return [one for one in await check_tools(tools, **options) if one.level == "error"]


@pytest.mark.row("F07")
async def test_a_recorded_result_that_no_longer_fits_is_named_with_tool_and_path():
    well, moved = recorded({"price": 24.5}), recorded({"price": {"amount": 24.5}})

    assert await check_tools([price(examples=[well])]) == ()
    (found,) = await check_tools([price(examples=[well, moved])])

    assert (found.tool, found.level, found.where, found.field) == ("price", "error", "example 2, result", "price")
    assert "expected number" in found.message
    assert "record the example again" in found.message


@pytest.mark.row("F07")
@pytest.mark.parametrize(
    ("now", "field", "words"),
    [
        ({"required": ["product", "town"]}, "town", "`town` is missing: required."),
        ({"additionalProperties": False}, "size", "`size`: no such property (known: product)."),
    ],
)
async def test_recorded_arguments_that_no_longer_fit_are_named(now, field, words):
    (found,) = await errors_of(price(parameters={**ASKED, **now}, examples=[{"product": "teapot", "size": 1}]))

    assert (found.where, found.field) == ("example 1, arguments", field)
    assert f"parameters`: {words} Let the schema" in found.message


async def test_a_refusal_of_the_service_is_a_recorded_result_like_others():
    refusal = {"type": "object", "properties": {"error": {"const": "SOLD_OUT"}}, "required": ["error"]}
    example = recorded({"error": "SOLD_OUT"})

    assert await errors_of(price(error_schema=refusal, examples=[example])) == []
    assert len(await errors_of(price(examples=[example]))) == 1


async def test_a_recorded_result_longer_than_its_limit_is_an_error():
    long = recorded({"price": 1, "words": "x" * 500})

    (found,) = await errors_of(price(result_limit=100, examples=[long]))

    assert "100" in found.message


async def test_functions_of_the_arguments_that_raise_are_found():
    def effect(arguments: Any) -> str:
        return {"kettle": "read"}[arguments["product"]]

    found = await errors_of(
        price(effect=effect, resources=lambda arguments: {"a": "look"}, examples=[recorded({"price": 1})])
    )

    assert [one.where for one in found] == ["example 1, effect", "example 1, resources"]
    assert "counts as `unsafe`" in found[0].message


@pytest.mark.row("F07", "P19")
async def test_a_risk_class_that_does_not_exist_is_found():
    (found,) = await errors_of(price(risk=lambda arguments: "harmless", examples=[recorded({"price": 1})]))

    assert found.where == "example 1, risk"
    assert "'harmless'" in found.message
    assert "the call counts as `privileged_admin`" in found.message


async def test_nothing_is_called_unless_asked_and_then_deterministic_reads_only():
    calls: list[str] = []

    def run(arguments: Any, ctx: Any) -> Any:
        calls.append(arguments["product"])
        return {"price": 24.5}

    same, other = recorded({"price": 24.5}, deterministic=True), recorded({"price": 20.0}, deterministic=True)
    tools = [price(run=run, examples=[same, other, recorded({"price": 1.0})])]
    acting = price(run=run, effect="unsafe", examples=[same])

    assert await errors_of(*tools) == []
    assert calls == []
    (found,) = await errors_of(*tools, run=True)
    assert calls == ["teapot", "teapot"]
    assert found.where == "example 2, run again"
    (refused,) = await errors_of(acting, run=True)
    assert "effect is `unsafe`" in refused.message
    assert len(calls) == 2


async def test_a_call_that_is_made_again_and_fails_is_an_error_with_its_words():
    def run(arguments: Any, ctx: Any) -> Any:
        raise OSError("no database")

    (found,) = await errors_of(price(run=run, examples=[recorded({"price": 1}, deterministic=True)]), run=True)

    assert "no database" in found.message


@pytest.mark.row("F07")
@pytest.mark.parametrize(
    ("now", "then", "has_drifted"),
    [
        ({"ok": 1}, {"ok": True}, True),
        ([{"a": [False]}], [{"a": [0]}], True),
        ({"a": None}, {}, True),
        ({"price": 1.0, "name": "é"}, {"name": "é", "price": 1}, False),
    ],
)
async def test_a_result_of_another_type_has_drifted(now, then, has_drifted):
    example = recorded(then, deterministic=True)
    found = await errors_of(price(run=lambda arguments, ctx: now, output_schema=None, examples=[example]), run=True)

    assert [one.where for one in found] == ["example 1, run again"] * has_drifted


async def test_a_broken_schema_does_not_hide_what_is_wrong_with_other_tools():
    broken = price(name="broken", parameters={"type": "object", "properties": {"a": {"type": "strng"}}})

    found = await errors_of(broken, price(examples=[recorded("24.5")]))

    assert [(one.tool, one.where) for one in found] == [("broken", "schema"), ("price", "example 1, result")]


async def test_what_a_model_could_misunderstand_is_advice():
    poor = Tool(
        name="Price", description="price", run=print, output_schema=None,
        parameters={"type": "object", "properties": {"x": {"type": "array", "items": {"type": "object", "properties": {"y": {}}}}}},
    )  # fmt: skip

    found = await check_tools([price(), poor])

    assert {one.level for one in found} == {"advice"}
    assert [one.where for one in found] == [
        "name", "description", "parameter `x`", "parameter `x[].y`", "parameter `x[].y`",
    ]  # fmt: skip


async def test_two_tools_of_one_name_are_an_error():
    (found,) = await errors_of(price(), price())

    assert found.where == "name"


async def test_the_examples_of_every_tool_of_ours_fit():
    from treadle import file_tools, shell_tool
    from treadle.toolsets import artifact_tool, ask_user_tool, fetch_tool, writing_tools

    ours = [*file_tools("."), *writing_tools("."), shell_tool("."), fetch_tool(), artifact_tool(), ask_user_tool()]

    assert await check_tools(ours) == ()


async def test_an_example_shows_the_model_its_arguments_and_nothing_else():
    from treadle import Agent
    from treadle.testing import ScriptedModel, text

    model = ScriptedModel([text("ok")])
    await Agent(model, tools=[price(examples=[recorded({"price": 31337})])]).run("x")

    (spec,) = model.requests[0].tools
    assert '{"product":"teapot"}' in spec.description
    assert "31337" not in spec.description


def test_arguments_of_an_example_that_never_fitted_are_refused_where_the_tool_is_made():
    with pytest.raises(ConfigurationError, match=r"example 1 does not fit: `product` is missing: required\."):

        @tool(effect="read", examples=[ToolExample(arguments={}, result=1)])
        def cost(product: str) -> int:
            """Return the price."""
            return 1


@pytest.mark.parametrize("as_array", [False, True])
def test_a_recording_is_json_lines_or_one_array(tmp_path, as_array):
    one, two = (
        '{"tool": "a", "arguments": {}, "result": null}',
        '{"tool": "b", "arguments": {"x": 1}, "deterministic": true}',
    )
    (tmp_path / "r").write_text(f"[{one},\n{two}]" if as_array else f"{one}\n\n{two}\n")

    found = load_tool_examples(tmp_path / "r")

    assert found == {
        "a": (ToolExample(arguments={}, result=None),),
        "b": (ToolExample(arguments={"x": 1}, deterministic=True),),
    }
    assert found["a"][0].has_result
    assert not found["b"][0].has_result


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "line 1 is not valid JSON"),
        (b'{"tool": "a"}', "is not a recorded call"),
        (b'\n{"tool": "a", "arguments": {}, "results": 1}', "line 2 has the field 'results'"),
        (b'{"tool": "a", "arguments": {}, "deterministic": "yes"}', "deterministic must be true or false"),
        (b"\xff\xfe", "is not valid JSON"),
        (b"[1]", "row 1 is not a recorded call"),
    ],
)
def test_a_recording_that_cannot_be_read_is_named_with_its_line(tmp_path, content, words):
    (tmp_path / "r").write_bytes(content)

    with pytest.raises(ConfigurationError, match=words):
        load_tool_examples(tmp_path / "r")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_tool_examples(tmp_path / "gone")


async def test_recorded_calls_of_an_unknown_tool_are_refused():
    with pytest.raises(ConfigurationError, match="pay"):
        await check_tools([price()], recorded={"pay": (recorded(1),)})
    with pytest.raises(ConfigurationError, match="Dialect 'ibm'"):
        await check_tools([price()], dialects=["ibm"])
