"""Recorded answers of Cohere's Chat, version 2, beside what an independent reader makes of them."""

import json
from typing import Any

import pytest
from _dialects import Bodied, exchanges
from _oracle_cohere import answer_of
from _replay import heard

from treadle.errors import ContextOverflow
from treadle.messages import Finish, Part, Text, Thinking, ToolCall, Usage
from treadle.ports import CallReady, ModelEnd, ModelPart, TextDelta, ThinkingDelta
from treadle.tools import JsonObject

RECORDED = exchanges("cohere", "messages")


async def hear(one: Bodied) -> list[ModelPart]:
    return await heard(f"cohere:{one.model}", one.content, status=one.status, stream=one.request["stream"])


@pytest.mark.row("P-COHERE")
@pytest.mark.parametrize("one", RECORDED, ids=str)
async def test_each_recorded_answer_is_what_an_independent_reader_makes_of_it(one: Bodied) -> None:
    if one.status != 200:
        with pytest.raises(ContextOverflow, match="too many tokens"):
            await hear(one)
        return
    answer = answer_of(one)
    parts = await hear(one)

    end = parts[-1]
    assert isinstance(end, ModelEnd)
    message = answer["message"]
    plan = [{"tool_plan": message["tool_plan"]}] if message.get("tool_plan") else []
    assert list(map(as_wire, end.parts)) == [
        *plan,
        *message.get("content", ()),
        *map(as_call, message.get("tool_calls", ())),
    ]
    assert cited_in(end) == message.get("citations", [])
    assert end.finish is {"COMPLETE": Finish.STOP, "TOOL_CALL": Finish.CALLS}[answer["finish_reason"]]
    assert end.finish_reason == answer["finish_reason"]
    assert end.usage == usage_of(answer["usage"])
    assert said_in(parts, TextDelta) == "".join(part.text for part in end.parts if isinstance(part, Text))
    assert said_in(parts, ThinkingDelta) == "".join(part.text for part in end.parts if isinstance(part, Thinking))
    calls = [part for part in end.parts if isinstance(part, ToolCall)]
    assert [part.call for part in parts if isinstance(part, CallReady)] == calls


def as_wire(part: Part) -> JsonObject:
    match part:
        case Text() if part.text.startswith(("I will", "I'm going")):
            return {"tool_plan": part.text}
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking():
            return {"type": "thinking", "thinking": part.text}
        case ToolCall():
            return {"id": part.id, "name": part.name, "arguments": json.loads(part.arguments)}
    raise AssertionError(part)


def as_call(call: JsonObject) -> JsonObject:
    function = call["function"]
    return {"id": call["id"], "name": function["name"], "arguments": json.loads(function["arguments"] or "{}")}


def cited_in(end: ModelEnd) -> list[Any]:
    texts = [part for part in end.parts if isinstance(part, Text) and part.signature]
    return [cited for text in texts for cited in json.loads(text.signature or "")["citations"]]


def said_in(parts: list[ModelPart], kind: type[TextDelta] | type[ThinkingDelta]) -> str:
    return "".join(part.text for part in parts if isinstance(part, kind))


def usage_of(usage: JsonObject) -> Usage:
    counts = usage["tokens"]
    return Usage(
        input_tokens=counts["input_tokens"],
        output_tokens=counts["output_tokens"],
        cached_input_tokens=usage["cached_tokens"],
        reasoning_tokens=counts.get("reasoning_tokens", 0),
    )
