"""The mock provider's Responses: what it refuses in the vendor's words, what it takes, and what it says."""

import json
from typing import Any

import aiohttp
import pytest

from treadle.messages import Usage
from treadle.mock.dialects.openai_responses import Kept, Responses, check_responses_history
from treadle.mock.dialects.shared import check_strict_schema
from treadle.testing import MockProvider, Refusal, Turn, call

USER = {"role": "user", "content": "go"}
SAID = {"role": "assistant", "content": "hm"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}


def made(call_id: Any = "call_1", name: Any = "look", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **more}


def told(call_id: Any = "call_1", output: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output, **more}


def without(item: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in keys}


RAN = {
    "type": "shell_call_output",
    "call_id": "c",
    "output": [{"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
}
NO_OUTPUT = "No tool output found for function call "
PROGRAM = {"type": "program", "id": "prog_1", "call_id": "p", "code": "x", "fingerprint": "f"}
RETURNED = {"type": "program_output", "id": "out_1", "call_id": "p", "result": "1", "status": "completed"}
BY_PROGRAM = {"type": "program", "caller_id": "p"}
NO_CALL = "No tool call found for function call output with call_id "
ALONE = "was provided without its required following item"
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "q"},
}
INVALID = {
    "an object": (USER, "expected one of a string or array of objects, but got an object"),
    "no item": ([], "Invalid 'input': empty array"),
    "an item without a type": ([{"content": "go"}], "Missing required parameter: 'input[0].type'"),
    "an item of an unknown type": ([{"type": "tool_result"}], "Invalid value: 'tool_result'"),
    "an unknown role": ([{"role": "tool", "content": "go"}], "Invalid value: 'tool'"),
    "a message of Chat Completions with calls": ([{**SAID, "tool_calls": []}], "Invalid type for 'input[0].tool_calls'"),
    "a part of Chat Completions": ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], "Invalid value: 'text'"),
    "an image without an address": (
        [{"role": "user", "content": [{"type": "input_image", "detail": "auto"}]}],
        "Missing required parameter: 'input[0].content[0].image_url'",
    ),
    "input text of an assistant": (
        [{"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}],
        "Supported values are: 'output_text', 'refusal'",
    ),
    "a call that nobody answered": ([USER, made()], NO_OUTPUT + "call_1"),
    "one of two calls unanswered": ([USER, made("a"), made("b"), told("a")], NO_OUTPUT + "b"),
    "an output that comes first": ([told(), made()], NO_CALL + "call_1"),
    "an output for another id": ([USER, made("a"), told("b")], NO_CALL + "b"),
    "two outputs for one call": ([USER, made(), told(), told()], "Duplicate tool output found for function call"),
    "two calls with one id": ([USER, made(), made(), told()], "Duplicate value for 'call_id': 'call_1'"),
    "an id used again later": ([USER, made(), told(), made(), told()], "Duplicate value for 'call_id': 'call_1'"),
    "two items with one id": ([USER, made("a", id="fc"), made("b", id="fc")], "Duplicate item found with id fc"),
    "a call_id of 65 characters": ([made("x" * 65)], "maximum length 64, but got a string with length 65"),
    "a call whose name has a space": ([made(name="look up")], "does not match pattern"),
    "arguments that are an object": ([made(arguments={})], "'input[0].arguments': expected a string, but got an object"),
    "arguments cut off": ([made(arguments='{"a": ')], "'input[0].arguments': the string is not valid JSON"),
    "arguments with NaN": ([made(arguments='{"a": NaN}')], "is not valid JSON"),
    "an output in output_text": ([made(), told(output=[{"type": "output_text", "text": "a"}])], "'output_text'"),
    "reasoning at the end": ([USER, THOUGHT], ALONE),
    "reasoning before a user": ([USER, THOUGHT, USER], ALONE),
    "reasoning without its seal": ([USER, without(THOUGHT, "encrypted_content"), SAID], "Items are not persisted"),
    "a custom call that nobody answered": (
        [USER, {"type": "custom_tool_call", "call_id": "c", "name": "x", "input": "y"}],
        "No tool output found for custom tool call c",
    ),
    "a shell call that nobody answered": (
        [USER, {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}],
        "No tool output found for shell call c",
    ),
    "a call by a program that is missing": ([USER, made(caller=BY_PROGRAM), told()], "No program found for caller_id p"),
    "a shell output for nobody": ([USER, RAN], "No tool call found for shell call output with call_id c"),
    "a shell output without its end": (
        [USER, {"type": "shell_call", "call_id": "c", "action": {}}, {**RAN, "output": [{"stdout": "", "stderr": ""}]}],
        "Missing required parameter: 'input[2].output[0].outcome'",
    ),
    "a custom output for a function call": (
        [USER, made("c"), {"type": "custom_tool_call_output", "call_id": "c", "output": "y"}],
        "No tool call found for custom tool call output with call_id c",
    ),
}  # fmt: skip
VALID = {
    "words": "go",
    "a question": [USER],
    "instructions in the input": [{"role": "developer", "content": "d"}, {"role": "system", "content": "s"}, USER],
    "a call and its output": [USER, made(), told()],
    "reasoning, a call and its output": [USER, THOUGHT, made(id="fc_1"), told()],
    "two calls, outputs in another order": [USER, made("a"), made("b"), told("b"), told("a")],
    "calls and outputs in turns": [USER, made("a"), told("a"), made("b"), told("b")],
    "an output of images and files": [
        USER,
        made(),
        told(
            output=[
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "data:image/png;base64,aWc=", "detail": "auto"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cA=="},
            ]
        ),
    ],
    "a whole message item": [
        USER,
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "a", "annotations": []}, {"type": "refusal", "refusal": "b"}],
        },
    ],
    "a call by a program, and what it returned": [USER, PROGRAM, made(caller=BY_PROGRAM), told(caller=BY_PROGRAM), RETURNED],
    "a server-side search": [USER, THOUGHT, SEARCH, SAID],
    "a shell call and its output": [USER, {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}, RAN, SAID],
    "a custom call and its output": [
        USER,
        {"type": "custom_tool_call", "call_id": "c", "name": "x", "input": "y"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "z"},
    ],
    "a call_id of 64 characters": [USER, made("x" * 64), told("x" * 64)],
}  # fmt: skip


def test_broken_arguments_are_taken_by_a_lenient_server() -> None:
    check_responses_history([made(arguments='{"a": '), told()], lenient_arguments=True)


def test_calls_of_the_previous_response_want_their_outputs() -> None:
    before = Kept(open_calls=("a", "b"), item_ids=frozenset({"rs_0"}))

    check_responses_history([told("b"), told("a")], before=before)
    with pytest.raises(Refusal, match=NO_OUTPUT + "b"):
        check_responses_history([told("a"), USER], before=before)


def test_an_item_wants_the_reasoning_that_it_came_with() -> None:
    links = {"fc_1": "rs_1"}

    check_responses_history([USER, THOUGHT, made(id="fc_1"), told()], links=links)
    check_responses_history([USER, made(), told()], links=links)
    with pytest.raises(
        Refusal, match="'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'"
    ):
        check_responses_history([USER, made(id="fc_1"), told()], links=links)


# --- requests --------------------------------------------------------------------------------------------------------

CLOSED = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
LOOK = {"type": "function", "name": "look", "description": "d", "parameters": CLOSED, "strict": True}
OK = {"model": "m", "input": "go"}
BAD_REQUESTS = {
    "a list": ([], "it must be an object"),
    "no model": ({"input": "go"}, "Missing required parameter: 'model'"),
    "messages": ({**OK, "messages": []}, "this parameter has moved to 'input'"),
    "response_format": ({**OK, "response_format": {}}, "has moved to 'text.format'"),
    "a misspelt parameter": ({**OK, "temprature": 1}, "Unknown parameter: 'temprature'. Did you mean 'temperature'?"),
    "a temperature below zero": ({**OK, "temperature": -1}, "Expected a value >= 0, but got -1"),
    "too few tokens": ({**OK, "max_output_tokens": 1}, "Expected a value >= 16"),
    "an unknown include": ({**OK, "include": ["thoughts"]}, "Invalid value: 'thoughts'"),
    "a tool of Chat Completions": (
        {**OK, "tools": [{"type": "function", "function": {"name": "look"}}]},
        "Missing required parameter: 'tools[0].name'",
    ),
    "a tool with a dot in its name": ({**OK, "tools": [{**LOOK, "name": "a.b"}]}, "does not match pattern"),
    "two tools of one name": ({**OK, "tools": [LOOK, LOOK]}, "used by more than one tool"),
    "alternatives at the root": (
        {**OK, "tools": [{**LOOK, "strict": False, "parameters": {"type": "object", "anyOf": []}}]},
        "schema must have type 'object' and not have",
    ),
    "parameters that are not object": ({**OK, "tools": [{**LOOK, "parameters": {"type": "string"}}]}, "got 'type: \"string\"'"),
    "strict with an optional property": (
        {**OK, "tools": [{**LOOK, "parameters": {**CLOSED, "properties": {"a": {"type": "string"}}}}]},
        "Missing 'a'",
    ),
    "strict by silence, and open": (
        {**OK, "tools": [without({**LOOK, "parameters": {"type": "object", "properties": {}}}, "strict")]},
        "'additionalProperties' is required to be supplied and to be false",
    ),
    "a choice of Chat Completions": (
        {**OK, "tools": [LOOK], "tool_choice": {"type": "function", "function": {"name": "look"}}},
        "Missing required parameter: 'tool_choice.name'",
    ),
    "a choice of a tool that does not exist": (
        {**OK, "tools": [LOOK], "tool_choice": {"type": "function", "name": "other"}},
        "Tool choice 'other' not found in 'tools' parameter",
    ),
    "required without tools": ({**OK, "tool_choice": "required"}, "must be specified with 'tools' parameter"),
    "a choice by name in Anthropic's form": ({**OK, "tools": [LOOK], "tool_choice": {"type": "tool", "name": "look"}}, "Invalid value: 'tool'"),
    "a format of Chat Completions": (
        {**OK, "text": {"format": {"type": "json_schema", "json_schema": {"name": "o", "schema": {}}}}},
        "Missing required parameter: 'text.format.name'",
    ),
    "a strict format that is open": (
        {**OK, "text": {"format": {"type": "json_schema", "name": "o", "schema": {"type": "object"}, "strict": True}}},
        "Invalid schema for response_format 'o'",
    ),
}  # fmt: skip


GOOD_REQUESTS = {
    **{
        f"a choice of {choice}": {
            **OK,
            "tools": [LOOK, {"type": "web_search"}],
            "tool_choice": choice,
            "parallel_tool_calls": False,
        }
        for choice in ("auto", "none", "required")
    },
    "a choice by name": {**OK, "tools": [LOOK], "tool_choice": {"type": "function", "name": "look"}},
    "a choice of the server's tool": {**OK, "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
    "a text without a format": {**OK, "text": {}},
    "a plain text": {**OK, "text": {"format": {"type": "text"}}},
    "a text of JSON": {**OK, "text": {"format": {"type": "json_object"}}},
}


STRICT_FAULTS = {
    "oneOf": ({"oneOf": [], "type": "object"}, "'oneOf' is not permitted"),
    "default": ({**CLOSED, "properties": {"a": {"type": "string", "default": ""}}, "required": ["a"]}, "'default' is"),
    "no type": ({**CLOSED, "properties": {"a": {}}, "required": ["a"]}, "must have a 'type' key"),
    "a map": ({**CLOSED, "properties": {"a": {"type": "object"}}, "required": ["a"]}, "to be false"),
    "a list of anything": ({**CLOSED, "properties": {"a": {"type": "array"}}, "required": ["a"]}, "missing items"),
    "an extra required key": ({**CLOSED, "required": ["a"]}, "Extra required key 'a'"),
    "a reference with words": (
        {**CLOSED, "properties": {"a": {"$ref": "#", "description": "d"}}, "required": ["a"]},
        "$ref cannot have keywords ['description']",
    ),
    "a reference to elsewhere": ({**CLOSED, "properties": {"a": {"$ref": "https://h/s"}}, "required": ["a"]}, "can only point to definitions"),
    "a format that is unknown": (
        {**CLOSED, "properties": {"a": {"type": "string", "format": "uri"}}, "required": ["a"]},
        "'uri' is not a valid format",
    ),
    "a schema that is true": ({**CLOSED, "properties": {"a": True}, "required": ["a"]}, 'In context=("properties", "a"), schema must be an object.'),
    "a pattern that looks ahead": (
        {**CLOSED, "properties": {"a": {"type": "string", "pattern": "^(?=x)"}}, "required": ["a"]},
        'In context=("properties", "a"), regex lookaround is not supported.',
    ),
    "an object without properties": (without(CLOSED, "properties"), "In context=(), object schema missing properties."),
    "an object without required": (without(CLOSED, "required"), "'required' is required to be supplied and to be an array"),
    "an open object inside a list": (
        {**CLOSED, "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {}}}}, "required": ["a"]},
        "to be false",
    ),
}  # fmt: skip


@pytest.mark.row("V15")
@pytest.mark.parametrize("case", STRICT_FAULTS)
def test_what_strict_mode_refuses_is_named(case: str) -> None:
    schema, words = STRICT_FAULTS[case]

    assert words in (check_strict_schema(schema) or "")


@pytest.mark.row("V15")
def test_what_strict_mode_takes_is_taken() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["next"],
        "additionalProperties": False,
    }
    schema = {**CLOSED, "properties": {"a": {"$ref": "#/$defs/node"}}, "required": ["a"], "$defs": {"node": node}}

    assert check_strict_schema(schema) is None


# --- what it says ----------------------------------------------------------------------------------------------------

WHOLE = Turn(
    thinking="I think.",
    text="I look, å🙂.",
    calls=(call("look", q="a"), call("look", q="b", id="own")),
    usage=Usage(input_tokens=7, output_tokens=5, cached_input_tokens=3, reasoning_tokens=2),
)


def said(turn: Turn, **body: Any) -> tuple[bytes, list[Any]]:
    answer = Responses().answer(turn, {**OK, **body}, number=1, ids=iter(["call_1", "call_2"]))
    content = b"".join(piece.content for piece in answer.pieces)
    if not answer.is_stream:
        return content, [json.loads(content)]
    return content, [json.loads(line[6:]) for line in content.decode().splitlines() if line.startswith("data: ")]


def test_both_forms_say_the_same() -> None:
    streamed, whole = said(WHOLE, stream=True)[1], said(WHOLE)[1][0]
    done = [event["item"] for event in streamed if event["type"] == "response.output_item.done"]

    assert streamed[-1]["type"] == "response.completed"
    assert streamed[-1]["response"] == whole
    assert done == whole["output"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "function_call"]
    assert [item["call_id"] for item in done[2:]] == ["call_1", "own"]
    assert [event["sequence_number"] for event in streamed] == list(range(len(streamed)))
    assert "".join(e["delta"] for e in streamed if e["type"] == "response.output_text.delta") == WHOLE.text
    assert whole["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }


def test_each_event_is_named_by_its_type() -> None:
    lines = said(WHOLE, stream=True)[0].decode().splitlines()

    for name, data in zip(lines[::3], lines[1::3], strict=True):
        assert name.removeprefix("event: ") == json.loads(data.removeprefix("data: "))["type"]


def test_fragments_of_two_calls_can_come_in_turns() -> None:
    turn = Turn(calls=WHOLE.calls, interleave=True)
    deltas = [e for e in said(turn, stream=True)[1] if e["type"] == "response.function_call_arguments.delta"]

    assert [event["output_index"] for event in deltas] == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("turn", "status", "reason"),
    [
        (Turn(text="a", finish="length"), "incomplete", "max_output_tokens"),
        (Turn(text="a", finish="content_filter"), "incomplete", "content_filter"),
        (Turn(refusal="no"), "completed", None),
        (Turn(text="a"), "completed", None),
    ],
)
def test_the_end_has_the_vendors_words(turn: Turn, status: str, reason: str | None) -> None:
    whole = said(turn)[1][0]

    assert whole["status"] == status
    assert whole["incomplete_details"] == (None if reason is None else {"reason": reason})
    assert said(turn, stream=True)[1][-1]["type"] == f"response.{status}"


def test_reasoning_is_sealed_only_where_it_was_asked_for() -> None:
    assert "encrypted_content" not in said(WHOLE)[1][0]["output"][0]
    assert said(WHOLE, include=["reasoning.encrypted_content"])[1][0]["output"][0]["encrypted_content"]


def test_an_error_inside_a_stream_and_a_failed_response() -> None:
    turn = Turn(text="a", error="boom")

    assert said(turn, stream=True)[1][-1] | {"sequence_number": 0} == {
        "type": "error",
        "code": "server_error",
        "message": "boom",
        "param": None,
        "sequence_number": 0,
    }
    assert said(turn)[1][0]["error"] == {"code": "server_error", "message": "boom"}
    assert said(turn)[1][0]["status"] == "failed"


async def test_the_server_keeps_what_it_was_not_told_to_forget() -> None:
    async with MockProvider([call("look"), call("look"), "done"]) as provider, aiohttp.ClientSession() as client:

        async def post(**body: Any) -> tuple[int, Any]:
            async with client.post(f"{provider.base_url}/responses", json={"model": "m", **body}) as answer:
                return answer.status, await answer.json()

        _, first = await post(input="go")
        missing = await post(input=[USER], previous_response_id=first["id"])
        _, second = await post(input=[told("call_1")], previous_response_id=first["id"], store=False)
        forgotten = await post(input=[told("call_2")], previous_response_id=second["id"])

    assert missing == (400, {"error": {"message": NO_OUTPUT + "call_1.", "type": "invalid_request_error", "param": "input", "code": None}})  # fmt: skip
    assert second["output"][0]["call_id"] == "call_2"
    assert forgotten[1]["error"]["code"] == "previous_response_not_found"
