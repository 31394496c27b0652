"""Conversations that other libraries have kept continue in a session.

The files in `histories` were written by pydantic-ai 2.68, openai-agents 0.24, langchain-core 1.8, openai 3.57 and anthropic, from one conversation.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, ConfigurationError, open_session, resolve_model
from treadle.messages import Media, Message, Text
from treadle.mock import MockProvider
from treadle.resolve import import_messages
from treadle.testing import ScriptedModel, text

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def spoken(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages if message.role != "tool"]


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
@pytest.mark.parametrize("as_objects", [False, True], ids=["JSON", "dicts"])
async def test_a_conversation_of_another_library_continues(path: Path, as_objects: bool):
    model = ScriptedModel([text("Order 7 it is.")])
    async with open_session("memory:") as session:
        given = json.loads(path.read_text()) if as_objects else path.read_bytes()
        count = await import_messages(session, given)
        result = await Agent(model).run("Which order?", session=session)

    asked = model.requests[0].messages
    assert count == len(asked) - 1 == 6
    assert spoken(asked) == [
        ("user", "Find Ada's order"),
        ("assistant", "I look."),
        ("assistant", "Ada has order 7."),
        ("user", "Thanks"),
        ("assistant", "You are welcome."),
        ("user", "Which order?"),
    ]
    assert [(call.id, call.name, json.loads(call.arguments)) for call in asked[1].calls] == [
        ("c1", "find_order", {"customer": "Ada"}),
        ("c2", "find_order", {"customer": "Bo"}),
    ]
    first, second = asked[2].results
    assert (first.call_id, first.name, json.loads(first.content)) == ("c1", "find_order", {"order": 7})
    assert (second.call_id, second.name) == ("c2", "find_order")
    assert second.content
    assert result.text == "Order 7 it is."


@pytest.mark.parametrize("dialect", ["openai-chat", "openai", "anthropic", "gemini"])
async def test_every_dialect_accepts_an_imported_conversation(dialect: str):
    async with MockProvider(["Order 7 it is."]) as provider, open_session("memory:") as session:
        model = resolve_model(f"{dialect}:mock", base_url=provider.base_url, api_key="sk-mock")
        await import_messages(session, HISTORIES[0].read_bytes())
        result = await Agent(model).run("Which order?", session=session)
    assert result.text == "Order 7 it is."


async def test_a_call_without_a_result_gets_one_and_ids_that_are_repeated_are_told_apart():
    call = {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    }
    history = [{"role": "user", "content": "Look"}, call, {"role": "tool", "tool_call_id": "c", "content": "1"}, call]
    async with open_session("memory:") as session:
        await import_messages(session, history)
        calls = [one.id for message in session.messages for one in message.calls]
        results = [(one.call_id, one.content) for message in session.messages for one in message.results]
    assert calls == ["c", "c_2"]
    assert results == [("c", "1"), ("c_2", "The conversation was imported without the result of this call.")]


async def test_images_of_each_library_are_imported():
    parts: list[Any] = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "input_image", "image_url": "https://example.com/a.jpg"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "aGk="}},
    ]
    async with open_session("memory:") as session:
        await import_messages(session, [{"role": "user", "content": parts}])
        (message,) = session.messages
    assert message.parts == (
        Text("Look"),
        Media(media_type="image/png", base64="aGk="),
        Media(media_type="image/jpeg", url="https://example.com/a.jpg"),
        Media(media_type="image/gif", base64="aGk="),
    )


async def test_an_image_in_a_result_stays_an_image_and_what_a_model_declined_stays_text():
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a map"}, picture]}
    async with open_session("memory:") as session:
        await import_messages(
            session,
            [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "draw", "input": {}}]},
                {"role": "user", "content": [result]},
                {"role": "assistant", "content": None, "refusal": "I may not say more."},
            ],
        )
        _, answered, declined = session.messages

    assert [(one.content, one.media) for one in answered.results] == [
        ("a map", (Media(media_type="image/png", base64="aGk="),))
    ]
    assert declined.text == "I may not say more."


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([{"role": "user", "content": "Hi"}, {"speaker": "me"}], "Message 2 cannot be imported: its form is unknown"),
        ([{"role": "user", "content": [{"type": "hologram"}]}], "Message 1 cannot be imported: a part of its content"),
        (
            [{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "c", "content": "1"}],
            "The result 'c' answers no call of the message before it. Leave it out, or import its call too",
        ),
        ([{"type": "function_call", "name": "look"}], "Message 1 cannot be imported: its form is unknown"),
        ("no JSON", "The messages are not valid JSON"),
        (7, "messages is a list of messages, or its JSON; got 7"),
    ],
)
async def test_what_is_no_known_message_is_refused_with_its_place_and_nothing_is_added(messages: Any, says: str):
    async with open_session("memory:") as session:
        with pytest.raises(ConfigurationError, match=says):
            await import_messages(session, messages)
        assert session.messages == ()


HOSTED: list[tuple[str, list[Any], list[str], str]] = [
    (
        "OpenAI's Responses",
        [
            {"role": "user", "content": "Look"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
            {"type": "web_search_call", "id": "ws_2", "status": "completed", "action": {"type": "search"}},
            {"type": "mcp_call", "id": "m", "name": "lookup", "arguments": "{}", "output": "Order 7"},
            {
                "type": "code_interpreter_call",
                "id": "c",
                "code": "print(7)",
                "outputs": [{"type": "logs", "logs": "7"}],
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 7."}]},
        ],
        ["Look", "[lookup] Order 7[code_interpreter_call] 7It is 7."],
        "2 of web_search_call",
    ),
    (
        "Anthropic",
        [
            {"role": "user", "content": "Look"},
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "order"}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "s1",
                        "content": [{"type": "web_search_result", "url": "https://a", "encrypted_content": "Ag"}],
                    },
                    {"type": "server_tool_use", "id": "s2", "name": "code_execution", "input": {"code": "print(7)"}},
                    {
                        "type": "code_execution_tool_result",
                        "tool_use_id": "s2",
                        "content": {"type": "code_execution_result", "stdout": "7", "stderr": "", "return_code": 0},
                    },
                    {"type": "text", "text": "It is 7."},
                ],
            },
        ],
        ["Look", "[code_execution_tool_result] 7It is 7."],
        "2 of server_tool_use, 1 of web_search_tool_result",
    ),
    (
        "pydantic-ai",
        [
            {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Look"}]},
            {
                "kind": "response",
                "parts": [
                    {"part_kind": "builtin-tool-call", "tool_name": "web_search", "args": "{}", "tool_call_id": "b"},
                    {
                        "part_kind": "builtin-tool-return",
                        "tool_name": "web_search",
                        "content": {"results": [{"text": "Order 7"}]},
                        "tool_call_id": "b",
                    },
                    {"part_kind": "text", "content": "It is 7."},
                ],
            },
        ],
        ["Look", "[web_search] Order 7It is 7."],
        "1 of builtin-tool-call",
    ),
]


@pytest.mark.parametrize(("messages", "kept", "dropped"), [one[1:] for one in HOSTED], ids=[one[0] for one in HOSTED])
async def test_what_a_provider_s_own_tools_said_is_kept_as_text_and_the_rest_is_named_once(
    messages: list[Any], kept: list[str], dropped: str, caplog: pytest.LogCaptureFixture
):
    async with open_session("memory:") as session:
        await import_messages(session, messages)
        assert [message.text for message in session.messages] == kept
    (warning,) = caplog.messages
    assert warning == f"Not imported, because it has no text that another model could read: {dropped}"


async def test_a_history_that_was_cut_after_a_call_begins_behind_the_results_of_that_call(caplog):
    history = [
        {"role": "system", "content": "You help."},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Thanks"},
    ]
    async with open_session("memory:") as session:
        assert await import_messages(session, history) == 2
        assert [message.text for message in session.messages] == ["Done.", "Thanks"]
    assert caplog.messages == [
        "The history begins after a call: the results of c1, c2 were not imported, because their calls are not in it"
    ]
