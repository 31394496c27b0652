"""Chat Completions: the requests that go out, and the responses that come back, from honest servers and from others."""

import json
import weakref
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import wire
from chat_server import (
    DONE,
    HELLO,
    answer,
    chunk,
    event,
    fragment,
    json_answer,
    serving,
    until_closed,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import Chats, asked, parts_from, read, tool

from treadle.errors import (
    ConfigurationError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
)
from treadle.messages import (
    Finish,
    Media,
    Result,
    Text,
    Thinking,
    ToolCall,
    Usage,
    user_message,
)
from treadle.ports import CallReady, ModelEnd, ModelPart, ModelRequest, TextDelta, ThinkingDelta, ToolSpec
from treadle.providers.openai_chat import OpenAIChat
from treadle.providers.openai_chat.request import ChatRequests
from treadle.providers.openai_chat.response import ChatResponse
from treadle.providers.payload import ObjectEnd

ASK = ModelRequest(messages=(user_message("hi"),))
GREP = ToolSpec(
    name="grep", description="Search.", parameters={"type": "object", "properties": {"path": {"type": "string"}}}
)


ORIGIN = "openai-chat:gpt-5-mini"
ask = partial(parts_from, "openai-chat", model="gpt-5-mini")
sent = partial(wire.written, "openai-chat", model="gpt-5-mini")
end_of = partial(wire.end_of, "openai-chat", model="gpt-5-mini")
parse = partial(read, "openai-chat")
assistant = partial(wire.assistant, origin=ORIGIN)


def calls(stream: str) -> list[ToolCall]:
    return [part for part in parse(stream)[1].parts if isinstance(part, ToolCall)]


def ready(stream: str) -> list[ToolCall]:
    return [part.call for part in parse(stream)[0] if isinstance(part, CallReady)]


def call(call_id: str, name: str, arguments: str) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


# --- the request -----------------------------------------------------------------------------------------------------


async def test_an_assistant_message_of_nothing_has_empty_content():
    body = await sent(ModelRequest(messages=(assistant(Thinking(text="hm")),)))

    assert body["messages"] == [{"role": "assistant", "content": ""}]


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
        event({"choices": [{"index": 0, "message": {"reasoning": "I ", "reasoning_details": [SIGNED, TOLD, *SEALED]}}]}),
    ],
    ids=["streamed", "signed at last", "whole"],
)  # fmt: skip
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


EXACT = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
LOOSE = {"type": "object", "properties": {"q": {"type": "string"}}}


@pytest.mark.row("V15")
async def test_strict_tools_are_compiled_and_an_optional_property_may_be_null():
    tools = tuple(ToolSpec(name=name, description=name, parameters=p) for name, p in (("a", EXACT), ("b", LOOSE)))
    request = ModelRequest(messages=ASK.messages, tools=tools, output_schema=EXACT)

    body = await sent(request, options={"strict_tools": True})
    plain = await sent(request, options={"strict_tools": False})
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


async def test_a_header_of_the_person_replaces_ours():
    _, [request] = await asked("openai-chat", answer(HELLO), api_key="sk-1", headers={"authorization": "Key x"})
    _, [blank] = await asked("openai-chat", answer(HELLO), api_key="  ")

    assert request.headers["authorization"] == "Key x"
    assert "authorization" not in blank.headers


def written() -> ChatRequests:
    return ChatRequests("m", origin=ORIGIN, options={}, stream=True)


@pytest.mark.parametrize("count", [1, 100])
def test_encoded_messages_are_dropped_with_their_messages(count):
    requests = written()
    messages = tuple(user_message(f"{number}") for number in range(count))
    requests.body(ModelRequest(messages=messages))
    requests.body(ModelRequest(messages=messages[1:], session_id="s_other"))
    gone = [weakref.ref(message) for message in messages]

    del messages

    assert not any(message() for message in gone)


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
    kept = written()

    assert [kept.body(request) for request in requests] == [written().body(request) for request in requests]


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


async def test_a_refusal_is_text_and_a_finish():
    end = await end_of(answer(chunk(refusal="I can") + chunk(refusal="not.") + chunk("stop") + DONE))

    assert (end.parts, end.finish) == ((Text("I cannot."),), Finish.REFUSED)


@pytest.mark.row("PF13")
@pytest.mark.parametrize("choice", [{}, {"index": 0}, {"message": {"content": None}}])
async def test_an_answer_of_nothing_is_an_empty_message(choice):
    assert (await end_of(json_answer({"choices": [{**choice, "finish_reason": "stop"}]}))).parts == ()


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
        st.text() | st.none() | st.dictionaries(st.text(), st.lists(st.text(), max_size=2), max_size=2),
        max_size=3,
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


async def test_the_connection_is_used_again():
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"".join(f"{len(part):x}\r\n{part}\r\n".encode() for part in (HELLO, ""))
    async with serving(chunked, answer(HELLO), json_answer(Chats.message("stop", content="Hi")), chunked) as server:
        model = OpenAIChat("m", base_url=server.url, api_key=None)
        for _ in range(4):
            assert [part async for part in model.stream(ASK)]

    assert server.connections == 1


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.row("PF10")
async def test_an_error_in_a_field_of_its_own_is_told_in_its_words():
    told = 'error: {"code":500,"message":"the slot has no room","type":"server_error"}\n\n'

    with pytest.raises(ModelUnavailable, match="the slot has no room"):
        await ask(answer(chunk(content="x") + told))


async def test_a_short_key_is_hidden_where_it_stands_alone():
    with pytest.raises(ModelRejected) as caught:
        await ask(json_answer({"error": "bad key 'abc' for abcd"}, status=401), api_key="abc")

    assert "bad key '[redacted]' for abcd" in str(caught.value)


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
