"""Recorded traffic of Bedrock: Converse, and Claude at InvokeModel; read whole and cut at every byte, and played again."""

import json
from base64 import b64encode
from urllib.parse import quote

import pytest
from _dialects import Bodied, Conversation, exchanges, loops, text_of
from _oracle_anthropic import ORACLE as CLAUDE
from _oracle_anthropic import events_of, message_of
from _oracle_converse import answer_of, apart, stretch
from _replay import Stretch, heard, play
from test_loops_anthropic import assert_same

from treadle.errors import ModelError, ModelRejected
from treadle.messages import Finish, Part, Text, Thinking, ToolCall, Usage
from treadle.mock.dialects.shared import event_frame
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta
from treadle.tools import JsonObject

FORMS = pytest.mark.parametrize("in_other_form", [False, True], ids=["as-recorded", "synthetic-other-form"])
CONVERSE = exchanges("bedrock_converse", "messages")
INVOKE = exchanges("bedrock_invoke", "anthropic_version", "messages")


# --- loops -----------------------------------------------------------------------------------------------------------


@pytest.mark.row("P-CONVERSE", "W03")
@FORMS
@pytest.mark.parametrize("loop", loops("bedrock_converse", "messages"), ids=str)
async def test_a_recorded_loop_goes_as_recorded(loop: Conversation, in_other_form: bool) -> None:
    played = await play(stretch(loop, in_other_form=in_other_form))

    played.check()
    way = "converse-stream" if played.stretches[0].stream else "converse"
    model = quote(loop.exchanges[0].model, safe="")
    assert {one.path for one in played.requests} == {f"/v1/model/{model}/{way}"}


@pytest.mark.row("P-INVOKE")
@FORMS
@pytest.mark.parametrize("loop", loops("bedrock_invoke", "anthropic_version", "messages"), ids=str)
async def test_a_recorded_loop_of_claude_goes_as_recorded(loop: Conversation, in_other_form: bool) -> None:
    played = await play(claude(loop, in_other_form=in_other_form))

    played.check()


def claude(loop: Conversation, *, in_other_form: bool) -> Stretch:
    was_streamed = loop.exchanges[0].is_stream
    texts = [text_of(one) for one in loop.exchanges]
    every = tuple(one.with_body(text) for one, text in zip(loop.exchanges, texts, strict=True))
    other: list[str | bytes] = [
        one.body if one.status != 200 else json.dumps(message_of(one.body)) if was_streamed else chunks(events_of(one))
        for one in every
    ]
    return Stretch(
        exchanges=every,
        oracle=CLAUDE,
        model=f"bedrock-claude:{loop.exchanges[0].model}",
        stream=was_streamed is not in_other_form,
        bodies=other if in_other_form else [one.content for one in loop.exchanges],
    )


def chunks(events: bytes) -> bytes:
    lines = [line.removeprefix(b"data: ") for line in events.splitlines() if line.startswith(b"data: ")]
    return b"".join(event_frame("chunk", json.dumps({"bytes": encoded(line)}).encode()) for line in lines)


def encoded(line: bytes) -> str:
    return b64encode(line).decode()


# --- each answer -----------------------------------------------------------------------------------------------------


async def hear(name: str, one: Bodied) -> list[ModelPart]:
    return await heard(f"{name}:{one.model}", one.content, status=one.status, stream="stream" in one.path)


@pytest.mark.row("P-CONVERSE")
@pytest.mark.parametrize("one", CONVERSE, ids=str)
async def test_each_recorded_answer_is_what_an_independent_reader_makes_of_it(one: Bodied) -> None:
    if one.status != 200:
        with pytest.raises(ModelRejected, match=json.loads(one.content)["message"].rstrip(".")):
            await hear("bedrock", one)
        return
    assert_converse(await hear("bedrock", one), answer_of(one))


@pytest.mark.row("P-INVOKE")
@pytest.mark.parametrize("one", INVOKE, ids=str)
async def test_each_recorded_answer_of_claude_is_what_an_independent_reader_makes_of_it(one: Bodied) -> None:
    if one.status != 200:
        with pytest.raises(ModelError, match=json.loads(one.content)["message"][:40]):
            await hear("bedrock-claude", one)
        return
    message = message_of(text_of(one))
    parts = await hear("bedrock-claude", one)
    if message["stop_reason"] in ("end_turn", "tool_use"):
        assert_same(parts, message)
    else:
        assert parts[-1].finish_reason == message["stop_reason"]


def assert_converse(parts: list[ModelPart], answer: JsonObject) -> None:
    end = parts[-1]
    assert isinstance(end, ModelEnd)
    content = [shown for block in apart(answer["output"]["message"]["content"]) if (shown := without_defaults(block))]
    assert list(map(as_block, end.parts)) == content
    finishes = {"tool_use": Finish.CALLS, "end_turn": Finish.STOP, "max_tokens": Finish.LENGTH}
    assert end.finish is finishes[answer["stopReason"]]
    assert end.usage == usage_of(answer["usage"])
    said = "".join(part.text for part in parts if isinstance(part, TextDelta))
    assert said == "".join(part.text for part in end.parts if isinstance(part, Text))
    assert [part.call for part in parts if isinstance(part, CallReady)] == [
        part for part in end.parts if isinstance(part, ToolCall)
    ]


def as_block(part: Part) -> JsonObject:
    match part:
        case Text(signature=None):
            return {"text": part.text}
        case Text():
            return {"citationsContent": {"content": [{"text": part.text}], **json.loads(part.signature)}}
        case Thinking(payload=None, signature=None):
            return {"reasoningContent": {"reasoningText": {"text": part.text}}}
        case Thinking(payload=None):
            return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}
        case Thinking(payload=payload):
            return payload
        case ToolCall():
            return {"toolUse": {"toolUseId": part.id, "name": part.name, "input": json.loads(part.arguments)}}
    raise AssertionError(part)


def without_defaults(block: JsonObject) -> JsonObject:
    match block:
        case {"text": ""}:
            return {}
        case {"toolUse": call}:
            return {"toolUse": {name: value for name, value in call.items() if name != "type"}}
    return block


def usage_of(counts: JsonObject) -> Usage:
    cached, written = counts.get("cacheReadInputTokens", 0), counts.get("cacheWriteInputTokens", 0)
    return Usage(
        input_tokens=counts["inputTokens"] + cached + written,
        output_tokens=counts["outputTokens"],
        cached_input_tokens=cached,
        cache_written_tokens=written,
    )
