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
        ([{"role": "tool", "tool_call_id": "c", "content": "1"}], "The result 'c' answers no call"),
        ("no JSON", "The messages are not valid JSON"),
        (7, "messages is a list of messages, or its JSON; got 7"),
    ],
)
async def test_what_is_no_known_message_is_refused_with_its_place_and_nothing_is_added(messages: Any, says: str):
    async with open_session("memory:") as session:
        with pytest.raises(ConfigurationError, match=says):
            await import_messages(session, messages)
        assert session.messages == ()
