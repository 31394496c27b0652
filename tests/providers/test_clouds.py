"""Who asks at the clouds, and where: signatures, tokens and keys of AWS, Azure and Google; addresses; and what is missing, by name."""

import asyncio
import datetime as dt
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import botocore.session
import pytest
from chat_server import answer, json_answer, serving
from child import ask
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from treadle import Agent, Budget, resolve_model, tool
from treadle.errors import ConfigurationError, MissingCredential, ModelUnavailable
from treadle.providers.clouds import aws, azure, google
from treadle.providers.clouds.fetching import Asked, Reached, Token, TokenCredentials
from treadle.providers.http.client import Outgoing
from treadle.testing import MockProvider, Turn, call

ARN = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc"
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG", "AWS_REGION": "us-east-1"}
AZURE = "https://name.openai.azure.com"
SOMEBODY = {"GOOGLE_APPLICATION_CREDENTIALS": "/nonexistent/account.json"}
REQUEST = Outgoing(url="http://127.0.0.1/", content_type="application/json", body=b"{}")
ENDPOINTS = {
    "bedrock": aws.converse_endpoint,
    "bedrock-claude": aws.invoke_endpoint,
    "azure": azure.chat_endpoint,
    "azure-responses": azure.responses_endpoint,
}


def reached(name: str, model: str = "m", **more: Any) -> Reached:
    """Return what a cloud's endpoint makes of a model's name, its options and an environment."""
    asked = {"base_url": None, "api_key": None, "stream": True, "options": {}, "environment": {}, **more}
    asked["environment"] = {"HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true", **asked["environment"]}
    at_vertex = google.claude_endpoint if model.startswith("claude") else google.gemini_endpoint
    return ENDPOINTS.get(name, at_vertex)(Asked(name=name, model=model, **asked))


# --- where -----------------------------------------------------------------------------------------------------------


def in_region(**environment: str) -> dict[str, Any]:
    return {"api_key": "k", "environment": environment}


@pytest.mark.row("P-DOORS")
@pytest.mark.parametrize(
    ("model", "more", "address"),
    [
        ("m", in_region(AWS_REGION="us-west-2"), "https://bedrock-runtime.us-west-2.amazonaws.com"),
        ("m", in_region(AWS_DEFAULT_REGION="us-west-2"), "https://bedrock-runtime.us-west-2.amazonaws.com"),
        ("m", in_region(AWS_REGION="cn-north-1"), "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"),
        (ARN, in_region(AWS_REGION="us-west-2"), "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        (ARN, {"api_key": "k", "options": {"region": "us-gov-west-1"}}, "https://bedrock-runtime.us-gov-west-1.amazonaws.com"),
        ("m", in_region(AWS_ENDPOINT_URL_BEDROCK_RUNTIME="http://127.0.0.1:1"), "http://127.0.0.1:1"),
        ("m", {"base_url": "http://127.0.0.1:2", **in_region(AWS_ENDPOINT_URL="http://127.0.0.1:1")}, "http://127.0.0.1:2"),
    ],
)  # fmt: skip
def test_an_address_at_aws_follows_from_option_arn_and_environment(
    model: str, more: dict[str, Any], address: str
) -> None:
    found = reached("bedrock", model, **more)
    assert found.base_url == address
    assert "region" not in found.options


@pytest.mark.row("P-AZURE", "P-DOORS")
@pytest.mark.parametrize(
    ("name", "given", "environment", "address"),
    [
        ("azure", AZURE, {}, f"{AZURE}/openai/v1"),
        ("azure-responses", f"{AZURE}/", {}, f"{AZURE}/openai/v1"),
        ("azure", AZURE, {"OPENAI_API_VERSION": "2024-10-21"}, f"{AZURE}/openai/deployments/my-gpt?api-version=2024-10-21"),
        ("azure-responses", AZURE, {"AZURE_OPENAI_API_VERSION": "2025-04-01-preview"}, f"{AZURE}/openai?api-version=2025-04-01-preview"),
        ("azure", f"{AZURE}/openai?api-version=1", {}, f"{AZURE}/openai/deployments/my-gpt?api-version=1"),
        ("azure", f"{AZURE}/openai/deployments/other?api-version=1", {}, f"{AZURE}/openai/deployments/other?api-version=1"),
        ("azure-responses", f"{AZURE}/openai/v1", {"OPENAI_API_VERSION": "1"}, f"{AZURE}/openai/v1"),
        ("azure", "https://gateway.example/ai", {"OPENAI_API_VERSION": "1"}, "https://gateway.example/ai"),
    ],
)  # fmt: skip
def test_a_resource_is_completed_and_any_other_path_is_taken_as_it_is(name, given, environment, address) -> None:
    assert reached(name, "my-gpt", base_url=given, api_key="k", environment=environment).base_url == address
    assert (
        reached(name, "my-gpt", api_key="k", environment={"AZURE_OPENAI_ENDPOINT": given, **environment}).base_url
        == address
    )


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
def test_an_address_at_google_follows_from_project_and_location(
    model: str, environment: dict[str, str], address: str
) -> None:
    found = reached("vertex", model, environment={**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "p", **environment})
    assert f"{found.base_url}/{found.cloud_endpoint.path}" == address


@pytest.mark.row("P-DOORS")
def test_options_name_project_and_location_and_do_not_reach_the_body() -> None:
    options = {"project": "mine", "location": "us-central1", "temperature": 0}
    found = reached(
        "vertex",
        "gemini-2.5-flash",
        options=options,
        environment={**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "p"},
        stream=False,
    )
    assert "projects/mine/locations/us-central1/" in (found.cloud_endpoint.path or "")
    assert (found.cloud_endpoint.path or "").endswith(":generateContent")
    assert found.options == {"temperature": 0}


# --- what is missing -------------------------------------------------------------------------------------------------

MISSING: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("bedrock", {"api_key": "k"}, ConfigurationError, r"region is missing.*export AWS_REGION="),
    ("bedrock", {"environment": {"AWS_REGION": "us-east-1"}}, MissingCredential, "AWS_BEARER_TOKEN_BEDROCK"),
    ("bedrock", {"api_key": "k", "options": {"region": "us-east-1.evil.example/"}}, ConfigurationError, "not a region"),
    ("bedrock", {"api_key": "k", "options": {"region": 3}}, ConfigurationError, "The option region"),
    ("bedrock", {"base_url": "http://127.0.0.1:1", "environment": {"AWS_ACCESS_KEY_ID": "a"}}, ConfigurationError, "without a region"),
    ("azure", {"api_key": "k"}, ConfigurationError, "AZURE_BASE_URL"),
    ("azure", {"api_key": "k", "base_url": AZURE, "options": {"api_version": 3}}, ConfigurationError, "api_version"),
    ("azure", {"api_key": "k", "base_url": AZURE, "options": {"api_version": "1&x=2"}}, ConfigurationError, "not an API version"),
    ("vertex", {"environment": SOMEBODY}, ConfigurationError, r"project is missing.*export GOOGLE_CLOUD_PROJECT="),
    ("vertex", {"environment": {"GOOGLE_CLOUD_PROJECT": "p"}}, MissingCredential, "gcloud auth application-default login"),
    ("vertex", {"environment": {**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "evil.example/"}}, ConfigurationError, "not a location"),
    ("vertex", {"environment": {**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "a/b"}}, ConfigurationError, "not the id of a Google Cloud project"),
]  # fmt: skip


@pytest.mark.row("P-DOORS")
@pytest.mark.parametrize(("name", "given", "kind", "words"), MISSING)
def test_what_is_missing_is_named_with_the_next_step(name: str, given: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        reached(name, **given)


@pytest.mark.row("P-DOORS")
@pytest.mark.parametrize(
    ("model", "environment", "library", "extra"),
    [
        ("bedrock:m", KEYS, "botocore", "bedrock"),
        ("azure:my-gpt", {"AZURE_BASE_URL": AZURE}, "azure.identity", "azure"),
        ("vertex:gemini-2.5-flash", {**SOMEBODY, "GOOGLE_CLOUD_PROJECT": "p"}, "google.auth", "vertex"),
    ],
)
async def test_the_extra_is_named_where_it_is_missing(model: str, environment: Any, library: str, extra: str) -> None:
    told = await ask(model, environment, without=library)
    assert MissingCredential.__name__ in told[-1]
    assert f"pip install '.[{extra}]'" in told[-1]
    assert extra != "azure" or "AZURE_API_KEY" in told[-1]


@pytest.mark.row("P-SIGN", "P-VERTEX")
@pytest.mark.parametrize(
    ("model", "library", "header", "shown"),
    [
        ("bedrock:m", "botocore", "authorization", "Bearer a-key"),
        ("vertex:gemini-2.5-flash", "google.auth", "x-goog-api-key", "a-key"),
    ],
)
async def test_a_key_needs_no_library_and_no_project(model: str, library: str, header: str, shown: str) -> None:
    vendor = model.partition(":")[0]
    async with MockProvider(["hi"], api_key="a-key") as provider:
        variable = "AWS_BEARER_TOKEN_BEDROCK" if vendor == "bedrock" else "VERTEX_API_KEY"
        environment = {variable: "a-key", f"{vendor.upper()}_BASE_URL": provider.base_url}
        assert await ask(model, environment, without=library) == ["hi"]

    [sent] = provider.requests
    assert sent.headers[header] == shown
    if vendor == "vertex":
        assert sent.path == "/v1/publishers/google/models/gemini-2.5-flash:streamGenerateContent"


@pytest.mark.row("P-SIGN", "P-AZURE")
@pytest.mark.parametrize("name", ["bedrock", "azure", "azure-responses"])
async def test_a_function_gives_the_token_of_each_request(name: str) -> None:
    tokens = iter(("one", "two"))
    async with MockProvider(["hi", "hi"]) as provider:
        model = resolve_model(f"{name}:m", base_url=provider.base_url, api_key=lambda: next(tokens))
        for _ in range(2):
            await Agent(model).run("go")
        spent = await Agent(model).run("go")

    assert [request.headers["authorization"] for request in provider.requests] == ["Bearer one", "Bearer two"]
    assert not any("api-key" in request.headers for request in provider.requests)
    assert "The function given as api_key raised" in spent.message


@pytest.mark.row("P-INVOKE", "P-VERTEX")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("name", "version"),
    [(f"bedrock-claude:{CLAUDE}", "bedrock-2023-05-31"), ("vertex:claude-sonnet-4-5@20250929", "vertex-2023-10-16")],
)
async def test_claude_at_a_cloud_gets_its_body_without_model_and_with_its_version(
    name: str, version: str, stream: bool
) -> None:
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    async with MockProvider([call("look"), "hi"]) as provider:
        options = {"project": "p", "location": "us-east5"} if name.startswith("vertex") else {}
        model = resolve_model(name, base_url=provider.base_url, api_key="k", stream=stream, options=options)
        result = await Agent(model, tools=[look]).run("go")

    sent = provider.requests[0]
    assert (result.text, provider.refusals) == ("hi", [])
    assert sent.body["anthropic_version"] == version
    assert sent.body.get("stream", False) == (stream and name.startswith("vertex"))
    assert "model" not in sent.body
    assert "anthropic-version" not in sent.headers
    assert result.messages[-1].origin == name


# --- AWS ---------------------------------------------------------------------------------------------------------------


def signature_of(method: str, path: str, headers: Mapping[str, str], body: bytes, *, secret: str) -> str:
    """Return the signature of a request, from the words of AWS's documents (Signature Version 4) alone."""
    scheme, _, fields = headers["authorization"].partition(" ")
    assert scheme == "AWS4-HMAC-SHA256"
    told = dict(field.strip().split("=", 1) for field in fields.split(","))
    _, day, region, service, _ = told["Credential"].split("/")
    names = told["SignedHeaders"].split(";")
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    place = quote(path, safe="/-_.~")  # of every service but S3 the path is encoded once more
    canonical = "\n".join((method, place, "", lines, ";".join(names), hashlib.sha256(body).hexdigest()))
    scope = f"{day}/{region}/{service}/aws4_request"
    told_hash = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{told_hash}"
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    assert told["Signature"] == hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return f"{scope} {','.join(names)}"


@pytest.mark.row("P-SIGN")
@pytest.mark.parametrize("name", ["bedrock", "bedrock-claude"])
@pytest.mark.parametrize("model", [CLAUDE, ARN, "amazon.nova-micro-v1:0"])
async def test_a_request_is_signed_as_awss_documents_say(name: str, model: str) -> None:
    async with MockProvider(["hi"]) as provider:
        environment = {**KEYS, "AWS_SESSION_TOKEN": "session-token-1", "BEDROCK_BASE_URL": provider.base_url}
        told = await ask(f"{name}:{model}", environment)

    [sent] = provider.requests
    assert told == ["hi"]
    region = "eu-west-1" if model is ARN else "us-east-1"
    scope = signature_of(sent.method, sent.path, sent.headers, sent.raw, secret=KEYS["AWS_SECRET_ACCESS_KEY"])
    assert scope.split(" ")[0].endswith(f"/{region}/bedrock/aws4_request")
    assert {"host", "content-type", "x-amz-date", "x-amz-security-token"} <= set(scope.split(" ")[1].split(","))
    assert sent.headers["x-amz-security-token"] == "session-token-1"


@pytest.mark.row("P-SIGN")
@pytest.mark.parametrize("model", [CLAUDE, ARN])
async def test_a_request_goes_where_awss_own_client_sends_it(model: str) -> None:
    def by_the_vendor(url: str) -> Any:
        client = botocore.session.Session().create_client(
            "bedrock-runtime", region_name="us-east-1", endpoint_url=url,
            aws_access_key_id="AKID", aws_secret_access_key="secret",
        )  # fmt: skip
        return client.converse(modelId=model, messages=[{"role": "user", "content": [{"text": "go"}]}])

    async with MockProvider(["hi", "hi"]) as provider:
        theirs = await asyncio.to_thread(by_the_vendor, provider.base_url)
        ours = await Agent(
            resolve_model(f"bedrock:{model}", base_url=provider.base_url, api_key="k", stream=False)
        ).run("go")

    one, other = provider.requests
    assert (one.path, one.body["messages"][0]["role"]) == (other.path, "user")
    assert theirs["output"]["message"]["content"] == [{"text": ours.text}]
    assert signature_of("POST", one.path, one.headers, one.raw, secret="secret")


@pytest.mark.row("P-SIGN")
async def test_credentials_of_a_container_are_fetched_once_for_all_who_wait_and_replaced_in_time() -> None:
    def keys(number: int, *, minutes: int) -> bytes:
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
        return json_answer({
            "AccessKeyId": f"AKID{number}", "SecretAccessKey": "secret", "Token": f"token-{number}-xxxx",
            "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        })  # fmt: skip

    async with MockProvider(lambda body: "hi") as provider, serving(keys(1, minutes=5), keys(2, minutes=600)) as chain:
        address = chain.url.removesuffix("/v1") + "/creds"
        environment = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": address,
            "AWS_REGION": "us-east-1",
            "BEDROCK_BASE_URL": provider.base_url,
        }
        told = await ask("bedrock:m", environment, at_once=8, times=3)

    assert told == ["hi"] * 24
    tokens = [request.headers["x-amz-security-token"] for request in provider.requests]
    assert len(chain.requests) == 2
    # Five minutes are less than AWS's library wants to have left, so the first keys are replaced at the first look at them.
    assert set(tokens[:8]) <= {"token-1-xxxx", "token-2-xxxx"}
    assert set(tokens[8:]) == {"token-2-xxxx"}


@pytest.mark.row("P-SIGN")
async def test_a_profile_brings_keys_and_region(tmp_path) -> None:
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = s3cret\n")
    (tmp_path / "config").write_text("[profile work]\nregion = ap-southeast-2\n")
    async with MockProvider(["hi"]) as provider:
        files = {
            name: str(tmp_path / file)
            for name, file in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config"))
        }
        told = await ask("bedrock:m", {**files, "AWS_PROFILE": "work", "BEDROCK_BASE_URL": provider.base_url})

    assert told == ["hi"]
    assert "Credential=AKIDWORK/" in provider.requests[0].headers["authorization"]
    assert "/ap-southeast-2/bedrock/" in provider.requests[0].headers["authorization"]
    assert (
        reached("bedrock", options={"profile": "work"}, environment=files).base_url
        == "https://bedrock-runtime.ap-southeast-2.amazonaws.com"
    )


@pytest.mark.row("P-SIGN")
async def test_what_a_server_echoes_of_the_credentials_is_not_shown() -> None:
    turn = Turn(status=403, error="The canonical string was x-amz-security-token:session-token-1 wJalrXUtnFEMI/K7MDENG")
    async with MockProvider([turn]) as provider:
        environment = {**KEYS, "AWS_SESSION_TOKEN": "session-token-1", "BEDROCK_BASE_URL": provider.base_url}
        [told] = await ask("bedrock:m", environment)

    assert "session-token-1" not in told
    assert "wJalrXUtnFEMI" not in told
    assert "aws sts get-caller-identity" in told


def test_a_server_of_ones_own_is_asked_as_nobody_where_nobody_is_known() -> None:
    assert reached("bedrock", base_url="http://127.0.0.1:1").cloud_endpoint.credentials is None
    found = reached("bedrock", base_url="http://127.0.0.1:1", environment=KEYS).cloud_endpoint.credentials
    assert isinstance(found, aws.AwsSignatures)


# --- Azure -------------------------------------------------------------------------------------------------------------

FILTER = {
    "error": {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "type": None, "param": "prompt", "code": "content_filter", "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True, "severity": "high"}}},
    }
}  # fmt: skip


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
    found = reached("azure", base_url=AZURE, api_key=None, headers={header: "Bearer of-my-own"})
    assert (found.api_key, found.cloud_endpoint.credentials) == (None, None)


# --- Google ------------------------------------------------------------------------------------------------------------


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
