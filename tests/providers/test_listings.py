"""The models that a key or a server offers, in each dialect's own list."""

import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import json_answer, serving
from child import run_treadle

from treadle.errors import ConfigurationError, ModelRejected, ModelResponseInvalid, ModelUnavailable, UnknownModel
from treadle.ports import ModelFacts
from treadle.resolve import offered_models
from treadle.testing import MockProvider

KEY = "k-offered-secret"
TOLD = {"openai": None, "openai-chat": None, "anthropic": 32_768, "gemini": 32_768, "cohere": 32_768, "ollama": None}


@pytest.mark.row("P-OFFERS")
@pytest.mark.parametrize(("vendor", "window"), TOLD.items())
async def test_each_dialect_lists_what_the_server_offers(vendor: str, window: int | None) -> None:
    async with MockProvider(["hi"], api_key=KEY) as provider:
        found = await offered_models(vendor, base_url=provider.base_url, api_key=KEY)

    assert list(found) == [f"{vendor}:mock"]
    assert found[f"{vendor}:mock"].window == window
    assert provider.refusals == []


@pytest.mark.row("P-OFFERS")
@pytest.mark.parametrize("vendor", ["openai", "openai-chat", "anthropic", "gemini", "cohere"])
async def test_a_refused_key_is_told_and_never_shown(vendor: str) -> None:
    async with MockProvider(["hi"], api_key="another") as provider:
        with pytest.raises(ModelRejected, match="API_KEY") as raised:
            await offered_models(vendor, base_url=provider.base_url, api_key=KEY)

    assert KEY not in str(raised.value)


async def offered(answer: Any, *more: Any, vendor: str = "openai-chat", status: int = 200) -> tuple[Any, list[str]]:
    async with serving(*(json_answer(one, status=status) for one in (answer, *more))) as server:
        found = await offered_models(vendor, base_url=server.url)
    return found, [one.line for one in server.requests]


@pytest.mark.row("P-OFFERS")
async def test_all_pages_of_a_list_are_read() -> None:
    first = {"data": [{"id": "a"}], "has_more": True, "last_id": "a"}
    claude, lines = await offered(first, {"data": [{"id": "b"}], "has_more": False}, vendor="anthropic")
    gemini, _ = await offered({"models": [{"name": "models/a"}], "nextPageToken": "t"}, {}, vendor="gemini")
    page = {"models": [{"name": "a", "context_length": 9.0}], "next_page_token": "t"}
    cohere, asked = await offered(page, {"models": [{"name": "b"}]}, vendor="cohere")

    assert (list(claude), list(gemini), list(cohere)) == (
        ["anthropic:a", "anthropic:b"],
        ["gemini:a"],
        ["cohere:a", "cohere:b"],
    )
    assert "after_id=a" in lines[1]
    assert "page_token=t" in asked[1]
    assert cohere["cohere:a"].window == 9


@pytest.mark.row("P-OFFERS")
@pytest.mark.parametrize(
    ("model", "facts"),
    [
        ({"context_window": 131_072, "max_completion_tokens": 8_192}, {"window": 131_072, "output": 8_192}),
        ({"context_length": 1000}, {"window": 1000}),
        ({"max_context_length": 1000}, {"window": 1000}),
        ({"max_model_len": 1000}, {"window": 1000}),
        ({"meta": {"n_ctx": 8192, "n_ctx_train": 32768}}, {"window": 8192}),
        ({"context_length": "much", "pricing": {"prompt": "free"}}, {}),
        ({"context_length": -1, "pricing": []}, {}),
    ],
)
async def test_what_a_server_says_of_a_model_is_kept(model: Any, facts: Any) -> None:
    found, _ = await offered({"data": [{"id": "m", **model}]})

    assert found == {"openai-chat:m": ModelFacts(**facts)}


@pytest.mark.row("P-OFFERS")
async def test_a_price_for_one_token_becomes_one_for_a_million() -> None:
    found, _ = await offered({"data": [{"id": "m", "pricing": {"prompt": "0.000003", "completion": "0.000015"}}]})

    price = found["openai-chat:m"].price
    assert (price.input, price.output) == (3, 15)


@pytest.mark.row("P-OFFERS")
async def test_a_bare_list_and_an_empty_one_are_lists() -> None:
    assert list((await offered([{"id": "m"}, 7]))[0]) == ["openai-chat:m"]
    assert (await offered({"object": "list", "data": None}))[0] == {}


@pytest.mark.row("P-OFFERS")
@pytest.mark.parametrize("vendor", ["openai", "openai-chat", "anthropic", "cohere"])
@pytest.mark.parametrize("answer", [{}, 7, "x", {"data": 7, "models": {}}])
async def test_what_is_no_list_is_told(vendor: str, answer: Any) -> None:
    with pytest.raises(ModelResponseInvalid, match="a list of models"):
        await offered(answer, vendor=vendor)


@pytest.mark.row("P-OFFERS")
async def test_who_cannot_be_asked_is_told() -> None:
    with pytest.raises(UnknownModel, match="Unknown vendor"):
        await offered_models("nobody")
    with pytest.raises(ConfigurationError, match="console or command line"):
        await offered_models("bedrock")
    with pytest.raises(ModelUnavailable):
        await offered_models("ollama", base_url="http://127.0.0.1:9/v1")


@pytest.mark.row("P-OFFERS")
def test_the_program_lists_what_a_server_offers(tmp_path: Path) -> None:
    with MockProvider(["hi"]).in_thread() as provider:
        address = ("--offered", "--base-url", provider.base_url)
        _, listed, _ = run_treadle(tmp_path, "models", "anthropic", *address)
        _, written, _ = run_treadle(tmp_path, "models", "--json", "gemini", *address)
    unreached, _, _ = run_treadle(tmp_path, "models", "ollama", "--offered", "--base-url", "http://127.0.0.1:9/v1")
    unnamed, _, errors = run_treadle(tmp_path, "models", "--offered")

    assert listed.splitlines()[1].split()[:2] == ["anthropic:mock", "32,768"]
    assert json.loads(written)[0]["output"] == 4_096
    assert (unreached, unnamed) == (1, 2)
    assert "treadle models openai --offered" in errors
