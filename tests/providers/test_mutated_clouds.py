"""Mutations: answers of the clouds' dialects, changed in their bytes, their JSON and their order. Nothing but typed errors comes of them.

TREADLE_MUTATIONS says how many of each kind; `make soak` makes 20,000.
"""

import base64
import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from treadle.errors import ModelError
from treadle.messages import ToolCall
from treadle.mock.dialects.anthropic import anthropic_events
from treadle.mock.dialects.bedrock import converse_events
from treadle.mock.dialects.shared import event_frame, exception_frame
from treadle.ports import CallReady, ModelEnd, ModelPart
from treadle.providers.anthropic.response import InvokedResponse
from treadle.providers.bedrock.response import ConverseResponse
from treadle.providers.http.reading import AnswerError, EventStreamReader, Response
from treadle.tools import JsonObject

MUTATIONS = int(os.environ.get("TREADLE_MUTATIONS", "400"))

CONVERSE: JsonObject = {
    "metrics": {"latencyMs": 1},
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Grüße 🙂", "signature": "abc"}}},
                {"reasoningContent": {"redactedContent": "c2VhbA=="}},
                {"text": "I look."},
                {"citationsContent": {"content": [{"text": "As said"}], "citations": [{"title": "t"}]}},
                {"toolUse": {"toolUseId": "a", "name": "look", "input": {"key": "é🙂", "n": [1, {}]}}},
                {"toolUse": {"toolUseId": "b", "name": "look", "input": {}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5, "cacheReadInputTokens": 1},
    "trace": {"guardrail": {"actionReason": "none"}},
}
CLAUDE: JsonObject = {
    "type": "message",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
        {"type": "text", "text": "I look 🙂."},
        {"type": "tool_use", "id": "a", "name": "look", "input": {"key": "é"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
STRANGE: list[Any] = [None, True, -1, 2**70, 1.5, "", "x", "🙂", [], [[]], {}, {"text": []}, "\ud800", "0" * 50]


def invoked_events() -> bytes:
    lines = [
        line.removeprefix(b"data: ") for line in anthropic_events(CLAUDE).splitlines() if line.startswith(b"data: ")
    ]
    return b"".join(
        event_frame("chunk", json.dumps({"bytes": base64.b64encode(line).decode()}).encode()) for line in lines
    )


def frames(content: bytes) -> list[tuple[str, Any]]:
    """Return the type and the JSON of each event."""
    return [next(iter(json.loads(data).items())) for data in EventStreamReader().feed(content)]


KINDS: dict[str, tuple[Callable[[], Response], bytes, JsonObject]] = {
    "converse": (lambda: ConverseResponse({}), converse_events(CONVERSE), CONVERSE),
    "invoke": (lambda: InvokedResponse({}), invoked_events(), CLAUDE),
}


def read(response: Response, content: bytes, chance: random.Random) -> None:
    """Read a stream in pieces; whatever is wrong with it is told by an error of ours."""
    reader, parts, at = EventStreamReader(), list[ModelPart](), 0
    while at < len(content):
        size = chance.choice((1, 7, 64, 1024, len(content)))
        for data in reader.feed(content[at : at + size]):
            parts += response.add(data)
        at += size
    reader.finish()
    check(parts, response.end())


def check(parts: list[ModelPart], end: ModelEnd) -> None:
    """Each call that was reported early is a call of the message."""
    ids = [part.id for part in end.parts if isinstance(part, ToolCall)]
    assert all(part.call.id in ids for part in parts if isinstance(part, CallReady))


def mutated(value: Any, chance: random.Random) -> Any:
    """Change one place of a JSON value."""
    if chance.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return chance.choice(STRANGE)
    return mutated_list(value, chance) if isinstance(value, list) else mutated_object(value, chance)


def mutated_list(value: list[Any], chance: random.Random) -> list[Any]:
    at = chance.randrange(len(value))
    match chance.randrange(4):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return [*value, value[at]]
        case _:
            return [mutated(one, chance) if place == at else one for place, one in enumerate(value)]


def mutated_object(value: JsonObject, chance: random.Random) -> JsonObject:
    name = chance.choice(list(value))
    match chance.randrange(5):
        case 0:
            return {key: one for key, one in value.items() if key != name}
        case 1:
            return {**value, chance.choice(list(value)): value[name]}
        case _:
            return {**value, name: mutated(value[name], chance)}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def rewritten(events: list[tuple[str, Any]], chance: random.Random) -> bytes:
    """Change events and their order, and frame them well."""
    originals, events = events, list(events)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(events))
        kind, payload = events[at]
        match chance.randrange(7):
            case 0:
                del events[at]
            case 1:
                events.insert(chance.randrange(len(events) + 1), events[at])
            case 2:
                events[at] = (chance.choice([one for one, _ in events] + ["unknown"]), payload)
            case 3:
                other = chance.randrange(len(events))
                events[at], events[other] = events[other], events[at]
            case 4 if kind == "chunk" and payload in [one for _, one in originals]:
                inner = mutated(json.loads(base64.b64decode(payload["bytes"])), chance)
                events[at] = (kind, {"bytes": base64.b64encode(encoded(inner)).decode()})
            case _:
                events[at] = (kind, mutated(payload, chance))
        if not events:
            break
    made = b"".join(event_frame(kind, encoded(payload)) for kind, payload in events)
    return made + (exception_frame("throttlingException", b"{}") if chance.random() < 0.05 else b"")


def broken(content: bytes, chance: random.Random) -> bytes:
    """Change bytes as they come, so that sums no longer match."""
    made = bytearray(content)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(made))
        match chance.randrange(4):
            case 0:
                made[at] = chance.randrange(256)
            case 1:
                del made[at : at + chance.randint(1, 30)]
            case 2:
                made[at:at] = chance.randbytes(chance.randint(1, 30))
            case _:
                del made[at:]
        if not made:
            break
    return bytes(made)


@pytest.mark.row("P-FUZZ")
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_stream_raises_nothing_but_typed_errors(kind: str) -> None:
    make, content, _ = KINDS[kind]
    events = frames(content)
    outcomes = {"read": 0, "refused": 0}
    for seed in range(MUTATIONS):
        chance = random.Random(seed)
        made = rewritten(events, chance) if seed % 4 else broken(content, chance)
        try:
            read(make(), made, chance)
            outcomes["read"] += 1
        except (ModelError, AnswerError):
            outcomes["refused"] += 1
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {made!r}") from exc
    assert min(outcomes.values()) > MUTATIONS / 20, outcomes


@pytest.mark.row("P-FUZZ")
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_whole_answer_raises_nothing_but_typed_errors(kind: str) -> None:
    make, _, body = KINDS[kind]
    for seed in range(MUTATIONS):
        chance = random.Random(seed)
        value: Any = body
        for _ in range(chance.randint(1, 4)):
            value = mutated(value, chance)
        made = encoded(value) if seed % 4 else broken(encoded(body), chance)
        response = make()
        try:
            check(response.add_whole(made), response.end())
        except (ModelError, AnswerError):
            continue
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {made!r}") from exc
