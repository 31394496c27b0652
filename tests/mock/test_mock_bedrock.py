"""The mock speaks Converse, InvokeModel and rawPredict as the vendors do: AWS's own client reads it, and what they refuse it refuses."""

import asyncio
import json
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from treadle.mock.dialects.anthropic import ClaudeAtACloud
from treadle.mock.dialects.bedrock import Converse
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

BODIES: list[tuple[JsonObject, str]] = [
    ({"messages": [GO], "model": "m"}, "extraneous key"),
    ({"messages": [GO], "inferenceConfig": {"max_tokens": 1}}, "extraneous key"),
    ({"messages": [GO], "inferenceConfig": {"maxTokens": 0}}, "greater than or equal to 1"),
    ({"messages": [GO], "inferenceConfig": {"temperature": 2}}, "less than or equal to 1"),
    ({"messages": [GO], "system": [{"text": " "}]}, "is blank"),
    ({"messages": [GO], "system": [{"cachePoint": {"type": "default"}}]}, "stand behind"),
    ({"messages": [GO], "toolConfig": {"tools": []}}, "greater than or equal to 1"),
    ({"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a.b", "inputSchema": {"json": {"type": "object"}}}}]}}, "regular expression"),
    ({"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a" * 65, "inputSchema": {"json": {"type": "object"}}}}]}}, "regular expression"),
    ({"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a", "description": "", "inputSchema": {"json": {"type": "object"}}}}]}}, "length"),
    ({"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a", "inputSchema": {"json": {}}}}]}}, "must be one of the following: object"),
    ({"messages": [GO], "toolConfig": {"tools": [{"toolSpec": {"name": "a", "inputSchema": {"type": "object"}}}]}}, "extraneous key [type]"),
    ({"messages": [GO], "toolConfig": {"tools": TOOLS["tools"] * 2}}, "duplicate tool names"),
    ({"messages": [GO], "toolConfig": {**TOOLS, "toolChoice": {"tool": {"name": "other"}}}}, "not in toolConfig"),
    ({"messages": [GO], "toolConfig": {**TOOLS, "toolChoice": {"none": {}}}}, "extraneous key [none]"),
    ({"messages": [GO], "toolConfig": {**TOOLS, "toolChoice": {"any": {}}}, "additionalModelRequestFields": {"thinking": {"type": "enabled"}}}, "forces tool use"),
    ({"messages": [{"role": "user", "content": [{"text": "go"}, *([{"cachePoint": {"type": "default"}}] * 5)]}]}, "cache points"),
    ({"messages": [GO], "toolConfig": {"tools": [*TOOLS["tools"], {"cachePoint": {"type": "ephemeral"}}]}}, "'toolConfig.tools.1.cachePoint.type' failed"),
    ({"messages": [GO], "outputConfig": {"textFormat": {"type": "json"}}}, "'outputConfig.textFormat.type' failed"),
    ({"messages": [GO], "outputConfig": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "{"}}}}}, "not valid JSON"),
]  # fmt: skip


TAKEN: JsonObject = {"messages": [GO, use("a", "b"), results("b", "a", status="error")], "toolConfig": TOOLS}
HISTORIES: list[tuple[list[JsonObject], str]] = [
    ([], "Member must have length"),
    ([use("a"), results("a")], "start with a user message"),
    ([GO, GO], "alternate"),
    ([GO, use("a"), results("a"), results("a")], "alternate"),
    ([{"role": "user", "content": []}], "Member must have length"),
    ([{"role": "system", "content": [{"text": "x"}]}], "enum value set"),
    ([{"role": "user", "content": [{"text": " "}]}], "is blank"),
    ([{"role": "user", "content": [{"text": "a", "searchResult": {}}]}], "exactly one member"),
    ([{"role": "user", "content": [{"toolUse": {"toolUseId": "a", "name": "x", "input": {}}}]}], "extraneous key [toolUse]"),
    ([GO, use("a", "b"), results("a")], "following Ids: b"),
    ([GO, use("a"), GO], "following Ids: a"),
    ([GO, use("a")], "following Ids: a"),
    ([GO, use("a"), results("a", "a")], "exceeds the number"),
    ([results("a")], "exceeds the number"),
    ([GO, use("a"), results("a"), use("a"), results("a")], "must be unique"),
    ([GO, use("a b"), results("a b")], "regular expression"),
    ([GO, use("a"), results("a", status="failed")], "enum value set"),
    ([GO, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "x", "input": "{}"}}]}], "expected type: object"),
    ([GO, {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "Hm."}}}]}], "Invalid `signature`"),
    ([GO, {"role": "assistant", "content": [{"reasoningContent": {"redactedContent": "?"}}]}], "expected base64"),
    ([{"role": "user", "content": [{"document": {"format": "pdf", "name": "a", "source": {"bytes": "YQ=="}}}]}], "no text"),
    ([{"role": "user", "content": [{"text": "x"}, {"document": {"format": "pdf", "name": "a.pdf", "source": {"bytes": "YQ=="}}}]}], "file name"),
    ([{"role": "user", "content": [{"text": "x"}, *([{"document": {"format": "pdf", "name": "a", "source": {"bytes": "YQ=="}}}] * 2)]}], "duplicate document"),
    ([{"role": "user", "content": [{"image": {"format": "bmp", "source": {"bytes": "YQ=="}}}]}], "enum value set"),
    ([{"role": "user", "content": [{"cachePoint": {"type": "default"}}, {"text": "x"}]}], "stand behind"),
]  # fmt: skip


@pytest.mark.row("P-MOCK")
def test_calls_without_declared_tools_are_refused_and_whole_histories_are_taken() -> None:
    with pytest.raises(Refusal, match="toolConfig field must be defined"):
        Converse(is_stream=True).check({"messages": [GO, use("a"), results("a")]})
    assert Converse(is_stream=True).check(TAKEN) is TAKEN


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
