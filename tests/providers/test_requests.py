"""Requests: what every dialect sends for the same neutral request, as the strict mock takes it. One body a behaviour, one row a dialect."""

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from chat_server import answer
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import ADAPTERS, ASK, GREP, NAMES, asked, assistant, calls_in, results_in, said, sent, tool, tools_in

from treadle import Agent, Budget, Tool, resolve_model
from treadle.errors import ConfigurationError
from treadle.messages import Media, Message, Opaque, Result, Text, Thinking, ToolCall, user_message
from treadle.mock.dialects.anthropic import AnthropicMessages
from treadle.mock.dialects.bedrock import Converse
from treadle.mock.dialects.cohere import CohereChat
from treadle.mock.dialects.gemini import GenerateContent
from treadle.mock.dialects.openai_chat import ChatCompletions
from treadle.mock.dialects.openai_responses import Responses
from treadle.mock.dialects.shared import Dialect
from treadle.ports import CallReady, ModelRequest, ToolSpec
from treadle.providers.anthropic.request import AnthropicRequests
from treadle.providers.bedrock.request import BedrockRequests
from treadle.providers.cohere.request import CohereRequests
from treadle.providers.gemini.request import GeminiRequests
from treadle.providers.openai_chat.request import ChatRequests
from treadle.providers.openai_responses.request import ResponsesRequests
from treadle.testing import MockProvider, Turn, call, text

EACH = pytest.mark.parametrize("name", NAMES)
FORMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def at(body: Any, path: str) -> Any:
    """Return what stands at a path such as `toolConfig.toolChoice`; None for nothing."""
    for step in path.split("."):
        body = body.get(step) if isinstance(body, dict) else None
    return body


def result(call_id: str, content: str = "ok", **words: Any) -> Result:
    return Result(call_id=call_id, name="grep", content=content, **words)


def made(call_id: str, arguments: str = "{}", name: str = "grep") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def read_tool(name: str = "grep") -> Tool:
    async def run(arguments: Any, ctx: Any) -> Any:
        return arguments

    parameters = {"type": "object", "additionalProperties": True}
    return Tool(name=name, description="Read.", parameters=parameters, run=run, effect="read")


# --- a whole request -------------------------------------------------------------------------------------------------

ARGUMENTS = '{"path": "x"}'
FUNCTION = {"name": "grep", "description": "Search.", "parameters": GREP.parameters}
STRICT = {"parameters": {**GREP.parameters, "additionalProperties": False}, "strict": True}
CHAT_CALLS = [
    {"id": "a", "type": "function", "function": {"name": "grep", "arguments": ARGUMENTS}},
    {"id": "b", "type": "function", "function": {"name": "grep", "arguments": "{}"}},
]
CHAT_RESULTS = [
    {"role": "tool", "tool_call_id": "a", "content": "12"},
    {"role": "tool", "tool_call_id": "b", "content": "denied"},
]
SYSTEM, ASKED, MORE = ({"role": role, "content": words} for role, words in (("system", "Be brief."), ("user", "Keep searching"), ("user", "Hurry.")))  # fmt: skip
BODIES: dict[str, Any] = {
    "openai-chat": {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {**FUNCTION, **STRICT}}],
        "tool_choice": "auto",
        "messages": [SYSTEM, ASKED, {"role": "assistant", "content": "I look.", "tool_calls": CHAT_CALLS}, *CHAT_RESULTS, MORE],
    },
    "openai": {
        "model": "m",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [{"type": "function", **FUNCTION, **STRICT}],
        "tool_choice": "auto",
        "instructions": "Be brief.",
        "input": [
            ASKED,
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "a", "name": "grep", "arguments": ARGUMENTS},
            {"type": "function_call", "call_id": "b", "name": "grep", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "12"},
            {"type": "function_call_output", "call_id": "b", "output": "denied"},
            MORE,
        ],
    },
    "anthropic": {
        "model": "m",
        "max_tokens": 16384,
        "stream": True,
        "tools": [{"name": "grep", "description": "Search.", "input_schema": GREP.parameters}],
        "tool_choice": {"type": "auto"},
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Keep searching"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "a", "name": "grep", "input": {"path": "x"}},
                    {"type": "tool_use", "id": "b", "name": "grep", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "12"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "denied", "is_error": True},
                    {"type": "text", "text": "Hurry."},
                ],
            },
        ],
    },
    "gemini": {
        "generationConfig": {},
        "tools": [{"functionDeclarations": [{"name": "grep", "description": "Search.", "parametersJsonSchema": GREP.parameters}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Keep searching"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "I look."},
                    {
                        "functionCall": {"name": "grep", "args": {"path": "x"}, "id": "a"},
                        "thoughtSignature": "skip_thought_signature_validator",
                    },
                    {"functionCall": {"name": "grep", "args": {}, "id": "b"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "grep", "response": {"output": "12"}, "id": "a"}},
                    {"functionResponse": {"name": "grep", "response": {"error": "denied"}, "id": "b"}},
                ],
            },
            {"role": "user", "parts": [{"text": "Hurry."}]},
        ],
    },
    "cohere": {
        "model": "m",
        "stream": True,
        "tools": [{"type": "function", "function": FUNCTION}],
        "messages": [SYSTEM, ASKED, {"role": "assistant", "tool_plan": "I look.", "tool_calls": CHAT_CALLS}, *CHAT_RESULTS, MORE],
    },
    "bedrock": {
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "grep", "description": "Search.", "inputSchema": {"json": GREP.parameters}}}]
        },
        "system": [{"text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"text": "Keep searching"}]},
            {
                "role": "assistant",
                "content": [
                    {"text": "I look."},
                    {"toolUse": {"toolUseId": "a", "name": "grep", "input": {"path": "x"}}},
                    {"toolUse": {"toolUseId": "b", "name": "grep", "input": {}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "a", "content": [{"text": "12"}]}},
                    {"toolResult": {"toolUseId": "b", "content": [{"text": "denied"}]}},
                    {"text": "Hurry."},
                ],
            },
        ],
    },
}  # fmt: skip


@pytest.mark.row("W01", "W03", "W04", "W05", "L04", "P-COHERE", "P-CONVERSE")
@EACH
async def test_a_transcript_of_calls_goes_out_in_the_dialects_own_form(name: str) -> None:
    spoken = assistant(Text("I look."), made("a", ARGUMENTS), made("b", ""), origin=f"{name}:m")
    results = tool(result("a", "12"), result("b", "denied", is_error=True))
    request = ModelRequest(
        messages=(user_message("Keep searching"), spoken, results, user_message("Hurry.")),
        instructions="Be brief.",
        tools=(GREP,),
    )

    assert await sent(name, request) == BODIES[name]


@EACH
async def test_without_tools_there_is_no_word_of_them(name: str) -> None:
    body = await sent(name, ModelRequest(messages=ASK.messages, tool_choice="required", parallel_tool_calls=False))

    words = {"tools", "tool_choice", "toolConfig", "system", "systemInstruction", "instructions"}
    assert body.keys() == BODIES[name].keys() - words


# --- where it goes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path", "header", "key"),
    [
        ("openai-chat", "chat/completions", "authorization", "Bearer sk-1"),
        ("openai", "responses", "authorization", "Bearer sk-1"),
        ("anthropic", "messages", "x-api-key", "sk-1"),
        ("gemini", "models/m:streamGenerateContent?alt=sse", "x-goog-api-key", "sk-1"),
        ("cohere", "chat", "authorization", "Bearer sk-1"),
        ("bedrock", "model/m/converse-stream", "authorization", "Bearer sk-1"),
    ],
)
async def test_the_key_goes_into_its_header_and_no_key_sends_none(name: str, path: str, header: str, key: str) -> None:
    hello = answer(said(name, Turn(text="Hello"), stream=False), content_type="application/json")
    _, [with_key] = await asked(name, hello, api_key=" sk-1 \n", headers={"X-Title": "t"})
    _, [without] = await asked(name, hello, api_key=None)

    carriers = {"authorization", "x-api-key", "x-goog-api-key"}
    assert with_key.line == f"POST /v1/{path} HTTP/1.1"
    assert {one: with_key.headers[one] for one in carriers & with_key.headers.keys()} == {header: key}
    assert with_key.headers["x-title"] == "t"
    assert carriers.isdisjoint(without.headers)


@pytest.mark.row("P-COHERE")
@pytest.mark.parametrize(
    ("name", "base_url", "expected"),
    [
        ("anthropic", "http://h", "http://h/v1/messages"),
        ("anthropic", "http://h/", "http://h/v1/messages"),
        ("anthropic", "http://h/v1/", "http://h/v1/messages"),
        ("anthropic", "http://h/v1/messages", "http://h/v1/messages"),
        ("anthropic", "http://h/v1?beta=true", "http://h/v1/messages?beta=true"),
        ("anthropic", "http://h/anthropic", "http://h/anthropic/v1/messages"),
        ("gemini", "http://h", "http://h/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("gemini", "http://h/", "http://h/v1beta/models/m:streamGenerateContent?alt=sse"),
        ("gemini", "http://h/gate?tag=a", "http://h/gate/models/m:streamGenerateContent?tag=a&alt=sse"),
        ("cohere", "http://h", "http://h/v2/chat"),
        ("cohere", "http://h/?tag=a", "http://h/v2/chat?tag=a"),
        ("cohere", "http://h/gate", "http://h/gate/chat"),
        ("cohere", "http://h/v2/", "http://h/v2/chat"),
    ],
)
def test_an_address_may_be_written_with_or_without_its_version(name: str, base_url: str, expected: str) -> None:
    assert str(ADAPTERS[name]("m", base_url=base_url, api_key=None)._server.endpoint.url) == expected


@EACH
def test_a_model_that_could_never_be_reached_is_refused_at_once(name: str) -> None:
    words = {"api_key": None, "base_url": "http://127.0.0.1:1"}
    for wrong in ({"api_key": "a\nb"}, {"api_key": "clé"}, {"base_url": "nowhere"}, {"base_url": "http://[::1"}):
        with pytest.raises(ConfigurationError):
            ADAPTERS[name]("m", **{**words, **wrong})
    for nameless in ("", "  "):
        with pytest.raises(ConfigurationError, match=f"empty.*{name}:NAME"):
            ADAPTERS[name](nameless, **words)


# --- tools -----------------------------------------------------------------------------------------------------------

CHOICES: dict[str, tuple[str, Any, Any, Any, Any]] = {
    "openai-chat": ("tool_choice", "auto", "required", "none", {"type": "function", "function": {"name": "grep"}}),
    "openai": ("tool_choice", "auto", "required", "none", {"type": "function", "name": "grep"}),
    "anthropic": ("tool_choice", {"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": "grep"}),
    "gemini": ("toolConfig.functionCallingConfig", {"mode": "AUTO"}, {"mode": "ANY"}, {"mode": "NONE"}, {"mode": "ANY", "allowedFunctionNames": ["grep"]}),
    "cohere": ("tool_choice", None, "REQUIRED", "NONE", "REQUIRED"),
    "bedrock": ("toolConfig.toolChoice", None, {"any": {}}, None, {"tool": {"name": "grep"}}),
}  # fmt: skip
"""Where the choice stands, and what `auto`, `required`, `none` and a tool's name are there."""


@pytest.mark.row("D04", "P-COHERE", "P-CONVERSE")
@EACH
async def test_the_tool_choice_has_the_dialects_own_form_with_the_tools_still_listed(name: str) -> None:
    path, *forms = CHOICES[name]
    for choice, form in zip(("auto", "required", "none", "grep"), forms, strict=True):
        body = await sent(name, ModelRequest(messages=ASK.messages, tools=(GREP,), tool_choice=choice))
        assert (choice, at(body, path), [*tools_in(body)]) == (choice, form, ["grep"])


@pytest.mark.row("L08", "D04")
@FORMS
@EACH
async def test_at_a_limit_the_result_says_so_and_the_last_request_forbids_calls(name: str, stream: bool) -> None:
    async with MockProvider([call("grep", path="x"), text("partly"), call("grep", path="y"), text("done")]) as provider:
        model = resolve_model(f"{name}:m", base_url=provider.base_url, api_key="k", stream=stream)
        agent = Agent(model, tools=[read_tool()], budget=Budget(max_tool_calls=1))
        stopped = await agent.run("go")
        last = provider.requests[-1].body
        resumed = await agent.resume(stopped.session, budget=Budget(max_tool_calls=10))

    assert (stopped.completed, stopped.text) == (False, "partly")
    assert (at(last, CHOICES[name][0]), [*tools_in(last)]) == (CHOICES[name][3], ["grep"])
    assert "limit_reached" in json.dumps(last)
    assert (resumed.completed, resumed.text, provider.refusals) == (True, "done", [])


@pytest.mark.row("S18")
@pytest.mark.parametrize(
    ("name", "path", "alone"),
    [
        ("openai-chat", "parallel_tool_calls", False),
        ("openai", "parallel_tool_calls", False),
        ("anthropic", "tool_choice.disable_parallel_tool_use", True),
    ],
)
async def test_one_call_at_a_time_is_asked_for_only_where_wanted(name: str, path: str, alone: bool) -> None:
    for choice in ("auto", "required", "grep", "none"):
        one = ModelRequest(messages=ASK.messages, tools=(GREP,), tool_choice=choice, parallel_tool_calls=False)
        several = ModelRequest(messages=ASK.messages, tools=(GREP,), tool_choice=choice)
        said_alone = None if (name, choice) == ("anthropic", "none") else alone  # where the vendor takes it

        assert at(await sent(name, one), path) is said_alone
        assert at(await sent(name, several, options={"parallel_tool_calls": False}), path) is said_alone
        assert at(await sent(name, several), path) is None


@pytest.mark.row("M10")
@EACH
async def test_tools_are_sorted_by_name(name: str) -> None:
    tools = tuple(ToolSpec(name=letter, description="", parameters={}) for letter in "bca")

    assert [*tools_in(await sent(name, ModelRequest(messages=ASK.messages, tools=tools)))] == ["a", "b", "c"]


@pytest.mark.row("M10", "W10")
@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("openai", {"type": "web_search"}),
        ("anthropic", {"type": "web_search_20250305", "name": "web_search", "max_uses": 1}),
        ("gemini", {"googleSearch": {}}),
    ],
)
async def test_the_vendors_own_tools_are_listed_after_ours(name: str, own: Any) -> None:
    more = {"toolConfig": {"includeServerSideToolInvocations": True}} if name == "gemini" else {}
    request = ModelRequest(messages=ASK.messages, tools=(GREP,))

    body = await sent(name, request, options={"server_tools": [own], **more})

    assert ([*tools_in(body["tools"][:-1])], body["tools"][-1]) == (["grep"], own)
    if more:
        assert body["toolConfig"] == {**more["toolConfig"], "functionCallingConfig": {"mode": "AUTO"}}


@pytest.mark.row("V14")
@EACH
async def test_a_name_that_the_dialect_refuses_goes_out_and_comes_back(name: str) -> None:
    names = ["files.read file", "größe", "x" * 200, "7z x", "-x", "ok-Name_1"]
    request = ModelRequest(
        messages=ASK.messages, tools=tuple(ToolSpec(name=one, description="", parameters={}) for one in names)
    )

    async with MockProvider(lambda body: Turn(calls=tuple(call(one) for one in tools_in(body)))) as provider:
        model = resolve_model(f"{name}:m", base_url=provider.base_url, api_key="k")
        parts = [part async for part in model.stream(request)]

    assert {part.call.name for part in parts if isinstance(part, CallReady)} == set(names)
    assert len(tools_in(provider.requests[0].body)) == len(names)
    assert "ok-Name_1" in tools_in(provider.requests[0].body)


CITY = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ROOTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "anything": ({}, set()),
    "an object of anything": ({"type": "object"}, set()),
    "no type": ({"properties": {"a": {}}}, {"a"}),
    "several types": ({"type": ["object", "null"], "properties": {"a": {}}}, {"a"}),
    "a reference": ({"$ref": "#/$defs/City", "$defs": {"City": CITY}}, {"name"}),
    "references that lead nowhere": ({"$ref": "#/nowhere"}, set()),
    "a reference elsewhere": ({"$ref": "https://x/y"}, set()),
    "a reference to itself": ({"$ref": "#"}, set()),
    **{
        f"alternatives, {word}": ({word: [{"properties": {"a": {}}}, {"$ref": "#/$defs/City"}], "$defs": {"City": CITY}}, {"a", "name"})
        for word in ("anyOf", "oneOf", "allOf")
    },
    "alternatives beside properties": ({"type": "object", "properties": {"a": {}}, "oneOf": [CITY, True]}, {"a", "name"}),
    "a negation": ({"type": "object", "properties": {"a": {}}, "not": {"required": ["b"]}}, {"a"}),
    "what is no schema": ({"allOf": 5, "enum": [{}]}, set()),
}  # fmt: skip


@pytest.mark.row("W08")
@pytest.mark.parametrize(("schema", "properties"), ROOTS.values(), ids=ROOTS)
@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in NAMES), *((name, {"strict_tools": True}) for name in ("openai-chat", "anthropic", "bedrock"))])  # fmt: skip
async def test_a_tools_schema_is_an_object_at_its_root(
    name: str, options: Any, schema: dict[str, Any], properties: set[str]
) -> None:
    spec = ToolSpec(name="a", description="", parameters=schema)

    made = tools_in(await sent(name, ModelRequest(messages=ASK.messages, tools=(spec,)), options=options))["a"]

    assert (made["type"], set(made.get("properties", ()))) == ("object", properties)
    assert not made.keys() & {"anyOf", "oneOf", "allOf", "$ref"}


ANSWER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.mark.row("P-COHERE", "P-CONVERSE")
@pytest.mark.parametrize(
    ("name", "path", "form"),
    [
        ("openai-chat", "response_format", {"type": "json_schema", "json_schema": {"name": "output", "schema": ANSWER, "strict": True}}),
        ("openai", "text.format", {"type": "json_schema", "name": "output", "schema": ANSWER, "strict": True}),
        ("anthropic", "output_config.format", {"type": "json_schema", "schema": ANSWER}),
        ("gemini", "generationConfig", {"responseMimeType": "application/json", "responseJsonSchema": ANSWER}),
        ("cohere", "response_format", {"type": "json_object", "json_schema": ANSWER}),
        ("bedrock", "outputConfig.textFormat.structure.jsonSchema", {"name": "answer", "schema": json.dumps(ANSWER, separators=(",", ":"))}),
    ],
)  # fmt: skip
async def test_an_output_schema_is_the_form_of_the_answer(name: str, path: str, form: Any) -> None:
    assert at(await sent(name, ModelRequest(messages=ASK.messages, output_schema=ANSWER)), path) == form


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("openai", "text", {"verbosity": "low"}),
        ("anthropic", "output_config", {"effort": "low"}),
        ("gemini", "generationConfig", {"seed": 1}),
    ],
)
async def test_an_output_schema_stands_beside_other_words_of_its_option(name: str, option: str, value: Any) -> None:
    plain = await sent(name, ASK, options={option: value})
    formed = await sent(name, ModelRequest(messages=ASK.messages, output_schema=ANSWER), options={option: value})

    assert plain[option] == value
    assert value.items() < formed[option].items()


# --- what a history holds --------------------------------------------------------------------------------------------


@pytest.mark.row("MF1")
@pytest.mark.parametrize(
    ("name", "raw", "wire"),
    [
        *(
            ("openai-chat", raw, wire)
            for raw, wire in (
                (' {"b": 2, "a": 1} ', {"b": 2, "a": 1}),
                ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
                ("  ", {}),
                *((broken, {"_invalid": broken}) for broken in ('{"a":1,}', "null", '{"a": NaN}', '{"a": 1e999}', '{"path": "x')),
                *((huge, {"_invalid": huge[:2000]}) for huge in ("x" * 10_000_000, "[" * 100_000)),
            )
        ),
        *((name, '{"a": 1, "a": 2}', {"a": 2}) for name in NAMES),
        *((name, "", {}) for name in NAMES),
        *((name, "[1]", {"_invalid": "[1]"}) for name in NAMES),
        *((name, '{"a": "\ud800"}', {"_invalid": '{"a": "\ufffd"}'}) for name in NAMES),
        *((name, '{"a":' * 100_000, {"_invalid": ('{"a":' * 100_000)[:2000]}) for name in NAMES),
    ],
    ids=lambda value: ascii(value)[:30],
)  # fmt: skip
async def test_broken_arguments_go_back_inside_an_object(name: str, raw: str, wire: Any) -> None:
    history = (user_message("x"), assistant(made("1", raw)), tool(result("1")))

    [(_, _, arguments)] = calls_in(await sent(name, ModelRequest(messages=history)))

    assert arguments == wire


@pytest.mark.row("MF4", "W03")
@pytest.mark.parametrize(
    "call_id", ["functions.grep:0", "x" * 10_000, "", "é", "a b", "\ud800"], ids=lambda one: ascii(one)[:20]
)
@EACH
async def test_strange_ids_are_written_alike_in_call_and_result(name: str, call_id: str) -> None:
    history = (user_message("x"), assistant(made(call_id), made("other")), tool(result(call_id), result("other")))

    body = await sent(name, ModelRequest(messages=history))

    ids = [one for one, _, _ in calls_in(body)]
    assert ids == results_in(body)
    assert 0 < len(ids[0]) <= 256


@EACH
async def test_blank_instructions_and_blank_texts_are_never_refused(name: str) -> None:
    history = (user_message("  "), assistant(Text(" \n"), made("a")), tool(result("a", "")))

    await sent(name, ModelRequest(messages=history, instructions=" "))
    await sent(name, ModelRequest(messages=(Message(role="user", parts=()), assistant(), user_message(""))))


@EACH
async def test_a_history_that_begins_with_the_model_is_never_refused(name: str) -> None:
    assert "earlier" in json.dumps(
        await sent(name, ModelRequest(messages=(assistant(Text("earlier")), user_message("b"))))
    )


@EACH
async def test_text_that_is_no_unicode_is_replaced(name: str) -> None:
    body = await sent(name, ModelRequest(messages=(user_message("a\ud800b"),), instructions="\udfffc"))

    words = json.dumps(body, ensure_ascii=False)
    assert "a\ufffdb" in words
    assert "\ufffdc" in words


@pytest.mark.row("W06", "W10")
@EACH
async def test_what_only_another_model_understands_stays_here(name: str) -> None:
    parts = (
        Thinking(text="secret", signature="theirs", payload={"type": "thinking", "thinking": "secret"}),
        Opaque(provider=name, payload={"type": "secret"}),
        Opaque(provider="other", payload={"type": "secret"}),
        Text("yes", signature="theirs"),
    )

    thought_alone = assistant(Thinking(text="secret"), origin="x:y")
    body = await sent(name, ModelRequest(messages=(user_message("a"), assistant(*parts, origin="x:y"), user_message("b"), thought_alone, user_message("c"))))  # fmt: skip

    words = json.dumps(body)
    assert "yes" in words
    assert "secret" not in words
    assert "theirs" not in words


LOOK_AT = Message(
    role="user",
    parts=(
        Text("Look:"),
        Media(media_type="image/png", base64="aWc="),
        Media(media_type="image/jpeg", url="https://h/i.jpg"),
        Media(media_type="audio/mpeg", base64="YQ==", name="a.mp3"),
        Media(media_type="application/pdf", base64="cA==", name="a.pdf"),
        Media(media_type="application/pdf", url="https://h/a.pdf"),
        Media(media_type="image/gif", name="lost.gif"),
    ),
)
PNG, PDF = "data:image/png;base64,aWc=", "data:application/pdf;base64,cA=="
SHOWN: dict[str, list[Any]] = {
    "openai-chat": [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "image_url", "image_url": {"url": "https://h/i.jpg"}},
        {"type": "input_audio", "input_audio": {"data": "YQ==", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
        {"type": "text", "text": "[application/pdf: https://h/a.pdf]"},
        {"type": "text", "text": "[image/gif: lost.gif]"},
    ],
    "openai": [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": PNG, "detail": "auto"},
        {"type": "input_image", "image_url": "https://h/i.jpg", "detail": "auto"},
        {"type": "input_text", "text": "[audio/mpeg: a.mp3]"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        {"type": "input_file", "file_url": "https://h/a.pdf"},
        {"type": "input_text", "text": "[image/gif: lost.gif]"},
    ],
    "anthropic": [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWc="}},
        {"type": "image", "source": {"type": "url", "url": "https://h/i.jpg"}},
        {"type": "text", "text": "[audio/mpeg: a.mp3]"},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "cA=="}, "title": "a.pdf"},
        {"type": "document", "source": {"type": "url", "url": "https://h/a.pdf"}},
        {"type": "text", "text": "[image/gif: lost.gif]"},
    ],
    "gemini": [
        {"text": "Look:"},
        {"inlineData": {"mimeType": "image/png", "data": "aWc="}},
        {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://h/i.jpg"}},
        {"inlineData": {"mimeType": "audio/mpeg", "data": "YQ=="}},
        {"inlineData": {"mimeType": "application/pdf", "data": "cA=="}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://h/a.pdf"}},
        {"text": "[image/gif: lost.gif]"},
    ],
    "cohere": [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": PNG}},
        {"type": "image_url", "image_url": {"url": "https://h/i.jpg"}},
        {"type": "text", "text": "[audio/mpeg: a.mp3]"},
        {"type": "text", "text": "[application/pdf: a.pdf]"},
        {"type": "text", "text": "[application/pdf: https://h/a.pdf]"},
        {"type": "text", "text": "[image/gif: lost.gif]"},
    ],
}  # fmt: skip


@pytest.mark.row("T12", "P-COHERE")
@pytest.mark.parametrize("name", SHOWN)
async def test_media_of_the_user_have_the_dialects_forms_and_what_it_cannot_carry_is_told_of(name: str) -> None:
    body = await sent(name, ModelRequest(messages=(LOOK_AT,)))

    [content] = body.get("messages") or body.get("input") or body["contents"]
    assert (content.get("content") or content["parts"]) == SHOWN[name]


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "field"),
    [("openai-chat", "stream_options"), ("openai", "include"), ("anthropic", "max_tokens"), ("gemini", "labels"), ("cohere", "seed")],
)  # fmt: skip
async def test_options_are_further_fields_and_none_takes_one_away(name: str, field: str) -> None:
    hello = answer(said(name, Turn(text="Hello"), stream=False), content_type="application/json")
    _, [request] = await asked(name, hello, options={"temperature": 0, "x_more": [1], field: None}, stream=False)

    assert at(request.json, "generationConfig.temperature" if name == "gemini" else "temperature") == 0
    assert request.json["x_more"] == [1]
    assert field not in request.json


WRONG_OPTIONS: list[tuple[str, dict[Any, Any], str]] = [
    ("openai-chat", {"messages": []}, "messages"),
    ("openai-chat", {"tools": []}, "tools"),
    ("openai-chat", {"stream": False}, "stream"),
    ("openai-chat", {"x": object()}, "not plain JSON"),
    ("openai-chat", {1: 2, "model": "x"}, "model"),
    ("openai-chat", {"strict_tools": "yes"}, "strict_tools of a Chat Completions model must be true or false"),
    ("openai-chat", {"strict_tools": 1}, "strict_tools of a Chat Completions model must be true or false"),
    ("openai", {"input": []}, "input"),
    ("openai", {"stream": False}, "stream"),
    ("openai", {"background": True}, "background"),
    ("openai", {"previous_response_id": "resp_1"}, "previous_response_id"),
    ("openai", {"conversation": "conv_1"}, "conversation"),
    ("openai", {"x": object()}, "not plain JSON"),
    ("openai", {"state": "both"}, "state must be 'client'"),
    ("openai", {"text": "low"}, "text must be an object"),
    ("openai", {"text": {"x": object()}}, "not plain JSON"),
    ("anthropic", {"messages": []}, "messages"),
    ("anthropic", {"tool_choice": {"type": "any"}}, "tool_choice"),
    ("anthropic", {"system": "x"}, "system"),
    ("anthropic", {"temperature": object()}, "not plain JSON"),
    ("anthropic", {"cache_control": True}, "cache_control of an Anthropic model must be an object"),
    ("anthropic", {"thinking": True}, "thinking of an Anthropic model must be an object"),
    ("anthropic", {"output_config": "low"}, "output_config of an Anthropic model must be an object"),
    ("anthropic", {"strict_tools": 1}, "strict_tools of an Anthropic model must be true or false"),
    ("anthropic", {"parallel_tool_calls": "no"}, "parallel_tool_calls of an Anthropic model must be true or false"),
    ("gemini", {"contents": []}, "contents"),
    ("gemini", {"systemInstruction": {}}, "systemInstruction"),
    ("gemini", {"server_tools": [{"googleSearch": object()}]}, "not plain JSON"),
    ("gemini", {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "toolConfig"),
    ("gemini", {"toolConfig": "x"}, "toolConfig"),
    ("gemini", {"toolConfig": {"a": object()}}, "not plain JSON"),
    ("gemini", {"generationConfig": []}, "generationConfig must be an object"),
    ("gemini", {"temperature": object()}, "not plain JSON"),
    ("gemini", {"labels": object()}, "not plain JSON"),
    ("cohere", {"strict_tools": "yes"}, "strict_tools"),
    ("cohere", {"messages": []}, "messages"),
    ("cohere", {"tool_choice": "NONE"}, "tool_choice"),
    ("cohere", {"seed": object()}, "not plain JSON"),
    ("bedrock", {"messages": []}, "messages"),
    ("bedrock", {"toolConfig": {}}, "toolConfig"),
    ("bedrock", {"cachePoint": 3}, "cachePoint of a Bedrock model must be an object"),
    ("bedrock", {"inferenceConfig": []}, "inferenceConfig of a Bedrock model must be an object"),
    ("bedrock", {"strict_tools": "yes"}, "strict_tools of a Bedrock model must be true or false"),
    ("bedrock", {"x": object()}, "not plain JSON"),
]


@pytest.mark.row("P-COHERE")
@pytest.mark.parametrize(("name", "options", "words"), WRONG_OPTIONS)
def test_an_option_that_cannot_be_sent_is_refused_at_once(name: str, options: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        ADAPTERS[name]("m", base_url="http://127.0.0.1:1", api_key="k", options=options)


# --- several requests of one session ---------------------------------------------------------------------------------


@pytest.mark.row("M09", "M10")
@EACH
async def test_each_request_begins_with_the_bytes_of_the_one_before(name: str) -> None:
    first = Turn(thinking="hm", text="I look, é.", calls=(call("b", q=1), call("a", q=2)))
    async with MockProvider([first, call("a", q=3), call("b", q=4), "Done."]) as provider:
        model = resolve_model(f"{name}:m", base_url=provider.base_url, api_key="k")
        await Agent(model, tools=[read_tool("b"), read_tool("a")], instructions="Be brief.").run("go")

    marker = b',"cache_control":{"type":"ephemeral"}'  # it moves on with the end of the history
    bodies = [request.raw.replace(marker, b"").removesuffix(b"]}") for request in provider.requests]
    assert len(bodies) == 4
    assert all(later.startswith(earlier) for earlier, later in pairwise(bodies))


@pytest.mark.row("S02")
@EACH
async def test_results_go_back_in_call_order_whatever_ends_first(name: str) -> None:
    second_ended = asyncio.Event()

    async def run(arguments: Any, ctx: Any) -> Any:
        if arguments["q"] == 1:
            await second_ended.wait()
        else:
            second_ended.set()
        return arguments["q"]

    schema = {"type": "object", "properties": {"q": {"type": "integer"}}}
    grep = Tool(name="grep", description="Read.", parameters=schema, effect="read", run=run)
    async with MockProvider([[call("grep", q=1), call("grep", q=2)], text("done")]) as provider:
        await Agent(resolve_model(f"{name}:m", base_url=provider.base_url, api_key="k"), tools=[grep]).run("go")

    body = provider.requests[1].body
    assert results_in(body) == [call_id for call_id, _, _ in calls_in(body)]
    assert [arguments["q"] for _, _, arguments in calls_in(body)] == [1, 2]


# --- any history -----------------------------------------------------------------------------------------------------

WORDS = st.text(max_size=6) | st.sampled_from(["", "\ud800", '{"$ref": "#/x"}', '{"a": 1, "a": 2}', "[1]", "\x00"])
NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=70) | st.sampled_from(
    ["7z", "-", "grep"]
)
MEDIA = st.builds(Media, media_type=st.sampled_from(["image/png", "audio/wav"]), base64=st.sampled_from(["AA==", None]))
SPOKEN = st.lists(
    st.one_of(
        st.builds(Text, WORDS, st.none() | st.just("s")),
        st.builds(Thinking, text=WORDS, signature=st.none() | st.just("s")),
        st.builds(ToolCall, id=st.just(""), name=NAMES, arguments=WORDS, signature=st.none() | st.just("s")),
        st.builds(Opaque, provider=st.just("gemini"), payload=st.just({"executableCode": {"code": "1"}})),
        MEDIA,
    ),
    max_size=4,
)


@st.composite
def histories(draw: st.DrawFn, origin: str) -> tuple[Message, ...]:
    """Draw a history as the runtime makes it: ids are unique, and each call has its result right behind its message."""
    messages: list[Message] = []
    for step in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            messages.append(Message(role="user", parts=(Text(draw(WORDS)), *draw(st.lists(MEDIA, max_size=1)))))
        parts = tuple(
            ToolCall(id=f"{step}é{place}", name=part.name, arguments=part.arguments, signature=part.signature)
            if isinstance(part, ToolCall)
            else part
            for place, part in enumerate(draw(SPOKEN))
        )
        spoken = assistant(*parts, origin=draw(st.sampled_from([origin, "another:m", None])))
        messages.append(spoken)
        if spoken.calls:
            messages.append(
                tool(
                    *(
                        Result(
                            call_id=one.id,
                            name=one.name,
                            content=draw(WORDS),
                            is_error=draw(st.booleans()),
                            media=tuple(draw(st.lists(MEDIA, max_size=2))),
                        )
                        for one in spoken.calls
                    )
                )
            )
    return (*messages, Message(role="user", parts=(Text(draw(WORDS)),)))


WRITERS: dict[str, tuple[Callable[..., Any], Dialect, dict[str, Any]]] = {
    "openai-chat": (ChatRequests, ChatCompletions(), {"stream": True}),
    "openai": (ResponsesRequests, Responses(), {"stream": True}),
    "anthropic": (AnthropicRequests, AnthropicMessages(), {"stream": True}),
    "gemini": (GeminiRequests, GenerateContent(is_stream=True, signed=set(), wants_signatures=False), {}),
    "cohere": (CohereRequests, CohereChat(), {"stream": True}),
    "bedrock": (BedrockRequests, Converse(is_stream=True), {}),
}


@pytest.mark.row("W05")
@settings(max_examples=40)
@given(st.data())
@EACH
def test_every_history_of_the_runtime_is_one_that_a_strict_vendor_takes(name: str, data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(["gemini-3-pro", "gemini-2.5-pro"])) if name == "gemini" else "m"
    messages = data.draw(histories(f"{name}:{model}"))
    names = {call.name for message in messages for call in message.calls}
    tools = tuple(ToolSpec(name=name, description="", parameters={}) for name in sorted(names))
    writer, vendor, words = WRITERS[name]

    requests = writer(model, origin=f"{name}:{model}", options={}, **words)
    asked = ModelRequest(messages=messages, tools=tools)
    body = vendor.check(json.loads(requests.body(asked, **({"resumes": False} if name == "openai" else {}))))

    if model == "gemini-3-pro":
        firsts = [next((part for part in one["parts"] if "functionCall" in part), None) for one in body["contents"]]
        assert all("thoughtSignature" in part for part in firsts if part is not None)
