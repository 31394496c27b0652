"""Declarations: what can never work is refused where it is given, and a misspelt name is answered with the nearest."""

from typing import Any

import pytest

from treadle import Agent, Budget, ConfigurationError, Tool, file_tools, resolve_model, tool
from treadle.budgets import Guards
from treadle.errors import ToolDefinitionError, UnknownModel
from treadle.testing import ScriptedModel, call, text
from treadle.validation import Schema

OBJECT = {"type": "object", "properties": {}}


def cycle() -> dict[str, Any]:
    schema: dict[str, Any] = dict(OBJECT)
    schema["properties"] = {"a": schema, "b": schema}
    return schema


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def doubling() -> dict[str, Any]:
    part: Any = {"type": "string"}
    for _ in range(60):
        part = {"anyOf": [part, part]}
    return {**OBJECT, "properties": {"a": part}}


UNUSABLE: dict[str, Any] = {
    "default that is a set": lambda: {**OBJECT, "properties": {"a": {"default": {1, 2}}}},
    "default that is bytes": lambda: {**OBJECT, "properties": {"a": {"default": b"x"}}},
    "default that is NaN": lambda: {**OBJECT, "properties": {"a": {"default": float("nan")}}},
    "half a surrogate pair": lambda: {**OBJECT, "properties": {"a": {"description": "\ud800"}}},
    "a key that is not text": lambda: {**OBJECT, "properties": {1: {}}},
    "a cycle": cycle,
    "2,000 levels": lambda: deep(2000),
    "50,000 levels": lambda: deep(50_000),
    "a million alternatives": lambda: {**OBJECT, "anyOf": [{"type": "object"}] * 1_000_000},
    "each level twice": doubling,
}


async def nothing(arguments: Any, ctx: Any) -> None: ...


@pytest.mark.row("V08", "V13")
@pytest.mark.parametrize("make", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_schema_that_cannot_be_used_is_refused_where_it_is_given(make: Any) -> None:
    schema = make()

    for word in ("parameters", "output_schema", "error_schema"):
        with pytest.raises(ToolDefinitionError, match=word):
            Tool(name="odd", description="Odd.", effect="read", run=nothing, **{"parameters": OBJECT, word: schema})
    with pytest.raises(ToolDefinitionError, match="cannot be written as JSON"):
        Schema(schema, where="schema")
    with pytest.raises(ConfigurationError):
        Agent(ScriptedModel([text("x")]), output=schema)


def test_a_large_schema_and_a_deep_one_that_can_be_used_are_taken() -> None:
    names = {"type": "object", "properties": {"a": {"enum": [f"name {number}" for number in range(20_000)]}}}

    for schema in (names, deep(60)):
        Tool(name="fine", description="Fine.", effect="read", parameters=schema, run=nothing)
        assert Schema(schema, where="schema").violations({}) == []


@pytest.mark.row("M11", "T02")
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, bytes | None, str | bytes])
async def test_a_tool_that_says_that_it_returns_bytes_can(kind: Any) -> None:
    async def fetch() -> Any:
        """Fetch a file."""
        return memoryview(b"abc") if kind is memoryview else b"abc"

    fetch.__annotations__["return"] = kind
    fetch_tool = tool(fetch, effect="read")

    result = await Agent(ScriptedModel([call("fetch"), text("x")]), tools=[fetch_tool]).run("go")

    assert [one.status for one in result.tool_calls] == ["ok"]
    assert result.messages[2].results[0].content == '{"base64":"YWJj","size":3}'


@pytest.mark.row("T02")
@pytest.mark.parametrize("kind", [list[bytes], dict[str, bytes], tuple[int, bytearray], list[bytes | None]])
def test_bytes_inside_another_type_are_refused_where_they_are_declared(kind: Any) -> None:
    async def fetch() -> Any:
        """Fetch files."""

    fetch.__annotations__["return"] = kind
    with pytest.raises(ToolDefinitionError, match="bytes inside another type"):
        tool(fetch)


@pytest.mark.parametrize(
    ("word", "near"),
    [("ends_runs", "ends_run"), ("time_out", "timeout"), ("retry", "retries"), ("pollling", "polling")],
)
def test_a_misspelt_option_of_tool_is_answered_with_the_nearest(word: str, near: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"does not know {word}. Did you mean '{near}'?"):
        tool(effect="read", **{word: 1})


def test_an_option_that_is_near_to_none_lists_them_all() -> None:
    with pytest.raises(ToolDefinitionError, match=r"does not know colour, zzz\. Its options are: name, effect"):
        tool(zzz=1, colour=2)  # type: ignore[call-overload]  # as a mistake would


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("opnai:gpt-5", "'openai:gpt-5'"), ("antropic:claude", "'anthropic:claude'"), ("OpenAI-Chat:m", "'openai-chat:m'"),
        ("demmo", "'demo'"), ("gemni:flash", "'gemini:flash'"), ("openai", "'openai:NAME'"), ("openai:", "'openai:NAME'"),
        ("gpt-5", "'openai:gpt-5'"), ("gpt5-mini", "'openai:gpt-5-mini'"), ("claude-sonnet-4-5", "'anthropic:claude-sonnet-4-5'"), ("script:", "'script:FILE'"),
    ],
)  # fmt: skip
def test_a_misspelt_model_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UnknownModel, match=near):
        resolve_model(name)


def test_a_model_that_is_near_to_none_lists_what_there_is() -> None:
    with pytest.raises(UnknownModel, match=r"Unknown model 'zzzzz'\. Write one of: "):
        resolve_model("zzzzz")


@pytest.mark.row("H21")
@pytest.mark.parametrize("word", ["parameters", "output_schema", "error_schema"])
def test_a_raw_tools_invalid_schema_is_refused_by_the_agent_that_is_given_it(word):
    words = {"parameters": {}, word: {"type": "object", "properties": {"a": {"type": "strnig"}}}}
    broken = Tool(name="look", description="", run=lambda arguments, ctx: None, **words)

    with pytest.raises(ToolDefinitionError, match=f"{word} of tool 'look'"):
        Agent(ScriptedModel([text("x")]), tools=[broken])


@pytest.mark.row("H21")
@pytest.mark.parametrize(
    ("make", "meant"),
    [
        (lambda: Agent(ScriptedModel([text("x")]), tool=[]), "tools"),
        (lambda: Budget(max_model_turn=3), "max_model_turns"),
        (lambda: Guards(repeat=3), "repeats"),
        (lambda: Tool(name="a", description="", paramters={}, run=print), "parameters"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_one_that_was_meant(make, meant):
    with pytest.raises(TypeError, match=f"Did you mean '{meant}'"):
        make()


# --- values of a wrong kind; tests/face gives them to every public name


@pytest.mark.row("H21")
@pytest.mark.parametrize(
    "dialect", ["openai-chat", "anthropic", "gemini", "openai", "azure", "bedrock", "vertex", "cohere"]
)
def test_every_dialect_refuses_an_option_of_a_wrong_kind_by_its_name(dialect: str) -> None:
    for option in ("base_url", "api_key", "headers", "options"):
        given: Any = {"base_url": "http://127.0.0.1:1/v1", "api_key": "k", option: 5}
        with pytest.raises(ConfigurationError, match=option):
            resolve_model(f"{dialect}:m", **given)


@pytest.mark.row("H21")
@pytest.mark.parametrize("folder", ["\ud800", "a\0b", None, [], {}])
def test_the_root_of_file_tools_is_a_path(folder: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"root (must be|of the file tools)"):
        file_tools(folder)
