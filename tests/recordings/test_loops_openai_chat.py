"""Recorded loops over Chat Completions, played through the public face: as recorded, and in the other form (synthetic)."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from _replay import Call, Exchange, Outcome, Recording, play, recorded

from treadle.providers.mock.chat import ChatCompletions
from treadle.testing import Turn, call


class _Oracle:
    """Reads Chat Completions in the simplest way: one message, or the deltas of a stream put together by index."""

    def tools(self, request: Any) -> Sequence[tuple[str, str, Any]]:
        functions = [tool["function"] for tool in request.get("tools") or []]
        return [(one["name"], one.get("description") or "", one["parameters"]) for one in functions]

    def task(self, request: Any) -> str:
        said = next(message["content"] for message in request["messages"] if message["role"] == "user")
        return said if isinstance(said, str) else "".join(piece.get("text", "") for piece in said)

    def calls(self, body: str) -> list[Call]:
        found: dict[int, list[str]] = {}
        for delta in deltas(body):
            for place, one in enumerate(delta.get("tool_calls") or []):
                parts = found.setdefault(one.get("index", place), ["", "", ""])
                parts[0] = parts[0] or one.get("id") or ""
                parts[1] = parts[1] or one["function"].get("name") or ""
                parts[2] += one["function"].get("arguments") or ""
        return [Call(one[0], one[1], json.loads(one[2] or "{}")) for _, one in sorted(found.items())]

    def text(self, body: str) -> str:
        return "".join(delta.get("content") or "" for delta in deltas(body))

    def outcomes(self, request: Any) -> dict[str, Outcome]:
        told = [message for message in request["messages"] if message["role"] == "tool"]
        return {message["tool_call_id"]: Outcome(message["content"]) for message in told}


def deltas(body: str) -> list[Any]:
    if body.lstrip().startswith("{"):
        return [json.loads(body)["choices"][0]["message"]]
    chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def answered(loop: Recording) -> tuple[Exchange, ...]:
    """Return what the model answered: not what it refused, nor what went elsewhere."""
    return tuple(one for one in loop.exchanges if one.status == 200 and one.path.endswith("/chat/completions"))


@pytest.mark.row("W01", "W02")
@pytest.mark.parametrize("loop", recorded("loops", "openai-chat"), ids=str)
async def test_a_recorded_loop_runs_as_recorded(loop: Recording) -> None:
    exchanges = answered(loop)

    played = await play(exchanges, oracle=_Oracle(), model="openai-chat:m", stream=_is_streamed(exchanges))

    played.check()


@pytest.mark.row("W01", "W02")
@pytest.mark.parametrize("loop", recorded("loops", "openai-chat"), ids=str)
async def test_a_recorded_loop_runs_alike_in_the_other_form_synthetic(loop: Recording) -> None:
    exchanges = answered(loop)
    is_streamed = _is_streamed(exchanges)
    bodies = [_rendered(one.body, stream=not is_streamed, number=at) for at, one in enumerate(exchanges)]

    played = await play(exchanges, oracle=_Oracle(), model="openai-chat:m", stream=not is_streamed, bodies=bodies)

    played.check()


def _is_streamed(exchanges: Sequence[Exchange]) -> bool:
    return not exchanges[0].body.lstrip().startswith("{")


def _rendered(body: str, *, stream: bool, number: int) -> bytes:
    """Say the same in the other form, by the mock provider's own hand."""
    oracle = _Oracle()
    calls = tuple(call(one.name, arguments=one.arguments, id=one.id) for one in oracle.calls(body))
    turn = Turn(text=oracle.text(body) or None, calls=calls)
    request = {"model": "m", "messages": [], "stream": stream}
    answer = ChatCompletions().answer(turn, request, number=number, ids=_no_ids())
    return b"".join(piece.content for piece in answer.pieces)


def _no_ids() -> Iterator[str]:
    yield from ()
