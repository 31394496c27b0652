"""Who asks at Vertex: tokens of the environment's credentials, fetched once for all, replaced in time, never shown; and where."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from chat_server import answer, json_answer, serving
from child import ask
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from treadle import Agent, resolve_model, tool
from treadle.errors import ConfigurationError, MissingCredential, ModelUnavailable
from treadle.messages import user_message
from treadle.ports import ModelRequest
from treadle.providers.clouds.fetching import Asked, Reached, Token, TokenCredentials
from treadle.providers.clouds.google import claude_endpoint, gemini_endpoint
from treadle.providers.http.client import Outgoing
from treadle.testing import MockProvider, call

REQUEST = Outgoing(url="http://127.0.0.1/", content_type="application/json", body=b"{}")


def reached(model: str = "gemini-2.5-flash", **more: Any) -> Reached:
    asked = {"base_url": None, "api_key": None, "stream": True, "options": {}, "environment": {}, **more}
    asked["environment"] = {"HOME": "/nonexistent", **asked["environment"]}
    cloud_endpoint = claude_endpoint if model.startswith("claude") else gemini_endpoint
    return cloud_endpoint(Asked(name="vertex", model=model, **asked))


def account(folder: Path, token_uri: str) -> dict[str, str]:
    """Make the file of a service account whose tokens come from a server on loopback."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    held = {
        "type": "service_account", "project_id": "project-of-file", "private_key_id": "k1",
        "private_key": key.private_bytes(*form).decode(), "client_email": "a@project-of-file.iam.gserviceaccount.com",
        "client_id": "1", "token_uri": token_uri,
    }  # fmt: skip
    (folder / "account.json").write_text(json.dumps(held))
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(folder / "account.json")}


def token(value: str, *, seconds: int = 3600) -> bytes:
    return json_answer({"access_token": value, "expires_in": seconds, "token_type": "Bearer"})


@pytest.mark.row("P-VERTEX")
@pytest.mark.parametrize(
    ("model", "place"),
    [
        ("gemini-2.5-flash", "publishers/google/models/gemini-2.5-flash:streamGenerateContent"),
        ("claude-sonnet-4-5@20250929", "publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict"),
    ],
)
async def test_a_service_account_asks_with_one_token_for_all(model: str, place: str, tmp_path) -> None:
    async with MockProvider(lambda body: "hi") as provider, serving(token("ya29.first-token")) as tokens:
        environment = {
            **account(tmp_path, tokens.url.replace("/v1", "/token")),
            "GOOGLE_CLOUD_LOCATION": "us-east5",
            "VERTEX_BASE_URL": provider.base_url,
        }
        told = await ask(f"vertex:{model}", environment, at_once=8, times=2)

    assert told == ["hi"] * 16
    assert len(tokens.requests) == 1
    assert {request.headers["authorization"] for request in provider.requests} == {"Bearer ya29.first-token"}
    assert {request.path for request in provider.requests} == {
        f"/v1/projects/project-of-file/locations/us-east5/{place}"
    }


@pytest.mark.row("P-VERTEX")
async def test_a_token_is_replaced_before_it_expires(tmp_path) -> None:
    soon, later = token("ya29.soon-over", seconds=100), token("ya29.for-long")
    async with MockProvider(lambda body: "hi") as provider, serving(soon, later) as tokens:
        environment = {**account(tmp_path, tokens.url), "VERTEX_BASE_URL": provider.base_url}
        told = await ask("vertex:gemini-2.5-flash", environment, times=3)

    assert told == ["hi"] * 3
    sent = [request.headers["authorization"].removeprefix("Bearer ya29.") for request in provider.requests]
    assert sent == ["soon-over", "for-long", "for-long"]


@pytest.mark.row("P-VERTEX")
async def test_a_refused_login_says_what_to_check_and_shows_nothing(tmp_path) -> None:
    refused = json_answer({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, status=400)
    async with MockProvider(["hi"]) as provider, serving(refused) as tokens:
        environment = {**account(tmp_path, tokens.url), "VERTEX_BASE_URL": provider.base_url}
        [told] = await ask("vertex:gemini-2.5-flash", environment)

    assert told.startswith("model_error: Google refuses the login (invalid_grant: Invalid JWT Signature.).")
    assert "gcloud auth application-default" in told
    assert "PRIVATE KEY" not in told
    assert provider.requests == []


@pytest.mark.row("P-VERTEX")
async def test_a_token_that_a_server_echoes_is_not_shown_and_one_that_it_refuses_is_replaced_once() -> None:
    tokens = iter(("ya29.old-token", "ya29.new-token", "ya29.newest-token"))
    refused = json_answer({"error": {"code": 401, "message": "bad token ya29.new-token"}}, status=401)
    async with serving(refused) as server:
        model = resolve_model("vertex:gemini-2.5-flash", base_url=server.url, api_key=lambda: next(tokens))
        result = await Agent(model).run("go")

    assert [one.headers["authorization"] for one in server.requests] == [
        "Bearer ya29.old-token",
        "Bearer ya29.new-token",
    ]
    assert "bad token [redacted]" in result.message
    assert "ya29" not in str(result.report())


@pytest.mark.row("P-VERTEX")
async def test_all_who_wait_share_one_fetch_and_one_who_stops_waiting_harms_nobody() -> None:
    fetched: list[int] = []
    may_go_on, has_begun = threading.Event(), threading.Event()

    def fetch() -> Token:
        fetched.append(1)
        has_begun.set()
        assert may_go_on.wait(30)
        return Token(value="t", expires_at=None)

    credentials = TokenCredentials(fetch, advice="", what="The token")
    waiting = [asyncio.create_task(credentials.auth_headers(REQUEST)) for _ in range(20)]
    await asyncio.to_thread(has_begun.wait, 30)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    may_go_on.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)

    assert len(fetched) == 1
    assert isinstance(found[0], asyncio.CancelledError)
    assert [one.headers for one in found[1:] if not isinstance(one, BaseException)] == [
        {"Authorization": "Bearer t"}
    ] * 19


@pytest.mark.row("P-VERTEX")
async def test_a_token_that_is_still_good_outlives_a_failed_fetch() -> None:
    now = [1000.0]
    answers: list[Token | Exception] = [
        Token(value="a", expires_at=1300.0),
        ModelUnavailable("down"),
        ModelUnavailable("down"),
    ]

    def fetch() -> Token:
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    credentials = TokenCredentials(fetch, advice="", what="The token", now=lambda: now[0])
    assert (await credentials.auth_headers(REQUEST)).secrets == ("a",)
    assert (await credentials.auth_headers(REQUEST)).secrets == ("a",)
    now[0] = 1100.0  # within four minutes of its end
    assert (await credentials.auth_headers(REQUEST)).secrets == ("a",)
    now[0] = 1300.0
    with pytest.raises(ModelUnavailable):
        await credentials.auth_headers(REQUEST)


@pytest.mark.row("P-VERTEX")
async def test_a_fault_of_a_fetch_reaches_all_who_wait_and_the_next_one_asks_again() -> None:
    answers: list[Any] = [RuntimeError("odd"), Token(value="b", expires_at=None)]

    def fetch() -> Token:
        said = answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    credentials = TokenCredentials(fetch, advice="", what="The token")
    with pytest.raises(RuntimeError):
        await credentials.auth_headers(REQUEST)
    assert (await credentials.auth_headers(REQUEST)).secrets == ("b",)


# --- what is found, and what is missing

SOMEBODY = {"GOOGLE_APPLICATION_CREDENTIALS": "/nonexistent/account.json"}


@pytest.mark.row("P-DOORS", "P-VERTEX")
@pytest.mark.parametrize(
    ("model", "environment", "address"),
    [
        ("gemini-3-pro", {}, "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google/models/gemini-3-pro:streamGenerateContent"),
        ("gemini-3-pro", {"GOOGLE_CLOUD_LOCATION": "europe-west4"}, "https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/europe-west4/publishers/google/models/gemini-3-pro:streamGenerateContent"),
        ("claude-opus-4-6", {"CLOUD_ML_REGION": "us"}, "https://aiplatform.us.rep.googleapis.com/v1/projects/p/locations/us/publishers/anthropic/models/claude-opus-4-6:streamRawPredict"),
        ("projects/p/locations/us-east4/endpoints/123", {"CLOUD_ML_REGION": "us-east4"}, "https://us-east4-aiplatform.googleapis.com/v1/projects/p/locations/us-east4/endpoints/123:streamGenerateContent"),
        ("claude-opus-4-6", {"VERTEX": ""}, "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/anthropic/models/claude-opus-4-6:streamRawPredict"),
    ],
)  # fmt: skip
def test_the_address_follows_from_project_and_location(model: str, environment: dict[str, str], address: str) -> None:
    found = reached(model, environment={**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "p", **environment})
    assert f"{found.base_url}/{found.cloud_endpoint.path}" == address


@pytest.mark.row("P-DOORS")
def test_options_name_project_and_location_and_do_not_reach_the_body() -> None:
    options = {"project": "mine", "location": "us-central1", "temperature": 0}
    found = reached(options=options, environment={**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "p"}, stream=False)
    assert "projects/mine/locations/us-central1/" in (found.cloud_endpoint.path or "")
    assert (found.cloud_endpoint.path or "").endswith(":generateContent")
    assert found.options == {"temperature": 0}


@pytest.mark.row("P-DOORS")
def test_what_is_missing_is_named_with_the_next_step() -> None:
    with pytest.raises(ConfigurationError, match=r"project is missing.*export GOOGLE_CLOUD_PROJECT="):
        reached(environment=SOMEBODY)
    with pytest.raises(MissingCredential, match="gcloud auth application-default login"):
        reached(environment={"GOOGLE_CLOUD_PROJECT": "p"})
    with pytest.raises(ConfigurationError, match="not a location"):
        reached(environment={**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "evil.example/"})
    with pytest.raises(ConfigurationError, match="not the id of a Google Cloud project"):
        reached(environment={**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "a/b"})


@pytest.mark.row("P-DOORS")
async def test_the_extra_is_named_where_it_is_missing() -> None:
    told = await ask("vertex:gemini-2.5-flash", {**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "p"}, without="google.auth")
    assert "MissingCredential" in told[-1]
    assert "pip install '.[vertex]'" in told[-1]


@pytest.mark.row("P-VERTEX")
async def test_an_unreadable_account_is_told_before_anything_is_sent(tmp_path) -> None:
    (tmp_path / "a.json").write_text("{}")
    async with MockProvider(["hi"]) as provider:
        for file in ("a.json", "missing.json"):
            environment = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / file), "VERTEX_BASE_URL": provider.base_url}
            [told] = await ask("vertex:gemini-2.5-flash", environment)
            assert told.startswith("model_error: ")
            assert "gcloud auth" in told
    assert provider.requests == []


@pytest.mark.row("P-VERTEX")
async def test_a_key_needs_no_project_and_no_library() -> None:
    async with MockProvider(["hi"], api_key="express") as provider:
        environment = {"VERTEX_API_KEY": "express", "VERTEX_BASE_URL": provider.base_url}
        told = await ask("vertex:gemini-2.5-flash", environment, without="google.auth")

    assert told == ["hi"]
    assert provider.requests[0].headers["x-goog-api-key"] == "express"
    assert provider.requests[0].path == "/v1/publishers/google/models/gemini-2.5-flash:streamGenerateContent"


@pytest.mark.row("P-VERTEX")
@pytest.mark.parametrize("stream", [True, False])
async def test_claude_on_vertex_carries_a_loop_in_both_forms(stream: bool) -> None:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    async with MockProvider([call("look"), "hi"]) as provider:
        model = resolve_model(
            "vertex:claude-sonnet-4-5@20250929", base_url=provider.base_url, stream=stream,
            options={"project": "p", "location": "us-east5"},
        )  # fmt: skip
        result = await Agent(model, tools=[look]).run("go")

    assert (result.text, provider.refusals) == ("hi", [])
    sent = provider.requests[0]
    assert (sent.body["anthropic_version"], sent.body.get("stream", False)) == ("vertex-2023-10-16", stream)
    assert "model" not in sent.body
    assert "anthropic-version" not in sent.headers
    assert result.messages[-1].origin == "vertex:claude-sonnet-4-5@20250929"


@pytest.mark.row("P-VERTEX")
async def test_an_error_of_vertex_in_a_list_is_understood() -> None:
    words = [{"error": {"code": 429, "message": "Resource exhausted.", "status": "RESOURCE_EXHAUSTED"}}]
    async with serving(answer(json.dumps(words), status=429, content_type="application/json")) as server:
        model = resolve_model("vertex:gemini-2.5-flash", base_url=server.url, api_key="k")

        with pytest.raises(ModelUnavailable, match="Resource exhausted"):
            [part async for part in model.stream(ModelRequest(messages=(user_message("go"),)))]
