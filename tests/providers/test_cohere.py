"""Cohere's dialect: what is sent, what is understood, and how failures are told."""

import json
from typing import Any

import pytest

from treadle import Agent, resolve_model
from treadle.errors import (
    IncompleteStream,
    ModelUnavailable,
)
from treadle.messages import Message, Opaque, Result, Text, Thinking, ToolCall, user_message
from treadle.mock.dialects.cohere import cohere_events
from treadle.ports import ModelEnd, ModelPart, ModelRequest, ToolSpec
from treadle.providers.cohere import Cohere
from treadle.testing import MockProvider, Turn
from treadle.tools import JsonObject

GO = user_message("go")
LOOK = ToolSpec(
    name="look",
    description="Look.",
    parameters={"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)
FREE = ToolSpec(
    name="free", description="Free.", parameters={"type": "object", "properties": {"key": {"type": "string"}}}
)
ANSWER: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


async def sent(request: ModelRequest, **options: Any) -> JsonObject:
    """Return the body of a request that the strict server took."""
    async with MockProvider(["done"]) as provider:
        model = Cohere("m", base_url=provider.base_url, api_key="k", options=options)
        assert isinstance([part async for part in model.stream(request)][-1], ModelEnd)
    body: JsonObject = provider.requests[-1].body
    return body


async def heard(body: bytes | JsonObject, *, stream: bool = True, status: int = 200) -> list[ModelPart]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with MockProvider([Turn(status=status, body=content)]) as provider:
        model = Cohere("m", base_url=provider.base_url, api_key="k", stream=stream)
        return [part async for part in model.stream(ModelRequest(messages=(GO,)))]


def said(*parts: Any, origin: str | None = "cohere:m") -> Message:
    return Message(role="assistant", parts=parts, origin=origin)


def told(*ids: str, **more: Any) -> Message:
    return Message(role="tool", parts=tuple(Result(call_id=one, name="look", content="seen", **more) for one in ids))


def answer(message: JsonObject, finish: str = "COMPLETE") -> JsonObject:
    return {"message": {"role": "assistant", **message}, "finish_reason": finish}


def ended(parts: list[ModelPart]) -> ModelEnd:
    assert isinstance(parts[-1], ModelEnd)
    return parts[-1]


# --- what is sent


@pytest.mark.row("P-COHERE")
@pytest.mark.parametrize(
    ("choice", "on_the_wire", "names"),
    [
        ("auto", None, ["free", "look"]),
        ("none", "NONE", ["free", "look"]),
        ("required", "REQUIRED", ["free", "look"]),
        ("look", "REQUIRED", ["look"]),  # no tool can be demanded by its name: it is shown alone
    ],
)
async def test_a_tool_choice_is_told_in_the_vendors_words(
    choice: str, on_the_wire: str | None, names: list[str]
) -> None:
    body = await sent(ModelRequest(messages=(GO,), tools=(LOOK, FREE), tool_choice=choice))

    assert body.get("tool_choice") == on_the_wire
    assert [tool["function"]["name"] for tool in body["tools"]] == names


@pytest.mark.row("P-COHERE")
@pytest.mark.parametrize(("tools", "is_strict"), [((LOOK,), True), ((LOOK, FREE), None), ((), None)])
async def test_tools_are_strict_where_the_vendor_can_hold_the_model_to_them(
    tools: tuple[ToolSpec, ...], is_strict: bool | None
) -> None:
    """A tool that has no required parameter is refused in that mode, and so are more than 200 fields."""
    body = await sent(ModelRequest(messages=(GO,), tools=tools), strict_tools=True)

    assert body.get("strict_tools") is is_strict


@pytest.mark.row("P-COHERE")
async def test_too_many_fields_are_sent_without_strict_tools() -> None:
    inner = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(199)}}
    large = ToolSpec(
        name="large", description="", parameters={"type": "object", "properties": {"a": inner}, "required": ["a"]}
    )

    assert (await sent(ModelRequest(messages=(GO,), tools=(large,)), strict_tools=True))["strict_tools"] is True
    assert "strict_tools" not in await sent(ModelRequest(messages=(GO,), tools=(large, LOOK)), strict_tools=True)


@pytest.mark.row("P-COHERE")
async def test_a_schema_of_the_answer_is_a_form_and_beside_tools_an_instruction() -> None:
    alone = await sent(ModelRequest(messages=(GO,), output_schema=ANSWER))
    beside = await sent(ModelRequest(messages=(GO,), output_schema=ANSWER, tools=(LOOK,), instructions="Be brief."))
    with_documents = await sent(
        ModelRequest(messages=(GO,), output_schema=ANSWER), documents=[{"id": "1", "data": {"a": "b"}}]
    )

    assert alone["response_format"] == {"type": "json_object", "json_schema": ANSWER}
    for body in (beside, with_documents):
        assert "response_format" not in body
        assert json.dumps(ANSWER, separators=(",", ":")) in body["messages"][0]["content"]
    assert beside["messages"][0]["content"].startswith("Be brief.\n\n")


@pytest.mark.row("P-COHERE")
async def test_thinking_stays_here_where_it_is_switched_off() -> None:
    cited = json.dumps({"citations": [{"start": 0, "end": 1, "content_index": 1}]})
    history = (GO, said(Thinking(text="Hm."), Text("So.", signature=cited)), GO)

    off = await sent(ModelRequest(messages=history), thinking={"type": "disabled"})
    on = await sent(ModelRequest(messages=history), thinking={"type": "enabled", "token_budget": 100})

    assert off["messages"][1] == {
        "role": "assistant", "content": [{"type": "text", "text": "So."}], "citations": [{"start": 0, "end": 1, "content_index": 0}],
    }  # fmt: skip
    assert on["messages"][1]["citations"] == [{"start": 0, "end": 1, "content_index": 1}]
    assert len(on["messages"][1]["content"]) == 2


@pytest.mark.row("P-COHERE")
async def test_empty_messages_are_not_sent_empty() -> None:
    quiet = Message(role="tool", parts=(Result(call_id="a", name="look", content=" "),))
    history = (user_message(""), said(), said(ToolCall(id="a", name="look", arguments="")), quiet)

    messages = (await sent(ModelRequest(messages=history)))["messages"]

    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert (messages[0]["content"], messages[2]["content"]) == ("(empty message)", "(no output)")
    assert messages[1]["tool_calls"][0]["function"]["arguments"] == "{}"


@pytest.mark.row("P-COHERE")
async def test_long_ids_of_the_vendor_go_back_unchanged() -> None:
    own = f"{'look_' * 20}_vpfcagczdkae"
    strange = said(ToolCall(id=own, name="look", arguments="{}"), ToolCall(id="a b", name="look", arguments="{}"))

    messages = (await sent(ModelRequest(messages=(GO, strange, told(own, "a b")))))["messages"]

    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in messages[2:]]
    assert ids[0] == own
    assert " " not in ids[1]


# --- what is understood


@pytest.mark.row("P-COHERE")
@FORMS
async def test_a_citation_of_a_plan_stays_with_the_plan(stream: bool) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"key": "x"}'}}
    came = answer(
        {"tool_plan": "I look.", "tool_calls": [call], "citations": [{"type": "PLAN", "start": 0}]}, "TOOL_CALL"
    )
    start = {"type": "citation-start", "index": 0, "delta": {"message": {"citations": {"type": "PLAN", "start": 0}}}}
    events = cohere_events(came).replace(
        b"event: tool-call-start", b"data: %b\n\nevent: tool-call-start" % json.dumps(start).encode()
    )

    end = ended(await heard(events if stream else came, stream=stream))
    body = await sent(ModelRequest(messages=(GO, said(*end.parts), told("a"))))

    assert body["messages"][1] == came["message"]


@pytest.mark.row("P-COHERE")
@FORMS
@pytest.mark.parametrize("arguments", ["", "null", "{}"])
async def test_a_call_without_arguments_is_one_with_none(arguments: str, stream: bool) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "free", "arguments": arguments}}
    came = answer({"tool_calls": [call]}, "TOOL_CALL")

    end = ended(await heard(cohere_events(came) if stream else came, stream=stream))

    assert end.parts == (ToolCall(id="a", name="free", arguments="{}"),)
    assert end.cut_calls == frozenset()


@pytest.mark.row("P-COHERE")
@FORMS
async def test_what_only_the_vendor_understands_is_kept_and_goes_back(stream: bool) -> None:
    strange = {"type": "strange", "strange": {"a": [1]}}
    came = answer({"content": [strange, {"type": "text", "text": "So."}]})

    end = ended(await heard(cohere_events(came) if stream else came, stream=stream))

    assert end.parts == (Opaque(provider="cohere", payload=strange), Text("So."))


@pytest.mark.row("P-COHERE")
@FORMS
@pytest.mark.parametrize("reason", ["ERROR", "TIMEOUT"])
async def test_a_generation_that_failed_may_be_asked_for_again(reason: str, stream: bool) -> None:
    came = answer({"content": [{"type": "text", "text": "So"}]}, reason)

    with pytest.raises(ModelUnavailable, match=reason):
        await heard(cohere_events(came) if stream else came, stream=stream)


@pytest.mark.row("P-COHERE")
async def test_a_whole_answer_without_its_reason_is_complete_if_it_says_anything() -> None:
    *_, end = await heard({"message": {"content": [{"type": "text", "text": "So."}]}}, stream=False)
    assert isinstance(end, ModelEnd)
    assert (end.parts, end.finish_reason) == ((Text("So."),), None)
    with pytest.raises(IncompleteStream):
        await heard({"message": {"content": []}}, stream=False)


# --- failures


@pytest.mark.row("P-COHERE")
async def test_words_of_the_deny_list_end_the_run_as_refused() -> None:
    async with MockProvider([Turn(status=498, error="blocked input: please adjust your prompt")]) as provider:
        result = await Agent(resolve_model("cohere:m", base_url=provider.base_url)).run("go")

    assert (result.reason, len(provider.requests)) == ("refused", 1)
