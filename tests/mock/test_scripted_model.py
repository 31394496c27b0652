"""The scripted model: a Model without a network."""

import asyncio
import contextlib
import json

import pytest

from treadle import Agent, resolve_model
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
from treadle.messages import Finish, Message, Text, Thinking, ToolCall, Usage, user_message
from treadle.mock.model import scripted_model
from treadle.ports import CallReady, Model, ModelEnd, ModelRequest, TextDelta, ThinkingDelta
from treadle.testing import MockProvider, Script, ScriptedModel, Turn, call, text

REQUEST = ModelRequest(messages=(user_message("go"),))


async def play(model: Model, request: ModelRequest = REQUEST):
    return [part async for part in model.stream(request)]


async def play_until_error(model: Model):
    """Return what came, and the error that ended it."""
    parts = []
    try:
        async for part in model.stream(REQUEST):
            parts.append(part)
    except ModelError as error:
        return parts, error
    pytest.fail("no error came")


@pytest.mark.row("D14")
async def test_words_and_calls_stream_and_end_as_one_message():
    model = ScriptedModel([[text("I look."), call("a", x=1), call("b", arguments='{"x": ')]])

    parts = await play(model)

    first, second = (
        ToolCall(id="call_1", name="a", arguments='{"x": 1}'),
        ToolCall(id="call_2", name="b", arguments='{"x": '),
    )
    assert parts == [
        TextDelta("I l"),
        TextDelta("ook"),
        TextDelta("."),
        CallReady(first),
        ModelEnd(parts=(Text("I look."), first, second), finish=Finish.CALLS),
    ]
    assert model.requests == [REQUEST]


@pytest.mark.row("D14")
async def test_the_last_turn_repeats_with_fresh_call_ids():
    model = ScriptedModel([text("first"), call("again")])
    ends = [(await play(model))[-1] for _ in range(4)]
    assert ends[0].parts == (Text("first"),)
    assert [end.parts[0].id for end in ends[1:]] == ["call_1", "call_2", "call_3"]


async def test_a_script_may_refuse_to_repeat():
    model = ScriptedModel(Script(["only"], exhausted="error"))
    await play(model)
    with pytest.raises(ModelRejected, match="used up: it has 1 turns"):
        await play(model)


@pytest.mark.row("D14")
async def test_exceptions_are_raised_and_functions_are_asked():
    async def later(request):
        return call("seen", words=request.messages[0].text)

    model = ScriptedModel(
        [ModelUnavailable("busy", status=529), lambda request: "now", later, lambda _: IncompleteStream("cut")]
    )

    with pytest.raises(ModelUnavailable, match="busy"):
        await play(model)
    assert (await play(model))[-1].parts == (Text("now"),)
    assert (await play(model))[-1].parts[0].arguments == '{"words": "go"}'
    with pytest.raises(IncompleteStream):
        await play(model)
    assert len(model.requests) == 4


@pytest.mark.row("D14")
async def test_usage_finish_thinking_and_refusal_are_reported():
    model = ScriptedModel(
        [
            Turn(text="a", thinking="Hm.", usage=Usage(input_tokens=3, output_tokens=2), finish="length", pieces=1),
            Turn(refusal="No.", pieces=1),
        ],
        name="m",
        price=Price(input=1, output=2),
    )
    assert await play(model) == [
        ThinkingDelta("Hm."),
        TextDelta("a"),
        ModelEnd(
            parts=(Thinking(text="Hm."), Text("a")),
            finish=Finish.LENGTH,
            finish_reason="length",
            usage=Usage(input_tokens=3, output_tokens=2),
        ),
    ]
    assert await play(model) == [TextDelta("No."), ModelEnd(parts=(Text("No."),), finish=Finish.REFUSED)]
    assert (model.name, model.price) == ("m", Price(input=1, output=2))


async def test_the_last_call_of_a_response_that_ran_out_of_tokens_is_marked_as_cut():
    (*ready, end) = await play(ScriptedModel([Turn(calls=(call("a"), call("b")), finish="length")]))
    assert [part.call.name for part in ready] == ["a"]
    assert end.cut_calls == frozenset({"call_2"})


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "[" * 100_000])
async def test_a_call_whose_arguments_never_close_an_object_is_never_ready(arguments):
    (end,) = await play(ScriptedModel([call("a", arguments=arguments)]))
    assert end.parts[0].arguments == arguments


NOW, LATER = "Tue, 03 Nov 2026 10:00:00 GMT", "Tue, 03 Nov 2026 10:01:30 GMT"


@pytest.mark.row("R06", "W11")
@pytest.mark.parametrize(
    ("turn", "kind", "status", "wait"),
    [
        (Turn(status=429, headers={"retry-after": "2.5"}), ModelUnavailable, 429, 2.5),
        (Turn(status=429, headers={"retry-after": "soon"}), ModelUnavailable, 429, None),
        (Turn(status=429, headers={"Retry-After-MS": "1500", "retry-after": "2"}), ModelUnavailable, 429, 1.5),
        (Turn(status=429, headers={"Retry-After": LATER, "Date": NOW}), ModelUnavailable, 429, 90),
        (Turn(status=429, headers={"retry-after": "1e9"}), ModelUnavailable, 429, 1e9),
        (Turn(status=429, error="Please try again in 7.5s."), ModelUnavailable, 429, 7.5),
        (Turn(status=529), ModelUnavailable, 529, None),
        (Turn(status=400, error="context_length_exceeded: too long"), ContextOverflow, 400, None),
        (Turn(status=413), ContextOverflow, 413, None),
        (Turn(status=429, error={"code": "insufficient_quota"}), ModelRejected, 429, None),
        (Turn(status=400, error={"code": "tool_use_failed", "message": "?"}), ModelResponseInvalid, 400, None),
        (Turn(error={"type": "invalid_request_error", "message": "no"}), ModelRejected, None, None),
        (Turn(status=401, error="bad key"), ModelRejected, 401, None),
        (Turn(status=400, error={"message": "no"}), ModelRejected, 400, None),
        (Turn(error="overloaded"), ModelUnavailable, None, None),
        (Turn(status=301, body=b""), ModelResponseInvalid, 301, None),
        (Turn(body=b"<html>"), ModelResponseInvalid, 200, None),
        (Turn(text="a", cut="before-answer"), ModelUnavailable, None, None),
    ],
)
async def test_faults_that_give_no_answer_are_the_errors_of_a_real_provider(turn, kind, status, wait):
    parts, error = await play_until_error(ScriptedModel([turn]))
    assert parts == []
    assert (type(error), error.status, error.retry_after_seconds) == (kind, status, wait)


@pytest.mark.row("PF15")
async def test_what_a_policy_forbids_is_a_response_of_nothing_but_a_refusal():
    turn = Turn(status=400, error={"code": "content_filter", "message": "filtered"})

    [end] = await play(ScriptedModel([turn]))

    assert (end.parts, end.finish, end.finish_reason) == ((), Finish.REFUSED, "content_filter")
    assert "filtered" in end.message


@pytest.mark.row("X04")
@pytest.mark.parametrize(
    "turn",
    [
        Turn(status=400, error="context_length_exceeded: 9000 tokens"),
        Turn(status=400, error={"code": "content_filter", "message": "filtered"}),
        Turn(status=400, error="Output blocked by content filtering policy"),
        Turn(status=400, error="no"),
        Turn(status=413),
        Turn(error={"code": "invalid_prompt", "message": "no"}),
        Turn(error="context_length_exceeded"),
    ],
)
async def test_a_script_ends_a_run_as_it_does_over_http(turn):
    played = await Agent(ScriptedModel([turn])).run("go")
    async with MockProvider([turn]) as mock:
        asked = await Agent(resolve_model("openai-chat:m", base_url=mock.base_url)).run("go")

    assert played.reason == asked.reason


@pytest.mark.parametrize(
    ("cut", "words", "ready"),
    [("mid-text", 2, 0), ("mid-arguments", 3, 1), ("before-terminal", 3, 2), ("reset", 2, 0), (10, 2, 0)],
)
async def test_a_cut_answer_is_incomplete(cut, words, ready):
    model = ScriptedModel([Turn(text="abc", calls=(call("a"), call("b")), cut=cut)])
    parts, error = await play_until_error(model)
    assert isinstance(error, IncompleteStream if cut != "reset" else ModelUnavailable)
    assert sum(isinstance(part, TextDelta) for part in parts) == words
    assert sum(isinstance(part, CallReady) for part in parts) == ready


async def test_a_gate_holds_the_answer_after_a_call_until_it_is_opened():
    model = ScriptedModel([Turn(calls=(call("a"), call("b")), gate="mid", hold_after_call=0)])
    ready = asyncio.Queue()

    async def consume():
        async for part in model.stream(REQUEST):
            ready.put_nowait(part)

    async with asyncio.TaskGroup() as group:
        group.create_task(consume())
        await model.gate("mid").wait_reached()
        assert (await ready.get()).call.name == "a"
        assert ready.empty()
        model.gate("mid").open()
    assert (await ready.get()).call.name == "b"
    assert isinstance(await ready.get(), ModelEnd)


async def test_a_turn_may_wait_at_a_plain_event():
    event = asyncio.Event()
    model = ScriptedModel([Turn(text="hi", gate=event)])
    playing = asyncio.ensure_future(play(model))
    await asyncio.sleep(0)
    assert not playing.done()
    event.set()
    assert (await playing)[-1].parts == (Text("hi"),)


async def test_a_stalled_answer_ends_when_its_reader_gives_up():
    model = ScriptedModel([Turn(text="abc", cut="before-terminal", cut_by="stall")])
    got = asyncio.Semaphore(0)

    async def consume():
        async for _ in model.stream(REQUEST):
            got.release()

    consuming = asyncio.ensure_future(consume())
    for _ in range(3):
        await got.acquire()
    consuming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consuming


@pytest.mark.row("D14")
async def test_a_script_file_is_a_model(tmp_path):
    file = tmp_path / "s.json"
    file.write_text(json.dumps([{"text": "hi", "calls": [{"name": "a", "arguments": {"x": 1}}]}]), encoding="utf-8")
    model = scripted_model(file)
    assert model.name == f"script:{file}"
    assert (await play(model))[-1].parts == (Text("hi"), ToolCall(id="call_1", name="a", arguments='{"x": 1}'))


def history(*messages):
    return ModelRequest(messages=(user_message("go"), *messages))


@pytest.mark.row("D14")
async def test_a_script_file_goes_on_where_another_process_left_it(tmp_path):
    file = tmp_path / "s.json"
    file.write_text(
        '[{"status": 503}, {"calls": [{"name": "pay"}]}, {"cut": 1}, {"calls": [{"name": "tell"}]}, {"text": "end"}]',
        encoding="utf-8",
    )
    mine = {"role": "assistant", "origin": f"script:{file}"}
    paid = Message(**mine, parts=(ToolCall(id="call_1", name="pay", arguments="{}"),))
    others = Message(role="assistant", origin="openai-chat:m", parts=(Text("hm"),))

    async def first_answer(request):
        model = scripted_model(file)
        while True:
            with contextlib.suppress(ModelError):
                return (await play(model, request))[-1].parts[0]

    assert (await first_answer(history(others))).name == "pay"
    assert await first_answer(history(paid)) == ToolCall(id="call_2", name="tell", arguments="{}")
    assert await first_answer(history(paid, paid)) == Text("end")
    assert await first_answer(history(*[paid] * 9)) == Text("end")


async def test_a_scripted_model_in_python_begins_at_its_beginning():
    model = ScriptedModel(["first", "second"])
    assert (await play(model, history(Message(role="assistant", origin="scripted", parts=(Text("x"),)))))[-1].parts == (
        Text("first"),
    )


@pytest.mark.parametrize("turns", [[], "hi", [3], [None], [[]], {}])
def test_what_is_no_list_of_turns_is_refused_at_once(turns):
    with pytest.raises(ConfigurationError):
        ScriptedModel(turns)


async def test_an_answer_whose_finish_was_sent_is_whole_without_the_rest():
    assert (await play(ScriptedModel([Turn(text="abc", cut="before-done")])))[-1].parts == (Text("abc"),)
