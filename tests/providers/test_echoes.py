"""What a model said goes back to it as it came, and to no other model. One body, one row a dialect and a kind of part."""

import json
from typing import Any, NamedTuple

import pytest
from chat_server import answer, json_answer
from wire import GREP, assistant, end_of, sent, streamed, tool, whole

from treadle.messages import Result, user_message
from treadle.ports import ModelRequest

GO, MORE = user_message("go"), user_message("and on")
CALLED = {"type": "function", "function": {"name": "grep", "arguments": '{"path": "x"}'}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
LOCATED = {"type": "char_location", "cited_text": "c", "document_index": 0, "start_char_index": 0, "end_char_index": 1}
CITED: dict[str, Any] = {
    "type": "web_search_result_location",
    "url": "https://example.org",
    "title": "T",
    "encrypted_index": "aWR4",
    "cited_text": "c",
}
SOURCED: dict[str, Any] = {
    "start": 0,
    "end": 2,
    "text": "So",
    "sources": [{"type": "tool", "id": "look_1:0"}],
    "type": "TEXT_CONTENT",
}
REASONED = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}


def item(text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content, **more}


class Echo(NamedTuple):
    """What a model said, and what of it each model reads later."""

    name: str
    said: Any
    other: Any
    """What another model of the dialect reads."""
    own: Any = None
    """What the model itself reads; None for what it said."""


LOOKED = {"type": "function_call", "call_id": "call_1", "name": "grep", "arguments": '{"a": 1}'}
ECHOES = {
    "a call with a signature": Echo(
        "openai-chat",
        {"tool_calls": [{"id": "1", **CALLED, "extra_content": {"google": {"thought_signature": "sig"}}}]},
        {"role": "assistant", "tool_calls": [{"id": "1", **CALLED}]},
    ),
    "items": Echo(
        "openai",
        [
            REASONED,
            item("I look.", phase="commentary"),
            {**LOOKED, "id": "fc_1", "status": "completed", "namespace": "files"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
            item("So.", id="msg_2"),
        ],
        [{"role": "assistant", "content": "I look."}, LOOKED, {"role": "assistant", "content": "So."}],
    ),
    "citations and refusals": Echo(
        "openai",
        [
            item("", content=[{"type": "output_text", "text": "See.", "annotations": [{"type": "url_citation", "url": "https://h", "start_index": 0, "end_index": 3}]}]),
            item("", id="msg_2", content=[{"type": "refusal", "refusal": "No."}]),
        ],
        [{"role": "assistant", "content": "See."}, {"role": "assistant", "content": "No."}],
    ),
    "thinking, seals and items of the server": Echo(
        "anthropic",
        [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "x"},
            SEARCH,
            {"type": "text", "text": "yes"},
        ],
        [{"type": "text", "text": "yes"}],
    ),
    "what a text cites": Echo(
        "anthropic",
        [{"type": "text", "text": "found", "citations": [CITED, CITED | {"cited_text": "d"}]}],
        [{"type": "text", "text": "found"}],
    ),
    "a citation, without the file that the vendor refuses there": Echo(
        "anthropic",
        [{"type": "text", "text": "found", "citations": [LOCATED | {"file_id": None}]}],
        [{"type": "text", "text": "found"}],
        [{"type": "text", "text": "found", "citations": [LOCATED]}],
    ),
    "signatures, of which another's first call has a stand-in": Echo(
        "gemini",
        [
            {"text": "hm", "thought": True, "thoughtSignature": "s0"},
            {"text": "Hm.", "thoughtSignature": "s1"},
            {"functionCall": {"name": "grep", "args": {}, "id": "a"}, "thoughtSignature": "s2"},
            {"functionCall": {"name": "grep", "args": {}, "id": "b"}},
        ],
        [
            {"text": "Hm."},
            {"functionCall": {"name": "grep", "args": {}, "id": "a"}, "thoughtSignature": "skip_thought_signature_validator"},
            {"functionCall": {"name": "grep", "args": {}, "id": "b"}},
        ],
    ),
    "blocks of the server": Echo(
        "gemini",
        [{"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s"}, {"text": "So."}],
        [{"text": "So."}],
    ),
    "a plan": Echo(
        "cohere",
        {"tool_plan": "I look.", "tool_calls": [{"id": "1", **CALLED}], "content": [{"type": "thinking", "thinking": "Hm."}]},
        {"role": "assistant", "tool_plan": "I look.", "tool_calls": [{"id": "1", **CALLED}]},
    ),
    "sources": Echo(
        "cohere",
        {"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "So."}], "citations": [{**SOURCED, "content_index": 1}]},
        {"role": "assistant", "content": [{"type": "text", "text": "So."}]},
    ),
    "reasoning and seals": Echo(
        "bedrock",
        [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
            {"reasoningContent": {"redactedContent": "c2VhbA=="}},
            {"text": "Here."},
        ],
        [{"text": "Here."}],
    ),
}  # fmt: skip


def said_in(name: str, body: Any) -> Any:
    """Return what a request repeats of the model's message."""
    match name:
        case "openai":
            return [
                one for one in body["input"] if one.get("role") != "user" and one.get("type") != "function_call_output"
            ]
        case "gemini":
            return body["contents"][1]["parts"]
        case "anthropic" | "bedrock":
            return body["messages"][1]["content"]
        case _:
            return body["messages"][1]


@pytest.mark.row("W03", "W04", "W06", "W10", "P-COHERE", "P-CONVERSE")
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
async def test_what_a_model_said_goes_back_to_it_as_it_came_and_to_no_other(echo: Echo, stream: bool) -> None:
    came = whole(echo.name, echo.said)
    end = await end_of(echo.name, answer(streamed(echo.name, came)) if stream else json_answer(came), stream=stream)
    calls = [part for part in end.parts if hasattr(part, "arguments")]
    results = [tool(*(Result(call_id=call.id, name=call.name, content="ok") for call in calls))] if calls else []

    own, other = [
        said_in(echo.name, await sent(echo.name, ModelRequest(messages=(GO, assistant(*end.parts, origin=origin), *results, MORE), tools=(GREP,))))
        for origin in (f"{echo.name}:m", f"{echo.name}:other")
    ]  # fmt: skip

    said = {"role": "assistant", **echo.said} if isinstance(echo.said, dict) else echo.said
    assert json.loads(json.dumps(own)) == (said if echo.own is None else echo.own)
    assert other == echo.other
