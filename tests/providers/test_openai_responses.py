"""OpenAI Responses: the requests that go out, and the responses that come back, from honest servers and from others."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import wire
from chat_server import answer, json_answer, serving
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from wire import parts_from, read, tool

from treadle import Agent, Tool, resolve_model
from treadle.errors import (
    ContextOverflow,
    ModelRejected,
    ModelUnavailable,
)
from treadle.messages import (
    Finish,
    Media,
    Message,
    Opaque,
    Result,
    Text,
    Thinking,
    ToolCall,
    Usage,
    user_message,
)
from treadle.mock.dialects.openai_responses import Responses
from treadle.mock.dialects.shared import check_strict_schema
from treadle.ports import CallReady, ModelEnd, ModelRequest, TextDelta, ThinkingDelta, ToolSpec
from treadle.providers.openai_responses import OpenAIResponses
from treadle.providers.openai_responses.request import ResponsesRequests
from treadle.providers.openai_responses.response import ResponsesResponse
from treadle.providers.payload import strict_schema
from treadle.testing import MockProvider, Turn
from treadle.testing import call as scripted

ORIGIN = "openai:gpt-5-mini"
ASK = ModelRequest(messages=(user_message("hi"),))
GREP = ToolSpec(
    name="grep",
    description="Search.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}


def event(kind: str, **more: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"


def message(text: str, *, item_id: str = "msg_1", **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": content, **more}


def function(call_id: str, name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    made = {"call_id": call_id, "name": name, "arguments": arguments}
    return {"type": "function_call", "id": f"fc_{call_id}", "status": "completed", **made, **more}


def whole(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": status, "output": list(output), "usage": None, **more}


def done(index: int, item: Any) -> str:
    return event("response.output_item.done", output_index=index, item=item)


def completed(*output: Any, **more: Any) -> str:
    return event("response.completed", response=whole(*output, **more))


HELLO = event("response.output_text.delta", output_index=0, delta="Hello") + completed(message("Hello"))


ask = partial(parts_from, "openai", model="gpt-5-mini")
sent = partial(wire.written, "openai", model="gpt-5-mini")
end_of = partial(wire.end_of, "openai", model="gpt-5-mini")
parse = partial(read, "openai")
assistant = partial(wire.assistant, origin=ORIGIN)


async def items(*messages: Message, **words: Any) -> Any:
    return (await sent(ModelRequest(messages=messages), **words))["input"]


def take(*output: Any, **more: Any) -> ModelEnd:
    """Read a body that came whole."""
    response = ResponsesResponse({})
    response.add_whole(json.dumps(whole(*output, **more)).encode())
    return response.end()


def call(call_id: str, name: str, arguments: str, signature: str | None = None) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments, signature=signature)


# --- the request -----------------------------------------------------------------------------------------------------


@pytest.mark.row("T12")
async def test_images_and_files_stand_inside_the_result_that_they_belong_to():
    message_ = tool(
        Result(
            call_id="1",
            name="shot",
            content="one",
            media=(
                Media(media_type="image/png", base64="aWc="),
                Media(media_type="application/pdf", base64="cA==", name="a.pdf"),
                Media(media_type="image/png", url="file-abc"),
            ),
        ),
        Result(call_id="2", name="shot", content="", media=(Media(media_type="image/jpeg", url="https://h/i.jpg"),)),
        Result(call_id="3", name="read", content="three"),
    )

    assert await items(message_) == [
        {
            "type": "function_call_output",
            "call_id": "1",
            "output": [
                {"type": "input_text", "text": "one"},
                {"type": "input_image", "image_url": "data:image/png;base64,aWc=", "detail": "auto"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cA=="},
                {"type": "input_image", "file_id": "file-abc", "detail": "auto"},
            ],
        },
        {
            "type": "function_call_output",
            "call_id": "2",
            "output": [{"type": "input_image", "image_url": "https://h/i.jpg", "detail": "auto"}],
        },
        {"type": "function_call_output", "call_id": "3", "output": "three"},
    ]


BODY_OF_ONE = """
from treadle.messages import user_message
from treadle.ports import ModelRequest, ToolSpec
from treadle.providers.openai_responses.request import ResponsesRequests
tools = tuple(ToolSpec(name=n, description="d", parameters={"properties": {k: {"type": "string"} for k in "xyz"}}) for n in "cab")
requests = ResponsesRequests("m", origin="openai:m", options={"metadata": {"a": "1", "b": "2"}}, stream=True)
print(requests.body(ModelRequest(messages=(user_message("hi"),), tools=tools), resumes=False))
"""


@pytest.mark.row("M10")
def test_two_processes_write_the_same_bytes():
    told = [
        subprocess.run(
            [sys.executable, "-c", BODY_OF_ONE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]

    assert told[0] == told[1]
    assert b'"metadata"' in told[0]


@pytest.mark.row("P-LONG-IDS")
@pytest.mark.parametrize("state", ["client", "server"])
async def test_an_id_of_sixty_characters_goes_back_unchanged(state):
    """Chat Completions takes 40 characters; here the vendor that made the id takes it back."""
    long = "call_" + "x" * 55
    async with MockProvider([Turn(calls=(scripted("look", id=long, q="a"),)), "done"]) as provider:
        model = resolve_model("openai:m", base_url=provider.base_url, options={"state": state})
        result = await Agent(model, tools=[LOOK]).run("go")

    assert (result.text, provider.refusals) == ("done", [])
    ids = [item["call_id"] for item in provider.requests[1].body["input"] if "call_id" in item]
    assert ids == [long] * (2 if state == "client" else 1)


# --- schemas ---------------------------------------------------------------------------------------------------------

CITY = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.row("V15", "W08")
@pytest.mark.parametrize(
    "schema",
    [
        CITY,
        {"type": "object"},
        {**CITY, "additionalProperties": False, "title": "City", "$schema": "x", "examples": [{}]},
        {"type": "object", "properties": {"a": {"type": "string", "default": "b", "pattern": "^a"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "format": "date"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 1}}, "required": ["a", "b"]},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/City", "description": "gone"}, "b": {"type": "array", "items": CITY}},
            "required": ["a", "b"],
            "$defs": {"City": CITY},
        },
        {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]},
    ],
)
def test_a_schema_that_strict_mode_can_say_is_compiled_to_what_the_vendor_takes(schema):
    before = json.dumps(schema)
    compiled = strict_schema(schema)

    assert compiled is not None
    assert check_strict_schema(compiled) is None
    assert compiled["additionalProperties"] is False
    assert json.dumps(schema) == before


@pytest.mark.row("V15")
@pytest.mark.parametrize(
    "schema",
    [
        {**CITY, "additionalProperties": True},
        {**CITY, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]},  # a free map
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        {"type": "object", "properties": {"a": True}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "format": "uri"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"oneOf": [CITY]}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "https://h/s"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"enum": list(range(2_000))}}, "required": ["a"]},
        {"type": "object", "properties": [], "required": "a"},
    ],
)
async def test_a_schema_that_strict_mode_cannot_say_goes_out_as_it_is_and_not_strict(schema):
    spec = ToolSpec(name="x", description="", parameters=schema)

    wire = (await sent(ModelRequest(messages=ASK.messages, tools=(spec,))))["tools"][0]

    assert strict_schema(schema) is None
    assert (wire["strict"], wire["parameters"]) == (False, schema)


def test_a_deep_schema_is_not_strict_and_never_fails():
    schema: dict[str, Any] = CITY
    for _ in range(50):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}

    assert strict_schema(schema) is None


@pytest.mark.row("V15")
async def test_arguments_that_break_a_schema_are_refused_here_whatever_strict_mode_promised():
    async with MockProvider([scripted("look", arguments='{"q": 5}'), "Sorry."]) as provider:
        result = await Agent(resolve_model("openai:m", base_url=provider.base_url), tools=[LOOK]).run("go")

    assert provider.requests[0].body["tools"][0]["strict"] is True
    assert "invalid_arguments" in provider.requests[1].body["input"][-1]["output"]
    assert result.text == "Sorry."


# --- what a model wrote goes back to it ------------------------------------------------------------------------------


@pytest.mark.row("W04")
@pytest.mark.parametrize("state", ["client", "server"])
@pytest.mark.parametrize("caller", [{"type": "program", "caller_id": "call_p"}, {"type": "direct"}, None, "me"])
async def test_the_result_of_a_call_that_a_program_of_the_model_made_names_the_program(caller, state):
    program = {
        "type": "program",
        "id": "prog_1",
        "call_id": "call_p",
        "code": "await tools.grep({})",
        "fingerprint": "f",
    }
    words = {} if caller is None else {"caller": caller}
    end = take(program, function("call_1", "grep", "{}", **words), function("call_2", "grep", "{}"))
    results = Message(
        role="tool",
        parts=(Result(call_id="call_1", name="grep", content="a"), Result(call_id="call_2", name="grep", content="b")),
    )

    sent = await items(assistant(*end.parts), results, options={"state": state})
    foreign = await items(assistant(*end.parts, origin="openai:gpt-5"), results, options={"state": state})

    outputs = [item for item in sent if item["type"] == "function_call_output"]
    is_program = isinstance(caller, dict) and caller["type"] == "program"
    assert [item.get("caller") for item in outputs] == [caller if is_program else None, None]
    assert [item["call_id"] for item in outputs] == ["call_1", "call_2"]
    assert not any("caller" in item for item in foreign)
    if state == "client":
        assert sent[0] == program
        assert sent[1].get("caller") == caller


OF_A_PROGRAM = {"status": "in_progress", "caller": {"type": "program", "caller_id": "call_p"}}


@pytest.mark.row("W04", "W10")
@pytest.mark.parametrize("form", ["whole", "listed", "not listed"])
@pytest.mark.parametrize("reasoning", [REASONING, {"id": "rs_1", "type": "reasoning", "summary": []}])
async def test_a_call_that_waits_for_its_program_runs_and_goes_back_with_all_that_belongs_to_it(form, reasoning):
    program = {"type": "program", "id": "prog_1", "call_id": "call_p", "code": "x", "fingerprint": "f"}
    output = [reasoning, program, function("call_1", "grep", '{"a": 1}', **OF_A_PROGRAM)]
    streamed = "".join(done(index, item) for index, item in enumerate(output))
    listed = completed(*(output if form == "listed" else ()))
    end = take(*output) if form == "whole" else parse(streamed + listed)[1]

    assert (end.finish, end.cut_calls) == (Finish.CALLS, frozenset())
    assert await items(assistant(*end.parts)) == output


@pytest.mark.row("PF22")
@pytest.mark.parametrize(
    ("arguments", "more"),
    [('{"a":', OF_A_PROGRAM), ("", OF_A_PROGRAM), ("{}", {**OF_A_PROGRAM, "status": "incomplete"})],
)
def test_a_call_of_a_program_that_is_not_whole_was_cut_off(arguments, more):
    assert take(function("call_1", "grep", arguments, **more)).cut_calls == {"call_1"}


@pytest.mark.row("W06")
async def test_reasoning_without_a_seal_stays_here_and_the_ids_that_need_it_too():
    loose = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    search = {"type": "web_search_call", "id": "ws_1"}
    end = take(loose, search, message("a"), function("c", "grep", "{}"))

    assert await items(assistant(*end.parts)) == [
        {"role": "assistant", "content": "a"},
        {"type": "function_call", "status": "completed", "call_id": "c", "name": "grep", "arguments": "{}"},
    ]
    assert (await items(assistant(*end.parts), options={"store": True}))[:2] == [loose, search]


async def test_reasoning_that_nothing_follows_stays_here():
    end = take(REASONING, status="incomplete", incomplete_details={"reason": "max_output_tokens"})

    assert await items(user_message("go"), assistant(*end.parts)) == [{"role": "user", "content": "go"}]
    assert end.finish is Finish.LENGTH


async def test_reasoning_that_was_cut_off_takes_nothing_with_it():
    marker = Opaque(provider="openai", payload={"type": "treadle.response", "id": "resp_1", "after": 0})
    end = take(REASONING, function("c", "grep", "{}"), {"id": "rs_2", "type": "reasoning", "summary": []})
    computer = {"type": "computer_call", "id": "cu_1", "call_id": "cu"}

    assert await items(assistant(*end.parts, marker)) == [REASONING, function("c", "grep", "{}")]
    assert await items(assistant(Opaque(provider="openai", payload=computer), Text("a"))) == [
        {"role": "assistant", "content": "a"}
    ]


async def test_a_signature_that_is_none_of_ours_is_left_out():
    parts = (Text("a", "sig"), call("1", "grep", "{}", "[1]"), Opaque(provider="anthropic", payload={"type": "x"}))

    assert await items(assistant(*parts)) == [
        {"role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "1", "name": "grep", "arguments": "{}"},
    ]


# --- server-side tools -----------------------------------------------------------------------------------------------


@pytest.mark.row("W10")
@pytest.mark.parametrize(
    "kind",
    [
        *("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools"),
        *("tool_search_call", "tool_search_output", "something_new"),
    ],
)
async def test_an_item_of_the_server_is_kept_and_never_executed(kind):
    item = {"type": kind, "id": "x_1", "status": "completed", "name": "look", "arguments": "{}"}
    async with MockProvider([Turn(body=json.dumps(whole(item, message("Found."))).encode())]) as provider:
        model = resolve_model(
            "openai:m", base_url=provider.base_url, options={"server_tools": [{"type": "web_search"}]}
        )
        result = await Agent(model, tools=[LOOK]).run("go")

    assert result.text == "Found."
    assert result.session.messages[-1].parts[0] == Opaque(provider="openai", payload=item)
    assert len(provider.requests) == 1


@pytest.mark.row("W10")
async def test_an_image_of_the_servers_is_there_for_people_and_goes_back_as_its_item():
    item = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": "aWc=",
        "output_format": "webp",
    }
    end = take(item, message("Here."))

    assert end.parts[:2] == (
        Opaque(provider="openai", payload=item),
        Media(media_type="image/webp", base64="aWc="),
    )
    assert (await items(assistant(*end.parts)))[0] == item


@pytest.mark.row("W10")
@pytest.mark.parametrize(
    ("item", "reply"),
    [
        ({"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "x"}, {"type": "custom_tool_call_output", "call_id": "c"}),
        ({"type": "local_shell_call", "id": "l", "call_id": "c"}, {"type": "local_shell_call_output", "id": "l"}),
        ({"type": "apply_patch_call", "call_id": "c"}, {"type": "apply_patch_call_output", "call_id": "c", "status": "failed"}),
        ({"type": "mcp_approval_request", "id": "m"}, {"type": "mcp_approval_response", "approval_request_id": "m", "approve": False}),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "environment": {"type": "local"}},
            {"type": "shell_call_output", "call_id": "c"},
        ),
    ],
)  # fmt: skip
async def test_a_call_that_nobody_here_can_run_is_answered_with_a_no(item, reply):
    beside = take(item, function("f", "grep", "{}"))
    sent_item, told, _ = await items(assistant(*beside.parts))

    assert sent_item == item
    assert reply.items() <= told.items()
    assert "Not executed" in json.dumps(told)
    with pytest.raises(ModelRejected, match=item["type"]):
        take(item)


@pytest.mark.row("W10")
async def test_a_shell_of_the_servers_has_its_output_already_and_gets_no_other():
    ran = {"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {"commands": ["ls"]}}
    output = {"type": "shell_call_output", "id": "so_1", "call_id": "c", "output": []}
    other = {**ran, "id": "sh_2", "call_id": "d"}

    assert await items(assistant(*take(ran, output).parts)) == [ran, output]
    assert take(ran, output).finish is Finish.STOP
    beside = await items(assistant(*take(ran, output, other, message("Hm.")).parts))
    assert [one["call_id"] for one in beside if one["type"].startswith("shell_call")] == ["c", "c", "d", "d"]


@pytest.mark.row("W10", "W04")
async def test_the_loop_goes_on_after_a_shell_call_that_nobody_here_can_run():
    asked = {"type": "shell_call", "id": "sh_1", "call_id": "c", "status": "completed", "action": {"commands": ["ls"]}}
    first = whole(asked, function("f", "look", '{"q": "a"}'))
    async with MockProvider([Turn(body=json.dumps(first).encode()), "Done."]) as provider:
        model = resolve_model("openai:m", base_url=provider.base_url, options={"server_tools": [{"type": "shell"}]})
        result = await Agent(model, tools=[LOOK]).run("go")

    assert result.text == "Done."
    assert [request.status for request in provider.requests] == [200, 200]


# --- the server's memory ---------------------------------------------------------------------------------------------


async def _look(arguments: Mapping[str, Any], ctx: Any) -> Any:
    return {"found": arguments["q"]}


LOOK = Tool(
    name="look",
    description="Look.",
    parameters={"type": "object", "properties": {"q": {"type": "string", "default": ""}}, "required": ["q"]},
    effect="read",
    run=_look,
)
SCRIPT = [
    Turn(thinking="hm", text="I look.", calls=(scripted("look", q="a"), scripted("look", q="b"))),
    scripted("look", q="c"),
    "Done.",
    "Again.",
]


@pytest.mark.row("W04")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("state", ["client", "server"])
async def test_both_state_strategies_come_to_the_same(state, stream):
    async with MockProvider(SCRIPT) as provider:
        model = resolve_model("openai:m", base_url=provider.base_url, stream=stream, options={"state": state})
        agent = Agent(model, tools=[LOOK])
        first = await agent.run("go")
        second = await agent.run("more", session=first.session)
        bodies = [request.body for request in provider.requests]

    assert (first.text, second.text) == ("Done.", "Again.")
    assert [request.status for request in provider.requests] == [200] * 4
    if state == "client":
        assert [len(body["input"]) for body in bodies] == [1, 7, 9, 11]
        assert not any(body["store"] or "previous_response_id" in body for body in bodies)
    else:
        assert [[item["type"] for item in body["input"] if "type" in item] for body in bodies] == [
            [],
            ["function_call_output"] * 2,
            ["function_call_output"],
            [],
        ]
        assert [body.get("previous_response_id") for body in bodies] == [
            None,
            *(f"resp_mock_{number}" for number in (1, 2, 3)),
        ]


@pytest.mark.row("W04")
async def test_where_the_server_has_forgotten_everything_is_sent_once_more():
    async with MockProvider(SCRIPT) as before:
        model = resolve_model("openai:m", base_url=before.base_url, options={"state": "server"})
        first = await Agent(model, tools=[LOOK]).run("go")
    async with MockProvider(["Still here."]) as after:  # another server: it has kept nothing
        model = resolve_model("openai:m", base_url=after.base_url, options={"state": "server"})
        second = await Agent(model, tools=[LOOK]).run("more", session=first.session)

    assert second.text == "Still here."
    assert [request.status for request in after.requests] == [400, 200]
    assert "previous_response_id" not in after.requests[1].body
    assert len(after.requests[1].body["input"]) == 11


async def test_a_history_that_was_cut_does_not_go_on_from_the_servers_memory():
    marker = Opaque(provider="openai", payload={"type": "treadle.response", "id": "resp_1", "after": 1})
    said = assistant(Text("hm"), marker)
    more = user_message("more")
    options = {"state": "server"}

    whole_ = await sent(ModelRequest(messages=(user_message("go"), said, more)), options=options)
    cut = await sent(ModelRequest(messages=(said, more)), options=options)
    foreign = await sent(
        ModelRequest(messages=(user_message("go"), assistant(*said.parts, origin="openai:x"), more)), options=options
    )
    nothing_new = await sent(ModelRequest(messages=(user_message("go"), said)), options=options)
    client = await sent(ModelRequest(messages=(user_message("go"), said, more)))

    assert (whole_["previous_response_id"], len(whole_["input"])) == ("resp_1", 1)
    for body, count in ((cut, 2), (foreign, 3), (nothing_new, 2), (client, 3)):
        assert "previous_response_id" not in body
        assert len(body["input"]) == count


async def test_a_refusal_that_has_nothing_to_do_with_memory_is_told_as_it_is():
    refused = json_answer({"error": {"message": "Invalid 'temperature'", "code": "x"}}, status=400)
    marker = Opaque(provider="openai", payload={"type": "treadle.response", "id": "resp_1", "after": 1})
    request = ModelRequest(messages=(user_message("go"), assistant(Text("hm"), marker), user_message("more")))

    async with serving(refused) as server:
        model = OpenAIResponses("gpt-5-mini", base_url=server.url, api_key=None, options={"state": "server"})
        with pytest.raises(ModelRejected, match="temperature"):
            await anext(model.stream(request))

    assert len(server.requests) == 2


async def test_a_model_that_does_not_reason_is_asked_without_the_seal():
    unsealed = json_answer({"error": {"message": "Encrypted content is not supported with this model."}}, status=400)

    async with serving(unsealed, answer(HELLO)) as server:
        model = OpenAIResponses("gpt-4o", base_url=server.url, api_key=None)
        for _ in range(2):
            assert [part async for part in model.stream(ASK)]

    assert ["include" in request.json for request in server.requests] == [True, False, False]


async def test_a_seal_that_the_vendor_cannot_open_is_told_and_not_tried_again():
    refused = json_answer({"error": {"message": "The encrypted content gAAA could not be verified."}}, status=400)

    async with serving(refused) as server:
        model = OpenAIResponses("m", base_url=server.url, api_key=None)
        with pytest.raises(ModelRejected, match="could not be verified"):
            await anext(model.stream(ASK))

    assert len(server.requests) == 1


# --- the response ----------------------------------------------------------------------------------------------------


@pytest.mark.row("W09")
async def test_a_stream_becomes_deltas_and_one_whole_message():
    usage = {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 8},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 27,
    }
    thought = {**REASONING, "summary": [{"type": "summary_text", "text": t} for t in ("One.", "Two.")]}
    made = function("c", "grep", '{"a": 1}')
    stream = (
        event("response.created", response=whole(status="in_progress"))
        + event("response.output_item.added", output_index=0, item={**thought, "summary": []})
        + event("response.reasoning_summary_part.added", output_index=0, summary_index=0)
        + event("response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta="One.")
        + event("response.reasoning_summary_part.added", output_index=0, summary_index=1)
        + event("response.reasoning_summary_text.delta", output_index=0, summary_index=1, delta="Two.")
        + done(0, thought)
        + event("response.output_item.added", output_index=1, item={**message(""), "content": []})
        + event("response.output_text.delta", output_index=1, delta="I ")
        + event("response.output_text.delta", output_index=1, delta="look.")
        + done(1, message("I look."))
        + event("response.output_item.added", output_index=2, item={**made, "arguments": ""})
        + event("response.function_call_arguments.delta", output_index=2, delta='{"a": ')
        + event("response.function_call_arguments.delta", output_index=2, delta="1}")
        + event("response.function_call_arguments.done", output_index=2, arguments='{"a": 1}')
        + done(2, made)
        + completed(thought, message("I look."), made, usage=usage)
    )

    *parts, end = await ask(answer(stream))

    signature = '{"id":"fc_c","status":"completed"}'
    assert parts == [
        ThinkingDelta("One."),
        ThinkingDelta("\n\n"),
        ThinkingDelta("Two."),
        TextDelta("I "),
        TextDelta("look."),
        CallReady(call("c", "grep", '{"a": 1}', signature)),
    ]
    assert end == ModelEnd(
        response_id="resp_1",
        parts=(
            Thinking(text="One.\n\nTwo.", payload=thought),
            Text("I look.", '{"id":"msg_1","status":"completed"}'),
            call("c", "grep", '{"a": 1}', signature),
        ),
        finish=Finish.CALLS,
        usage=Usage(input_tokens=20, output_tokens=7, cached_input_tokens=8, reasoning_tokens=4),
    )


def test_a_call_is_ready_at_the_end_of_its_item_and_not_before():
    made = function("c", "grep", "{}")
    before = (
        event("response.output_item.added", output_index=0, item={**made, "status": "in_progress"})
        + event("response.function_call_arguments.delta", output_index=0, delta="{}")
        + event("response.function_call_arguments.done", output_index=0, arguments="{}")
    )

    assert parse(before)[0] == []
    assert [type(part) for part in parse(before + done(0, made))[0]] == [CallReady]


def test_calls_are_ready_in_their_order_only():
    added = event(
        "response.output_item.added", output_index=0, item={**function("a", "x", ""), "status": "in_progress"}
    )
    second, first = done(1, function("b", "x", "{}")), done(0, function("a", "x", "{}"))

    assert parse(added + second)[0] == []
    assert [part.call.id for part in parse(added + second + first)[0] if isinstance(part, CallReady)] == ["a", "b"]
    assert parse(second)[0] == []


def test_what_events_brought_is_not_taken_twice_whatever_their_index_was():
    made = function("a", "x", "{}")

    for stream in (
        done(1, made) + completed(made),
        done(7, made) + completed(made, message("x")),
        event("response.output_item.done", item=made) + completed(made),
        event("response.output_item.added", item=made)
        + event("response.function_call_arguments.delta", item_id=made["id"], delta="{}")
        + event("response.output_item.done", item=made)
        + completed(),
    ):
        end = parse(stream)[1]
        assert [part.id for part in end.parts if isinstance(part, ToolCall)] == ["a"]
        assert not end.cut_calls


def test_deltas_are_enough_where_a_server_sends_no_items():
    stream = (
        event("response.output_text.delta", delta="Hel")
        + event("response.output_text.delta", delta="lo")
        + event("response.completed", response={"status": "completed"})
    )

    assert parse(stream)[1].parts == (Text("Hello"),)


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"a": 1}', '{"a": 1}'), ({"a": 1}, '{"a": 1}'), (None, ""), (5, "5")]
)
def test_arguments_are_the_text_that_the_model_wrote_or_the_json_that_a_server_made_of_it(arguments, text):
    assert take(function("a", "x", arguments)).parts[0].arguments == text


def test_duplicate_keys_in_arguments_that_are_an_object_survive():
    body = json.dumps(whole(function("a", "x", "@"))).replace('"@"', '{"a": 1, "a": 2}')
    response = ResponsesResponse({})
    response.add_whole(body.encode())

    assert response.end().parts[0].arguments == '{"a": 1, "a": 2}'


def test_a_call_without_ids_is_named_by_its_place():
    bare = {"type": "function_call", "name": "x", "arguments": "{}"}

    assert [part.id for part in take(bare, bare).parts] == ["call_0", "call_1"]


@pytest.mark.parametrize(
    ("more", "finish"),
    [
        ({}, Finish.STOP),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, Finish.LENGTH),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, Finish.REFUSED),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_tool_calls"}}, Finish.UNKNOWN),
        ({"status": "incomplete"}, Finish.UNKNOWN),
    ],
)
def test_the_finish_is_told_in_neutral_words(more, finish):
    assert take(message("a"), **more).finish is finish


@pytest.mark.row("MF5")
def test_calls_that_were_cut_off_are_named():
    details = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    bare = {"type": "function_call", "call_id": "c", "name": "x", "arguments": '{"a'}

    end = take(
        function("a", "x", "{}"),
        function("b", "x", '{"a": 1', status="incomplete"),
        bare,
        {**bare, "call_id": "d", "arguments": "{}"},
        **details,
    )
    streamed = parse(
        event("response.output_item.added", output_index=0, item={**bare, "arguments": ""})
        + event("response.function_call_arguments.delta", output_index=0, delta='{"a')
        + event("response.incomplete", response={"status": "incomplete", **details})
    )[1]

    assert end.cut_calls == {"b", "c"}
    assert [part.arguments for part in streamed.parts if isinstance(part, ToolCall)] == ['{"a']
    assert streamed.cut_calls == {"c"}


def test_an_item_that_is_not_whole_is_never_ready_early():
    parts, end = parse(done(0, function("a", "x", "{}", status="incomplete")) + completed())

    assert parts == []
    assert end.cut_calls == {"a"}


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.row("PF10", "W11")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "server_error", "message": "boom"}, ModelUnavailable),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, ModelUnavailable),
        ({"code": "context_length_exceeded", "message": "Your input exceeds the context window"}, ContextOverflow),
        ({"code": "invalid_prompt", "message": "no"}, ModelRejected),
        ({"code": "invalid_base64_image", "message": "no"}, ModelRejected),
        ({"code": "image_too_large", "message": "no"}, ModelRejected),
        ({"code": None, "message": None}, ModelUnavailable),
    ],
)
async def test_an_error_inside_the_answer_ends_it_in_each_of_its_forms(error, kind):
    begun = event("response.output_text.delta", output_index=0, delta="Hel")
    for script in (
        answer(begun + event("error", **error)),
        answer(begun + event("error", error=error)),
        answer(begun + event("response.failed", response=whole(status="failed", error=error))),
        json_answer(whole(status="failed", error=error)),
        json_answer({"error": error}),
    ):
        with pytest.raises(kind) as caught:
            await ask(script)
        assert type(caught.value) is kind


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_a_response_that_runs_in_the_background_is_not_taken_for_an_answer(status):
    with pytest.raises(ModelRejected, match=f"still {status}"):
        await ask(json_answer(whole(status=status)))


async def test_a_cancelled_response_is_an_error():
    with pytest.raises(ModelUnavailable, match="cancelled"):
        await ask(json_answer(whole(status="cancelled")))


# --- fuzz, recordings and the vendor's own library -------------------------------------------------------------------


TEXTS = st.text(max_size=5)
OUTPUTS = st.lists(
    st.one_of(
        TEXTS.map(message),
        st.just({"id": "rs", "type": "reasoning", "summary": []}),
        st.just({"id": "rs", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}),
        st.just({"id": "ws", "type": "web_search_call", "status": "completed"}),
        st.just({"id": "ct", "type": "custom_tool_call", "call_id": "ct", "name": "x", "input": ""}),
        st.tuples(TEXTS, TEXTS | st.just("{}")).map(lambda pair: function(pair[0], "look", pair[1])),
    ),
    max_size=5,
)


@settings(max_examples=100)
@given(st.lists(st.tuples(OUTPUTS, st.sampled_from([ORIGIN, "gemini:x", None]), TEXTS), max_size=4), st.booleans())
def test_any_history_of_the_runtime_is_one_that_the_vendor_takes(steps, is_incomplete):
    messages = [user_message("go")]
    for number, (output, origin, told) in enumerate(steps):
        unique = [{**item, "id": f"{item['id']}_{number}_{at}"} for at, item in enumerate(output)]
        named = [{**item, "call_id": f"{item['call_id']}_{number}_{at}"} if "call_id" in item else item for at, item in enumerate(unique)]  # fmt: skip
        details = {"status": "incomplete"} if is_incomplete else {}
        try:
            parts = take(*named, **details).parts
        except ModelRejected:  # a call that only another client could run, and nothing else
            continue
        results = [
            Result(call_id=part.id, name=part.name, content=told) for part in parts if isinstance(part, ToolCall)
        ]
        messages += [assistant(*parts, origin=origin)]
        messages += [tool(*results)] if results else [user_message("more")]
    request = ModelRequest(messages=tuple(messages), tools=(GREP,))

    Responses().check(
        json.loads(ResponsesRequests("m", origin=ORIGIN, options={}, stream=True).body(request, resumes=False))
    )


async def test_what_we_send_fits_the_types_of_the_vendors_library():
    from openai.types import responses  # here, so that its second of importing is paid by this test alone

    item = TypeAdapter(responses.ResponseInputItemParam)
    end = take(REASONING, message("I look."), function("c", "grep", "{}"), {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}})  # fmt: skip
    image = Media(media_type="image/png", base64="aWc=")
    body = await sent(
        ModelRequest(
            messages=(
                Message(role="user", parts=(Text("Look"), image, Media(media_type="a/b", url="https://h/a"))),
                assistant(*end.parts),
                assistant(*end.parts, origin="gemini:x"),
                tool(Result(call_id="c", name="grep", content="x", media=(image,))),
            ),
            tools=(GREP, ToolSpec(name="any", description="", parameters={"type": "object"})),
            output_schema=CITY,
        )
    )

    for one in body["input"]:
        item.validate_python(one)
    for one in body["tools"]:
        TypeAdapter(responses.FunctionToolParam).validate_python(one, strict=True)
    TypeAdapter(responses.ResponseTextConfigParam).validate_python(body["text"], strict=True)


@pytest.mark.row("W04")
async def test_the_vendors_library_reads_the_same_of_a_stream():
    import openai  # here, so that its second of importing is paid by this test alone

    turn = Turn(thinking="hm", text="I look, å🙂.", calls=(scripted("look", q="a"), scripted("look", q="b")))
    async with MockProvider([turn, turn]) as provider:
        ours = [part async for part in OpenAIResponses("m", base_url=provider.base_url, api_key=None).stream(ASK)][-1]
        async with (
            openai.AsyncOpenAI(base_url=provider.base_url, api_key="k", max_retries=0) as client,
            client.responses.stream(model="m", input="hi", include=["reasoning.encrypted_content"]) as stream,
        ):
            theirs = await stream.get_final_response()

    assert isinstance(ours, ModelEnd)
    made = [(part.name, part.arguments) for part in ours.parts if isinstance(part, ToolCall)]
    assert made == [(one.name, one.arguments) for one in theirs.output if one.type == "function_call"]
    assert "".join(part.text for part in ours.parts if isinstance(part, Text)) == theirs.output_text
    assert [part.text for part in ours.parts if isinstance(part, Thinking)] == [theirs.output[0].summary[0].text]
