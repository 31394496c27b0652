"""Answers: what every dialect makes of the same response, whole, broken off or wrong. One body a behaviour, one row a dialect or an oddity."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from chat_server import STREAM_HEAD, answer, chunk, fragment, json_answer, then_reset, then_silence, until_closed
from wire import (
    NAMES,
    READERS,
    Anthropics,
    Chats,
    Geminis,
    Responseses,
    asked,
    end_of,
    read,
    said,
    sse,
)

from treadle import Agent, Tool, resolve_model
from treadle.errors import (
    ContextOverflow,
    IncompleteStream,
    ModelError,
    ModelRejected,
    ModelResponseInvalid,
    ModelUnavailable,
)
from treadle.messages import Finish, Text, Thinking, ToolCall, Usage, user_message
from treadle.ports import CallReady, ModelRequest, TextDelta, ThinkingDelta
from treadle.providers.http.endpoint import Timeouts
from treadle.testing import MockProvider, Turn, call

CLAUDE = "bedrock-claude"
EACH = pytest.mark.parametrize("name", NAMES)
FORMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
SSE = [name for name in NAMES if name != "bedrock"]
"""The dialects whose streams are server-sent events."""

USED = Usage(input_tokens=50, output_tokens=9, cached_input_tokens=20)
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"


# --- a good answer ---------------------------------------------------------------------------------------------------


@pytest.mark.row("W01", "W02", "W03", "W04", "W05", "W09", "P-CONVERSE", "P-INVOKE", "P-COHERE")
@pytest.mark.parametrize("name", [*NAMES, CLAUDE])
async def test_each_form_of_an_answer_gives_the_same_message(name: str) -> None:
    calls = (call("grep", path="é"), call("rest", id="x"))
    turn = Turn(thinking="Hm, let me see.", text="Grüße 🙂", calls=calls, usage=USED)
    streamed, whole = said(name, turn), said(name, turn, stream=False)
    scripts = {
        "streamed": (answer(streamed), True),
        "streamed, although one piece was asked for": (answer(streamed, content_type="application/json"), False),
        "whole": (answer(whole, content_type="application/json"), False),
        "whole, although a stream was asked for": (answer(whole), True),
        "whole, in lines": (answer(json.dumps(json.loads(whole), indent=2)), True),
        "ends with the connection": (until_closed(streamed.rstrip(b"\n") if name in SSE else streamed), True),
    }
    if name in SSE:
        other = msgspec.structs.replace(turn, newline="\r\n", pieces=5)
        scripts["other line ends and other pieces"] = (answer(said(name, other)), True)
        scripts["a byte order mark and a comment"] = (answer(b"\xef\xbb\xbf: hi\n\n" + streamed), True)

    ends = []
    for script, stream in scripts.values():
        *parts, end = (await asked(name, script, stream=stream))[0]
        ends.append(end)
        assert "".join(part.text for part in parts if isinstance(part, ThinkingDelta)) == "Hm, let me see."
        assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == "Grüße 🙂"
        made = [part for part in end.parts if isinstance(part, ToolCall)]
        assert [part.call for part in parts if isinstance(part, CallReady)] == made
        assert [(one.id, one.name, json.loads(one.arguments)) for one in made] == [("call_1", "grep", {"path": "é"}), ("x", "rest", {})]  # fmt: skip
        assert {part.text for part in end.parts if isinstance(part, Text | Thinking)} == {"Hm, let me see.", "Grüße 🙂"}
        assert (end.finish, end.usage, end.cut_calls) == (Finish.CALLS, USED, frozenset())
    same = [[part for part in end.parts if not isinstance(part, ToolCall)] for end in ends]
    assert all(parts == same[0] for parts in same)


TRICKY = Turn(thinking="å", text="å🙂", calls=(call("one", arguments='{"b": "\\"}{🙂"}'), call("two")), pieces=2)


@pytest.mark.row("W02", "PF11", "P-FRAMES")
@pytest.mark.parametrize("name", READERS)
def test_a_stream_cut_anywhere_gives_the_same_parts(name: str) -> None:
    stream = said(name, TRICKY)
    if name in SSE:
        stream = "\ufeff: hi\r\n\r\n".encode() + stream.replace(b"\n\n", b"\r\n\r\n", 2).removesuffix(b"\n\n")
    expected = read(name, stream)

    assert [part.call.name for part in expected[0] if isinstance(part, CallReady)] == ["one", "two"]
    for size in (1, 2, 3, 5, 7, 64):
        for start in range(min(size, 7)):
            cuts = [stream[at : at + size] for at in range(start, len(stream), size)]
            assert read(name, stream[:start], *cuts) == expected


FINISHES: dict[str, dict[Finish, str]] = {
    "openai-chat": {Finish.STOP: "stop eos", Finish.CALLS: "tool_calls", Finish.LENGTH: "length", Finish.REFUSED: "content_filter", Finish.UNKNOWN: "abort"},
    "anthropic": {
        Finish.STOP: "end_turn stop_sequence something_new",
        Finish.CALLS: "tool_use",
        Finish.LENGTH: "max_tokens model_context_window_exceeded",
        Finish.REFUSED: "refusal",
        Finish.UNKNOWN: "something_aborted",
    },
    "gemini": {
        Finish.STOP: "STOP",
        Finish.LENGTH: "MAX_TOKENS",
        Finish.REFUSED: "SAFETY RECITATION PROHIBITED_CONTENT BLOCKLIST SPII",
        Finish.UNKNOWN: "OTHER",
    },
    "cohere": {Finish.STOP: "COMPLETE STOP_SEQUENCE SOMETHING", Finish.LENGTH: "MAX_TOKENS", Finish.REFUSED: "ERROR_TOXIC"},
    "bedrock": {
        Finish.STOP: "end_turn stop_sequence something_new",
        Finish.CALLS: "tool_use",
        Finish.LENGTH: "max_tokens model_context_window_exceeded",
        Finish.REFUSED: "guardrail_intervened content_filtered",
        Finish.UNKNOWN: "something_aborted",
    },
}  # fmt: skip


@pytest.mark.row("P-COHERE", "P-CONVERSE")
@pytest.mark.parametrize(
    ("name", "word", "finish"),
    [(name, word, finish) for name, words in FINISHES.items() for finish, listed in words.items() for word in listed.split()],
)  # fmt: skip
async def test_the_finish_reason_of_a_stream_is_told_in_neutral_words(name: str, word: str, finish: Finish) -> None:
    end = await end_of(name, answer(said(name, Turn(text="So.", finish=word))))

    assert (end.finish, end.finish_reason, end.parts) == (finish, word, (Text("So."),))


@pytest.mark.row("MF4")
@FORMS
@pytest.mark.parametrize("name", [name for name in NAMES if name != "openai"])
async def test_a_call_without_an_id_is_named_by_its_place(name: str, stream: bool) -> None:
    turn = Turn(calls=(call("a", id=None, n=1), call("b", id=None, n=2)))

    *parts, end = (await asked(name, answer(said(name, turn, stream=stream)), stream=stream))[0]

    assert [part.id for part in end.parts] == ["call_0", "call_1"]
    assert [part.call for part in parts if isinstance(part, CallReady)] == list(end.parts)
    assert end.unnamed_calls == {"call_0", "call_1"}


@pytest.mark.row("PF14", "MF5", "P-COHERE", "P-CONVERSE")
@FORMS
@pytest.mark.parametrize("name", [name for name in NAMES if name != "gemini"])
async def test_a_call_that_the_limit_cut_is_named_and_was_never_ready(name: str, stream: bool) -> None:
    cut = Turn(calls=(call("a"), call("b", arguments='{"x": "}')), finish="length")

    *parts, end = (await asked(name, answer(said(name, cut, stream=stream)), stream=stream))[0]

    assert (end.finish, end.cut_calls) == (Finish.LENGTH, {"call_2"})
    assert [part.call.id for part in parts if isinstance(part, CallReady)] == ["call_1"]


@EACH
async def test_a_read_starts_while_the_response_still_streams(name: str) -> None:
    started: list[str] = []

    async def run(arguments: Any, ctx: Any) -> Any:
        started.append(arguments["q"])
        provider.gate("g").open()  # the second call is sent only now
        return "ok"

    look = Tool(name="look", description="Look.", parameters={"type": "object"}, effect="read", run=run)
    # Where a call's end may be missing, the beginning of the next one tells that it is whole.
    turn = Turn(calls=(call("look", q="a"), call("look", q="b")), gate="g", hold_after_call=0)
    async with MockProvider([turn, "Done."]) as provider:
        model = resolve_model(f"{name}:m", base_url=provider.base_url, api_key="k")
        result = await asyncio.wait_for(Agent(model, tools=[look]).run("go"), timeout=60)

    assert (result.text, started) == ("Done.", ["a", "b"])


@EACH
async def test_closing_the_stream_hangs_up(name: str) -> None:
    async with MockProvider([Turn(text="a b c d e f g h", pieces=8, gate="held", hold_after_pieces=5)]) as provider:
        stream = resolve_model(f"{name}:m", base_url=provider.base_url, api_key="k").stream(
            ModelRequest(messages=(user_message("hi"),))
        )
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
        await provider.wait_hangups(1)


# --- whole or not ----------------------------------------------------------------------------------------------------

HEL = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"}
CALL, MESSAGE = Responseses.call("a", "{}"), Responseses.message("Hello")
HALVES: list[tuple[str, str]] = [
    *((name, "") for name in NAMES),
    *((name, ": comment\n\n") for name in SSE),
    ("openai-chat", chunk(content="Hel")),
    ("openai-chat", chunk(tool_calls=[fragment(0, '{"a', call_id="1", name="x")])),
    ("openai-chat", chunk(tool_calls=[fragment(0, "{}", call_id="1", name="x")])),
    ("openai-chat", chunk(content="x") + chunk("stop")[:-10]),
    ("openai-chat", chunk(content="x") + "data: [DON"),
    ("openai", sse({"type": "response.created", "response": {"status": "in_progress"}})),
    ("openai", sse(HEL)),
    ("openai", sse(Responseses.done(0, MESSAGE))),
    ("openai", sse(Responseses.done(0, CALL))),
    ("openai", sse(Responseses.completed(MESSAGE))[:-10]),
    ("openai", sse(HEL, "[DONE]")),
    ("anthropic", sse(Anthropics.start)),
    ("anthropic", sse(Anthropics.start, *Anthropics.text(0, "Hello"))),
    ("anthropic", sse(Anthropics.start, *Anthropics.call(0, "a", "{}"))),
    ("anthropic", sse(Anthropics.start, *Anthropics.text(0, "Hello"), Anthropics.reason("end_turn"))),
    ("anthropic", sse(Anthropics.start, *Anthropics.text(0, "Hello")) + "event: message_stop\n\n"),
    ("gemini", sse(Geminis.chunk({"text": "Hel"}))),
    ("gemini", sse(Geminis.chunk({"text": "Hel"}, finish="FINISH_REASON_UNSPECIFIED"))),
    ("gemini", sse(Geminis.chunk(Geminis.call("a", {})))),
]


@pytest.mark.row("PF9", "PF8", "F02")
@pytest.mark.parametrize(("name", "body"), HALVES)
async def test_a_stream_that_ends_without_its_terminal_is_incomplete(name: str, body: str) -> None:
    with pytest.raises(IncompleteStream, match="without "):
        await asked(name, until_closed(body))


@pytest.mark.row("PF8", "PF9", "P-FRAMES")
@pytest.mark.parametrize("cut", ["mid-text", "mid-arguments", "before-terminal"])
@pytest.mark.parametrize("name", [*NAMES, CLAUDE])
async def test_an_answer_that_breaks_off_may_be_asked_for_again(name: str, cut: Any) -> None:
    async with MockProvider([Turn(text="Hello there", calls=(call("look", x="a long one"),), cut=cut)]) as provider:
        model = resolve_model(f"{name}:m", base_url=provider.base_url, api_key="k")
        with pytest.raises(IncompleteStream) as caught:
            [part async for part in model.stream(ModelRequest(messages=(user_message("hi"),)))]

    assert caught.value.may_retry


@pytest.mark.row("PF8")
@EACH
async def test_a_connection_that_is_reset_breaks_an_answer_before_its_terminal_and_not_after_it(name: str) -> None:
    hello = said(name, Turn(text="Hello"))

    with pytest.raises(ModelError) as caught:
        await asked(name, then_reset(LONG + hello[: len(hello) // 3]))

    assert caught.value.may_retry
    assert (await end_of(name, then_reset(LONG + hello))).parts[0].text == "Hello"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gemini"])  # which marks no end
async def test_a_server_that_holds_the_line_after_the_terminal_is_not_waited_for(name: str) -> None:
    held = then_silence(STREAM_HEAD + said(name, Turn(text="Hello")))

    assert (await end_of(name, held, timeouts=Timeouts(idle_seconds=600))).parts[0].text == "Hello"


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.row("PF12")
@pytest.mark.parametrize(
    "body",
    [
        *("<html><body>Welcome</body></html>", "{", "{}", "[]", '{"detail": "x"}', '{"choices": ', "[" * 100_000),
        *('{"choices": 5}', '{"output": 5}', '{"output": [5]}', '{"content": 1}', '{"content": [1]}', '{"candidates": 7}', '{"candidates": []}'),
    ],
    ids=lambda body: body[:20],
)  # fmt: skip
@EACH
async def test_a_success_that_is_no_response_is_told_with_an_excerpt(name: str, body: str) -> None:
    with pytest.raises(ModelResponseInvalid, match="Check base_url") as caught:
        await asked(name, answer(body, content_type="text/html"), stream=len(body) % 2 == 0)

    assert body[:10] in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.row("PF12")
@pytest.mark.parametrize("body", ["", "   \n", "upstream is down", b"\xff\xfe"])
@pytest.mark.parametrize("name", SSE)
async def test_an_answer_that_is_none_is_told(name: str, body: str) -> None:
    with pytest.raises((ModelResponseInvalid, IncompleteStream)):
        await asked(name, answer(body, content_type="application/json"))


WRONG_EVENTS: list[tuple[str, str]] = [
    *((name, data) for name in SSE for data in ("nonsense", "5", "[" * 100_000)),
    ("openai-chat", '{"choices": {}}'),
    ("openai-chat", '{"choices": [{"delta": 5}]}'),
    ("openai", '{"type": "response.completed", "response": 5}'),
    *(("openai", json.dumps({"type": "response.output_item.done", "item": item})) for item in (None, 5, [])),
    ("anthropic", '{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}'),
    ("anthropic", '{"type": "content_block_start", "content_block": {}}'),
    ("anthropic", '{"type": "content_block_start", "index": 0, "content_block": 1}'),
    ("anthropic", "[1]"),
    ("gemini", '{"candidates": 7}'),
    ("cohere", '{"type": "content-start", "index": "0", "delta": {"message": {"content": {"type": "text"}}}}'),
]


@pytest.mark.parametrize(("name", "data"), WRONG_EVENTS, ids=lambda value: value[:60])
async def test_an_event_of_another_shape_is_an_error_of_the_protocol(name: str, data: str) -> None:
    with pytest.raises(ModelResponseInvalid):
        await asked(name, answer(f"data: {data}\n\n"))


def of_anthropic(kind: str, message: str) -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def of_gemini(code: int, status: str, message: str) -> Any:
    return {"error": {"code": code, "message": message, "status": status}}


LIMIT = "prompt is too long: 200100 tokens > 200000 maximum"
TRIAL = "You are using a Trial key, which is limited to"
COUNTED = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
TOO_LONG = "longer than the model's context"
FAILURES: list[tuple[str, int, Any, type[ModelError], str]] = [
    ("openai", 429, {"error": {"message": "slow"}}, ModelUnavailable, "slow"),
    ("openai", 400, {"error": {"message": "bad"}}, ModelRejected, "bad"),
    ("anthropic", 400, of_anthropic("invalid_request_error", "max_tokens: Field required"), ModelRejected, "max_tokens"),
    ("anthropic", 400, of_anthropic("invalid_request_error", LIMIT), ContextOverflow, "200100 tokens"),
    ("anthropic", 400, of_anthropic("invalid_request_error", "Your credit balance is too low"), ModelRejected, "credit balance"),
    ("anthropic", 401, of_anthropic("authentication_error", "invalid x-api-key"), ModelRejected, "ANTHROPIC_API_KEY"),
    ("anthropic", 403, of_anthropic("permission_error", "no"), ModelRejected, "no"),
    ("anthropic", 404, of_anthropic("not_found_error", "model: claude-x"), ModelRejected, "claude-x"),
    ("anthropic", 429, of_anthropic("rate_limit_error", "slow down"), ModelUnavailable, "slow down"),
    ("anthropic", 500, of_anthropic("api_error", "oops"), ModelUnavailable, "oops"),
    ("anthropic", 529, of_anthropic("overloaded_error", "Overloaded"), ModelUnavailable, "Overloaded"),
    ("anthropic", 200, of_anthropic("overloaded_error", "Overloaded"), ModelUnavailable, "Overloaded"),
    ("gemini", 400, of_gemini(400, "INVALID_ARGUMENT", COUNTED), ContextOverflow, TOO_LONG),
    ("gemini", 400, of_gemini(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), ModelRejected, "api_key="),
    ("gemini", 403, of_gemini(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers."), ModelRejected, "api_key="),
    ("gemini", 404, of_gemini(404, "NOT_FOUND", "models/x is not found for API version v1beta"), ModelRejected, "model's name"),
    ("gemini", 400, of_gemini(400, "INVALID_ARGUMENT", "Unknown name"), ModelRejected, "Unknown name"),
    ("gemini", 500, of_gemini(500, "INTERNAL", "An internal error has occurred."), ModelUnavailable, "internal error"),
    ("gemini", 503, of_gemini(503, "UNAVAILABLE", "The model is overloaded."), ModelUnavailable, "overloaded"),
    ("cohere", 400, {"message": "invalid request: temperature must be between 0 and 1.0 inclusive."}, ModelRejected, "temperature"),
    ("cohere", 401, {"message": "invalid api token"}, ModelRejected, "COHERE_API_KEY"),
    ("cohere", 402, {"message": "Please add a payment method"}, ModelRejected, "no credit"),
    ("cohere", 404, {"message": "model 'x' not found"}, ModelRejected, "model's name"),
    ("cohere", 422, {"message": "unknown field: parameter 'x' is not a valid field."}, ModelRejected, "unknown field"),
    ("cohere", 429, {"message": f"{TRIAL} 20 API calls / minute."}, ModelUnavailable, "20 API calls"),
    ("cohere", 429, {"message": f"{TRIAL} 1,000 API calls / month."}, ModelRejected, "no credit"),
    ("cohere", 503, {"message": "overloaded"}, ModelUnavailable, "overloaded"),
]  # fmt: skip


@pytest.mark.row("W11", "PF18", "R01", "R06", "P-COHERE")
@pytest.mark.parametrize(("name", "status", "body", "kind", "words"), FAILURES)
async def test_an_error_answer_is_told_by_its_class(
    name: str, status: int, body: Any, kind: type[ModelError], words: str
) -> None:
    with pytest.raises(ModelError) as caught:
        await asked(name, json_answer(body, status=status, headers={"retry-after": "7"}))

    assert type(caught.value) is kind, caught.value
    assert words in str(caught.value)
    assert caught.value.may_retry is (kind is ModelUnavailable)
    if status != 200:
        assert (caught.value.status, caught.value.retry_after_seconds) == (
            status,
            7 if kind is ModelUnavailable else None,
        )


ENDED = {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "the model broke"}}
BROKEN: list[tuple[str, Any, type[ModelError], str]] = [
    ("openai-chat", {"error": {"message": "overloaded", "code": 503}}, ModelUnavailable, "overloaded"),
    ("openai-chat", {"error": "boom"}, ModelUnavailable, "boom"),
    ("openai-chat", {"object": "error", "message": "bad", "code": 400}, ModelRejected, "bad"),
    ("openai-chat", {"error": {"message": "long", "code": "context_length_exceeded"}}, ContextOverflow, "long"),
    ("openai-chat", {"choices": [{"error": {"message": "x", "code": 502}}]}, ModelUnavailable, "x"),
    ("openai-chat", {"choices": [{"delta": {}, "finish_reason": "error"}]}, ModelUnavailable, "finish_reason is error"),
    ("anthropic", of_anthropic("overloaded_error", "Overloaded"), ModelUnavailable, "Overloaded"),
    ("anthropic", of_anthropic("api_error", "Internal server error"), ModelUnavailable, "Internal server error"),
    ("anthropic", of_anthropic("rate_limit_error", "Slow down"), ModelUnavailable, "Slow down"),
    ("anthropic", of_anthropic("invalid_request_error", "messages: bad"), ModelRejected, "messages: bad"),
    ("anthropic", of_anthropic("authentication_error", "invalid x-api-key"), ModelRejected, "invalid x-api-key"),
    ("anthropic", of_anthropic("invalid_request_error", LIMIT), ContextOverflow, "200100 tokens"),
    ("gemini", of_gemini(503, "UNAVAILABLE", "The model is overloaded."), ModelUnavailable, "overloaded"),
    ("cohere", {"message": "too busy"}, ModelUnavailable, "too busy"),
    ("cohere", {"type": "error", "error": {"message": "too busy"}}, ModelUnavailable, "too busy"),
    ("cohere", ENDED, ModelUnavailable, "the model broke"),
]


@pytest.mark.row("PF10", "W11", "P-COHERE")
@pytest.mark.parametrize(("name", "event", "kind", "words"), BROKEN)
async def test_an_error_inside_a_stream_ends_it(name: str, event: Any, kind: type[ModelError], words: str) -> None:
    begun = {
        "openai-chat": Chats.delta(content="Hel"),
        "anthropic": Anthropics.start,
        "gemini": Geminis.chunk({"text": "Hel"}),
        "cohere": {"type": "message-start", "delta": {"message": {"role": "assistant"}}},
    }
    with pytest.raises(ModelError) as caught:
        await asked(name, answer(sse(begun[name], event)))

    assert (type(caught.value), words in str(caught.value)) == (kind, True)


VARIABLES = (
    "OPENAI_API_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "COHERE_API_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
)


@pytest.mark.row("PF17")
@pytest.mark.parametrize(("name", "variable"), [*zip(NAMES, VARIABLES, strict=True)])
async def test_a_refused_key_is_not_printed_and_what_to_check_is(name: str, variable: str) -> None:
    key = "sk-live-0123456789"
    refused = json_answer({"error": {"message": f"Incorrect API key provided: {key}"}}, status=401)

    with pytest.raises(ModelRejected, match=variable) as caught:
        await asked(name, refused, api_key=key)
    assert key not in str(caught.value)

    with pytest.raises(ModelRejected, match="No API key was sent"):
        await asked(name, refused, api_key=None)


@pytest.mark.row("PF11", "PF25")
@pytest.mark.parametrize("name", SSE)
async def test_text_that_is_no_unicode_is_replaced_and_never_fatal(name: str) -> None:
    stream = said(name, Turn(text="a@b", pieces=1)).replace(b"a@b", b"a\xff\x00 \\ud83d \\ud83d\\ude00 \\\\ud83d")

    [part] = (await end_of(name, answer(b"\xef\xbb\xbf" + stream))).parts
    assert part.text == "a\ufffd \ufffd \U0001f600 \\ud83d"
