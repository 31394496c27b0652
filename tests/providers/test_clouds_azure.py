"""Azure: both address forms in both dialects, keys and Entra tokens, the content filter in both places, both forms of retry-after."""

import asyncio
import json
import time
from typing import Any

import pytest
from chat_server import answer, json_answer, serving
from child import ask

from treadle import Agent, Budget, resolve_model
from treadle.errors import ConfigurationError, MissingCredential, ModelUnavailable
from treadle.messages import user_message
from treadle.ports import ModelRequest
from treadle.providers.clouds.azure import chat_endpoint, responses_endpoint
from treadle.providers.clouds.fetching import Asked, Reached
from treadle.testing import MockProvider, Turn

HOST = "https://name.openai.azure.com"
FILTER = {
    "error": {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "type": None, "param": "prompt", "code": "content_filter", "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True, "severity": "high"}}},
    }
}  # fmt: skip


def reached(name: str = "azure", **more: Any) -> Reached:
    asked = {"base_url": None, "api_key": "k", "stream": True, "options": {}, "environment": {}, **more}
    return (responses_endpoint if name == "azure-responses" else chat_endpoint)(
        Asked(name=name, model="my-gpt", **asked)
    )


@pytest.mark.row("P-AZURE", "P-DOORS")
@pytest.mark.parametrize(
    ("name", "given", "environment", "address"),
    [
        ("azure", HOST, {}, f"{HOST}/openai/v1"),
        ("azure-responses", f"{HOST}/", {}, f"{HOST}/openai/v1"),
        ("azure", HOST, {"OPENAI_API_VERSION": "2024-10-21"}, f"{HOST}/openai/deployments/my-gpt?api-version=2024-10-21"),
        ("azure-responses", HOST, {"AZURE_OPENAI_API_VERSION": "2025-04-01-preview"}, f"{HOST}/openai?api-version=2025-04-01-preview"),
        ("azure", f"{HOST}/openai?api-version=1", {}, f"{HOST}/openai/deployments/my-gpt?api-version=1"),
        ("azure", f"{HOST}/openai/deployments/other?api-version=1", {}, f"{HOST}/openai/deployments/other?api-version=1"),
        ("azure-responses", f"{HOST}/openai/v1", {"OPENAI_API_VERSION": "1"}, f"{HOST}/openai/v1"),
        ("azure", "https://gateway.example/ai", {"OPENAI_API_VERSION": "1"}, "https://gateway.example/ai"),
    ],
)  # fmt: skip
def test_a_resource_is_completed_and_any_other_path_is_taken_as_it_is(name, given, environment, address) -> None:
    assert reached(name, base_url=given, environment=environment).base_url == address
    assert reached(name, environment={"AZURE_OPENAI_ENDPOINT": given, **environment}).base_url == address


@pytest.mark.row("P-DOORS")
def test_what_is_missing_is_named_with_the_next_step() -> None:
    with pytest.raises(ConfigurationError, match="AZURE_BASE_URL"):
        reached()
    with pytest.raises(ConfigurationError, match="api_version"):
        reached(base_url=HOST, options={"api_version": 3})
    with pytest.raises(ConfigurationError, match="not an API version"):
        reached(base_url=HOST, options={"api_version": "1&x=2"})


@pytest.mark.row("P-DOORS")
async def test_the_extra_is_named_where_it_is_missing() -> None:
    told = await ask("azure:my-gpt", {"AZURE_BASE_URL": HOST}, without="azure.identity")
    assert MissingCredential.__name__ in told[-1]
    assert "AZURE_API_KEY" in told[-1]
    assert "pip install '.[azure]'" in told[-1]


@pytest.mark.row("P-AZURE")
@pytest.mark.parametrize(
    ("name", "options", "path"),
    [
        ("azure", {}, "/openai/v1/chat/completions"),
        ("azure", {"api_version": "2024-10-21"}, "/openai/deployments/my-gpt/chat/completions"),
        ("azure-responses", {}, "/openai/v1/responses"),
        ("azure-responses", {"api_version": "2025-04-01-preview"}, "/openai/responses"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_both_dialects_answer_under_both_forms(name, options, path, stream) -> None:
    async with MockProvider(["hi"]) as provider:
        model = resolve_model(
            f"{name}:my-gpt",
            base_url=provider.base_url.removesuffix("/v1"),
            api_key="k",
            options=options,
            stream=stream,
        )
        result = await Agent(model).run("go")

    [sent] = provider.requests
    assert (result.text, sent.path) == ("hi", path)
    assert (sent.headers["api-key"], "authorization" in sent.headers) == ("k", False)
    assert (sent.body["model"], "api_version" in sent.body) == ("my-gpt", False)
    assert result.messages[-1].origin == f"{name}:my-gpt"


@pytest.mark.row("P-AZURE")
async def test_the_api_version_goes_with_every_request() -> None:
    async with serving(json_answer({"error": {"message": "no"}}, status=400)) as server:
        address = server.url.removesuffix("/v1")
        for name in ("azure", "azure-responses"):
            model = resolve_model(f"{name}:my-gpt", base_url=f"{address}?api-version=2025-04-01-preview", api_key="k")
            await Agent(model).run("go")

    query = "?api-version=2025-04-01-preview HTTP/1.1"
    assert [one.line for one in server.requests] == [
        f"POST /openai/deployments/my-gpt/chat/completions{query}",
        f"POST /openai/responses{query}",
    ]


@pytest.mark.row("P-AZURE")
@pytest.mark.parametrize("name", ["azure", "azure-responses"])
async def test_the_content_filter_refuses_the_request(name: str) -> None:
    async with MockProvider([Turn(status=400, body=json.dumps(FILTER).encode())]) as provider:
        result = await Agent(resolve_model(f"{name}:my-gpt", base_url=provider.base_url, api_key="k")).run("go")

    assert (result.reason, result.completed, len(provider.requests)) == ("refused", False, 1)
    assert "content management policy" in result.message


def chat_events(*choices: dict[str, Any]) -> bytes:
    prompt = {
        "choices": [],
        "prompt_filter_results": [
            {"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}}}
        ],
    }
    events = [prompt, *({"choices": [{"index": 0, "content_filter_results": {}, **choice}]} for choice in choices)]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in [*events]).encode() + b"data: [DONE]\n\n"


@pytest.mark.row("P-AZURE")
async def test_the_content_filter_refuses_the_answer_in_each_form_and_dialect() -> None:
    said = {"delta": {"role": "assistant", "content": "Here is"}, "finish_reason": None}
    stop = {"delta": {}, "finish_reason": "content_filter"}
    message = {"role": "assistant", "content": "Here is"}
    whole = {
        "choices": [{"index": 0, "message": message, "finish_reason": "content_filter"}],
        "prompt_filter_results": [],
    }
    partial = {
        "id": "r", "object": "response", "status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": [],
    }  # fmt: skip
    incomplete = f"data: {json.dumps({'type': 'response.incomplete', 'response': partial})}\n\n".encode()
    cases = [
        ("azure", True, chat_events(said, stop)),
        ("azure", False, json.dumps(whole).encode()),
        ("azure-responses", True, incomplete),
        ("azure-responses", False, json.dumps(partial).encode()),
    ]
    for name, stream, content in cases:
        async with MockProvider([Turn(body=content)]) as provider:
            model = resolve_model(f"{name}:my-gpt", base_url=provider.base_url, api_key="k", stream=stream)
            result = await Agent(model).run("go")
        assert (result.reason, result.completed) == ("refused", False), name


@pytest.mark.row("P-AZURE")
async def test_what_the_filter_says_of_a_good_answer_changes_nothing() -> None:
    said = {"delta": {"role": "assistant", "content": "Here."}, "finish_reason": None}
    late = {"content_filter_offsets": {"check_offset": 1}, "finish_reason": None}
    async with MockProvider([Turn(body=chat_events(said, late, {"delta": {}, "finish_reason": "stop"}))]) as provider:
        result = await Agent(resolve_model("azure:my-gpt", base_url=provider.base_url, api_key="k")).run("go")

    assert (result.text, result.completed) == ("Here.", True)


@pytest.mark.row("P-AZURE")
@pytest.mark.parametrize("name", ["azure", "azure-responses"])
@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after": "7"}, "", 7.0),
        ({"retry-after-ms": "2500"}, "", 2.5),
        ({"Retry-After": "3", "retry-after-ms": "2500"}, "", 2.5),
        ({"retry-after": "7"}, " Please retry after 60 seconds.", 60.0),
        ({"retry-after": "90"}, " Please retry after 60 seconds.", 90.0),
    ],
)
async def test_both_forms_of_the_wait_are_kept_and_the_longer_of_two_counts(
    name: str, headers: dict[str, str], text: str, seconds: float
) -> None:
    error = {
        "error": {
            "code": "429",
            "message": f"Requests have exceeded the token rate limit.{text}",
        }
    }
    async with serving(json_answer(error, status=429, headers=headers)) as server:
        model = resolve_model(f"{name}:my-gpt", base_url=server.url, api_key="k")
        with pytest.raises(ModelUnavailable) as told:
            [part async for part in model.stream(ModelRequest(messages=(user_message("go"),)))]
    assert told.value.retry_after_seconds == seconds


@pytest.mark.row("P-AZURE")
@pytest.mark.parametrize("name", ["azure", "azure-responses"])
async def test_a_function_gives_an_entra_token(name: str) -> None:
    tokens = iter(("first-entra-token", "second-entra-token"))
    async with MockProvider(["hi", "hi"]) as provider:
        model = resolve_model(f"{name}:my-gpt", base_url=provider.base_url, api_key=lambda: next(tokens))
        for _ in range(2):
            await Agent(model).run("go")

    assert [one.headers["authorization"] for one in provider.requests] == [
        "Bearer first-entra-token",
        "Bearer second-entra-token",
    ]
    assert not any("api-key" in one.headers for one in provider.requests)


@pytest.mark.row("P-AZURE")
async def test_the_machines_identity_asks_with_one_token_for_all() -> None:
    token = {
        "access_token": "entra-token-1",
        "expires_on": str(int(time.time()) + 7200),
        "resource": "r",
        "token_type": "Bearer",
    }
    async with MockProvider(lambda body: "hi") as provider, serving(json_answer(token)) as identity:
        environment = {
            "IDENTITY_ENDPOINT": identity.url,
            "IDENTITY_HEADER": "h",
            "AZURE_BASE_URL": provider.base_url,
        }
        told = await ask("azure:my-gpt", environment, at_once=6, times=2)

    assert told == ["hi"] * 12
    assert len(identity.requests) == 1
    assert "cognitiveservices.azure.com" in identity.requests[0].line
    assert {one.headers["authorization"] for one in provider.requests} == {"Bearer entra-token-1"}


@pytest.mark.row("P-AZURE")
async def test_an_identity_that_is_refused_says_what_to_check() -> None:
    async with (
        MockProvider(["hi"]) as provider,
        serving(answer("{}", status=400, content_type="application/json")) as identity,
    ):
        environment = {"IDENTITY_ENDPOINT": identity.url, "IDENTITY_HEADER": "h", "AZURE_BASE_URL": provider.base_url}
        told = await ask("azure:my-gpt", environment)

    assert any("Entra refuses the login" in line for line in told)  # the library logs its own words before
    assert "az login" in " ".join(told)
    assert provider.requests == []


async def test_a_slow_function_holds_nobody_else_up() -> None:
    """The function runs in a thread: meanwhile the event loop answers others."""
    import threading

    may_go_on = threading.Event()

    def slow() -> str:
        assert may_go_on.wait(30)
        return "late-token"

    async with MockProvider(["hi"]) as provider:
        model = resolve_model("azure:my-gpt", base_url=provider.base_url, api_key=slow)
        run = asyncio.create_task(Agent(model, budget=Budget(max_model_turns=1)).run("go"))
        await asyncio.sleep(0)
        may_go_on.set()
        assert (await run).text == "hi"


@pytest.mark.row("P-DOORS")
@pytest.mark.parametrize("header", ["Authorization", "api-key"])
def test_a_header_that_proves_who_asks_needs_nobody_else(header: str) -> None:
    found = reached(base_url=HOST, api_key=None, headers={header: "Bearer of-my-own"})
    assert (found.api_key, found.cloud_endpoint.credentials) == (None, None)
