"""Usage: what a server counted, under whichever name it says so; and our estimate, marked, of a number that cannot be read."""

import json
from typing import Any

import pytest
from chat_server import answer, json_answer, serving
from wire import NAMES, READERS, said

from treadle import Agent, resolve_model
from treadle.messages import Usage
from treadle.testing import Turn
from treadle.tools import JsonObject

BODIES: dict[str, JsonObject] = {
    name: json.loads(said(name, Turn(text="four char", usage=None), stream=False)) for name in NAMES
}
BODIES["openai"]["output"] = [{"type": "message", "id": "m", "content": [{"type": "output_text", "text": "four char"}]}]
COUNTS = {"gemini": "usageMetadata"}


async def used(name: str, usage: Any) -> Usage:
    """Run an agent whose only response counts so; its prompt is estimated at 21 tokens and its answer at 13."""
    async with serving(json_answer({**BODIES[name], COUNTS.get(name, "usage"): usage})) as server:
        model = resolve_model(f"{name}:m", base_url=server.url, api_key="k", stream=False)
        return (await Agent(model).run("x" * 40)).usage


CHAT = {"prompt_tokens": 100, "completion_tokens": 5}
RESPONSES = {"input_tokens": 100, "output_tokens": 5}
ZERO = {"cached_tokens": 0}


@pytest.mark.row("W09")
@pytest.mark.parametrize(
    ("name", "usage", "cached", "written"),
    [
        ("openai-chat", {**CHAT, "cache_read_input_tokens": 80, "prompt_tokens_details": ZERO}, 80, 0),
        ("openai-chat", {**CHAT, "cache_read_input_tokens": 0, "prompt_tokens_details": {"cached_tokens": 80}}, 80, 0),
        ("openai-chat", {**CHAT, "prompt_cache_hit_tokens": 80, "prompt_tokens_details": ZERO}, 80, 0),
        ("openai-chat", {**CHAT, "cached_tokens": 80, "prompt_tokens_details": ZERO}, 80, 0),
        ("openai-chat", {**CHAT, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 9}, 80, 9),
        ("openai-chat", {**CHAT, "cache_read_input_tokens": 800, "prompt_tokens_details": None}, 100, 0),
        ("openai", {**RESPONSES, "cache_read_input_tokens": 80, "input_tokens_details": ZERO}, 80, 0),
        ("anthropic", {"input_tokens": 11, "output_tokens": 5, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 9}, 80, 9),
        ("bedrock", {"inputTokens": 11, "outputTokens": 5, "cacheReadInputTokens": 0, "cacheReadInputTokenCount": 80, "cacheWriteInputTokens": 9}, 80, 9),
        ("cohere", {"tokens": RESPONSES, "cached_tokens": 80}, 80, 0),
        ("gemini", {"promptTokenCount": 100, "candidatesTokenCount": 5, "cachedContentTokenCount": 80}, 80, 0),
    ],
)  # fmt: skip
async def test_cached_tokens_count_under_whichever_name_says_more(
    name: str, usage: JsonObject, cached: int, written: int
) -> None:
    assert await used(name, usage) == Usage(
        input_tokens=100, output_tokens=5, cached_input_tokens=cached, cache_written_tokens=written
    )


UNREADABLE = [
    ("openai-chat", {"prompt_tokens": "many", "completion_tokens": 5}, (21, 5)),
    ("openai-chat", {"prompt_tokens": 100, "completion_tokens": -5}, (100, 13)),
    ("openai-chat", {"prompt_tokens": 100, "completion_tokens": True}, (100, 13)),
    ("openai-chat", {"prompt_tokens": 100}, (100, 13)),
    ("openai-chat", {"completion_tokens": 5}, (21, 5)),
    ("openai", {"input_tokens": 100}, (100, 16)),
    ("anthropic", {"input_tokens": 100}, (100, 13)),
    ("bedrock", {"inputTokens": 100, "outputTokens": None}, (100, 13)),
    ("cohere", {"tokens": {"input_tokens": 100}}, (100, 13)),
    ("gemini", {"promptTokenCount": 100}, (100, 13)),
    ("openai-chat", {**CHAT, "prompt_tokens_details": {"cached_tokens": "most"}}, (100, 5)),
    ("openai-chat", {**CHAT, "cache_read_input_tokens": -1}, (100, 5)),
    ("openai", {**RESPONSES, "input_tokens_details": {"cached_tokens": []}}, (100, 5)),
    ("anthropic", {**RESPONSES, "cache_read_input_tokens": "most"}, (100, 5)),
    ("bedrock", {"inputTokens": 100, "outputTokens": 5, "cacheReadInputTokens": {}}, (100, 5)),
    ("cohere", {"tokens": RESPONSES, "cached_tokens": "most"}, (100, 5)),
    ("gemini", {"promptTokenCount": 100, "candidatesTokenCount": 5, "cachedContentTokenCount": "most"}, (100, 5)),
    ("openai-chat", {"prompt_tokens": "many", "completion_tokens": []}, (21, 13)),
    ("openai-chat", {"prompt_tokens": 1e300, "completion_tokens": 5}, (21, 5)),
    ("openai", {"input_tokens": "many", "output_tokens": 5}, (21, 5)),
    ("openai", {"input_tokens": 100, "output_tokens": {}}, (100, 16)),
    ("anthropic", {"input_tokens": "many", "output_tokens": 5}, (21, 5)),
    ("anthropic", {"input_tokens": 100, "output_tokens": "few"}, (100, 13)),
    ("bedrock", {"inputTokens": "many", "outputTokens": 5}, (21, 5)),
    ("bedrock", {"inputTokens": 100, "outputTokens": "few"}, (100, 13)),
    ("cohere", {"tokens": {"input_tokens": "many", "output_tokens": 5}}, (21, 5)),
    ("cohere", {"tokens": {"input_tokens": 100, "output_tokens": "few"}}, (100, 13)),
    ("gemini", {"promptTokenCount": "many", "candidatesTokenCount": 5}, (21, 5)),
    ("gemini", {"promptTokenCount": 100, "candidatesTokenCount": "few"}, (100, 13)),
]


@pytest.mark.row("W09")
@pytest.mark.parametrize(("name", "usage", "expected"), UNREADABLE)
async def test_a_number_that_cannot_be_read_is_estimated_and_marked(
    name: str, usage: JsonObject, expected: tuple[int, int]
) -> None:
    assert await used(name, usage) == Usage(input_tokens=expected[0], output_tokens=expected[1], estimated=True)


@pytest.mark.row("W09")
@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("openai-chat", {"prompt_tokens": "100", "completion_tokens": "5"}),
        ("openai-chat", {"prompt_tokens": "many", "completion_tokens": 5, "total_tokens": 105}),
        ("openai-chat", {"prompt_tokens": 100, "completion_tokens": "few", "total_tokens": 105}),
        ("gemini", {"promptTokenCount": "many", "candidatesTokenCount": 5, "totalTokenCount": 105}),
        ("gemini", {"promptTokenCount": 100, "candidatesTokenCount": "few", "totalTokenCount": 105}),
        ("anthropic", {"input_tokens": "100", "output_tokens": 5.0}),
    ],
)
async def test_a_number_in_another_form_or_told_by_the_total_is_no_estimate(name: str, usage: JsonObject) -> None:
    assert await used(name, usage) == Usage(input_tokens=100, output_tokens=5)


NONE = [
    *(("openai-chat", usage) for usage in (None, {}, {"prompt_tokens": 0, "completion_tokens": 0}, "odd")),
    *(("openai", usage) for usage in (None, {}, {"input_tokens": 0, "output_tokens": 0}, "many")),
    *(("gemini", usage) for usage in (None, {}, [], "x", {"promptTokenCount": "many"}, {"promptTokenCount": -1})),
    ("anthropic", None),
]
WRITTEN = {
    "input_tokens": 3,
    "output_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3},
}


@pytest.mark.row("PF20", "W09")
@pytest.mark.parametrize(
    ("name", "usage", "expected"),
    [
        *((name, usage, None) for name, usage in NONE),
        ("openai", {"input_tokens": 5}, Usage(input_tokens=5, estimated=True)),
        ("openai", {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 9}}, Usage(input_tokens=5, cached_input_tokens=5, estimated=True)),
        ("openai", {"input_tokens": 5, "input_tokens_details": None, "output_tokens": -1}, Usage(input_tokens=5, estimated=True)),
        ("openai-chat", {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109}, Usage(input_tokens=35, output_tokens=74)),
        (
            "gemini",
            {"promptTokenCount": 100, "toolUsePromptTokenCount": 20, "cachedContentTokenCount": 60, "candidatesTokenCount": 7, "thoughtsTokenCount": 30, "totalTokenCount": 157},
            Usage(input_tokens=120, output_tokens=37, cached_input_tokens=60, reasoning_tokens=30),
        ),
        (
            "anthropic",
            {"input_tokens": 3, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 11, "output_tokens_details": {"thinking_tokens": 6}},
            Usage(input_tokens=15, output_tokens=11, cached_input_tokens=7, cache_written_tokens=5, reasoning_tokens=6),
        ),
        ("anthropic", WRITTEN, Usage(input_tokens=8, cache_written_tokens=5)),
        ("anthropic", {**WRITTEN, "cache_creation_input_tokens": 0}, Usage(input_tokens=8, cache_written_tokens=5)),
        ("anthropic", {**WRITTEN, "cache_creation_input_tokens": 5}, Usage(input_tokens=8, cache_written_tokens=5)),
    ],
)  # fmt: skip
def test_what_a_server_counts_is_taken_as_far_as_it_makes_sense(name: str, usage: Any, expected: Usage | None) -> None:
    response = READERS[name]({})
    response.add_whole(json.dumps({**BODIES[name], COUNTS.get(name, "usage"): usage}).encode())

    assert response.end().usage == expected


@pytest.mark.row("W09")
async def test_an_unreadable_number_at_the_end_of_a_stream_is_estimated_too() -> None:
    delta = {"choices": [{"index": 0, "delta": {"content": "four char"}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": None, "completion_tokens": 5}}
    stream = "".join(f"data: {json.dumps(one)}\n\n" for one in (delta, usage))
    async with serving(answer(f"{stream}data: [DONE]\n\n")) as server:
        result = await Agent(resolve_model("vllm:m", base_url=server.url)).run("x" * 40)

    assert result.usage == Usage(input_tokens=21, output_tokens=5, estimated=True)
