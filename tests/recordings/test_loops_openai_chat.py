"""Recorded loops over Chat Completions, played through the public face: as recorded, and in the other form (synthetic)."""

import pytest
from _oracle_chat import of, stretch
from _replay import Exchange, Recording, play, recorded

from treadle import resolve_model
from treadle.errors import ModelRejected
from treadle.messages import user_message
from treadle.ports import ModelRequest
from treadle.testing import MockProvider, Turn

LOOPS = recorded("loops", "openai-chat")


@pytest.mark.row("W01", "W02")
@pytest.mark.parametrize("in_other_form", [False, True], ids=["as-recorded", "synthetic-other-form"])
@pytest.mark.parametrize("loop", LOOPS, ids=str)
async def test_a_recorded_loop_runs_as_recorded(loop: Recording, in_other_form: bool) -> None:
    played = await play(stretch(of(loop.exchanges), in_other_form=in_other_form))

    played.check()


REFUSED = [one for loop in LOOPS if isinstance(loop, Recording) for one in of(loop.exchanges) if one.status != 200]


@pytest.mark.row("W11")
@pytest.mark.parametrize("exchange", REFUSED)
async def test_a_recorded_refusal_is_one_that_no_retry_helps(exchange: Exchange) -> None:
    async with MockProvider([Turn(status=exchange.status, body=exchange.body.encode())]) as provider:
        model = resolve_model("openai-chat:m", base_url=provider.base_url)
        with pytest.raises(ModelRejected, match="either text or image_url type") as caught:
            _ = [part async for part in model.stream(ModelRequest(messages=(user_message("go"),)))]

    assert (caught.value.status, caught.value.may_retry) == (400, False)


def test_all_recorded_refusals_are_played() -> None:
    assert len(REFUSED) == (4 if isinstance(LOOPS[0], Recording) else 0)
