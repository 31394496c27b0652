"""Recorded loops over OpenAI Responses, played through the public face: as recorded, and in the other form (synthetic)."""

from collections.abc import Sequence
from typing import Any

import pytest
from _oracle_responses import HOST, items, stretch
from _replay import Exchange, Recording, play, recorded

from treadle import resolve_model
from treadle.errors import ModelRejected
from treadle.messages import user_message
from treadle.ports import ModelRequest
from treadle.testing import MockProvider, Turn

LOOPS = recorded("loops", "openai-responses")


@pytest.mark.row("W04", "W06")
@pytest.mark.parametrize("in_other_form", [False, True], ids=["as-recorded", "synthetic-other-form"])
@pytest.mark.parametrize("loop", LOOPS, ids=str)
async def test_a_recorded_loop_runs_as_recorded(loop: Recording, in_other_form: bool) -> None:
    exchanges = loop.of(HOST)

    played = await play(stretch(exchanges, in_other_form=in_other_form))

    played.check()
    if not in_other_form:
        for number, request in enumerate(played.requests):
            _check_items_go_back(exchanges[:number], request.body["input"])


def _check_items_go_back(exchanges: Sequence[Exchange], sent: list[Any]) -> None:
    """Every item that the model has made is in the request, reasoning and seal unchanged."""
    made = [item for one in exchanges for item in items(one.body)]
    by_id = {item["id"]: item for item in sent if "id" in item}
    for item in made:
        if item["type"] in ("message", "function_call"):
            kept = {key: value for key, value in item.items() if key != "content"}
            assert kept.items() <= by_id[item["id"]].items()
        else:
            assert by_id[item["id"]] == item


REFUSED = [one for loop in LOOPS if isinstance(loop, Recording) for one in loop.of(HOST) if one.status != 200]


@pytest.mark.row("W11")
@pytest.mark.parametrize("exchange", REFUSED)
async def test_a_recorded_refusal_is_one_that_no_retry_helps(exchange: Exchange) -> None:
    async with MockProvider([Turn(status=exchange.status, body=exchange.body.encode())]) as provider:
        model = resolve_model("openai:m", base_url=provider.base_url)
        with pytest.raises(ModelRejected, match="file type you uploaded is not supported") as caught:
            _ = [part async for part in model.stream(ModelRequest(messages=(user_message("go"),)))]

    assert (caught.value.status, caught.value.may_retry) == (400, False)


def test_all_recorded_refusals_are_played() -> None:
    assert len(REFUSED) == (1 if isinstance(LOOPS[0], Recording) else 0)
