"""Recordings in which a second vendor continues: one session over both adapters, as recorded and in the other form."""

from dataclasses import replace
from itertools import groupby
from typing import Any

import _oracle_anthropic
import _oracle_chat
import _oracle_gemini
import _oracle_responses
import pytest
from _replay import Exchange, Recording, Stretch, play, recorded

from treadle.mock.dialects.gemini import STAND_IN_SIGNATURES


def dialect_of(exchange: Exchange) -> Any:
    """Return the module that reads an exchange."""
    if exchange.host == _oracle_anthropic.HOST:
        return _oracle_anthropic
    if exchange.host in _oracle_gemini.HOSTS:
        return _oracle_gemini
    return _oracle_chat if exchange.path.endswith("/chat/completions") else _oracle_responses


def stretches(recording: Recording, *, in_other_form: bool) -> list[Stretch]:
    return [
        dialect.stretch(tuple(exchanges), in_other_form=in_other_form)
        for dialect, exchanges in groupby(recording.exchanges, dialect_of)
    ]


FOLDERS = ("anthropic-messages", "gemini", "openai-chat", "openai-responses")
MIXED = [
    loop
    for folder in FOLDERS
    for loop in recorded("loops", folder)
    if not isinstance(loop, Recording) or len({dialect_of(one) for one in loop.exchanges if one.status != 201}) > 1
]


@pytest.mark.row("M15", "W06")
@pytest.mark.parametrize("in_other_form", [False, True], ids=["as-recorded", "synthetic-other-form"])
@pytest.mark.parametrize("loop", MIXED, ids=str)
async def test_a_recorded_session_goes_on_with_the_second_vendor(loop: Recording, in_other_form: bool) -> None:
    played = await play(*stretches(loop, in_other_form=in_other_form))

    played.check()
    said = [result.text for result in played.results]
    spoken = words_in(played.requests[-1].body)
    assert all(words in spoken for words in said[:-1])


@pytest.mark.row("M15", "W06")
@pytest.mark.parametrize(
    "loop", recorded("loops", "openai-responses", "test_thinking_with_tool_calls_from_other_model.json"), ids=str
)
async def test_a_recorded_turn_goes_on_with_the_second_vendor_in_its_middle(loop: Recording) -> None:
    """As recorded: Gemini was asked with the result of a call that OpenAI's model had made, and OpenAI not again."""
    asked, _, passed_on = loop.exchanges
    first, second = stretches(Recording(loop.name, (asked, passed_on)), in_other_form=False)

    played = await play(replace(first, is_left_open=True), second)

    played.check()
    (call,) = first.oracle.calls(asked.body)
    (content,) = [one for one in played.requests[1].body["contents"] if one["role"] == "model"]
    (told,) = content["parts"]
    assert told["functionCall"] == {"name": call.name, "args": call.arguments, "id": call.id}
    assert told["thoughtSignature"] in STAND_IN_SIGNATURES


def words_in(value: Any) -> str:
    """Return all words of a JSON value, in order; not what they are called."""
    if isinstance(value, dict):
        return "".join(words_in(one) for key, one in value.items() if key not in ("type", "role"))
    return "".join(map(words_in, value)) if isinstance(value, list) else value if isinstance(value, str) else ""


def test_every_recording_of_two_vendors_is_played() -> None:
    found = [str(loop) for loop in MIXED if isinstance(loop, Recording)]

    assert not found or found == [
        "test_anthropic_to_google_deferred_capability_history_replay",
        "test_cross_provider_capability_replay_google_gemini_3_flash_preview_anthropic_claude_sonnet_4_5",
        "test_multiple_agent_tool_calls",
        "test_thinking_with_tool_calls_from_other_model",
    ]
