"""The mock provider: a real server on loopback, what it answers, refuses and breaks."""

import asyncio
import io
import json
import socket
import struct
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp
import pytest

from treadle.errors import ConfigurationError
from treadle.messages import Usage
from treadle.testing import MockProvider, Script, Turn, call, text

USER = {"role": "user", "content": "go"}
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}},
}
BODY = {"model": "m", "messages": [USER]}
STREAM = {**BODY, "stream": True}


async def post(provider, body=BODY, *, raw=None, headers=None, path="/chat/completions"):
    """Return the status and the parsed JSON body."""
    async with aiohttp.ClientSession() as client:
        data = io.BytesIO(json.dumps(body).encode() if raw is None else raw)
        async with client.post(provider.base_url + path, data=data, headers=headers) as response:
            return response.status, json.loads(await response.read())


async def events(provider, body=STREAM):
    """Return the parsed events of a stream, `[DONE]` as a string."""
    async with (
        aiohttp.ClientSession() as client,
        client.post(provider.base_url + "/chat/completions", json=body) as response,
    ):
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        return parse(await response.read())


def parse(raw: bytes):
    lines = raw.decode().split("\n\n")
    return [
        line.removeprefix("data: ") if "[DONE]" in line else json.loads(line.removeprefix("data: "))
        for line in lines
        if line
    ]


async def exchange(provider, body=STREAM, *, head=None):
    """Return every byte of the answer, and whether the connection was reset: no client library stands between."""
    port = int(provider.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    writer.write(
        head or b"POST /v1/chat/completions HTTP/1.1\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(content)
    )
    writer.write(content)
    received, was_reset = b"", False
    try:
        while piece := await reader.read(65536):
            received += piece
    except ConnectionResetError:
        was_reset = True
    writer.close()
    return received, was_reset


def body_of(raw: bytes):
    return raw.partition(b"\r\n\r\n")[2]


def dechunked(body: bytes):
    """Return the content of a chunked body, and whether it ended properly."""
    content = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        if size == b"0":
            return content, body == b"\r\n"
        content, body = content + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return content, False


# --- answers


@pytest.mark.row("Z01", "W01")
async def test_a_whole_answer_is_what_the_vendor_sends():
    turn = Turn(
        text="I look.", calls=(call("look", where="ü"), call("b", id="x")), usage=Usage(input_tokens=9, output_tokens=4)
    )
    async with MockProvider([turn]) as provider:
        assert await post(provider) == (
            200,
            {
                "id": "chatcmpl-mock-1",
                "object": "chat.completion",
                "created": 1_700_000_000,
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "message": {
                            "role": "assistant",
                            "content": "I look.",
                            "refusal": None,
                            "tool_calls": [
                                {
                                    "id": "call_1",
                                    "type": "function",
                                    "function": {"name": "look", "arguments": '{"where": "ü"}'},
                                },
                                {"id": "x", "type": "function", "function": {"name": "b", "arguments": "{}"}},
                            ],
                        },
                        "logprobs": None,
                        "finish_reason": "tool_calls",
                    }
                ],
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 4,
                    "total_tokens": 13,
                    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                    "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
                },
            },
        )


@pytest.mark.row("Z01")
async def test_a_streamed_answer_comes_in_the_vendors_pieces():
    turn = Turn(text="abc", calls=(call("look", a=1),), pieces=2)
    async with MockProvider([turn]) as provider:
        *chunks, done = await events(provider)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert done == "[DONE]"
    assert deltas == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "ab"},
        {"content": "c"},
        {
            "tool_calls": [
                {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 6 + ["tool_calls"]
    assert {chunk["id"] for chunk in chunks} == {"chatcmpl-mock-1"}


@pytest.mark.row("F02")
async def test_fragments_of_several_calls_can_be_interleaved_by_index():
    turn = Turn(calls=(call("a", x=1), call("b", y=22)), interleave=True, pieces=2)
    async with MockProvider([turn]) as provider:
        *chunks, _ = await events(provider)
    parts = [part for chunk in chunks for part in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert [part["index"] for part in parts] == [0, 1, 0, 1, 0, 1]
    joined = ["".join(part["function"]["arguments"] for part in parts if part["index"] == index) for index in (0, 1)]
    assert joined == ['{"x": 1}', '{"y": 22}']


@pytest.mark.row("B07")
@pytest.mark.parametrize(
    ("usage", "asked", "sent"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"usage": None}, True, False),
        ({"usage": Usage(input_tokens=3)}, False, True),
        ({"usage": Usage(input_tokens=3)}, True, True),
    ],
)
async def test_usage_is_streamed_when_asked_for_or_scripted_and_can_be_left_out(usage, asked, sent):
    body = {**STREAM, "stream_options": {"include_usage": True}} if asked else STREAM
    async with MockProvider([Turn(text="hi", **usage)]) as provider:
        *chunks, _ = await events(provider, body)
    with_usage = [chunk for chunk in chunks if chunk.get("usage")]
    assert len(with_usage) == sent
    assert all(chunk["choices"] == [] for chunk in with_usage)


@pytest.mark.row("B07")
async def test_a_whole_answer_can_leave_usage_out():
    async with MockProvider([Turn(text="hi", usage=None), Turn(text="hi")]) as provider:
        assert "usage" not in (await post(provider))[1]
        assert (await post(provider))[1]["usage"]["prompt_tokens"] > 0


async def test_a_refusal_ends_as_any_answer_does_unless_another_ending_is_scripted():
    turns = [Turn(refusal="No."), Turn(refusal="No.", finish="content_filter"), Turn(finish="content_filter")]
    async with MockProvider([turn for turn in turns for _ in range(2)]) as provider:
        for expected in ("stop", "content_filter", "content_filter"):
            assert (await post(provider))[1]["choices"][0]["finish_reason"] == expected
            *chunks, _ = await events(provider)
            assert chunks[-1]["choices"][0]["finish_reason"] == expected


async def test_thinking_refusals_missing_ids_and_odd_finishes_are_sent_as_scripted():
    turn = Turn(thinking="Hm.", refusal="No.", calls=(call("a", id=None), call("", id="")), finish="odd")
    async with MockProvider([turn]) as provider:
        choice = (await post(provider))[1]["choices"][0]
        *chunks, _ = await events(provider)
    message = choice["message"]
    assert (message["reasoning_content"], message["refusal"], choice["finish_reason"]) == ("Hm.", "No.", "odd")
    assert "id" not in message["tool_calls"][0]
    assert (message["tool_calls"][1]["id"], message["tool_calls"][1]["function"]["name"]) == ("", "")
    openers = [
        part for chunk in chunks for part in chunk["choices"][0]["delta"].get("tool_calls", []) if "type" in part
    ]
    assert ["id" in opener for opener in openers] == [False, True]


async def test_lone_surrogates_travel_as_escapes():
    async with MockProvider([Turn(text="\ud800", calls=(call("a", arguments='{"x": "\ud800"}'),))]) as provider:
        message = (await post(provider))[1]["choices"][0]["message"]
    assert message["content"] == "\ud800"


@pytest.mark.row("D14", "L10")
async def test_the_last_turn_repeats_and_call_ids_never_do():
    async with MockProvider([text("first"), call("again")]) as provider:
        answers = [(await post(provider))[1]["choices"][0]["message"] for _ in range(4)]
    assert answers[0]["content"] == "first"
    assert [answer["tool_calls"][0]["id"] for answer in answers[1:]] == ["call_1", "call_2", "call_3"]


@pytest.mark.row("L10")
async def test_a_script_may_call_a_tool_although_the_choice_is_none():
    async with MockProvider([call("look")]) as provider:
        status, body = await post(provider, {**BODY, "tools": [TOOL], "tool_choice": "none"})
    assert status == 200
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look"


async def test_a_script_that_does_not_repeat_says_when_it_is_used_up():
    async with MockProvider(Script(["only"], exhausted="error")) as provider:
        assert (await post(provider))[0] == 200
        status, body = await post(provider)
    assert (status, body["error"]["code"]) == (400, "script_exhausted")
    assert body["error"]["message"] == "The script is used up: it has 1 turns."


@pytest.mark.row("Z01")
async def test_a_function_of_the_body_can_play_many_sessions():
    async def respond(body):
        return text(body["messages"][0]["content"][::-1])

    async with MockProvider(respond) as provider:
        bodies = [{"model": "m", "messages": [{"role": "user", "content": f"n{n}"}]} for n in range(20)]
        answers = await asyncio.gather(*(post(provider, body) for body in bodies))
    assert [answer["choices"][0]["message"]["content"] for _, answer in answers] == [f"n{n}"[::-1] for n in range(20)]


@pytest.mark.parametrize("respond", [lambda body: 1 / 0, lambda body: None])
async def test_a_function_that_fails_is_told_to_the_client(respond):
    async with MockProvider(respond) as provider:
        status, body = await post(provider)
    assert (status, body["error"]["code"]) == (400, "script_failed")


@pytest.mark.row("Z01")
async def test_a_script_file_plays(tmp_path):
    file = tmp_path / "s.json"
    file.write_text('[{"text": "from a file"}]', encoding="utf-8")
    async with MockProvider(file) as provider:
        assert (await post(provider))[1]["choices"][0]["message"]["content"] == "from a file"


async def test_models_are_listed():
    async with (
        MockProvider(["hi"]) as provider,
        aiohttp.ClientSession() as client,
        client.get(provider.base_url + "/models") as response,
    ):
        assert (await response.json())["data"][0]["id"] == "mock"


# --- refusals


@pytest.mark.row("Z01")
async def test_a_request_that_the_vendor_refuses_is_refused_and_takes_no_turn():
    async with MockProvider(["first", "second"]) as provider:
        status, answer = await post(provider, {"messages": [USER]})
        assert status == 400
        assert answer["error"].keys() == {"message", "type", "param", "code"}
        assert answer["error"]["type"] == "invalid_request_error"
        assert "you must provide a model parameter" in answer["error"]["message"]
        assert [refusal.message for refusal in provider.refusals] == [answer["error"]["message"]]
        assert (await post(provider))[1]["choices"][0]["message"]["content"] == "first"
        assert [request.status for request in provider.requests] == [400, 200]


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b'{"model": "m", "model": "m"}', b'{"seed": NaN}', b"[" * 100_000])
async def test_a_body_that_is_no_json_is_refused(raw):
    async with MockProvider(["hi"]) as provider:
        status, body = await post(provider, raw=raw)
        assert provider.requests[0].raw == raw
        assert provider.requests[0].body is None
    assert status == 400
    assert body["error"]["message"].startswith("We could not parse the JSON body")


async def test_a_wrong_key_path_or_method_is_refused():
    async with MockProvider(["hi"], api_key="k") as provider, aiohttp.ClientSession() as client:
        assert (await post(provider))[0] == 401
        assert (await post(provider, headers={"authorization": "Bearer k"}))[0] == 200
        assert (await post(provider, headers={"authorization": "Bearer k"}, path="/embeddings"))[0] == 404
        async with client.get(
            provider.base_url + "/chat/completions", headers={"authorization": "Bearer k"}
        ) as response:
            assert response.status == 405


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/9\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 1e3\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: " + b"9" * 9000 + b"\r\n\r\n", 413),
        (b"POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n", 415),
        (b"POST /v1/chat/completions HTTP/1.1\r\nx: " + b"y" * 200_000 + b"\r\n\r\n", 431),
    ],
    ids=lambda value: str(value)[:70],
)
async def test_what_is_no_http_is_answered_and_the_connection_closed(head, status):
    async with MockProvider(["hi"]) as provider:
        received, _ = await exchange(provider, head=head)
        assert not received or received.startswith(b"HTTP/1.1 %d " % status)
        assert (await post(provider))[0] == 200


async def test_chunked_bodies_and_several_requests_on_one_connection_are_taken():
    async def pieces():
        content = json.dumps(BODY).encode()
        yield content[:10]
        yield content[10:]

    async with MockProvider(["hi"]) as provider, aiohttp.ClientSession() as client:
        for stream in (False, True):
            async with client.post(
                provider.base_url + "/chat/completions", json={**BODY, "stream": stream}
            ) as response:
                await response.read()
        async with client.post(provider.base_url + "/chat/completions", data=pieces()) as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "hi"
        assert len(client.connector._conns) == 1


async def test_a_large_body_is_taken_and_one_over_the_limit_is_not():
    async with MockProvider(["hi"]) as provider:
        large = {"model": "m", "messages": [{"role": "user", "content": "x" * 20_000_000}]}
        assert (await post(provider, large))[0] == 200
        provider.max_body_bytes = 1000
        received, _ = await exchange(provider, {**BODY, "user": "x" * 1000})
        assert not received or received.startswith(b"HTTP/1.1 413 ")


# --- the record


@pytest.mark.row("Z01")
async def test_every_request_is_recorded_in_memory_and_in_a_file(tmp_path):
    file = tmp_path / "requests.jsonl"
    async with MockProvider(["hi"], record=file) as provider:
        await post(provider, headers={"X-Trace": "t1", "authorization": "Bearer secret"})
        await post(provider, raw=b"{")
        await post(provider, {"model": "m", "messages": []})
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [(request.method, request.path, request.body, request.status) for request in provider.requests] == [
        ("POST", "/v1/chat/completions", BODY, 200),
        ("POST", "/v1/chat/completions", None, 400),
        ("POST", "/v1/chat/completions", {"model": "m", "messages": []}, 400),
    ]
    assert provider.requests[0].headers["x-trace"] == "t1"
    assert json.loads(provider.requests[0].raw) == BODY
    assert lines == [
        {"method": "POST", "path": "/v1/chat/completions", "body": BODY, "status": 200},
        {"method": "POST", "path": "/v1/chat/completions", "body": "{", "status": 400},
        {"method": "POST", "path": "/v1/chat/completions", "body": {"model": "m", "messages": []}, "status": 400},
    ]
    assert "secret" not in file.read_text(encoding="utf-8")


# --- faults


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 502, 503, 529])
async def test_a_scripted_status_answers_with_the_vendors_error_and_takes_its_turn(status):
    turn = Turn(status=status, error="scripted", headers={"Retry-After": "-1"})
    async with MockProvider([turn, "after"]) as provider, aiohttp.ClientSession() as client:
        async with client.post(provider.base_url + "/chat/completions", json=STREAM) as response:
            assert response.status == status
            assert response.headers["retry-after"] == "-1"
            assert (await response.json())["error"]["message"] == "scripted"
        assert (await post(provider))[1]["choices"][0]["message"]["content"] == "after"


async def test_an_error_may_be_the_vendors_own_object():
    error = {
        "message": "too long",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    async with MockProvider([Turn(status=400, error=error), Turn(status=400, error={"error": error})]) as provider:
        assert await post(provider) == (400, {"error": error})
        assert await post(provider) == (400, {"error": error})


@pytest.mark.parametrize("body", [b"<html>busy</html>", b"", b"\xff\xfe", b'{"choices": []}', b"data: {\n\n"])
async def test_a_raw_body_is_sent_as_it_stands(body):
    async with (
        MockProvider([Turn(body=body, prefix=b"\xef\xbb\xbf")]) as provider,
        aiohttp.ClientSession() as client,
        client.post(provider.base_url + "/chat/completions", json=STREAM) as response,
    ):
        assert response.status == 200
        assert await response.read() == b"\xef\xbb\xbf" + body


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_one_event_may_be_larger_than_ten_megabytes_and_hold_a_nul(body):
    words = "\0" + "x" * 11_000_000
    async with MockProvider([Turn(text=words, pieces=1)]) as provider:
        raw, _ = await exchange(provider, body)
    content, is_whole = dechunked(body_of(raw)) if body is STREAM else (body_of(raw), True)
    assert is_whole
    assert b'"content":"\\u0000xxx' in content
    assert len(content) > 11_000_000


async def test_an_error_event_comes_inside_a_stream():
    async with MockProvider([Turn(text="abc", error="overloaded")]) as provider:
        *chunks, last = await events(provider)
    assert last["error"]["message"] == "overloaded"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "abc"
    assert {chunk["choices"][0]["finish_reason"] for chunk in chunks} == {None}


async def test_an_error_may_come_with_status_200_in_a_whole_answer():
    async with MockProvider([Turn(error="overloaded")]) as provider:
        status, body = await post(provider)
    assert (status, body["error"]["message"], body["error"]["type"]) == (200, "overloaded", "server_error")


async def test_a_request_that_is_reset_or_cut_off_harms_nobody():
    async with MockProvider(["hi"]) as provider:
        port = int(provider.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
        for content in (b"", b"POST /v1", b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 9\r\n\r\n{"):
            for is_reset in (False, True):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(content)
                if is_reset:
                    at_once = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
                    writer.transport.abort()
                else:
                    writer.close()
        assert (await post(provider))[0] == 200
    assert len(provider.requests) == 1


async def test_a_client_that_expects_to_be_told_to_go_on_is_told():
    content = json.dumps(BODY).encode()
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    )
    async with MockProvider(["hi"]) as provider:
        raw, _ = await exchange(provider, BODY, head=head % len(content))
    assert raw.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


TWO = Turn(text="abcdef", calls=(call("a", x=1), call("b", y="some words")))


async def cut_stream(turn):
    async with MockProvider([turn]) as provider:
        raw, was_reset = await exchange(provider)
    content, is_whole = dechunked(body_of(raw))
    return raw, content, is_whole, was_reset


@pytest.mark.row("F02")
async def test_a_stream_cut_in_the_middle_of_arguments_has_the_first_call_whole_and_the_last_one_not():
    _, content, is_whole, _ = await cut_stream(Turn(text=TWO.text, calls=TWO.calls, cut="mid-arguments"))
    parts = [part for chunk in parse(content) for part in chunk["choices"][0]["delta"].get("tool_calls", [])]
    joined = ["".join(part["function"]["arguments"] for part in parts if part["index"] == index) for index in (0, 1)]
    assert not is_whole
    assert joined[0] == '{"x": 1}'
    assert joined[1]
    assert '{"y": "some words"}'.startswith(joined[1])
    assert joined[1] != '{"y": "some words"}'


async def test_a_stream_cut_in_the_middle_of_its_text_has_some_of_it():
    _, content, is_whole, _ = await cut_stream(Turn(text="abcdef", cut="mid-text"))
    words = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in parse(content))
    assert (words, is_whole) == ("ab", False)


@pytest.mark.parametrize(
    ("cut", "kind"),
    [("mid-text", Turn(text="abcdef", pieces=1)), ("mid-arguments", Turn(calls=(call("a", x=1),), pieces=1))],
)
async def test_a_lone_fragment_is_cut_inside_its_event(cut, kind):
    _, content, _, _ = await cut_stream(Turn(text=kind.text, calls=kind.calls, pieces=1, cut=cut))
    assert not content.endswith(b"\n\n")


async def test_a_stream_may_end_properly_without_its_terminal_event():
    _, content, is_whole, _ = await cut_stream(Turn(text="abc", cut="before-terminal"))
    chunks = parse(content)
    assert is_whole
    assert {chunk["choices"][0]["finish_reason"] for chunk in chunks} == {None}
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == "abc"


async def test_a_stream_may_end_after_its_finish_without_done():
    _, content, is_whole, _ = await cut_stream(Turn(text="abc", cut="before-done"))
    assert is_whole
    assert parse(content)[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_stream_may_be_cut_at_every_byte():
    async with MockProvider([TWO]) as provider:
        whole, _ = dechunked(body_of((await exchange(provider))[0]))
    turns = [Turn(text=TWO.text, calls=TWO.calls, cut=count) for count in range(0, len(whole), 41)]
    async with MockProvider(turns) as provider:
        for turn in turns:
            raw, _ = await exchange(provider)
            content, is_whole = dechunked(body_of(raw))
            assert len(content) == turn.cut
            assert not is_whole


async def test_a_connection_may_be_reset():
    raw, _, is_whole, was_reset = await cut_stream(Turn(text="abcdef", cut="mid-text", cut_by="reset"))
    assert was_reset
    assert not is_whole
    assert raw
    assert (await cut_stream(Turn(text="a", cut="reset")))[3]


async def test_the_server_may_hang_up_without_an_answer_or_after_the_head():
    assert (await cut_stream(Turn(text="a", cut="before-answer")))[0] == b""
    raw, content, is_whole, _ = await cut_stream(Turn(text="a", cut="before-body"))
    assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (content, is_whole) == (b"", False)


async def test_a_whole_answer_is_cut_in_half_or_after_some_bytes():
    async with MockProvider(
        [Turn(text="abc", cut="mid-text"), Turn(text="abc", cut=5), Turn(text="abc", cut=5, cut_by="clean")]
    ) as provider:
        for length in (None, 5, 5):
            raw, _ = await exchange(provider, BODY)
            head, _, body = raw.partition(b"\r\n\r\n")
            announced = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            with pytest.raises(json.JSONDecodeError):
                json.loads(body)
            assert length is None or len(body) == length
        assert announced == 5


async def test_a_silent_stream_waits_for_its_client_to_hang_up():
    async with (
        MockProvider([Turn(text="abc", cut="before-terminal", cut_by="stall")]) as provider,
        aiohttp.ClientSession() as client,
    ):
        async with client.post(provider.base_url + "/chat/completions", json=STREAM) as response:
            async for line in response.content:
                if b'"content":"c"' in line:
                    break
            assert provider.hangups == 0
            response.close()
        await provider.wait_hangups(1)


async def test_leaving_the_provider_ends_what_it_was_doing():
    async with aiohttp.ClientSession() as client:
        async with MockProvider([Turn(text="abc", cut="before-body", cut_by="stall")]) as provider:
            response = await client.post(provider.base_url + "/chat/completions", json=STREAM)
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_a_content_length_may_lie():
    async with MockProvider([Turn(text="abc", headers={"content-length": "99999"})]) as provider:
        raw, _ = await exchange(provider, BODY)
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"content-length: 99999" in head
    assert len(body) < 99999


async def test_characters_and_events_are_split_over_writes():
    turn = Turn(text="ä€😀" * 5, chunk_size=1, newline="\r\n", pieces=1)
    async with MockProvider([turn]) as provider:
        raw, _ = await exchange(provider)
    content, is_whole = dechunked(body_of(raw))
    assert is_whole
    assert body_of(raw).startswith(b"1\r\nd\r\n1\r\na\r\n")
    assert b"\r\n\r\ndata: [DONE]\r\n\r\n" in content
    assert "ä€😀" * 5 in content.decode()


async def test_delays_and_gaps_pass_and_end_with_the_client():
    async with MockProvider([Turn(text="abc", delay_ms=1, gap_ms=1), Turn(text="abc", delay_ms=3_600_000)]) as provider:
        assert (await events(provider))[-1] == "[DONE]"
        posting = asyncio.ensure_future(post(provider))
        await provider.wait_requests(2)
        posting.cancel()
        await provider.wait_hangups(1)
        await asyncio.gather(posting, return_exceptions=True)


async def test_a_status_without_a_body_has_none():
    async with MockProvider([Turn(status=204)]) as provider:
        raw, _ = await exchange(provider)
    assert raw.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert body_of(raw) == b""


async def test_an_old_client_gets_a_stream_that_ends_with_its_connection():
    content = json.dumps(STREAM).encode()
    async with MockProvider(["abc"]) as provider:
        raw, _ = await exchange(
            provider, head=b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(content)
        )
    assert b"chunked" not in raw
    assert body_of(raw).endswith(b"data: [DONE]\n\n")


# --- gates


@pytest.mark.row("Z01")
async def test_a_stream_waits_at_a_gate_after_its_first_call():
    turn = Turn(calls=(call("a", x=1), call("b", y=2)), gate="mid", hold_after_call=0)
    async with (
        MockProvider([turn]) as provider,
        aiohttp.ClientSession() as client,
        client.post(provider.base_url + "/chat/completions", json=STREAM) as response,
    ):
        await provider.gate("mid").wait_reached()
        early = b""
        while b"1}" not in early:
            early += await response.content.readany()
        assert b'"name":"b"' not in early
        provider.gate("mid").open()
        late = await response.read()
    assert b'"name":"b"' in late
    assert late.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("hold", [{}, {"hold_after_pieces": 0}, {"hold_after_pieces": 2}, {"hold_after_pieces": 99}])
@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_an_answer_waits_at_a_gate_wherever_it_stands(hold, body):
    async with MockProvider([Turn(text="abc", gate="g", **hold)]) as provider:
        answering = asyncio.ensure_future(exchange(provider, body))
        await provider.gate("g").wait_reached()
        assert not answering.done()
        assert provider.gate("g").is_reached
        assert not provider.gate("g").is_open
        provider.gate("g").open()
        raw, _ = await answering
    assert b"abc" in raw or b"[DONE]" in raw


async def test_a_client_that_leaves_a_held_answer_is_noticed():
    async with MockProvider([Turn(text="abc", gate="g"), Turn(text="next")]) as provider:
        async with aiohttp.ClientSession() as client:
            posting = asyncio.ensure_future(client.post(provider.base_url + "/chat/completions", json=BODY))
            await provider.gate("g").wait_reached()
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)
        await provider.wait_hangups(1)
    assert provider.hangups == 1


async def test_at_least_128_answers_are_held_at_the_same_time():
    async with MockProvider([Turn(text="hi", gate="all")]) as provider:
        asking = [asyncio.ensure_future(exchange(provider, BODY)) for _ in range(160)]
        await provider.wait_requests(160)
        assert not any(task.done() for task in asking)
        provider.gate("all").open()
        answers = await asyncio.gather(*asking)
    assert all(raw.startswith(b"HTTP/1.1 200 OK") for raw, _ in answers)


# --- starting and stopping


def test_it_runs_in_a_thread_for_code_without_an_event_loop():
    with MockProvider([Turn(text="hi", gate="g")]).in_thread() as provider:
        provider.gate("g").open()
        request = urllib.request.Request(provider.base_url + "/chat/completions", data=json.dumps(BODY).encode())
        with urllib.request.urlopen(request) as response:
            assert json.loads(response.read())["choices"][0]["message"]["content"] == "hi"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(provider.base_url + "/chat/completions", data=b"{}"))
        refused.value.close()
    assert [request.status for request in provider.requests] == [200, 400]


def test_a_thread_ends_when_its_test_fails():
    with pytest.raises(ZeroDivisionError), MockProvider(["hi"]).in_thread():
        _ = 1 / 0


def test_a_thread_that_cannot_start_says_why():
    with MockProvider(["hi"]).in_thread() as provider:
        port = int(provider.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
        second = MockProvider(["hi"], port=port).in_thread()
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1 port {port}"):
            second.__enter__()


async def test_it_starts_once_at_a_time_and_may_start_again():
    provider = MockProvider(["hi"])
    with pytest.raises(ConfigurationError, match="not running"):
        _ = provider.base_url
    for _ in range(2):
        async with provider:
            with pytest.raises(ConfigurationError, match="running already"):
                await provider.__aenter__()
            assert (await post(provider))[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::", ""])
def test_it_listens_on_this_machine_only(host):
    with pytest.raises(ConfigurationError, match="listens on this machine only"):
        MockProvider(["hi"], host=host)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(ConfigurationError, match="0 to 65535"):
        MockProvider(["hi"], port=port)


async def test_a_record_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot record into"):
        async with MockProvider(["hi"], record=tmp_path / "none" / "r.jsonl"):
            pass


@pytest.mark.parametrize("script", [[], "hi", Path("none.json")])
def test_what_is_no_script_is_refused(script):
    with pytest.raises(ConfigurationError):
        MockProvider(script)
