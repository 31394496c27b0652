"""The mock provider in Anthropic Messages: what it refuses, what it takes, and how it says a turn."""

import json
from typing import Any

import aiohttp
import pytest

from treadle.messages import Usage
from treadle.mock.dialects.anthropic import (
    AnthropicMessages,
    anthropic_events,
)
from treadle.testing import MockProvider, Refusal, Turn, call

USER = {"role": "user", "content": "go"}
DONE = {"role": "assistant", "content": "Done."}


def text(words: Any = "hm", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(call_id: Any = "a", name: Any = "look", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}, **more}


def result(call_id: Any = "a", content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def says(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def tells(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def without(block: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != name}


THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aWc="}}
SERVER_USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
CITED = {
    "type": "char_location",
    "cited_text": "a",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 1,
}
MARKER = {"cache_control": {"type": "ephemeral"}}

LEFT = "`tool_use` ids were found without `tool_result` blocks immediately after: "
UNASKED = "unexpected `tool_use_id` found in `tool_result` blocks: "
INVALID = {
    "not a list": ({"role": "user"}, "messages: Input should be a valid list"),
    "no message": ([], "at least one message is required"),
    "a message without a role": ([{"content": "go"}], "messages.0.role: Field required"),
    "an unknown role": ([{"role": "tool", "content": "go"}], 'Unexpected role "tool"'),
    "a system message": ([{"role": "system", "content": "go"}], "top-level `system` parameter"),
    "a further field in a message": ([USER | {"name": "me"}], "messages.0.name: Extra inputs are not permitted"),
    "an empty user message": ([{"role": "user", "content": ""}], "all messages must have non-empty content"),
    "an assistant that comes first": ([DONE, USER], 'first message must use the "user" role'),
    "a block without a type": ([tells({"text": "go"})], "messages.0.content.0.type: Field required"),
    "a block of another dialect": ([tells({"type": "image_url"})], "Input tag 'image_url' found using 'type'"),
    "a text without words": ([tells(text(""))], "text content blocks must be non-empty"),
    "a text of blanks": ([tells(text(" \n"))], "must contain non-whitespace text"),
    "a citation with the vendor's file": (
        [USER, says(text(citations=[{"type": "char_location", "file_id": None}])), USER],
        "messages.1.content.0.text.citations.0.file_id: Extra inputs are not permitted",
    ),
    "a trailing blank at the end": ([USER, says(text("I will "))], "cannot end with trailing whitespace"),
    "a call by the user": ([tells(use())], "messages.0.content.0: Input tag 'tool_use' found"),
    "thinking without a signature": ([USER, says(without(THINKING, "signature"))], "thinking.signature: Field required"),
    "thinking with an empty signature": (
        [USER, says(THINKING | {"signature": ""}, text()), USER],
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "thinking with a marker": ([USER, says(THINKING | MARKER, text())], "cache_control: Extra inputs are not permitted"),
    "a call without an id": ([USER, says(without(use(), "id"))], "messages.1.content.0.tool_use.id: Field required"),
    "an id with a dot": ([USER, says(use("a.b"))], "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"),
    "a name of 129 letters": ([USER, says(use(name="x" * 129))], "tool_use.name: String should match pattern"),
    "arguments as text": ([USER, says(use(input="{}"))], "tool_use.input: Input should be a valid dictionary"),
    "a call unanswered at the end": ([USER, says(use())], "messages.1: " + LEFT + "a."),
    "one of two calls unanswered": ([USER, says(use("a"), use("b")), tells(result("a")), DONE], LEFT + "b."),
    "a result behind words": ([USER, says(use()), tells(text(), result())], LEFT + "a."),
    "results over two messages": ([USER, says(use("a"), use("b")), tells(result("a")), tells(result("b"))], LEFT + "b."),
    "a result that nobody asked for": ([tells(result())], "messages.0.content.0: " + UNASKED + "a."),
    "a result for another id": ([USER, says(use("a")), tells(result("b"))], UNASKED + "b."),
    "a result too many, behind words": ([USER, says(use("a")), tells(result("a"), text(), result("c"))], "messages.2.content.2: " + UNASKED + "c."),
    "two results for one call": (
        [USER, says(use()), tells(result(), result())],
        "each tool_use must have a single result. Found multiple `tool_result` blocks with id: a",
    ),
    "two calls with one id": ([USER, says(use(), use()), tells(result())], "`tool_use` ids must be unique"),
    "an id of an earlier step": ([USER, says(use()), tells(result()), says(use()), tells(result())], "`tool_use` ids must be unique"),
    "an error with an image": (
        [USER, says(use()), tells(result(content=[IMAGE], is_error=True))],
        'all content must be type "text" if `is_error` is true',
    ),
    "an image of an unknown source": ([tells({"type": "image", "source": {"type": "data"}})], "Input tag 'data'"),
    "an image without data": ([tells({"type": "image", "source": {"type": "base64"}})], "image.source.media_type: Field"),
    "a server's result without its call": ([USER, says(SERVER_RESULT)], "corresponding `server_tool_use` block before it"),
}  # fmt: skip

VALID = {
    "words": [USER],
    "words in blocks": [tells(text("a"), IMAGE, text("b"))],
    "a conversation": [USER, DONE, USER],
    "neighbours of one role": [USER, USER, DONE, DONE, USER],
    "a call and its result": [USER, says(text(), use()), tells(result())],
    "results in another order": [USER, says(use("a"), use("b")), tells(result("b"), result("a"))],
    "words in the message after the results": [USER, says(use()), tells(result()), USER],
    "words behind the results": [USER, says(use()), tells(result(), text("Hurry."))],
    "an error": [USER, says(use()), tells(result(content="denied", is_error=True))],
    "a result without content": [USER, says(use()), tells(without(result(), "content"))],
    "an image in a result": [USER, says(use()), tells(result(content=[text(), IMAGE]))],
    "thinking before a call": [USER, says(THINKING, use()), tells(result())],
    "redacted thinking": [USER, says({"type": "redacted_thinking", "data": "x"}, text()), USER],
    "a server's tool": [USER, says(SERVER_USE, SERVER_RESULT, text()), USER],
    "a beginning of the answer": [USER, says(text("I will"))],
    "an empty assistant at the end": [USER, says()],
    "markers": [tells(text(**MARKER))],
    "citations": [USER, says(text(citations=[CITED]), text(citations=None)), USER],
}


# --- requests ------------------------------------------------------------------------------------------------------------

OPEN = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
CLOSED = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
TOOL = {"name": "look", "description": "Look.", "input_schema": OPEN}
BODY: dict[str, Any] = {"model": "m", "max_tokens": 10, "messages": [USER]}
THINKS: dict[str, Any] = {"max_tokens": 5000, "thinking": {"type": "enabled", "budget_tokens": 2000}}
CODE = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
MARKED = [text(**MARKER)]

REFUSED = {
    "a list": ([], "Input should be a valid dictionary"),
    "an unknown field": (BODY | {"temperatur": 1}, "temperatur: Extra inputs are not permitted"),
    "no model": (without(BODY, "model"), "model: Field required"),
    "max_tokens of 0": (BODY | {"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
    "a temperature of 2": (BODY | {"temperature": 2}, "temperature: Input should be less than or equal to 1"),
    "an image in system": (BODY | {"system": [IMAGE]}, "system.0: Input tag 'image' found"),
    "a tool without a name": (BODY | {"tools": [without(TOOL, "name")]}, "tools.0.custom.name: Field required"),
    "a tool with a strange name": (BODY | {"tools": [TOOL | {"name": "a b"}]}, "name: String should match pattern"),
    "a schema without a type": (BODY | {"tools": [TOOL | {"input_schema": {}}]}, "input_schema.type: Field required"),
    "a schema of an array": (BODY | {"tools": [TOOL | {"input_schema": {"type": "array"}}]}, "should be 'object'"),
    "a choice at the top": (
        BODY | {"tools": [TOOL | {"input_schema": {"type": "object", "anyOf": []}}]},
        "does not support oneOf, allOf, or anyOf at the top level",
    ),
    "two tools with one name": (BODY | {"tools": [TOOL, TOOL]}, "Tool names must be unique"),
    "a strict tool that is open": (BODY | {"tools": [TOOL | {"strict": True}]}, "'additionalProperties' must be explicitly"),
    "a strict tool with a limit": (
        BODY | {"tools": [TOOL | {"strict": True, "input_schema": OPEN | {"additionalProperties": False}}]},
        "For 'integer' type, properties minimum are not supported",
    ),
    "a strict tool with a negation": (
        BODY | {"tools": [TOOL | {"strict": True, "input_schema": CLOSED | {"properties": {"n": {"not": {}}}}}]},
        "tools.0.custom: Schema type 'not' is not supported",
    ),
    "a choice without tools": (BODY | {"tool_choice": {"type": "auto"}}, "only be specified while providing tools"),
    "a choice of an unknown tool": (BODY | {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "Tool 'x' not found in provided tools"),
    "none with a parallel switch": (
        BODY | {"tools": [TOOL], "tool_choice": {"type": "none", "disable_parallel_tool_use": True}},
        "tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted",
    ),
    "thinking of an unknown kind": (BODY | {"thinking": {"type": "deep"}}, "thinking: Input tag 'deep' found"),
    "thinking without a budget": (BODY | {"thinking": {"type": "enabled"}}, "thinking.enabled.budget_tokens: Field required"),
    "a small thinking budget": (BODY | THINKS | {"thinking": {"type": "enabled", "budget_tokens": 9}}, "equal to 1024"),
    "a budget above max_tokens": (BODY | THINKS | {"max_tokens": 2000}, "`max_tokens` must be greater than"),
    "a forced tool while thinking": (
        BODY | THINKS | {"tools": [TOOL], "tool_choice": {"type": "any"}},
        "Thinking may not be enabled when tool_choice forces tool use",
    ),
    "a temperature while thinking": (
        BODY | THINKS | {"temperature": 0.2},
        "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode",
    ),
    "a temperature while thinking as much as it likes": (
        BODY | {"thinking": {"type": "adaptive"}, "temperature": 0},
        "`temperature` may only be set to 1",
    ),
    "top_k while thinking": (BODY | THINKS | {"top_k": 5}, "`top_k` must be unset when thinking is enabled"),
    "a small top_p while thinking": (BODY | THINKS | {"top_p": 0.5}, "`top_p` must be greater than or equal to 0.95"),
    "a turn that did not begin with thinking": (
        BODY | THINKS | {"messages": [USER, says(use()), tells(result())]},
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    ),
    "a call by code that waits in no container": (
        BODY | {"messages": [USER, says(use(caller=CODE)), tells(result())]},
        "container_id is required when there are pending tool uses generated by code execution with tools.",
    ),
    "a call by code behind results that open the history": (
        BODY | {"messages": [tells(result("z")), says(use(caller=CODE)), tells(result())]},
        "container_id is required when there are pending tool uses",
    ),
    "a marker of an unknown kind": (
        BODY | {"system": [text(cache_control={"type": "forever"})]},
        "system.0.text.cache_control: Input tag 'forever' found",
    ),
    "five markers": (
        BODY | {"system": MARKED, "messages": [tells(*MARKED * 4)]},
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "an open output": (
        BODY | {"output_config": {"format": {"type": "json_schema", "schema": OPEN}}},
        "'additionalProperties' must be explicitly set to false",
    ),
    "an output that is text": (BODY | {"output_config": "low"}, "output_config: Input should be a valid dictionary"),
    "an output of another form": (BODY | {"output_config": {"format": {"type": "json"}}}, "output_config.format"),
}  # fmt: skip

TAKEN = {
    "the least": BODY,
    "everything": BODY
    | {
        "stream": True,
        "system": MARKED,
        "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        "temperature": 0.5,
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": CLOSED}},
    },
    "an effort without a form": BODY | {"output_config": {"effort": "low"}},
    "a temperature where thinking is off": BODY | {"thinking": {"type": "disabled"}, "temperature": 0.2, "top_k": 5},
    "thinking as much as it likes": BODY | {"thinking": {"type": "adaptive"}},
    "a strict tool": BODY | {"tools": [TOOL | {"strict": True, "input_schema": CLOSED}], "tool_choice": {"type": "none"}},
    "a turn that began with thinking": BODY | THINKS | {"messages": [USER, says(THINKING, use()), tells(result())]},
    "what may be set while thinking": BODY | THINKS | {"temperature": 1, "top_p": 0.95},
    "a call by code in its container": BODY | {"container": "c", "messages": [USER, says(use(caller=CODE)), tells(result())]},
    "a call by code of an earlier turn": BODY | {"messages": [USER, says(use(caller=CODE)), tells(result()), DONE, USER]},
    "a call by the model": BODY | {"messages": [USER, says(use(caller={"type": "direct"})), tells(result())]},
    "a marker that is data": BODY | {"messages": [USER, says(use(input=MARKER)), tells(result(), *MARKED * 4)]},
}  # fmt: skip


LEFT_TO_THE_HISTORY = {
    "a message that is text": (["go", says(use(caller=CODE)), tells(result())], "messages.0: Input should be a valid"),
    "a call by code at the end": ([USER, says(use(caller=CODE))], LEFT + "a."),
}


@pytest.mark.parametrize(("messages", "words"), LEFT_TO_THE_HISTORY.values(), ids=LEFT_TO_THE_HISTORY)
def test_a_broken_history_is_refused_for_what_broke_it_and_not_for_a_container(messages: Any, words: str) -> None:
    with pytest.raises(Refusal) as caught:
        AnthropicMessages().check(BODY | {"messages": messages})

    assert words in caught.value.message


# --- answers -------------------------------------------------------------------------------------------------------------

TURN = Turn(text="I look.", thinking="hm", calls=(call("look", n=1), call("rest")), usage=Usage(input_tokens=9, output_tokens=5, cached_input_tokens=4))  # fmt: skip


def answered(turn: Turn, *, stream: bool) -> bytes:
    made = AnthropicMessages().answer(turn, BODY | {"stream": stream}, number=1, ids=iter(("c1", "c2")))
    return b"".join(piece.content for piece in made.pieces)


def events(stream: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in stream.decode().split("\n") if line.startswith("data: ")]


def test_a_turn_is_one_message_with_blocks() -> None:
    assert json.loads(answered(TURN, stream=False)) == {
        "id": "msg_mock_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "bW9jaw=="},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"n": 1}},
            {"type": "tool_use", "id": "c2", "name": "rest", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 5,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 4,
            "output_tokens": 5,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }


def test_a_streamed_turn_ends_each_block_and_then_the_message() -> None:
    said = events(answered(TURN, stream=True))

    kinds = [event["type"] for event in said]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
    assert [event["delta"]["partial_json"] for event in said if event.get("index") == 3 and "delta" in event] == [""]


def test_a_whole_message_can_be_said_as_a_stream() -> None:
    message = json.loads(answered(TURN, stream=False))

    said = events(anthropic_events(message, pieces=1))

    assert "".join(event["delta"].get("partial_json", "") for event in said if "delta" in event) == '{"n": 1}'
    assert said[-2]["delta"]["stop_reason"] == "tool_use"


def test_what_a_text_cites_comes_in_pieces_of_its_own() -> None:
    said = events(anthropic_events({"content": [text("ab", citations=[{"n": 1}])], "stop_reason": None}, pieces=1))

    assert [event.get("content_block") or event["delta"] for event in said[1:4]] == [
        text("", citations=[]),
        {"type": "citations_delta", "citation": {"n": 1}},
        {"type": "text_delta", "text": "ab"},
    ]


def test_an_error_is_in_the_vendors_envelope() -> None:
    assert json.loads(AnthropicMessages().error(529, "Overloaded")) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
        "request_id": "req_mock",
    }


# --- over the wire -------------------------------------------------------------------------------------------------------


@pytest.mark.row("W03")
@pytest.mark.parametrize(("headers", "status"), [({}, 400), ({"anthropic-version": "2023-06-01"}, 200)])
async def test_a_request_without_the_version_is_refused(headers: dict[str, str], status: int) -> None:
    async with MockProvider(["ok"]) as provider, aiohttp.ClientSession() as client:
        response = await client.post(f"{provider.base_url}/messages", json=BODY, headers=headers)
        said = await response.json()

    refused = {"type": "invalid_request_error", "message": "anthropic-version: header is required"}
    assert response.status == status
    assert said.get("error") == (refused if status == 400 else None)
