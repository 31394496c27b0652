"""Bedrock Converse: what goes out for a neutral request, and what comes in: reasoning, guardrails, cache points, odd endings."""

import json
from base64 import b64encode
from typing import Any

import pytest
from wire import converse

from treadle import Agent, Price, ToolOutput, resolve_model, tool
from treadle.errors import ModelResponseInvalid
from treadle.messages import Media, Message, Opaque, Text, Thinking, ToolCall, Usage, user_message
from treadle.ports import ModelEnd, ModelRequest, ToolSpec
from treadle.providers.bedrock.request import BedrockRequests
from treadle.resolve import with_fallback
from treadle.testing import MockProvider, Turn, call
from treadle.tools import JsonObject

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NOVA = "us.amazon.nova-lite-v1:0"
GO = user_message("go")
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})


def body(request: ModelRequest, model: str = "m", **options: Any) -> JsonObject:
    return json.loads(BedrockRequests(model, origin=f"bedrock:{model}", options=options).body(request))


async def end_of(content: bytes, *, stream: bool = True) -> ModelEnd:
    async with MockProvider([Turn(body=content)]) as provider:
        model = resolve_model("bedrock:m", base_url=provider.base_url, api_key="k", stream=stream)
        parts = [part async for part in model.stream(ModelRequest(messages=(GO,)))]
    assert isinstance(parts[-1], ModelEnd)
    return parts[-1]


def whole(*content: JsonObject, stop: str = "end_turn", **more: Any) -> bytes:
    message = {"role": "assistant", "content": list(content)}
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    return json.dumps({"output": {"message": message}, "stopReason": stop, "usage": usage, **more}).encode()


# --- outward


@pytest.mark.row("P-CONVERSE")
def test_no_tool_is_forbidden_in_words_and_the_tools_stay_declared() -> None:
    made = body(ModelRequest(messages=(GO,), tools=(LOOK,), tool_choice="none"))
    assert [list(tool) for tool in made["toolConfig"]["tools"]] == [["toolSpec"]]
    assert "Do not call any tool" in made["system"][-1]["text"]


@pytest.mark.row("P-CONVERSE")
def test_the_tools_of_a_history_are_declared_where_the_agent_has_none() -> None:
    called = Message(role="assistant", parts=(ToolCall(id="a", name="my.tool", arguments="{}"),))
    made = body(ModelRequest(messages=(GO, called)))
    assert made["toolConfig"]["tools"][0]["toolSpec"]["name"] == made["messages"][1]["content"][0]["toolUse"]["name"]


@pytest.mark.row("P-CONVERSE")
def test_cache_points_stand_where_the_family_takes_them() -> None:
    point = {"cachePoint": {"type": "default"}}
    request = ModelRequest(messages=(GO,), instructions="Be brief.", tools=(LOOK,))
    bare = ModelRequest(messages=(GO,), tools=(LOOK,))

    assert body(request, CLAUDE)["system"][-1] == body(request, CLAUDE)["messages"][0]["content"][-1] == point
    assert body(bare, CLAUDE)["toolConfig"]["tools"][-1] == point
    assert body(request, NOVA)["system"][-1] == point
    assert point not in body(bare, NOVA)["toolConfig"]["tools"]
    assert "cachePoint" not in json.dumps(body(request, "meta.llama3-8b-instruct-v1:0"))
    assert "cachePoint" not in json.dumps(body(request, CLAUDE, cachePoint=None))
    hour = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert (
        body(request, "arn:aws:bedrock:us-east-1:1:application-inference-profile/x", cachePoint={"ttl": "1h"})[
            "system"
        ][-1]
        == hour
    )


@pytest.mark.row("P-CONVERSE")
def test_thinking_is_left_out_where_a_turn_of_another_model_goes_on() -> None:
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 5}
    called = Message(role="assistant", parts=(ToolCall(id="a", name="look", arguments="{}"),), origin="other:m")
    from treadle.messages import Result

    result = Message(role="tool", parts=(Result(call_id="a", name="look", content="seen"),))
    foreign = ModelRequest(messages=(GO, called, result), tools=(LOOK,))
    own = ModelRequest(messages=(GO,), tools=(LOOK,), tool_choice="required")

    assert body(foreign, CLAUDE, additionalModelRequestFields=fields)["additionalModelRequestFields"] == {"top_k": 5}
    made = body(own, CLAUDE, additionalModelRequestFields=fields)
    assert made["additionalModelRequestFields"] == fields
    assert "toolChoice" not in made["toolConfig"]


@pytest.mark.row("P-CONVERSE")
async def test_results_are_json_text_pictures_and_documents_and_say_when_they_are_errors() -> None:
    picture = Media(media_type="image/png", base64=b64encode(b"png").decode())
    page = Media(media_type="application/pdf", base64=b64encode(b"pdf").decode(), name="My  report_v2.pdf")

    @tool(effect="read")
    async def fetch(what: str) -> Any:
        """Fetch."""
        if what == "nothing":
            raise ValueError("no such thing")
        return {"json": {"n": 1}, "text": "words", "media": ToolOutput(data="here", media=(picture, page, page))}[what]

    calls = [call("fetch", what=what) for what in ("json", "text", "media", "nothing")]
    async with MockProvider([calls, "done"]) as provider:
        model = resolve_model(f"bedrock:{CLAUDE}", base_url=provider.base_url, api_key="k")
        result = await Agent(model, tools=[fetch]).run("go")

    assert (provider.refusals, result.text) == ([], "done")
    told = [
        block["toolResult"] for block in provider.requests[-1].body["messages"][2]["content"] if "toolResult" in block
    ]
    assert told[0]["content"] == [{"json": {"n": 1}}]
    assert told[1]["content"] == [{"text": "words"}]
    assert [next(iter(block)) for block in told[2]["content"]] == ["text", "image", "document", "document"]
    assert told[2]["content"][2]["document"]["name"].startswith("My report v2 ")
    assert [one.get("status") for one in told] == [None, None, None, "error"]


@pytest.mark.row("P-CONVERSE")
def test_a_document_of_the_person_has_words_beside_it() -> None:
    page = Media(media_type="text/csv", base64=b64encode(b"a,b").decode(), name="a.csv")
    far = Media(media_type="image/png", url="https://example.org/a.png")
    stored = Media(media_type="image/png", url="s3://bucket/a.png")
    made = body(ModelRequest(messages=(Message(role="user", parts=(page,)), Message(role="user", parts=(far, stored)))))

    content = made["messages"][0]["content"]
    assert content[0]["document"]["format"] == "csv"
    assert "text" in content[1]
    assert content[2] == {"text": "[image/png: https://example.org/a.png]"}
    assert content[3]["image"]["source"] == {"s3Location": {"uri": "s3://bucket/a.png"}}


@pytest.mark.row("P-CONVERSE")
def test_a_schema_for_nova_holds_its_definitions_where_they_are_used() -> None:
    schema: JsonObject = {
        "type": "object",
        "title": "Args",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {"Tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Tree"}}}},
        "additionalProperties": False,
    }
    spec = ToolSpec(name="x.y", description=" ", parameters=schema)
    [made] = body(ModelRequest(messages=(GO,), tools=(spec,)), NOVA)["toolConfig"]["tools"]

    assert made["toolSpec"].keys() == {"name", "inputSchema"}
    root = made["toolSpec"]["inputSchema"]["json"]
    assert root.keys() == {"type", "properties"}
    assert root["properties"]["tree"]["properties"]["left"]["type"] == "object"
    assert "$ref" not in json.dumps(root)


# --- inward


@pytest.mark.row("P-CONVERSE")
@pytest.mark.parametrize("stop", ["malformed_tool_use", "malformed_model_output"])
async def test_what_the_model_garbled_is_asked_for_again(stop: str) -> None:
    with pytest.raises(ModelResponseInvalid, match=stop) as told:
        await end_of(whole(stop=stop), stream=False)
    assert told.value.may_retry


@pytest.mark.row("P-CONVERSE")
async def test_a_guardrail_refuses_the_run_in_both_forms() -> None:
    trace = {"guardrail": {"actionReason": "Guardrail blocked."}}
    streamed = converse(("delta", 0, {"delta": {"text": "Sorry."}}), stop="guardrail_intervened", trace=trace)
    bodies = (streamed, whole({"text": "Sorry."}, stop="guardrail_intervened", trace=trace))
    for stream, content in zip((True, False), bodies, strict=True):
        async with MockProvider([Turn(body=content)]) as provider:
            model = resolve_model("bedrock:m", base_url=provider.base_url, api_key="k", stream=stream)
            result = await Agent(model).run("go")
        assert (result.reason, result.completed) == ("refused", False)
        assert "Guardrail blocked." in result.message


@pytest.mark.row("P-CONVERSE")
async def test_reasoning_that_comes_in_pieces_is_joined() -> None:
    first, second = (b64encode(part).decode() for part in (b"first!", b"second"))
    usage = {"inputTokens": 3, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 7, "outputTokens": 2}
    thought = [{"text": "Let me "}, {"text": "see."}, {"signature": "abc"}]
    content = converse(
        *(("delta", 0, {"delta": {"reasoningContent": piece}}) for piece in thought),
        ("stop", 0, {}),
        *(("delta", 1, {"delta": {"reasoningContent": {"redactedContent": part}}}) for part in (first, second)),
        *(("stop", 1, {}), ("delta", 2, {"delta": {"text": "Here."}}), ("stop", 2, {})),
        stop="end_turn",
        usage=usage,
    )
    end = await end_of(content)
    sealed = {"reasoningContent": {"redactedContent": b64encode(b"first!second").decode()}}

    assert end.parts == (Thinking(text="Let me see.", signature="abc"), Thinking(payload=sealed), Text("Here."))
    assert end.usage == Usage(input_tokens=15, output_tokens=2, cached_input_tokens=5, cache_written_tokens=7)


@pytest.mark.row("P-CONVERSE")
async def test_what_the_vendor_ran_itself_is_no_call_and_goes_back() -> None:
    used = {"toolUse": {"toolUseId": "s", "name": "nova_grounding", "input": {"q": "x"}, "type": "server_tool_use"}}
    found = {"toolResult": {"toolUseId": "s", "content": [{"text": "found"}], "type": "nova_grounding_result"}}
    end = await end_of(whole(used, found, {"text": "Here."}), stream=False)

    said = Message(role="assistant", parts=end.parts, origin="bedrock:m")
    assert body(ModelRequest(messages=(GO, said)))["messages"][1]["content"] == [used, found, {"text": "Here."}]
    assert end.parts == (
        Opaque(provider="bedrock", payload=used),
        Opaque(provider="bedrock", payload=found),
        Text("Here."),
    )


@pytest.mark.row("P-CONVERSE")
@pytest.mark.parametrize(
    ("model", "segment"),
    [
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us.anthropic.claude-sonnet-4-5-20250929-v1%3A0"),
        (
            "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc",
            "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Aapplication-inference-profile%2Fabc",
        ),
    ],
)
@pytest.mark.parametrize("name", ["bedrock", "bedrock-claude"])
async def test_an_id_is_one_segment_of_the_path(name: str, model: str, segment: str) -> None:
    async with MockProvider(["hi"]) as provider:
        result = await Agent(resolve_model(f"{name}:{model}", base_url=provider.base_url, api_key="k")).run("go")

    assert result.text == "hi"
    assert provider.requests[0].path.startswith(f"/v1/model/{segment}/")
    assert result.messages[-1].origin == f"{name}:{model}"


@pytest.mark.row("P-INVOKE")
async def test_betas_of_a_header_become_a_field_of_the_body() -> None:
    async with MockProvider(["hi"]) as provider:
        headers = {"Anthropic-Beta": "one, two", "X-Team": "a"}
        model = resolve_model(f"bedrock-claude:{CLAUDE}", base_url=provider.base_url, api_key="k", headers=headers)
        result = await Agent(model).run("go")

    [sent] = provider.requests
    assert (result.text, sent.body["anthropic_beta"]) == ("hi", ["one", "two"])
    assert ("anthropic-beta" in sent.headers, sent.headers["x-team"]) == (False, "a")


@pytest.mark.row("P-CONVERSE")
async def test_a_throttled_model_hands_over_and_both_are_priced() -> None:
    dear, cheap = Price(input=3, output=15), Price(input=1, output=4)
    usage = Usage(input_tokens=1000, output_tokens=10, cached_input_tokens=400, cache_written_tokens=100)
    async with MockProvider([Turn(status=429, error="Too many requests"), Turn(text="hi", usage=usage)]) as provider:
        first = resolve_model("bedrock:one", base_url=provider.base_url, api_key="k", price=dear)
        second = resolve_model("bedrock-claude:two", base_url=provider.base_url, api_key="k", price=cheap)
        result = await Agent(with_fallback(first, second, failures=1)).run("go")

    assert (result.text, result.messages[-1].origin) == ("hi", "bedrock-claude:two")
    assert result.spent.cost == cheap.cost(usage)
