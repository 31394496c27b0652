"""Anthropic Messages: the requests that go out, and the responses that come back, from honest servers and from others."""

import json
import logging
from functools import partial
from typing import Any

import msgspec
import pytest
import wire
from chat_server import answer, event, json_answer, serving
from wire import parts_from, read, tool

from treadle import Agent, Price, Tool, resolve_model
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
from treadle.mock.dialects.anthropic import anthropic_events
from treadle.ports import CallReady, ModelEnd, ModelRequest, TextDelta, ThinkingDelta, ToolSpec
from treadle.providers.anthropic import Anthropic
from treadle.providers.anthropic.request import strict_schema
from treadle.providers.anthropic.response import AnthropicResponse
from treadle.providers.http.reading import SseReader
from treadle.testing import MockProvider, Turn, call, text
from treadle.tools import JsonObject

MODEL = "claude-sonnet-4-5"
ORIGIN = f"anthropic:{MODEL}"
ASK = ModelRequest(messages=(user_message("hi"),))
GREP = ToolSpec(
    name="grep", description="Search.", parameters={"type": "object", "properties": {"path": {"type": "string"}}}
)
BY_HAND = {"thinking": {"type": "enabled", "budget_tokens": 2048}}
MARKER = {"type": "ephemeral"}
HELLO = json_answer(
    {
        "type": "message",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
)


ask = partial(parts_from, "anthropic", model=MODEL)
parse = partial(read, "anthropic")
assistant = partial(wire.assistant, origin=ORIGIN)


async def sent(request: ModelRequest, *, options: dict[str, Any] | None = None, **words: Any) -> Any:
    """Return the body of a request, without cache markers unless they are asked for."""
    return await wire.written(
        "anthropic", request, model=MODEL, options={"cache_control": None, **(options or {})}, **words
    )


async def said(*messages: Message, **words: Any) -> Any:
    return (await sent(ModelRequest(messages=messages), **words))["messages"]


async def accepted(request: ModelRequest, *, options: dict[str, Any] | None = None) -> Any:
    """Return the body, with its cache markers, as the strict mock took it."""
    return await wire.sent("anthropic", request, model=MODEL, options={"cache_control": MARKER, **(options or {})})


def call_of(call_id: str, name: str = "grep", arguments: str = "{}", signature: str | None = None) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments, signature=signature)


def result(call_id: str, content: str = "ok", **words: Any) -> Result:
    return Result(call_id=call_id, name="grep", content=content, **words)


# --- the request -------------------------------------------------------------------------------------------------------


@pytest.mark.row("T12")
async def test_media_of_a_result_are_blocks_of_the_result() -> None:
    image = Media(media_type="image/png", base64="aWc=")
    pdf = Media(media_type="application/pdf", url="https://h/a.pdf", name="a.pdf")
    note = Media(media_type="text/plain", base64="aGk=")
    sound = Media(media_type="audio/mpeg", base64="YQ==", name="a.mp3")
    broken = Media(media_type="text/plain", base64="!")

    body = await accepted(
        ModelRequest(
            messages=(
                user_message("x"),
                assistant(call_of("a"), call_of("b"), call_of("c")),
                tool(
                    result("a", "one", media=(image, pdf)),
                    result("b", "", media=(note, sound, broken)),
                    result("c", "no", media=(image,), is_error=True),
                ),
            )
        )
    )

    assert [block["content"] for block in body["messages"][2]["content"]] == [
        [
            {"type": "text", "text": "one"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWc="}},
            {"type": "document", "source": {"type": "url", "url": "https://h/a.pdf"}, "title": "a.pdf"},
        ],
        [
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
            {"type": "text", "text": "[audio/mpeg: a.mp3]"},
            {"type": "text", "text": "[text/plain: not shown]"},
        ],
        [{"type": "text", "text": "no"}, {"type": "text", "text": "[image/png: not shown]"}],
    ]


# --- thinking and the vendor's own items -------------------------------------------------------------------------------


THOUGHT = Thinking(text="hm", signature="c2ln")
REDACTED = Thinking(payload={"type": "redacted_thinking", "data": "x"})
SEARCH = Opaque(
    provider="anthropic", payload={"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
)


@pytest.mark.row("W06", "M15")
async def test_a_thought_that_nobody_signed_is_not_sent() -> None:
    thought = Thinking(text="because")  # as a driver stores it that asks for steps in words
    begun = (user_message("x"), assistant(thought, call_of("a")), tool(result("a")))

    ended = await accepted(
        ModelRequest(messages=(user_message("x"), assistant(thought, Text("two")), user_message("y")))
    )
    going_on = await accepted(ModelRequest(messages=begun, tools=(GREP,)), options=BY_HAND)

    assert [block["type"] for block in ended["messages"][1]["content"]] == ["text"]
    assert [block["type"] for block in going_on["messages"][1]["content"]] == ["tool_use"]
    assert "thinking" not in going_on


@pytest.mark.row("W06")
@pytest.mark.parametrize("stream", [True, False])
async def test_thinking_of_a_server_that_signs_nothing_goes_back_as_it_came(stream: bool) -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": ""}
    called = {"type": "tool_use", "id": "t1", "name": "grep", "input": {}}
    script = (
        answer(BEGIN + start(0, **block) + stop(0) + use(1, "{}") + finish("tool_use"))
        if stream
        else whole(block, called)
    )
    (end,) = (await ask(script))[-1:]

    own, other = [await said(user_message("x"), assistant(*end.parts, origin=o)) for o in (ORIGIN, "anthropic:other")]

    assert [one["type"] for one in other[1]["content"]] == ["tool_use"]
    assert own[1]["content"] == [block, called]


@pytest.mark.row("W06")
async def test_a_thought_that_a_limit_cut_before_its_signature_is_not_sent() -> None:
    (end,) = (await ask(whole({"type": "thinking", "thinking": "hm", "signature": ""}, stop="max_tokens")))[-1:]

    assert end.parts == (Thinking(text="hm"),)
    assert await said(user_message("x"), assistant(*end.parts), user_message("y")) == [
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}
    ]


async def test_a_call_by_the_models_own_code_keeps_its_caller() -> None:
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    block = {"type": "tool_use", "id": "a", "name": "grep", "input": {}, "caller": caller}
    (end,) = (await ask(whole(block)))[-1:]

    own, other = [await said(user_message("x"), assistant(*end.parts, origin=o)) for o in (ORIGIN, "anthropic:other")]

    assert own[1]["content"][0]["caller"] == caller
    assert "caller" not in other[1]["content"][0]


CONTAINER = {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}
BY_CODE = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "await grep()"}},
    {"type": "tool_use", "id": "a", "name": "grep", "input": {}, "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}},
]  # fmt: skip


def told_at(place: str) -> bytes:
    """Return a call by the vendor's code whose container is told at a place of the answer."""
    message = {"type": "message", "content": BY_CODE, "stop_reason": "tool_use", "usage": {"input_tokens": 1}}
    if place == "whole":
        return json.dumps({**message, "container": CONTAINER}).encode()
    if place == "start":
        return anthropic_events({**message, "container": CONTAINER})
    words = b'"stop_reason":"tool_use"'
    return anthropic_events(message).replace(words, words + b',"container":' + json.dumps(CONTAINER).encode())


@pytest.mark.row("W10")
@pytest.mark.parametrize("place", ["whole", "start", "end"])
async def test_the_container_in_which_a_call_waits_is_named_with_its_result_and_not_later(place: str) -> None:
    async with MockProvider([Turn(body=told_at(place)), "done", "again"]) as provider:
        model = resolve_model(f"anthropic:{MODEL}", base_url=provider.base_url)
        agent = Agent(model, tools=[read_tool("grep")])
        first = await agent.run("go")
        await agent.run("more", session=first.session)

    assert [request.status for request in provider.requests] == [200] * 3
    assert [request.body.get("container") for request in provider.requests] == [None, "container_1", None]
    assert [block["type"] for block in provider.requests[1].body["messages"][1]["content"]] == [
        "server_tool_use",
        "tool_use",
    ]


@pytest.mark.row("W10")
@pytest.mark.parametrize(
    ("option", "sent_as"),
    [
        (None, "container_1"),
        ("container_2", "container_2"),
        ({"skills": [{"skill_id": "x"}]}, {"id": "container_1", "skills": [{"skill_id": "x"}]}),
    ],
)
async def test_a_turn_that_the_vendor_paused_goes_on_in_its_container(option: Any, sent_as: Any) -> None:
    paused = {"type": "message", "content": BY_CODE[:1], "stop_reason": "pause_turn", "container": CONTAINER}
    async with serving(json_answer(paused), HELLO) as server:
        model = Anthropic(MODEL, base_url=server.url, api_key=None, options={"container": option})
        assert [part async for part in model.stream(ASK)]

    assert [request.json.get("container") for request in server.requests] == [option, sent_as]
    assert server.requests[1].json["messages"][1]["content"] == BY_CODE[:1]


@pytest.mark.parametrize("signature", ["sig", "[1]", "5", '{"citations": 5}', '{"citations": [5]}'])
async def test_a_signature_that_is_none_of_ours_is_left_out(signature: str) -> None:
    parts = (Text("a", signature), call_of("b", signature=signature if signature[0] != "{" else "[]"))

    assert (await said(user_message("x"), assistant(*parts)))[1]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "b", "name": "grep", "input": {}},
    ]


@pytest.mark.parametrize("citations", [None, [], "none", [5]])
async def test_a_text_that_cites_nothing_has_no_signature(citations: Any) -> None:
    (end,) = (await ask(whole({"type": "text", "text": "found", "citations": citations})))[-1:]

    assert end.parts == (Text("found"),)


@pytest.mark.row("D04")
@pytest.mark.parametrize("choice", ["required", "grep"])
async def test_a_forced_choice_falls_back_to_auto_while_thinking_by_hand_and_says_so(
    choice: str, caplog: pytest.LogCaptureFixture
) -> None:
    request = ModelRequest(messages=ASK.messages, tools=(GREP,), tool_choice=choice)

    with caplog.at_level(logging.WARNING):
        body = await accepted(request, options=BY_HAND)

    assert body["tool_choice"] == {"type": "auto"}
    assert body["max_tokens"] == 16384 + 2048
    assert f"tool_choice '{choice}' is sent as auto" in caplog.text


async def test_a_turn_that_another_model_began_goes_on_without_thinking() -> None:
    begun = (user_message("x"), assistant(call_of("a"), origin="gemini:x"), tool(result("a")))

    body = await accepted(ModelRequest(messages=begun, tools=(GREP,), tool_choice="required"), options=BY_HAND)
    later = await accepted(ModelRequest(messages=(*begun, assistant(Text("ok")), user_message("y"))), options=BY_HAND)

    assert "thinking" not in body
    assert body["tool_choice"] == {"type": "any"}
    assert later["thinking"] == BY_HAND["thinking"]


@pytest.mark.row("W10")
async def test_the_vendors_own_tools_never_run_here() -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 1}
    content = [
        SEARCH.payload,
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "Found."},
    ]
    body = json.dumps({"type": "message", "content": content, "stop_reason": "end_turn"}).encode()
    async with MockProvider([Turn(body=body), text("again")]) as provider:
        model = resolve_model(f"anthropic:{MODEL}", base_url=provider.base_url, options={"server_tools": [search]})
        agent = Agent(model, tools=[read_tool("grep")])
        outcome = await agent.run("go")
        await agent.run("more", session=outcome.session)

    assert (outcome.text, outcome.tool_calls) == ("Found.", ())
    assert provider.requests[1].body["messages"][1]["content"] == content
    assert [type(part) for part in outcome.messages[1].parts] == [Opaque, Opaque, Text]


@pytest.mark.row("W10")
async def test_a_turn_that_the_vendor_paused_goes_on_as_one_response() -> None:
    paused = {"type": "message", "content": [SEARCH.payload], "stop_reason": "pause_turn"}
    paused |= {"usage": {"input_tokens": 5, "output_tokens": 2}}
    async with serving(json_answer(paused), HELLO) as server:
        parts = [part async for part in Anthropic(MODEL, base_url=server.url, api_key=None).stream(ASK)]

    assert parts[1:] == [
        ModelEnd(
            parts=(SEARCH, Text("Hello")),
            finish=Finish.STOP,
            finish_reason="end_turn",
            usage=Usage(input_tokens=8, output_tokens=3),
        )
    ]
    assert server.requests[1].json["messages"][1] == {"role": "assistant", "content": [SEARCH.payload]}


async def test_a_turn_that_is_paused_for_ever_ends_as_cut_off() -> None:
    paused = {"type": "message", "content": [SEARCH.payload], "stop_reason": "pause_turn"}
    async with serving(json_answer(paused)) as server:
        parts = [part async for part in Anthropic("m", base_url=server.url, api_key=None).stream(ASK)]

    assert len(server.requests) == 9
    assert [part.finish for part in parts if isinstance(part, ModelEnd)] == [Finish.LENGTH]


# --- the cache ---------------------------------------------------------------------------------------------------------


def markers(value: Any, path: str = "") -> list[str]:
    """Return where markers stand."""
    if isinstance(value, list):
        return [found for index, one in enumerate(value) for found in markers(one, f"{path}/{index}")]
    if not isinstance(value, dict):
        return []
    own = [path] if value.get("cache_control") == MARKER else []
    return own + [
        found for key, one in value.items() if key != "cache_control" for found in markers(one, f"{path}/{key}")
    ]


def step(number: int) -> tuple[Message, ...]:
    return assistant(THOUGHT, call_of(f"c{number}"), call_of(f"d{number}")), tool(
        result(f"c{number}"), result(f"d{number}")
    )


@pytest.mark.row("M13")
async def test_markers_stand_after_the_last_stable_blocks_and_are_at_most_four() -> None:
    messages = (user_message("go"), *step(1), *step(2))
    request = ModelRequest(messages=messages, instructions="Be brief.", tools=(GREP,))

    with_both = await accepted(request)
    without_instructions = await accepted(msgspec.structs.replace(request, instructions=None))

    ends = ["/messages/2/content/1", "/messages/4/content/1"]
    assert markers(with_both) == ["/system/0", *ends]
    assert markers(without_instructions) == ["/tools/0", *ends]


@pytest.mark.row("M13")
async def test_markers_can_be_chosen_and_switched_off() -> None:
    request = ModelRequest(messages=ASK.messages, instructions="Be brief.")

    off = await accepted(request, options={"cache_control": None})
    long = await accepted(request, options={"cache_control": {"type": "ephemeral", "ttl": "1h"}})

    assert "cache_control" not in json.dumps(off)
    assert long["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


# --- options and schemas -----------------------------------------------------------------------------------------------


STRICT = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many.", "default": 3},
        "when": {"type": ["string", "null"], "format": "date"},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}, "minItems": 1, "maxItems": 3},
        "one": {"oneOf": [{"type": "string", "pattern": "^a"}, {"const": 1}]},
    },
    "required": ["n"],
    "$defs": {"Tag": {"enum": ["a", "b"]}},
}


@pytest.mark.row("V15")
async def test_a_strict_tool_is_closed_and_tells_its_limits_in_words() -> None:
    spec = ToolSpec(name="a", description="", parameters=STRICT)

    (tool,) = (
        await accepted(
            ModelRequest(messages=ASK.messages, tools=(spec,)), options={"strict_tools": True, "cache_control": None}
        )
    )["tools"]

    assert tool == {
        "name": "a",
        "description": "",
        "strict": True,
        "input_schema": {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "description": "How many. (maximum: 9, minimum: 1)"},
                "when": {"type": ["string", "null"], "format": "date"},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}, "minItems": 1, "description": "(maxItems: 3)"},
                "one": {"anyOf": [{"type": "string", "description": '(pattern: "^a")'}, {"const": 1}]},
            },
            "required": ["n"],
            "additionalProperties": False,
            "$defs": {"Tag": {"enum": ["a", "b"]}},
        },
    }  # fmt: skip


@pytest.mark.row("V15")
@pytest.mark.parametrize(
    "inner",
    [
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object"},
        {"not": {"type": "string"}},
        {"enum": [{"a": 1}]},
        {"$ref": "#/$defs/Node"},
        {"$ref": "#/$defs/Missing"},
        {"$ref": "https://h/x"},
        {"enum": 1},
        True,
    ],
)
async def test_a_tool_that_cannot_be_strict_is_sent_as_it_is(inner: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": inner},
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    }

    body = await accepted(
        ModelRequest(messages=ASK.messages, tools=(ToolSpec(name="a", description="", parameters=schema),)),
        options={"strict_tools": True, "cache_control": None},
    )

    assert body["tools"] == [{"name": "a", "description": "", "input_schema": schema}]


def test_a_tool_without_parameters_can_be_strict() -> None:
    assert strict_schema({"type": "object", "properties": {}}) == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


# --- the answer --------------------------------------------------------------------------------------------------------


def whole(*blocks: Any, stop: str | None = "end_turn", **more: Any) -> bytes:
    return json_answer({"type": "message", "content": list(blocks), "stop_reason": stop, **more})


def start(index: int, **block: Any) -> str:
    return event({"type": "content_block_start", "index": index, "content_block": block})


def delta(index: int, kind: str, **words: Any) -> str:
    return event({"type": "content_block_delta", "index": index, "delta": {"type": kind, **words}})


def stop(index: int) -> str:
    return event({"type": "content_block_stop", "index": index})


def use(index: int, *pieces: str, name: str = "grep", is_closed: bool = True) -> str:
    parts = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces]
    head = start(index, type="tool_use", id=f"t{index}", name=name, input={})
    return head + "".join(parts) + (stop(index) if is_closed else "")


BEGIN = event({"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}})


def finish(reason: str | None = "end_turn", **usage: int) -> str:
    return event({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}) + LAST


LAST = event({"type": "message_stop"})


def ready_after(*pieces: str) -> list[int]:
    """Return how many calls were ready after each piece of a stream."""
    response, reader, counts, found = AnthropicResponse({}), SseReader(), [], 0
    for piece in pieces:
        parts = [part for one in reader.feed(piece.encode()) for part in response.add(one)]
        found += sum(isinstance(part, CallReady) for part in parts)
        counts.append(found)
    return counts


async def test_an_answer_of_every_kind_of_block_keeps_their_order() -> None:
    stream = (
        BEGIN
        + event({"type": "ping"})
        + start(0, type="thinking", thinking="", signature="")
        + delta(0, "thinking_delta", thinking="h")
        + delta(0, "thinking_delta", thinking="m")
        + delta(0, "signature_delta", signature="c2ln")
        + stop(0)
        + start(1, type="text", text="")
        + delta(1, "text_delta", text="I ")
        + delta(1, "text_delta", text="look.")
        + stop(1)
        + start(2, type="server_tool_use", id="srvtoolu_1", name="web_search", input={})
        + delta(2, "input_json_delta", partial_json='{"query":')
        + delta(2, "input_json_delta", partial_json=' "x"}')
        + stop(2)
        + start(3, type="new_kind", anything=[1])
        + delta(3, "new_delta", whatever=1)
        + stop(3)
        + use(4, '{"path": ', '"x"}')
        + event({"type": "something_new"})
        + finish("tool_use", output_tokens=7, cache_creation_input_tokens=2, cache_read_input_tokens=4)
    )

    parts = await ask(answer(stream))

    found = call_of("t4", arguments='{"path": "x"}')
    assert parts == [
        ThinkingDelta("h"),
        ThinkingDelta("m"),
        TextDelta("I "),
        TextDelta("look."),
        CallReady(found),
        ModelEnd(
            parts=(
                THOUGHT,
                Text("I look."),
                msgspec.structs.replace(SEARCH, payload={**SEARCH.payload, "input": {"query": "x"}}),
                Opaque(provider="anthropic", payload={"type": "new_kind", "anything": [1]}),
                found,
            ),
            finish=Finish.CALLS,
            finish_reason="tool_use",
            usage=Usage(input_tokens=16, output_tokens=7, cached_input_tokens=4, cache_written_tokens=2),
        ),
    ]


@pytest.mark.row("W03")
def test_a_call_is_ready_at_the_end_of_its_block_and_one_without_arguments_when_something_follows() -> None:
    assert ready_after(BEGIN, use(0, '{"a":1}', is_closed=False), stop(0), LAST) == [0, 0, 1, 1]
    assert ready_after(BEGIN, use(0), use(1, is_closed=False), stop(1), finish("tool_use")) == [0, 0, 1, 1, 2]
    assert ready_after(BEGIN, use(0, '{"a":'), use(1, "{}"), finish("tool_use")) == [0, 0, 0, 0]


@pytest.mark.row("PF14")
def test_a_call_that_the_limit_cut_is_named_and_was_never_ready() -> None:
    for cut in (use(1, '{"path": "x'), use(1), use(1, "", is_closed=False)):
        parts, end = parse(BEGIN + use(0, "{}") + cut + finish("max_tokens"))

        assert end.cut_calls == {"t1"}
        assert [part.call.id for part in parts if isinstance(part, CallReady)] == ["t0"]


@pytest.mark.row("PF14")
async def test_in_a_whole_answer_the_last_call_may_have_been_cut() -> None:
    blocks = [{"type": "tool_use", "id": call_id, "name": "grep", "input": {}} for call_id in "ab"]

    parts = await ask(whole(*blocks, stop="max_tokens"))

    assert parts[-1].cut_calls == {"b"}
    assert [part.call.id for part in parts if isinstance(part, CallReady)] == ["a"]


HONEST = BEGIN + start(0, type="text", text="") + delta(0, "text_delta", text="Hi") + stop(0) + use(1, '{"a":1}')
QUIRKS = {
    "as the vendor says it": HONEST + finish("tool_use", output_tokens=4),
    "DONE after the end": HONEST + finish("tool_use", output_tokens=4) + "data: [DONE]\n\n",
    "comments and pings": ": hello\n\n" + HONEST + event({"type": "ping"}) + finish("tool_use", output_tokens=4),
    "counts of 0 at the end": HONEST + finish("tool_use", output_tokens=4, input_tokens=0, cache_read_input_tokens=0),
    "null in place of nothing": HONEST.replace('"index": 0}', '"index": 0, "delta": null, "usage": null, "error": null}')
    + finish("tool_use", output_tokens=4),
    "a text that begins with its block": BEGIN + start(0, type="text", text="Hi") + stop(0) + use(1, '{"a":1}') + finish("tool_use", output_tokens=4),
    "a text block that is never ended": HONEST.replace(stop(0), "") + finish("tool_use", output_tokens=4),
    "usage only at the end": HONEST.removeprefix(BEGIN) + finish("tool_use", input_tokens=10, output_tokens=4),
    "the reason in an event of its own": HONEST + finish("tool_use").removesuffix(LAST) + finish(None, output_tokens=4),
    "arguments with the start": BEGIN + start(0, type="text", text="Hi") + stop(0)
    + start(1, type="tool_use", id="t1", name="grep", input={"a": 1}).replace('{"a": 1}', '{"a":1}') + stop(1)
    + finish("tool_use", output_tokens=4),
    "a blank event type and no data": HONEST + "event: ping\n\n" + finish("tool_use", output_tokens=4),
}  # fmt: skip


@pytest.mark.row("W03")
@pytest.mark.parametrize("stream", QUIRKS.values(), ids=QUIRKS)
async def test_compatible_servers_are_understood_in_their_own_ways(stream: str) -> None:
    parts = await ask(answer(stream))

    found = call_of("t1", arguments='{"a":1}')
    assert parts == [
        TextDelta("Hi"),
        CallReady(found),
        ModelEnd(
            parts=(Text("Hi"), found),
            finish=Finish.CALLS,
            finish_reason="tool_use",
            usage=Usage(input_tokens=10, output_tokens=4),
        ),
    ]


def test_arguments_that_came_with_the_start_count_where_no_piece_follows() -> None:
    parts, end = parse(BEGIN + start(0, type="tool_use", id="a", name="grep", input={"q": 1}) + stop(0) + finish())

    assert end.parts == (call_of("a", arguments='{"q": 1}'),)
    assert parts == [CallReady(end.parts[0])]


@pytest.mark.row("W09", "B08")
@pytest.mark.parametrize("stream", [True, False])
async def test_what_writing_to_the_cache_costs_is_told(stream: bool) -> None:
    usage = Usage(input_tokens=6_100, cached_input_tokens=5_000, cache_written_tokens=1_000, output_tokens=50)
    async with MockProvider([Turn(text="done", usage=usage)]) as provider:
        price = Price(input=3, output=15, cached_input=0.3, cache_write=3.75)
        model = resolve_model("anthropic:m", base_url=provider.base_url, stream=stream, price=price)
        report = (await Agent(model).run("go")).report()

    assert report["usage"] == msgspec.structs.asdict(usage)
    assert report["cost"] == "0.0063"


# --- the loop over this dialect ------------------------------------------------------------------------------------------


def read_tool(name: str, **words: Any) -> Tool:
    async def run(arguments: Any, ctx: Any) -> Any:
        return arguments

    parameters = {"type": "object", "additionalProperties": True}
    return Tool(name=name, description="Read.", parameters=parameters, run=run, **{"effect": "read", **words})


# --- the vendor's SDK as an oracle ---------------------------------------------------------------------------------------


async def test_what_we_send_fits_the_parameter_types_of_the_vendors_sdk() -> None:
    pydantic = pytest.importorskip("pydantic")
    params = pytest.importorskip("anthropic.types.message_create_params", reason="the SDK `anthropic` is not installed")
    image = Media(media_type="image/png", base64="aWc=")
    request = ModelRequest(
        messages=(
            Message(role="user", parts=(Text("Look:"), image)),
            assistant(THOUGHT, REDACTED, Text("I look."), call_of("a.b", arguments='{"q": 1}'), call_of("b")),
            tool(result("a.b", "one", media=(image,)), result("b", "no", is_error=True)),
            user_message("continue"),
        ),
        instructions="Be brief.",
        tools=(GREP, ToolSpec(name="strict one", description="x", parameters=STRICT)),
        tool_choice="required",
        parallel_tool_calls=False,
        output_schema={"type": "object", "properties": {}},
    )

    for stream in (True, False):
        body = await sent(request, stream=stream, options={"strict_tools": True, "cache_control": MARKER})
        pydantic.TypeAdapter(params.MessageCreateParams, config={"extra": "forbid"}).validate_python(body)


async def test_a_stream_says_the_same_to_the_vendors_sdk() -> None:
    anthropic = pytest.importorskip("anthropic", reason="the SDK `anthropic` is not installed")
    turn = Turn(thinking="hm", text="I look. ö", calls=(call("grep", q="ö"), call("rest")))
    async with MockProvider([turn, turn]) as provider:
        model = Anthropic("m", base_url=provider.base_url, api_key="k")
        end = [part async for part in model.stream(ASK)][-1]
        async with anthropic.AsyncAnthropic(api_key="k", base_url=provider.base_url.removesuffix("/v1")) as client:
            words = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
            async with client.messages.stream(**words) as stream:
                message = await stream.get_final_message()

    thinking, words_said, *uses = message.content
    assert end.parts[0] == Thinking(text=thinking.thinking, signature=thinking.signature)
    assert end.parts[1] == Text(words_said.text)
    assert [(one.name, json.loads(one.arguments)) for one in end.parts[2:]] == [(one.name, one.input) for one in uses]
    assert end.usage.output_tokens == message.usage.output_tokens


# --- limits of strict tools ------------------------------------------------------------------------------------------


def spec(name: str, *, required: int = 1, optional: int = 0, unions: int = 0) -> ToolSpec:
    words: JsonObject = {f"r{n}": {"type": "string"} for n in range(required)}
    words |= {f"u{n}": {"anyOf": [{"type": "string"}, {"type": "integer"}]} for n in range(unions)}
    more = {f"o{n}": {"type": "string"} for n in range(optional)}
    schema = {"type": "object", "properties": words | more, "required": list(words), "additionalProperties": False}
    return ToolSpec(name=name, description="", parameters=schema)


async def strict_of(*tools: ToolSpec) -> list[str]:
    """Return the names of the tools that a request makes strict."""
    async with MockProvider(["hi", "hi"]) as mock:
        model = Anthropic("m", base_url=mock.base_url, api_key="k", options={"strict_tools": True})
        for _ in range(2):
            request = ModelRequest(messages=(user_message("go"),), tools=tools)
            assert [part async for part in model.stream(request)]
    told: list[Any] = [[tool["name"] for tool in one.body["tools"] if tool.get("strict")] for one in mock.requests]
    assert told[0] == told[1]  # each request is counted for itself
    names: list[str] = told[0]
    return names


@pytest.mark.row("P-LIMITS")
async def test_twenty_tools_are_strict_and_more_are_plain() -> None:
    assert len(await strict_of(*(spec(f"t{n:02}") for n in range(20)))) == 20
    assert await strict_of(*(spec(f"t{n:02}") for n in range(23))) == [f"t{n:02}" for n in range(20)]


@pytest.mark.row("P-LIMITS")
async def test_a_tool_that_would_exceed_the_optional_parameters_is_plain() -> None:
    assert await strict_of(spec("a", optional=24), spec("b")) == ["a", "b"]
    assert await strict_of(spec("a", optional=20), spec("b", optional=5), spec("c", optional=4)) == ["a", "c"]


@pytest.mark.row("P-LIMITS")
async def test_a_tool_that_would_exceed_the_parameters_of_several_types_is_plain() -> None:
    assert await strict_of(spec("a", unions=16), spec("b")) == ["a", "b"]
    assert await strict_of(spec("a", unions=17), spec("b", unions=16)) == ["b"]
