"""Recorded loops over both of OpenAI's dialects, played through the public face: as recorded, and in the other form (synthetic)."""

from collections.abc import Sequence
from typing import Any

import _oracle_chat as chat
import _oracle_responses as responses
import pytest
from _replay import Exchange, Recording, heard, play, recorded

from treadle.errors import ModelRejected

FORMS = pytest.mark.parametrize("in_other_form", [False, True], ids=["as-recorded", "synthetic-other-form"])
CHAT = recorded("loops", "openai-chat")
RESPONSES = recorded("loops", "openai-responses")


@pytest.mark.row("W01", "W02")
@FORMS
@pytest.mark.parametrize("loop", CHAT, ids=str)
async def test_a_recorded_loop_of_chat_runs_as_recorded(loop: Recording, in_other_form: bool) -> None:
    played = await play(chat.stretch(chat.of(loop.exchanges), in_other_form=in_other_form))

    played.check()


@pytest.mark.row("W04", "W06")
@FORMS
@pytest.mark.parametrize("loop", RESPONSES, ids=str)
async def test_a_recorded_loop_of_responses_runs_as_recorded(loop: Recording, in_other_form: bool) -> None:
    exchanges = loop.of(responses.HOST)

    played = await play(responses.stretch(exchanges, in_other_form=in_other_form))

    played.check()
    if not in_other_form:
        for number, request in enumerate(played.requests):
            _check_items_go_back(exchanges[:number], request.body["input"])


def _check_items_go_back(exchanges: Sequence[Exchange], sent: list[Any]) -> None:
    """Every item that the model has made is in the request, reasoning and seal unchanged."""
    made = [item for one in exchanges for item in responses.items(one.body)]
    by_id = {item["id"]: item for item in sent if "id" in item}
    for item in made:
        if item["type"] in ("message", "function_call"):
            kept = {key: value for key, value in item.items() if key != "content"}
            assert kept.items() <= by_id[item["id"]].items()
        else:
            assert by_id[item["id"]] == item


REFUSED = [
    ("openai-chat:m", "either text or image_url type", one)
    for loop in CHAT
    if isinstance(loop, Recording)
    for one in chat.of(loop.exchanges)
    if one.status != 200
] + [
    ("openai:m", "file type you uploaded is not supported", one)
    for loop in RESPONSES
    if isinstance(loop, Recording)
    for one in loop.of(responses.HOST)
    if one.status != 200
]


@pytest.mark.row("W11")
@pytest.mark.parametrize(("name", "words", "exchange"), REFUSED)
async def test_a_recorded_refusal_is_one_that_no_retry_helps(name: str, words: str, exchange: Exchange) -> None:
    with pytest.raises(ModelRejected, match=words) as caught:
        await heard(name, exchange.body, status=exchange.status, stream=True)

    assert (caught.value.status, caught.value.may_retry) == (400, False)


def test_all_recorded_refusals_are_played() -> None:
    assert [name for name, _, _ in REFUSED] == (
        ["openai-chat:m"] * 4 + ["openai:m"] if isinstance(CHAT[0], Recording) else []
    )
