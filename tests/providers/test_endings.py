"""Endings: which of them complete a response. A finish in mid-stream, an unknown or a contradicting ending do not."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from chat_server import STREAM_HEAD, Script, answer, serving
from wire import DIALECTS, MODELS, Anthropics, Chats, Geminis, Responseses, Till, events, outcome, play, sse

from invariants import check_session
from treadle import Agent
from treadle.budgets import Budget
from treadle.drivers.react import ReActDriver
from treadle.providers.gemini.response import GeminiResponse
from treadle.providers.http.reading import Response
from treadle.providers.http.server import Timeouts
from treadle.providers.openai_chat.response import ChatResponse
from treadle.stops import StopReason

ONCE = Budget(max_retries_per_model_call=0)
ONE = '{"sum": 1}'
TWO = '{"sum": 2}'


def in_body(status: str | None, text: str = "Half", **more: Any) -> dict[str, Any]:
    return {**Responseses.completed(Responseses.message(text), **more)["response"], "status": status}


BROKEN_OFF = {
    **{
        f"chat: {word}": ("chat", Chats.message(word, content="Half"), sse(Chats.delta(word, content="Half"), "[DONE]"))
        for word in ("abort", "insufficient_system_resource", "time_limit", "requestCancelled", "policy_hit")
    },
    **{
        f"gemini: {word}": ("gemini", Geminis.chunk({"text": "Half"}, finish=word), sse(Geminis.chunk({"text": "Half"}, finish=word)))
        for word in ("OTHER", "UNEXPECTED_TOOL_CALL")
    },
    "responses: an item that is not whole": (
        "responses",
        Responseses.completed({**Responseses.message("Half"), "status": "incomplete"})["response"],
        sse(Responseses.completed({**Responseses.message("Half"), "status": "incomplete"})),
    ),
    "anthropic: a failure": (
        "anthropic",
        {"type": "message", "content": [{"type": "text", "text": "Half"}], "stop_reason": "serverFailure"},
        sse(Anthropics.start, *Anthropics.text(0, "Half"), Anthropics.reason("serverFailure"), Anthropics.stop),
    ),
    **{
        f"responses: incomplete, {details}": (
            "responses",
            in_body("incomplete", incomplete_details=details),
            sse({"type": "response.incomplete", "response": in_body("incomplete", incomplete_details=details)}),
        )
        for details in (None, {}, {"reason": None}, {"reason": "max_tool_calls"}, "odd")
    },
    "responses: the event says incomplete and the body completed": (
        "responses",
        in_body("completed", incomplete_details={"reason": "odd"}),
        sse({"type": "response.incomplete", "response": in_body("completed")}),
    ),
    "responses: the event says completed and the body incomplete": (
        "responses",
        in_body("incomplete"),
        sse({"type": "response.completed", "response": in_body("incomplete")}),
    ),
    "responses: a status that is unknown": ("responses", in_body("paused"), sse({"type": "response.completed", "response": in_body("paused")})),
}  # fmt: skip


@pytest.mark.row("PF24")
@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize(("dialect", "whole", "streamed"), BROKEN_OFF.values(), ids=BROKEN_OFF)
async def test_an_unknown_ending_is_not_a_completion(dialect, whole, streamed, form):
    script = answer(streamed) if form == "streamed" else answer(json.dumps(whole), content_type="application/json")

    result = await play(dialect, script, budget=ONCE)

    assert result.reason is StopReason.INCOMPLETE_STREAM
    assert "finish reason" in result.stop.message
    await check_session(result.session)


def without(body: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


CALLED = {"type": "tool_use", "id": "a", "name": "pay", "input": {"sum": 1}}
NO_ENDING = {
    "chat": [
        Chats.message(None, content="Half"),
        Chats.message(None, tool_calls=[Chats.call("a", ONE)]),
        {"choices": [without(Chats.message(content="Half")["choices"][0], "finish_reason")]},
    ],
    "responses": [in_body(None), without(in_body(None), "status"), {**in_body(""), "output": [Responseses.call("a", ONE)]}],
    "anthropic": [{"type": "message", "content": [{"type": "text", "text": "Half"}]}, {"type": "message", "content": [CALLED], "stop_reason": None}],
    "gemini": [
        Geminis.chunk({"text": "Half"}),
        Geminis.chunk(Geminis.call("a", {"sum": 1}), finish="FINISH_REASON_UNSPECIFIED"),
        [Geminis.chunk({"text": "Half"}), Geminis.chunk({"text": "."})],
    ],
}  # fmt: skip


@pytest.mark.row("PF24")
@pytest.mark.parametrize(
    ("dialect", "body"), [(dialect, body) for dialect, bodies in NO_ENDING.items() for body in bodies]
)
async def test_a_whole_body_ends_with_its_last_byte_whether_it_says_so_or_not(dialect, body):
    till = Till()

    result = await play(dialect, answer(json.dumps(body), content_type="application/json"), till=till, budget=ONCE)

    has_paid = "pay" in json.dumps(body)
    assert (result.completed, till.paid) == (True, [{"sum": 1}] if has_paid else [])
    assert has_paid or result.text.startswith("Half")
    await check_session(result.session)


EMPTY = {
    "chat": [Chats.message(None, content=None), {"choices": []}, {"choices": [{"index": 0}]}],
    "responses": [{"object": "response", "output": []}],
    "anthropic": [{"type": "message", "content": []}],
    "gemini": [Geminis.chunk(), {"candidates": [{"index": 0}]}],
}


@pytest.mark.row("PF13", "PF24")
@pytest.mark.parametrize(("dialect", "body"), [(dialect, body) for dialect, bodies in EMPTY.items() for body in bodies])
async def test_a_whole_body_without_an_ending_and_without_a_word_is_asked_for_again(dialect, body):
    result = await play(dialect, answer(json.dumps(body), content_type="application/json"))

    assert (result.text, [event.type for event in await result.session.events()].count("model.failed")) == ("Done.", 1)


NEW = "something_new"
NEW_ENDING: dict[str, list[Any]] = {
    "chat": [Chats.message(NEW, content="Whole."), sse(Chats.delta(NEW, content="Whole."), "[DONE]")],
    "anthropic": [
        {"type": "message", "content": [{"type": "text", "text": "Whole."}], "stop_reason": NEW},
        sse(Anthropics.start, *Anthropics.text(0, "Whole."), Anthropics.reason(NEW), Anthropics.stop),
        sse(Anthropics.start, *Anthropics.text(0, "Whole."), Anthropics.reason(NEW), "[DONE]"),
    ],
    "responses": [in_body(NEW, "Whole."), sse({"type": "response.completed", "response": in_body(NEW, "Whole.")})],
    "gemini": [Geminis.chunk({"text": "Whole."}, finish=NEW.upper())],
}


@pytest.mark.row("PF24")
@pytest.mark.parametrize(
    ("dialect", "body"), [(dialect, body) for dialect, bodies in NEW_ENDING.items() for body in bodies]
)
async def test_an_answer_that_has_certainly_ended_is_taken_whatever_its_word_for_the_end(dialect, body, caplog):
    script = answer(body) if isinstance(body, str) else answer(json.dumps(body), content_type="application/json")

    result = await play(dialect, script, budget=ONCE)

    assert (result.completed, result.text) == (True, "Whole.")
    assert NEW in caplog.text.lower()


@pytest.mark.row("PF24")
@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("chat", sse(Chats.delta(NEW, content="Half"))),
        ("gemini", sse(Geminis.chunk({"text": "Half"}, finish=NEW.upper()))),
        ("chat", sse(Chats.delta(NEW, content="  "), "[DONE]")),
        ("chat", sse(Chats.delta(NEW, reasoning_content="hm"), "[DONE]")),
    ],
)
async def test_a_new_word_ends_no_stream_that_may_go_on_and_no_answer_that_says_nothing(dialect, body):
    result = await play(dialect, answer(body), budget=ONCE)

    assert result.reason is StopReason.INCOMPLETE_STREAM


def whole_calls(word: str) -> dict[str, tuple[Any, Any]]:
    """Return for each dialect a response of one whole call that ends in this word: as a body, and as a stream that says its end."""
    call = Responseses.call("a", ONE)
    return {
        "chat": (
            Chats.message(word, tool_calls=[Chats.call("a", ONE)]),
            sse(Chats.calls(Chats.call("a", ONE)), Chats.delta(word), "[DONE]"),
        ),
        "responses": (
            {**in_body(word), "output": [call]},
            sse(
                Responseses.done(0, call),
                {"type": "response.completed", "response": {**in_body(word), "output": [call]}},
            ),
        ),
        "anthropic": (
            {"type": "message", "content": [CALLED], "stop_reason": word},
            sse(Anthropics.start, *Anthropics.call(0, "a", ONE), Anthropics.reason(word), Anthropics.stop),
        ),
        "gemini": (Geminis.chunk(Geminis.call("a", {"sum": 1}), finish=word), None),
    }


@pytest.mark.row("PF24")
@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize("word", ["CALLS_PROPOSED", "abort", "network_error"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_whole_calls_are_taken_after_an_unknown_word_and_not_after_one_for_a_broken_response(
    dialect, word, form, caplog
):
    whole, streamed = whole_calls(word)[dialect]
    if form == "streamed" and streamed is None:
        form = "whole"  # a stream of Gemini has no other end than this word
    script = answer(streamed) if form == "streamed" else answer(json.dumps(whole), content_type="application/json")
    till = Till()

    result = await play(dialect, script, till=till, budget=ONCE)

    is_taken = word == "CALLS_PROPOSED"
    assert (result.completed, till.paid) == (is_taken, [{"sum": 1}] if is_taken else [])
    assert ("CALLS_PROPOSED" in caplog.text) == is_taken


@pytest.mark.row("PF24")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_name_that_another_dialect_has_for_an_ending_with_calls_is_understood(dialect, caplog):
    whole = {
        **whole_calls("FUNCTION_CALL"),
        "responses": ({**in_body(None), "status": "FUNCTION_CALL", "output": [Responseses.call("a", ONE)]}, None),
    }[dialect][0]
    till = Till()

    result = await play(dialect, answer(json.dumps(whole), content_type="application/json"), till=till, budget=ONCE)

    assert (outcome(result), caplog.text) == ((True, ["ok"]), "")


@pytest.mark.row("PF24")
@pytest.mark.parametrize(
    "body",
    [
        sse(Chats.calls(Chats.call("a", ONE)), Chats.delta("CALLS_PROPOSED")),
        sse(Chats.calls(Chats.call("a", '{"sum"')), Chats.delta("CALLS_PROPOSED"), "[DONE]"),
        sse(Chats.calls(Chats.call("a", "")), Chats.delta("CALLS_PROPOSED"), "[DONE]"),
        sse(Chats.calls(Chats.call("a", ONE), Chats.call("b", "[]", index=1)), Chats.delta("CALLS_PROPOSED"), "[DONE]"),
    ],
)
async def test_calls_are_not_taken_after_an_unknown_word_where_one_is_not_whole_or_the_stream_may_go_on(body):
    till = Till()

    result = await play("chat", answer(body), till=till, budget=ONCE)

    assert (result.reason, till.paid) == (StopReason.INCOMPLETE_STREAM, [])


@pytest.mark.row("PF24")
async def test_a_response_with_an_unknown_ending_is_asked_for_again_and_starts_nothing():
    till = Till()
    half = sse(Chats.calls(Chats.call("a", ONE)), Chats.delta("insufficient_system_resource"), "[DONE]")

    result = await play("chat", answer(half), till=till)

    assert (result.text, till.paid) == ("Done.", [])
    (failed,) = [event for event in await result.session.events() if event.type == "model.failed"]
    assert failed.usage is not None


@pytest.mark.row("PF24")
async def test_a_decision_with_an_unknown_ending_is_not_carried_out():
    till = Till()
    decision = json.dumps({"type": "call_tool", "tool": "pay", "args": {"sum": 1}})
    good = json.dumps({"type": "final_answer", "answer": "Done."})

    result = await play(
        *("chat", answer(sse(Chats.delta("abort", content=decision), "[DONE]")), answer(events("chat", good))),
        till=till,
        driver=ReActDriver(),
    )

    assert (result.text, till.paid) == ("Done.", [])


@pytest.mark.row("PF24")
@pytest.mark.parametrize(
    ("first", "then", "reason"),
    [
        ("length", "stop", StopReason.OUTPUT_TRUNCATED),
        ("content_filter", "stop", StopReason.REFUSED),
        ("stop", "content_filter", StopReason.REFUSED),
        ("abort", "stop", StopReason.INCOMPLETE_STREAM),
    ],
)
async def test_of_two_finishes_the_one_further_from_a_completion_counts(first, then, reason):
    half: Script = answer(sse(Chats.delta(first, content="Half"), Chats.delta(then), "[DONE]"))

    result = await play("chat", *[half] * 5, budget=ONCE)

    assert result.reason is reason


def paused(*halves: str) -> tuple[Script, asyncio.Event]:
    """Return a script that sends the first half, waits until it may continue, and sends the second."""
    go_on = asyncio.Event()

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + halves[0].encode())
        await writer.drain()
        await go_on.wait()
        writer.write("".join(halves[1:]).encode())
        await writer.drain()
        raise ConnectionError

    return script, go_on


GOES_ON = {
    "chat": (
        (Chats.calls(Chats.call("a", ONE)), Chats.delta("tool_calls")),
        (Chats.calls(Chats.call("b", TWO, index=1)), Chats.delta("tool_calls"), "[DONE]"),
    ),
    "gemini": ((Geminis.chunk(Geminis.call("a", {"sum": 1}), finish="STOP"),), (Geminis.chunk(Geminis.call("b", {"sum": 2}), finish="STOP"),)),
}  # fmt: skip


@pytest.mark.row("PF23")
@pytest.mark.parametrize("seconds", [0.05, pytest.param(6, marks=pytest.mark.soak)])
@pytest.mark.parametrize("dialect", GOES_ON)
async def test_a_stream_that_pauses_after_a_finish_and_goes_on_loses_nothing(dialect, seconds):
    first, then = GOES_ON[dialect]
    script, go_on = paused(sse(*first), sse(*then))
    till = Till()
    # Six seconds are longer than the wait for last words: that wait must not hold here.
    asyncio.get_running_loop().call_later(seconds, go_on.set)

    result = await play(dialect, script, till=till)

    assert outcome(result) == (True, ["ok", "ok"])
    assert till.paid == [{"sum": 1}, {"sum": 2}]
    await check_session(result.session)


@pytest.mark.row("PF23")
@pytest.mark.parametrize("ending", ["silence", "end"])
@pytest.mark.parametrize("dialect", GOES_ON)
async def test_content_after_a_finish_needs_a_finish_of_its_own(dialect, ending):
    first, then = GOES_ON[dialect]
    cut = sse(*first) + sse(then[0]).replace(', "finishReason": "STOP"', "")
    script, go_on = paused(cut)
    if ending == "end":
        go_on.set()
    till = Till()

    result = await play(dialect, script, till=till, budget=ONCE, model={"timeouts": Timeouts(idle_seconds=0.2)})

    assert till.paid == []
    assert result.reason in (StopReason.INCOMPLETE_STREAM, StopReason.MODEL_ERROR)


@pytest.mark.row("PF23")
@pytest.mark.parametrize("dialect", GOES_ON)
async def test_a_silence_right_after_a_finish_ends_the_response(dialect):
    script, _ = paused(sse(*GOES_ON[dialect][0]))
    till = Till()

    result = await play(dialect, script, till=till, model={"timeouts": Timeouts(idle_seconds=0.2)})

    assert outcome(result) == (True, ["ok"])


MAY_GO_ON: dict[str, tuple[Callable[[], Response], list[Any], bool]] = {
    "chat, after a finish": (lambda: ChatResponse({}), [Chats.delta("stop", content="x")], True),
    "chat, after the usage": (
        lambda: ChatResponse({}),
        [Chats.delta("stop", content="x"), {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}],
        False,
    ),
    "chat, with usage in each chunk": (
        lambda: ChatResponse({}),
        [{**Chats.delta("stop", content="x"), "usage": {"prompt_tokens": 1, "completion_tokens": 1}}],
        True,
    ),
    "gemini, after a finish": (lambda: GeminiResponse({}), [Geminis.chunk({"text": "x"}, finish="STOP")], True),
}


@pytest.mark.row("PF23")
@pytest.mark.parametrize(("make", "said", "may_go_on"), MAY_GO_ON.values(), ids=MAY_GO_ON)
def test_the_short_wait_holds_only_where_nothing_but_the_end_may_follow(make, said, may_go_on):
    response = make()
    for one in said:
        response.add(json.dumps(one).encode())

    assert (response.is_whole, response.may_go_on) == (True, may_go_on)


@pytest.mark.row("PF23")
@pytest.mark.parametrize("dialect", GOES_ON)
async def test_a_server_that_never_closes_after_its_finish_is_not_waited_for_as_in_mid_stream(dialect):
    till = Till()
    script, _ = paused(sse(*GOES_ON[dialect][0]))
    patient = {"timeouts": Timeouts(idle_seconds=10_000, total_seconds=20_000, after_finish_seconds=0.2)}

    result = await play(dialect, script, till=till, model=patient)

    assert outcome(result) == (True, ["ok"])


@pytest.mark.row("PF23")
@pytest.mark.parametrize(
    ("response", "said"),
    [
        (ChatResponse({}), [Chats.delta("stop", content="x"), Chats.delta(content="y"), Chats.delta("stop")]),
        (GeminiResponse({}), [Geminis.chunk({"text": "x"}, finish="STOP"), Geminis.chunk({"text": "y"}), Geminis.chunk(finish="STOP")]),
    ],
    ids=["chat", "gemini"],
)  # fmt: skip
def test_a_server_that_went_on_after_a_finish_is_waited_for_as_in_mid_stream(response, said):
    waits = []
    for one in said:
        response.add(json.dumps(one).encode())
        waits.append((response.is_whole, response.goes_on))

    assert waits == [(True, False), (False, True), (True, True)]


@pytest.mark.row("PF24", "PF9")
@pytest.mark.parametrize(("reason", "text"), [("end_turn", "Whole."), (None, "Done.")])
async def test_the_done_of_other_dialects_ends_an_anthropic_stream_that_told_its_reason(reason, text):
    told = [] if reason is None else [Anthropics.reason(reason)]

    result = await play("anthropic", answer(sse(Anthropics.start, *Anthropics.text(0, "Whole."), *told, "[DONE]")))

    assert (result.completed, result.text) == (True, text)


CHAT_USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}
COUNTED = {
    "chat, cut": ("chat", sse({**Chats.delta(content="Half"), "usage": CHAT_USAGE})),
    "chat, an unknown ending": ("chat", sse(Chats.delta("abort", content="Half"), {"choices": [], "usage": CHAT_USAGE}, "[DONE]")),
    "chat, an error": ("chat", sse({**Chats.delta(content="Half"), "usage": CHAT_USAGE}, {"error": {"message": "overloaded", "code": 529}})),
    **{
        f"responses, {status}": (
            "responses",
            sse(
                Responseses.done(0, Responseses.message("Half")),
                Responseses.completed(status=status, usage={"input_tokens": 1000, "output_tokens": 100}, **more),
            ),
        )
        for status, more in {
            "failed": {"error": {"code": "server_error", "message": "It broke."}},
            "incomplete": {"incomplete_details": {"reason": "odd"}},
        }.items()
    },
}  # fmt: skip


@pytest.mark.row("N08")
@pytest.mark.parametrize(("dialect", "half"), COUNTED.values(), ids=COUNTED)
async def test_an_attempt_that_broke_off_counts_what_its_server_had_counted(dialect, half):
    result = await play(dialect, answer(half), budget=ONCE)

    (failed,) = [event for event in await result.session.events() if event.type == "model.failed"]
    assert (failed.usage.input_tokens, failed.usage.output_tokens, failed.usage.estimated) == (1000, 100, False)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (1000, 100)


USAGE = {"input_tokens": 1000, "output_tokens": 1}
BEGUN = {
    "anthropic": sse({**Anthropics.start, "message": {"usage": USAGE}}, *Anthropics.text(0, "Half")[:2]),
    "gemini": sse({**Geminis.chunk({"text": "Half"}), "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 1}}),
    "chat": sse({**Chats.delta(content="Half"), "usage": {"prompt_tokens": 1000, "completion_tokens": 1}}),
}  # fmt: skip


@pytest.mark.row("N08")
@pytest.mark.parametrize("how", ["cancel", "stop"])
@pytest.mark.parametrize("dialect", BEGUN)
async def test_an_attempt_that_was_interrupted_counts_what_its_server_had_counted(dialect, how):
    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + BEGUN[dialect].encode())
        await writer.drain()
        await asyncio.Event().wait()

    async with serving(script) as server:
        model = MODELS[dialect]("m", base_url=server.url, api_key=None)
        async with Agent(model).stream("go") as run:
            async for event in run:
                if event.type == "model.delta":
                    run.cancel() if how == "cancel" else run.stop(StopReason.TASK_DENIED, "No.")

    events = await run.result.session.events()
    (ended,) = [event for event in events if event.type in ("model.failed", "model.finished")]
    assert ended.usage.input_tokens == 1000
    assert run.result.usage.input_tokens == 1000
