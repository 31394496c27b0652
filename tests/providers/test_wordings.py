"""Wordings: each row of the table, said by a server of each vendor, means the same: an ending, a refusal, no credit, too long."""

import json
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from chat_server import Script, answer, json_answer, serving
from wire import sse, whole

from treadle import Agent, RunResult, resolve_model
from treadle.budgets import Budget
from treadle.messages import Finish
from treadle.providers.http.failures import Wording, wordings
from treadle.providers.vendors import VENDORS
from treadle.tools import JsonObject

DOORS = ("openai-chat", "openai", "anthropic", "gemini", "cohere", "bedrock", "bedrock-claude", "azure")
"""One name of each dialect, and of clouds that wrap its errors."""
CHAT = [name for name, vendor in VENDORS.items() if vendor.adapter.endswith(":OpenAIChat")]


async def run(name: str, *scripts: Script, retries: int | None = 0) -> tuple[RunResult, int]:
    async with serving(*scripts) as server:
        model = resolve_model(f"{name}:m", base_url=server.url, api_key="k", stream=False)
        result = await Agent(model, budget=Budget(max_retries_per_model_call=retries)).run("go")
    return result, len(server.requests)


WORDS: dict[str, Any] = {
    "openai": [{"type": "message", "id": "m", "content": [{"type": "output_text", "text": "So"}]}],
    **{name: [{"type": "text", "text": "So"}] for name in ("anthropic", "bedrock-claude")},
    **{name: [{"text": "So"}] for name in ("gemini", "bedrock")},
    "cohere": {"content": [{"type": "text", "text": "So"}]},
}


def ended(name: str, word: str) -> JsonObject:
    """Return a whole answer that ends with a word, in the dialect that is spoken at a vendor's door."""
    return whole(name, WORDS.get(name, {"content": "So"}), word)


ENDS = {
    Finish.STOP: "completed",
    Finish.CALLS: "completed",
    Finish.LENGTH: "output_truncated",
    Finish.REFUSED: "refused",
}


@pytest.mark.row("PF15", "PF24")
@pytest.mark.parametrize("name", DOORS)
async def test_an_ending_means_the_same_in_every_dialect(name: str) -> None:
    words = [(word, ending.finish) for ending in wordings().ending for word in ending.words]
    of_each_finish = {finish: (word, finish) for word, finish in words}.values()
    for word, finish in {*of_each_finish, *words[DOORS.index(name) :: len(DOORS)]}:
        is_known = name != "openai" or finish in (Finish.LENGTH, Finish.REFUSED)
        # "pause_turn" and a turn of the vendor's own tools continue at their own vendor
        if word == "pause_turn" and name in ("anthropic", "bedrock-claude"):
            continue
        result, _ = await run(name, json_answer(ended(name, word)))
        if finish is Finish.UNKNOWN:
            assert (word, result.completed) == (word, False)
        else:
            assert (word, result.reason) == (word, ENDS[finish] if is_known else "incomplete_stream")


@pytest.mark.row("PF15")
@pytest.mark.parametrize("word", ["content-filter", "contentFilter", "Content_Filter"])
async def test_an_ending_means_the_same_however_it_is_spelled(word: str) -> None:
    result, requests = await run("vercel", json_answer(ended("vercel", word)), retries=None)

    assert (result.reason, requests) == ("refused", 1)


@pytest.mark.row("PF15")
@pytest.mark.parametrize("name", CHAT)
async def test_an_answer_that_a_vendor_calls_sensitive_is_refused_and_asked_for_once(name: str) -> None:
    result, requests = await run(name, json_answer(ended(name, "sensitive")), retries=None)

    assert (result.reason, requests) == ("refused", 1)


ROWS = [(meaning, row) for meaning in ("refused", "no_credit", "too_long") for row in getattr(wordings(), meaning)]


def code_and_message(row: Wording) -> tuple[str, str]:
    return (row.example, "no") if " " not in row.example else ("bad_request", row.example)


SHAPES: dict[str, Callable[[str, str], Any]] = {
    "error": lambda code, message: {"error": {"code": code, "message": message, "type": code}},
    "flat": lambda code, message: {"code": code, "message": message},
    "list": lambda code, message: [{"error": {"code": 400, "status": code, "message": message}}],
    "anthropic": lambda code, message: {"type": "error", "error": {"type": code, "message": message}},
}
MEANINGS = {"refused": "refused", "no_credit": "model_error", "too_long": "context_overflow"}


@pytest.mark.row("PF15", "PF10")
@pytest.mark.parametrize("name", DOORS)
async def test_an_error_means_the_same_in_every_dialect_and_is_not_asked_again(name: str) -> None:
    for (meaning, row), shape in zip(ROWS[DOORS.index(name) :: len(DOORS)], cycle(SHAPES.values())):
        error = shape(*code_and_message(row))
        status = 429 if meaning == "no_credit" else 400
        result, requests = await run(name, json_answer(error, status=status), retries=None)
        assert (row.example, result.reason, requests) == (row.example, MEANINGS[meaning], 1)
        assert ("no credit left" in result.message) == (meaning == "no_credit")


@pytest.mark.row("PF15", "PF10")
@pytest.mark.parametrize(("meaning", "row"), ROWS)
async def test_an_error_inside_a_stream_means_the_same(meaning: str, row: Wording) -> None:
    code, message = code_and_message(row)
    begun = {"choices": [{"index": 0, "delta": {"content": "So"}}]}
    stream = "".join(f"data: {json.dumps(one)}\n\n" for one in (begun, {"error": {"code": code, "message": message}}))
    result, requests = await run("vllm", answer(stream), retries=None)

    assert (result.reason, requests) == (MEANINGS[meaning], 1)


@pytest.mark.parametrize(
    ("name", "status", "error", "reason"),
    [
        ("alibaba", 400, {"error": {"code": "data_inspection_failed", "type": "data_inspection_failed", "message": "Input data may contain inappropriate content."}}, "refused"),
        ("deepseek", 400, {"detail": "Content Exists Risk"}, "refused"),
        ("openrouter", 403, {"error": {"code": 403, "message": 'm requires moderation. Your input was flagged for "violence".'}}, "refused"),
        ("zai", 429, {"error": {"code": "1113", "message": "\u4f59\u989d\u4e0d\u8db3"}}, "model_error"),
        ("zai", 400, {"error": {"code": "1301", "message": "\u5185\u5bb9\u654f\u611f"}}, "refused"),
        ("gemini", 429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Your prepayment credits are depleted."}}, "model_error"),
        ("xai", 403, {"code": "permission-denied", "error": "Your newly created team doesn't have any credits yet."}, "model_error"),
        ("llamacpp", 500, {"error": {"code": 500, "message": "context shift is disabled", "type": "server_error"}}, "context_overflow"),
        ("copilot", 400, {"error": {"message": "The number of images exceeds the limit of 10"}}, "model_error"),
        ("openai-chat", 400, {"error": {"message": "Unknown parameter: 'cache_policy'."}}, "model_error"),
    ],
)  # fmt: skip
async def test_a_vendors_own_words_end_the_run_at_once(name: str, status: int, error: Any, reason: str) -> None:
    result, requests = await run(name, json_answer(error, status=status), retries=None)

    assert (result.reason, requests) == (reason, 1)
    assert ("no credit left" in result.message) == (
        reason == "model_error" and name in ("moonshot", "zai", "xai", "alibaba", "gemini")
    )


@pytest.mark.row("PF15")
async def test_a_quota_of_a_minute_is_waited_for() -> None:
    busy = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota, please check your plan and billing details.", "details": [{"retryDelay": "0s"}]}}  # fmt: skip
    result, requests = await run(
        "gemini", json_answer(busy, status=429), json_answer(ended("gemini", "stop")), retries=1
    )

    assert (result.reason, requests) == ("completed", 2)


FILTERED = {
    "error": {"code": "content_filter", "message": "The prompt triggered the content management policy.", "status": 400}
}
BLOCKED = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
}
GEMINI = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "Blocked: your input was flagged."}}
FAILED = {
    "type": "response.failed",
    "response": {"status": "failed", "output": [], "error": {"code": "bio_policy", "message": "no"}},
}


@pytest.mark.row("PF15", "PF10")
@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("openai-chat", [{"choices": [{"index": 0, "delta": {"content": "Take"}}]}, FILTERED]),
        ("openai", [{"type": "response.created", "response": {"status": "in_progress"}}, FAILED]),
        ("anthropic", [{"type": "ping"}, BLOCKED]),
        ("gemini", [{"candidates": [{"content": {"parts": [{"text": "Take"}]}}]}, GEMINI]),
    ],
)
async def test_an_answer_that_a_policy_breaks_off_ends_the_run_as_refused(name: str, events: list[Any]) -> None:
    result, requests = await run(name, answer(sse(*events)), retries=None)

    assert (result.reason, result.completed, result.text, requests) == ("refused", False, "", 1)


@pytest.mark.row("PF15")
async def test_a_session_goes_on_after_a_refusal() -> None:
    async with serving(json_answer(FILTERED, status=400), json_answer(ended("openai-chat", "stop"))) as server:
        agent = Agent(resolve_model("openai-chat:m", base_url=server.url, stream=False))
        refused = await agent.run("go")
        result = await agent.run("something else", session=refused.session)

    assert (refused.reason, result.text) == ("refused", "So")
    assert "policy forbids it" in refused.message  # behind the vendor's own words
