"""Gemini: the requests that go out, and the responses that come back, from honest servers and from others."""

import json
import sys
from functools import partial
from typing import Any

import msgspec
import pytest
import wire
from chat_server import answer, event, json_answer
from wire import asked, parts_from, read, tool

from treadle.errors import (
    ModelRejected,
    ModelResponseInvalid,
    ModelUnavailable,
)
from treadle.messages import Finish, Media, Message, Opaque, Result, Text, Thinking, ToolCall, Usage, user_message
from treadle.ports import CallReady, ModelEnd, ModelPart, ModelRequest, ToolSpec
from treadle.providers.gemini.request import gemini_name, gemini_schema
from treadle.providers.gemini.response import GeminiResponse
from treadle.resolve import resolve_model
from treadle.testing import MockProvider, Turn
from treadle.testing import call as scripted_call

ORIGIN = "gemini:gemini-3-pro"
ASK = ModelRequest(messages=(user_message("hi"),))
GREP = ToolSpec(
    name="grep", description="Search.", parameters={"type": "object", "properties": {"path": {"type": "string"}}}
)


def chunk(*parts: Any, finish: str | None = None, usage: Any = None, **about: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **about}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **({} if usage is None else {"usageMetadata": usage})}


def stream(*chunks: Any) -> str:
    return "".join(event(one) for one in chunks)


def wire_call(name: str = "grep", /, *, signature: str | None = None, **fields: Any) -> dict[str, Any]:
    signed = {} if signature is None else {"thoughtSignature": signature}
    return {"functionCall": {"name": name, **fields}, **signed}


HELLO = stream(chunk({"text": "Hel"}), chunk({"text": "lo"}, finish="STOP"))


ask = partial(parts_from, "gemini", model="gemini-3-pro")
sent = partial(wire.written, "gemini", model="gemini-3-pro")
assistant = partial(wire.assistant, origin=ORIGIN)


async def sent_contents(*messages: Message, **words: Any) -> Any:
    return (await sent(ModelRequest(messages=messages), **words))["contents"]


def parse(*chunks: Any) -> tuple[list[ModelPart], ModelEnd]:
    """Read a stream without a server."""
    return read("gemini", stream(*chunks))


def call(call_id: str, name: str, arguments: str, signature: str | None = None) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments, signature=signature)


# --- where requests go -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "is_stream", "path"),
    [
        ("gemini-3-pro", True, "/v1/models/gemini-3-pro:streamGenerateContent?alt=sse"),
        ("gemini-3-pro", False, "/v1/models/gemini-3-pro:generateContent"),
        ("models/gemini-3-pro", False, "/v1/models/gemini-3-pro:generateContent"),
        ("tunedModels/mine", True, "/v1/tunedModels/mine:streamGenerateContent?alt=sse"),
    ],
)
async def test_the_model_and_the_form_of_the_answer_stand_in_the_path(model: str, is_stream: bool, path: str):
    _, [request] = await asked("gemini", answer(HELLO), model=model, stream=is_stream, api_key=" a-key \n")

    assert request.line == f"POST {path} HTTP/1.1"
    assert request.headers["x-goog-api-key"] == "a-key"
    assert "authorization" not in request.headers


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.row("L08")
async def test_limit_words_in_a_result_stay_beside_its_own_fields():
    content = '{"output":"x","limit_reached":true,"limit_message":"Tool call limit reached (3). Stopping tool loop."}'
    contents = await sent_contents(tool(Result(call_id="c", name="grep", content=content)))

    assert contents[0]["parts"][0]["functionResponse"]["response"] == json.loads(content)


def _deepest() -> int:
    """Return how deep JSON can be and still be read here; in one object more it cannot be written."""
    if sys.version_info < (3, 12):
        return 994  # what the frames of a test leave of the limit of 1,000
    least, most = 1, 1_000_000
    while most - least > 1:
        middle = (least + most) // 2
        try:
            msgspec.json.decode(b"[" * middle + b"]" * middle)
            least = middle
        except RecursionError:
            most = middle
    return least


DEEP = _deepest()


@pytest.mark.parametrize(
    ("content", "is_error", "expected"),
    [
        ("plain words", False, {"output": "plain words"}),
        ("", False, {"output": ""}),
        ("42", False, {"output": "42"}),
        ("[1, 2]", False, {"output": [1, 2]}),
        ('{"a": 1}', False, {"a": 1}),
        ('{"a": 1', False, {"output": '{"a": 1'}),
        ('{"a": 1e999}', False, {"output": '{"a": 1e999}'}),
        ('{"$ref": "#/x"}', False, {"output": '{"$ref": "#/x"}'}),
        ('{"status": "error"}', True, {"error": {"status": "error"}}),
        ("gone", True, {"error": "gone"}),
        ("[" * DEEP + "]" * DEEP, False, {"output": "[" * DEEP + "]" * DEEP}),
        ("[" * 5000, False, {"output": "[" * 5000}),
        ("\ud800", False, {"output": "\ufffd"}),
    ],
)
async def test_a_result_is_an_object_whatever_the_tool_said(content: str, is_error: bool, expected: Any):
    contents = await sent_contents(tool(Result(call_id="c", name="grep", content=content, is_error=is_error)))

    assert contents == [
        {"role": "user", "parts": [{"functionResponse": {"name": "grep", "response": expected, "id": "c"}}]}
    ]


async def test_arguments_that_are_too_deep_to_be_written_go_back_inside_an_object():
    deep = '{"a":' * DEEP + "1" + "}" * DEEP
    contents = await sent_contents(user_message("x"), assistant(call("c", "grep", deep)))

    assert contents[1]["parts"][0]["functionCall"]["args"] == {"_invalid": '{"a":' * 400}


@pytest.mark.parametrize(
    ("model", "is_signed"),
    [
        *(("gemini-3-flash-preview", True), ("gemini-10-pro", True), ("gemini-flash-latest", True), ("mine", True)),
        *(("gemini-2.5-pro", False), ("gemini-1.5-flash", False), ("models/gemini-2.0-flash", False)),
    ],
)
async def test_only_models_that_ask_for_signatures_get_the_stand_in(model: str, is_signed: bool):
    contents = await sent_contents(user_message("x"), assistant(call("c", "grep", "{}"), origin="x:y"), model=model)

    assert ("thoughtSignature" in contents[1]["parts"][0]) is is_signed


async def test_the_models_own_neighbours_share_one_content_and_people_stand_around_them():
    go_on = {"role": "user", "parts": [{"text": "Continue."}]}
    contents = await sent_contents(
        assistant(Text("Half")),
        assistant(Text("an answer.")),
        user_message("On"),
        assistant(Text("a")),
        assistant(Text("b")),
    )

    assert contents == [
        go_on,
        {"role": "model", "parts": [{"text": "Half"}, {"text": "an answer."}]},
        {"role": "user", "parts": [{"text": "On"}]},
        {"role": "model", "parts": [{"text": "a"}, {"text": "b"}]},
        go_on,
    ]


@pytest.mark.row("W10")
async def test_the_servers_own_blocks_go_back_unchanged_and_its_sources_stay_here():
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s"}
    own = assistant(
        Opaque(provider="gemini", payload=code),
        Opaque(provider="gemini", payload={"groundingMetadata": {"webSearchQueries": ["x"]}}),
        Opaque(provider="gemini", payload="no object"),
        Text("So."),
    )

    assert (await sent_contents(user_message("x"), own))[1]["parts"] == [code, {"text": "So."}]


@pytest.mark.row("T12")
async def test_media_of_results_goes_inside_where_gemini_3_takes_it_and_else_follows_all_results():
    image, sound = Media(media_type="image/png", base64="AA=="), Media(media_type="audio/wav", base64="BB==")
    linked = Media(media_type="application/pdf", url="https://example.com/a.pdf")
    message = tool(
        Result(call_id="a", name="shot", content="", media=(image, sound)),
        Result(call_id="b", name="shot", content="ok", media=(linked,)),
    )
    inline = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    blob = {"inlineData": {"mimeType": "audio/wav", "data": "BB=="}}
    link = {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.com/a.pdf"}}

    results, files = await sent_contents(message)
    assert [part["functionResponse"].get("parts") for part in results["parts"]] == [[inline], None]
    assert files == {
        "role": "user",
        "parts": [
            {"text": "Attached to the result of shot (a):"},
            blob,
            {"text": "Attached to the result of shot (b):"},
            link,
        ],
    }

    results, files = await sent_contents(message, model="gemini-2.5-flash")
    assert ["parts" in part["functionResponse"] for part in results["parts"]] == [False, False]
    assert files["parts"][1:3] == [inline, blob]


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        *(("grep", True), ("_x", True), ("a-b", True), ("7zip", False), ("-x", False)),
        *(("a b", False), ("über", False), ("x" * 65, False), ("7 zip", False)),
    ],
)
async def test_a_name_goes_out_as_the_vendor_takes_it(name: str, is_kept: bool):
    spec = ToolSpec(name=name, description="", parameters={})
    body = await sent(ModelRequest(messages=ASK.messages, tools=(spec,), tool_choice=name))

    [wire] = [one["name"] for one in body["tools"][0]["functionDeclarations"]]
    assert (wire == name) is is_kept
    assert body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == [wire]


def test_no_two_tools_share_a_name_on_the_wire():
    names = ["7zip", "_7zip", "__7zip", "-7zip", "_ 7zip", "7 zip", "_7_zip"]

    assert len({gemini_name(name) for name in names}) == len(names)


# --- schemas ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("W08")
async def test_schemas_go_out_without_references_constants_and_strange_formats():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "$ref": {"type": "string"}}}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "kind": {"const": "a", "description": "Kind."},
            "mail": {"type": "string", "format": "email", "description": "Mail."},
            "at": {"type": "string", "format": "date-time"},
            "count": {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}], "default": None},
            "node": {"$ref": "#/$defs/Node", "description": "First."},
            "anything": True,
        },
        "required": ["kind"],
        "additionalProperties": False,
        "$defs": {"Node": node},
    }
    body = await sent(
        ModelRequest(messages=ASK.messages, tools=(ToolSpec(name="t", description="", parameters=schema),))
    )

    assert body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["a"], "description": "Kind."},
            "mail": {"type": "string", "description": "Mail. (format: email)"},
            "at": {"type": "string", "format": "date-time"},
            "count": {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}], "default": None},
            "node": {
                "type": "object",
                "properties": {"next": {"type": "object"}, "$ref": {"type": "string"}},
                "description": "First.",
            },
            "anything": {},
        },
        "required": ["kind"],
        "additionalProperties": False,
    }


@pytest.mark.row("W08")
@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"const": 5}, {"type": "integer", "enum": [5]}),
        ({"const": 0.5}, {"type": "number", "enum": [0.5]}),
        ({"const": True}, {"type": "boolean", "enum": [True]}),
        ({"const": None}, {"type": "null", "enum": [None]}),
        ({"const": ["a"]}, {"type": "array", "enum": [["a"]]}),
        ({"const": {}}, {"type": "object", "enum": [{}]}),
        ({"const": 5, "type": "number"}, {"type": "number", "enum": [5]}),
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"enum": []}, {"enum": []}),
    ],
)
def test_a_value_that_is_given_whole_tells_its_type(schema: Any, written: Any):
    assert gemini_schema(schema) == written


@pytest.mark.row("W08")
async def test_a_small_schema_that_names_itself_everywhere_stays_small():
    every = {f"p{number}": {"$ref": f"#/$defs/d{number}"} for number in range(30)}
    defs = {f"d{number}": {"type": "object", "properties": every} for number in range(30)}
    spec = ToolSpec(name="t", description="", parameters={"type": "object", "properties": every, "$defs": defs})
    body = await sent(ModelRequest(messages=ASK.messages, tools=(spec,)))

    assert len(json.dumps(body)) < 1_000_000


async def test_before_gemini_3_an_output_schema_beside_tools_is_told_in_the_instructions():
    request = ModelRequest(
        messages=ASK.messages, tools=(GREP,), instructions="Be brief.", output_schema={"type": "integer"}
    )
    old, new = await sent(request, model="gemini-2.5-pro"), await sent(request)

    assert old["generationConfig"] == {}
    assert old["systemInstruction"]["parts"][0]["text"].startswith("Be brief.\n\nWhen you are done")
    assert old["systemInstruction"]["parts"][0]["text"].endswith('{"type":"integer"}')
    assert new["generationConfig"]["responseJsonSchema"] == {"type": "integer"}
    assert new["systemInstruction"]["parts"][0]["text"] == "Be brief."


# --- options ---------------------------------------------------------------------------------------------------------


async def test_options_of_the_generation_may_stand_by_themselves():
    options = {
        "temperature": 0,
        "topP": None,
        "generationConfig": {"seed": 1, "temperature": 1},
        "safetySettings": [],
        "labels": None,
    }
    body = await sent(ASK, options=options)

    assert body["generationConfig"] == {"seed": 1, "temperature": 0}
    assert body["safetySettings"] == []
    assert "labels" not in body
    assert options["temperature"] == 0


# --- prefixes --------------------------------------------------------------------------------------------------------


# --- responses -------------------------------------------------------------------------------------------------------


def test_a_call_is_ready_as_soon_as_its_chunk_has_come():
    response = GeminiResponse({})
    first = response.add(json.dumps(chunk(wire_call("a", args={}))).encode())

    assert [type(part) for part in first] == [CallReady]
    assert not response.is_whole


@pytest.mark.row("W05")
async def test_an_answer_that_is_a_list_of_chunks_is_a_stream_in_one_piece():
    parts = [{"text": "Hello."}, wire_call("grep", args={"n": 1.0}, id="x1", signature="sig")]
    chunks = [*map(chunk, parts), chunk({"text": ""}, finish="STOP")]

    end = (await ask(answer(json.dumps(chunks), content_type="application/json")))[-1]

    assert end.parts == (Text("Hello."), call("x1", "grep", '{"n": 1.0}', signature="sig"))
    assert end.finish is Finish.CALLS


@pytest.mark.row("W06")
def test_signed_parts_stay_by_themselves():
    _, end = parse(
        chunk({"text": "a"}),
        chunk({"text": "b"}),
        chunk({"text": "c", "thoughtSignature": "s1"}),
        chunk({"text": "t", "thought": True, "thoughtSignature": "s2"}, {"text": "d"}),
        chunk({"text": "", "thoughtSignature": "s3"}),
        chunk({"thoughtSignature": "s4"}, finish="STOP"),
    )

    assert end.parts == (
        Text("ab"),
        Text("c", signature="s1"),
        Thinking(text="t", signature="s2"),
        Text("d"),
        Text("", signature="s3"),
        Text("", signature="s4"),
    )


@pytest.mark.row("W10")
def test_code_that_ran_on_the_server_and_its_sources_are_kept_and_executed_nowhere():
    code = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
    outcome = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    hosted = {"toolCall": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB"}, "thoughtSignature": "s"}
    parts, end = parse(
        chunk(code, outcome, hosted, {"text": "One."}),
        chunk(finish="STOP", groundingMetadata={"webSearchQueries": ["one"]}, citationMetadata={"citations": []}),
    )

    assert not [part for part in parts if isinstance(part, CallReady)]
    assert end.finish is Finish.STOP
    assert end.parts == (
        *(Opaque(provider="gemini", payload=payload) for payload in (code, outcome, hosted)),
        Text("One."),
        Opaque(provider="gemini", payload={"citationMetadata": {"citations": []}}),
        Opaque(provider="gemini", payload={"groundingMetadata": {"webSearchQueries": ["one"]}}),
    )


def test_a_picture_in_an_answer_is_media_and_a_signed_one_is_kept_as_it_came():
    blob = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    _, end = parse(chunk(blob, {**blob, "thoughtSignature": "s"}, {"inlineData": {}}, finish="STOP"))

    assert end.parts == (
        Media(media_type="image/png", base64="AA=="),
        Opaque(provider="gemini", payload={**blob, "thoughtSignature": "s"}),
        Opaque(provider="gemini", payload={"inlineData": {}}),
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({}, "{}"),
        ({"args": None}, "{}"),
        ({"args": {"a": [1, {"b": None}]}}, '{"a": [1, {"b": null}]}'),
        ({"args": '{"a": '}, '{"a": '),
        ({"args": [1]}, "[1]"),
    ],
)
def test_arguments_are_the_text_that_came(args: Any, expected: str):
    _, end = parse(chunk(wire_call("f", **args), finish="STOP"))

    assert end.parts[0].arguments == expected


def test_a_call_of_an_undeclared_tool_is_a_call():
    _, end = parse(chunk(wire_call("nope", args={}), finish="UNEXPECTED_TOOL_CALL"))

    assert (end.finish, end.parts[0].name) == (Finish.CALLS, "nope")


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"])
async def test_what_the_models_own_server_could_not_read_is_tried_again(reason: str):
    body = stream(chunk(finish=reason, finishMessage="Malformed function call: print(x)"))
    with pytest.raises(ModelResponseInvalid, match=r"print\(x\)") as caught:
        await ask(answer(body))

    assert caught.value.may_retry


async def test_a_lost_signature_is_no_passing_fault():
    with pytest.raises(ModelRejected, match="signature"):
        await ask(answer(stream(chunk(finish="MISSING_THOUGHT_SIGNATURE"))))


@pytest.mark.parametrize("form", [lambda one: answer(stream(one)), json_answer])
async def test_a_prompt_that_is_refused_ends_as_a_refusal(form: Any):
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}
    (end,) = await ask(form(blocked))

    usage = Usage(input_tokens=9)
    assert end == ModelEnd(parts=(), finish=Finish.REFUSED, usage=usage, finish_reason="SAFETY")


async def test_arguments_that_are_streamed_in_pieces_are_no_whole_call():
    cut = {"functionCall": {"name": "f", "willContinue": True, "partialArgs": [{"jsonPath": "$.a"}]}}
    with pytest.raises(ModelResponseInvalid, match="pieces"):
        await ask(answer(stream(chunk(cut), chunk(finish="STOP"))))


@pytest.mark.row("W09")
def test_the_last_count_of_a_stream_is_the_one_that_counts():
    early, late = ({"promptTokenCount": 100, "candidatesTokenCount": count} for count in (1, 7))

    _, end = parse(chunk({"text": "x"}, usage=early), chunk(finish="STOP", usage=late))

    assert end.usage == Usage(input_tokens=100, output_tokens=7)


# --- failures --------------------------------------------------------------------------------------------------------


RATE = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"},
        ],
    }
}


@pytest.mark.row("W11")
@pytest.mark.parametrize("body", [RATE, [RATE]])
async def test_the_wait_of_a_rate_limit_is_read_from_its_details(body: Any):
    with pytest.raises(ModelUnavailable, match="quota") as caught:
        await ask(json_answer(body, status=429))
    assert (caught.value.status, caught.value.retry_after_seconds) == (429, 17.5)

    with pytest.raises(ModelUnavailable) as caught:
        await ask(json_answer(body, status=429, headers={"retry-after": "3"}))
    assert caught.value.retry_after_seconds == 17.5

    with pytest.raises(ModelUnavailable) as caught:
        await ask(json_answer(body, status=429, headers={"retry-after": "30"}))
    assert caught.value.retry_after_seconds == 30

    with pytest.raises(ModelUnavailable) as caught:
        await ask(answer(stream(chunk({"text": "a"}), RATE)))
    assert (caught.value.status, caught.value.retry_after_seconds) == (429, 17.5)


async def test_a_candidate_without_content_is_an_empty_answer():
    (end,) = await ask(json_answer({"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}))

    assert end == ModelEnd(parts=(), finish=Finish.LENGTH, finish_reason="MAX_TOKENS")


async def test_only_the_first_candidate_counts():
    first, second = chunk({"text": "a"}, finish="STOP"), chunk({"text": "b"}, finish="STOP")
    second["candidates"][0]["index"] = 1
    first["candidates"] += second["candidates"]

    assert (await ask(json_answer(first)))[-1].parts == (Text("a"),)


# --- the vendor's own SDK as an oracle -------------------------------------------------------------------------------

NO_SDK = "the vendor's SDK is not installed: pip install google-genai (it is in the dev dependencies)"

EVERYTHING = ModelRequest(
    instructions="Be brief.",
    messages=(
        Message(role="user", parts=(Text("Look"), Media(media_type="image/png", base64="AAAA"))),
        assistant(
            Thinking(text="I search.", signature="c2ln"),
            Opaque(provider="gemini", payload={"executableCode": {"language": "PYTHON", "code": "1"}}),
            call("a1", "grep", '{"path": "x"}', signature="c2ln"),
            call("a2", "7 zip", "{"),
        ),
        tool(
            Result(
                call_id="a1", name="grep", content='{"count": 1}', media=(Media(media_type="image/png", base64="AAAA"),)
            ),
            Result(
                call_id="a2",
                name="7 zip",
                content="no",
                is_error=True,
                media=(Media(media_type="a/b", url="https://x/y"),),
            ),
        ),
        assistant(call("toolu_1", "grep", "{}", signature="theirs"), origin="anthropic:claude"),
        tool(Result(call_id="toolu_1", name="grep", content="[1]")),
    ),
    tools=(
        GREP,
        ToolSpec(name="7 zip", description="", parameters={"$ref": "#/$defs/A", "$defs": {"A": {"const": 1}}}),
    ),
    tool_choice="grep",
    output_schema={"type": "integer"},
)


@pytest.mark.row("W05", "W08")
async def test_the_vendors_sdk_knows_every_field_that_is_sent():
    types = pytest.importorskip("google.genai.types", reason=NO_SDK)
    body = await sent(
        EVERYTHING, options={"temperature": 0, "server_tools": [{"googleSearch": {}}], "safetySettings": []}
    )

    # Its types forbid what they do not know.
    for content in body.pop("contents"):
        types.Content.model_validate(content)
    for one in body["tools"]:
        types.Tool.model_validate(one)
    config = {**body.pop("generationConfig"), **body}
    assert config.keys() == {
        *("temperature", "responseMimeType", "responseJsonSchema"),
        *("tools", "toolConfig", "systemInstruction", "safetySettings"),
    }
    types.GenerateContentConfig.model_validate(config)


@pytest.mark.row("W05")
@pytest.mark.parametrize("is_stream", [True, False])
async def test_the_vendors_sdk_reads_the_same_as_we_do_and_the_mock_takes_what_it_sends(is_stream: bool):
    genai = pytest.importorskip("google.genai", reason=NO_SDK)
    turn = Turn(
        thinking="Hm, let me see.",
        text="Grüße 🙂",
        calls=(scripted_call("grep", path="é"), scripted_call("grep")),
        usage=Usage(input_tokens=50, output_tokens=9, cached_input_tokens=20, reasoning_tokens=4),
    )
    with MockProvider([turn, "Done.", turn]).in_thread() as provider:
        theirs, used = _ask_sdk(genai, provider.base_url, is_stream=is_stream)
        model = resolve_model("gemini:m", base_url=provider.base_url, stream=is_stream)
        async for part in model.stream(ASK):
            last = part

    assert provider.refusals == []
    assert isinstance(last, ModelEnd)
    ours = [
        (part.name, json.loads(part.arguments)) if isinstance(part, ToolCall) else (type(part).__name__, part.text)
        for part in last.parts
        if isinstance(part, Text | Thinking | ToolCall)
    ]
    assert ours == theirs
    assert last.usage == used


def _ask_sdk(genai: Any, base_url: str, *, is_stream: bool) -> tuple[list[tuple[str, Any]], Usage]:
    """Ask, send the answer back with results, and return what the SDK made of the first answer."""
    types = genai.types
    host, _, version = base_url.rpartition("/")
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=host, api_version=version))
    declared = types.FunctionDeclaration(name="grep", description="", parameters_json_schema=GREP.parameters)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declared])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    asked: Any = {"model": "m", "config": config}
    if is_stream:
        chunks = list(client.models.generate_content_stream(contents="hi", **asked))
    else:
        chunks = [client.models.generate_content(contents="hi", **asked)]
    parts = [part for one in chunks for part in one.candidates[0].content.parts]
    results = [
        types.Part.from_function_response(name=part.function_call.name, response={"output": "ok"})
        for part in parts
        if part.function_call
    ]
    history = [
        types.Content(role="user", parts=[types.Part(text="hi")]),
        types.Content(role="model", parts=[part for part in parts if part.text != ""]),
        types.Content(role="user", parts=results),
    ]
    assert client.models.generate_content(contents=history, **asked).text == "Done."
    client.close()
    counts = chunks[-1].usage_metadata
    used = Usage(
        input_tokens=counts.prompt_token_count,
        output_tokens=counts.candidates_token_count + counts.thoughts_token_count,
        cached_input_tokens=counts.cached_content_token_count,
        reasoning_tokens=counts.thoughts_token_count,
    )
    return _joined(parts), used


def _joined(parts: list[Any]) -> list[tuple[str, Any]]:
    """Join what belongs together: the SDK hands out each piece of a stream."""
    joined: list[tuple[str, Any]] = []
    for part in parts:
        if part.function_call:
            joined.append((part.function_call.name, part.function_call.args))
            continue
        kind = "Thinking" if part.thought else "Text"
        if joined and joined[-1][0] == kind:
            joined[-1] = (kind, joined[-1][1] + part.text)
        elif part.text:
            joined.append((kind, part.text))
    return joined
