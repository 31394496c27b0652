"""What servers send is bounded in work, not only in bytes, and never keeps the event loop to itself."""

import asyncio
import gzip
import json
import zlib

import pytest
from chat_server import answer, serving

from treadle import resolve_model
from treadle.errors import IncompleteStream, ModelError, ModelResponseInvalid
from treadle.messages import Message, Text
from treadle.ports import ModelEnd, ModelRequest
from treadle.providers.http.answer import PIECE_BYTES, unpacker_for
from treadle.providers.http.reading import MAX_BARREN_BYTES, SseReader

MIB = 1024 * 1024
ASK = ModelRequest(messages=(Message(role="user", parts=(Text("go"),)),))
COMMENTS = b": keep-alive\n\n" * (6 * MIB // 14)
WHOLE = b'{"choices":[{"index":0,"message":{"content":"hello"},"finish_reason":"stop"}]}'


END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def streamed(text: bytes, *, times: int = 1) -> bytes:
    return b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % text * times


def whole(text: bytes) -> bytes:
    return b'{"choices":[{"message":{"content":"%b"},"finish_reason":"stop"}]}' % text


async def said(body: bytes, **headers: str) -> str:
    head = {name.replace("_", "-"): value for name, value in headers.items()}
    async with serving(answer(body, headers=head)) as server, asyncio.timeout(60):
        model = resolve_model("openai-chat:m", base_url=server.url, api_key="k")
        parts = [part async for part in model.stream(ASK)]
    assert isinstance(parts[-1], ModelEnd)
    return parts[-1].parts[0].text


def unpacked(encoding: str, packed: bytes, *, step: int) -> bytes:
    unpacker = unpacker_for(encoding, shown="the server")
    assert unpacker is not None
    found = []
    for at in range(0, len(packed), step):
        unpacker.feed(packed[at : at + step])
        while piece := unpacker.take():
            assert len(piece) <= PIECE_BYTES
            found.append(piece)
    unpacker.finish()
    return b"".join(found)


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


# --- compressed answers ----------------------------------------------------------------------------------------------


@pytest.mark.row("N10", "PF26")
@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", bare_deflate)]
)
@pytest.mark.parametrize("step", [1, 10_000_000])
def test_a_compressed_body_comes_out_whole_in_small_pieces_however_it_was_cut(encoding, pack, step):
    data = b"".join(b"%d, " % number for number in range(10_000))

    assert unpacked(encoding, pack(data), step=step) == data


@pytest.mark.parametrize("step", [1, 1000])
def test_a_gzip_body_may_have_several_members_and_padding(step):
    body = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two") + b"\0" * 20

    assert unpacked("gzip", body, step=step) == b"one two"


async def test_compressed_answers_are_understood():
    assert await said(gzip.compress(WHOLE), Content_Encoding="gzip") == "hello"
    assert await said(zlib.compress(WHOLE), Content_Encoding="Deflate") == "hello"
    assert await said(bare_deflate(WHOLE), Content_Encoding="deflate") == "hello"
    assert await said(WHOLE, Content_Encoding="identity") == "hello"


async def test_an_encoding_that_was_not_offered_is_named():
    with pytest.raises(ModelResponseInvalid, match="'br'"):
        await said(WHOLE, Content_Encoding="br")


async def test_bytes_that_are_not_compressed_as_the_server_says_are_its_fault():
    for encoding in ("gzip", "deflate"):
        with pytest.raises(ModelResponseInvalid, match="not compressed as its Content-Encoding says"):
            await said(b"\xff" * 100, Content_Encoding=encoding)


async def test_a_compressed_answer_that_is_cut_off_is_incomplete():
    with pytest.raises(IncompleteStream, match="cut off"):
        await said(gzip.compress(WHOLE)[:-3], Content_Encoding="gzip")


def test_members_without_content_do_not_go_on_for_ever():
    with pytest.raises(ModelResponseInvalid, match="holds nothing"):
        unpacked("gzip", gzip.compress(b"") * 5000, step=10_000_000)


# --- what costs more than its bytes ----------------------------------------------------------------------------------


@pytest.mark.row("N10", "PF26")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(COMMENTS, id="comments"),
        pytest.param(b"\n" * (6 * MIB), id="blank lines"),
        pytest.param(b"data:\n\n" * (6 * MIB // 7), id="empty data"),
        pytest.param(b"x: y\n" * 30_000 + b"\n", id="lines of one event"),
        pytest.param(WHOLE.rjust(6 * MIB), id="blanks before the answer"),
        pytest.param(b"data: " + b"x" * (17 * MIB), id="one line"),
        pytest.param(b'{"choices":[],"x":[' + b"{}," * 400_000 + b"1]}", id="values of a whole answer"),
        pytest.param(b'data: {"choices":[],"x":[' + b"1," * 400_000 + b"1]}\n\n", id="values of an event"),
        pytest.param(b'{"choices":[{"message":{"content":"' + b"\\ud800" * (2 * MIB) + b'"}}]}', id="surrogates"),
        pytest.param(b'{"choices":[{"message":{"content":"' + b"\x01" * (2 * MIB) + b'"}}]}', id="controls"),
        pytest.param(b"[" * (17 * MIB), id="brackets"),
        pytest.param(streamed(b"word " * 2000, times=500) + END, id="words of a stream"),
        pytest.param(whole(b"x" * (5 * MIB)), id="words of a whole answer"),
        pytest.param(streamed(b"\\ud800" * 11_000) + END, id="damage in one event"),
        pytest.param(streamed(b"\\n" * 11_000 + b"\\ud800") + END, id="escapes around damage"),
    ],
)
async def test_an_answer_that_is_all_work_is_refused(body: bytes):
    with pytest.raises(ModelError):
        await said(body)


@pytest.mark.row("N10", "PF26")
@pytest.mark.parametrize("body", [COMMENTS, WHOLE.rjust(6 * MIB), b"data: " + b"x" * (17 * MIB)])
async def test_an_answer_that_unpacks_to_nothing_but_work_is_refused(body: bytes):
    with pytest.raises(ModelError):
        await said(gzip.compress(body, 1), Content_Encoding="gzip")


@pytest.mark.row("N10")
async def test_the_longest_answer_of_any_model_is_read():
    assert len(await said(streamed(b"word " * 2000, times=400) + END)) == 4_000_000
    assert len(await said(whole(b"x" * 4_000_000))) == 4_000_000


@pytest.mark.row("N10")
async def test_a_few_damaged_characters_do_not_cost_a_long_answer():
    text = await said(whole(b"word " * 100_000 + b"\\ud800" * 100))

    assert text == "word " * 100_000 + "\ufffd" * 100


async def test_an_error_of_megabytes_is_told_in_a_few_words():
    for error in ('{"message":"%s"}' % ("too long " * MIB), '"%s"' % ("x" * 9 * MIB), '{"code":"%s"}' % ("c" * MIB)):
        with pytest.raises(ModelError) as caught:
            await said(b'{"error":%s}' % error.encode())
        assert len(str(caught.value)) < 1000


def test_a_day_of_comments_is_no_reason_to_end_a_stream():
    reader = SseReader()
    for _ in range(86_400):
        assert reader.feed(b": keep-alive\n\n") == []

    assert reader.feed(b"data: 1\n\n") == [b"1"]
    assert MAX_BARREN_BYTES > 86_400 * 14


@pytest.mark.row("N10")
async def test_others_have_turns_of_the_event_loop_while_a_small_answer_unpacks():
    """The whole answer has come in one piece: without turns that are given, nobody else would run until its end."""
    event = b'data: {"choices":[{"delta":{"content":"word "}}]}\n\n'
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    body = gzip.compress(event * 100_000 + b"data: [DONE]\n\n")
    async with serving(answer(body, headers={"Content-Encoding": "gzip"})) as server:
        model = resolve_model("openai-chat:m", base_url=server.url, api_key="k")
        watching = asyncio.create_task(watch())
        seen = [turns async for _ in model.stream(ASK)]
        watching.cancel()

    assert len(set(seen)) > 20


@pytest.mark.row("N10", "PF26")
async def test_a_response_of_more_calls_than_anybody_means_is_refused_and_a_thousand_are_not():
    call = '{"index":%d,"id":"c%d","function":{"name":"look","arguments":"{}"}}'
    for count, is_refused in ((1000, False), (2000, True)):
        calls = ",".join(call % (number, number) for number in range(count))
        body = '{"choices":[{"message":{"tool_calls":[' + calls + ']},"finish_reason":"tool_calls"}]}'
        async with serving(answer(body.encode())) as server:
            model = resolve_model("openai-chat:m", base_url=server.url, api_key="k")
            if is_refused:
                with pytest.raises(ModelResponseInvalid, match="more than 1024 calls"):
                    [part async for part in model.stream(ASK)]
            else:
                parts = [part async for part in model.stream(ASK)]
                assert len(parts[-1].parts) == count


@pytest.mark.row("N10", "PF26")
@pytest.mark.parametrize("where", ["id", "name"])
async def test_a_call_with_a_name_of_megabytes_is_refused_and_a_long_one_is_not(where):
    for length, is_refused in ((90_000, False), (200_000, True)):
        call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}
        (call if where == "id" else call["function"])[where] = "n" * length
        whole = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
        streamed = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
        for body in (json.dumps(whole).encode(), b"data: " + json.dumps(streamed).encode() + b"\n\ndata: [DONE]\n\n"):
            async with serving(answer(body)) as server:
                model = resolve_model("openai-chat:m", base_url=server.url, api_key="k")
                if is_refused:
                    with pytest.raises(ModelResponseInvalid, match="have more than 100000 characters"):
                        [part async for part in model.stream(ASK)]
                else:
                    assert [part async for part in model.stream(ASK)][-1].parts
