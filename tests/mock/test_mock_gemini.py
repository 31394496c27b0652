"""The mock provider speaking Gemini: what it refuses, what it takes, and how it says a turn."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from treadle import Agent, Tool, resolve_model
from treadle.errors import ModelRejected
from treadle.messages import Message, Result, ToolCall, user_message
from treadle.mock.dialects.gemini import STAND_IN_SIGNATURES, check_gemini_history, check_gemini_request
from treadle.ports import ModelEnd, ModelRequest
from treadle.testing import MockProvider, Refusal, Turn, call

GO = {"role": "user", "parts": [{"text": "go"}]}
BYE = {"role": "model", "parts": [{"text": "done"}]}


def model(*parts: Any) -> Any:
    return {"role": "model", "parts": list(parts)}


def user(*parts: Any) -> Any:
    return {"role": "user", "parts": list(parts)}


def called(name: str = "f", **fields: Any) -> Any:
    return {"functionCall": {"name": name, "args": {}, **fields}}


def answered(name: str = "f", **fields: Any) -> Any:
    return {"functionResponse": {"name": name, "response": {"output": "ok"}, **fields}}


VALID = {
    "one question": [GO],
    "a question without a role": [{"parts": [{"text": "go"}]}],
    "a call and its response": [GO, model(called()), user(answered())],
    "two calls with ids, answered in another order": [
        GO,
        model(called(id="a"), called(name="g", id="b")),
        user(answered(name="g", id="b"), answered(id="a")),
    ],
    "words, thoughts and calls in one content": [GO, model({"text": "I see.", "thought": True}, {"text": "Hm."}, called()), user(answered())],
    "files after the responses": [GO, model(called()), user(answered()), user({"inlineData": {"mimeType": "image/png", "data": "AA=="}})],
    "files inside a response": [GO, model(called()), user(answered(parts=[{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]))],
    "words after the responses": [GO, model(called()), user(answered()), user({"text": "and now?"})],
    "a signature without words": [GO, model({"text": "", "thoughtSignature": "cw=="}, called()), user(answered())],
    "code that ran on the server": [
        GO,
        model(
            {"executableCode": {"language": "PYTHON", "code": "1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_OK"}}
        ),
        GO,
    ],
    "snake case": [
        GO,
        model({"function_call": {"name": "f"}, "thought_signature": "cw=="}),
        {"role": "function", "parts": [{"function_response": {"name": "f", "response": {}}}]},
    ],
    "three steps": [GO, model(called()), user(answered()), model(called("g")), user(answered("g")), BYE, GO],
}  # fmt: skip


COUNTS = "number of function response parts is equal to the number of function call parts"
INVALID = {
    "nothing": (None, "contents is not specified"),
    "no list": ({"role": "user"}, "Invalid value at 'contents'"),
    "an unknown field": ([{**GO, "name": "x"}], 'Unknown name "name"'),
    "the role of another vendor": ([{**GO, "role": "assistant"}], "Invalid value at 'contents[0].role'"),
    "no parts": ([{"role": "user"}], "parts: Parts cannot be empty"),
    "a part of another vendor": ([user({"type": "text", "text": "go"})], 'Unknown name "type"'),
    "an empty part": ([user({})], "oneof field 'data' must have one initialized field"),
    "two kinds in one part": ([user({"text": "a", "inlineData": {"mimeType": "a/b", "data": "AA=="}})], "oneof field 'data' is already set"),
    "a file without its kind": ([user({"inlineData": {"data": "AA=="}})], "mimeType"),
    "a call by the user": ([user(called())], "valid role"),
    "a response by the model": ([GO, model(called()), model(answered())], "valid role"),
    "a call without a name": ([GO, model({"functionCall": {"args": {}}}), user(answered())], "Name cannot be empty"),
    "a name with a blank": ([GO, model(called("a b")), user(answered("a b"))], "Invalid function name"),
    "arguments as a text": ([GO, model(called(args="{}")), user(answered())], "google.protobuf.Struct"),
    "a call without its response": ([GO, model(called()), GO], COUNTS),
    "one response for two calls": ([GO, model(called(), called("g")), user(answered())], COUNTS),
    "responses in two contents": ([GO, model(called(), called("g")), user(answered()), user(answered("g"))], COUNTS),
    "a response without a call": ([GO, user(answered())], "immediately after a function call turn"),
    "a response without a value": ([GO, model(called()), user({"functionResponse": {"name": "f"}})], "Response cannot be empty"),
    "a response to another function": ([GO, model(called()), user(answered("g"))], "answers function call"),
    "a response to another id": ([GO, model(called(id="a")), user(answered(id="b"))], "id `b`"),
    "two responses to one id": ([GO, model(called(id="a"), called(id="b")), user(answered(id="a"), answered(id="a"))], "id `a`"),
    "two calls of one id": ([GO, model(called(id="a"), called(id="a")), user(answered(id="a"), answered(id="a"))], "ids are unique"),
    "a reference in a response": ([GO, model(called()), user(answered(response={"schema": [{"$ref": "#/$defs/X"}]}))], "referenced name `#/$defs/X`"),
    "a call at the very start": ([model(called()), user(answered())], "immediately after a user turn"),
    "a call after the model's own words": ([GO, BYE, model(called()), user(answered())], "immediately after a user turn"),
    "a call at the end": ([GO, model(called())], "end with a user turn"),
    "words of the model at the end": ([GO, BYE], "end with a user turn"),
}  # fmt: skip


@pytest.mark.row("W06")
def test_a_call_that_came_signed_must_go_back_signed():
    history = [GO, model(called(id="a")), user(answered(id="a"))]
    with pytest.raises(Refusal, match="missing a thought_signature"):
        check_gemini_history(history, signed={"a"})

    for signature in ("cw==", *STAND_IN_SIGNATURES):
        check_gemini_history(
            [GO, model({**called(id="a"), "thoughtSignature": signature}), user(answered(id="a"))], signed={"a"}
        )


SIGNED = {**called(id="a"), "thoughtSignature": "skip_thought_signature_validator"}
UNSIGNED = [GO, model(called(id="a")), user(answered(id="a"))]


@pytest.mark.row("W06", "M15")
def test_gemini_3_wants_a_signature_on_the_first_call_of_each_step_of_the_open_turn():
    second = [GO, model(SIGNED), user(answered(id="a")), model(called(id="b")), user(answered(id="b"))]
    for history in (UNSIGNED, second):
        with pytest.raises(Refusal, match="missing a thought_signature"):
            check_gemini_history(history, wants_signatures=True)

    beside = [GO, model(SIGNED, called(id="b")), user(answered(id="a"), answered(id="b"))]
    for history in (
        beside,
        [*UNSIGNED, GO],
        [*UNSIGNED, BYE, GO],
    ):  # what came before the person's words is not looked at
        check_gemini_history(history, wants_signatures=True)


@pytest.mark.row("W06", "M15")
@pytest.mark.parametrize(
    ("name", "status"),
    [("gemini-3-pro-preview", 400), ("gemini-4-flash", 400), ("gemini-2.5-pro", 200), ("gemma-3-27b-it", 200)],
)
async def test_the_model_in_the_path_says_whether_calls_are_signed(name: str, status: int):
    async with MockProvider(["ok"]) as provider, aiohttp.ClientSession() as client:
        url = f"{provider.base_url}beta/models/{name}:generateContent"
        async with client.post(url, json={"contents": UNSIGNED}) as response:
            assert response.status == status


TOOL = {"name": "f", "description": "", "parametersJsonSchema": {"type": "object", "properties": {}}}


def tools(**changes: Any) -> Any:
    return {"contents": [GO], "tools": [{"functionDeclarations": [{**TOOL, **changes}]}]}


def schema(**changes: Any) -> Any:
    return tools(parametersJsonSchema={"type": "object", **changes})


def openapi(value: Any) -> Any:
    return {
        "contents": [GO],
        "tools": [{"functionDeclarations": [{"name": "f", "description": "", "parameters": value}]}],
    }


BAD_REQUESTS = [
    ([], "Expected an object"),
    ({"contents": [GO], "messages": []}, 'Unknown name "messages"'),
    ({"contents": [GO], "stream": True}, 'Unknown name "stream"'),
    ({"contents": [GO], "systemInstruction": "be brief"}, "systemInstruction"),
    ({"contents": [GO], "systemInstruction": {"parts": []}}, "systemInstruction"),
    ({"contents": [GO], "tools": [{"type": "function"}]}, 'Unknown name "type"'),
    ({"contents": [GO], "tools": "f"}, "Invalid value at 'tools'"),
    (tools(name="7z"), "Invalid function name"),
    (tools(name=""), "Name cannot be empty"),
    (tools(strict=True), 'Unknown name "strict"'),
    (tools(description=None), "TYPE_STRING"),
    (tools(parameters={"type": "object"}), "only one of parameters"),
    ({"contents": [GO], "tools": [{"functionDeclarations": [TOOL, TOOL]}]}, "Duplicate function declaration"),
    (schema(type="string"), "top-level must be type object"),
    (schema(properties={"a": {"$ref": "#/$defs/A", "title": "x"}}), "alongside unsupported fields"),
    (schema(properties={"a": {"$ref": "#/$defs/A"}}), "undefined schema"),
    (openapi({"type": "object", "additionalProperties": False}), 'Unknown name "additionalProperties"'),
    (openapi({"type": "object", "properties": {"a": {"exclusiveMinimum": 0}}}), 'Unknown name "exclusiveMinimum"'),
    (openapi({"type": "object", "properties": {"a": {"anyOf": [{"$ref": "x"}]}}}), 'Unknown name "$ref"'),
    (schema(properties={"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]}}), "undefined schema"),
    (openapi({"type": ["object", "null"]}), "parameters.type' (TYPE_STRING)"),
    (openapi({"type": "object", "properties": ["a"]}), "Invalid value at 'tools[0].functionDeclarations[0].parameters.properties'"),
    ({**tools(), "toolConfig": {"functionCallingConfig": {"mode": "auto"}}}, "TYPE_ENUM"),
    ({**tools(), "toolConfig": {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["f"]}}}, "ANY"),
    ({**tools(), "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["g"]}}}, '"g"'),
    ({"contents": [GO], "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}, "without function_declarations"),
    ({"contents": [GO], "generationConfig": {"max_tokens": 5}}, 'Unknown name "maxTokens"'),
    ({"contents": [GO], "generationConfig": {"temperature": 3}}, "range"),
    ({"contents": [GO], "generationConfig": {"temperature": "hot"}}, "TYPE_NUMBER"),
    ({"contents": [GO], "generationConfig": {"responseMimeType": "json"}}, "generationConfig.responseMimeType"),
    ({"contents": [GO], "generationConfig": {"responseJsonSchema": {}}}, "response mime type"),
    (
        {
            "contents": [GO],
            "generationConfig": {
                "responseMimeType": "application/json",
                "responseSchema": {},
                "responseJsonSchema": {},
            },
        },
        "Only one of response_schema and response_json_schema may be set.",
    ),
]  # fmt: skip


GOOD_REQUESTS = [
    {"contents": [GO]},
    tools(),
    schema(properties={"a": {"$ref": "#/$defs/A"}, "$ref": {"type": "string"}}, **{"$defs": {"A": {"type": "string"}}}),
    schema(properties={"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]}}, **{"$defs": {"A": {"type": "string"}}}),
    openapi({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}),
    {**tools(), "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}}},
    {**tools(), "tool_config": {"function_calling_config": {"mode": "NONE"}}},
    {"contents": [GO], "toolConfig": {"retrievalConfig": {"languageCode": "de"}}},
    {"contents": [GO], "tools": [{"googleSearch": {}}, {"code_execution": {}}]},
    {"contents": [GO], "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {"type": "integer"}}},
    {"contents": [GO], "system_instruction": {"parts": {"text": "be brief"}}, "safetySettings": []},
]  # fmt: skip


def test_every_recorded_request_is_taken(recordings: Path):
    seen = 0
    for path in sorted(recordings.glob("*/gemini/*.json")):
        for one in json.loads(path.read_text(encoding="utf-8"))["interactions"]:
            if ":generateContent" in one["path"] and one["status"] == 200:
                contents = check_gemini_request(one["request"])["contents"]
                check_gemini_history(contents, wants_signatures="gemini-3" in one["path"])
                seen += 1

    assert seen >= 30


# --- over the wire ---------------------------------------------------------------------------------------------------


async def test_a_refusal_is_an_error_in_the_vendors_words():
    async with (
        MockProvider(["Hello."]) as provider,
        aiohttp.ClientSession() as client,
        client.post(f"{provider.base_url}/models/m:generateContent", json={"contents": []}) as response,
    ):
        assert response.status == 400
        assert (await response.json())["error"] == {
            "code": 400,
            "message": "* GenerateContentRequest.contents: contents is not specified",
            "status": "INVALID_ARGUMENT",
        }
    assert [refusal.status for refusal in provider.refusals] == [400]


@pytest.mark.row("M15")
async def test_an_id_that_comes_again_unsigned_is_not_asked_for_its_signature():
    async def run(arguments: Any, ctx: Any) -> Any:
        return arguments

    echo = Tool(name="echo", description="Echo.", parameters={}, effect="read", run=run)
    script = [
        Turn(calls=(call("echo", text="1", id="same"),), cut="before-terminal"),
        Turn(calls=(call("echo", text="2", id="u"), call("echo", text="3", id="same"))),
        [call("echo", text="4", id="same")],
        "done",
    ]
    async with MockProvider(script) as mock:
        model = resolve_model("gemini:m", base_url=mock.base_url, api_key="k")
        result = await Agent(model, tools=[echo]).run("go")

    assert (result.text, mock.refusals) == ("done", [])


@pytest.mark.row("W06")
async def test_a_history_that_lost_its_signatures_is_refused():
    async with MockProvider([call("f"), "Done."]) as provider:
        model = resolve_model("gemini:gemini-2.5-pro", base_url=provider.base_url)
        ask = user_message("go")
        async for part in model.stream(ModelRequest(messages=(ask,))):
            last = part
        assert isinstance(last, ModelEnd)
        (made,) = last.parts
        stripped = Message(role="assistant", parts=(ToolCall(id=made.id, name="f", arguments="{}"),))
        answer = Message(role="tool", parts=(Result(call_id=made.id, name="f", content="ok"),))
        with pytest.raises(ModelRejected, match="thought_signature"):
            async for _ in model.stream(ModelRequest(messages=(ask, stripped, answer))):
                pass
