"""Recorded answers of Converse, beside what an independent reader makes of them."""

import json

import pytest
from _dialects import Bodied, exchanges
from _oracle_converse import answer_of, apart
from _replay import heard

from treadle.errors import ModelRejected
from treadle.messages import Finish, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta
from treadle.tools import JsonObject

CONVERSE = exchanges("bedrock_converse", "messages")


async def hear(one: Bodied) -> list[ModelPart]:
    return await heard(f"bedrock:{one.model}", one.content, status=one.status, stream="stream" in one.path)


@pytest.mark.row("P-CONVERSE")
@pytest.mark.parametrize("one", CONVERSE, ids=str)
async def test_each_recorded_answer_is_what_an_independent_reader_makes_of_it(one: Bodied) -> None:
    if one.status != 200:
        with pytest.raises(ModelRejected, match=json.loads(one.content)["message"].rstrip(".")):
            await hear(one)
        return
    assert_converse(await hear(one), answer_of(one))


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
