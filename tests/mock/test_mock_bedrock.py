"""The mock speaks Converse, InvokeModel and rawPredict as the vendors do: AWS's own client reads it, and what they refuse it refuses."""

import asyncio
import json
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from treadle.mock.dialects.anthropic import ClaudeAtACloud
from treadle.mock.dialects.bedrock import Converse, check_converse_history, check_converse_request
from treadle.testing import MockProvider, Refusal, Turn, call
from treadle.tools import JsonObject

GO = {"role": "user", "content": [{"text": "go"}]}
TOOLS = {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": {"type": "object"}}}}]}


def use(*ids: str) -> JsonObject:
    return {
        "role": "assistant",
        "content": [{"toolUse": {"toolUseId": one, "name": "look", "input": {}}} for one in ids],
    }


def results(*ids: str, **more: Any) -> JsonObject:
    return {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": one, "content": [{"text": "seen"}], **more}} for one in ids],
    }


def vendor(url: str) -> Any:
    return botocore.session.Session().create_client(
        "bedrock-runtime", region_name="us-east-1", endpoint_url=url, aws_access_key_id="a", aws_secret_access_key="b",
        config=Config(retries={"max_attempts": 1}),
    )  # fmt: skip


# --- what AWS's own client makes of it


@pytest.mark.row("P-MOCK")
async def test_the_vendors_client_reads_a_turn_in_both_forms() -> None:
    turn = Turn(thinking="Hm.", text="I look.", calls=(call("look", id="c1", key="a"),))

    def read(url: str) -> tuple[Any, list[Any]]:
        asked = {"modelId": "us.amazon.nova-lite-v1:0", "messages": [GO], "toolConfig": TOOLS}
        return vendor(url).converse(**asked), list(vendor(url).converse_stream(**asked)["stream"])

    async with MockProvider([turn, turn]) as provider:
        whole, events = await asyncio.to_thread(read, provider.base_url)

    content = whole["output"]["message"]["content"]
    assert content == [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "bW9jaw=="}}},
        {"text": "I look."},
        {"toolUse": {"input": {"key": "a"}, "name": "look", "toolUseId": "c1"}},
    ]
    assert (whole["stopReason"], set(whole["usage"])) == (
        "tool_use",
        {"inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens"},
    )
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    assert "".join(delta.get("text", "") for delta in deltas) == "I look."
    assert json.loads("".join(delta["toolUse"]["input"] for delta in deltas if "toolUse" in delta)) == {"key": "a"}
    assert [next(iter(event)) for event in events][-2:] == ["messageStop", "metadata"]


@pytest.mark.row("P-MOCK")
async def test_the_vendors_client_reads_errors_before_and_inside_a_stream() -> None:
    def read(url: str) -> tuple[Any, Any]:
        with pytest.raises(ClientError) as refused:
            vendor(url).converse(modelId="m", messages=[{"role": "assistant", "content": [{"text": "x"}]}])
        with pytest.raises(EventStreamError) as broken:
            list(vendor(url).converse_stream(modelId="m", messages=[GO])["stream"])
        return refused.value.response, broken.value.response

    async with MockProvider(
        [Turn(text="He", error={"type": "throttlingException", "message": "Slow down."})]
    ) as provider:
        refused, broken = await asyncio.to_thread(read, provider.base_url)

    assert refused["Error"]["Code"] == "ValidationException"
    assert "must start with a user message" in refused["Error"]["Message"]
    assert broken["Error"] == {"Code": "throttlingException", "Message": "Slow down."}


# --- what it refuses

BODIES: list[tuple[str, JsonObject]] = [
    ("extraneous key", {"messages": [GO], "model": "m"}),
    ("extraneous key", {"messages": [GO], "inferenceConfig": {"max_tokens": 1}}),
    ("greater than or equal to 1", {"messages": [GO], "inferenceConfig": {"maxTokens": 0}}),
    ("less than or equal to 1", {"messages": [GO], "inferenceConfig": {"temperature": 2}}),
    ("is blank", {"messages": [GO], "system": [{"text": " "}]}),
    ("stand behind", {"messages": [GO], "system": [{"cachePoint": {"type": "default"}}]}),
    ("greater than or equal to 1", {"messages": [GO], "toolConfig": {"tools": []}}),
    ("regular expression", {"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a.b", "inputSchema": {"json": {"type": "object"}}}}]}}),
    ("regular expression", {"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a" * 65, "inputSchema": {"json": {"type": "object"}}}}]}}),
    ("length", {"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a", "description": "", "inputSchema": {"json": {"type": "object"}}}}]}}),
    ("must be one of the following: object", {"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a", "inputSchema": {"json": {}}}}]}}),
    ("extraneous key [type]", {"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a", "inputSchema": {"type": "object"}}}]}}),
    ("duplicate tool names", {"messages": [GO], "toolConfig": {"tools": TOOLS["tools"] * 2}}),
    ("not in toolConfig", {"messages": [GO], "toolConfig": {**TOOLS, "toolChoice": {"tool": {"name": "other"}}}}),
    ("extraneous key [none]", {"messages": [GO], "toolConfig": {**TOOLS, "toolChoice": {"none": {}}}}),
    ("forces tool use", {"messages": [GO], "toolConfig": {**TOOLS, "toolChoice": {"any": {}}}, "additionalModelRequestFields": {"thinking": {"type": "enabled"}}}),
    ("cache points", {"messages": [{"role": "user", "content": [{"text": "go"}, *([{"cachePoint": {"type": "default"}}] * 5)]}]}),
    ("'toolConfig.tools.1.cachePoint.type' failed", {"messages": [GO], "toolConfig": {"tools": [*TOOLS["tools"], {"cachePoint": {"type": "ephemeral"}}]}}),
    ("'outputConfig.textFormat.type' failed", {"messages": [GO], "outputConfig": {"textFormat": {"type": "json"}}}),
    ("not valid JSON", {"messages": [GO], "outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{"}}}}}),
]  # fmt: skip


@pytest.mark.row("P-MOCK")
@pytest.mark.parametrize(("words", "body"), BODIES)
def test_a_body_that_the_vendor_refuses_is_refused(words: str, body: JsonObject) -> None:
    with pytest.raises(Refusal) as told:
        check_converse_request(body)
    assert words in told.value.message


HISTORIES: list[tuple[str, list[JsonObject]]] = [
    ("Member must have length", []),
    ("start with a user message", [use("a"), results("a")]),
    ("alternate", [GO, GO]),
    ("alternate", [GO, use("a"), results("a"), results("a")]),
    ("Member must have length", [{"role": "user", "content": []}]),
    ("enum value set", [{"role": "system", "content": [{"text": "x"}]}]),
    ("is blank", [{"role": "user", "content": [{"text": " "}]}]),
    ("exactly one member", [{"role": "user", "content": [{"text": "a", "searchResult": {}}]}]),
    ("extraneous key [toolUse]", [{"role": "user", "content": [{"toolUse": {"toolUseId": "a", "name": "x", "input": {}}}]}]),
    ("following Ids: b", [GO, use("a", "b"), results("a")]),
    ("following Ids: a", [GO, use("a"), GO]),
    ("following Ids: a", [GO, use("a")]),
    ("exceeds the number", [GO, use("a"), results("a", "a")]),
    ("exceeds the number", [results("a")]),
    ("must be unique", [GO, use("a"), results("a"), use("a"), results("a")]),
    ("regular expression", [GO, use("a b"), results("a b")]),
    ("enum value set", [GO, use("a"), results("a", status="failed")]),
    ("expected type: object", [GO, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "x", "input": "{}"}}]}]),
    ("Invalid `signature`", [GO, {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "Hm."}}}]}]),
    ("expected base64", [GO, {"role": "assistant", "content": [{"reasoningContent": {"redactedContent": "?"}}]}]),
    ("no text", [{"role": "user", "content": [{"document": {"format": "pdf", "name": "a", "source": {"bytes": "YQ=="}}}]}]),
    ("file name", [{"role": "user", "content": [{"text": "x"}, {"document": {"format": "pdf", "name": "a.pdf", "source": {"bytes": "YQ=="}}}]}]),
    ("duplicate document", [{"role": "user", "content": [{"text": "x"}, *([{"document": {"format": "pdf", "name": "a", "source": {"bytes": "YQ=="}}}] * 2)]}]),
    ("enum value set", [{"role": "user", "content": [{"image": {"format": "bmp", "source": {"bytes": "YQ=="}}}]}]),
    ("stand behind", [{"role": "user", "content": [{"cachePoint": {"type": "default"}}, {"text": "x"}]}]),
]  # fmt: skip


@pytest.mark.row("P-MOCK")
@pytest.mark.parametrize(("words", "messages"), HISTORIES)
def test_a_history_that_the_vendor_refuses_is_refused(words: str, messages: list[JsonObject]) -> None:
    with pytest.raises(Refusal) as told:
        check_converse_history(messages)
    assert words in told.value.message


@pytest.mark.row("P-MOCK")
def test_calls_without_declared_tools_are_refused_and_whole_histories_are_taken() -> None:
    with pytest.raises(Refusal, match="toolConfig field must be defined"):
        Converse(is_stream=True).check({"messages": [GO, use("a"), results("a")]})
    body = {"messages": [GO, use("a", "b"), results("b", "a", status="error")], "toolConfig": TOOLS}
    assert Converse(is_stream=True).check(body) is body


@pytest.mark.row("P-MOCK")
@pytest.mark.parametrize("path", ["/model/a:b/converse", "/model/a/b/converse", "/model//converse", "/v1/converse"])
def test_an_id_that_is_not_one_encoded_segment_is_refused(path: str) -> None:
    with pytest.raises(Refusal, match="identifier is invalid"):
        Converse(is_stream=False).with_head(path, {})


CLAUDE = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 9}
DOORS: list[tuple[Any, bool, str, JsonObject]] = [
    ("bedrock", True, "anthropic_version", CLAUDE),
    ("bedrock", True, "anthropic_version", {**CLAUDE, "anthropic_version": "vertex-2023-10-16"}),
    ("bedrock", True, "model: Extra inputs", {**CLAUDE, "anthropic_version": "bedrock-2023-05-31", "model": "m"}),
    ("bedrock", True, "stream: Extra inputs", {**CLAUDE, "anthropic_version": "bedrock-2023-05-31", "stream": True}),
    ("bedrock", False, "anthropic_beta", {**CLAUDE, "anthropic_version": "bedrock-2023-05-31", "anthropic_beta": "a"}),
    ("bedrock", False, "max_tokens: Field required", {"messages": CLAUDE["messages"], "anthropic_version": "bedrock-2023-05-31"}),
    ("bedrock", False, "URL sources", {**CLAUDE, "anthropic_version": "bedrock-2023-05-31", "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}]}]}),
    ("vertex", True, "model: Extra inputs", {**CLAUDE, "anthropic_version": "vertex-2023-10-16", "stream": True, "model": "m"}),
    ("vertex", True, "agree with the method", {**CLAUDE, "anthropic_version": "vertex-2023-10-16"}),
    ("vertex", False, "agree with the method", {**CLAUDE, "anthropic_version": "vertex-2023-10-16", "stream": True}),
]  # fmt: skip


@pytest.mark.row("P-MOCK")
@pytest.mark.parametrize(("cloud", "is_stream", "words", "body"), DOORS)
def test_a_body_that_a_clouds_claude_refuses_is_refused(
    cloud: Any, is_stream: bool, words: str, body: JsonObject
) -> None:
    with pytest.raises(Refusal) as told:
        ClaudeAtACloud(cloud, is_stream=is_stream).check(body)
    assert words in told.value.message
