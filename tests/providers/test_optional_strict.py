"""Strict tools with optional parameters: on the wire they are required and can be null, and the tool never sees that null."""

import json
from typing import Any

import pytest
from chat_server import answer, serving
from wire import Chats, Responseses, events, sse

from treadle import Agent, Tool
from treadle.mock.dialects.shared import check_strict_schema
from treadle.providers.openai_chat import OpenAIChat
from treadle.providers.openai_responses import OpenAIResponses
from treadle.providers.payload import strict_schema, without_absent

PLACE = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}, "required": ["city"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "limit": {"type": "integer", "default": 10},
        "kind": {"enum": ["a", "b"]},
        "note": {"type": ["string", "null"], "default": None},
        "place": {"$ref": "#/$defs/Place"},
        "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"Place": PLACE},
}


@pytest.mark.row("V15")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"n": 1, "limit": None, "kind": None, "note": None, "place": None, "places": None}, {"n": 1, "note": None}),
        ({"n": 1, "place": {"city": "x", "zip": None}}, {"n": 1, "place": {"city": "x"}}),
        ({"n": 1, "places": [{"city": "x", "zip": None}]}, {"n": 1, "places": [{"city": "x"}]}),
        ({"n": None, "odd": None}, {"n": None, "odd": None}),
    ],
)
def test_a_null_that_stands_for_an_absent_property_is_absent(written, expected):
    assert json.loads(without_absent(json.dumps(written), SCHEMA)) == expected


@pytest.mark.row("N03")
@pytest.mark.parametrize(
    "text", ['{"limit": null, "limit": 1}', '{"limit": null', '{"n": 1.50, "x": "null"}', "null", ""]
)
def test_arguments_without_such_a_null_stay_as_they_are(text):
    assert without_absent(text, SCHEMA) == text


ARGUMENTS = '{"n": 1, "limit": null, "kind": "a", "note": null, "place": null, "places": null}'


def of_responses() -> list[Any]:
    call = Responseses.call("a", ARGUMENTS, name="look")
    return [Responseses.done(0, call), Responseses.completed(call)]


def of_chat() -> list[Any]:
    begun = Chats.calls(Chats.call("a", ARGUMENTS[:40], name="look"))
    return [begun, Chats.calls(Chats.call(None, ARGUMENTS[40:], name="")), Chats.delta("tool_calls"), "[DONE]"]


def of_chat_at_once() -> list[Any]:
    return [Chats.message("tool_calls", tool_calls=[Chats.call("a", ARGUMENTS, name="look")]), "[DONE]"]


STRICT = {
    "responses": ("responses", OpenAIResponses, {}, of_responses),
    "chat": ("chat", OpenAIChat, {"strict_tools": True}, of_chat),
    "chat, a whole message": ("chat", OpenAIChat, {"strict_tools": True}, of_chat_at_once),
}


@pytest.mark.row("V15", "W08")
@pytest.mark.parametrize(("dialect", "adapter", "options", "stream"), STRICT.values(), ids=STRICT)
async def test_a_tool_with_optional_parameters_is_strict_and_gets_what_the_model_meant(
    dialect: str, adapter: Any, options: dict[str, Any], stream: Any
):
    got: list[Any] = []

    async def run(arguments: Any, ctx: Any) -> str:
        got.append(arguments)
        return "ok"

    async with serving(answer(sse(*stream())), answer(events(dialect, "Done."))) as server:
        look = Tool(name="look", description="Look.", run=run, parameters=SCHEMA, effect="read")
        model = adapter("m", base_url=server.url, api_key=None, options=options)
        result = await Agent(model, tools=[look]).run("go")

    (sent,) = server.requests[0].json["tools"]
    sent = sent.get("function", sent)
    assert sent["strict"] is True
    assert check_strict_schema(sent["parameters"]) is None
    assert (result.completed, got) == (True, [{"n": 1, "limit": 10, "kind": "a", "note": None}])


@pytest.mark.row("V15", "N03")
async def test_a_null_that_the_model_wrote_for_a_server_without_strict_tools_is_judged_as_it_is():
    async with serving(answer(sse(*of_chat())), answer(events("chat", "Done."))) as server:
        look = Tool(name="look", description="Look.", run=never, parameters=SCHEMA, effect="read")
        result = await Agent(OpenAIChat("m", base_url=server.url, api_key=None), tools=[look]).run("go")

    assert [call.status for call in result.tool_calls] == ["invalid_arguments"]


async def never(arguments: Any, ctx: Any) -> str:
    raise AssertionError("A call with invalid arguments ran.")


@pytest.mark.row("V15")
@pytest.mark.parametrize("optional", [{"type": ["string", "null"]}, {"type": ["string", "null"], "default": "x"}, {}])
def test_where_null_has_a_meaning_of_its_own_the_tool_is_not_strict(optional):
    assert strict_schema({"type": "object", "properties": {"a": optional}}, nullable=True) is None
