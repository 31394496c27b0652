"""Who asks at Bedrock: signatures that AWS's own library makes, the credentials of its chain, bearer keys, and what is missing."""

import asyncio
import datetime as dt
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import botocore.session
import pytest
from chat_server import json_answer, serving
from child import ask

from treadle import Agent, resolve_model
from treadle.errors import ConfigurationError, MissingCredential
from treadle.providers.clouds.aws import AwsSignatures, converse_endpoint, invoke_endpoint
from treadle.providers.clouds.fetching import Asked, Reached
from treadle.testing import MockProvider, Turn

ARN = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc"
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG", "AWS_REGION": "us-east-1"}


def reached(model: str = "m", *, name: str = "bedrock", **more: Any) -> Reached:
    cloud_endpoint = invoke_endpoint if name == "bedrock-claude" else converse_endpoint
    asked = {"base_url": None, "api_key": None, "stream": True, "options": {}, "environment": {}, **more}
    asked["environment"] = {"HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true", **asked["environment"]}
    return cloud_endpoint(Asked(name=name, model=model, **asked))


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
        reached(options={"profile": "work"}, environment=files).base_url
        == "https://bedrock-runtime.ap-southeast-2.amazonaws.com"
    )


@pytest.mark.row("P-SIGN")
async def test_a_bearer_key_needs_no_library_of_awss() -> None:
    async with MockProvider(["hi"], api_key="bedrock-key") as provider:
        environment = {"AWS_BEARER_TOKEN_BEDROCK": "bedrock-key", "BEDROCK_BASE_URL": provider.base_url}
        assert await ask("bedrock:m", environment, without="botocore") == ["hi"]


@pytest.mark.row("P-SIGN")
async def test_what_a_server_echoes_of_the_credentials_is_not_shown() -> None:
    turn = Turn(status=403, error="The canonical string was x-amz-security-token:session-token-1 wJalrXUtnFEMI/K7MDENG")
    async with MockProvider([turn]) as provider:
        environment = {**KEYS, "AWS_SESSION_TOKEN": "session-token-1", "BEDROCK_BASE_URL": provider.base_url}
        [told] = await ask("bedrock:m", environment)

    assert "session-token-1" not in told
    assert "wJalrXUtnFEMI" not in told
    assert "aws sts get-caller-identity" in told


# --- what is found, and what is missing


@pytest.mark.row("P-DOORS")
@pytest.mark.parametrize(
    ("model", "more", "address"),
    [
        ("m", {"environment": {"AWS_REGION": "us-west-2"}}, "https://bedrock-runtime.us-west-2.amazonaws.com"),
        ("m", {"environment": {"AWS_DEFAULT_REGION": "us-west-2"}}, "https://bedrock-runtime.us-west-2.amazonaws.com"),
        ("m", {"environment": {"AWS_REGION": "cn-north-1"}}, "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"),
        (ARN, {"environment": {"AWS_REGION": "us-west-2"}}, "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        (ARN, {"options": {"region": "us-gov-west-1"}}, "https://bedrock-runtime.us-gov-west-1.amazonaws.com"),
        ("m", {"environment": {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "http://127.0.0.1:1"}}, "http://127.0.0.1:1"),
        ("m", {"base_url": "http://127.0.0.1:2", "environment": {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}}, "http://127.0.0.1:2"),
    ],
)  # fmt: skip
def test_the_address_follows_from_option_arn_and_environment(model: str, more: dict[str, Any], address: str) -> None:
    found = reached(model, api_key="k", **more)
    assert found.base_url == address
    assert "region" not in found.options


@pytest.mark.row("P-DOORS")
def test_what_is_missing_is_named_with_the_next_step() -> None:
    with pytest.raises(ConfigurationError, match=r"region is missing.*export AWS_REGION="):
        reached(api_key="k")
    with pytest.raises(MissingCredential, match="AWS_BEARER_TOKEN_BEDROCK"):
        reached(environment={"AWS_REGION": "us-east-1"})
    with pytest.raises(ConfigurationError, match="not a region"):
        reached(api_key="k", options={"region": "us-east-1.evil.example/"})
    with pytest.raises(ConfigurationError, match="The option region"):
        reached(api_key="k", options={"region": 3})
    with pytest.raises(ConfigurationError, match="without a region"):
        reached(base_url="http://127.0.0.1:1", environment={"AWS_ACCESS_KEY_ID": "a"})


@pytest.mark.row("P-DOORS")
async def test_the_extra_is_named_where_it_is_missing() -> None:
    told = await ask("bedrock:m", KEYS, without="botocore")
    assert "MissingCredential" in told[-1]
    assert "pip install '.[bedrock]'" in told[-1]


def test_a_server_of_ones_own_is_asked_as_nobody_where_nobody_is_known() -> None:
    assert reached(base_url="http://127.0.0.1:1").cloud_endpoint.credentials is None
    found = reached(base_url="http://127.0.0.1:1", environment=KEYS).cloud_endpoint.credentials
    assert isinstance(found, AwsSignatures)


@pytest.mark.row("P-SIGN")
async def test_a_function_gives_the_token_of_each_request() -> None:
    tokens = iter(("one", "two"))
    async with MockProvider(["hi", "hi"]) as provider:
        model = resolve_model("bedrock:m", base_url=provider.base_url, api_key=lambda: next(tokens))
        for _ in range(2):
            await Agent(model).run("go")
        spent = await Agent(model).run("go")

    assert [request.headers["authorization"] for request in provider.requests] == ["Bearer one", "Bearer two"]
    assert "The function given as api_key raised" in spent.message
