"""Refusals: what a vendor's policy forbids ends a run as `refused`, in whatever way the vendor says so."""

import json
from typing import Any

import pytest
from chat_server import answer, json_answer, serving

from treadle import Agent, RunResult, resolve_model

FILTERED = {
    "error": {"code": "content_filter", "message": "The prompt triggered the content management policy.", "status": 400}
}
FLAGGED = {
    "error": {"code": "invalid_prompt", "message": "Your prompt was flagged as potentially violating our usage policy."}
}
BLOCKED = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
}
GEMINI = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "Blocked: your input was flagged."}}
BEDROCK = {"message": "The model returned the following errors: Output blocked by content filtering policy"}
FAILED = {
    "type": "response.failed",
    "response": {"status": "failed", "output": [], "error": {"code": "bio_policy", "message": "no"}},
}


async def run(script: bytes, name: str, *, is_streamed: bool = True) -> tuple[RunResult, int]:
    async with serving(script) as server:
        model = resolve_model(f"{name}:m", base_url=server.url, stream=is_streamed)
        result = await Agent(model).run("go")
    return result, len(server.requests)


def stream(*events: Any) -> bytes:
    return answer("".join(f"event: {event.get('type', 'error')}\ndata: {json.dumps(event)}\n\n" for event in events))


@pytest.mark.row("PF15")
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("openai-chat", FILTERED),
        ("azure", FILTERED),
        ("openai", FLAGGED),
        ("anthropic", BLOCKED),
        ("gemini", GEMINI),
        ("bedrock", BEDROCK),
        ("bedrock-claude", BEDROCK),
    ],
)
async def test_a_request_that_a_policy_forbids_ends_the_run_as_refused(
    name: str, error: Any, is_streamed: bool
) -> None:
    result, requests = await run(json_answer(error, status=400), name, is_streamed=is_streamed)

    assert (result.reason, result.completed, requests) == ("refused", False, 1)
    assert "policy forbids it" in result.message  # behind the vendor's own words


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
    result, requests = await run(stream(*events), name)

    assert (result.reason, result.text, requests) == ("refused", "", 1)


@pytest.mark.row("PF15")
async def test_a_session_goes_on_after_a_refusal() -> None:
    fine = json_answer({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]})
    async with serving(json_answer(FILTERED, status=400), fine) as server:
        agent = Agent(resolve_model("openai-chat:m", base_url=server.url, stream=False))
        refused = await agent.run("go")
        result = await agent.run("something else", session=refused.session)

    assert (refused.reason, result.text) == ("refused", "fine")
