"""Fuzz: answers of every dialect, changed in their bytes, their JSON and their order. Nothing but typed errors comes of them.

TREADLE_MUTATIONS says how many of each kind; `make soak` makes 20,000.
"""

import base64
import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import READERS, Event, events_of, is_framed, said, stream_of

from treadle.errors import ModelError
from treadle.messages import ToolCall
from treadle.mock.dialects.anthropic import anthropic_events
from treadle.mock.dialects.bedrock import converse_events
from treadle.mock.dialects.cohere import cohere_events
from treadle.mock.dialects.shared import event_frame, exception_frame
from treadle.ports import CallReady, ModelEnd, ModelPart
from treadle.providers.http.reading import AnswerError
from treadle.testing import Turn, call
from treadle.tools import JsonObject

MUTATIONS = int(os.environ.get("TREADLE_MUTATIONS", "200"))

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
CITED = {"start": 0, "end": 4, "text": "Grüß", "sources": [{"type": "tool", "id": "a:0"}], "type": "TEXT_CONTENT"}
COHERE: JsonObject = {
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
TURN = Turn(thinking="Hm.", text="Grüße 🙂", calls=(call("look", key="é🙂", n=[1, {}]), call("look")), pieces=2)


def framed(content: bytes) -> bytes:
    """Return the events of a stream of Claude as Bedrock's InvokeModel sends them."""
    lines = [line.removeprefix(b"data: ") for line in content.splitlines() if line.startswith(b"data: ")]
    return b"".join(event_frame("chunk", encoded({"bytes": base64.b64encode(line).decode()})) for line in lines)


STREAMS: dict[str, tuple[bytes, JsonObject]] = {
    **{name: (said(name, TURN), json.loads(said(name, TURN, stream=False))) for name in ("openai-chat", "openai", "gemini")},
    "anthropic": (anthropic_events(CLAUDE), CLAUDE),
    "cohere": (cohere_events(COHERE), COHERE),
    "bedrock": (converse_events(CONVERSE), CONVERSE),
    "bedrock-claude": (b"", CLAUDE),
}  # fmt: skip
"""Of each dialect an honest answer, streamed and whole."""
STRANGE: list[Any] = [None, True, -1, 2**70, 1.5, "", "x", "🙂", [], [[]], {}, {"text": []}, "\ud800", "0" * 50]


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def read(name: str, content: bytes, chance: random.Random) -> None:
    """Read a stream in pieces; whatever is wrong with it is told by an error of ours."""
    response, parts, at = READERS[name]({}), list[ModelPart](), 0
    frames = response.frames()
    while at < len(content):
        size = chance.choice((1, 7, 64, 1024, len(content)))
        for data in frames.feed(content[at : at + size]):
            parts += response.add(data)
        at += size
    frames.finish()
    check(parts, response.end())


def check(parts: list[ModelPart], end: ModelEnd) -> None:
    """Each call that was reported early is a call of the message."""
    ids = [part.id for part in end.parts if isinstance(part, ToolCall)]
    assert all(part.call.id in ids for part in parts if isinstance(part, CallReady))


def mutated(value: Any, chance: random.Random) -> Any:
    """Change one place of a JSON value."""
    if chance.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return chance.choice(STRANGE)
    if isinstance(value, list):
        at = chance.randrange(len(value))
        changed = [mutated(one, chance) if place == at else one for place, one in enumerate(value)]
        return chance.choice((value[:at] + value[at + 1 :], [*value, value[at]], changed, changed))
    name = chance.choice(list(value))
    without = {key: one for key, one in value.items() if key != name}
    elsewhere = {**value, chance.choice(list(value)): value[name]}
    changed_object = {**value, name: mutated(value[name], chance)}
    return chance.choice((without, elsewhere, changed_object, changed_object, changed_object))


def rewritten(name: str, originals: list[Event], chance: random.Random) -> bytes:
    """Change events and their order, and frame them well."""
    events = list(originals)
    for _ in range(chance.randint(1, 4)):
        at, other = chance.randrange(len(events)), chance.randrange(len(events))
        kind, payload = events[at]
        match chance.randrange(7):
            case 0:
                del events[at]
            case 1:
                events.insert(other, events[at])
            case 2:
                events[at], events[other] = events[other], events[at]
            case 3 if is_framed(name):
                events[at] = (chance.choice([events[other][0], "unknown"]), payload)
            case 3 if isinstance(payload, dict) and "type" in payload:
                events[at] = (kind, {**payload, "type": chance.choice(originals)[1]["type"]})
            case 4 if kind == "chunk" and payload in [one for _, one in originals]:
                inner = mutated(json.loads(base64.b64decode(payload["bytes"])), chance)
                events[at] = (kind, {"bytes": base64.b64encode(encoded(inner)).decode()})
            case _:
                events[at] = (kind, mutated(payload, chance))
        if not events:
            break
    thrown = exception_frame("throttlingException", b"{}") if is_framed(name) and chance.random() < 0.05 else b""
    return stream_of(name, events) + thrown


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


def only_typed_errors(made: bytes, act: Callable[[], None], seed: int) -> bool:
    """Return whether it was read; fail where anything but a typed error comes of it."""
    try:
        act()
    except (ModelError, AnswerError):
        return False
    except Exception as exc:
        raise AssertionError(f"seed {seed}: {made!r}") from exc
    return True


@pytest.mark.row("P-FUZZ", "P-COHERE")
@pytest.mark.parametrize("name", STREAMS)
def test_a_changed_stream_raises_nothing_but_typed_errors(name: str) -> None:
    content = STREAMS[name][0] or framed(STREAMS["anthropic"][0])
    originals = events_of(name, content)
    outcomes = {True: 0, False: 0}
    for seed in range(MUTATIONS):
        chance = random.Random(seed)
        made = rewritten(name, originals, chance) if seed % 4 else broken(content, chance)
        outcomes[only_typed_errors(made, lambda made=made, chance=chance: read(name, made, chance), seed)] += 1
    assert min(outcomes.values()) > MUTATIONS / 20, outcomes


@pytest.mark.row("P-FUZZ", "P-COHERE")
@pytest.mark.parametrize("name", STREAMS)
def test_a_changed_whole_answer_raises_nothing_but_typed_errors(name: str) -> None:
    for seed in range(MUTATIONS):
        chance = random.Random(seed)
        value: Any = STREAMS[name][1]
        for _ in range(chance.randint(1, 4)):
            value = mutated(value, chance)
        made = encoded(value) if seed % 4 else broken(encoded(STREAMS[name][1]), chance)
        response = READERS[name]({})
        only_typed_errors(
            made, lambda response=response, made=made: check(response.add_whole(made), response.end()), seed
        )


def names_in(value: Any) -> set[str]:
    """Return the names of all fields in a JSON value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {*(value if isinstance(value, dict) else ())}.union(*map(names_in, inner))


SENT = [
    payload
    for name, (stream, whole) in STREAMS.items()
    for payload in (whole, *(one for _, one in events_of(name, stream)))
]
WORDS = sorted(names_in(SENT))
"""Names of fields in the dialects."""
KINDS = sorted({one["type"] for one in SENT if "type" in one} | {"response.incomplete", "response.failed"})
"""Kinds of events in the dialects."""
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(KINDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=20,
)
EVENTS = (
    st.dictionaries(st.sampled_from(WORDS), VALUES, max_size=6).map(encoded)
    | VALUES.map(encoded)
    | st.binary(max_size=60)
)


@pytest.mark.row("P-FUZZ", "PF11")
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=MUTATIONS // 10)
@given(st.lists(EVENTS, max_size=6), st.sampled_from(KINDS), st.booleans())
def test_events_of_any_values_raise_nothing_but_typed_errors(
    name: str, pieces: list[bytes], kind: str, is_whole: bool
) -> None:
    response = READERS[name]({})
    try:
        for data in pieces:
            (response.add_whole if is_whole else response.add)(
                data.replace(b"{", b'{"type": "%b", ' % kind.encode(), 1)
            )
        response.end()
    except (ModelError, AnswerError):
        pass
