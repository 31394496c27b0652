"""Chat Completions: the requests that go out, and the responses that come back, from honest servers and from others."""

import asyncio
import gc
import json
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chat_server import (
    DONE,
    HELLO,
    STREAM_HEAD,
    answer,
    chunk,
    event,
    fragment,
    json_answer,
    serving,
    then_reset,
    then_silence,
    until_closed,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.budgets import Price
from treadle.errors import (
    ConfigurationError,
    ContextOverflow,
    IncompleteStream,
    ModelError,
    ModelRejected,
    ModelResponseInvalid,
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
from treadle.mock.dialects.openai_chat import check_chat_request
from treadle.ports import CallReady, ModelEnd, ModelPart, ModelRequest, TextDelta, ThinkingDelta, ToolSpec
from treadle.providers.http.reading import AnswerError, SseReader
from treadle.providers.openai_chat import OpenAIChat, Timeouts
from treadle.providers.openai_chat.response import ChatResponse
from treadle.providers.payload import ObjectEnd

ASK = ModelRequest(messages=(user_message("hi"),))
GREP = ToolSpec(
    name="grep", description="Search.", parameters={"type": "object", "properties": {"path": {"type": "string"}}}
)


async def ask(script, request: ModelRequest = ASK, **words: Any) -> list[ModelPart]:
    return (await exchange(script, request, **words))[0]


async def exchange(script, request: ModelRequest = ASK, **words: Any) -> tuple[list[ModelPart], Any]:
    async with serving(script) as server:
        model = OpenAIChat("gpt-5-mini", base_url=server.url, **{"api_key": None, **words})
        parts = [part async for part in model.stream(request)]
    return parts, server.requests[0]


async def sent(request: ModelRequest, **words: Any) -> Any:
    return (await exchange(answer(HELLO), request, **words))[1].json


async def end_of(script, **words: Any) -> ModelEnd:
    return (await ask(script, **words))[-1]


def parse(stream: str) -> tuple[list[ModelPart], ModelEnd]:
    """Read a stream without a server."""
    response, reader = ChatResponse({}), SseReader()
    parts = [part for event in reader.feed(stream.encode()) for part in response.add(event)]
    return parts, response.end()


def calls(stream: str) -> list[ToolCall]:
    return [part for part in parse(stream)[1].parts if isinstance(part, ToolCall)]


def ready(stream: str) -> list[ToolCall]:
    return [part.call for part in parse(stream)[0] if isinstance(part, CallReady)]


def call(call_id: str, name: str, arguments: str) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def assistant(*parts, origin: str | None = "openai-chat:gpt-5-mini") -> Message:
    return Message(role="assistant", parts=parts, origin=origin)


def tool(*results: Result) -> Message:
    return Message(role="tool", parts=results)


# --- the request -----------------------------------------------------------------------------------------------------


@pytest.mark.row("W01")
async def test_a_transcript_of_calls_goes_out_in_the_manual_history_form():
    arguments = '{"pattern": "error", "path": "src/main.c"}'
    content = '{"output": "src/main.c:12", "count": 1}'
    request = ModelRequest(
        messages=(
            user_message("Keep searching"),
            assistant(call("call_grep1", "grep", arguments)),
            tool(Result(call_id="call_grep1", name="grep", content=content)),
        ),
        tools=(GREP,),
        tool_choice="none",
    )

    assert await sent(request) == {
        "model": "gpt-5-mini",
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "grep", "description": "Search.", "parameters": GREP.parameters},
            }
        ],
        "tool_choice": "none",
        "messages": [
            {"role": "user", "content": "Keep searching"},
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "call_grep1", "type": "function", "function": {"name": "grep", "arguments": arguments}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_grep1", "content": content},
        ],
    }


async def test_without_tools_there_is_no_word_of_them():
    assert (await sent(ModelRequest(messages=ASK.messages, tool_choice="required"))).keys() == {
        "model", "stream", "stream_options", "messages",
    }  # fmt: skip


async def test_instructions_are_the_system_message():
    body = await sent(ModelRequest(messages=ASK.messages, instructions="Be brief."))

    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ("grep", {"type": "function", "function": {"name": "grep"}}),
    ],
)
async def test_the_tool_choice_has_the_dialects_own_form(choice, wire):
    assert (await sent(ModelRequest(messages=ASK.messages, tools=(GREP,), tool_choice=choice)))["tool_choice"] == wire


@pytest.mark.row("S18")
async def test_one_call_at_a_time_is_asked_for_only_where_wanted():
    request = ModelRequest(messages=ASK.messages, tools=(GREP,), parallel_tool_calls=False)

    assert (await sent(request))["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in await sent(ModelRequest(messages=ASK.messages, tools=(GREP,)))
    assert "parallel_tool_calls" not in await sent(ModelRequest(messages=ASK.messages, parallel_tool_calls=False))


async def test_tools_are_sorted_by_name():
    tools = tuple(ToolSpec(name=name, description="", parameters={}) for name in "bca")

    body = await sent(ModelRequest(messages=ASK.messages, tools=tools))

    assert [tool["function"]["name"] for tool in body["tools"]] == ["a", "b", "c"]


@pytest.mark.row("L04")
async def test_text_beside_calls_goes_back_in_one_message():
    body = await sent(ModelRequest(messages=(assistant(Text("I'll look."), call("1", "grep", "{}")),)))

    assert body["messages"] == [
        {
            "role": "assistant",
            "content": "I'll look.",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}],
        }
    ]


async def test_an_assistant_message_of_nothing_has_empty_content():
    body = await sent(ModelRequest(messages=(assistant(Thinking(text="hm")),)))

    assert body["messages"] == [{"role": "assistant", "content": ""}]


@pytest.mark.parametrize(
    ("raw", "wire"),
    [
        ('{"a":1}', '{"a":1}'),
        (' {"b": 2, "a": 1} ', ' {"b": 2, "a": 1} '),
        ("", "{}"),
        ("  ", "{}"),
        ('{"a":1,}', '{"_invalid":"{\\"a\\":1,}"}'),
        ("[1]", '{"_invalid":"[1]"}'),
        ("null", '{"_invalid":"null"}'),
        ('{"a": NaN}', '{"_invalid":"{\\"a\\": NaN}"}'),
        ('{"a": "\ud800"}', '{"_invalid":"{\\"a\\": \\"\ufffd\\"}"}'),
    ],
)
async def test_broken_arguments_go_back_inside_an_object(raw, wire):
    body = await sent(ModelRequest(messages=(assistant(call("1", "grep", raw)),)))

    assert body["messages"][0]["tool_calls"][0]["function"]["arguments"] == wire


async def test_huge_and_deep_broken_arguments_are_bounded():
    for raw in ("x" * 10_000_000, "[" * 100_000, '{"a":' * 100_000):
        body = await sent(ModelRequest(messages=(assistant(call("1", "grep", raw)),)))
        assert len(body["messages"][0]["tool_calls"][0]["function"]["arguments"]) < 10_000


@pytest.mark.row("MF4")
@pytest.mark.parametrize("call_id", ["x" * 10_000, "", "é", "a b", "\ud800"])
async def test_strange_ids_are_written_alike_in_call_and_result(call_id):
    body = await sent(
        ModelRequest(
            messages=(
                assistant(call(call_id, "grep", "{}")),
                tool(Result(call_id=call_id, name="grep", content="x")),
            )
        )
    )

    asked, told = body["messages"]
    assert asked["tool_calls"][0]["id"] == told["tool_call_id"]
    assert 0 < len(told["tool_call_id"]) <= 40


@pytest.mark.parametrize("pattern", ["[", "[xyz]{9}", "[a-z]{60}"])
def test_a_pattern_that_no_id_could_fit_is_refused(pattern):
    with pytest.raises(ConfigurationError, match="call_id must be a regular expression"):
        OpenAIChat("m", api_key=None, call_id=pattern)


@pytest.mark.row("M09")
async def test_a_bridge_stands_wherever_a_user_speaks_after_results_and_keeps_the_bytes_before_it():
    read, more = tool(Result(call_id="c1", name="grep", content="3")), user_message("more")
    history = (user_message("go"), assistant(call("c1", "grep", "{}")), read, more, assistant(Text("yes")), more)
    async with serving(answer(HELLO)) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=None, bridge="Ok.")
        for length in (3, 4, 6):
            _ = [part async for part in model.stream(ModelRequest(messages=history[:length]))]

    bodies = [request.body.removesuffix(b"]}") for request in server.requests]
    said = [(message["role"], message.get("content")) for message in server.requests[-1].json["messages"]]
    assert said[2:] == [("tool", "3"), ("assistant", "Ok."), ("user", "more"), ("assistant", "yes"), ("user", "more")]
    assert all(later.startswith(earlier) for earlier, later in pairwise(bodies))


async def test_a_name_that_the_dialect_refuses_goes_out_and_comes_back():
    names = ["files.read file", "größe", "x" * 100, "ok-Name_1"]
    specs = tuple(ToolSpec(name=name, description="", parameters={}) for name in names)
    seen: list[str] = []

    async def repeat_them(writer: asyncio.StreamWriter) -> None:
        seen.extend(tool["function"]["name"] for tool in server.requests[0].json["tools"])
        fragments = [fragment(i, "{}", call_id=f"c{i}", name=name) for i, name in enumerate(seen)]
        writer.write(answer(chunk("tool_calls", tool_calls=fragments) + DONE))

    async with serving(repeat_them) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=None)
        parts = [part async for part in model.stream(ModelRequest(messages=ASK.messages, tools=specs))]

    assert {part.call.name for part in parts if isinstance(part, CallReady)} == set(names)
    assert all(len(name) <= 64 and name.replace("-", "_").isascii() for name in seen)
    assert "ok-Name_1" in seen


async def test_a_steps_results_follow_each_other_and_their_media_come_after():
    image = Media(media_type="image/png", base64="aWc=")
    message = tool(
        Result(call_id="1", name="shot", content="one", media=(image,)),
        Result(call_id="2", name="read", content="two"),
    )

    assert (await sent(ModelRequest(messages=(message,))))["messages"] == [
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Attached to the result of shot (1):"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aWc="}},
            ],
        },
    ]


async def test_media_of_the_user_have_their_own_forms():
    message = Message(
        role="user",
        parts=(
            Text("Look:"),
            Media(media_type="image/jpeg", url="https://h/i.jpg"),
            Media(media_type="audio/mpeg", base64="YQ=="),
            Media(media_type="application/pdf", base64="cA==", name="a.pdf"),
            Media(media_type="application/pdf", url="https://h/a.pdf"),
        ),
    )

    assert (await sent(ModelRequest(messages=(message,))))["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "https://h/i.jpg"}},
        {"type": "input_audio", "input_audio": {"data": "YQ==", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cA=="}},
        {"type": "text", "text": "[application/pdf: https://h/a.pdf]"},
    ]


async def test_thinking_and_foreign_items_stay_here():
    message = assistant(Thinking(text="hm"), Opaque(provider="openai", payload={"x": 1}), Text("yes"))

    assert (await sent(ModelRequest(messages=(message,))))["messages"] == [{"role": "assistant", "content": "yes"}]


async def test_thinking_goes_back_to_its_own_model_where_asked_for():
    own, other = (assistant(Thinking(text="hm"), Text("yes"), origin=o) for o in ("openai-chat:gpt-5-mini", "gemini:x"))

    silent = assistant(call("c1", "grep", "{}"))
    body = await sent(ModelRequest(messages=(own, other, silent)), thinking_field="reasoning_content")

    # Servers that want the field refuse a message without it, and take an empty one.
    assert [message["reasoning_content"] for message in body["messages"]] == ["hm", "", ""]


SIGNED = {"type": "reasoning.text", "text": "I think", "signature": "S", "format": "anthropic-claude-v1", "index": 0}
SEALED = [{"type": "reasoning.encrypted", "data": data, "id": data, "index": 0} for data in ("tool_1", "tool_2")]
TOLD = {"type": "reasoning.summary", "summary": "in short", "index": 0}


def details(*pieces: Any) -> str:
    return chunk(reasoning_details=list(pieces))


@pytest.mark.row("W06")
@pytest.mark.parametrize(
    "wire",
    [
        chunk(reasoning="I ", reasoning_details=[SIGNED | {"text": "I ", "signature": None}])
        + details(SIGNED | {"text": "think"})
        + details(TOLD | {"summary": "in "})
        + details(TOLD | {"summary": "short"}, SEALED[0])
        + details(SEALED[1])
        + details("odd", None)
        + chunk(reasoning_details="odd"),
        chunk(reasoning="I ", reasoning_details=[{"type": "reasoning.text", "text": "I ", "index": 0}])
        + details({"type": "reasoning.text", "text": "think", "index": 0})
        + details({name: SIGNED[name] for name in ("type", "signature", "format", "index")}, TOLD, *SEALED),
        event(
            {"choices": [{"index": 0, "message": {"reasoning": "I ", "reasoning_details": [SIGNED, TOLD, *SEALED]}}]}
        ),
    ],
    ids=["streamed", "signed at last", "whole"],
)
async def test_reasoning_details_go_back_to_their_own_model_as_they_were_before_they_were_cut(wire):
    thought = parse(wire + chunk("stop"))[1].parts[0]
    own, other = (assistant(thought, Text("yes"), origin=o) for o in ("openai-chat:gpt-5-mini", "openai-chat:other"))

    sent_back = (await sent(ModelRequest(messages=(own, other))))["messages"]

    assert sent_back[0] == {
        "role": "assistant",
        "content": "yes",
        "reasoning_details": [dict(SIGNED), TOLD, *SEALED],
    }
    assert sent_back[1] == {"role": "assistant", "content": "yes"}
    assert thought.text == "I "


@pytest.mark.row("W06")
def test_details_that_are_none_make_no_thought():
    assert parse(details("odd", None) + chunk("stop"))[1].parts == ()


@pytest.mark.row("W06")
def test_thoughts_that_were_signed_apart_stay_apart():
    second = SIGNED | {"text": "Then", "signature": "T"}
    third = {"type": "reasoning.text", "text": "Last", "index": 1}

    thought = parse(details(SIGNED) + details(second) + details(third) + chunk("stop"))[1].parts[0]

    assert thought.payload == {"reasoning_details": [SIGNED, second, third]}


async def test_a_calls_signature_travels_back_to_its_own_model_only():
    extra = {"google": {"thought_signature": "sig"}}
    first = await end_of(
        answer(
            chunk("tool_calls", tool_calls=[fragment(0, "{}", call_id="1", name="a") | {"extra_content": extra}]) + DONE
        )
    )
    own, other = (assistant(*first.parts, origin=o) for o in ("openai-chat:gpt-5-mini", "openai-chat:other"))

    wire = [message["tool_calls"][0] for message in (await sent(ModelRequest(messages=(own, other))))["messages"]]

    assert wire[0]["extra_content"] == extra
    assert "extra_content" not in wire[1]


async def test_an_output_schema_is_the_response_format():
    schema = {"type": "object", "properties": {}}

    body = await sent(ModelRequest(messages=ASK.messages, output_schema=schema))

    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}


EXACT = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
LOOSE = {"type": "object", "properties": {"q": {"type": "string"}}}


@pytest.mark.row("V15")
async def test_strict_tools_are_compiled_and_an_optional_property_may_be_null():
    tools = tuple(ToolSpec(name=name, description=name, parameters=p) for name, p in (("a", EXACT), ("b", LOOSE)))
    request = ModelRequest(messages=ASK.messages, tools=tools, output_schema=EXACT)

    body = await sent(request, options={"strict_tools": True})
    plain = await sent(request)
    loose = await sent(ModelRequest(messages=ASK.messages, output_schema=LOOSE), options={"strict_tools": True})

    closed = {**EXACT, "additionalProperties": False}
    nullable = {**closed, "properties": {"q": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
    assert [tool["function"] for tool in body["tools"]] == [
        {"name": "a", "description": "a", "parameters": closed, "strict": True},
        {"name": "b", "description": "b", "parameters": nullable, "strict": True},
    ]
    assert body["response_format"]["json_schema"] == {"name": "output", "schema": closed, "strict": True}
    assert loose["response_format"]["json_schema"] == {"name": "output", "schema": LOOSE}
    assert "strict" not in json.dumps(plain)
    assert "strict_tools" not in body


@pytest.mark.parametrize("value", ["yes", 1])
def test_a_strictness_that_is_neither_true_nor_false_is_refused(value):
    with pytest.raises(ConfigurationError, match="strict_tools must be true or false"):
        OpenAIChat("m", api_key=None, options={"strict_tools": value})


@pytest.mark.row("W08")
@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "object", "properties": {"q": {"type": "string"}}}, {"properties": {"n": {}}}]},
        {"$ref": "#/$defs/P", "$defs": {"P": {"type": "object", "properties": {"q": {"type": "string"}}}}},
        {"type": "object", "properties": {"q": {"type": "string"}}, "not": {"required": ["q"]}},
    ],
    ids=["alternatives", "a reference", "a negation"],
)
async def test_a_tools_schema_is_an_object_at_its_root(schema, is_strict):
    spec = ToolSpec(name="a", description="a", parameters=schema)

    body = await sent(ModelRequest(messages=ASK.messages, tools=(spec,)), options={"strict_tools": is_strict})

    check_chat_request(body)
    function = body["tools"][0]["function"]
    nullable = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert function["parameters"]["properties"]["q"] == (nullable if function.get("strict") else {"type": "string"})


async def test_options_are_further_fields_and_none_takes_one_away():
    body = await sent(ASK, options={"temperature": 0, "stream_options": None}, stream=False)

    assert body == {
        "model": "gpt-5-mini",
        "stream": False,
        "temperature": 0,
        "messages": [{"role": "user", "content": "hi"}],
    }


@pytest.mark.parametrize(
    "options", [{"messages": []}, {"tools": []}, {"stream": False}, {"x": object()}, {1: 2, "model": "x"}]
)
def test_options_that_cannot_be_are_refused(options):
    with pytest.raises(ConfigurationError):
        OpenAIChat("m", api_key=None, options=options)


@pytest.mark.parametrize("words", [{"api_key": "a\nb"}, {"api_key": "clé"}, {"api_key": None, "base_url": "nowhere"}])
def test_a_model_that_could_never_be_reached_is_refused_at_once(words):
    with pytest.raises(ConfigurationError):
        OpenAIChat("m", **words)


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_model_name_is_refused(name):
    with pytest.raises(ConfigurationError, match="empty"):
        OpenAIChat(name, api_key=None)


async def test_the_key_goes_into_its_header_and_no_key_sends_none():
    _, with_key = await exchange(answer(HELLO), api_key=" sk-1 \n", headers={"X-Title": "t"})
    _, without = await exchange(answer(HELLO))

    assert (with_key.headers["authorization"], with_key.headers["x-title"]) == ("Bearer sk-1", "t")
    assert "authorization" not in without.headers
    assert without.line == "POST /v1/chat/completions HTTP/1.1"


async def test_a_header_of_the_person_replaces_ours():
    _, request = await exchange(answer(HELLO), api_key="sk-1", headers={"authorization": "Key x"})
    _, blank = await exchange(answer(HELLO), api_key="  ")

    assert request.headers["authorization"] == "Key x"
    assert "authorization" not in blank.headers


async def test_text_that_is_no_unicode_is_replaced_and_never_fails():
    body = await sent(ModelRequest(messages=(user_message("a\ud800b"),), instructions="\udfff"))

    assert [message["content"] for message in body["messages"]] == ["\ufffd", "a\ufffdb"]


@pytest.mark.row("M09")
async def test_each_request_begins_with_the_bytes_of_the_one_before():
    messages = [user_message("hé")]
    async with serving(answer(HELLO)) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=None)
        for step in range(4):
            async for _ in model.stream(ModelRequest(messages=tuple(messages), tools=(GREP,), instructions="i")):
                pass
            messages += [
                assistant(Text("on"), call(f"c{step}", "grep", '{"b": 1, "a": 2}')),
                tool(Result(call_id=f"c{step}", name="grep", content="x")),
            ]

    bodies = [request.body for request in server.requests]
    assert all(after.startswith(before.removesuffix(b"]}")) for before, after in pairwise(bodies))


@pytest.mark.parametrize("count", [1, 100])
def test_encoded_messages_are_dropped_with_their_messages(count):
    model = OpenAIChat("m", api_key=None)
    messages = tuple(user_message(f"{number}") for number in range(count))
    model._requests.body(ModelRequest(messages=messages))
    model._requests.body(ModelRequest(messages=messages[1:], session_id="s_other"))
    gone = [weakref.ref(message) for message in messages]

    del messages
    gc.collect()

    assert not any(message() for message in gone)
    assert model._requests._messages._encoded._known == {}
    assert model._requests._messages._encoded._bodies == {}


def test_a_short_session_keeps_its_bytes_once():
    """Its last body holds them: those of each message beside it would be the same again, for every session under way."""
    model = OpenAIChat("m", api_key=None)
    messages = (user_message("a task"), assistant(Text("on")), user_message("more"))

    bodies = [model._requests.body(ModelRequest(messages=messages[:length])) for length in (1, 3)]

    encoded = model._requests._messages._encoded
    assert encoded._known == {}
    assert [body.whole for body in encoded._bodies.values()] == bodies[1:]


def test_a_session_is_sent_as_if_it_were_sent_for_the_first_time():
    """A long one's last body is extended where it only grew; whatever else became of it, the bytes are those of a new model."""
    old, empty, more = [user_message(f"{number}") for number in range(40)], tool(), user_message("more")
    longer = [*old, empty, more]
    histories = [
        old,
        old,
        longer,
        [*old[:20], user_message("x"), *longer[21:]],
        longer,
        longer[5:],
        old[:10],
        [more],
        [],
    ]
    requests = [
        ModelRequest(messages=tuple(messages), session_id="s_1", **words)
        for words in ({}, {"tools": (GREP,)}, {"tools": (GREP,), "tool_choice": "none"}, {"instructions": "Be brief."})
        for messages in histories
    ]
    model = OpenAIChat("m", api_key=None)

    assert [model._requests.body(request) for request in requests] == [
        OpenAIChat("m", api_key=None)._requests.body(request) for request in requests
    ]


def test_the_model_says_its_name_and_price():
    model = OpenAIChat("m", api_key=None, price=Price(input=1, output=2))

    assert (model.name, model.price) == ("openai-chat:m", Price(input=1, output=2))


# --- the response ----------------------------------------------------------------------------------------------------


async def test_a_streamed_answer_gives_its_deltas_and_the_whole():
    usage = {
        "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2},
    }  # fmt: skip
    stream = (
        chunk(role="assistant", content="")
        + chunk(reasoning_content="Hm")
        + chunk(content="Hel")
        + chunk(content="lo")
        + chunk("stop")
        + event({"choices": [], "usage": usage})
        + DONE
    )

    assert await ask(answer(stream)) == [
        ThinkingDelta("Hm"),
        TextDelta("Hel"),
        TextDelta("lo"),
        ModelEnd(
            parts=(Thinking(text="Hm"), Text("Hello")),
            finish=Finish.STOP,
            finish_reason="stop",
            usage=Usage(input_tokens=10, output_tokens=5, cached_input_tokens=4, reasoning_tokens=2),
        ),
    ]


BODY = {
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "grep", "arguments": "{}"}},
                    {"id": "a", "type": "function", "function": {"name": "grep", "arguments": '{"x":1}'}},
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_an_answer_in_one_piece_gives_the_same_parts(stream, content_type):
    script = answer(json.dumps(BODY, indent=2), content_type=content_type)

    assert await ask(script, stream=stream) == [
        TextDelta("Let me see."),
        CallReady(call("a", "grep", "{}")),
        CallReady(call("a", "grep", '{"x":1}')),
        ModelEnd(
            parts=(Text("Let me see."), call("a", "grep", "{}"), call("a", "grep", '{"x":1}')),
            finish=Finish.CALLS,
            finish_reason="tool_calls",
            usage=Usage(input_tokens=3, output_tokens=4),
        ),
    ]


async def test_a_stream_that_nobody_asked_for_is_read_all_the_same():
    assert (await end_of(answer(HELLO, content_type="application/json"), stream=False)).parts == (Text("Hello"),)


@pytest.mark.row("W02", "F02")
def test_interleaved_fragments_are_joined_by_their_index():
    stream = (
        chunk(tool_calls=[fragment(1, '{"b"', call_id="b", name="two"), fragment(0, '{"a"', call_id="a", name="one")])
        + chunk(tool_calls=[fragment(0, ":", call_id="a", name="one")])
        + chunk(tool_calls=[fragment(1, ":2}")])
        + chunk(tool_calls=[fragment(0, "1}", call_id="", name="")])
        + DONE
    )

    assert calls(stream) == [call("a", "one", '{"a":1}'), call("b", "two", '{"b":2}')]
    assert ready(stream) == calls(stream)


@pytest.mark.parametrize("index", [0, None, "x"])
@pytest.mark.parametrize("ids", [("a", "b"), ("", ""), (None, None), (7, 8)])
def test_whole_calls_without_a_useful_index_stay_apart(index, ids):
    stream = "".join(
        chunk(tool_calls=[fragment(index, arguments, call_id=call_id, name="grep")])
        for call_id, arguments in zip(ids, ('{"n":1}', '{"n":2}'), strict=True)
    )

    assert [(one.name, one.arguments) for one in calls(stream + DONE)] == [("grep", '{"n":1}'), ("grep", '{"n":2}')]
    assert len({one.id for one in calls(stream + DONE)}) == 2
    assert ready(stream) == calls(stream)


@pytest.mark.row("W05")
@pytest.mark.parametrize("names", [("lo", "ok"), ("look", "look"), ("lo", "look"), ("look", ""), ("", "look")])
def test_a_name_may_come_in_pieces_or_again(names):
    stream = "".join(
        chunk(tool_calls=[fragment(0, text, call_id="a", name=name)])
        for name, text in zip(names, ('{"n":', "1}"), strict=True)
    )

    assert calls(stream + DONE) == [call("a", "look", '{"n":1}')]


@pytest.mark.row("W05")
def test_a_call_in_the_form_of_before_there_were_several_is_understood():
    stream = chunk(function_call={"name": "look", "arguments": '{"n":'}) + chunk(function_call={"arguments": "1}"})

    assert [(one.name, one.arguments) for one in calls(stream + chunk("function_call") + DONE)] == [("look", '{"n":1}')]


def test_fragments_without_an_index_continue_the_last_call():
    stream = (
        chunk(tool_calls=[fragment(None, '{"a":', call_id="1", name="x")])
        + chunk(tool_calls=[fragment(None, "1}")])
        + chunk(
            tool_calls=[fragment(None, '{"b":', call_id="2", name="y"), fragment(None, "2}", call_id="2", name="y")]
        )
    )

    assert calls(stream) == [call("1", "x", '{"a":1}'), call("2", "y", '{"b":2}')]


@pytest.mark.row("MF4")
def test_duplicate_ids_at_different_places_are_different_calls():
    stream = chunk(
        tool_calls=[fragment(0, "{}", call_id="same", name="a"), fragment(1, "{}", call_id="same", name="b")]
    )

    assert calls(stream) == [call("same", "a", "{}"), call("same", "b", "{}")]


@pytest.mark.row("MF4")
def test_a_missing_id_is_the_calls_place_in_ready_and_end_alike():
    stream = chunk(tool_calls=[fragment(0, "{}", name="a"), fragment(1, "{}", call_id="", name="b")])

    assert [one.id for one in calls(stream)] == ["call_0", "call_1"]
    assert ready(stream) == calls(stream)


def test_arguments_sent_as_an_object_keep_their_own_text():
    raw = '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"1","function":{"name":"a","arguments":{"x": 1e400, "x":2}}}]}}]}'

    assert calls(f"data: {raw}\n\n") == [call("1", "a", '{"x": 1e400, "x":2}')]


def test_nulls_and_strangers_everywhere_are_passed_over():
    stream = (
        event({"choices": None, "usage": None})
        + event({"choices": [None, {"index": 0, "delta": None, "finish_reason": None}], "x": [1]})
        + chunk(content=None, tool_calls=None, refusal=None, reasoning={"odd": 1})
        + chunk(tool_calls=[None, {"index": 0, "id": "1", "function": None}])
        + chunk(tool_calls=[{"index": 0, "function": {"name": "a", "arguments": None}}])
        + chunk(tool_calls=[fragment(0, "{}")])
        + event({"choices": [{"index": 1, "delta": {"content": "another choice"}}]})
        + event({"choices": [], "usage": {"prompt_tokens": "many", "completion_tokens": -1}})
    )

    assert parse(stream)[1] == ModelEnd(parts=(call("1", "a", "{}"),))


def test_content_in_typed_pieces_is_text_and_thinking():
    pieces = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "yes"},
        "odd",
        {"type": "image"},
    ]

    assert parse(chunk(content=pieces))[0] == [ThinkingDelta("hm"), TextDelta("yes")]


def test_reasoning_in_both_fields_counts_once():
    assert parse(chunk(reasoning="hm", reasoning_content="hm"))[0] == [ThinkingDelta("hm")]


@pytest.mark.row("L03", "PF19")
@pytest.mark.parametrize("finish", ["stop", "tool_calls", "", "weird", None])
def test_the_finish_reason_never_hides_a_call(finish):
    assert calls(chunk(finish, tool_calls=[fragment(0, "{}", call_id="1", name="a")]) + DONE) == [call("1", "a", "{}")]


@pytest.mark.parametrize(
    ("finish", "ours"),
    [
        ("stop", Finish.STOP),
        ("tool_calls", Finish.CALLS),
        ("length", Finish.LENGTH),
        ("content_filter", Finish.REFUSED),
        ("eos", Finish.STOP),
        ("abort", Finish.UNKNOWN),
    ],
)
async def test_finish_reasons_have_neutral_words(finish, ours):
    assert (await end_of(answer(chunk(finish) + DONE))).finish is ours


async def test_a_refusal_is_text_and_a_finish():
    end = await end_of(answer(chunk(refusal="I can") + chunk(refusal="not.") + chunk("stop") + DONE))

    assert (end.parts, end.finish) == ((Text("I cannot."),), Finish.REFUSED)


@pytest.mark.row("PF14")
def test_a_length_finish_names_the_calls_that_it_cut():
    stream = chunk(
        "length",
        tool_calls=[
            fragment(0, "{}", call_id="a", name="x"),
            fragment(1, '{"b": "}', name="y"),
            fragment(2, "", call_id="c", name="z"),
        ],
    )

    parts, end = parse(stream)

    assert end.cut_calls == {"call_1", "c"}
    assert [part.call.id for part in parts if isinstance(part, CallReady)] == ["a"]


@pytest.mark.row("PF13")
@pytest.mark.parametrize("choice", [{}, {"index": 0}, {"message": {"content": None}}])
async def test_an_answer_of_nothing_is_an_empty_message(choice):
    assert (await end_of(json_answer({"choices": [{**choice, "finish_reason": "stop"}]}))).parts == ()


@pytest.mark.row("PF20", "W09")
@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}, "odd"])
def test_missing_usage_is_none(usage):
    assert parse(event({"choices": [], "usage": usage}))[1].usage is None


@pytest.mark.row("W09")
def test_reasoning_that_only_the_total_tells_is_counted():
    usage = {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}

    assert parse(event({"choices": [], "usage": usage}))[1].usage == Usage(input_tokens=35, output_tokens=74)


# --- early calls -----------------------------------------------------------------------------------------------------


def test_a_call_is_ready_as_soon_as_its_object_closes():
    response = ChatResponse({})

    def take(text: str) -> list[ModelPart]:
        return response.add(text.removeprefix("data: ").strip().encode())

    assert take(chunk(tool_calls=[fragment(0, '{"a": "}', call_id="1", name="x")])) == []
    assert take(chunk(tool_calls=[fragment(0, '\\"}"')])) == []
    assert take(chunk(tool_calls=[fragment(0, "} ")])) == [CallReady(call("1", "x", '{"a": "}\\"}"} '))]
    assert take(chunk(tool_calls=[fragment(1, "{}", call_id="2", name="y")])) == [CallReady(call("2", "y", "{}"))]


def test_a_call_waits_for_the_earlier_ones():
    first = chunk(tool_calls=[fragment(0, "{", call_id="a", name="x")])
    second = chunk(tool_calls=[fragment(1, "{}", call_id="b", name="y")])

    assert ready(first + second) == []
    assert [one.id for one in ready(first + second + chunk(tool_calls=[fragment(0, "}")]))] == ["a", "b"]


def test_what_comes_after_the_object_stays_in_the_final_call():
    stream = chunk(tool_calls=[fragment(0, "{}", call_id="a", name="x")]) + chunk(tool_calls=[fragment(0, " oops")])

    assert ready(stream) == [call("a", "x", "{}")]
    assert calls(stream) == [call("a", "x", "{} oops")]


def test_a_call_that_was_handed_out_keeps_its_id():
    stream = chunk(tool_calls=[fragment(0, "{}", name="x")]) + chunk(tool_calls=[fragment(0, "", call_id="late")])

    assert ready(stream) == calls(stream) == [call("call_0", "x", "{}")]


def test_what_is_no_object_is_never_ready():
    assert (
        ready(chunk(tool_calls=[fragment(i, text, call_id=str(i), name="x") for i, text in enumerate(["[1]"])])) == []
    )
    assert ready(chunk(tool_calls=[fragment(0, "{} x", call_id="1", name="x")])) == []


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.text(),
        st.recursive(st.text() | st.none() | st.integers(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)),
    ),
    st.data(),
)
def test_an_object_closes_at_its_last_brace_and_nowhere_before(value, data):
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text) - 1), max_size=5)))
    end = ObjectEnd()
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text) - 1], strict=True)]

    assert not any(end.feed(piece) for piece in pieces)
    assert end.feed(text[-1])


# --- whole or not ----------------------------------------------------------------------------------------------------


@pytest.mark.row("PF9")
@pytest.mark.parametrize(
    "last", [chunk("stop"), DONE, chunk("stop").rstrip(), "data: [DONE]", "data:[DONE]\n", "data: [DONE] \r\n\r\n"]
)
async def test_either_terminal_makes_a_response_whole(last):
    assert (await end_of(until_closed(chunk(content="Hello") + last))).parts == (Text("Hello"),)


@pytest.mark.row("PF9", "PF8", "F02")
@pytest.mark.parametrize(
    "body",
    [
        "",
        chunk(content="Hel"),
        chunk(tool_calls=[fragment(0, '{"a', call_id="1", name="x")]),
        chunk(tool_calls=[fragment(0, "{}", call_id="1", name="x")]),
        chunk(content="x") + chunk("stop")[:-10],
        chunk(content="x") + "data: [DON",
        ": comment\n\n",
    ],
)
async def test_a_stream_that_ends_without_its_terminal_is_incomplete(body):
    with pytest.raises(IncompleteStream, match="without a finish reason"):
        await ask(until_closed(body))


@pytest.mark.row("PF8")
@pytest.mark.parametrize(
    "start", ["", chunk(content="Hel"), chunk(tool_calls=[fragment(0, '{"a', call_id="1", name="x")])]
)
async def test_a_connection_cut_in_the_middle_is_incomplete(start):
    script = then_reset(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99999\r\n\r\n" + start.encode()
    )

    with pytest.raises(ModelError) as caught:
        await ask(script)

    assert caught.value.may_retry


async def test_a_cut_after_the_terminal_cuts_nothing():
    body = (chunk(content="Hello") + chunk("stop")).encode()

    end = await end_of(
        then_reset(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n" + body)
    )

    assert end.parts == (Text("Hello"),)


async def test_a_server_that_holds_the_line_after_the_terminal_is_not_waited_for():
    end = await end_of(then_silence(STREAM_HEAD + HELLO.encode()), timeouts=Timeouts(idle_seconds=600))

    assert end.parts == (Text("Hello"),)


async def test_the_connection_is_used_again():
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"".join(f"{len(part):x}\r\n{part}\r\n".encode() for part in (HELLO, ""))
    async with serving(chunked, answer(HELLO), json_answer(BODY), chunked) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=None)
        for _ in range(4):
            assert [part async for part in model.stream(ASK)]

    assert server.connections == 1


async def test_an_abandoned_stream_closes_its_connection():
    async with serving(then_silence(STREAM_HEAD + chunk(content="x").encode()), answer(HELLO)) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=None)
        stream = model.stream(ASK)
        assert await anext(stream) == TextDelta("x")
        await stream.aclose()
        assert [part async for part in model.stream(ASK)]

    assert server.connections == 2


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.row("PF12")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<html><body>Welcome</body></html>", "text/html"),
        ("", "text/html"),
        ("", "application/json"),
        ("   \n", "application/json"),
        ("upstream is down", "text/plain"),
        ('{"detail": "x"}', "application/json"),
        ('{"choices": ', "application/json"),
        ('{"choices": 5}', "application/json"),
        ("[]", "application/json"),
        ("[" * 100_000, "application/json"),
    ],
)
async def test_a_success_that_is_no_response_is_told_with_an_excerpt(body, content_type, stream):
    with pytest.raises(ModelResponseInvalid, match="Check base_url") as caught:
        await ask(answer(body, content_type=content_type), stream=stream)

    assert body.strip()[:10] in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.row("PF10")
@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        ({"error": {"message": "overloaded", "code": 503}}, ModelUnavailable),
        ({"error": "boom"}, ModelUnavailable),
        ({"object": "error", "message": "bad", "code": 400}, ModelRejected),
        ({"error": {"message": "long", "code": "context_length_exceeded"}}, ContextOverflow),
        ({"choices": [{"error": {"message": "x", "code": 502}}]}, ModelUnavailable),
        ({"choices": [{"delta": {}, "finish_reason": "error"}]}, ModelUnavailable),
    ],
)
async def test_an_error_inside_the_answer_ends_it(wire, kind):
    with pytest.raises(kind) as in_stream:
        await ask(answer(chunk(content="x") + event(wire)))
    with pytest.raises(kind):
        await ask(json_answer(wire))

    assert type(in_stream.value) is kind


@pytest.mark.row("PF10")
async def test_an_error_in_a_field_of_its_own_is_told_in_its_words():
    told = 'error: {"code":500,"message":"the slot has no room","type":"server_error"}\n\n'

    with pytest.raises(ModelUnavailable, match="the slot has no room"):
        await ask(answer(chunk(content="x") + told))


@pytest.mark.row("PF17")
async def test_a_refused_key_is_not_printed_and_what_to_check_is():
    key = "sk-live-0123456789"
    refused = json_answer({"error": {"message": f"Incorrect API key provided: {key}"}}, status=401)

    with pytest.raises(ModelRejected, match="OPENAI_API_KEY") as caught:
        await ask(refused, api_key=key)
    assert key not in str(caught.value)

    with pytest.raises(ModelRejected, match="No API key was sent"):
        await ask(refused)


async def test_a_short_key_is_hidden_where_it_stands_alone():
    with pytest.raises(ModelRejected) as caught:
        await ask(json_answer({"error": "bad key 'abc' for abcd"}, status=401), api_key="abc")

    assert "bad key '[redacted]' for abcd" in str(caught.value)


@pytest.mark.row("R01", "R06")
async def test_a_rate_limit_carries_its_wait():
    with pytest.raises(ModelUnavailable) as caught:
        await ask(json_answer({"error": {"message": "slow down"}}, status=429, headers={"retry-after-ms": "250"}))

    assert (caught.value.status, caught.value.retry_after_seconds, caught.value.may_retry) == (429, 0.25, True)


@pytest.mark.row("PF18")
async def test_a_request_beyond_the_context_is_told_apart():
    with pytest.raises(ContextOverflow):
        await ask(json_answer({"error": {"message": "x", "code": "context_length_exceeded"}}, status=400))


@pytest.mark.row("PF11")
async def test_what_is_no_text_is_replaced_and_never_fatal():
    raw = b'data: {"choices":[{"delta":{"content":"a\xff\x00 \\ud83d \\ud83d\\ude00 \\\\ud83d"},"finish_reason":"stop"}]}\r\n\r\n'

    end = await end_of(answer(b"\xef\xbb\xbf" + raw))

    assert end.parts == (Text("a\ufffd \ufffd \U0001f600 \\ud83d"),)


@pytest.mark.parametrize(
    "data", ["nonsense", "5", "null", '{"choices": {}}', '{"choices": [{"delta": 5}]}', "[" * 100_000]
)
async def test_an_event_of_another_shape_is_an_error_of_the_protocol(data):
    with pytest.raises(ModelResponseInvalid):
        await ask(answer(f"data: {data}\n\n"))


# --- fuzz and recordings ---------------------------------------------------------------------------------------------

TRICKY = (
    "\ufeff: hi\r\n\r\n"
    + chunk(content="å🙂").replace("\n", "\r\n")
    + chunk(tool_calls=[fragment(1, '{"b": "\\"}', call_id="b", name="two"), fragment(0, "{", call_id="a", name="one")])
    + chunk(tool_calls=[fragment(1, '{🙂"}'), fragment(0, "}")])
    + chunk("tool_calls")
    + event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    + "data: [DONE]"
).encode()


def read(*chunks: bytes) -> tuple[list[ModelPart], ModelEnd]:
    response, reader = ChatResponse({}), SseReader()
    events = [event for piece in chunks for event in reader.feed(piece)]
    last = reader.finish()
    parts = [part for event in [*events, *([last] if last else [])] for part in response.add(event)]
    return parts, response.end()


@pytest.mark.row("W02", "PF11")
def test_a_stream_cut_at_every_byte_gives_the_same_parts():
    whole = read(TRICKY)
    assert [part.call.id for part in whole[0] if isinstance(part, CallReady)] == ["a", "b"]
    for cut in range(len(TRICKY)):
        assert read(TRICKY[:cut], TRICKY[cut:]) == whole
    assert read(*(TRICKY[at : at + 1] for at in range(len(TRICKY)))) == whole


@settings(max_examples=300)
@given(
    st.lists(
        st.binary(max_size=20)
        | st.sampled_from(
            [b"data: ", b"\n\n", b'{"choices":[', b'{"delta":{', b"]}", b"}", b"[DONE]", b'"tool_calls":[']
        ),
        max_size=30,
    )
)
def test_random_bytes_raise_model_errors_only(pieces):
    response, reader = ChatResponse({}), SseReader()
    try:
        for piece in pieces:
            for found in reader.feed(piece):
                response.add(found)
        response.end()
    except (ModelError, AnswerError):
        pass


def oracle(body: str) -> tuple[str, str, list[tuple[str, str, str]]]:
    """Read a recorded answer in the simplest way: text, reasoning, and calls in the order of their index."""
    if body.lstrip().startswith("{"):
        message = json.loads(body)["choices"][0].get("message", {})
        deltas = [
            message | {"tool_calls": [{**one, "index": i} for i, one in enumerate(message.get("tool_calls") or [])]}
        ]
    else:
        lines = [line[6:] for line in body.splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for line in lines for choice in json.loads(line)["choices"]]
    text = "".join(delta.get("content") or delta.get("refusal") or "" for delta in deltas)
    thought = "".join(delta.get("reasoning_content") or delta.get("reasoning") or "" for delta in deltas)
    found: dict[int, list[str]] = {}
    for delta in deltas:
        for one in delta.get("tool_calls") or []:
            parts = found.setdefault(one["index"], ["", "", ""])
            parts[0] = parts[0] or one.get("id") or ""
            parts[1] = parts[1] or one["function"].get("name") or ""
            parts[2] += one["function"].get("arguments") or ""
    return text, thought, [(i or f"call_{at}", n, a) for at, (i, n, a) in sorted(found.items())]


def recorded(recordings: Path) -> list[tuple[str, str, str]]:
    return [
        (path.name, interaction["body"], interaction["headers"]["content-type"])
        for path in sorted(recordings.glob("*/openai-chat/*.json"))
        for interaction in json.loads(path.read_text())["interactions"]
        if interaction["status"] == 200
    ]


@pytest.mark.row("W01", "W02")
async def test_recorded_answers_are_read_as_a_simple_reader_reads_them(recordings: Path):
    bodies = recorded(recordings)
    assert len(bodies) > 40
    async with serving(*(answer(body, content_type=kind) for _, body, kind in bodies)) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=None)
        for name, body, _ in bodies:
            *parts, end = [part async for part in model.stream(ASK)]
            text = "".join(part.text for part in end.parts if isinstance(part, Text))
            thought = "".join(part.text for part in end.parts if isinstance(part, Thinking))
            made = [(part.id, part.name, part.arguments) for part in end.parts if isinstance(part, ToolCall)]
            assert (text, thought, made) == oracle(body), name
            assert text == "".join(part.text for part in parts if isinstance(part, TextDelta)), name
            assert [part.call.id for part in parts if isinstance(part, CallReady)] == [one[0] for one in made], name
            assert (end.usage is None) == ('"completion_tokens"' not in body), name


@pytest.mark.row("PF11")
@pytest.mark.parametrize(
    "script",
    [
        answer("xx", headers={"Content-Encoding": "br"}),
        answer("xx", headers={"Content-Encoding": "gzip"}),
        answer("x", status=999),
        answer("", status=204),
        answer("", status=301, headers={"Location": "http://[::1"}),
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\nConnection: close\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\nConnection: close\r\n\r\n",
        b"\0\1\2\r\n\r\nConnection: close",
    ],
)
async def test_http_at_its_oddest_is_a_model_error(script):
    with pytest.raises(ModelError):
        await ask(script)


@pytest.mark.row("PF24")
async def test_a_stream_that_ends_with_done_and_no_finish_reason_is_complete_and_one_that_breaks_off_is_not():
    half = chunk(content="Half")

    assert (await end_of(answer(half + DONE))).parts == (Text(text="Half"),)
    with pytest.raises(IncompleteStream):
        await end_of(answer(half))
