"""Recorded loops over OpenAI Responses, played through the public face: as recorded, and in the other form (synthetic)."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from _replay import Call, Exchange, Outcome, Recording, play, recorded

from treadle.messages import Media
from treadle.providers.mock.responses import Responses
from treadle.testing import Turn, call


class _Oracle:
    """Reads Responses in the simplest way: items of bodies, or of `response.output_item.done` events."""

    def tools(self, request: Any) -> Sequence[tuple[str, str, Any]]:
        return [
            (tool["name"], tool.get("description") or "", tool["parameters"])
            for tool in request.get("tools") or []
            if tool["type"] == "function"
        ]

    def task(self, request: Any) -> str:
        said = [item["content"] for item in request["input"] if item.get("role") == "user"]
        return next(words for words in reversed(said) if isinstance(words, str))

    def calls(self, body: str) -> list[Call]:
        return [
            Call(item["call_id"], item["name"], json.loads(item["arguments"]))
            for item in items(body)
            if item["type"] == "function_call"
        ]

    def text(self, body: str) -> str:
        return "".join(
            piece["text"]
            for item in items(body)
            if item["type"] == "message"
            for piece in item["content"]
            if piece["type"] == "output_text"
        )

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        outputs = [item for item in request["input"] if item.get("type") == "function_call_output"]
        return {item["call_id"]: _outcome(item["output"]) for item in outputs}


def items(body: str) -> list[Any]:
    if body.lstrip().startswith("{"):
        return json.loads(body)["output"]
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def _outcome(output: Any) -> Outcome:
    if isinstance(output, str):
        return Outcome(output)
    words = "".join(piece["text"] for piece in output if piece["type"] == "input_text")
    return Outcome(words, tuple(_media(piece) for piece in output if piece["type"] != "input_text"))


def _media(piece: Any) -> Media:
    url = piece.get("image_url") or piece.get("file_data") or piece.get("file_url") or piece["file_id"]
    if data := re.fullmatch(r"data:([^;]+);base64,(.*)", url, re.DOTALL):
        return Media(media_type=data[1], base64=data[2])
    return Media(media_type="image/png" if piece["type"] == "input_image" else "application/pdf", url=url)


def answered(loop: Recording) -> tuple[Exchange, ...]:
    """Return what OpenAI answered: what it refused is a test of its own."""
    return tuple(one for one in loop.of("api.openai.com") if one.status == 200)


@pytest.mark.row("W04", "W06")
@pytest.mark.parametrize("loop", recorded("loops", "openai-responses"), ids=str)
async def test_a_recorded_loop_runs_as_recorded(loop: Recording) -> None:
    exchanges = answered(loop)

    played = await play(exchanges, oracle=_Oracle(), model="openai:m", stream=_is_streamed(exchanges))

    played.check()
    _check_items_go_back(exchanges, played.requests[-1].body["input"])


@pytest.mark.row("W04")
@pytest.mark.parametrize("loop", recorded("loops", "openai-responses"), ids=str)
async def test_a_recorded_loop_runs_alike_in_the_other_form_synthetic(loop: Recording) -> None:
    exchanges = answered(loop)
    is_streamed = _is_streamed(exchanges)
    bodies = [_rendered(one.body, stream=not is_streamed, number=at) for at, one in enumerate(exchanges)]

    played = await play(exchanges, oracle=_Oracle(), model="openai:m", stream=not is_streamed, bodies=bodies)

    played.check()


def _is_streamed(exchanges: Sequence[Exchange]) -> bool:
    return not exchanges[0].body.lstrip().startswith("{")


def _check_items_go_back(exchanges: Sequence[Exchange], sent: list[Any]) -> None:
    """Every item that the model made before its last answer is in the last request, reasoning and seal unchanged."""
    made = [item for one in exchanges[:-1] for item in items(one.body)]
    by_id = {item["id"]: item for item in sent if "id" in item}
    for item in made:
        if item["type"] in ("message", "function_call"):
            kept = {key: value for key, value in item.items() if key != "content"}
            assert kept.items() <= by_id[item["id"]].items()
        else:
            assert by_id[item["id"]] == item


def _rendered(body: str, *, stream: bool, number: int) -> bytes:
    """Say the same in the other form, by the mock provider's own hand."""
    oracle = _Oracle()
    calls = tuple(call(one.name, arguments=one.arguments, id=one.id) for one in oracle.calls(body))
    turn = Turn(text=oracle.text(body) or None, calls=calls)
    request = {"model": "m", "input": [], "stream": stream}
    answer = Responses().answer(turn, request, number=number, ids=_no_ids())
    return b"".join(piece.content for piece in answer.pieces)


def _no_ids() -> Iterator[str]:
    yield from ()
