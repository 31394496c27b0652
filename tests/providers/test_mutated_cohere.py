"""Mutations: answers of Cohere's dialect, changed in their bytes, their JSON and their order. Nothing but typed errors comes of them.

TREADLE_MUTATIONS says how many of each kind; `make soak` makes 20,000.
"""

import json
import random
from typing import Any

import pytest
from test_mutated_clouds import MUTATIONS, broken, check, encoded, mutated

from treadle.errors import ModelError
from treadle.mock.dialects.cohere import cohere_events
from treadle.ports import ModelPart
from treadle.providers.cohere.response import CohereResponse
from treadle.providers.http.reading import AnswerError, SseReader
from treadle.tools import JsonObject

CITED = {"start": 0, "end": 4, "text": "Grüß", "sources": [{"type": "tool", "id": "a:0"}], "type": "TEXT_CONTENT"}
ANSWER: JsonObject = {
    "id": "1",
    "message": {
        "role": "assistant",
        "tool_plan": "I look 🙂.",
        "content": [
            {"type": "thinking", "thinking": "Hm. Grüße 🙂"},
            {"type": "text", "text": "As said"},
            {"type": "strange", "strange": {"x": 1}},
        ],
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"key": "é🙂", "n": [1, {}]}'}},
            {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
        "citations": [{**CITED, "content_index": 1}, {**CITED, "type": "PLAN"}],
    },
    "finish_reason": "TOOL_CALL",
    "usage": {"tokens": {"input_tokens": 3, "output_tokens": 2, "reasoning_tokens": 1}, "cached_tokens": 1},
}
STREAM = cohere_events(ANSWER)


def events() -> list[Any]:
    return [json.loads(data) for data in SseReader().feed(STREAM) if data != b"[DONE]"]


def rewritten(chance: random.Random) -> bytes:
    """Change events and their order."""
    made = events()
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made))
        match chance.randrange(6):
            case 0:
                del made[at]
            case 1:
                made.insert(chance.randrange(len(made) + 1), made[at])
            case 2:
                other = chance.randrange(len(made))
                made[at], made[other] = made[other], made[at]
            case 3 if isinstance(made[at], dict) and isinstance(made[0], dict):
                made[at] = {**made[at], "type": chance.choice(events())["type"]}
            case _:
                made[at] = mutated(made[at], chance)
        if not made:
            break
    return b"".join(b"data: %b\n\n" % encoded(event) for event in made)


def read(content: bytes, chance: random.Random) -> None:
    """Read a stream in pieces; whatever is wrong with it is told by an error of ours."""
    reader, response, parts, at = SseReader(), CohereResponse({}), list[ModelPart](), 0
    while at < len(content):
        size = chance.choice((1, 7, 64, 1024, len(content)))
        for data in reader.feed(content[at : at + size]):
            parts += response.add(data)
        at += size
    reader.finish()
    check(parts, response.end())


@pytest.mark.row("P-FUZZ", "P-COHERE")
def test_a_changed_stream_raises_nothing_but_typed_errors() -> None:
    outcomes = {"read": 0, "refused": 0}
    for seed in range(MUTATIONS):
        chance = random.Random(seed)
        made = rewritten(chance) if seed % 4 else broken(STREAM, chance)
        try:
            read(made, chance)
            outcomes["read"] += 1
        except (ModelError, AnswerError):
            outcomes["refused"] += 1
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {made!r}") from exc
    assert min(outcomes.values()) > MUTATIONS / 20, outcomes


@pytest.mark.row("P-FUZZ", "P-COHERE")
def test_a_changed_whole_answer_raises_nothing_but_typed_errors() -> None:
    for seed in range(MUTATIONS):
        chance = random.Random(seed)
        value: Any = ANSWER
        for _ in range(chance.randint(1, 4)):
            value = mutated(value, chance)
        made = encoded(value) if seed % 4 else broken(encoded(ANSWER), chance)
        response = CohereResponse({})
        try:
            check(response.add_whole(made), response.end())
        except (ModelError, AnswerError):
            continue
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {made!r}") from exc
