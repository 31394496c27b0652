"""The mock speaks Cohere's Chat as the vendor does: what that refuses it refuses."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from treadle.mock.dialects.cohere import CohereChat
from treadle.testing import Refusal, Turn, call
from treadle.tools import JsonObject

GO = {"role": "user", "content": "go"}
SCHEMA = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


def tool(name: str = "look", **more: Any) -> JsonObject:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **more}}


def use(*ids: str, **more: Any) -> JsonObject:
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "tool_calls": calls, **more}


def result(call_id: str, **more: Any) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": "seen", **more}


def body(**more: Any) -> JsonObject:
    return {"model": "m", "messages": [GO], **more}


VALID = [
    [{"role": "system", "content": "Be brief."}, GO],
    [GO, use("a", "b"), result("b"), result("a"), GO],
    [GO, use("a", tool_plan="I look.", content=[{"type": "thinking", "thinking": "Hm."}]), result("a")],
    [GO, use("a", content=[{"type": "text", "text": ""}]), result("a")],
    [GO, use("a"), result("a", content=[{"type": "document", "document": {"id": "1", "data": {"a": "b"}}}])],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]}],
]
INVALID: list[tuple[list[JsonObject], str]] = [
    ([], "at least 1 token"),
    ([GO, {"role": "system", "content": "x"}], "system turn must be the first"),
    ([{"role": "developer", "content": "x"}], "role' cannot be"),
    ([{"role": "user", "content": "  "}], "must not be empty in a turn"),
    ([GO, {"role": "assistant", "content": []}], "must not be empty in a turn"),
    ([GO, use("a", content="I look."), result("a")], "text content is not allowed when tool_calls"),
    ([GO, use("a", content=[{"type": "text", "text": "x"}]), result("a")], "text content is not allowed"),
    ([GO, use("a")], "without a tool message"),
    ([GO, use("a"), GO], "without a tool message"),
    ([GO, use("a", "b"), result("a"), GO], "without a tool message"),
    ([GO, result("a")], "is not found in the previous assistant message"),
    ([GO, use("a"), result("a"), result("a")], "is not found"),
    ([GO, use("a"), result("a"), use("a"), result("a")], "used by more than one tool call"),
    ([GO, use("a"), result("a", is_error=True)], "unknown field: parameter 'is_error'"),
    ([GO, use("a"), result("a", content=[{"type": "image_url", "image_url": {"url": "x"}}])], 'cannot be "image_url"'),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:x"}}]}], "image_url.url' does not match"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}] * 21}], "at most 20 images"),
    ([GO, {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "x", "arguments": "{"}}]}], "not a JSON object"),
]  # fmt: skip


@pytest.mark.row("P-MOCK", "P-COHERE")
def test_thinking_is_refused_where_it_is_switched_off() -> None:
    history = [GO, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]}]

    CohereChat().check(body(messages=history, thinking={"type": "enabled"}))
    with pytest.raises(Refusal, match="thinking is disabled"):
        CohereChat().check(body(messages=history, thinking={"type": "disabled"}))


WRONG: list[tuple[JsonObject, str]] = [
    ({"model": ""}, "a model parameter is required"),
    ({"parallel_tool_calls": False}, "unknown field: parameter 'parallel_tool_calls'"),
    ({"stream": "yes"}, "should be of type bool"),
    ({"temperature": 2}, "'temperature' must be at most 1"),
    ({"presence_penalty": 0.1, "frequency_penalty": 0.1}, "cannot specify both"),
    ({"stop_sequences": list("abcdef")}, "at most 5"),
    ({"tool_choice": "REQUIRED"}, "without tools"),
    ({"tools": [tool()], "tool_choice": "required"}, "'tool_choice' cannot be"),
    ({"tools": []}, "must not be empty"),
    ({"tools": [tool(), tool()]}, "same name"),
    ({"tools": [tool("a b")]}, "function.name' does not match"),
    ({"tools": [tool(strict=True)]}, "unknown field: parameter 'strict'"),
    ({"tools": [tool(parameters={"type": "object"})]}, "an object with properties"),
    ({"tools": [tool(parameters={"type": "object", "properties": {}})], "strict_tools": True}, "at least one required"),
    ({"tools": [tool()], "response_format": {"type": "json_object"}}, "not supported with tools"),
    ({"documents": ["x"], "response_format": {"type": "json_object"}}, "not supported with RAG"),
    ({"response_format": {"type": "json_schema"}}, "response_format.type' cannot be"),
    ({"response_format": {"type": "json_object", "json_schema": {"type": "array"}}}, "must be object"),
    ({"thinking": {"type": "on"}}, "thinking.type"),
    ({"citation_options": {"mode": "best"}}, "citation_options.mode"),
    ({"documents": []}, "must not be empty"),
]  # fmt: skip
BAD_REQUESTS = [(body(**wrong), words) for wrong, words in WRONG]


@pytest.mark.row("P-MOCK", "P-COHERE")
def test_what_is_said_beside_calls_is_the_plan() -> None:
    ids: Iterator[str] = (f"c{number}" for number in count(1))
    [piece] = (
        CohereChat().answer(Turn(text="I look.", calls=(call("look", key="a"),)), body(), number=1, ids=ids).pieces
    )

    assert b'"tool_plan":"I look."' in piece.content
    assert b'"finish_reason":"TOOL_CALL"' in piece.content
    assert b'"content"' not in piece.content
